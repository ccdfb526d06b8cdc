// SPDX-License-Identifier: Apache-2.0
//! The fuzz targets' seeds (`fuzz/corpus`), each run once.

use std::path::Path;

use crate::entry;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("a readable folder").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has seeds", folder.display());
    for file in files {
        println!("{}", file.display());
        let data = std::fs::read(&file).expect("a readable seed");
        // Whole, and cut off at any point.
        run(&data);
        for cut in (0..data.len()).step_by(data.len() / 40 + 1) {
            run(&data[..cut]);
        }
    }
}

#[test]
fn classic_seeds() {
    replay("classic", entry::classic);
}

#[test]
fn meta_seeds() {
    replay("meta", entry::meta);
}

#[test]
fn binary_seeds() {
    replay("binary", entry::binary);
}

#[test]
fn tls_seeds() {
    replay("tls_pem", entry::tls_pem);
    replay("tls_stream", entry::tls_stream);
}

#[test]
fn login_seeds() {
    replay("login_ascii", entry::login_ascii);
    replay("login_sasl", entry::login_sasl);
}
