// SPDX-License-Identifier: Apache-2.0
//! The examples run, and their assertions hold.

#[path = "../../examples/compare_layers.rs"]
mod compare_layers;
#[path = "../../examples/engine_on_a_drive.rs"]
mod engine_on_a_drive;

#[test]
fn layers_are_compared() {
    compare_layers::main().unwrap();
}

#[test]
fn an_engine_runs_on_a_drive() {
    engine_on_a_drive::main().unwrap();
}
