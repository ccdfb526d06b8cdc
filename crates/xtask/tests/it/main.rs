// SPDX-License-Identifier: Apache-2.0
//! Tests of the source tree itself, for rules that the compiler does not check and a reviewer
//! should not have to.

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod circles; // files that import each other in a circle
mod dependencies; // docs/dependencies.md against the manifests
mod edges; // which crate may use which
mod invariants; // names of invariants: the code and their page
mod methods; // methods of one type that call across files in a circle
mod names; // paths and symbols that the documents name
mod owners; // state that only one folder writes
mod sources; // how source files begin, where `unsafe` is
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
