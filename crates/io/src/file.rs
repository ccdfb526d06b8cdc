// SPDX-License-Identifier: Apache-2.0
//! A flash file or a block device: open, lock, preallocate, probe O_DIRECT, record.
//!
//! Both interfaces use a [`FlashFile`]: it is itself the blocking [`Device`], and an event loop
//! submits operations on its descriptor. Always holds: the lock is taken before anything is read or
//! changed. It is exclusive unless the file is opened only for reading. Transfers of an O_DIRECT
//! file are page-aligned. In a writable regular file, every page below `pages()` has its blocks
//! allocated, except punched pages.

mod allocate; // blocks for all of a file, before they are needed
mod batch; // many blocking reads at once
mod durable; // writes that are durable when they return
mod place; // names of devices that are not there
pub(crate) mod owner; // whose data a file holds, and who may read it
pub(crate) mod fork; // open files in the child of a fork
pub(crate) mod fork_count; // the number of forks since the first file was opened
mod folder; // names in a folder, made durable
mod found; // how it is found, opened and locked
mod direct; // whether O_DIRECT works here, and with which alignment
pub(crate) mod told; // error messages that keep the system's error number
pub(crate) mod lock; // one writer or several readers at a time, with their names for others
mod length; // grows, shrinks and punches holes
pub use length::discard_bytes;
pub use owner::FileId;
mod map; // pages as memory that outlives the process

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use folder::sync_found_name;
pub(crate) use folder::{folder_of, sync_folder, sync_name};
use found::Found;
pub(crate) use lock::Claim;
pub use place::refuse_file_in_dev;

use crate::device::read_in_turn;
use crate::fault::{Fault, FaultSwitch};
use crate::trace::Recorder;
use crate::{AlignedBuf, Device, IoError, Op, PAGE_SIZE, ReadRequest, ReadStream, Tag};

/// How to open a file.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Bytes that the file must have (it is made and preallocated to this size). 0: the present
    /// size (block device, existing file).
    pub bytes: u64,
    /// If the file is found to be longer than `bytes`, all of it is used. Another process may have
    /// made it since the caller looked.
    pub whole: bool,
    /// Open for reading only, with a lock that other readers share: nothing is made or allocated,
    /// and writes fail with EROFS. It needs no right to write, so a file on read-only media can be
    /// opened.
    pub read_only: bool,
    /// Open for reading only, without a lock, while another process writes. The two processes must
    /// agree on what may be read: see [`FlashFile::pin`].
    pub beside_writer: bool,
    /// Permission bits of a new file, before the process's umask. `None`: other users get no
    /// rights. An existing file keeps its own.
    pub mode: Option<u32>,
    /// Other users lose the rights that they have on an existing file.
    pub private: bool,
    /// Pass discards on to the device.
    pub discard: bool,
    /// Records what reaches this device, under this device number.
    pub recorder: Option<(Arc<Recorder>, u16)>,
    /// Makes operations of an event loop fail or wait, for tests.
    pub faults: Option<Arc<FaultSwitch>>,
    /// Decides by the first page whether an existing file is the caller's. Another file that is not
    /// empty is refused unchanged, with an error of kind `AlreadyExists`. `None`: any existing file
    /// is used.
    pub ours: Option<fn(&[u8]) -> bool>,
}

/// An open, locked flash file or block device.
pub struct FlashFile {
    /// Dropped before the file is closed: a ring may keep the file open for a moment longer, and
    /// a process that meets its lock then waits.
    _sign: Option<lock::Sign>,
    /// Dropped before the file is closed: if it was removed, the kernel may give its inode to
    /// another file at once. Who opens this one in between waits for the lock.
    _held: Option<lock::HeldLock>,
    file: File,
    /// See [`fork_count::forks`].
    forks: u32,
    path: PathBuf,
    /// Bytes that the file had when it was opened.
    found: u64,
    /// Changed by [`Device::grow`] and [`Device::shrink`].
    pages: AtomicU64,
    direct: bool,
    block_device: bool,
    read_only: bool,
    discard: bool,
    durable: durable::Way,
    recorder: Option<(Arc<Recorder>, u16)>,
    faults: Option<Arc<FaultSwitch>>,
}

impl FlashFile {
    /// Opens or makes `path`, takes the lock, probes O_DIRECT, preallocates. The name of a new file
    /// is durable when this returns.
    ///
    /// An existing file that is larger than `options.bytes` keeps its size; without `options.whole`
    /// the pages beyond are not used. A size that is not a multiple of the page is rounded down.
    ///
    /// # Errors
    /// One clear sentence with the path. The directory is missing, there is no space, another
    /// process holds the file (with its pid where known), the file is too small, ...
    pub fn open(path: &Path, options: &FileOptions) -> io::Result<FlashFile> {
        let Found {
            existing,
            file,
            held,
        } = Found::at(path, options)?;
        let read_only = options.read_only || options.beside_writer;
        let block_device = existing
            .as_ref()
            .is_some_and(|meta| meta.file_type().is_block_device());
        fork::watch();
        let sign = held.as_ref().and_then(|_| lock::Sign::of(&file));
        let meta = file
            .metadata()
            .map_err(|error| failed(path, "cannot look at", &error))?;
        let size = match if block_device {
            direct::device_size(&file)
        } else {
            Ok(meta.len())
        } {
            Ok(size) => size,
            Err(error) => return Err(failed(path, "cannot find the size of", &error)),
        };
        let asked = match options.bytes {
            0 => size,
            bytes if options.whole => bytes.max(size),
            bytes => bytes,
        };
        let pages = asked / PAGE_SIZE as u64;
        let too_small = (block_device || read_only) && asked > size;
        if too_small || pages == 0 {
            let text = format!(
                "{} has {size} bytes, {} are needed",
                path.display(),
                asked.max(PAGE_SIZE as u64)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let (Some(ours), Some(_)) = (options.ours, &existing) {
            owner::refuse_foreign(&file, path, size, ours)?;
        }
        if !block_device && !read_only && options.private {
            owner::make_private(&file, path)?;
        }
        // After a failure a new file is removed, but not one that another process made meanwhile.
        let made = existing.is_none() && size == 0;
        if !block_device && !read_only && options.bytes > 0 {
            allocate::preallocate(&file, path, size, asked, made)?;
        }
        if made {
            sync_name(path)?;
        } else if !read_only && !block_device {
            sync_found_name(path)?;
        }
        let direct = direct::enable(&file);
        lock::opened(file.as_raw_fd());
        Ok(FlashFile {
            _sign: sign,
            file,
            _held: held,
            forks: fork_count::forks(),
            path: path.to_path_buf(),
            found: size,
            pages: AtomicU64::new(pages),
            direct,
            block_device,
            read_only,
            durable: durable::Way::default(),
            discard: options.discard,
            recorder: options.recorder.clone(),
            faults: options.faults.clone(),
        })
    }

    /// Whether the file existed before it was opened, and was as long as requested.
    pub fn found_pages(&self) -> u64 {
        self.found / PAGE_SIZE as u64
    }

    /// Its length, in whole pages.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Whether O_DIRECT is in use. Some file systems refuse it; then this process asks the page
    /// cache to drop the data that it read or wrote.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a block device and not a file.
    pub fn block_device(&self) -> bool {
        self.block_device
    }

    /// Whether it is open for reading only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the file has lost all its names, so that nobody can open it again.
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// The descriptor. Use it only to query and to read: this value owns the lock and the flags.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The same file once more, for reading and writing, with these flags of `open(2)`. It stands
    /// under this value's lock.
    ///
    /// # Errors
    /// The system's error, or that another file has taken the name.
    pub fn second_handle(&self, flags: i32) -> io::Result<File> {
        let mut how = OpenOptions::new();
        how.read(true).write(!self.read_only).custom_flags(flags);
        let second = how.open(&self.path)?;
        if self.id()? != owner::id_of(&second.metadata()?) {
            let text = format!("{} is another file now", self.path.display());
            return Err(io::Error::other(text));
        }
        Ok(second)
    }

    pub(crate) fn discards(&self) -> bool {
        self.discard
    }

    /// Records an operation, if a recorder is attached.
    pub(crate) fn record(&self, tag: Tag, op: Op, page: u64, pages: u64) {
        if let Some((recorder, device)) = &self.recorder {
            recorder.record(*device, tag, op, page, pages);
        }
    }

    /// The fault that a test plans for an operation.
    #[inline]
    pub(crate) fn fault(&self, op: Op, page: u64, pages: u64) -> Option<Fault> {
        self.faults.as_ref()?.meets(op, page, pages)
    }

    /// Refuses operations of a forked child on its parent's file.
    pub(crate) fn check_own(&self) -> Result<(), IoError> {
        if self.forks != fork_count::forks() {
            return Err(IoError::Os(libc::EBADF));
        }
        Ok(())
    }

    fn check(&self, page: u64, bytes: usize) -> Result<u64, IoError> {
        self.check_own()?;
        let whole = bytes.is_multiple_of(PAGE_SIZE);
        let end = page.checked_add((bytes / PAGE_SIZE) as u64);
        if !whole || end.is_none_or(|end| end > self.pages()) {
            return Err(IoError::Os(libc::EINVAL));
        }
        Ok(page * PAGE_SIZE as u64)
    }

    fn check_writable(&self) -> Result<(), IoError> {
        if self.read_only {
            return Err(IoError::Os(libc::EROFS));
        }
        Ok(())
    }

    fn raw(&self) -> RawOp {
        RawOp {
            fd: self.raw_fd(),
            direct: self.direct,
            block_device: self.block_device,
            op: Op::Flush,
            address: std::ptr::null_mut(),
            bytes: 0,
            offset: 0,
        }
    }

    /// Transfers until all is done, an error comes, or the device ends.
    fn transfer(&self, mut raw: RawOp) -> Result<(), IoError> {
        let want = raw.bytes;
        while raw.bytes > 0 {
            let done = raw.run();
            match done {
                _ if -done == libc::EINTR => {}
                _ if done < 0 => return Err(IoError::Os(-done)),
                0 => {
                    let got = (want - raw.bytes) as usize;
                    return Err(IoError::Short {
                        want: want as usize,
                        got,
                    });
                }
                _ => {
                    // SAFETY: the system call moved `done` bytes, at most what was left of the
                    // buffer.
                    raw.address = unsafe { raw.address.add(done as usize) };
                    raw.bytes -= done as u64;
                    raw.offset += done as u64;
                }
            }
        }
        Ok(())
    }

    /// Takes the result of a batched read, and reads the rest of it.
    fn end_batched(&self, buf: &mut [u8], read: &batch::Read) -> Result<(), IoError> {
        let again = matches!(-read.result, libc::EINTR | libc::EAGAIN);
        if read.result < 0 && !again {
            return Err(IoError::Os(-read.result));
        }
        let (want, got) = (buf.len(), read.result.max(0) as usize);
        let (bytes, offset) = ((want - got) as u64, read.offset + got as u64);
        let rest = RawOp {
            op: Op::Read,
            address: buf[got..].as_mut_ptr(),
            bytes,
            offset,
            ..self.raw()
        };
        if !self.direct {
            RawOp {
                bytes: want as u64,
                offset: read.offset,
                ..rest
            }
            .pass_by_cache();
        }
        self.transfer(rest).map_err(|error| match error {
            IoError::Short { got: more, .. } => IoError::Short {
                want,
                got: got + more,
            },
            other => other,
        })
    }
}

impl Drop for FlashFile {
    fn drop(&mut self) {
        lock::closing(self.file.as_raw_fd());
    }
}

impl Device for FlashFile {
    fn pages(&self) -> u64 {
        FlashFile::pages(self)
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.lengthen(pages)
    }

    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        self.shorten(pages)
    }

    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        self.punch_hole(page, pages, tag)
    }

    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        self.fill_hole(page, pages)
    }

    fn extent(&self, page: u64) -> Option<Range<u64>> {
        let (page_bytes, end) = (PAGE_SIZE as u64, self.pages());
        let found = length::extent(&self.file, page * page_bytes, end * page_bytes)?;
        Some(found.start / page_bytes..(found.end / page_bytes).min(end))
    }

    fn rest(&self) -> Result<Vec<u8>, IoError> {
        let whole = self.found / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let mut page = AlignedBuf::new(1);
        // Direct reads are of whole pages, and end with the file.
        let bytes = self
            .file
            .read_at(&mut page, whole)
            .map_err(|error| IoError::Os(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let rest = (self.found - whole) as usize;
        Ok(page[..bytes.min(rest)].to_vec())
    }

    fn room(&self) -> Option<u64> {
        if self.block_device || self.read_only {
            return Some(0);
        }
        allocate::space_left(&self.file)
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        let offset = self.check(page, buf.len())?;
        self.record(tag, Op::Read, page, (buf.len() / PAGE_SIZE) as u64);
        let (address, bytes) = (buf.as_mut_ptr(), buf.len() as u64);
        self.transfer(RawOp {
            op: Op::Read,
            address,
            bytes,
            offset,
            ..self.raw()
        })
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.check_writable()?;
        let offset = self.check(page, buf.len())?;
        self.record(tag, Op::Write, page, (buf.len() / PAGE_SIZE) as u64);
        let (address, bytes) = (buf.as_ptr().cast_mut(), buf.len() as u64);
        self.transfer(RawOp {
            op: Op::Write,
            address,
            bytes,
            offset,
            ..self.raw()
        })
    }

    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.durably(page, buf, tag)
    }

    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        self.map_pages(page, pages)
    }

    fn oldest_pin(&self, below: u64) -> Option<u64> {
        lock::oldest_pin(&self.file, below)
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.check_own()?;
        self.record(tag, Op::Flush, 0, 0);
        self.raw().run_whole()
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.check_writable()?;
        let bytes = usize::try_from(pages)
            .ok()
            .and_then(|pages| pages.checked_mul(PAGE_SIZE));
        let offset = self.check(page, bytes.unwrap_or(usize::MAX))?;
        if !self.discard || pages == 0 {
            return Ok(());
        }
        self.record(tag, Op::Discard, page, pages);
        let bytes = pages * PAGE_SIZE as u64;
        RawOp {
            op: Op::Discard,
            bytes,
            offset,
            ..self.raw()
        }
        .run_whole()
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>], tag: Tag) -> Result<(), IoError> {
        let mut reads = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            let offset = self.check(request.page, request.buf.len());
            request.result = offset.map(drop);
            if let Ok(offset) = offset {
                let bytes = request.buf.len().min(1 << 30) as u32;
                let address = request.buf.as_mut_ptr();
                reads.push(batch::Read {
                    index,
                    address,
                    bytes,
                    offset,
                    result: 0,
                });
            }
        }
        // SAFETY: the addresses are those of the requests' buffers, which are borrowed uniquely
        // until this returns.
        let batched = reads.len() > 1 && unsafe { batch::read_all(self.raw_fd(), &mut reads) };
        for read in &reads {
            let request = &mut requests[read.index];
            request.result = if batched {
                self.record(
                    tag,
                    Op::Read,
                    request.page,
                    (request.buf.len() / PAGE_SIZE) as u64,
                );
                self.end_batched(request.buf, read)
            } else {
                self.read(request.page, request.buf, tag)
            };
        }
        requests
            .iter()
            .map(|request| request.result)
            .find(Result::is_err)
            .unwrap_or(Ok(()))
    }

    fn read_stream(&self, slots: usize, depth: usize, stream: &mut dyn ReadStream, tag: Tag) {
        let depth = depth.min(slots).min(batch::DEPTH as usize);
        let Some(ring) = (if depth > 1 {
            batch::Stream::new(slots)
        } else {
            None
        }) else {
            return read_in_turn(|page, buf| self.read(page, buf, tag), slots, stream);
        };
        let mut reads = Reads {
            file: self,
            tag,
            depth,
            stream,
            ring,
            wanted: vec![batch::Wanted::default(); slots],
            known: VecDeque::with_capacity(slots),
        };
        if !reads.run() {
            read_in_turn(|page, buf| self.read(page, buf, tag), slots, stream);
        }
    }
}

/// A [`Device::read_stream`] in progress on a ring.
struct Reads<'a> {
    file: &'a FlashFile,
    tag: Tag,
    depth: usize,
    stream: &'a mut dyn ReadStream,
    ring: batch::Stream,
    /// Each slot's read; it has no pages if the slot has none.
    wanted: Vec<batch::Wanted>,
    /// Slots whose next read is known and not yet under way.
    known: VecDeque<usize>,
}

impl Reads<'_> {
    /// Does all reads. False if the kernel refuses reads; then the slots' next reads are still to
    /// do.
    fn run(&mut self) -> bool {
        for slot in 0..self.wanted.len() {
            self.ask(slot);
            self.push();
        }
        let mut ends: Vec<(usize, i32)> = Vec::with_capacity(self.depth);
        while self.ring.in_flight() > 0 {
            if !self.ring.wait(&mut ends) {
                self.read_alone();
                return false;
            }
            // The device continues with known reads while the ended ones are handled.
            if self.push() {
                self.ring.submit();
            }
            for (slot, result) in ends.drain(..) {
                self.end(slot, result);
                self.ask(slot);
            }
            self.push();
        }
        true
    }

    /// Asks a slot for its next read. A read beyond the end ends at once.
    fn ask(&mut self, slot: usize) {
        while let Some((page, pages)) = self.stream.next(slot) {
            let bytes = pages.saturating_mul(PAGE_SIZE);
            match self.file.check(page, bytes) {
                Ok(offset) if bytes <= 1 << 30 && pages > 0 => {
                    self.file.record(self.tag, Op::Read, page, pages as u64);
                    self.wanted[slot] = batch::Wanted { pages, offset };
                    self.known.push_back(slot);
                    return;
                }
                Ok(_) => self.stream.done(slot, Err(IoError::Os(libc::EINVAL))),
                Err(error) => self.stream.done(slot, Err(error)),
            }
        }
    }

    /// Queues known reads as far as there is room; false if there are none.
    fn push(&mut self) -> bool {
        let room = self.depth - self.ring.in_flight() as usize;
        let count = room.min(self.known.len());
        for slot in self.known.drain(..count) {
            self.ring.push(self.file.raw_fd(), slot, self.wanted[slot]);
        }
        count > 0
    }

    /// Passes an ended read to its slot.
    fn end(&mut self, slot: usize, result: i32) {
        let batch::Wanted { pages, offset } = std::mem::take(&mut self.wanted[slot]);
        let buf = self.ring.buffer(slot, pages);
        let read = batch::Read {
            index: slot,
            address: std::ptr::null_mut(),
            bytes: 0,
            offset,
            result,
        };
        let result = self.file.end_batched(buf, &read);
        self.stream.done(slot, result.map(|()| &*buf));
    }

    /// After a refusal: does the requested reads without the ring.
    fn read_alone(&mut self) {
        self.ring.refuse();
        for (slot, wanted) in self.wanted.iter().enumerate() {
            if wanted.pages == 0 {
                continue;
            }
            let mut buf = AlignedBuf::new(wanted.pages);
            let page = wanted.offset / PAGE_SIZE as u64;
            let result = self.file.read(page, &mut buf, self.tag);
            self.stream.done(slot, result.map(|()| &buf[..]));
        }
    }
}

impl fmt::Debug for FlashFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FlashFile({}, {} pages)",
            self.path.display(),
            self.pages()
        )
    }
}

/// One system call on a device, as plain numbers, for a thread of the posix backend.
#[derive(Clone, Copy)]
pub(crate) struct RawOp {
    pub(crate) fd: RawFd,
    pub(crate) direct: bool,
    pub(crate) block_device: bool,
    pub(crate) op: Op,
    pub(crate) address: *mut u8,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
}

impl RawOp {
    /// The rest of the event loop's operation on `file`.
    pub(crate) fn of(file: &FlashFile, op: Op, rest: (*mut u8, u64, u64)) -> RawOp {
        let (address, bytes, offset) = rest;
        RawOp {
            op,
            address,
            bytes,
            offset,
            ..file.raw()
        }
    }

    /// Does it once; returns bytes, or a negative error number. The caller is responsible for the
    /// memory at `address`.
    pub(crate) fn run(&self) -> i32 {
        let most = self.bytes.min(1 << 30);
        let (length, offset) = (most as usize, self.offset as libc::off_t);
        let range = [self.offset, self.bytes];
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: for reads and writes the caller owns `bytes` bytes at `address` until this
        // returns; the other calls take no memory but `range`, which lives on this stack. The
        // descriptor is held open by the caller.
        let done = unsafe {
            match self.op {
                Op::Read => libc::pread(self.fd, self.address.cast(), length, offset),
                Op::Write => libc::pwrite(self.fd, self.address.cast(), length, offset),
                Op::Flush => libc::fdatasync(self.fd) as isize,
                Op::Discard if self.block_device => {
                    libc::ioctl(self.fd, BLKDISCARD, range.as_ptr()) as isize
                }
                Op::Discard => {
                    libc::fallocate(self.fd, punch, offset, self.bytes as libc::off_t) as isize
                }
            }
        };
        if done < 0 {
            return -io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO);
        }
        if !self.direct {
            self.pass_by_cache();
        }
        done as i32
    }

    /// Prevents a file without O_DIRECT from filling the page cache. Pages are dropped after a
    /// read. Written pages are sent to the device at once, and dropped after a flush. These are
    /// hints, so failures are ignored.
    fn pass_by_cache(&self) {
        let (offset, bytes) = (self.offset as libc::off_t, self.bytes as libc::off_t);
        // SAFETY: these calls take no memory.
        unsafe {
            match self.op {
                Op::Read => {
                    libc::posix_fadvise(self.fd, offset, bytes, libc::POSIX_FADV_DONTNEED);
                }
                Op::Write => {
                    libc::sync_file_range(self.fd, offset, bytes, libc::SYNC_FILE_RANGE_WRITE);
                }
                Op::Flush => {
                    libc::posix_fadvise(self.fd, 0, 0, libc::POSIX_FADV_DONTNEED);
                }
                Op::Discard => {}
            }
        }
    }

    /// Does a flush or a discard, even if signals interrupt it.
    fn run_whole(&self) -> Result<(), IoError> {
        loop {
            match self.run() {
                done if done >= 0 => return Ok(()),
                done if -done == libc::EINTR => {}
                done => return Err(IoError::Os(-done)),
            }
        }
    }
}

/// `BLKDISCARD` of the kernel's `linux/fs.h`.
const BLKDISCARD: libc::Ioctl = 0x1277;
/// `BLKGETSIZE64` of the kernel's `linux/fs.h` (its size field is that of `size_t`).
const BLKGETSIZE64: libc::Ioctl = 0x8000_1272 | (size_of::<usize>() as libc::Ioctl) << 16;

fn failed(path: &Path, what: &str, error: &io::Error) -> io::Error {
    told::told(format!("{what} {}: {error}", path.display()), error)
}
