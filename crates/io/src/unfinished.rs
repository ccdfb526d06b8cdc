// SPDX-License-Identifier: Apache-2.0
//! A file that gets its name when it is complete. Copies, dumps and recordings are written this
//! way.
//!
//! It is written as `NAME.part`. [`Unfinished::finish`] makes it durable and gives it its name.
//! After a failure [`Drop`] removes it, and a process that is killed leaves `NAME.part`. So an
//! unfinished file never appears at `NAME`, where it would look complete.
//!
//! The next writer removes what a killed process left. It is known by a mark, an extended attribute
//! of the file, and no process has it locked. Where a file system has no such marks, the user must
//! remove it.
//!
//! A rename replaces whatever is there, even a device node or another program's file. So the target
//! is checked before anything is written, and again before the rename. Paths are made absolute at
//! the start, because the program may change its working directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::file::fork_count::forks;
use crate::file::lock::{Unshared, lock_draft, unlock_draft};
use crate::file::owner::{self, id_of};
use crate::file::told::told;
use crate::file::{FileId, folder_of, fork, refuse_file_in_dev, sync_folder, sync_name};

/// The file that may already exist at the name.
#[derive(Debug)]
enum Before {
    /// Nothing: an existing file is refused, and stays.
    Nothing,
    /// This file, which stays until the new one is complete.
    Replaced(FileId),
    /// The same, if it is empty or begins with these bytes.
    Ours(Vec<u8>),
}

/// A file that is being written under another name.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    draft: PathBuf,
    before: Before,
    /// Locked, so that other processes do not take the draft for a leftover.
    file: Unshared,
    /// Forks before it was made: the child of a later one has no share in it.
    forks: u32,
}

impl Unfinished {
    /// Makes `NAME.part`, which only this user may read, for a file at `path` that does not exist.
    /// A `NAME.part` that a killed process left is removed.
    ///
    /// # Errors
    /// One sentence with the path. `AlreadyExists` if either name is taken: another process may be
    /// writing `NAME.part`.
    pub fn create(path: &Path) -> io::Result<(Unfinished, File)> {
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        Unfinished::make(path, Before::Nothing, None)
    }

    /// As [`Unfinished::create`], for a file that replaces the existing file `old`. If `path` is a
    /// link to it, the file is replaced, and the link stays. The new file gets the owner, the
    /// group, the rights and the extended attributes of the old one.
    ///
    /// # Errors
    /// As [`Unfinished::create`], but for the file at `path`. Another file than `old` is refused,
    /// and so is anything other than a regular file (a device, a folder, a pipe): the new file
    /// would replace it.
    pub fn replacing(path: &Path, old: FileId) -> io::Result<(Unfinished, File)> {
        let target = std::fs::canonicalize(path).map_err(|error| failed("find", path, &error))?;
        check_same(&target, old)?;
        let (unfinished, file) = Unfinished::make(&target, Before::Replaced(old), None)?;
        File::open(&target)
            .and_then(|there| owner::take_after(&file, &there))
            .map_err(|error| {
                let what = "give the owner and the rights of the old file to the new one, for";
                failed(what, &target, &error)
            })?;
        Ok((unfinished, file))
    }

    /// A file of one kind, which begins with `magic`, at `path`. It replaces an older one. A
    /// `NAME.part` that a killed process has left is overwritten. The caller opens
    /// [`Unfinished::draft`] to write it.
    ///
    /// # Errors
    /// As [`Unfinished::create`]. A file at either name that is not empty and does not begin with
    /// `magic` belongs to another program. It is refused and not changed. So is a link, which may
    /// lead anywhere, and a `NAME.part` that a living process writes.
    pub fn restarting(path: &Path, magic: &[u8]) -> io::Result<Unfinished> {
        check_ours(path, magic)?;
        let made = Unfinished::make(path, Before::Ours(magic.to_vec()), Some(magic));
        made.map(|(unfinished, _)| unfinished)
    }

    fn make(path: &Path, before: Before, magic: Option<&[u8]>) -> io::Result<(Unfinished, File)> {
        refuse_file_in_dev(path)?;
        // Errors have the path as it was given.
        let absolute = std::path::absolute(path).map_err(|error| failed("make", path, &error))?;
        let draft = draft_of(path);
        remove_left_behind(&draft, magic)?;
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).mode(0o600);
        let file = how.open(&draft).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => in_the_way(&draft),
            io::ErrorKind::NotFound if !folder_of(path).exists() => {
                let (name, folder) = (path.display(), folder_of(path).display());
                let text = format!("cannot make {name}: there is no folder {folder}");
                io::Error::new(error.kind(), text)
            }
            _ => failed("make", &draft, &error),
        })?;
        fork::watch();
        let kept = file.try_clone();
        let unfinished = Unfinished {
            draft: draft_of(&absolute),
            path: absolute,
            file: Unshared::new(kept.map_err(|error| failed("make", &draft, &error))?),
            before,
            forks: forks(),
        };
        // The mark comes after the lock. Where either is missing, a leftover is not recognized.
        if lock_draft(&file).unwrap_or(false) {
            owner::mark(&file);
        }
        Ok((unfinished, file))
    }

    /// The path of the unfinished file.
    pub fn draft(&self) -> &Path {
        &self.draft
    }

    /// The unfinished file, whatever its name.
    ///
    /// # Errors
    /// The system's error.
    pub fn id(&self) -> io::Result<FileId> {
        Ok(id_of(&self.file.get().metadata()?))
    }

    /// Makes the written data durable, and gives the file its name.
    ///
    /// # Errors
    /// One sentence with the path. Then there is no file, or the previous one. Only if the folder
    /// can't be made durable, the new file may already have replaced it.
    pub fn finish(self) -> io::Result<()> {
        let file = self.file.get();
        file.sync_all()
            .map_err(|error| failed("write", &self.path, &error))?;
        // Another program may have taken the name meanwhile.
        match &self.before {
            Before::Nothing => {
                self.name_new()?;
                // A draft keeps its mark until it has gone: whoever is killed here leaves one that
                // the next writer knows.
                let _ = std::fs::remove_file(&self.draft);
                owner::unmark(file);
                return sync_name(&self.path);
            }
            Before::Ours(magic) => check_ours(&self.path, magic)?,
            Before::Replaced(old) => check_same(&self.path, *old)?,
        }
        std::fs::rename(&self.draft, &self.path)
            .map_err(|error| failed("make", &self.path, &error))?;
        owner::unmark(file);
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
        if self.forks != forks() {
            return; // the parent writes it
        }
        // The error was reported already. After success it no longer exists.
        let _ = std::fs::remove_file(&self.draft);
        // A program that is being started has a copy of the descriptor until its `exec`.
        unlock_draft(self.file.get());
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    PathBuf::from(draft)
}

/// Removes the draft of a killed process. With `magic`, a draft that is empty or begins with it is
/// one too.
fn remove_left_behind(draft: &Path, magic: Option<&[u8]>) -> io::Result<()> {
    match draft.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("make", draft, &error)),
        // Opening anything else could wait or do something.
        Ok(there) if !there.is_file() && magic.is_none() => return Err(in_the_way(draft)),
        Ok(_) => {}
    }
    if let Some(magic) = magic {
        check_ours(draft, magic)?;
    }
    let mut how = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = how.read(true).write(true).custom_flags(flags).open(draft);
    let file = opened.map_err(|error| match magic {
        Some(_) => failed("remove", draft, &error),
        None => in_the_way(draft),
    })?;
    let is_leftover = magic.is_some() || owner::is_marked(&file);
    // Locked until it is removed. If the name has another file by now, that one is in use.
    let is_left = is_leftover
        && lock_draft(&file).unwrap_or(magic.is_some())
        && check_same(draft, id_of(&file.metadata()?)).is_ok();
    if !is_left {
        return Err(in_the_way(draft));
    }
    std::fs::remove_file(draft).map_err(|error| failed("remove", draft, &error))
}

/// Whether the name still leads to the file that is to be replaced.
fn check_same(path: &Path, old: FileId) -> io::Result<()> {
    let there = path
        .metadata()
        .map_err(|error| failed("find", path, &error))?;
    if id_of(&there) != old {
        let text = format!(
            "{} is another file than the one that was opened: it was renamed or replaced meanwhile",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match there.is_file() {
        true => Ok(()),
        false => Err(not_ours(path, "not a regular file")),
    }
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

fn in_the_way(draft: &Path) -> io::Error {
    let text = format!(
        "{} exists already: another process is writing it, or it is another program's; if nobody \
         needs it, remove it",
        draft.display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, text)
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
    told(format!("cannot {what} {}: {error}", path.display()), error)
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
        let old = id_of(&path.metadata().unwrap());
        drop(Unfinished::replacing(&path, old).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let (unfinished, mut file) = Unfinished::replacing(&path, old).unwrap();
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
        let write = |unfinished: &Unfinished, text: &str| {
            std::fs::write(unfinished.draft(), text).unwrap();
        };
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let replacing = |path: &Path| {
            let there = id_of(&path.metadata().unwrap());
            Unfinished::replacing(path, there)
        };
        let refused = replacing(&pipe).unwrap_err();
        assert!(
            refused.to_string().contains("is not a regular file"),
            "{refused}"
        );
        assert!(Unfinished::restarting(&pipe, b"MAGIC").is_err());
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        assert!(replacing(&folder).is_err());
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
        let unfinished = restart().unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(unfinished.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        // Remains of a killed process are ours, even if they are empty.
        for ours in ["", "MAGIC and more"] {
            for name in [&path, &draft] {
                std::fs::write(name, ours).unwrap();
            }
            let unfinished = restart().unwrap();
            write(&unfinished, "MAGIC whole");
            // A second recording to the same name used to remove the unfinished file of the first.
            let told = restart().unwrap_err().to_string();
            assert!(told.contains("another process is writing it"), "{told}");
            assert!(unfinished.draft().exists());
            unfinished.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"MAGIC whole");
            assert_eq!(names(&folder), ["new", "pipe"]);
        }
        // A link stays one, and its file is replaced.
        let link = folder.join("link");
        symlink("new", &link).unwrap();
        let (unfinished, mut file) = replacing(&link).unwrap();
        file.write_all(b"replaced").unwrap();
        unfinished.finish().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"replaced");
        assert_eq!(names(&folder), ["link", "new", "pipe"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A copy that was killed used to leave `NAME.part`, and every later copy to that name failed
    /// until somebody removed it by hand.
    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = folder("left");
        let (path, draft) = (folder.join("copy"), folder.join("copy.part"));
        // The file of a process that was killed: marked, and no longer locked.
        let left = || {
            let (unfinished, mut file) = Unfinished::create(&path).unwrap();
            file.write_all(b"half").unwrap();
            let aside = folder.join("aside");
            std::fs::rename(&draft, &aside).unwrap();
            drop(unfinished);
            std::fs::rename(&aside, &draft).unwrap();
            file
        };
        // A child that another thread starts has the file open until its exec: the lock ends
        // anyway.
        let _child = left();
        if !owner::is_marked(&File::open(&draft).unwrap()) {
            println!("skipped: this file system has no marks");
            return;
        }
        let (unfinished, mut file) = Unfinished::create(&path).unwrap();
        // Nobody takes it while it is written.
        for refused in [
            Unfinished::create(&path).unwrap_err(),
            Unfinished::restarting(&path, b"new").unwrap_err(),
        ] {
            assert!(refused.to_string().contains("exists already"), "{refused}");
        }
        file.write_all(b"new").unwrap();
        unfinished.finish().unwrap();
        assert!(!owner::is_marked(&File::open(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        // The file of another program has no mark, whatever it contains, and a link leads to one.
        drop(left());
        std::fs::copy(&draft, folder.join("foreign")).unwrap();
        for _ in 0..2 {
            std::fs::remove_file(&draft).unwrap();
            match folder.join("foreign").exists() {
                true => std::fs::rename(folder.join("foreign"), &draft).unwrap(),
                false => std::os::unix::fs::symlink("theirs", &draft).unwrap(),
            }
            std::fs::write(folder.join("theirs"), "theirs").unwrap();
            assert!(Unfinished::create(&path).is_err());
            assert!(draft.symlink_metadata().is_ok());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A compaction by root used to give the file to root, with root's group, and lost access
    /// lists. A file that had taken the name meanwhile was replaced.
    #[test]
    fn a_replacement_has_the_owner_the_rights_and_the_attributes_of_the_old_file() {
        use std::os::unix::fs::MetadataExt;
        let folder = folder("owner");
        let path = folder.join("data");
        std::fs::write(&path, "old").unwrap();
        let file = File::open(&path).unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o664))
            .unwrap();
        // Only root gives files away.
        let root = file.metadata().unwrap().uid() == 0;
        if root {
            std::os::unix::fs::fchown(&file, Some(12_345), Some(54_321)).unwrap();
        }
        owner::mark(&file);
        // Some file systems have none.
        let attributes = owner::set_attribute(&file, c"user.kept", b"yes").is_ok();
        let before = file.metadata().unwrap();
        let (unfinished, mut new) = Unfinished::replacing(&path, id_of(&before)).unwrap();
        new.write_all(b"new").unwrap();
        unfinished.finish().unwrap();
        let after = path.metadata().unwrap();
        let rights = |meta: &std::fs::Metadata| (meta.mode(), meta.uid(), meta.gid());
        assert_eq!(rights(&after), rights(&before));
        assert_ne!(after.ino(), before.ino());
        let new = File::open(&path).unwrap();
        assert!(!owner::is_marked(&new));
        let kept = owner::attribute(&new, c"user.kept");
        assert_eq!(kept, attributes.then(|| b"yes".to_vec()));
        // Another file has the name: at the start, and at the end.
        assert!(Unfinished::replacing(&path, id_of(&before)).is_err());
        let (unfinished, _) = Unfinished::replacing(&path, id_of(&after)).unwrap();
        std::fs::rename(&path, folder.join("moved")).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        let refused = unfinished.finish().unwrap_err();
        assert!(refused.to_string().contains("another file"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(&folder), ["data", "moved"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
