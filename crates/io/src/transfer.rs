// SPDX-License-Identifier: Apache-2.0
//! Paper B's transfer: from a file through the page cache to a socket, by the kernel's sendfile, in
//! threads because it blocks.
//!
//! ```text
//! event loop --Job--> thread: drop cached pages, read, Answer::find, sendfile --Transferred, waker--> event loop
//! ```
//!
//! The thread reads the pages itself before it sends from them, because nothing may leave that was
//! not checked; the read leaves them in the page cache, which sendfile then sends from. It never
//! waits for the socket: what its buffer does not take comes back as bytes, and goes out as any
//! other answer to a slow reader does.
//!
//! Always holds:
//! - T1: what sendfile sends is what was checked. The submitter keeps the pages from being written
//!   until the job has come back. Pages that a socket still refers to after that are safe too: a
//!   write that bypasses the page cache takes them out of it and leaves their content alone. Hence
//!   [`CachedFile::open`] refuses file systems where O_DIRECT is not known to bypass it.
//! - T2: every job comes back once, unless the pool is dropped.
//! - T3: the socket stays open until its job is over: a job owns a descriptor of its own.
//!
//! The page cache is no second cache here: what it has of a range is dropped before the range is
//! read, so that each read reaches the device, as with O_DIRECT. (Dropping after the send would
//! mostly fail, because the socket still refers to the pages.)

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::{FlashFile, Op, PAGE_SIZE, Tag, Waker};

/// A flash file as it is read through the page cache: a second descriptor of the same file.
#[derive(Debug)]
pub struct CachedFile {
    file: File,
    flash: Arc<FlashFile>,
}

impl CachedFile {
    /// Opens the file a second time, without O_DIRECT.
    ///
    /// # Errors
    /// One sentence, where the file's own writes do not bypass the page cache (T1), or when it
    /// can't be opened.
    pub fn open(flash: Arc<FlashFile>) -> io::Result<CachedFile> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            io::Error::other(format!("{what} {}: {error}", flash.path().display()))
        };
        // By descriptor: the path may name another file by now.
        let file = File::open(format!("/proc/self/fd/{}", flash.raw_fd()))
            .map_err(|error| failed("cannot open a second time", &error))?;
        if !flash.direct() || !(flash.block_device() || bypasses_cache(&file)?) {
            let why = "sendfile needs a block device, or a file on ext4 or xfs that takes O_DIRECT";
            return Err(failed("cannot send from", &why));
        }
        // Reading ahead would bring in pages that may be written at that moment.
        // SAFETY: takes no memory; the descriptor is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        Ok(CachedFile { file, flash })
    }

    /// Reads pages into `buf`, from the device.
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> io::Result<()> {
        let pages = (buf.len() / PAGE_SIZE) as u64;
        if page
            .checked_add(pages)
            .is_none_or(|end| end > self.flash.pages())
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.flash.record(tag, Op::Read, page, pages);
        loop {
            match self.flash.fault(Op::Read, page, pages) {
                None => break,
                Some(Fault::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Some(Fault::Stall) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let offset = page * PAGE_SIZE as u64;
        // SAFETY: takes no memory; the descriptor is open.
        unsafe {
            libc::posix_fadvise(
                self.file.as_raw_fd(),
                offset as libc::off_t,
                buf.len() as libc::off_t,
                libc::POSIX_FADV_DONTNEED,
            )
        };
        self.file.read_exact_at(buf, offset)
    }

    /// Sends bytes of the file until all went or the socket takes no more; the bytes that went.
    fn send(&self, socket: &OwnedFd, mut at: u64, len: usize) -> usize {
        let mut sent = 0;
        while sent < len {
            let mut offset = at as libc::off_t;
            // SAFETY: the kernel reads and writes only `offset`, on this stack; both descriptors
            // are open.
            let done = unsafe {
                libc::sendfile(
                    socket.as_raw_fd(),
                    self.file.as_raw_fd(),
                    &raw mut offset,
                    len - sent,
                )
            };
            if done > 0 {
                sent += done as usize;
                at += done as u64;
            } else if done == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // The socket is full, or broken: the loop's own send of the rest finds out which.
                break;
            }
        }
        sent
    }
}

/// Kinds of file systems.
pub(crate) const EXT4: i64 = 0xef53;
pub(crate) const XFS: i64 = 0x5846_5342;
pub(crate) const TMPFS: i64 = 0x0102_1994;

/// Whether this is a file system whose O_DIRECT writes are known to leave cached pages' content
/// alone.
fn bypasses_cache(file: &File) -> io::Result<bool> {
    Ok([EXT4, XFS].contains(&file_system(file)?))
}

/// The kind of the file system that a file lies on.
pub(crate) fn file_system(file: &File) -> io::Result<i64> {
    // SAFETY: zeros are a valid value of this structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes only this structure; the descriptor is open.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } < 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast)] // its type differs between platforms
    let kind = found.f_type as i64;
    Ok(kind)
}

/// How long a pool waits for its last jobs.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// What a job is for: it finds the bytes to send, and comes back to who asked.
pub trait Answer: Send + 'static {
    /// The range of the pages to send, if they hold what was wanted. Runs on a thread of the pool.
    fn find(&mut self, pages: &[u8]) -> Option<Range<usize>>;
}

/// One transfer.
#[derive(Debug)]
pub struct Job<A> {
    /// From where.
    pub file: Arc<CachedFile>,
    /// First page.
    pub page: u64,
    /// Pages; at most as many as the pool was made for.
    pub pages: usize,
    /// Why, for the trace.
    pub tag: Tag,
    /// To where: a descriptor of the job's own ([`crate::EventLoop::duplicate`]), non-blocking.
    pub socket: OwnedFd,
    /// What to send.
    pub answer: A,
}

/// How a job ended.
#[derive(Debug)]
pub enum Moved {
    /// The pages could not be read; nothing was sent.
    Unread(io::Error),
    /// [`Answer::find`] found nothing; nothing was sent.
    Nothing,
    /// So many bytes of the answer were sent; `rest` (mostly empty) has those that the socket did
    /// not take.
    Sent {
        /// Bytes sent.
        bytes: usize,
        /// The bytes that come after them.
        rest: Vec<u8>,
    },
}

/// A job that ended.
#[derive(Debug)]
pub struct Transferred<A> {
    /// What it was for.
    pub answer: A,
    /// How it ended.
    pub moved: Moved,
}

struct Queue<A> {
    jobs: VecDeque<Job<A>>,
    stop: bool,
}

struct Shared<A> {
    queue: Mutex<Queue<A>>,
    more: Condvar,
    done: Mutex<Vec<Transferred<A>>>,
    bell: Waker,
    most_pages: usize,
}

/// The threads. Jobs are bounded by the submitter: one a connection.
pub struct Transfers<A> {
    shared: Arc<Shared<A>>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A: Answer> Transfers<A> {
    /// `threads` threads, each with memory for `most_pages` pages; `bell` is rung when jobs have
    /// ended.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub fn new(threads: usize, most_pages: usize, bell: Waker) -> io::Result<Transfers<A>> {
        let mut pool = Transfers {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue {
                    jobs: VecDeque::new(),
                    stop: false,
                }),
                more: Condvar::new(),
                done: Mutex::new(Vec::new()),
                bell,
                most_pages,
            }),
            threads: Vec::with_capacity(threads),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("sendfile-{number}"))
                .stack_size(128 << 10)
                .spawn(move || work(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Hands a job over. While it is under way nothing else may send on its socket.
    ///
    /// # Panics
    /// With more pages than the pool was made for.
    pub fn start(&self, job: Job<A>) {
        assert!(
            job.pages <= self.shared.most_pages,
            "a job fits the buffers"
        );
        lock(&self.shared.queue).jobs.push_back(job);
        self.shared.more.notify_one();
    }

    /// Appends the jobs that ended.
    pub fn take_done(&self, into: &mut Vec<Transferred<A>>) {
        into.append(&mut lock(&self.shared.done));
    }
}

impl<A> Drop for Transfers<A> {
    /// Waits for the jobs under way, but not for ever: a thread that a device keeps owns all that
    /// it works on, and ends after that. Jobs that were not begun are dropped.
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.stop = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(jobs);
        self.shared.more.notify_all();
        let until = Instant::now() + LAST_WAIT;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing in hand any more.
            let _ = thread.join();
        }
    }
}

impl<A> std::fmt::Debug for Transfers<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transfers({} threads)", self.threads.len())
    }
}

fn work<A: Answer>(shared: &Shared<A>) {
    block_sigpipe();
    let mut buf = vec![0; shared.most_pages * PAGE_SIZE];
    loop {
        let mut queue = lock(&shared.queue);
        let job = loop {
            if queue.stop {
                return;
            }
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            queue = shared
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        let transferred = carry(job, &mut buf);
        lock(&shared.done).push(transferred);
        shared.bell.wake();
    }
}

/// Carries a job out.
fn carry<A: Answer>(job: Job<A>, buf: &mut [u8]) -> Transferred<A> {
    let Job {
        file,
        page,
        pages,
        tag,
        socket,
        mut answer,
    } = job;
    let buf = &mut buf[..pages * PAGE_SIZE];
    let moved = match file.read(page, buf, tag) {
        Err(error) => Moved::Unread(error),
        Ok(()) => match answer.find(buf) {
            None => Moved::Nothing,
            Some(range) => {
                let at = page * PAGE_SIZE as u64 + range.start as u64;
                let bytes = file.send(&socket, at, range.len());
                let rest = buf[range.start + bytes..range.end].to_vec();
                Moved::Sent { bytes, rest }
            }
        },
    };
    Transferred { answer, moved }
}

/// Unlike `send`, sendfile can't be told not to raise the signal where the peer is gone.
fn block_sigpipe() {
    // SAFETY: zeros are storage for a signal set, which is then initialised and only read; only
    // this thread's mask changes.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
