// SPDX-License-Identifier: Apache-2.0
//! Shared code of the tests.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use senko_io::{Backend, BackendChoice, Event, EventLoop, Listener, LoopConfig};

/// A seed that differs from run to run, or that of `SENKO_TEST_SEED`; printed, so that a failure
/// can be repeated.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("SENKO_TEST_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64,
    };
    println!("{test}: SENKO_TEST_SEED={seed}");
    seed
}

pub fn config(backend: Backend) -> LoopConfig {
    LoopConfig {
        backend: match backend {
            Backend::Uring => BackendChoice::Uring,
            Backend::Posix => BackendChoice::Posix,
        },
        recv_buffers: 64,
        recv_buffer_bytes: 16 << 10,
        frames: vec![(1, 64), (4, 16), (32, 8)],
        disk_threads: 4,
        max_connections: 4096,
    }
}

/// Runs a test on each backend. If the system refuses io_uring, it is left out with a message.
pub fn on_both(test: impl Fn(Backend)) {
    test(Backend::Posix);
    if uring_works() {
        test(Backend::Uring);
    }
}

pub fn uring_works() -> bool {
    match try_event_loop(&config(Backend::Uring)) {
        Ok(_) => true,
        Err(error) => {
            println!("skipped on io_uring: {error}");
            false
        }
    }
}

pub fn event_loop(config: &LoopConfig) -> EventLoop {
    try_event_loop(config).unwrap()
}

/// A loop. All tests of a user share the memory that may be locked, so it may have to wait until
/// others give theirs back.
fn try_event_loop(config: &LoopConfig) -> io::Result<EventLoop> {
    let started = Instant::now();
    loop {
        match EventLoop::new(config) {
            Err(error)
                if error.kind() == io::ErrorKind::OutOfMemory && started.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(50));
            }
            made => return made,
        }
    }
}

pub fn local() -> Listener {
    Listener::tcp("127.0.0.1:0".parse().unwrap(), 1024).unwrap()
}

pub fn address(listener: &Listener) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], listener.local_port().unwrap()))
}

/// How long a test waits for events that must come; far longer than a busy machine or a slow disk
/// takes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until `enough` is true of all events so far; a test that hangs fails in the end.
pub fn poll_until(
    events_loop: &mut EventLoop,
    mut enough: impl FnMut(&[Event]) -> bool,
) -> Vec<Event> {
    let mut events = Vec::new();
    let started = Instant::now();
    while !enough(&events) {
        assert!(
            started.elapsed() < PATIENCE,
            "nothing more comes after {events:?}"
        );
        events_loop
            .poll(Some(Duration::from_millis(200)), &mut events)
            .unwrap();
    }
    events
}

/// A temporary folder that is removed when it is dropped; on a real disk, since tmpfs differs in
/// what it refuses.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "senko-io-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number of this process's open sockets.
pub fn open_sockets() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
}

/// Runs one test of this binary in its own process, with `SENKO_TEST_CHILD` set to `what`.
pub fn child(test: &str, what: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        test,
        "--nocapture",
        "--include-ignored",
        "--test-threads=1",
    ]);
    command.env("SENKO_TEST_CHILD", what);
    command
}

pub fn child_task() -> Option<String> {
    std::env::var("SENKO_TEST_CHILD").ok()
}

/// A file system of 4 MiB in memory, unmounted at the end; `None`, with a message, without the
/// right to mount.
pub struct SmallFs<'f>(&'f Path);

impl SmallFs<'_> {
    pub fn new(folder: &Path) -> Option<SmallFs<'_>> {
        let small = mount(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], folder);
        if !small {
            println!("skipped: no right to mount a small file system");
        }
        small.then_some(SmallFs(folder))
    }

    /// Makes it read-only; false if that is impossible.
    pub fn read_only(&self) -> bool {
        mount(&["-o", "remount,ro"], self.0)
    }
}

impl Drop for SmallFs<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let status = std::process::Command::new("mount")
        .args(arguments)
        .arg(at)
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
