// SPDX-License-Identifier: Apache-2.0
//! Opening flash files: refusals and their messages, the lock, preallocation, the blocking
//! interface.

use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use senko_io::{
    AlignedBuf, Device, FileOptions, FlashFile, IoError, PAGE_SIZE, Purpose, ReadRequest, Tag,
};
use senko_workload::Rng;

use crate::support::{Folder, SmallFs, child, child_task, seed};

const TAG: Tag = Tag::cache(Purpose::Lookup);

fn sized(bytes: u64) -> FileOptions {
    FileOptions {
        bytes,
        ..FileOptions::default()
    }
}

fn refused(path: &Path, options: &FileOptions) -> String {
    FlashFile::open(path, options).unwrap_err().to_string()
}

#[test]
fn made_and_preallocated() {
    let folder = Folder::new();
    let path = folder.file("flash");
    let file = FlashFile::open(&path, &sized((8 << 20) + 100)).unwrap();
    assert_eq!(file.pages(), 2048);
    assert_eq!(file.path(), path);
    let meta = std::fs::metadata(&path).unwrap();
    assert!(meta.blocks() * 512 >= 8 << 20, "the blocks are allocated");
    assert_eq!(meta.mode() & 0o777, 0o600);
    drop(file);
    // A larger file keeps its size; with size 0 it is used as it is.
    assert_eq!(
        FlashFile::open(&path, &sized(1 << 20)).unwrap().pages(),
        256
    );
    assert_eq!(FlashFile::open(&path, &sized(0)).unwrap().pages(), 2048);
    assert_eq!(
        FlashFile::open(&path, &sized(16 << 20)).unwrap().pages(),
        4096
    );
}

/// Does `act`, which opens the file, while another holds its lock. `meanwhile` is done once `act`
/// waits, and then the lock is given up.
fn while_locked<T: Send>(
    path: &Path,
    act: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(&std::fs::File),
) -> T {
    let mut how = std::fs::OpenOptions::new();
    let held = how.read(true).write(true).open(path).unwrap();
    // SAFETY: zeros are a valid value of this structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_len) = (libc::F_WRLCK as _, 1);
    // A child that another test has just forked has the file of the last use, and its lock, until
    // it becomes another program.
    // SAFETY: the kernel reads only `lock`; the descriptor is open.
    while unsafe { libc::fcntl(held.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) } < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
        std::thread::yield_now();
    }
    let opened = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path))
            .count()
    };
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        while opened() < 2 {
            std::thread::yield_now();
        }
        meanwhile(&held);
        drop(held);
        acting.join().unwrap()
    })
}

/// An opening that waits for the lock used to go on with what it had seen before. Pages that the
/// file's maker had added meanwhile were missing. What was written to a file that another had
/// replaced meanwhile was lost.
#[test]
fn what_happens_while_the_lock_is_awaited_is_seen() {
    let folder = Folder::new();
    let path = folder.file("flash");
    let replace = |_: &std::fs::File| {
        std::fs::write(folder.file("other"), vec![0; 3 << 20]).unwrap();
        std::fs::rename(folder.file("other"), &path).unwrap();
    };
    let options = FileOptions {
        whole: true,
        ..sized(1 << 20)
    };
    for replaced in [false, true] {
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let meanwhile = |held: &std::fs::File| match replaced {
            false => held.set_len(2 << 20).unwrap(),
            true => replace(held),
        };
        let file = while_locked(&path, || FlashFile::open(&path, &options), meanwhile).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(file.id().unwrap(), (meta.dev(), meta.ino()));
        assert_eq!(file.pages() * PAGE_SIZE as u64, meta.len());
    }
    let write = || senko_io::Output::write(&path, &[], b"a result");
    while_locked(&path, write, replace).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"a result");
}

/// A file that was removed was closed before it left the list of those that this process holds. The
/// kernel gave its inode to a new file at once, which was then refused as one of them.
#[test]
fn a_new_file_is_not_taken_for_a_removed_one() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let path = folder.file(name);
            scope.spawn(move || {
                for _ in 0..1000 {
                    let file = FlashFile::open(&path, &sized(1 << 12)).unwrap();
                    std::fs::remove_file(&path).unwrap();
                    drop(file);
                }
            });
        }
    });
}

/// A store that was made and synced used to be lost in a power cut before its directory was
/// written: the file was durable, its name was not.
#[test]
fn the_name_of_a_new_file_is_made_durable() {
    let Some(path) = child_task() else {
        let folder = Folder::new();
        let path = folder.file("flash");
        let task = path.display().to_string();
        let output = child("file::the_name_of_a_new_file_is_made_durable", &task)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        return;
    };
    let path = PathBuf::from(path);
    let old = path.with_extension("old");
    drop(FlashFile::open(&old, &sized(1 << 20)).unwrap());
    // From here on a directory cannot be made durable.
    crate::refusal::forbid(libc::SYS_fsync, libc::EIO);
    let error = refused(&path, &sized(1 << 20));
    let start = format!("cannot sync the folder of {}: ", path.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(!path.exists(), "a file that could not be made is removed");
    // A name that is found is made durable too: its maker may have been killed before it did so.
    let error = refused(&old, &sized(1 << 20));
    assert!(error.starts_with("cannot sync the folder of "), "{error}");
    assert!(old.exists(), "a file that was found stays");
}

#[test]
fn refusals_in_words() {
    let folder = Folder::new();
    let missing = folder.file("no/flash");
    assert_eq!(
        refused(&missing, &sized(1 << 20)),
        format!(
            "cannot open {}: the directory {} does not exist",
            missing.display(),
            folder.file("no").display()
        )
    );
    let absent = folder.file("absent");
    assert!(
        refused(&absent, &sized(0))
            .starts_with(&format!("cannot open {}: No such file", absent.display()))
    );
    assert!(!absent.exists());
    assert!(
        refused(folder.path(), &sized(1 << 20))
            .ends_with("is neither a regular file nor a block device")
    );
    assert!(refused(Path::new("/dev/null"), &sized(1 << 20)).contains("neither"));
    let empty = folder.file("empty");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(
        refused(&empty, &sized(0)),
        format!("{} has 0 bytes, 4096 are needed", empty.display())
    );
}

/// C programs identify errors by number: with only a sentence, all of them would be EIO.
#[test]
fn refusals_keep_their_numbers() {
    let folder = Folder::new();
    let number = |path: &Path, options: &FileOptions| {
        let error = FlashFile::open(path, options).expect_err("it is refused");
        assert!(error.to_string().len() > 20, "{error} is not a sentence");
        senko_io::error_number(&error)
    };
    let (absent, file) = (folder.file("absent"), folder.file("file"));
    assert_eq!(number(&absent, &sized(0)), Some(libc::ENOENT));
    let long = folder.file(&"x".repeat(300));
    assert_eq!(number(&long, &sized(1 << 20)), Some(libc::ENAMETOOLONG));
    std::os::unix::fs::symlink("loop", folder.file("loop")).unwrap();
    assert_eq!(
        number(&folder.file("loop"), &sized(1 << 20)),
        Some(libc::ELOOP)
    );
    assert_eq!(number(folder.path(), &sized(1 << 20)), Some(libc::EINVAL));
    let _held = FlashFile::open(&file, &sized(1 << 20)).unwrap();
    assert_eq!(number(&file, &sized(1 << 20)), Some(libc::EBUSY));
}

/// Holds `path` in another process until the child is killed.
fn hold(path: &Path) -> Child {
    let mut command = child("file::holder", &path.display().to_string());
    let mut holder = command
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(holder.stdout.take().unwrap());
    for line in out.lines() {
        if line.unwrap().contains("held") {
            return holder;
        }
    }
    panic!("the holder ended: {}", holder.wait().unwrap());
}

#[test]
fn holder() {
    if let Some(path) = child_task() {
        let file = FlashFile::open(&PathBuf::from(path), &sized(1 << 20)).unwrap();
        let auto = senko_io::LoopConfig {
            backend: senko_io::BackendChoice::Auto,
            ..crate::support::config(senko_io::Backend::Posix)
        };
        let mut io = senko_io::EventLoop::new(&auto).unwrap();
        io.attach(std::sync::Arc::new(file));
        println!("held");
        std::io::stdout().flush().unwrap();
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

/// The kernel cleans up a dead process's ring in the background, and until then the file registered
/// in it stayed locked. So a server that was killed and started again at once was told that its
/// flash file is in use.
#[test]
fn a_killed_holder_does_not_keep_the_file() {
    let folder = Folder::new();
    let path = folder.file("flash");
    for _ in 0..10 {
        let mut holder = hold(&path);
        holder.kill().unwrap();
        holder.wait().unwrap();
        FlashFile::open(&path, &sized(1 << 20)).unwrap();
    }
    // The same within one process, on either backend.
    crate::support::on_both(|backend| {
        for _ in 0..10 {
            let mut io = crate::support::event_loop(&crate::support::config(backend));
            let file = FlashFile::open(&path, &sized(1 << 20)).unwrap();
            io.attach(std::sync::Arc::new(file));
        }
    });
}

#[test]
fn the_holder_is_named() {
    let folder = Folder::new();
    let path = folder.file("flash");
    let mut holder = hold(&path);
    let error = FlashFile::open(&path, &sized(4 << 20)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} is in use by process {}", path.display(), holder.id())
    );
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(
        std::fs::metadata(&path).unwrap().len(),
        1 << 20,
        "nothing was changed"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    let _file = FlashFile::open(&path, &sized(1 << 20)).unwrap();
    let again = refused(&path, &sized(1 << 20));
    let own = format!("is in use by this process ({}) already", std::process::id());
    assert!(
        again.ends_with(&own),
        "the same process is refused too: {again}"
    );
    // Other code of the process may read the file, for example to copy it. The next process used to
    // wait for thirty seconds before it was refused, because the close took the holder's name away.
    drop(std::fs::read(&path).unwrap());
    let output = child("file::taker", &path.display().to_string())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let named = format!("is in use by process {}", std::process::id());
    assert!(
        out.contains(&named),
        "a refusal here does not cost the name: {out}"
    );
}

#[test]
fn taker() {
    if let Some(path) = child_task() {
        println!("{}", refused(Path::new(&path), &sized(1 << 20)));
    }
}

/// Needs the right to mount; without it there is no small file system to fill.
#[test]
fn no_space_is_told_and_undone() {
    let folder = Folder::new();
    let Some(small) = SmallFs::new(folder.path()) else {
        return;
    };
    let path = folder.file("flash");
    let fresh = refused(&path, &sized(64 << 20));
    let left_behind = path.exists();
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let grown = refused(&path, &sized(64 << 20));
    let kept = std::fs::read(&path).unwrap();
    // The file already has this length, but all except the first megabyte is a hole.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let before = file.metadata().unwrap();
    let filled = refused(&path, &sized(64 << 20));
    let after = file.metadata().unwrap();
    drop(file);
    drop(small);
    assert_eq!(
        (after.len(), after.blocks()),
        (before.len(), before.blocks())
    );
    for text in [fresh, grown, filled] {
        let start = format!("no space for {} of 67108864 bytes: ", path.display());
        assert!(
            text.starts_with(&start) && text.ends_with(" are left there"),
            "{text}"
        );
    }
    assert!(!left_behind, "a file that could not be made is removed");
    assert_eq!(kept.len(), 1 << 20, "a file that was there is as it was");
}

#[test]
fn blocking_reads_and_writes() {
    let folder = Folder::new();
    let file = FlashFile::open(&folder.file("flash"), &sized(4 << 20)).unwrap();
    let pages = Device::pages(&file);
    assert_eq!(pages, 1024);
    let mut rng = Rng::new(seed("blocking_reads_and_writes"));
    let mut model = vec![0u8; 4 << 20];
    let mut buf = AlignedBuf::new(64);
    for _ in 0..300 {
        let count = 1 + rng.below(64) as usize;
        let page = rng.below(pages - count as u64 + 1);
        let (at, bytes) = (page as usize * PAGE_SIZE, count * PAGE_SIZE);
        match rng.below(3) {
            0 => {
                rng.fill(&mut buf[..bytes]);
                file.write(page, &buf[..bytes], TAG).unwrap();
                model[at..at + bytes].copy_from_slice(&buf[..bytes]);
            }
            1 => {
                file.read(page, &mut buf[..bytes], TAG).unwrap();
                assert!(buf[..bytes] == model[at..at + bytes]);
            }
            _ => file.flush(TAG).unwrap(),
        }
    }
    let invalid = Err(IoError::Os(libc::EINVAL));
    assert_eq!(file.read(pages, &mut buf[..PAGE_SIZE], TAG), invalid);
    assert_eq!(file.read(u64::MAX, &mut buf, TAG), invalid);
    assert_eq!(file.write(0, &buf[..100], TAG), invalid);
    assert_eq!(file.discard(pages - 1, 2, TAG), invalid);
    file.discard(0, pages, TAG).unwrap();
    file.read(0, &mut buf, TAG).unwrap();
    assert!(
        buf[..] == model[..buf.len()],
        "a discard that was not asked for does nothing"
    );
}

#[test]
fn batches_of_reads() {
    let folder = Folder::new();
    let file = FlashFile::open(&folder.file("flash"), &sized(4 << 20)).unwrap();
    let mut all = AlignedBuf::new(1024);
    for (nth, page) in all.chunks_mut(PAGE_SIZE).enumerate() {
        page.fill(nth as u8);
    }
    file.write(0, &all, TAG).unwrap();
    let file = &file;
    let mut rng = Rng::new(seed("batches_of_reads"));
    // From several threads, since each has its own ring.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let seed = rng.next_u64();
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for count in [0, 1, 2, 63, 200, 1000] {
                    let mut memory = AlignedBuf::new(count * 4);
                    let mut requests: Vec<_> = memory
                        .chunks_mut(4 * PAGE_SIZE)
                        .map(|buf| {
                            let pages = 1 + rng.below(4) as usize;
                            ReadRequest::new(rng.below(1020), &mut buf[..pages * PAGE_SIZE])
                        })
                        .collect();
                    file.read_batch(&mut requests, TAG).unwrap();
                    for request in &requests {
                        assert_eq!(request.result, Ok(()));
                        for (nth, page) in request.buf.chunks(PAGE_SIZE).enumerate() {
                            let expected = (request.page + nth as u64) as u8;
                            assert!(page.iter().all(|byte| *byte == expected));
                        }
                    }
                }
            });
        }
    });
    let mut memory = AlignedBuf::new(3);
    let mut requests: Vec<_> = memory
        .chunks_mut(PAGE_SIZE)
        .zip([5, 1024, 7])
        .map(|(buf, page)| ReadRequest::new(page, buf))
        .collect();
    assert_eq!(
        file.read_batch(&mut requests, TAG),
        Err(IoError::Os(libc::EINVAL))
    );
    assert_eq!(requests[0].result, Ok(()));
    assert_eq!(requests[1].result, Err(IoError::Os(libc::EINVAL)));
    assert_eq!(requests[2].result, Ok(()));
    assert_eq!(requests[2].buf[9], 7);
}

/// A loop device stands in for a flash drive: size, exclusive use, reads, writes and discard,
/// through both interfaces.
#[test]
fn block_devices() {
    use senko_io::{Event, Queue};
    let folder = Folder::new();
    let backing = folder.file("backing");
    std::fs::write(&backing, vec![7; 4 << 20]).unwrap();
    let mut losetup = std::process::Command::new("losetup");
    let made = losetup
        .args(["--find", "--show"])
        .arg(&backing)
        .stderr(Stdio::null())
        .output();
    let path = match made {
        Ok(output) if output.status.success() => {
            PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
        }
        _ => {
            println!("skipped: no loop device to be had");
            return;
        }
    };
    let work = std::panic::catch_unwind(|| {
        assert!(refused(&path, &sized(8 << 20)).contains("has 4194304 bytes, 8388608 are needed"));
        let options = FileOptions {
            discard: true,
            ..sized(0)
        };
        let file = std::sync::Arc::new(FlashFile::open(&path, &options).unwrap());
        assert!(file.block_device());
        assert_eq!(file.pages(), 1024);
        let mut page = AlignedBuf::new(1);
        file.read(1023, &mut page, TAG).unwrap();
        assert!(page.iter().all(|byte| *byte == 7));
        file.discard(100, 10, TAG).unwrap();
        file.read(105, &mut page, TAG).unwrap();
        assert!(
            page.iter().all(|byte| *byte == 0),
            "a loop device reads discarded pages as zeros"
        );
        crate::support::on_both(|backend| {
            let mut io = crate::support::event_loop(&crate::support::config(backend));
            let device = io.attach(std::sync::Arc::clone(&file));
            io.discard(device, 200, 10, TAG, 1);
            io.flush(device, TAG, 2);
            let events = crate::support::poll_until(&mut io, |events| events.len() == 2);
            for event in events {
                let Event::Disk(done) = event else { panic!() };
                done.result.unwrap();
            }
            file.read(205, &mut AlignedBuf::new(1), TAG).unwrap();
        });
    });
    std::process::Command::new("losetup")
        .arg("--detach")
        .arg(&path)
        .status()
        .unwrap();
    work.unwrap();
}

/// Growing keeps the content, is seen at once, and the new part reads as zeros.
#[test]
fn grows_in_place() {
    let folder = Folder::new();
    let path = folder.file("flash");
    let file = FlashFile::open(&path, &sized(1 << 20)).unwrap();
    let mut page = AlignedBuf::new(1);
    page.fill(7);
    file.write(255, &page, TAG).unwrap();
    assert!(matches!(file.write(256, &page, TAG), Err(IoError::Os(_))));
    file.grow(512).unwrap();
    file.grow(300).unwrap();
    assert_eq!(file.pages(), 512);
    let meta = std::fs::metadata(&path).unwrap();
    assert!(meta.blocks() * 512 >= 2 << 20, "the blocks are allocated");
    file.read(511, &mut page, TAG).unwrap();
    assert!(page.iter().all(|&byte| byte == 0));
    file.read(255, &mut page, TAG).unwrap();
    assert!(page.iter().all(|&byte| byte == 7));
    assert_eq!(file.grow(u64::MAX / 2), Err(IoError::Os(libc::ENOSPC)));
    assert_eq!(file.pages(), 512);
}

/// Growing used to allocate all of the file, so it filled the holes again. A punched part gives its
/// storage back, and stays a hole while the file grows. When it is filled, the part has storage.
/// Its neighbours keep their bytes. Reads after a truncated end fail.
#[test]
fn holes_stay_until_they_are_filled() {
    let folder = Folder::new();
    let path = folder.file("flash");
    let file = FlashFile::open(&path, &sized(8 << 20)).unwrap();
    let mut page = AlignedBuf::new(1);
    page.fill(7);
    for at in [255, 256, 1279, 1280] {
        file.write(at, &page, TAG).unwrap();
    }
    let stored = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let whole = stored();
    if !file.punch(256, 1024, TAG).unwrap() {
        println!("skipped: this file system makes no holes");
        return;
    }
    let punched = stored();
    assert!(punched + (4 << 20) <= whole, "{punched} of {whole}");
    file.grow(2048 + 256).unwrap();
    assert_eq!(stored(), punched + (1 << 20));
    file.shrink(2048).unwrap();
    file.shrink(4096).unwrap();
    assert_eq!((file.pages(), stored()), (2048, punched));
    assert!(file.read(2048, &mut page, TAG).is_err());
    for (at, expected) in [(255, 7), (256, 0), (1279, 0), (1280, 7)] {
        file.read(at, &mut page, TAG).unwrap();
        assert!(page.iter().all(|&byte| byte == expected), "page {at}");
    }
    file.fill(256, 1024).unwrap();
    assert_eq!(stored(), whole);
    assert_eq!(file.punch(2000, 100, TAG), Err(IoError::Os(libc::EINVAL)));
    file.read(1280, &mut page, TAG).unwrap();
    assert!(page.iter().all(|&byte| byte == 7));
}

/// A stream of reads: each slot reads a chain of pages, each of which names the next. All arrive,
/// in each slot's order, including reads of several pages and reads beyond the end.
#[test]
fn streams_of_reads() {
    struct Chains {
        at: Vec<(u64, usize)>,
        left: Vec<u32>,
        seen: u64,
        refused: u64,
    }
    impl senko_io::ReadStream for Chains {
        fn next(&mut self, slot: usize) -> Option<(u64, usize)> {
            (self.left[slot] > 0).then(|| self.at[slot])
        }
        fn done(&mut self, slot: usize, result: Result<&[u8], IoError>) {
            self.left[slot] -= 1;
            let (page, pages) = self.at[slot];
            match result {
                Ok(bytes) => {
                    assert_eq!(bytes.len(), pages * PAGE_SIZE);
                    for (nth, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
                        assert_eq!(bytes[..8], (page + nth as u64).to_le_bytes());
                    }
                    self.seen += 1;
                }
                Err(error) => {
                    assert!(page + pages as u64 > 2048, "{error}");
                    self.refused += 1;
                }
            }
            self.at[slot] = ((page * 7 + 13) % 2052, 1 + (page % 3) as usize);
        }
    }
    let folder = Folder::new();
    let file = FlashFile::open(&folder.file("flash"), &sized(8 << 20)).unwrap();
    let mut page = AlignedBuf::new(1);
    for number in 0..2048u64 {
        page[..8].copy_from_slice(&number.to_le_bytes());
        file.write(number, &page, TAG).unwrap();
    }
    for (slots, depth) in [
        (1, 1),
        (3, 3),
        (64, 64),
        (200, 64),
        (200, 7),
        (40, 100),
        (9, 1),
    ] {
        let mut chains = Chains {
            at: (0..slots).map(|slot| (slot as u64 * 10, 1)).collect(),
            left: vec![50; slots],
            seen: 0,
            refused: 0,
        };
        file.read_stream(slots, depth, &mut chains, TAG);
        assert_eq!(chains.seen + chains.refused, 50 * slots as u64);
        assert!(chains.refused < chains.seen);
    }
}

/// A user of a stream that panics leaves no read in flight, and the thread can read on.
#[test]
fn a_stream_survives_a_panic() {
    struct Panics(u32);
    impl senko_io::ReadStream for Panics {
        fn next(&mut self, slot: usize) -> Option<(u64, usize)> {
            Some((slot as u64, 1))
        }
        fn done(&mut self, _: usize, _: Result<&[u8], IoError>) {
            self.0 += 1;
            assert!(self.0 < 100, "as the test wants it");
        }
    }
    let folder = Folder::new();
    let file = FlashFile::open(&folder.file("flash"), &sized(8 << 20)).unwrap();
    for _ in 0..3 {
        let file = &file;
        let run = || file.read_stream(100, 64, &mut Panics(0), TAG);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
    let mut page = AlignedBuf::new(1);
    file.read(0, &mut page, TAG).unwrap();
}

/// `--flash FILE` used to take over any file, even an unmounted file system, lengthen it and
/// overwrite it.
#[test]
fn what_holds_data_of_others_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    let ours = FileOptions {
        ours: Some(|page| page.starts_with(b"OURS")),
        ..sized(4 << 20)
    };
    let path = folder.file("foreign");
    let with = |bytes: usize, at: usize, mark: &[u8]| {
        let mut content = vec![0; bytes];
        content[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(&path, &content).unwrap();
        content
    };
    for (bytes, at, mark, told) in [
        (1 << 20, 0x438, &b"\x53\xef"[..], "an ext2, ext3 or ext4"),
        (1 << 20, 0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (40, 0, b"diary", "data at byte 0"),
        // An incomplete last page counts too.
        (8192 + 10, 8192 + 9, b"x", "data at byte 8201"),
        (8 << 20, (8 << 20) - 1, b"x", "data at byte 8388607"),
    ] {
        let content = with(bytes, at, mark);
        let error = FlashFile::open(&path, &ours).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains(told), "{error}");
        assert!(
            std::fs::read(&path).unwrap() == content,
            "{told}: untouched"
        );
    }
    // A file is accepted if it is the caller's, if it is empty, or if the caller allows taking it
    // over.
    with(1 << 20, 0, b"OURS, and more");
    assert_eq!(FlashFile::open(&path, &ours).unwrap().pages(), 1024);
    with(1 << 20, 0, b"");
    assert_eq!(FlashFile::open(&path, &ours).unwrap().pages(), 1024);
    with(1 << 20, 70, b"theirs");
    FlashFile::open(&path, &sized(4 << 20)).unwrap();
}

/// A flash file that was made with `truncate` used to keep its mode 0644, so every user could read
/// the clients' data. Later each file lost these rights, also a database that a group shares.
#[test]
fn an_existing_file_keeps_its_mode_unless_it_must_be_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.file("open-to-all");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
    for before in [0o644, 0o666, 0o600] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(before)).unwrap();
        let reading = FileOptions {
            read_only: true,
            private: true,
            ..FileOptions::default()
        };
        drop(FlashFile::open(&path, &reading).unwrap());
        drop(FlashFile::open(&path, &sized(1 << 20)).unwrap());
        assert_eq!(mode(), before);
        let private = FileOptions {
            private: true,
            ..sized(1 << 20)
        };
        drop(FlashFile::open(&path, &private).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
