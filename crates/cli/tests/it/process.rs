// SPDX-License-Identifier: Apache-2.0
//! A server process and a scratch folder; both are removed when a test ends, however it ends.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The binary under test.
pub const SENKO: &str = env!("CARGO_BIN_EXE_senko");

/// A variable of the servers under test and its value. With it a busy disk makes a server drop no
/// item, also when it stops.
pub const PATIENT: (&str, &str) = ("SENKO_TEST_PATIENCE", "20");

/// A folder for one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("senko-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// A link to the binary with the name memcached.
    pub fn memcached(&self) -> PathBuf {
        let link = self.join("memcached");
        if !link.exists() {
            std::os::unix::fs::symlink(SENKO, &link).unwrap();
        }
        link
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `-u root`, if memcached requires a user.
pub fn user_args() -> &'static [&'static str] {
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        &["-u", "root"]
    } else {
        &[]
    }
}

/// The words of a command: apart by blanks in a line, or each by itself, for words with blanks.
pub trait Words: fmt::Debug {
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<&str> {
        (**self).words()
    }
}

/// Runs a program to its end, in the folder.
pub fn run(program: impl AsRef<OsStr>, folder: &Scratch, args: impl Words) -> Output {
    Command::new(program)
        .args(args.words())
        .current_dir(folder.path())
        // Results of experiments go to the folder, not to the user's.
        .env("XDG_STATE_HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command of senko to its end, in the folder.
pub fn senko(command: &str, folder: &Scratch, args: impl Words) -> Output {
    run(SENKO, folder, [&[command], &args.words()[..]].concat())
}

/// Starts a command of senko in the folder, its output kept.
pub fn start(folder: &Scratch, args: impl Words) -> Child {
    Command::new(SENKO)
        .args(args.words())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The text has these words.
#[track_caller]
pub fn has(text: &str, words: &str) {
    assert!(text.contains(words), "{words:?} is not in\n{text}");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// It ended with 1 and one sentence on stderr that has these words. Returns its stdout.
pub fn undone(output: &Output, words: &str) -> String {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}: {told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(words), "{words}: {told}");
    text(&output.stdout)
}

/// Expects one line on stderr, nothing on stdout, and a failing exit code; returns the line.
pub fn refused(program: impl AsRef<OsStr>, folder: &Scratch, args: impl Words) -> String {
    let output = run(program, folder, &args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    text.trim_end().to_string()
}

/// A server.
pub struct Running {
    pub child: Child,
    pub port: u16,
    /// The JSON line of the start, if `senko serve --json` was started.
    pub start: serde_json::Value,
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// `senko serve --json` with these arguments, in this folder.
    pub fn serve(folder: &Scratch, args: impl Words) -> Running {
        let mut child = Command::new(SENKO)
            .args(["serve", "--json"])
            .args(args.words())
            .env(PATIENT.0, PATIENT.1)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!(
                "no start line: {}",
                std::fs::read_to_string(folder.join("stderr")).unwrap()
            );
        }
        let start: serde_json::Value = serde_json::from_str(&line).unwrap();
        let port = start["listen"][0]
            .as_str()
            .map_or(0, |a| a.rsplit(':').next().unwrap().parse().unwrap());
        Running {
            child,
            port,
            start,
            out: Some(out),
        }
    }

    /// The drop-in, on a free port unless a Unix socket is requested.
    pub fn memcached(folder: &Scratch, args: impl Words) -> Running {
        let ports = folder.join("ports");
        let mut child = Command::new(folder.memcached())
            .args(user_args())
            .args(args.words())
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .env(PATIENT.0, PATIENT.1)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let text = wait_for(|| {
            if child.try_wait().unwrap().is_some() {
                panic!(
                    "it ended: {}",
                    std::fs::read_to_string(folder.join("stderr")).unwrap()
                );
            }
            std::fs::read_to_string(&ports).ok()
        });
        let port = port_in(&text);
        Running {
            child,
            port,
            start: serde_json::Value::Null,
            out: None,
        }
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.port)
    }

    pub fn stderr(&self, folder: &Scratch) -> String {
        std::fs::read_to_string(folder.join("stderr")).unwrap()
    }

    /// What the server still wrote to stdout before its end.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        if let Some(out) = &mut self.out {
            out.read_to_string(&mut rest).unwrap();
        }
        rest
    }

    /// Sends SIGTERM, waits for the end, and returns what the server still wrote to stdout.
    pub fn stop(mut self) -> (ExitStatus, String) {
        signal(self.child.id(), "TERM");
        let status = wait_for(|| self.child.try_wait().unwrap());
        let rest = self.rest();
        (status, rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port in a file as memcached writes it.
pub fn port_in(text: &str) -> u16 {
    text.lines()
        .find_map(|l| l.strip_prefix("TCP INET: "))
        .map_or(0, |p| p.parse().unwrap())
}

pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    stream
}

/// Sends a request and reads until the reply ends with these bytes.
pub fn ask(stream: &mut TcpStream, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(end.as_bytes()) {
        stream
            .read_exact(&mut byte)
            .unwrap_or_else(|e| panic!("{e} after {:?}", String::from_utf8_lossy(&got)));
        got.push(byte[0]);
    }
    String::from_utf8(got).unwrap()
}

pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

/// Waits until a command prints its results when a signal comes. From then on it catches SIGHUP
/// too, unless whoever runs this test ignores that.
pub fn hears_signals(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    wait_for(|| {
        let text = std::fs::read_to_string(&status).unwrap();
        let signals = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        let (caught, ignored) = (signals("SigCgt:")?, signals("SigIgn:")?);
        (caught & 2 != 0 && (caught | ignored) & 1 != 0).then_some(())
    });
}

/// Polls until there is a result; generously, since nothing here judges time.
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for five minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a program is installed. In CI a missing program is an error.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    assert!(
        found || std::env::var("CI").as_deref() != Ok("true"),
        "{program} is missing"
    );
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}
