// SPDX-License-Identifier: Apache-2.0
//! Tests of the tree itself, for rules that the compiler does not see and a reviewer should not
//! have to check.

mod circles; // files that import each other in a circle
mod dependencies; // docs/dependencies.md against the manifests
mod edges; // which crate may use which
mod examples; // what a library shows has an example
mod invariants; // names of invariants: the code and their page
mod names; // paths and symbols that the documents name
mod owners; // state that only one folder writes
mod sources; // how source files open, how long they are, where `unsafe` stands
mod tree; // the files
mod wrap; // columns of comments and prose

/// Fails with all complaints at once.
fn complain(what: &str, complaints: Vec<String>) {
    assert!(
        complaints.is_empty(),
        "{what}:\n  {}",
        complaints.join("\n  ")
    );
}
