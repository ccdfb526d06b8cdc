// SPDX-License-Identifier: Apache-2.0
//! A file that gets its name when it is whole: copies, dumps and recordings are written with it.
//!
//! It is written as `NAME.part`. [`Unfinished::finish`] makes it durable and gives it its name.
//! After a failure [`Drop`] removes it, and a process that is killed leaves `NAME.part`. So nothing
//! that was broken off ever lies at `NAME`, where it would look whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::file::{folder_of, sync_name};

/// What may lie at the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing: a file that is there is refused, and stays.
    Nothing,
    /// A file, which stays until the new one is whole.
    Replaced,
}

/// A file that is being written under another name.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    draft: PathBuf,
    before: Before,
}

impl Unfinished {
    /// Makes `NAME.part`, which only this user may read, for a file at `path` that does not exist.
    ///
    /// # Errors
    /// One sentence with the path. `AlreadyExists` where either name is taken: a `NAME.part` may be
    /// that of a process that is writing.
    pub fn create(path: &Path) -> io::Result<(Unfinished, File)> {
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        Unfinished::make(path, Before::Nothing)
    }

    /// As [`Unfinished::create`], for a file that takes the place of one that may be there.
    ///
    /// # Errors
    /// As [`Unfinished::create`], but for a file at `path`.
    pub fn replacing(path: &Path) -> io::Result<(Unfinished, File)> {
        Unfinished::make(path, Before::Replaced)
    }

    /// As [`Unfinished::replacing`], and a `NAME.part` that a process which was killed has left is
    /// overwritten. For the one who alone writes at `path`.
    ///
    /// # Errors
    /// As [`Unfinished::create`], but for files at either name.
    pub fn restarting(path: &Path) -> io::Result<(Unfinished, File)> {
        let _ = std::fs::remove_file(draft_of(path));
        Unfinished::replacing(path)
    }

    fn make(path: &Path, before: Before) -> io::Result<(Unfinished, File)> {
        let draft = draft_of(path);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).mode(0o600);
        let file = how.open(&draft).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let text = format!(
                    "{} exists already: another process is writing it, or one that was broken off \
                     left it; in that case remove it",
                    draft.display()
                );
                io::Error::new(error.kind(), text)
            }
            io::ErrorKind::NotFound => {
                let (name, folder) = (path.display(), folder_of(path).display());
                let text = format!("cannot make {name}: there is no folder {folder}");
                io::Error::new(error.kind(), text)
            }
            _ => failed("make", &draft, &error),
        })?;
        let path = path.to_path_buf();
        let unfinished = Unfinished {
            path,
            draft,
            before,
        };
        Ok((unfinished, file))
    }

    /// Where it is written.
    pub fn draft(&self) -> &Path {
        &self.draft
    }

    /// Makes what was written durable, and gives the file its name.
    ///
    /// # Errors
    /// One sentence with the path; there is no file then, or the one that was there before.
    pub fn finish(self) -> io::Result<()> {
        File::open(&self.draft)
            .and_then(|file| file.sync_all())
            .map_err(|error| failed("write", &self.path, &error))?;
        match self.before {
            Before::Nothing => self.name_new()?,
            Before::Replaced => std::fs::rename(&self.draft, &self.path)
                .map_err(|error| failed("make", &self.path, &error))?,
        }
        sync_name(&self.path)
    }

    /// A link, unlike a renaming, never takes the place of a file that was made meanwhile.
    fn name_new(&self) -> io::Result<()> {
        match std::fs::hard_link(&self.draft, &self.path) {
            Ok(()) => Ok(()),
            Err(_) if self.path.symlink_metadata().is_ok() => Err(taken(&self.path)),
            // A file system without links, such as FAT.
            Err(_) => std::fs::rename(&self.draft, &self.path)
                .map_err(|error| failed("make", &self.path, &error)),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Whoever failed has told why. After a link this is the second name; after a renaming there
        // is none.
        let _ = std::fs::remove_file(&self.draft);
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    PathBuf::from(draft)
}

fn taken(path: &Path) -> io::Error {
    let text = format!("{} exists already", path.display());
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

fn failed(what: &str, path: &Path, error: &io::Error) -> io::Error {
    let text = format!("cannot {what} {}: {error}", path.display());
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let name = format!("senko-unfinished-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// `senko store backup` was killed midway and left `copy.kv` with half of the keys; `verify`
    /// found no problem in it.
    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let folder = folder("whole");
        let path = folder.join("copy");
        let (unfinished, mut file) = Unfinished::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(&folder), ["copy.part"]);
        let mode = std::fs::metadata(unfinished.draft()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        // Another copy to the same name is refused while this one is written.
        let second = Unfinished::create(&path).unwrap_err();
        assert!(second.to_string().contains("copy.part exists already"));
        file.write_all(b" and half").unwrap();
        unfinished.finish().unwrap();
        assert_eq!(names(&folder), ["copy"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"half and half");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failure_leaves_nothing_and_takes_nothing_away() {
        let folder = folder("failure");
        let path = folder.join("copy");
        drop(Unfinished::create(&path).unwrap());
        assert!(names(&folder).is_empty());
        // A file that is there is refused, also a dangling link and one that came meanwhile.
        let (unfinished, _) = Unfinished::create(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let error = unfinished.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(Unfinished::create(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let link = folder.join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(Unfinished::create(&link).is_err());
        assert_eq!(names(&folder), ["copy", "link"]);
        // One that replaces leaves the old file until the new one is whole.
        drop(Unfinished::replacing(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let (unfinished, mut file) = Unfinished::replacing(&path).unwrap();
        file.write_all(b"new").unwrap();
        unfinished.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&folder), ["copy", "link"]);
        let nowhere = Unfinished::create(&folder.join("no/copy")).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
