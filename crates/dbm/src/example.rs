// SPDX-License-Identifier: Apache-2.0
//! Common beginnings of the examples in the documentation.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Database, Options};

/// An empty database in memory.
pub fn database() -> Database {
    let device = senko_io::faulty::FaultyDevice::new(4096, 1);
    Database::open_device(device, Options::default()).expect("memory does not fail")
}

/// A folder that is removed when the value is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Folder {
    /// A new folder among the system's temporary files.
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("senko-dbm-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder can be made");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
