// SPDX-License-Identifier: Apache-2.0
//! The ways of a durable write, with nothing else: the floor under every commit.
//!
//! [`super::floor`] times them. A [`Writer`] has its own file and writes its blocks in ascending
//! order, each once, each durable when the call returns.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use io_uring::{IoUring, opcode, squeue, types};
use senko_io::{AlignedBuf, PAGE_SIZE};

/// How a write is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `pwritev2` with RWF_DSYNC, on an O_DIRECT descriptor.
    Dsync,
    /// `pwrite` and `fdatasync`, on an O_DIRECT descriptor.
    Fdatasync,
    /// `pwrite` and `fdatasync`, through the page cache.
    Buffered,
    /// A write and an `fdatasync` as two linked requests of a ring, O_DIRECT.
    Linked,
    /// One request of a ring with RWF_DSYNC, O_DIRECT.
    RingDsync,
}

/// The state of the space before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Written once with zeros, and flushed.
    Written,
    /// Allocated by `fallocate` and never written.
    Allocated,
    /// Not allocated: each write extends the file.
    Appended,
}

impl Way {
    /// All, in the order of the tables.
    pub const ALL: [Way; 5] = [
        Way::Dsync,
        Way::Fdatasync,
        Way::Buffered,
        Way::Linked,
        Way::RingDsync,
    ];

    /// Its name in keys.
    pub fn name(self) -> &'static str {
        match self {
            Way::Dsync => "dsync",
            Way::Fdatasync => "fdatasync",
            Way::Buffered => "buffered",
            Way::Linked => "linked",
            Way::RingDsync => "ring_dsync",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Way::Dsync => "pwritev2(RWF_DSYNC)",
            Way::Fdatasync => "pwrite, fdatasync",
            Way::Buffered => "the same, page cache",
            Way::Linked => "ring: write, fdatasync linked",
            Way::RingDsync => "ring: write with RWF_DSYNC",
        }
    }
}

impl Space {
    pub const ALL: [Space; 3] = [Space::Written, Space::Allocated, Space::Appended];

    pub fn name(self) -> &'static str {
        match self {
            Space::Written => "written",
            Space::Allocated => "allocated",
            Space::Appended => "appended",
        }
    }
}

/// A file that takes durable writes in one way.
pub struct Writer {
    file: File,
    ring: Option<IoUring>,
    way: Way,
    bytes: usize,
    at: u64,
    buffer: AlignedBuf,
}

impl Writer {
    /// A new file at `path` for `count` writes of `bytes` each; an existing file is replaced.
    /// It needs a file system with O_DIRECT and a kernel with rings.
    pub fn new(
        path: &Path,
        way: Way,
        space: Space,
        bytes: usize,
        count: u64,
    ) -> io::Result<Writer> {
        let _ = std::fs::remove_file(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let length = count * bytes as u64;
        // Zeros go through the page cache in any case, and are flushed before the measurement
        // begins.
        let file = options.open(path)?;
        match space {
            Space::Written => {
                let zeros = vec![0; 1 << 20];
                for start in (0..length).step_by(zeros.len()) {
                    let piece = (length - start).min(zeros.len() as u64) as usize;
                    file.write_all_at(&zeros[..piece], start)?;
                }
            }
            Space::Allocated => allocate(&file, length)?,
            Space::Appended => {}
        }
        file.sync_all()?;
        let file = if way == Way::Buffered {
            file
        } else {
            let mut direct = OpenOptions::new();
            direct.read(true).write(true).custom_flags(libc::O_DIRECT);
            direct.open(path)?
        };
        let ring = match way {
            Way::Linked | Way::RingDsync => Some(IoUring::new(4)?),
            _ => None,
        };
        let pages = bytes.div_ceil(PAGE_SIZE);
        let mut buffer = AlignedBuf::new(pages);
        buffer.fill(0xa5);
        Ok(Writer {
            file,
            ring,
            way,
            bytes,
            at: 0,
            buffer,
        })
    }

    /// Writes the next block, which is durable when this returns.
    pub fn write(&mut self) -> io::Result<()> {
        let number = (self.at / self.bytes as u64).to_le_bytes();
        self.buffer[..8].copy_from_slice(&number);
        match self.way {
            Way::Dsync => self.dsync()?,
            Way::Fdatasync | Way::Buffered => {
                let bytes = &self.buffer[..self.bytes];
                self.file.write_all_at(bytes, self.at)?;
                self.file.sync_data()?;
            }
            Way::Linked | Way::RingDsync => self.by_ring()?,
        }
        self.at += self.bytes as u64;
        Ok(())
    }

    fn dsync(&self) -> io::Result<()> {
        let piece = libc::iovec {
            iov_base: self.buffer.as_ptr().cast_mut().cast(),
            iov_len: self.bytes,
        };
        // SAFETY: the vector names this writer's buffer, which outlives the call and has at least
        // this many bytes; the kernel only reads from it.
        let done = unsafe {
            libc::pwritev2(
                self.file.as_raw_fd(),
                &raw const piece,
                1,
                self.at as libc::off_t,
                libc::RWF_DSYNC,
            )
        };
        whole(done as i64, self.bytes)
    }

    fn by_ring(&mut self) -> io::Result<()> {
        let Some(ring) = &mut self.ring else {
            return Err(io::Error::other("this way has no ring"));
        };
        let fd = types::Fd(self.file.as_raw_fd());
        let linked = self.way == Way::Linked;
        let flag = if linked { 0 } else { libc::RWF_DSYNC };
        let write = opcode::Write::new(fd, self.buffer.as_ptr(), self.bytes as u32)
            .offset(self.at)
            .rw_flags(flag)
            .build()
            .user_data(0);
        let fsync = opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build()
            .user_data(1);
        let entries = if linked {
            vec![write.flags(squeue::Flags::IO_LINK), fsync]
        } else {
            vec![write]
        };
        for entry in &entries {
            // SAFETY: the buffer and the descriptor are this writer's. This call waits for as
            // many completions as it made requests, or leaves the buffer to the kernel for good.
            let pushed = unsafe { ring.submission().push(entry) };
            pushed.map_err(|_| io::Error::other("the ring is full"))?;
        }
        let mut left = entries.len();
        let mut failed = None;
        while left > 0 {
            if let Err(error) = ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                // Requests may be under way, so the kernel keeps the buffer, and this writer ends.
                let pages = self.buffer.pages();
                std::mem::forget(std::mem::replace(&mut self.buffer, AlignedBuf::new(pages)));
                self.ring = None;
                return Err(error);
            }
            for done in ring.completion() {
                left -= 1;
                let want = if done.user_data() == 0 { self.bytes } else { 0 };
                let result = match done.result() {
                    error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                    got => whole(i64::from(got), want),
                };
                if let Err(error) = result {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Checks that a write took all its bytes.
fn whole(done: i64, want: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(done) if done == want => Ok(()),
        Ok(done) => Err(io::Error::other(format!(
            "a write of {want} bytes took {done}"
        ))),
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers alone, and the descriptor is open.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
