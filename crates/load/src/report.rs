// SPDX-License-Identifier: Apache-2.0
//! The results of a run, and the table that a person reads.
//!
//! [`crate::run`] fills it; `senko load` prints it, as this table or as JSON from the same fields.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use senko_io::{Backend, counted};
use senko_workload::Histogram;

use crate::StepEnd;
use crate::check::{Fault, FaultKind};
use crate::cpu::CpuTime;
use crate::plan::Plan;
use crate::settings::{Pace, Step};
use crate::tally::{Counts, Tally};

/// The server's processor time during a step.
#[derive(Clone, Copy, Debug)]
pub struct ServerCpu {
    /// Of all its threads.
    pub time: CpuTime,
    /// Of its busiest thread.
    pub busiest: Duration,
}

/// An open loop reaches its rate if at least this share of its requests is sent in time.
pub const REACHED: f64 = 0.95;
/// The last request counts as in time if it is at most this late.
const SLACK_S: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Requests a second.
    pub rate: f64,
    /// The share of them that was sent in time, 0 to 1.
    pub share: f64,
}

impl Asked {
    /// `last` has the times from the step's start until the last request was due, and until it was
    /// sent.
    fn new(rate: Option<f64>, counts: &Counts, seconds: f64, last: (Duration, Duration)) -> Asked {
        let (due, unsent) = (counts.due as f64, counts.unsent as f64);
        let (last_due, last_sent) = (last.0.as_secs_f64(), last.1.as_secs_f64());
        let share = if unsent > 0.0 {
            (due - unsent) / due
        } else if last_sent > last_due + SLACK_S {
            last_due / last_sent
        } else {
            1.0
        };
        Asked {
            rate: rate.unwrap_or(due / seconds),
            share,
        }
    }
}

#[derive(Clone, Debug)]
pub struct StepReport {
    pub step: Step,
    /// From its start to the last answer.
    pub elapsed: Duration,
    pub counts: Counts,
    /// Latencies of gets, in nanoseconds.
    pub get: Histogram,
    /// Latencies of sets, in nanoseconds.
    pub set: Histogram,
    /// Latencies of `incr`, `decr`, `append` and `prepend`, in nanoseconds.
    pub change: Histogram,
    /// The load generator's own lateness in an open loop, in nanoseconds.
    pub late: Histogram,
    /// Faults by kind, in the order of [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    pub errors: BTreeMap<String, u64>,
    pub own_cpu: CpuTime,
    /// The server's processor time, if its process was named.
    pub server: Option<ServerCpu>,
    pub backend: Backend,
    pub asked: Option<Asked>,
    pub verifies: bool,
    /// TLS: its version and cipher suite, such as `1.3 TLS_AES_128_GCM_SHA256`.
    pub suite: Option<String>,
}

impl StepReport {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.counts.requests as f64 / self.seconds()
    }

    /// The step's time in seconds, never 0.
    pub fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The share of the read keys that were found; `None` if none was read. A read that failed
    /// counts as not found.
    pub fn found_ratio(&self) -> Option<f64> {
        let asked = self.counts.reads + self.counts.failed_reads;
        (asked > 0).then(|| self.counts.hits as f64 / asked as f64)
    }

    /// The share of the answered changes whose key existed; `None` if there was none.
    pub fn changed_ratio(&self) -> Option<f64> {
        let Counts {
            changed, absent, ..
        } = self.counts;
        let answered = changed + absent;
        (answered > 0).then(|| changed as f64 / answered as f64)
    }

    /// Microseconds of a processor's time for each request.
    pub fn us_per_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.counts.requests.max(1) as f64
    }

    /// A processor's time as a percentage of the step's time.
    pub fn percent(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.seconds() * 100.0
    }

    pub fn fault_count(&self) -> u64 {
        self.faults.iter().sum()
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    /// Keys, before inserts.
    pub keys: u64,
    /// Bytes of all keys and values at load; 0 if nothing needed the sum.
    pub item_bytes: u64,
    /// Places of the load order that a read-back covered.
    pub places: Range<u64>,
    pub steps: Vec<StepReport>,
    /// The first faults of the run.
    pub fault_samples: Vec<Fault>,
    /// Faults of all steps, including the warm-up.
    pub faults: u64,
    /// Whether the run was ended early from outside.
    pub stopped: bool,
    /// Why the run could not continue to its end.
    pub broken: Option<String>,
    rate: Option<f64>,
    verifies: bool,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Report {
        Report {
            keys: plan.keys,
            item_bytes: plan.item_bytes,
            places: plan.places.clone(),
            steps: Vec::new(),
            fault_samples: Vec::new(),
            faults: 0,
            stopped: false,
            broken: None,
            rate: match plan.settings.pace {
                Pace::Open { rate, .. } => rate,
                Pace::Closed => None,
            },
            verifies: plan.settings.verify,
        }
    }

    pub(crate) fn add(&mut self, step: Step, end: StepEnd, tally: Tally) {
        self.faults += tally.fault_count();
        self.fault_samples.extend(tally.fault_samples);
        if matches!(step, Step::WarmUp(_)) {
            return;
        }
        let StepEnd {
            elapsed,
            own_cpu,
            server,
            backend,
            last,
            broken: _,
            suite,
        } = end;
        let (total, faults, errors) = (tally.total, tally.faults, tally.errors);
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let asked = last.map(|last| Asked::new(self.rate, &total.counts, seconds, last));
        self.steps.push(StepReport {
            step,
            elapsed,
            counts: total.counts,
            get: total.get,
            set: total.set,
            change: total.change,
            late: total.late,
            faults,
            errors,
            own_cpu,
            server,
            backend,
            asked,
            verifies: self.verifies,
            suite,
        });
    }

    /// The fault of the run as a whole, in one sentence: wrong answers, keys that were not found,
    /// or no answer at all. `expect_found`, in 0..=1, is the share of the read keys that must be
    /// found.
    pub fn verdict(&self, expect_found: Option<f64>) -> Result<(), String> {
        if self.faults > 0 {
            let first = self
                .fault_samples
                .first()
                .map_or(String::new(), |fault| format!("; the first: {fault}"));
            return Err(format!(
                "wrong: {}, not what was stored{first}",
                counted(self.faults, "answer")
            ));
        }
        for step in &self.steps {
            if step.counts.requests == 0 && step.counts.failed > 0 {
                let why = step.errors.keys().next().map_or("", String::as_str);
                let way = match asks_for_login(why) {
                    true => "; the server wants a user (--user, --password-file)",
                    false => "",
                };
                return Err(format!(
                    "no request of the {} succeeded: {why}{way}",
                    step.step.name()
                ));
            }
            let Some(wanted) = expect_found else { continue };
            for (what, found) in [
                ("read", step.found_ratio()),
                ("to change", step.changed_ratio()),
            ] {
                if let Some(found) = found.filter(|found| *found < wanted) {
                    return Err(format!(
                        "{:.4} % of the keys {what} were found in the {}, and {:.4} % were expected",
                        found * 100.0,
                        step.step.name(),
                        wanted * 100.0
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Report {
    /// Requested work that was not done, in one sentence. Either the server died, or more than
    /// `most_failed` of a step's requests failed, or no request was made, or an open loop fell
    /// behind its rate.
    ///
    /// # Errors
    /// If anything was not done.
    pub fn completed(&self, most_failed: f64) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        for step in &self.steps {
            let (name, counts) = (step.step.name(), &step.counts);
            let asked = counts.requests + counts.failed;
            if asked == 0 && !self.stopped {
                return Err(format!("no request was made in the {name}"));
            }
            let failed = counts.failed as f64 / asked.max(1) as f64;
            if failed > most_failed {
                let often = step.errors.iter().max_by_key(|(_, times)| **times);
                let why =
                    often.map_or(String::new(), |(text, _)| format!(", most of them: {text}"));
                return Err(format!(
                    "{} of {} of the {name} failed{why}",
                    counts.failed,
                    counted(asked, "request")
                ));
            }
            if let Some(Asked { rate, share }) = step.asked
                && share < REACHED
            {
                return Err(format!(
                    "the rate was not reached: {:.0} requests a second were sent in the {name}, and {rate:.0} were asked for",
                    rate * share
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            match step.step {
                Step::Load => {
                    writeln!(
                        f,
                        "{}: {}, {} of keys and values",
                        step.step.name(),
                        counted(self.keys, "key"),
                        bytes(self.item_bytes)
                    )?;
                }
                Step::ReadBack => {
                    let Range { start, end } = self.places;
                    writeln!(
                        f,
                        "{}: places {start} to {} of {}",
                        step.step.name(),
                        end - 1,
                        self.keys
                    )?;
                }
                Step::Mix(_) | Step::WarmUp(_) => writeln!(f, "{}", step.step.name())?,
            }
            write!(f, "{step}")?;
        }
        if !self.fault_samples.is_empty() {
            writeln!(f, "\nfirst faults")?;
            for fault in &self.fault_samples {
                writeln!(f, "  {fault}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            requests,
            reads,
            hits,
            sets,
            stored,
            refills,
            changes,
            changed,
            absent,
            failed_reads,
            ..
        } = self.counts;
        let seconds = self.seconds();
        let mut row = |name: &str, text: String| writeln!(f, "  {name:<14}{text}");
        row(
            "requests",
            format!("{requests} in {seconds:.2} s: {:.0} a second", self.rate()),
        )?;
        if let Some(found) = self.found_ratio() {
            let failed = if failed_reads > 0 {
                format!(", {failed_reads} failed")
            } else {
                String::new()
            };
            row(
                "keys read",
                format!(
                    "{reads}: {hits} found ({:.4} %), {} not{failed}",
                    found * 100.0,
                    reads - hits
                ),
            )?;
        }
        if sets > 0 {
            let refilled = if refills > 0 {
                format!(", {refills} of them after a miss")
            } else {
                String::new()
            };
            row("sets", format!("{sets}: {stored} acknowledged{refilled}"))?;
        }
        if changes > 0 {
            let missed = if absent > 0 {
                format!(", {absent} met no key")
            } else {
                String::new()
            };
            row("changes", format!("{changes}: {changed} made{missed}"))?;
        }
        let rate = |sum: u64| bytes((sum as f64 / seconds) as u64);
        row(
            "bytes",
            format!(
                "{}/s received, {}/s sent",
                rate(self.counts.received),
                rate(self.counts.sent)
            ),
        )?;
        for (name, latencies) in [
            ("get", &self.get),
            ("set", &self.set),
            ("change", &self.change),
            ("own lateness", &self.late),
        ] {
            if !latencies.is_empty() {
                row(name, latency_row(latencies))?;
            }
        }
        let cpu = |time: CpuTime| {
            format!(
                "{:.1} %, {:.2} us a request ({:.2} user, {:.2} system)",
                self.percent(time.total()),
                self.us_per_request(time.total()),
                self.us_per_request(time.user),
                self.us_per_request(time.system)
            )
        };
        row("processor", format!("load {}", cpu(self.own_cpu)))?;
        if let Some(server) = &self.server {
            row(
                "",
                format!(
                    "server {}, busiest thread {:.1} %",
                    cpu(server.time),
                    self.percent(server.busiest)
                ),
            )?;
        }
        if let Some(suite) = &self.suite {
            let own = self.us_per_request(Duration::from_nanos(self.counts.cipher_ns));
            row(
                "TLS",
                format!("{suite}, {own:.2} us a request of the load's time"),
            )?;
        }
        if let Some(Asked { rate, share }) = self.asked
            && share < REACHED
        {
            let (sent, lacks) = (rate * share, (1.0 - share) * 100.0);
            row(
                "rate",
                format!("not reached: {sent:.0} a second of {rate:.0}, {lacks:.1} % too few"),
            )?;
        }
        if self.verifies {
            row(
                "verified",
                format!(
                    "{}, {} wrong",
                    counted(self.counts.verified, "value"),
                    self.fault_count()
                ),
            )?;
        }
        if self.counts.unsent > 0 {
            row(
                "unsent",
                format!(
                    "{} that came due found no room before the end",
                    counted(self.counts.unsent, "request")
                ),
            )?;
        }
        if self.counts.failed > 0 || self.counts.reconnects > 0 {
            let Counts {
                failed,
                timeouts,
                unanswered,
                reconnects,
                ..
            } = self.counts;
            let late = match unanswered {
                0 => String::new(),
                n => format!(", {n} had no answer when the time was over"),
            };
            row(
                "failed",
                format!(
                    "{}, {timeouts} of them timed out{late}; {}",
                    counted(failed, "request"),
                    counted(reconnects, "reconnection")
                ),
            )?;
        }
        for (text, times) in &self.errors {
            row("error", format!("{times} x {text}"))?;
        }
        if self.fault_count() > 0 {
            let kinds: Vec<String> = FaultKind::ALL
                .iter()
                .map(|kind| format!("{} {}", self.faults[*kind as usize], kind.name()))
                .collect();
            row("FAULTS", kinds.join(", "))?;
        }
        Ok(())
    }
}

fn latency_row(latencies: &Histogram) -> String {
    let us = |ns: f64| match ns / 1e3 {
        us if us < 10_000.0 => format!("{us:.0} us"),
        us => format!("{:.1} ms", us / 1e3),
    };
    let at = |q: f64| us(latencies.quantile(q) as f64);
    format!(
        "mean {}, p50 {}, p90 {}, p99 {}, p99.9 {}, p99.99 {}, max {}",
        us(latencies.mean()),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(0.9999),
        us(latencies.max() as f64)
    )
}

/// Bytes in a suitable unit.
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{count} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.2} TiB")
}

/// Whether a server's error is that of a connection that has not logged in: memcached's text
/// protocol says `CLIENT_ERROR unauthenticated` or `CLIENT_ERROR authentication failure`, its
/// binary one `Auth failure.`
fn asks_for_login(error: &str) -> bool {
    error.to_ascii_lowercase().contains("auth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.00 TiB");
    }
}
