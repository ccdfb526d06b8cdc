// SPDX-License-Identifier: Apache-2.0
//! Lines on stderr that never stop the work: logs, warnings and progress lines.
//!
//! The standard library's `eprintln!` panics if stderr is full or closed, and waits if stderr is a
//! pipe that nobody reads. Here a line that cannot be written is dropped and counted ([`dropped`]).
//! Every crate writes its lines with these three macros:
//!
//! - [`note!`](crate::note): a line of a service's log. It never waits.
//! - [`tell!`](crate::tell): a line that the user of a command should read. It waits for a slow
//!   reader, but not in a service ([`as_service`]).
//! - [`bar!`](crate::bar): progress on a terminal, without an end of line. It never waits, and is
//!   not counted.
//!
//! A line is one `write` of at most [`PART`] bytes. A pipe takes such a write whole or not at all,
//! so lines of several threads do not mix.

#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that a pipe takes whole (`PIPE_BUF`). It is writable if this many fit.
const PART: usize = 4096;

/// Lines that could not be written since the process started.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Whether this process is a service, which never waits for the reader of its log.
static SERVICE: AtomicBool = AtomicBool::new(false);

/// Where lines go: stderr, or this process's own open file of the same pipe or terminal.
static STDERR: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Whether the last line was cut in its middle.
static CUT: AtomicBool = AtomicBool::new(false);

/// Writes a line of a service's log to stderr; never waits. Lines that cannot be written are
/// dropped and counted.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::say::note(::std::format_args!($($text)*)) };
}

/// Writes a line for the user of a command to stderr. Lines that cannot be written are dropped and
/// counted.
#[macro_export]
macro_rules! tell {
    ($($text:tt)*) => { $crate::say::tell(::std::format_args!($($text)*)) };
}

/// Writes text without an end of line to stderr, for progress on a terminal; never waits.
#[macro_export]
macro_rules! bar {
    ($($text:tt)*) => { $crate::say::bar(::std::format_args!($($text)*)) };
}

/// Lines that could not be written since the process started, including those of `tracing`.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Whether stderr is a terminal.
pub fn terminal() -> bool {
    io::stderr().is_terminal()
}

/// From now on no line waits, and panic messages are written in the same way. If stderr is a pipe
/// or a terminal, this process opens it once more for itself. So other processes that share stderr
/// can still wait for it. Call this before dropping root privileges: the pipe may belong to root.
pub fn as_service() {
    if SERVICE.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(own) = open_again(libc::STDERR_FILENO) {
        STDERR.store(own, Ordering::Relaxed);
    }
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name").to_owned();
        let trace = match std::env::var_os("RUST_BACKTRACE") {
            Some(on) if on != "0" => format!("\n{}", std::backtrace::Backtrace::capture()),
            _ => String::new(),
        };
        note(format_args!("the thread {name} {panic}{trace}"));
    }));
}

/// Implements [`note!`](crate::note).
pub fn note(text: fmt::Arguments<'_>) {
    line(format!("{text}\n"), false);
}

/// Implements [`tell!`](crate::tell).
pub fn tell(text: fmt::Arguments<'_>) {
    line(format!("{text}\n"), !SERVICE.load(Ordering::Relaxed));
}

/// Implements [`bar!`](crate::bar).
pub fn bar(text: fmt::Arguments<'_>) {
    put(
        STDERR.load(Ordering::Relaxed),
        text.to_string().as_bytes(),
        false,
    );
}

/// Writes a line of a service to stdout, such as those of `--json`. It follows the rules of
/// [`note!`](crate::note).
pub fn result(text: fmt::Arguments<'_>) {
    let text = format!("{text}\n");
    if put(libc::STDOUT_FILENO, text.as_bytes(), false) < text.len() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A writer for `tracing`: each write is one line of a log, and always succeeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        line(String::from_utf8_lossy(text).into_owned(), false);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The remaining time when `share` of the work, 0 to 1, took `past`: `40 s left`, `3 min left`.
/// Empty while nothing is known.
pub fn time_left(past: Duration, share: f64) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let seconds = past.as_secs_f64() * (1.0 - share.min(1.0)) / share;
    match seconds.round() as u64 {
        s @ 0..120 => format!("{s} s left"),
        s @ 120..7200 => format!("{} min left", s / 60),
        s @ 7200..172_800 => format!("{} h left", s / 3600),
        s => format!("{} days left", s / 86_400),
    }
}

fn line(mut text: String, wait: bool) {
    if CUT.swap(false, Ordering::Relaxed) {
        text.insert(0, '\n');
    }
    let done = put(STDERR.load(Ordering::Relaxed), text.as_bytes(), wait);
    if done < text.len() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        // A line that was cut in its middle is ended before the next line.
        CUT.store(done > 0 || text.starts_with('\n'), Ordering::Relaxed);
    }
}

/// Writes, and returns how many bytes were written: all of them, or fewer if the descriptor is
/// dead, or is full and `wait` is not set.
fn put(descriptor: RawFd, bytes: &[u8], wait: bool) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        if !wait && !ready(descriptor, 0) {
            break;
        }
        let part = &bytes[done..bytes.len().min(done + PART)];
        // SAFETY: the bytes are alive through the call, which only reads them.
        let wrote = unsafe { libc::write(descriptor, part.as_ptr().cast(), part.len()) };
        if wrote > 0 {
            done += wrote as usize;
            continue;
        }
        match io::Error::last_os_error().kind() {
            _ if wrote == 0 => break,
            io::ErrorKind::Interrupted => {}
            // Another process has made the terminal or pipe non-blocking.
            io::ErrorKind::WouldBlock if wait && ready(descriptor, -1) => {}
            _ => break,
        }
    }
    done
}

/// Whether a write of [`PART`] bytes would not block, because there is room or because it fails at
/// once. It waits up to this many milliseconds.
fn ready(descriptor: RawFd, milliseconds: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the one entry is writable and outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, milliseconds) == 1 }
}

/// Opens the pipe or terminal of a descriptor once more, so that writes to it never wait. The new
/// descriptor lives as long as the process. `None` for other kinds of files, whose writes do not
/// wait for a reader, and if it is not allowed. Then each write first checks for room.
fn open_again(descriptor: RawFd) -> Option<RawFd> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the answer is writable memory of the right type.
    if unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled the struct (which was zeroed before).
    let kind = unsafe { found.assume_init() }.st_mode & libc::S_IFMT;
    // SAFETY: only asks what the descriptor is.
    let waits = kind == libc::S_IFIFO || unsafe { libc::isatty(descriptor) } == 1;
    let path = std::ffi::CString::new(format!("/proc/self/fd/{descriptor}")).ok()?;
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    if !waits {
        return None;
    }
    // SAFETY: the path is NUL-terminated and outlives the call.
    let own = unsafe { libc::open(path.as_ptr(), flags) };
    (own >= 0).then_some(own)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// With SIGHUP or `-v` and a pipe that nobody read, the thread that handles signals once waited
    /// for the reader of its log.
    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for() {
        let (mut read, write) = io::pipe().unwrap();
        let line = [b'x'; 1000];
        let mut whole = 0;
        while put(write.as_raw_fd(), &line, false) == line.len() {
            whole += 1;
        }
        assert!(whole > 1);
        // A line longer than a pipe takes at once is cut, and does not wait either.
        let mut some = [0; 8192];
        read.read_exact(&mut some).unwrap();
        let long = [b'y'; 1 << 20];
        let took = put(write.as_raw_fd(), &long, false);
        assert!(took < long.len(), "{took}");
        // A command waits for its reader.
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            read.read_to_end(&mut all).unwrap();
            all.iter().filter(|byte| **byte == b'y').count()
        });
        assert_eq!(put(write.as_raw_fd(), &long, true), long.len());
        drop(write);
        assert_eq!(reader.join().unwrap(), long.len() + took);
    }

    #[test]
    fn nobody_else_s_descriptor_is_changed() {
        let (read, write) = io::pipe().unwrap();
        let own = open_again(write.as_raw_fd()).unwrap();
        // SAFETY: only asks for flags.
        let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFL) };
        assert_eq!(flags(write.as_raw_fd()) & libc::O_NONBLOCK, 0);
        assert_ne!(flags(own) & libc::O_NONBLOCK, 0);
        drop(read);
        assert_eq!(put(own, b"gone\n", false), 0);
        // SAFETY: it was opened above, and nobody else has it.
        drop(unsafe { OwnedFd::from_raw_fd(own) });
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(open_again(file.as_raw_fd()), None);
    }

    #[test]
    fn the_time_left_has_a_unit_that_fits() {
        let left = |seconds, share| time_left(Duration::from_secs(seconds), share);
        assert_eq!(left(10, 0.25), "30 s left");
        assert_eq!(left(10, 1.0), "0 s left");
        assert_eq!(left(10, 1.1), "0 s left");
        assert_eq!(left(10, 0.0), "");
        assert_eq!(left(60, 0.1), "9 min left");
        assert_eq!(left(3600, 0.1), "9 h left");
        assert_eq!(left(86_400, 0.01), "99 days left");
    }

    /// `senko serve 2>/dev/full` once ended with a panic at the first warning.
    #[test]
    fn dead_descriptors_take_nothing() {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let (read, write) = io::pipe().unwrap();
        drop(read);
        for wait in [false, true] {
            assert_eq!(put(full.as_raw_fd(), b"line\n", wait), 0);
            assert_eq!(put(write.as_raw_fd(), b"line\n", wait), 0);
            assert_eq!(put(-1, b"line\n", wait), 0);
        }
    }
}
