// SPDX-License-Identifier: Apache-2.0
//! The seeds of the traces' fuzz target, each run once, truncated anywhere and with bytes changed;
//! and random bytes.

use std::path::Path;

use proptest::prelude::*;

use super::fuzzing::any_trace;

#[test]
fn trace_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("a readable folder").path())
        .collect();
    files.sort();
    assert!(
        files.len() >= 13,
        "{} has a seed for each format",
        folder.display()
    );
    for file in files {
        println!("{}", file.display());
        let mut data = std::fs::read(&file).expect("a readable seed");
        any_trace(&data);
        for cut in (0..data.len()).step_by(data.len() / 1000 + 1) {
            any_trace(&data[..cut]);
        }
        for at in (0..data.len()).step_by(data.len() / 300 + 1) {
            for flip in [1, 0x10, 0x80] {
                data[at] ^= flip;
                any_trace(&data);
                data[at] ^= flip;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        any_trace(&data);
    }

    /// Text of the characters that traces are made of, by every parser.
    #[test]
    fn any_text(format in 0u8..16, text in "([0-9]{1,20}|[0-9.]{1,6}|-|,|,|,| |\t|\n|\n|R|W|Read|write|\\+|Q|0x[0-9a-f]{1,17}|DiskRead|fio version 2|wait|add){0,120}") {
        let mut data = vec![format];
        data.extend(text.bytes());
        any_trace(&data);
    }
}
