// SPDX-License-Identifier: Apache-2.0
//! Page-aligned memory: runs of pages to write from, pooled frames to read into.
//!
//! An engine fills an [`AlignedBuf`] and passes it to a write; a loop reads into a [`FramePool`].
//! Both are mapped from the system. Pages become resident when they are first touched, so a table
//! sized for the worst case costs nothing until it is used. Memory of a [`crate::SharedFile`]
//! outlives the process. A frame lies in exactly one registered buffer of the ring, because no
//! frame of a pool crosses a multiple of [`REGISTER_SPAN`].

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes in a page: the unit of every device operation, and the read unit of papers B and E.
pub const PAGE_SIZE: usize = 4096;

/// The most bytes of one registered buffer of the kernel.
pub(crate) const REGISTER_SPAN: usize = 1 << 30;

/// Bytes of a large page, if the system has them.
const LARGE_PAGE: usize = 2 << 20;

/// Ends a free list.
const NONE: u32 = u32::MAX;

/// Zeroed, page-aligned memory of a whole number of pages. It is `Send + Sync`;
/// `Deref<[u8]>`/`DerefMut` give its bytes.
///
/// The memory is an anonymous mapping, or that of a file ([`crate::SharedFile`]). A page that was
/// never touched takes no memory.
pub struct AlignedBuf {
    start: NonNull<u8>,
    bytes: usize,
    /// The file that backs this memory.
    file: Option<File>,
    mapping: MappedMemory,
}

/// Keeps the mapping of an [`AlignedBuf`] in place after the buffer is dropped, for users that
/// still have an address in it.
#[derive(Clone, Debug)]
pub struct MappedMemory {
    mapping: Arc<Mapping>,
}

impl MappedMemory {
    /// Makes bytes of the mapping resident, with zeros if they were not. A kernel before Linux 5.14
    /// does not know how.
    pub(crate) fn touch(&self, from: usize, bytes: usize) {
        let Mapping { start, bytes: all } = *self.mapping;
        assert!(from + bytes <= all, "the range is the mapping's own");
        let at = std::ptr::with_exposed_provenance_mut(start + from);
        // SAFETY: the range lies within the mapping, which `self` keeps, and the advice changes
        // nothing that it holds.
        unsafe { libc::madvise(at, bytes, libc::MADV_POPULATE_WRITE) };
    }

    /// Which pages of the mapping are resident.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> Vec<bool> {
        let Mapping { start, bytes } = *self.mapping;
        let mut pages = vec![0_u8; bytes / PAGE_SIZE];
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is the mapping, which `self` keeps, and there is a byte for each page.
        let told = unsafe { libc::mincore(at, bytes, pages.as_mut_ptr()) };
        assert_eq!(told, 0);
        pages.into_iter().map(|page| page & 1 != 0).collect()
    }
}

#[derive(Debug)]
struct Mapping {
    start: usize,
    bytes: usize,
}

impl Mapping {
    fn hold(start: NonNull<u8>, bytes: usize) -> MappedMemory {
        MappedMemory {
            mapping: Arc::new(Mapping {
                start: start.as_ptr().expose_provenance(),
                bytes,
            }),
        }
    }
}

// SAFETY: the mapping's memory is this value's alone, and is reached only through `&self` (reads)
// and `&mut self`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Zeroed memory of `pages` pages.
    ///
    /// # Panics
    /// If the system refuses the mapping; [`AlignedBuf::try_new`] returns that as an error.
    pub fn new(pages: usize) -> AlignedBuf {
        match AlignedBuf::try_new(pages) {
            Ok(buf) => buf,
            Err(error) => panic!("cannot map {pages} pages of memory: {error}"),
        }
    }

    /// Zeroed memory of `pages` pages, or the system's error.
    pub fn try_new(pages: usize) -> io::Result<AlignedBuf> {
        AlignedBuf::map(pages, None)
    }

    /// Memory of `pages` pages: anonymous, or of a file that has as many.
    pub(crate) fn map(pages: usize, file: Option<File>) -> io::Result<AlignedBuf> {
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
            ),
        };
        AlignedBuf::map_from(pages, flags, fd, 0, file)
    }

    /// Memory of `pages` pages of a file from `page` on. The file must have these pages, with
    /// storage.
    pub(crate) fn map_part(file: &File, page: u64, pages: usize) -> io::Result<AlignedBuf> {
        let (fd, at) = (file.as_raw_fd(), page * PAGE_SIZE as u64);
        let mut part = AlignedBuf::map_from(pages, libc::MAP_SHARED, fd, at as i64, None)?;
        // A child would share the file's lock as long as it has the mapping.
        part.advise(0, pages * PAGE_SIZE, libc::MADV_DONTFORK);
        Ok(part)
    }

    fn map_from(
        pages: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        at: i64,
        file: Option<File>,
    ) -> io::Result<AlignedBuf> {
        let bytes = pages
            .checked_mul(PAGE_SIZE)
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        if bytes == 0 {
            return Ok(AlignedBuf {
                start: NonNull::dangling(),
                bytes,
                file,
                mapping: Mapping::hold(NonNull::dangling(), 0),
            });
        }
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that
        // exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                at,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Clients' data stays out of core dumps. A kernel that doesn't know the advice leaves it
        // in. SAFETY: the range is the new mapping, and the advice doesn't change what it holds.
        unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) };
        let start = NonNull::new(start.cast()).expect("a mapping never starts at address 0");
        Ok(AlignedBuf {
            start,
            bytes,
            file,
            mapping: Mapping::hold(start, bytes),
        })
    }

    /// Keeps the mapping in place.
    pub fn mapping(&self) -> MappedMemory {
        self.mapping.clone()
    }

    /// Size in pages.
    pub fn pages(&self) -> usize {
        self.bytes / PAGE_SIZE
    }

    /// Gives the memory of pages `first..first + count` back to the system; they read as zeros from
    /// now on, and become resident again when they are touched.
    ///
    /// # Panics
    /// If the buffer has no such pages.
    pub fn release(&mut self, first: usize, count: usize) {
        assert!(
            first + count <= self.pages(),
            "the pages are the buffer's own"
        );
        if count == 0 {
            return;
        }
        // For a file, only a hole gives memory back.
        let advice = match self.file {
            Some(_) => libc::MADV_REMOVE,
            None => libc::MADV_DONTNEED,
        };
        // SAFETY: the range lies within this mapping; `&mut self` says that nothing borrows from
        // it, and zeroes are valid bytes.
        unsafe {
            libc::madvise(
                self.start.as_ptr().add(first * PAGE_SIZE).cast(),
                count * PAGE_SIZE,
                advice,
            );
        }
    }

    /// Makes sure that pages `first..first + count` can be written; false if the file system of the
    /// memory is full. (Writing to a hole that can't be filled would kill the process.) Always true
    /// for anonymous memory.
    ///
    /// # Panics
    /// If the buffer has no such pages.
    pub fn commit(&mut self, first: usize, count: usize) -> bool {
        assert!(
            first + count <= self.pages(),
            "the pages are the buffer's own"
        );
        let Some(file) = &self.file else { return true };
        let (from, len) = (first * PAGE_SIZE, count * PAGE_SIZE);
        loop {
            // SAFETY: the call only allocates blocks of a file that is open.
            let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, from as i64, len as i64) };
            if done == 0 {
                return true;
            }
            if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return false;
            }
        }
    }

    /// Stores 8 bytes at an offset that is a multiple of 8, in one piece, and after everything
    /// stored before. A process that maps the same file after this one was killed finds either the
    /// old or the new word. It never finds a later word without this one.
    ///
    /// # Panics
    /// If the offset is not within the buffer, or not a multiple of 8.
    #[inline]
    pub fn set_word(&mut self, at: usize, word: u64) {
        assert!(
            at.is_multiple_of(8) && at + 8 <= self.bytes,
            "a word of the buffer"
        );
        if self.file.is_some() {
            crate::observe::observed();
        }
        // SAFETY: the word lies within the mapping, is aligned, and `&mut self` makes the access
        // unique.
        let place = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) };
        place.store(word.to_le(), Ordering::Release);
    }

    /// Asks the system to back this memory with large pages, so that scattered reads need fewer
    /// address look-ups. It is a hint, for memory that will be used completely.
    pub fn prefer_large(&mut self) {
        self.advise(0, self.bytes, libc::MADV_HUGEPAGE);
    }

    /// Undoes [`AlignedBuf::prefer_large`] for pages `first..first + count` and for everything that
    /// shares a large page with them. So the system makes no large page again from partly
    /// [released](AlignedBuf::release) memory.
    pub fn prefer_small(&mut self, first: usize, count: usize) {
        let start = self.start.as_ptr() as usize;
        let from = (start + first * PAGE_SIZE) & !(LARGE_PAGE - 1);
        let to = (start + (first + count) * PAGE_SIZE).next_multiple_of(LARGE_PAGE);
        let from = from.max(start) - start;
        let to = to.min(start + self.bytes) - start;
        self.advise(from, to - from, libc::MADV_NOHUGEPAGE);
    }

    fn advise(&mut self, from: usize, bytes: usize, advice: libc::c_int) {
        assert!(from + bytes <= self.bytes, "the range is the buffer's own");
        // SAFETY: the range lies within this mapping, and neither piece of advice changes what it
        // holds.
        unsafe { libc::madvise(self.start.as_ptr().add(from).cast(), bytes, advice) };
    }

    /// Where the memory starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes != 0 {
            let start = std::ptr::with_exposed_provenance_mut(self.start);
            // SAFETY: these are what `mmap` gave; the buffer, from which others borrow, is gone,
            // and so is everybody who held the mapping.
            unsafe { libc::munmap(start, self.bytes) };
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `bytes` readable, initialised (zero) bytes for as long as `self`
        // lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} pages)", self.pages())
    }
}

/// Prefetches memory that will be read soon. It is a hint, without effect if the processor has no
/// such instruction.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees and never faults; SSE is part of
        // x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// As [`prefetch`], for the cache line at any address, even an unmapped one.
///
/// ```
/// senko_io::prefetch_address(0);
/// ```
#[inline]
pub fn prefetch_address(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::without_provenance::<i8>(address);
        // SAFETY: as above; a prefetch of an address where nothing is does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

struct Pool {
    memory: AlignedBuf,
    /// Pages of the frames of each class.
    classes: Box<[usize]>,
    /// Byte offset of each frame.
    offsets: Box<[usize]>,
    frame_bytes: usize,
    free: Mutex<Free>,
}

/// The list of free frames, stored outside the frames. So the memory of an unused frame is never
/// touched.
struct Free {
    /// The first free frame of each class.
    heads: Box<[u32]>,
    /// The next frame after each.
    next: Box<[u32]>,
    taken_bytes: usize,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fixed set of page frames in a few size classes, all in one mapping (which the io_uring backend
/// registers). It is cheap to clone (an `Arc`) and meant for one thread. Taking and returning a
/// frame are O(1), under an uncontended lock.
#[derive(Clone)]
pub struct FramePool {
    pool: Arc<Pool>,
}

impl FramePool {
    /// A pool with `count` frames of `pages` pages for each `(pages, count)`, in ascending order of
    /// `pages`.
    ///
    /// # Panics
    /// If the classes do not ascend, a frame is larger than 1 GiB, or memory is refused.
    pub fn new(classes: &[(usize, usize)]) -> FramePool {
        match FramePool::try_new(classes) {
            Ok(pool) => pool,
            Err(error) => panic!("cannot map the read frames: {error}"),
        }
    }

    /// As [`FramePool::new`], but a refusal of memory is an error.
    pub fn try_new(classes: &[(usize, usize)]) -> io::Result<FramePool> {
        assert!(
            classes.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "frame classes ascend in pages"
        );
        let mut offsets = Vec::new();
        let mut next = Vec::new();
        let mut made = Vec::new();
        let mut heads = Vec::new();
        let mut end = 0;
        let mut frame_bytes = 0;
        for &(pages, count) in classes {
            let bytes = pages * PAGE_SIZE;
            assert!(
                bytes > 0 && bytes <= REGISTER_SPAN,
                "a frame has 1 page to 1 GiB"
            );
            let first = offsets.len() as u32;
            for nth in 0..count {
                if end / REGISTER_SPAN != (end + bytes - 1) / REGISTER_SPAN {
                    end = end.next_multiple_of(REGISTER_SPAN);
                }
                offsets.push(end);
                next.push(if nth + 1 == count {
                    NONE
                } else {
                    first + nth as u32 + 1
                });
                end += bytes;
                frame_bytes += bytes;
            }
            heads.push(if count == 0 { NONE } else { first });
            made.push(pages);
        }
        assert!(
            offsets.len() < NONE as usize,
            "frame numbers fit in 32 bits"
        );
        let pool = Pool {
            memory: AlignedBuf::try_new(end / PAGE_SIZE)?,
            classes: made.into(),
            offsets: offsets.into(),
            frame_bytes,
            free: Mutex::new(Free {
                heads: heads.into(),
                next: next.into(),
                taken_bytes: 0,
            }),
        };
        Ok(FramePool {
            pool: Arc::new(pool),
        })
    }

    /// A frame of at least `pages` pages, from the smallest class that has that size *and* a free
    /// frame.
    pub fn take(&self, pages: usize) -> Option<PageBuf> {
        let pool = &self.pool;
        let mut free = pool.free();
        for (number, &class_pages) in pool.classes.iter().enumerate() {
            let frame = free.heads[number];
            if class_pages < pages || frame == NONE {
                continue;
            }
            free.heads[number] = free.next[frame as usize];
            let bytes = class_pages * PAGE_SIZE;
            free.taken_bytes += bytes;
            // SAFETY: every offset of a frame lies inside the mapping.
            let start = unsafe { pool.memory.start.add(pool.offsets[frame as usize]) };
            return Some(PageBuf {
                pool: Arc::clone(pool),
                start,
                bytes,
                frame,
                class: number as u32,
            });
        }
        None
    }

    /// Pages of the largest class.
    pub fn largest(&self) -> usize {
        self.pool.classes.last().copied().unwrap_or(0)
    }

    /// Bytes of the whole pool, and bytes in use.
    pub fn usage(&self) -> (usize, usize) {
        (self.pool.frame_bytes, self.pool.free().taken_bytes)
    }

    /// The mapping, for registration: start and bytes.
    pub(crate) fn region(&self) -> (*mut u8, usize) {
        (self.pool.memory.start(), self.pool.memory.bytes)
    }

    /// Where `frame` ends in the mapping, if it belongs to this pool.
    pub(crate) fn end_of(&self, frame: &PageBuf) -> Option<usize> {
        Arc::ptr_eq(&self.pool, &frame.pool)
            .then(|| self.pool.offsets[frame.frame as usize] + frame.len())
    }

    /// Leaks the mapping, for a loop that gave up waiting for the kernel.
    pub(crate) fn leak(&self) {
        std::mem::forget(self.clone());
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, taken) = self.usage();
        write!(f, "FramePool({taken} of {all} bytes taken)")
    }
}

/// One frame of a [`FramePool`]. `Deref<[u8]>`/`DerefMut` give all of its bytes. Dropping it
/// returns it to its pool. A new frame holds the data of its last user.
pub struct PageBuf {
    pool: Arc<Pool>,
    start: NonNull<u8>,
    bytes: usize,
    frame: u32,
    class: u32,
}

// SAFETY: the frame's bytes are this value's alone, and lie in a mapping that `pool`, which threads
// may share, keeps.
unsafe impl Send for PageBuf {}

impl PageBuf {
    /// Size in pages.
    pub fn pages(&self) -> usize {
        self.bytes / PAGE_SIZE
    }

    /// Where the frame starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        let mut free = self.pool.free();
        let (frame, class) = (self.frame as usize, self.class as usize);
        free.next[frame] = free.heads[class];
        free.heads[class] = self.frame;
        free.taken_bytes -= self.bytes;
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame lies inside the pool's mapping, which `self.pool` keeps, and is this
        // value's alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBuf({} pages)", self.pages())
    }
}
