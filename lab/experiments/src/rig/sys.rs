// SPDX-License-Identifier: Apache-2.0
//! System calls that the standard library does not wrap: processor affinity, signals, limits. And
//! programs of the system.
//!
//! Called by the rest of [`crate::rig`]. Always: no call here changes memory that Rust does not
//! expect to change.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

fn set_of(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: `cpu_set_t` is an array of integers, for which zeros are valid; the macro functions
    // stay within it for the numbers asserted.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &core in cores {
            assert!(
                core < libc::CPU_SETSIZE as usize,
                "core {core} is beyond what an affinity mask holds"
            );
            libc::CPU_SET(core, &mut set);
        }
        set
    }
}

/// The cores that this thread may run on, in ascending order.
pub fn cores() -> io::Result<Vec<usize>> {
    let mut set = set_of(&[]);
    // SAFETY: the call fills `set`, whose size it is told.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the macro function reads within `set` for numbers below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect())
}

/// Pins the calling thread, and the threads that it will start, to these cores.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let set = set_of(cores);
    // SAFETY: the call reads `set`, whose size it is told.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on, threads that want the same core run before the calling thread.
pub fn step_back() {
    // SAFETY: the call takes numbers only; 0 is the calling thread. Whether the kernel agrees makes
    // no difference to what is right.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// From now on, all others that want its core run before this thread, of whatever process.
pub fn goes_last(thread: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, 19) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes `command` start on `cores`, as a member of the groups whose `cgroup.procs` files are
/// given, with no signal blocked. It dies when the calling thread does.
pub fn prepare(command: &mut Command, cores: &[usize], groups: Vec<File>) {
    let set = set_of(cores);
    let enter = move || {
        for mut group in &groups {
            // "0" is the writing process itself.
            group.write_all(b"0")?;
        }
        // SAFETY: plain system calls on values of this closure; `sigset_t` is filled by
        // `sigemptyset` before it is used.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0
                || libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) != 0
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only system calls that are safe after a fork:
    // it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Raises the limit of open files of this process to this number.
pub fn open_files(need: u64) -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills `limit`, which outlives it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < need {
        limit.rlim_cur = need;
        limit.rlim_max = limit.rlim_max.max(need);
        // SAFETY: the call reads `limit`, which outlives it.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes a write beyond `ulimit -f` fail with an error that can be reported, instead of ending the
/// process.
pub fn survive_long_files() {
    // SAFETY: ignoring a signal takes no memory of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sends a signal; a process that is gone is fine.
pub fn signal(pid: u32, signal: libc::c_int) {
    if let Ok(pid @ 1..) = libc::pid_t::try_from(pid) {
        // SAFETY: the call takes two numbers and touches no memory. 0 and negative numbers mean
        // many processes, and are ruled out.
        unsafe { libc::kill(pid, signal) };
    }
}

pub fn is_root() -> bool {
    // SAFETY: the call touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Runs a program of the system; if it fails, its last output is the reason.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} cannot be run"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    bail!(
        "{name} failed: {}",
        words.lines().last().unwrap_or("it said nothing").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_says_why() {
        let error = run(Command::new("ls").arg("/no/such/path")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("ls failed: ") && error.contains("/no/such/path"),
            "{error}"
        );
        let error = run(&mut Command::new("no-such-program-at-all")).unwrap_err();
        assert!(error.to_string().contains("cannot be run"), "{error:#}");
        assert!(run(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_child_starts_where_it_is_told() {
        let first = cores().unwrap()[0];
        let mut command = Command::new("sh");
        command.args(["-c", "grep Cpus_allowed_list /proc/self/status"]);
        prepare(&mut command, &[first], Vec::new());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            text.split_whitespace().last(),
            Some(first.to_string().as_str()),
            "{text}"
        );
    }
}
