// SPDX-License-Identifier: Apache-2.0
//! Results on stdout. A reader such as `head` may stop before they end. That ends the command
//! quietly, with the exit code of a process killed by SIGPIPE.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// 128 and the number of SIGPIPE: what a shell reports for `yes` in `yes | head`.
const PIPE_CLOSED: u8 = 141;

/// Whether a write met a closed pipe.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Whether a write met another error.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether stdout was closed before the process began.
static ABSENT: AtomicBool = AtomicBool::new(false);

/// Notes that stdout was closed before the process began. The standard library then has /dev/null
/// in its place, which takes everything.
pub fn set_absent() {
    ABSENT.store(true, Ordering::Relaxed);
}

/// # Errors
/// Stdout was closed before the process began.
pub fn present() -> io::Result<()> {
    match ABSENT.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it is closed")),
        false => Ok(()),
    }
}

/// Stdout, as commands write to it.
#[derive(Debug)]
pub struct Out(io::Stdout);

/// Stdout. A write to a closed pipe is an error that need not be reported: [`closed`] knows about
/// it.
pub fn stdout() -> Out {
    Out(io::stdout())
}

/// Whether the reader of stdout has gone.
pub fn closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Whether a write met another error than a closed pipe.
pub fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// The exit code of a command: `code`, unless the reader of stdout left before the end.
pub fn end(code: ExitCode) -> ExitCode {
    if closed() {
        ExitCode::from(PIPE_CLOSED)
    } else {
        code
    }
}

/// Ends the process if the reader of stdout has gone. It is for a command that writes a line now
/// and then, would run for long, and has nothing to clean up.
pub fn end_if_closed() {
    if closed() {
        std::process::exit(PIPE_CLOSED.into());
    }
}

impl Out {
    /// Whether stdout is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

/// Notes whether a write failed because the reader of stdout has gone.
///
/// # Errors
/// The write's.
pub fn seen<T>(done: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &done {
        let met = match error.kind() {
            io::ErrorKind::BrokenPipe => &CLOSED,
            _ => &FAILED,
        };
        met.store(true, Ordering::Relaxed);
    }
    done
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        seen(present().and_then(|()| self.0.write(bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        seen(self.0.flush())
    }
}
