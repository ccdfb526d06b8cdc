// SPDX-License-Identifier: Apache-2.0
//! Files that are written and read as a whole, which a clean stop writes for the next start.
//!
//! A snapshot is written under another name, made durable, and renamed. So a reader finds either
//! the complete new one or the previous one. It holds clients' data, so only its owner may read it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const BUFFER: usize = 256 << 10;

/// A snapshot being written. If it is dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub struct Snapshot {
    out: BufWriter<File>,
    draft: Draft,
    path: PathBuf,
}

/// The file while it has its temporary name; dropping this removes it.
#[derive(Debug)]
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // The error says why the snapshot failed. After a rename there is nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Snapshot {
    /// Begins to write `path`.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn create(path: &Path) -> io::Result<Snapshot> {
        let draft = draft_of(path);
        // Other users may have the file of a killed process open.
        let cleared = remove_if_there(&draft);
        let mut how = OpenOptions::new();
        how.write(true).create_new(true).mode(0o600);
        let file = cleared
            .and_then(|()| how.open(&draft))
            .map_err(|e| named("make", &draft, &e))?;
        Ok(Snapshot {
            out: BufWriter::with_capacity(BUFFER, file),
            draft: Draft(draft),
            path: path.to_owned(),
        })
    }

    /// Removes `path` if it exists, and an unfinished file that a killed process left.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn remove(path: &Path) -> io::Result<()> {
        for path in [path, &draft_of(path)] {
            remove_if_there(path).map_err(|error| named("remove", path, &error))?;
        }
        Ok(())
    }

    /// Makes it durable under its final name.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn finish(self) -> io::Result<()> {
        let Snapshot { out, draft, path } = self;
        let file = out
            .into_inner()
            .map_err(|e| named("write", &draft.0, e.error()))?;
        file.sync_all().map_err(|e| named("write", &draft.0, &e))?;
        std::fs::rename(&draft.0, &path).map_err(|e| named("make", &path, &e))?;
        sync_folder_of(&path)
    }
}

impl Write for Snapshot {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A snapshot being read.
#[derive(Debug)]
pub struct SnapshotReader {
    from: BufReader<File>,
}

impl SnapshotReader {
    /// Opens `path`; `None` if it does not exist.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn open(path: &Path) -> io::Result<Option<SnapshotReader>> {
        match File::open(path) {
            Ok(file) => Ok(Some(SnapshotReader {
                from: BufReader::with_capacity(BUFFER, file),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named("read", path, &error)),
        }
    }
}

impl Read for SnapshotReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.from.read(into)
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    PathBuf::from(draft)
}

/// Makes the names in the folder of `path` durable.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| named("write", folder, &e))
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {what} {}: {error}", path.display()),
    )
}
