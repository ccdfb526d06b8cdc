// SPDX-License-Identifier: Apache-2.0
//! The seeds of the fuzz targets of stored formats, each run once, and with each byte changed.

use std::path::Path;

use crate::fuzzing;

fn seeds(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
        let path = file.expect("a readable folder").path();
        let mut data = std::fs::read(&path).expect("a readable seed");
        run(&data);
        for at in 0..data.len().min(600) {
            for flip in [1, 0x80, 0xff] {
                data[at] ^= flip;
                run(&data);
                data[at] ^= flip;
            }
        }
        count += 1;
    }
    assert!(count >= 5, "{} has seeds", folder.display());
}

#[test]
fn flash_seeds() {
    seeds("flash", fuzzing::flash_pages);
}

#[test]
fn superblock_seeds() {
    seeds("superblock", fuzzing::superblock);
}

#[test]
fn warm_seeds() {
    seeds("warm", fuzzing::saved);
}
