// SPDX-License-Identifier: Apache-2.0
//! The seeds of the fuzz target `store_log`, each run once, and with each byte of its beginning
//! changed.

use std::path::Path;

use super::fuzzing;

#[test]
fn seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/store_log");
    let (mut count, mut elements) = (0, 0);
    for file in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
        let path = file.expect("a readable folder").path();
        let mut data = std::fs::read(&path).expect("a readable seed");
        elements += fuzzing::replay(&data);
        for at in 0..data.len().min(120) {
            for flip in [1, 0x80, 0xff] {
                data[at] ^= flip;
                fuzzing::replay(&data);
                data[at] ^= flip;
            }
        }
        count += 1;
    }
    assert!(count >= 5, "{} has seeds", folder.display());
    assert!(elements > 20, "the seeds reach behind the checksum");
}
