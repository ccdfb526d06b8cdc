// SPDX-License-Identifier: Apache-2.0
//! A file that gets its name when it is complete. Copies, dumps and recordings are written this
//! way.
//!
//! It is written as `NAME.part`. [`Unfinished::finish`] makes it durable and gives it its name.
//! After a failure [`Drop`] removes it, and a process that is killed leaves `NAME.part`. So an
//! unfinished file never appears at `NAME`, where it would look complete.
//!
//! A rename replaces whatever is there, even a device node or another program's file. So the target
//! is checked before anything is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::file::{folder_of, sync_folder, sync_name};

/// The file that may already exist at the name.
#[derive(Debug)]
enum Before {
    /// Nothing: an existing file is refused, and stays.
    Nothing,
    /// A file, which stays until the new one is complete.
    Replaced,
    /// The same, if it is empty or begins with these bytes.
    Ours(Vec<u8>),
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
    /// One sentence with the path. `AlreadyExists` if either name is taken: another process may be
    /// writing `NAME.part`.
    pub fn create(path: &Path) -> io::Result<(Unfinished, File)> {
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        Unfinished::make(path, Before::Nothing)
    }

    /// As [`Unfinished::create`], for a file that may replace an existing one. If `path` is a link
    /// to a file, that file is replaced, and the link stays.
    ///
    /// # Errors
    /// As [`Unfinished::create`], but for a file at `path`. Anything there other than a regular
    /// file (a device, a folder, a pipe) is refused: the new file would replace it.
    pub fn replacing(path: &Path) -> io::Result<(Unfinished, File)> {
        let target = std::fs::canonicalize(path);
        let target = target.as_deref().unwrap_or(path);
        match target.metadata() {
            Ok(there) if !there.is_file() => Err(not_ours(path, "not a regular file")),
            _ => Unfinished::make(target, Before::Replaced),
        }
    }

    /// A file of one kind, which begins with `magic`, at `path`. It replaces an older one. A
    /// `NAME.part` that a killed process has left is overwritten.
    ///
    /// # Errors
    /// As [`Unfinished::create`]. A file at either name that is not empty and does not begin with
    /// `magic` belongs to another program. It is refused and not changed. So is a link, which may
    /// lead anywhere.
    pub fn restarting(path: &Path, magic: &[u8]) -> io::Result<(Unfinished, File)> {
        let draft = draft_of(path);
        for name in [path, &draft] {
            check_ours(name, magic)?;
        }
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &draft, &error))
            }
            _ => Unfinished::make(path, Before::Ours(magic.to_vec())),
        }
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
            io::ErrorKind::NotFound if !folder_of(path).exists() => {
                let (name, folder) = (path.display(), folder_of(path).display());
                let text = format!("cannot make {name}: there is no folder {folder}");
                io::Error::new(error.kind(), text)
            }
            _ => failed("make", &draft, &error),
        })?;
        // The process may change its folder before the file is complete.
        let unfinished = Unfinished {
            path: std::path::absolute(path)?,
            draft: std::path::absolute(draft)?,
            before,
        };
        Ok((unfinished, file))
    }

    /// The path of the unfinished file.
    pub fn draft(&self) -> &Path {
        &self.draft
    }

    /// Makes the written data durable, and gives the file its name.
    ///
    /// # Errors
    /// One sentence with the path. Then there is no file, or the previous one. Only if the folder
    /// can't be made durable, the new file may already have replaced it.
    pub fn finish(self) -> io::Result<()> {
        File::open(&self.draft)
            .and_then(|file| file.sync_all())
            .map_err(|error| failed("write", &self.path, &error))?;
        match &self.before {
            Before::Nothing => {
                self.name_new()?;
                return sync_name(&self.path);
            }
            // Another program may have taken the name meanwhile.
            Before::Ours(magic) => check_ours(&self.path, magic)?,
            Before::Replaced => {}
        }
        std::fs::rename(&self.draft, &self.path)
            .map_err(|error| failed("make", &self.path, &error))?;
        // The old file is gone, so the new one stays even if its name may not be durable.
        sync_folder(&self.path)
    }

    /// A link, unlike a rename, never replaces a file that was made meanwhile.
    fn name_new(&self) -> io::Result<()> {
        match std::fs::hard_link(&self.draft, &self.path) {
            Ok(()) => Ok(()),
            Err(_) if self.path.symlink_metadata().is_ok() => Err(taken(&self.path)),
            // A file system without hard links, such as FAT.
            Err(_) => std::fs::rename(&self.draft, &self.path)
                .map_err(|error| failed("make", &self.path, &error)),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The error was reported already. After a link this is the second name; after a rename it
        // no longer exists.
        let _ = std::fs::remove_file(&self.draft);
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    PathBuf::from(draft)
}

/// Whether the new file may replace what is at `path`: nothing, an empty file, or a file that
/// begins with `magic`.
fn check_ours(path: &Path, magic: &[u8]) -> io::Result<()> {
    let there = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("make", path, &error)),
        Ok(there) => there,
    };
    if !there.is_file() {
        return Err(not_ours(path, "not a regular file"));
    }
    if there.len() == 0 {
        return Ok(());
    }
    let mut first = vec![0; magic.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    match read {
        Ok(()) if first == magic => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(failed("read", path, &error))
        }
        _ => Err(not_ours(path, "another program's file")),
    }
}

fn not_ours(path: &Path, what: &str) -> io::Error {
    let text = format!(
        "{} is {what}, and what is written would take its place: name another file",
        path.display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, text)
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

    /// `senko store backup` was once killed midway and left `copy.kv` with half of the keys, in
    /// which `verify` found no problem.
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
        // An existing file is refused, even a dangling link and a file that was made meanwhile.
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
        // A replacement leaves the old file until the new one is complete.
        drop(Unfinished::replacing(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let (unfinished, mut file) = Unfinished::replacing(&path).unwrap();
        file.write_all(b"new").unwrap();
        unfinished.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&folder), ["copy", "link"]);
        let nowhere = Unfinished::create(&folder.join("no/copy")).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"));
        // The error names the real reason: this folder exists, but takes no files.
        let refused = Unfinished::create(Path::new("/proc/copy")).unwrap_err();
        assert!(!refused.to_string().contains("no folder"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A server that root started with `--trace /dev/full` once replaced the device node by a
    /// regular file, and `--trace photo.jpg` replaced the photograph.
    #[test]
    fn what_is_not_ours_is_not_replaced() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = folder("ours");
        let (path, draft) = (folder.join("new"), folder.join("new.part"));
        let restart = || Unfinished::restarting(&path, b"MAGIC");
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let refused = Unfinished::replacing(&pipe).unwrap_err();
        assert!(
            refused.to_string().contains("is not a regular file"),
            "{refused}"
        );
        assert!(Unfinished::restarting(&pipe, b"MAGIC").is_err());
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        assert!(Unfinished::replacing(&folder).is_err());
        // Neither the file nor its draft may belong to another program, not even a short one.
        for name in [&path, &draft] {
            for foreign in ["precious", "MAGI"] {
                std::fs::write(name, foreign).unwrap();
                let refused = restart().unwrap_err();
                assert!(
                    refused.to_string().contains("another program's"),
                    "{refused}"
                );
                assert_eq!(std::fs::read_to_string(name).unwrap(), foreign);
            }
            std::fs::remove_file(name).unwrap();
            symlink("pipe", name).unwrap();
            assert!(restart().is_err());
            std::fs::remove_file(name).unwrap();
        }
        // Nor a file that was made while the new one was written.
        let (unfinished, _) = restart().unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(unfinished.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        // Remains of a killed process are ours, even if they are empty.
        for ours in ["", "MAGIC and more"] {
            for name in [&path, &draft] {
                std::fs::write(name, ours).unwrap();
            }
            let (unfinished, mut file) = restart().unwrap();
            file.write_all(b"MAGIC whole").unwrap();
            unfinished.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"MAGIC whole");
            assert_eq!(names(&folder), ["new", "pipe"]);
        }
        // A link stays one, and its file is replaced.
        let link = folder.join("link");
        symlink("new", &link).unwrap();
        let (unfinished, mut file) = Unfinished::replacing(&link).unwrap();
        file.write_all(b"replaced").unwrap();
        unfinished.finish().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"replaced");
        assert_eq!(names(&folder), ["link", "new", "pipe"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
