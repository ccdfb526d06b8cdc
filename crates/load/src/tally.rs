// SPDX-License-Identifier: Apache-2.0
//! A thread's counts while it runs, merged over threads and seconds.

use std::collections::BTreeMap;

use senko_workload::Histogram;

use crate::check::{Fault, FaultKind};

/// Faults kept with their key; all faults are counted.
const KEPT_FAULTS: usize = 20;
/// Distinct error texts that are kept; further ones count as "other errors".
const KEPT_ERRORS: usize = 100;

/// Plain sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered: gets (of however many keys), sets and changes.
    pub requests: u64,
    /// Keys read and answered, whether found or not.
    pub reads: u64,
    /// Of these, found.
    pub hits: u64,
    /// Sets sent.
    pub sets: u64,
    /// Of these, stored according to the server.
    pub stored: u64,
    /// Of the sets, those that followed a miss.
    pub refills: u64,
    /// Changes sent: `incr`, `decr`, `append`, `prepend`.
    pub changes: u64,
    /// Of these, made according to the server.
    pub changed: u64,
    /// Of these, those whose key did not exist.
    pub absent: u64,
    /// Bytes of found values.
    pub value_bytes: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Requests that ended in an error, a timeout or with their connection; each text is counted in
    /// [`Tally::errors`].
    pub failed: u64,
    /// Of these, timed out.
    pub timeouts: u64,
    /// Keys whose read failed.
    pub failed_reads: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// Requests of an open loop that came due, including unsent ones.
    pub due: u64,
    /// Requests of an open loop that were due but could not be sent before the end.
    pub unsent: u64,
    /// Of the failed requests, those without an answer at the end of the run.
    pub unanswered: u64,
    /// Values that were checked byte by byte.
    pub verified: u64,
    /// Nanoseconds that this program spent on the ciphers of TLS, without handshakes.
    pub cipher_ns: u64,
}

senko_io::counters! {
    Counts: requests reads hits sets stored refills changes changed absent value_bytes received sent
        failed timeouts failed_reads reconnects due unsent unanswered verified cipher_ns
}

/// Sums and latencies of a period of time.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    pub counts: Counts,
    /// Latencies of gets in nanoseconds; in an open loop, from the time they were due.
    pub get: Histogram,
    pub set: Histogram,
    pub change: Histogram,
    /// In an open loop: how late requests were sent, counting only those that did not wait for a
    /// connection. This is the load generator's own error.
    pub late: Histogram,
}

impl Stretch {
    /// Adds the counts of another thread or second.
    pub fn add(&mut self, other: &Stretch) {
        self.counts.add(&other.counts);
        self.get.merge(&other.get);
        self.set.merge(&other.set);
        self.change.merge(&other.change);
        self.late.merge(&other.late);
    }

    fn clear(&mut self) {
        self.counts = Counts::default();
        self.get.clear();
        self.set.clear();
        self.change.clear();
        self.late.clear();
    }
}

/// All counts of a thread, or of all threads of a step.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Up to the last full second.
    pub total: Stretch,
    /// Since then; merged by [`Tally::roll`].
    pub now: Stretch,
    /// Faults by kind, in the order of [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    pub fault_samples: Vec<Fault>,
    pub errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds the current period to the total, and returns it through `out`, if that is wanted.
    pub fn roll(&mut self, out: Option<&mut Stretch>) {
        self.total.add(&self.now);
        if let Some(out) = out {
            out.clone_from(&self.now);
        }
        self.now.clear();
    }

    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault.kind as usize] += 1;
        if self.fault_samples.len() < KEPT_FAULTS {
            self.fault_samples.push(fault);
        }
    }

    pub fn fault_count(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Counts an error by its text.
    pub fn error(&mut self, text: &str, times: u64) {
        if let Some(count) = self.errors.get_mut(text) {
            *count += times;
        } else {
            let text = if self.errors.len() < KEPT_ERRORS {
                text
            } else {
                "other errors"
            };
            *self.errors.entry(text.to_owned()).or_default() += times;
        }
    }

    /// Adds another thread's counts, which must have rolled.
    pub fn merge(&mut self, other: Tally) {
        self.total.add(&other.total);
        self.total.add(&other.now);
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        let room = KEPT_FAULTS.saturating_sub(self.fault_samples.len());
        self.fault_samples
            .extend(other.fault_samples.into_iter().take(room));
        for (text, times) in &other.errors {
            self.error(text, *times);
        }
    }
}
