// SPDX-License-Identifier: Apache-2.0
//! Directs the calls that take the GIL back to `src/finalizing.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=PyEval_RestoreThread");
}
