// SPDX-License-Identifier: Apache-2.0
//! Files across a fork: the parent keeps them, and the child has no share in them.

use std::os::fd::AsRawFd;

use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, IoError, Purpose, Tag, Unfinished};

use crate::support::Folder;

const TAG: Tag = Tag::dbm(Purpose::Log);

/// A forked daemon used to keep the lock of a database after its parent had closed it. The parent
/// could not open it again while the daemon lived.
#[test]
fn a_child_holds_nothing_of_its_parents_files() {
    let folder = Folder::new();
    let path = folder.file("data");
    let options = FileOptions {
        bytes: 128 << 10,
        ..FileOptions::default()
    };
    let open = || FlashFile::open(&path, &options);
    let device = open().unwrap();
    let mut page = AlignedBuf::new(1);
    page.fill(7);
    device.write(3, &page, TAG).unwrap();
    let forks = senko_io::forks();
    let (mut from_child, to_parent) = std::io::pipe().unwrap();
    let (from_parent, to_child) = std::io::pipe().unwrap();
    // SAFETY: the child allocates nothing, takes no lock that another thread may have held at the
    // fork, and ends without running anything of the test's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork");
    if child == 0 {
        let refused = Err(IoError::Os(libc::EBADF));
        let ok = senko_io::forks() == forks + 1
            && device.read(3, &mut page, TAG) == refused
            && device.write(3, &page, TAG) == refused
            && device.write_durable(3, &page, TAG) == refused
            && device.flush(TAG) == refused
            && device.grow(1000) == refused;
        let answer = [u8::from(ok)];
        // SAFETY: both buffers have one byte. The read ends when the parent is done.
        unsafe {
            libc::close(to_child.as_raw_fd());
            libc::write(to_parent.as_raw_fd(), answer.as_ptr().cast(), 1);
            let mut none = [0u8];
            libc::read(from_parent.as_raw_fd(), none.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    drop(to_parent);
    let mut answer = [0];
    std::io::Read::read_exact(&mut from_child, &mut answer).unwrap();
    assert_eq!(
        answer,
        [1],
        "the child could use the file, or did not notice"
    );
    // The parent's file is unchanged, and the child has no share in its lock.
    device.read(3, &mut page, TAG).unwrap();
    assert_eq!(page[0], 7);
    assert_eq!(senko_io::forks(), forks);
    drop(device);
    let again = open().unwrap();
    again.read(3, &mut page, TAG).unwrap();
    assert_eq!(page[0], 7);
    drop(to_child);
    let mut status = 0;
    // SAFETY: the kernel writes one number to this stack.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
}

/// A child that ended with its copy of a copy's owner removed what its parent was writing.
#[test]
fn a_child_neither_names_nor_removes_what_its_parent_writes() {
    let folder = Folder::new();
    let path = folder.file("copy");
    let (unfinished, mut file) = Unfinished::create(&path).unwrap();
    // SAFETY: the child only uses its copy, which takes no lock, and ends without running anything
    // of the test's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork");
    if child == 0 {
        let refused = unfinished.finish().is_err();
        // SAFETY: takes a number.
        unsafe { libc::_exit(i32::from(!refused)) }
    }
    let mut status = 0;
    // SAFETY: the kernel writes one number to this stack.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child could give the copy its name");
    assert!(unfinished.draft().exists() && !path.exists());
    std::io::Write::write_all(&mut file, b"whole").unwrap();
    unfinished.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
}
