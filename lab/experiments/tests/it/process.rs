// SPDX-License-Identifier: Apache-2.0
//! `senko-lab` in a scratch folder, which is removed when a test ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use senko_lab::Options;

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

pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}
