// SPDX-License-Identifier: Apache-2.0
//! A server's changes to its own process: limits, user, signals, the background, the pid file.
//!
//! All of it happens on the main thread before any other thread starts, except for the thread that
//! waits for signals. In the binary, only this module and `machine` make system calls directly.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::{Context, Result, bail};
use senko_io::counted;

/// Descriptors needed besides connections: listeners, rings, flash files, trace, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;

/// Raises the limit of open files for this many connections and threads.
pub fn raise_open_files(connections: usize, threads: usize) -> Result<()> {
    let need = connections as u64 + OTHER_DESCRIPTORS + 8 * threads as u64;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is writable and outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot read the limit of open files");
    }
    if limit.rlim_cur >= need {
        return Ok(());
    }
    let hard = limit.rlim_max;
    let wanted = libc::rlimit {
        rlim_cur: need,
        rlim_max: hard.max(need),
    };
    // SAFETY: the struct outlives the call, which only reads it.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } != 0 {
        bail!(too_few_files(connections as u64, need, hard));
    }
    Ok(())
}

fn too_few_files(connections: u64, need: u64, hard: u64) -> String {
    let fewer = match hard.saturating_sub(need - connections) {
        0 => String::new(),
        most => format!(", or ask for fewer connections (-c {most})"),
    };
    format!(
        "with {} the server needs {need} open files, and the hard limit is {hard}: raise it to \
         that (ulimit -Hn {need}){fewer}",
        counted(connections, "connection")
    )
}

/// Makes a write beyond `ulimit -f` fail with an error that can be reported, instead of ending the
/// process.
pub fn survive_long_files() {
    // SAFETY: ignoring a signal takes no memory of ours, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Lets core dumps be as large as the hard limit allows, or writes none. A dump has keys, values of
/// requests and answers, passwords and the keys of TLS. The kernel also lets no other process of
/// this user read the memory of one that leaves none.
///
/// Called again after a change of user, which forbids dumps.
pub fn set_core_dumps(wanted: bool) -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is writable and outlives both calls; the second only reads it. The last
    // call takes no memory.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0
            && {
                limit.rlim_cur = if wanted { limit.rlim_max } else { 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) == 0
            }
            && libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(wanted), 0, 0, 0) == 0
    };
    if !done {
        return Err(io::Error::last_os_error()).context("cannot set the limit of core dumps");
    }
    Ok(())
}

/// Locks all memory so that it is not swapped (`-k`).
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: changes how the kernel keeps this process's pages, not what they hold.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// mimalloc's `mi_option_purge_delay`, which its Rust crate does not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Keeps what the allocator takes near to what is in use. With huge pages each of its arenas and
/// threads rounds up to 2 MiB, which is a tenth of a small cap. It is built without asking for
/// them, since it would ask before this is called. Free pages go back to the system at once. By
/// default they stay for a second, and a burst of buffers of one size comes on top of those of
/// another.
pub fn keep_memory_tight() {
    // SAFETY: the first changes how the kernel backs this process's memory, not what it holds.
    // Where it is not known it does nothing. The second sets one number, before other threads run.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        libmimalloc_sys::mi_option_set(PURGE_DELAY, 0);
    }
}

/// The microseconds of the monotonic clock, which a service manager compares with its own.
pub fn monotonic_us() -> u128 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`, which lives on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u128 * 1_000_000 + now.tv_nsec as u128 / 1000
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    // SAFETY: both calls only read the process's credentials.
    unsafe { libc::getuid() == 0 || libc::geteuid() == 0 }
}

/// A user of the system.
#[derive(Clone, Debug)]
pub struct User {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl User {
    /// Looks a user up by name; `None` if there is no such user.
    pub fn find(name: &str) -> io::Result<Option<User>> {
        let name = CString::new(name)?;
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
        let mut text = vec![0_u8; 16 << 10];
        let mut found = std::ptr::null_mut();
        // SAFETY: every pointer is to memory of the right type and the length given, alive through
        // the call.
        let error = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                text.as_mut_ptr().cast(),
                text.len(),
                &raw mut found,
            )
        };
        if found.is_null() {
            return if error == 0 || error == libc::ENOENT {
                Ok(None)
            } else {
                Err(io::Error::from_raw_os_error(error))
            };
        }
        // SAFETY: the call said that it filled the entry.
        let entry = unsafe { entry.assume_init() };
        Ok(Some(User {
            name,
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        }))
    }

    pub fn name(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Drops root privileges for this user, permanently.
    pub fn become_it(&self) -> Result<()> {
        // SAFETY: the calls change credentials of the whole process, which has one thread yet.
        let done = unsafe {
            libc::initgroups(self.name.as_ptr(), self.gid) == 0
                && libc::setgid(self.gid) == 0
                && libc::setuid(self.uid) == 0
        };
        if !done {
            return Err(io::Error::last_os_error()).context(format!(
                "cannot run as the user {}",
                self.name.to_string_lossy()
            ));
        }
        Ok(())
    }
}

/// The signals that a server waits for, blocked for every thread.
pub struct Signals {
    set: libc::sigset_t,
}

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Finish the received requests, then end: the signal's name and number.
    Stop(&'static str, u8),
    /// Nothing for this server.
    Hangup,
}

impl Signals {
    /// Blocks these signals. Call it before any thread is started, since threads inherit the mask.
    pub fn block() -> Signals {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is writable memory of the right type; sigemptyset initialises it before
        // the others use it.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            set.assume_init()
        };
        Signals { set }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Signal {
        loop {
            let mut signal = 0;
            // SAFETY: the set was initialised by `block`, the number is writable; both outlive the
            // call.
            if unsafe { libc::sigwait(&raw const self.set, &raw mut signal) } != 0 {
                continue;
            }
            return match signal {
                libc::SIGTERM => Signal::Stop("SIGTERM", signal as u8),
                libc::SIGINT => Signal::Stop("SIGINT", signal as u8),
                libc::SIGUSR1 => Signal::Stop("SIGUSR1", signal as u8),
                _ => Signal::Hangup,
            };
        }
    }
}

/// Asks this process to stop, as a supervisor does.
pub fn ask_to_stop() {
    // SAFETY: takes no memory. The signal goes to this process, which waits for it.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

/// What the error of an interrupted command says.
const INTERRUPTED: &str = "interrupted; results that were printed are those up to then";

/// From now on SIGINT and SIGTERM end the process with a sentence on stderr, as they do by
/// themselves without one. For the time until [`stop_on_signals`], and for commands that do not
/// call it.
pub fn tell_of_signals() {
    extern "C" fn end(signal: libc::c_int) {
        // SAFETY: each text is valid for its length, and the calls are allowed in a handler. The
        // action was reset when the handler began, so the signal ends the process.
        unsafe {
            for text in ["senko: ", INTERRUPTED, "\n"] {
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            }
            libc::raise(signal);
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        catch(signal, end, libc::SA_RESETHAND | libc::SA_NODEFER);
    }
}

/// Calls `handler` at a signal, unless the signal is ignored (nohup). The handler may do only what
/// is allowed at any moment.
fn catch(signal: libc::c_int, handler: extern "C" fn(libc::c_int), flags: libc::c_int) {
    // SAFETY: the structs are initialised and outlive the calls, and so does the handler.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut before) == 0
            && before.sa_sigaction == libc::SIG_IGN
        {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Set by the first signal that asks a command to end.
static STOP: AtomicBool = AtomicBool::new(false);
/// That signal's number.
static STOPPED_BY: AtomicI32 = AtomicI32::new(0);

/// Lets a long command end by itself on SIGINT, SIGTERM and SIGHUP. The first signal sets the
/// returned flag, which the command checks several times a second. The second one ends the process
/// at once.
pub fn stop_on_signals() -> &'static AtomicBool {
    extern "C" fn note(signal: libc::c_int) {
        STOPPED_BY.store(signal, Ordering::Relaxed);
        STOP.store(true, Ordering::Release);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        catch(signal, note, libc::SA_RESETHAND | libc::SA_RESTART);
    }
    &STOP
}

/// The flag that [`stop_on_signals`] sets, before it does.
pub fn stop_flag() -> &'static AtomicBool {
    &STOP
}

/// The error of a command that a signal ended: its results up to then have been printed.
#[derive(Debug)]
pub struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// `Some` once [`stop_on_signals`] saw a signal.
    pub fn now() -> Option<Interrupted> {
        STOP.load(Ordering::Acquire).then(|| Interrupted {
            signal: STOPPED_BY.load(Ordering::Relaxed),
        })
    }

    /// A shell's report of a process that the signal ended: 130 for Ctrl-C.
    pub fn exit_code(&self) -> u8 {
        128 + self.signal as u8
    }
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(INTERRUPTED)
    }
}

impl std::error::Error for Interrupted {}

/// How a background process reports success to the process that started it.
#[derive(Debug)]
pub struct Background {
    pipe: OwnedFd,
}

impl Background {
    /// Leaves a child in its own session and returns in it. The caller's process waits until the
    /// child is [`Background::ready`], and ends with 0, or with 1 if the child ended first (after
    /// reporting the reason on stderr).
    pub fn enter() -> Result<Background> {
        let mut ends = [0; 2];
        // SAFETY: the array is writable and has the two elements that the call fills.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error()).context("cannot go to the background");
        }
        // SAFETY: both descriptors are new and owned by nobody else.
        let (read, write) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the process has one thread, so the child's copy of its memory is whole.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()).context("cannot go to the background"),
            0 => {
                drop(read);
                // SAFETY: only makes the child the leader of a session.
                unsafe { libc::setsid() };
                Ok(Background { pipe: write })
            }
            _ => {
                drop(write);
                let mut byte = [0];
                let ready = std::fs::File::from(read)
                    .read(&mut byte)
                    .is_ok_and(|n| n == 1);
                std::process::exit(if ready { 0 } else { 1 });
            }
        }
    }

    /// The server runs: releases the terminal, and the process that waits.
    pub fn ready(self) -> Result<()> {
        let null = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .context("cannot open /dev/null")?;
        for stream in 0..3 {
            // SAFETY: replaces a standard stream by /dev/null; nobody owns those descriptors in
            // Rust's sense.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
        std::fs::File::from(self.pipe)
            .write_all(&[1])
            .context("cannot tell that the server is ready")
    }
}

/// Writes a small file anew; an existing file is removed first. Otherwise root could overwrite the
/// target of a symbolic link that another user has put there.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::File::create_new(path)?;
    file.write_all(text.as_bytes())
}

/// A file that a server leaves for others, by its kind.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    /// The process's number.
    Pid,
    /// The ports, each in a line `TCP INET: 11211`.
    Ports,
}

impl Note {
    /// Whether a text is of this kind. An empty one is of both.
    fn is(self, text: &str) -> bool {
        let line = |line: &str| match self {
            Note::Pid => line.bytes().all(|byte| byte.is_ascii_digit()),
            Note::Ports => line.starts_with("TCP INET") || line.starts_with("UDP INET"),
        };
        text.trim().lines().all(line)
    }

    /// Writes the file under another name and renames it, so that a reader never sees half of it.
    /// It takes the place of a link or of an older one, but not of a device or of data. Returns
    /// what the file system says of it.
    pub fn write(self, path: &Path, draft: &str, text: &str) -> io::Result<std::fs::Metadata> {
        let mut name = path.as_os_str().to_owned();
        name.push(draft);
        let draft = Path::new(&name);
        self.check_replaced(path)?;
        self.check_replaced(draft)?;
        write_new(draft, text)?;
        let made = draft.symlink_metadata()?;
        let renamed = std::fs::rename(draft, path);
        renamed.inspect_err(|_| drop(std::fs::remove_file(draft)))?;
        Ok(made)
    }

    fn check_replaced(self, path: &Path) -> io::Result<()> {
        const MOST: u64 = 4096;
        let is_free = match path.symlink_metadata() {
            Err(_) => true,
            Ok(meta) if meta.is_file() && meta.len() < MOST => {
                std::fs::read_to_string(path).is_ok_and(|text| self.is(&text))
            }
            Ok(meta) => meta.is_symlink(),
        };
        let what = match self {
            Note::Pid => "no pid file",
            Note::Ports => "no list of ports",
        };
        match is_free {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "what lies there is {what}, and would be replaced: name another file"
            ))),
        }
    }
}

/// A file with the process's number, removed at the end.
///
/// The file may name another server that runs. Its file stays until this server's start is sure;
/// a start that fails leaves it. At the end, only a file that is still this process's is removed.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Device and inode of the file that was written; `None`: not yet.
    written: Option<(u64, u64)>,
}

impl PidFile {
    /// Writes the file, unless it names another server that runs. This is done before root's rights
    /// are dropped, since the folder may be root's. The path is made absolute, so that the file's
    /// removal does not depend on the working directory.
    pub fn begin(path: &Path) -> Result<PidFile> {
        let path = std::path::absolute(path)
            .with_context(|| format!("cannot write the pid file {}", path.display()))?;
        let mut file = PidFile {
            path,
            written: None,
        };
        if running_server(&file.path).is_none() {
            file.write()?;
        }
        Ok(file)
    }

    /// The start is sure: now it names this process.
    pub fn settle(&mut self) -> Result<()> {
        match self.written {
            Some(_) => Ok(()),
            None => self.write(),
        }
    }

    fn write(&mut self) -> Result<()> {
        let made = Note::Pid
            .write(&self.path, ".tmp", &own_number())
            .with_context(|| format!("cannot write the pid file {}", self.path.display()))?;
        self.written = Some((made.dev(), made.ino()));
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_file = |meta: std::fs::Metadata| Some((meta.dev(), meta.ino())) == self.written;
        let ours = self.path.symlink_metadata().is_ok_and(is_file)
            && std::fs::read_to_string(&self.path).is_ok_and(|text| text == own_number());
        if ours {
            // After root was dropped, the process may not be allowed to remove it. Its number is
            // then stale, as after a kill.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn own_number() -> String {
    format!("{}\n", std::process::id())
}

/// The process that a pid file names, if it is another one, runs, and has a server's name. After a
/// kill, some other program may have the number.
fn running_server(path: &Path) -> Option<u32> {
    let names = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() < 32);
    let text = names
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()?;
    let number: u32 = text.trim().parse().ok()?;
    let name = |of: &str| std::fs::read_to_string(format!("/proc/{of}/comm")).ok();
    let other = name(&number.to_string())?;
    let like = [name("self")?.as_str(), "senko\n", "memcached\n"].contains(&other.as_str());
    (like && number != std::process::id()).then_some(number)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// The number of the option would be another's if the library numbered them anew.
    #[test]
    fn the_allocator_keeps_free_pages_for_a_second_unless_told() {
        // SAFETY: reads one number.
        let delay = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(delay, 1000);
    }

    /// As root, `-P /tmp/x` once followed a symbolic link that another user had put at
    /// `/tmp/x.tmp`, and overwrote its target.
    #[test]
    fn a_pid_file_is_not_written_through_a_symbolic_link() {
        let dir = std::env::temp_dir().join(format!("senko-pid-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (victim, pid) = (dir.join("victim"), dir.join("pid"));
        std::fs::write(&victim, "precious").unwrap();
        for link in ["pid.tmp", "pid"] {
            std::os::unix::fs::symlink(&victim, dir.join(link)).unwrap();
        }
        let file = PidFile::begin(&pid).unwrap();
        let text = std::fs::read_to_string(&pid).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        drop(file);
        assert!(!pid.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// As root, `-P /dev/null` replaced the device by a file, and removed that at the end. So did
    /// the file of the ports.
    #[test]
    fn a_pid_file_and_one_of_ports_replace_no_device_and_no_data() {
        let dir = std::env::temp_dir().join(format!("senko-pidd-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("folder")).unwrap();
        let fifo = std::ffi::CString::new(dir.join("fifo").into_os_string().into_vec()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        std::fs::write(dir.join("data"), "17 and 4\n").unwrap();
        for name in ["fifo", "data", "folder"] {
            let before = dir.join(name).symlink_metadata().unwrap();
            let why = format!("{:#}", PidFile::begin(&dir.join(name)).unwrap_err());
            assert!(why.contains("is no pid file"), "{why}");
            let ports = Note::Ports.write(&dir.join(name), ".lck", "TCP INET: 1\n");
            let why = ports.unwrap_err().to_string();
            assert!(why.contains("is no list of ports"), "{why}");
            let after = dir.join(name).symlink_metadata().unwrap();
            assert_eq!(after.ino(), before.ino());
        }
        assert_eq!(std::fs::read(dir.join("data")).unwrap(), b"17 and 4\n");
        for text in ["", "4\n", "99999999"] {
            std::fs::write(dir.join("pid"), text).unwrap();
            drop(PidFile::begin(&dir.join("pid")).unwrap());
            assert!(!dir.join("pid").exists());
        }
        for text in ["TCP INET: 1\nTCP INET6: 1\n", "UDP INET: 2\n", ""] {
            std::fs::write(dir.join("ports"), text).unwrap();
            Note::Ports
                .write(&dir.join("ports"), ".lck", "TCP INET: 3\n")
                .unwrap();
            let text = std::fs::read_to_string(dir.join("ports")).unwrap();
            assert_eq!(text, "TCP INET: 3\n");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A start that failed used to leave no pid file, though another server that runs was named in
    /// it. So did the end of a server after another one had written its number there.
    #[test]
    fn the_pid_file_of_another_server_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("senko-pids-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let pid = dir.join("pid");
        let read = || std::fs::read_to_string(&pid).unwrap();
        // A process with the name of this one.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "process::tests::waits_for_its_end",
                "--nocapture",
            ])
            .env("SENKO_TEST_WAITS", "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let number = format!("{}\n", child.id());
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != comm() {
            std::thread::yield_now();
        }
        std::fs::write(&pid, &number).unwrap();
        // The start fails.
        drop(PidFile::begin(&pid).unwrap());
        assert_eq!(read(), number);
        // The start is sure.
        let mut first = PidFile::begin(&pid).unwrap();
        assert_eq!(read(), number);
        first.settle().unwrap();
        assert_eq!(read(), own_number());
        // The other one writes its number, in a new file and into this one, and this one ends.
        std::fs::write(dir.join("new"), &number).unwrap();
        std::fs::rename(dir.join("new"), &pid).unwrap();
        drop(first);
        assert_eq!(read(), number);
        let mut second = PidFile::begin(&pid).unwrap();
        second.settle().unwrap();
        std::fs::write(&pid, &number).unwrap();
        drop(second);
        assert_eq!(read(), number);
        // It was killed: its number is stale.
        drop(child.stdin.take());
        child.wait().unwrap();
        drop(PidFile::begin(&pid).unwrap());
        assert!(!pid.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// With a limit that not even one connection fits in, the advice was "-c 1".
    #[test]
    fn a_limit_of_open_files_that_is_too_low_has_an_advice_that_helps() {
        let told = too_few_files(1, 73, 60);
        assert!(told.ends_with("raise it to that (ulimit -Hn 73)"), "{told}");
        let told = too_few_files(200, 272, 100);
        assert!(told.ends_with("(ulimit -Hn 272), or ask for fewer connections (-c 28)"));
    }

    fn comm() -> String {
        std::fs::read_to_string("/proc/self/comm").unwrap()
    }

    /// Not a test: another process for the one above.
    #[test]
    fn waits_for_its_end() {
        if std::env::var_os("SENKO_TEST_WAITS").is_some() {
            let _ = io::stdin().read(&mut [0]);
        }
    }
}
