// SPDX-License-Identifier: Apache-2.0
//! Shared by the tests of crashes, faults and damage: a device that calls back, the expected
//! contents of the store, and folders.

pub mod hooked; // a device in memory that calls back after each write and flush
pub mod model; // the writes, and whether a store has a prefix of them
pub mod watched; // a device in memory whose calls a test watches

use std::path::PathBuf;

/// A folder of a test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("senko-store-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir_all(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
