// SPDX-License-Identifier: Apache-2.0
//! A file that a command writes its result to, such as a picture or a page. It may replace an older
//! result, but neither a file that the command reads, nor one that a process uses.
//!
//! The caller calls [`Output::check`] before the work, and [`Output::write`] after it. Always
//! holds: nothing is changed before the file's lock is held (see [`crate::FlashFile`]). Files are
//! known by device and inode, so a link or a second name of an input is recognised.

use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::file::{Claim, folder_of, refuse_file_in_dev};

/// The output of a command.
#[derive(Debug)]
pub struct Output;

impl Output {
    /// Refuses a path that cannot be written, or that must not be, and changes nothing. `inputs`
    /// are the files that the command reads or works on.
    ///
    /// # Errors
    /// One sentence with the path. There is no such folder, the path is one of the inputs, a
    /// process has the file in use, or it names a device that does not exist.
    ///
    /// ```
    /// use senko_io::Output;
    /// let path = std::env::temp_dir().join(format!("senko-output-{}", std::process::id()));
    /// Output::check(&path, &[])?;
    /// Output::write(&path, &[], b"a result")?;
    /// let refused = Output::write(&path, &[&path], b"of itself").unwrap_err();
    /// assert!(refused.to_string().contains("is read"));
    /// assert_eq!(std::fs::read(&path)?, b"a result");
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn check(path: &Path, inputs: &[&Path]) -> io::Result<()> {
        let refused = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let (name, folder) = (path.display(), folder_of(path));
        if path.is_dir() {
            return refused(format!("cannot write {name}: it is a folder"));
        }
        if metadata(path).is_ok_and(|there| there.file_type().is_block_device()) {
            return refused(format!("cannot write {name}: it is a block device"));
        }
        if !folder.is_dir() {
            let folder = folder.display();
            return refused(format!("cannot write {name}: there is no folder {folder}"));
        }
        refuse_file_in_dev(path)?;
        if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
            let input = match **input == *path {
                true => String::new(),
                false => format!(" as {}", input.display()),
            };
            return refused(format!(
                "{name} is read{input} by this command, and the result would overwrite it: name \
                 another file"
            ));
        }
        if metadata(path).is_ok_and(|there| there.is_file()) {
            drop(opened(path)?);
        }
        Ok(())
    }

    /// Writes the result, in place of what the file holds.
    ///
    /// # Errors
    /// As [`Output::check`], or the system's.
    pub fn write(path: &Path, inputs: &[&Path], result: &[u8]) -> io::Result<()> {
        Output::check(path, inputs)?;
        let claim = opened(path)?;
        let mut file = claim.file();
        let written = match file.metadata()?.is_file() {
            true => file.set_len(0).and_then(|()| file.write_all(result)),
            false => file.write_all(result),
        };
        written.map_err(|error| failed(path, &error))
    }
}

/// Whether two names are those of one file, that is there or that will be made.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = std::fs::canonicalize(folder_of(path)).ok()?;
        Some((folder, path.file_name()?.to_owned()))
    };
    match (metadata(one), metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => place(one).is_some() && place(one) == place(other),
        _ => false,
    }
}

/// The file, made if it is missing, and locked if it is a regular file.
fn opened(path: &Path) -> io::Result<Claim> {
    let open = || -> io::Result<File> {
        let mut how = OpenOptions::new();
        how.write(true).create(true).truncate(false);
        how.open(path)
    };
    Claim::of(path, open).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => error,
        _ => failed(path, &error),
    })
}

fn failed(path: &Path, error: &io::Error) -> io::Error {
    let text = format!("cannot write {}: {error}", path.display());
    io::Error::new(error.kind(), text)
}
