// SPDX-License-Identifier: Apache-2.0
//! The seeds of the fuzz targets, each run once, and with bytes changed.

use super::*;
use crate::block::fuzzing;
use crate::fuzzing_tests::{corpus, run_seeds};

#[test]
fn page_seeds() {
    let near = |len: usize| {
        (0..len.min(64))
            .chain((4080..len).step_by(17).take(40))
            .collect()
    };
    run_seeds("store_page", near, fuzzing::pages);
}

#[test]
fn head_seeds() {
    let near = |len: usize| {
        let header = 0..len.min(140);
        header
            .chain((1140..len.min(1400)).step_by(3))
            .chain((4080..len).step_by(41))
            .collect()
    };
    run_seeds("store_head", near, fuzzing::head);
}

/// Writes the seeds again, after a change of the format: `cargo test -p senko_store write_seeds --
/// --ignored`.
#[test]
#[ignore = "writes into the tree"]
fn write_seeds() {
    let put = |target: &str, name: &str, data: &[u8]| {
        let folder = corpus(target);
        std::fs::create_dir_all(&folder).unwrap();
        let end = data
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(1, |last| last + 1);
        std::fs::write(folder.join(name), &data[..end]).unwrap();
    };
    let kinds = [
        ("mixed", make(1, 60, Hashes::Real, 12_000), 4096),
        ("small", make(2, 30, Hashes::Real, 300), 4096),
        ("crowded", make(3, 40, Hashes::Crowded, 2000), 4096),
        ("large_pages", make(4, 40, Hashes::Real, 20_000), 8192),
        ("narrow", make(5, 40, Hashes::Narrow, 3000), 4096),
        ("empty", make(6, 0, Hashes::Real, 1), 4096),
    ];
    for (name, made, page_bytes) in kinds {
        let built = build(&made.elements, page_bytes, 0x0123_4567_89ab_cdef);
        let record = built.record;
        let mut payloads = Vec::new();
        for page in record.head()..record.head() + u64::from(record.head_pages) {
            let bytes = read(&*built.device, PageRun { page, pages: 1 });
            payloads.extend_from_slice(&bytes[16..]);
        }
        put("store_head", name, &payloads);
        // Returns the longest run of pages that belong together, for the fuzz target to correct,
        // and the block's first pages as they are.
        let runs = made.elements.iter().map(|one| built.block.find(one.hash));
        let Some(run) = runs.max_by_key(|run| run.pages) else {
            continue;
        };
        let first = PageRun {
            page: record.extent.first,
            ..run
        };
        let size = if page_bytes == 8192 { 2 } else { 0 };
        for (mend, run, suffix) in [(1, run, "mended"), (0, first, "as_is")] {
            let bytes = read(&*built.device, run);
            let mut data = vec![mend | size];
            data.extend_from_slice(&bytes[..bytes.len().min(3 * page_bytes)]);
            put("store_page", &format!("{name}_{suffix}"), &data);
        }
    }
}
