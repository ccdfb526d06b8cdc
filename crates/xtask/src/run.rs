// SPDX-License-Identifier: Apache-2.0
//! Runs commands: prints their output as it comes, counts the tests that they report, and ends
//! commands that take too long.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::out;

/// No single command of the tests may run longer than this: one that hangs must not take all of
/// CI's time with it.
const PATIENCE: Duration = Duration::from_secs(45 * 60);

/// The cargo that runs us.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Tests counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// The lines that name what failed.
    pub failures: Vec<String>,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Counts {
    /// One thing that passed or failed.
    pub fn one(passed: bool) -> Counts {
        Counts {
            passed: u64::from(passed),
            failed: u64::from(!passed),
            ..Counts::default()
        }
    }

    /// Adds what a line of a test runner's output reports.
    fn take_line(&mut self, line: &str) {
        if let Some(found) = cargo_line(line).or_else(|| pytest_line(line)) {
            *self += found;
        } else if line.starts_with("skipped: ") {
            self.skipped += 1;
        } else if names_a_failure(line) {
            self.failures.push(line.to_owned());
        }
    }
}

/// `test harm::slow ... FAILED` and where it panicked; pytest's `FAILED e2e/test_tls.py::test_all`.
fn names_a_failure(line: &str) -> bool {
    line.starts_with("test ") && line.ends_with(" FAILED")
        || line.starts_with("thread '") && line.contains(" panicked at ")
        || line.starts_with("FAILED ")
        || line.starts_with("ERROR ")
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; ...`
fn cargo_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let mut counts = Counts::default();
    for part in rest.split([';', '.']) {
        match number_and_word(part.trim()) {
            Some((n, "passed")) => counts.passed += n,
            Some((n, "failed")) => counts.failed += n,
            Some((n, "ignored")) => counts.skipped += n,
            _ => {}
        }
    }
    Some(counts)
}

/// `=== 2 failed, 199 passed, 12 skipped in 25.21s ===`
fn pytest_line(line: &str) -> Option<Counts> {
    let (results, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    if !time.split(' ').next()?.ends_with('s') {
        return None;
    }
    let mut counts = Counts::default();
    for part in results.split(", ") {
        match number_and_word(part)? {
            (n, "passed") => counts.passed += n,
            (n, "failed" | "error" | "errors") => counts.failed += n,
            (n, "skipped") => counts.skipped += n,
            (_, "deselected" | "warning" | "warnings" | "xfailed") => {}
            _ => return None,
        }
    }
    Some(counts)
}

fn number_and_word(text: &str) -> Option<(u64, &str)> {
    let (number, word) = text.split_once(' ')?;
    Some((number.parse().ok()?, word))
}

/// What a command did.
pub struct Ran {
    pub ok: bool,
    pub counts: Counts,
}

/// Runs a command, its output shown line by line. Its input is empty.
pub fn show(command: &mut Command) -> Result<Ran> {
    show_for(command, PATIENCE)
}

/// As [`show`], for at most this time.
pub fn show_for(command: &mut Command, patience: Duration) -> Result<Ran> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    tell!("$ {}", line_of(command));
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    // Our ends of the pipe must go, or it would not end with the child.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (done, finished) = mpsc::channel();
    let block = out::block();
    let counting = std::thread::spawn(move || {
        out::go_to(block);
        let mut counts = Counts::default();
        for line in BufReader::new(reader).split(b'\n').map_while(|l| l.ok()) {
            let line = String::from_utf8_lossy(&line);
            counts.take_line(&line);
            tell!("{line}");
        }
        let _ = done.send(()); // nobody waits any more if it took too long
        counts
    });
    let in_time = !matches!(
        finished.recv_timeout(patience),
        Err(RecvTimeoutError::Timeout)
    );
    if !in_time {
        tell!(
            "still running after {} minutes: ended",
            patience.as_secs() / 60
        );
        crate::signals::kill_group(child.id());
    }
    let status: ExitStatus = child.wait()?;
    let counts = counting
        .join()
        .map_err(|_| anyhow::anyhow!("the thread that reads the output failed"))?;
    drop(std::io::stdout().flush());
    Ok(Ran {
        ok: status.success() && in_time,
        counts,
    })
}

/// Runs a command and returns what it printed; an error with its complaints if it failed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{} failed: {}",
            line_of(command),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command runs and succeeds; nothing of it is shown.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet
        .spawn()
        .and_then(|mut child: Child| child.wait())
        .is_ok_and(|s| s.success())
}

/// Whether a program is installed, in the path or where Debian keeps servers.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    folders.iter().any(|f| f.join(program).is_file())
}

fn line_of(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    if let Some(first) = words.first_mut()
        && let Some((_, name)) = first.rsplit_once('/')
    {
        *first = name.to_owned();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_runners_report() {
        let mut counts = Counts::default();
        counts.take_line("test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.10s");
        assert_eq!(
            counts,
            Counts {
                passed: 5,
                failed: 2,
                skipped: 1,
                failures: Vec::new()
            }
        );
        counts.take_line("=========== 2 failed, 199 passed, 12 skipped, 3 deselected, 1 error in 25.21s ===========");
        assert_eq!(
            counts,
            Counts {
                passed: 204,
                failed: 5,
                skipped: 13,
                failures: Vec::new()
            }
        );
        counts.take_line("199 passed in 61.21s (0:01:01)");
        assert_eq!(counts.passed, 403);
        counts.take_line("skipped: transcripts on Memcached: memcached cannot be run");
        assert_eq!(counts.skipped, 14);
        for failure in [
            "test harm::slow ... FAILED",
            "FAILED e2e/test_tls.py::test_all",
        ] {
            counts.take_line(failure);
            assert_eq!(counts.failures.pop().as_deref(), Some(failure));
        }
        let before = counts.clone();
        counts.take_line("test harm::slow ... ok");
        counts.take_line("the client waited in 3 steps");
        counts.take_line("3 passed the gate in summer");
        assert_eq!(counts, before);
    }
}
