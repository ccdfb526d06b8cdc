// SPDX-License-Identifier: Apache-2.0
//! `senko-rivals`: other key-value engines, in a process that an experiment of `senko-lab` starts
//! and drives over its pipes.
//!
//! Each engine is a file here and a feature of the crate; without features there is no engine.
//! Always holds: this crate uses only [`senko_lab::kv`] of the experiments, and nothing else in the
//! workspace uses this crate.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(feature = "fjall")]
mod fjall; // an LSM tree in Rust
#[cfg(feature = "lmdb")]
mod lmdb; // a B+ tree in a memory map
#[cfg(feature = "redb")]
mod redb; // a B+ tree in Rust, for the experiments on commits
#[cfg(feature = "rocksdb")]
mod rocksdb; // an LSM tree in C++

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use senko_lab::kv::{Maker, child};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The engines that were built in.
static MAKERS: &[&dyn Maker] = &[
    #[cfg(feature = "rocksdb")]
    &rocksdb::RocksDb,
    #[cfg(feature = "lmdb")]
    &lmdb::Lmdb,
    #[cfg(feature = "fjall")]
    &fjall::Fjall,
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [task, engine, folder, _synced] = &words[..]
        && task == "commits"
    {
        return commits(engine, Path::new(folder));
    }
    if !words.is_empty() {
        let names: Vec<&str> = MAKERS.iter().map(|maker| maker.name()).collect();
        // A line that cannot be read changes nothing.
        let _ = writeln!(
            std::io::stderr(),
            "senko-rivals is started by `senko-lab run`; engines built in: {}",
            if names.is_empty() {
                "none (--features all)".to_owned()
            } else {
                names.join(", ")
            }
        );
        return ExitCode::FAILURE;
    }
    match child::main(MAKERS) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "senko-rivals: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The process of an engine that the experiments on commits drive, over its pipes.
fn commits(engine: &OsStr, folder: &Path) -> ExitCode {
    #[cfg(feature = "redb")]
    if engine == "redb" {
        let (asked, said) = (std::io::stdin().lock(), std::io::stdout().lock());
        let said = std::io::BufWriter::new(said);
        return match redb::serve(folder, asked, said) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let _ = writeln!(
        std::io::stdout(),
        "error {} is not built in, for {}: build senko_rivals with --features all",
        engine.display(),
        folder.display()
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use senko_lab::kv::{Durability, rehearsal};

    /// Without features there is nothing to run; see the crate's manifest.
    #[test]
    fn each_engine_passes_the_rehearsal() {
        for maker in super::MAKERS {
            for durability in [Durability::Lazy, Durability::Kill] {
                let name = format!("senko-rival-{}-{}", maker.name(), std::process::id());
                let folder = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&folder).unwrap();
                let passed = rehearsal::rehearse(*maker, &folder, durability);
                std::fs::remove_dir_all(&folder).unwrap();
                passed.unwrap();
            }
        }
    }
}
