// SPDX-License-Identifier: Apache-2.0
//! Files that are opened only for reading: the system calls, the excluded processes, and that
//! nothing changes.

use std::io::{BufRead, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, IoError, PAGE_SIZE, Purpose, Tag};

use crate::support::{Folder, SmallFs, child, child_task};

const TAG: Tag = Tag::cache(Purpose::Lookup);

fn reading() -> FileOptions {
    FileOptions {
        read_only: true,
        ..FileOptions::default()
    }
}

fn writing() -> FileOptions {
    FileOptions::default()
}

fn refused(path: &Path, options: &FileOptions) -> String {
    FlashFile::open(path, options).unwrap_err().to_string()
}

fn made(folder: &Folder) -> PathBuf {
    let path = folder.file("flash");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    path
}

#[test]
fn nothing_is_changed() {
    let folder = Folder::new();
    let path = made(&folder);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    let file = FlashFile::open(&path, &reading()).unwrap();
    assert!(file.read_only());
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.raw_fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    assert_eq!(flags & libc::O_ACCMODE, libc::O_RDONLY);
    assert_eq!(flags & libc::O_DIRECT != 0, file.direct());
    let direct = FlashFile::open(&folder.file("other"), &sized(1 << 20)).unwrap();
    assert_eq!(
        file.direct(),
        direct.direct(),
        "as for a file to be written"
    );

    let mut page = AlignedBuf::new(1);
    file.read(3, &mut page, TAG).unwrap();
    assert!(page.iter().all(|&byte| byte == 7));
    let refused = Err(IoError::Os(libc::EROFS));
    assert_eq!(file.write(0, &page, TAG), refused);
    assert_eq!(file.grow(1 << 20), refused);
    assert_eq!(file.discard(0, 1, TAG), refused);
    assert_eq!(file.flush(TAG), Ok(()));
    drop(file);
    let after = std::fs::metadata(&path).unwrap();
    let times = |meta: &std::fs::Metadata| (meta.mtime(), meta.mtime_nsec(), meta.len());
    assert_eq!(times(&before), times(&after));
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}

fn sized(bytes: u64) -> FileOptions {
    FileOptions {
        bytes,
        ..FileOptions::default()
    }
}

#[test]
fn nothing_is_made() {
    let folder = Folder::new();
    let absent = folder.file("absent");
    let large = FileOptions {
        bytes: 2 << 20,
        ..reading()
    };
    let error = refused(&absent, &large);
    assert!(error.contains("No such file"), "{error}");
    assert!(!absent.exists());
    let path = made(&folder);
    let error = refused(&path, &large);
    assert!(
        error.ends_with("has 1048576 bytes, 2097152 are needed"),
        "{error}"
    );
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

#[test]
fn readers_share_and_a_writer_excludes() {
    let folder = Folder::new();
    let path = made(&folder);
    let own = format!("is in use by this process ({}) already", std::process::id());
    let first = FlashFile::open(&path, &reading()).unwrap();
    let second = FlashFile::open(&path, &reading()).unwrap();
    assert!(refused(&path, &writing()).ends_with(&own));
    drop(first);
    assert!(refused(&path, &writing()).ends_with(&own), "one is left");
    drop(second);
    let writer = FlashFile::open(&path, &writing()).unwrap();
    assert!(refused(&path, &reading()).ends_with(&own));
    drop(writer);
    FlashFile::open(&path, &reading()).unwrap();
}

/// Opens the file in another process as described by `how`, and keeps it open until the child's
/// stdin ends.
fn hold(how: &str, path: &Path) -> (Child, String) {
    let task = format!("{how} {}", path.display());
    let mut holder = child("read_only::holder", &task)
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(holder.stdout.as_mut().unwrap());
    for line in out.lines() {
        let line = line.unwrap();
        if let Some(answer) = line.strip_prefix("answer: ") {
            return (holder, answer.to_owned());
        }
    }
    panic!("the holder ended: {}", holder.wait().unwrap());
}

fn end(mut holder: Child) {
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn holder() {
    let Some(task) = child_task() else { return };
    let (how, path) = task.split_once(' ').unwrap();
    let options = if how == "read" { reading() } else { writing() };
    let file = FlashFile::open(Path::new(path), &options);
    let answer = match &file {
        Ok(_) => "held".to_owned(),
        Err(error) => error.to_string(),
    };
    println!("\nanswer: {answer}");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn so_it_is_between_processes() {
    let folder = Folder::new();
    let path = made(&folder);
    let by = |pid: u32| format!("{} is in use by process {pid}", path.display());

    let file = FlashFile::open(&path, &reading()).unwrap();
    let (reader, answer) = hold("read", &path);
    assert_eq!(answer, "held", "two processes read");
    let (writer, answer) = hold("write", &path);
    // The message names one of the two readers.
    assert!(
        [by(std::process::id()), by(reader.id())].contains(&answer),
        "{answer}"
    );
    end(writer);
    drop(file);
    assert_eq!(refused(&path, &writing()), by(reader.id()));
    end(reader);

    let (writer, answer) = hold("write", &path);
    assert_eq!(answer, "held", "the readers are gone");
    assert_eq!(refused(&path, &reading()), by(writer.id()));
    end(writer);
    FlashFile::open(&path, &reading()).unwrap();
}

/// Needs the right to mount; without it there is no read-only file system.
#[test]
fn on_a_read_only_file_system() {
    let folder = Folder::new();
    let Some(small) = SmallFs::new(folder.path()) else {
        return;
    };
    let path = made(&folder);
    let remounted = small.read_only();
    let write = remounted.then(|| refused(&path, &writing()));
    let read = FlashFile::open(&path, &reading()).map(|file| {
        let mut page = AlignedBuf::new(1);
        let read = file.read(255, &mut page, TAG);
        (read, page[PAGE_SIZE - 1], file.flush(TAG))
    });
    drop(small);
    assert!(write.is_none_or(|error| error.contains("Read-only file system")));
    assert_eq!(read.unwrap(), (Ok(()), 7, Ok(())));
}
