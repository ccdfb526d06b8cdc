// SPDX-License-Identifier: Apache-2.0
//! Processor time: of a thread of this process, and of the server's process.
//!
//! [`crate::engine`] reads its own before and after a step, [`crate::run`] the server's. The sum of
//! both per request is the fair measure for two programs on one machine.

#![allow(unsafe_code)]

use std::fs;
use std::time::Duration;

/// Processor time in user and in kernel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// The time used since `earlier`.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// Adds another thread's time.
    pub fn add(&mut self, other: &CpuTime) {
        self.user += other.user;
        self.system += other.system;
    }
}

pub fn of_this_thread() -> CpuTime {
    // SAFETY: `rusage` is a struct of integers, for which zeros are valid; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_THREAD, &mut usage) != 0 {
            return CpuTime::default();
        }
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    CpuTime {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
    }
}

/// Makes timed waits of the calling thread end within a microsecond of their time instead of the
/// usual 50.
pub fn wake_promptly() {
    // SAFETY: this option takes one number and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong);
    }
}

/// A reading of another process's processor time.
#[derive(Clone, Debug, Default)]
pub struct ProcessCpu {
    /// All threads, including those that ended.
    pub time: CpuTime,
    /// Thread number and running time in nanoseconds.
    threads: Vec<(u32, u64)>,
}

impl ProcessCpu {
    /// Reads `/proc/PID/stat` and each thread's `schedstat`.
    ///
    /// # Errors
    /// One sentence, if the process does not exist.
    pub fn read(pid: u32) -> Result<ProcessCpu, String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| {
            format!("the processor time of process {pid} cannot be read: {error}")
        })?;
        let ticks =
            stat_ticks(&stat).ok_or_else(|| format!("/proc/{pid}/stat has an unknown form"))?;
        // SAFETY: `sysconf` reads a number and touches no memory.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let mut threads = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            // A thread may end between the listing and this read. Its time is then only in the
            // process's sum.
            let Some(number) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let run = fs::read_to_string(entry.path().join("schedstat"))
                .ok()
                .and_then(|text| text.split_whitespace().next()?.parse().ok());
            threads.extend(run.map(|nanoseconds| (number, nanoseconds)));
        }
        Ok(ProcessCpu {
            time: CpuTime {
                user: Duration::from_secs_f64(ticks.0 as f64 / per_second),
                system: Duration::from_secs_f64(ticks.1 as f64 / per_second),
            },
            threads,
        })
    }

    /// Time used since `earlier`: user and system, and the time that its busiest thread ran.
    pub fn since(&self, earlier: &ProcessCpu) -> (CpuTime, Duration) {
        let before = |thread: u32| {
            earlier
                .threads
                .iter()
                .find(|(number, _)| *number == thread)
                .map_or(0, |(_, run)| *run)
        };
        let ran = self
            .threads
            .iter()
            .map(|(number, run)| run.saturating_sub(before(*number)));
        let busiest = Duration::from_nanos(ran.clone().max().unwrap_or(0));
        let mut time = self.time.since(&earlier.time);
        // The threads' clock counts nanoseconds, the process's counts ticks of 10 ms: use the ratio
        // of the latter and the sum of the former.
        let fine = Duration::from_nanos(ran.sum());
        let coarse = time.total();
        if fine > Duration::ZERO && coarse > Duration::ZERO {
            let scale = fine.as_secs_f64() / coarse.as_secs_f64();
            time.user = time.user.mul_f64(scale);
            time.system = time.system.mul_f64(scale);
        }
        (time, busiest)
    }
}

/// Fields 14 and 15 of a `stat` line. The name before them is in parentheses and may contain
/// anything.
fn stat_ticks(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_ticks_behind_a_strange_name() {
        let stat = "77 (a) b) (c) S 1 77 77 0 -1 4194560 500 0 0 0 123 45 0 0 20 0 4 0 100 1 1";
        assert_eq!(stat_ticks(stat), Some((123, 45)));
        assert_eq!(stat_ticks("no line of that form"), None);
    }

    #[test]
    fn time_of_this_process_grows() {
        let before = ProcessCpu::read(std::process::id()).expect("this process exists");
        let mine = of_this_thread();
        let mut x = 1u64;
        while of_this_thread().since(&mine).total() < Duration::from_millis(30) {
            for i in 0..100_000u64 {
                x = std::hint::black_box(x.wrapping_mul(i | 1));
            }
        }
        let after = ProcessCpu::read(std::process::id()).expect("this process exists");
        assert!(after.since(&before).0.total() > Duration::ZERO);
        assert!(ProcessCpu::read(u32::MAX).is_err());
    }
}
