// SPDX-License-Identifier: Apache-2.0
//! The seeds of the flash format's fuzz target, each run once, and with each byte changed.

use std::path::Path;

#[test]
fn flash_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/flash");
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
        let path = file.expect("a readable folder").path();
        let mut data = std::fs::read(&path).expect("a readable seed");
        senko_cache::fuzzing::flash_pages(&data);
        for at in 0..data.len().min(600) {
            for flip in [1, 0x80, 0xff] {
                data[at] ^= flip;
                senko_cache::fuzzing::flash_pages(&data);
                data[at] ^= flip;
            }
        }
        count += 1;
    }
    assert!(count >= 5, "{} has seeds", folder.display());
}
