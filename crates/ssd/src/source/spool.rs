// SPDX-License-Identifier: Apache-2.0
//! A pipe as a file: its bytes are copied to the system's temporary folder, to be read several
//! times.
//!
//! The copy has no name: it is unlinked as soon as it is open. It disappears with the last reader,
//! however the process ends.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::Error;

/// How many names are tried for the file while others are using them.
const NAMES: u32 = 1000;

#[derive(Clone, Debug)]
pub struct Spool {
    file: Arc<File>,
    bytes: u64,
}

impl Spool {
    /// Copies `path` to its end.
    pub(super) fn of(path: &Path) -> Result<Spool, Error> {
        let told = |reason| Error::File {
            path: path.to_path_buf(),
            reason,
        };
        let mut pipe = File::open(path).map_err(told)?;
        let folder = std::env::temp_dir();
        let mut file = unnamed(&folder).map_err(|reason| Error::File {
            path: folder.clone(),
            reason,
        })?;
        // One error for both sides. The folder is more likely to be full, so it is named too.
        let bytes = io::copy(&mut pipe, &mut file).map_err(|error| {
            let folder = folder.display();
            told(io::Error::new(
                error.kind(),
                format!(
                    "it can't be copied to {folder}, where it is kept to be read again: {error}"
                ),
            ))
        })?;
        Ok(Spool {
            file: Arc::new(file),
            bytes,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An independent reader, from the start.
    pub(super) fn read(&self) -> SpoolReader {
        SpoolReader {
            file: Arc::clone(&self.file),
            at: 0,
        }
    }
}

/// A new, open file in `folder` that no longer has a name.
fn unnamed(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    for number in 0..NAMES {
        let path = folder.join(format!("senko-trace-{}-{number}", std::process::id()));
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

pub(super) struct SpoolReader {
    file: Arc<File>,
    at: u64,
}

impl Read for SpoolReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(into, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
