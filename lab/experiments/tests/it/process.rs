// SPDX-License-Identifier: Apache-2.0
//! `senko-lab` in a scratch folder, which is removed when a test ends.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use senko_lab::{Options, Scale};

/// The program under test.
pub const LAB: &str = env!("CARGO_BIN_EXE_senko-lab");

/// Options with our programs. `None` without `senko` beside `senko-lab`: its package's tests build
/// it, as the tests of the whole workspace do.
pub fn options() -> Option<Options> {
    let options = Options {
        lab: LAB.into(),
        program: Path::new(LAB).with_file_name("senko"),
        ..Options::default()
    };
    if options.program.is_file() {
        return Some(options);
    }
    let why = format!("there is no {}", options.program.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    eprintln!("skipped: {why}");
    None
}

/// A folder for one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("senko-exp-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `senko-lab` in the folder. Results go there too, not to the user's.
pub fn command(folder: &Scratch, args: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command
        .args(args)
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", folder.path())
        .stdin(Stdio::null());
    command
}

/// A child that is stopped in the middle, and what it has told on stderr so far.
pub struct Running {
    child: Child,
    told: BufReader<ChildStderr>,
    pub said: String,
}

impl Running {
    pub fn start(folder: &Scratch, args: &[&str]) -> Running {
        let mut command = command(folder, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = BufReader::new(child.stderr.take().unwrap());
        Running {
            child,
            told,
            said: String::new(),
        }
    }

    /// Reads on until `reached`; false if it ended before.
    pub fn until(&mut self, reached: impl Fn(&str) -> bool) -> bool {
        while !reached(&self.said) {
            if self.told.read_line(&mut self.said).unwrap() == 0 {
                self.child.wait().unwrap();
                return false;
            }
        }
        true
    }

    /// Sends a signal; returns the exit code and stdout, with all of stderr.
    pub fn stop(mut self, name: &str) -> (Option<i32>, Vec<u8>, String) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(done.unwrap().success());
        self.told.read_to_string(&mut self.said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), output.stdout, self.said)
    }
}

/// A small run without traces.
pub fn quick() -> Options {
    Options {
        scale: Scale::Quick,
        traces: "/nonexistent/traces".into(),
        ..Options::default()
    }
}

/// A scratch folder on a disk, for what measures one; `None` if there is none.
pub fn on_disk() -> Option<senko_lab::rig::scratch::Scratch> {
    use senko_lab::rig::scratch::{self, Scratch};
    let made = Scratch::new(&scratch::default_parent());
    made.inspect_err(|error| eprintln!("skipped: {error:#}"))
        .ok()
}

/// Runs it to its end.
pub fn run(folder: &Scratch, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Expects one line on stderr, nothing on stdout, and a failing exit code; returns the line.
pub fn refused(folder: &Scratch, args: &[&str]) -> String {
    let output = run(folder, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    text.trim_end().to_owned()
}
