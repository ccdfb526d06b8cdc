// SPDX-License-Identifier: Apache-2.0
//! A thread's counts while it runs, merged over threads and seconds.

use std::collections::BTreeMap;

use senko_workload::Histogram;

use crate::check::{Fault, FaultKind};

/// Faults kept with their key; all are counted.
const KEPT_FAULTS: usize = 20;
/// Distinct error texts kept; a text beyond them counts as "other errors".
const KEPT_ERRORS: usize = 100;

/// Plain sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered: gets (of however many keys), sets and changes.
    pub requests: u64,
    /// Keys read and answered, as found or not.
    pub reads: u64,
    /// Of these, found.
    pub hits: u64,
    /// Sets sent.
    pub sets: u64,
    /// Of these, stored by the server's word.
    pub stored: u64,
    /// Of the sets, those that followed a miss.
    pub refills: u64,
    /// Changes sent: `incr`, `decr`, `append`, `prepend`.
    pub changes: u64,
    /// Of these, made by the server's word.
    pub changed: u64,
    /// Of these, those that met no key.
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
    /// Keys whose reading failed.
    pub failed_reads: u64,
    /// Connections made anew.
    pub reconnects: u64,
    /// Requests of an open loop that came due, the unsent ones included.
    pub due: u64,
    /// Requests of an open loop that were due and could not be sent before the end.
    pub unsent: u64,
    /// Of the failed requests, those that had no answer when the run's time was over.
    pub unanswered: u64,
    /// Values that were checked byte by byte.
    pub verified: u64,
    /// Nanoseconds that this program spent on the ciphers of TLS, without handshakes.
    pub cipher_ns: u64,
}

impl Counts {
    /// Adds another thread's or second's.
    pub fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.reads += other.reads;
        self.hits += other.hits;
        self.sets += other.sets;
        self.stored += other.stored;
        self.refills += other.refills;
        self.changes += other.changes;
        self.changed += other.changed;
        self.absent += other.absent;
        self.value_bytes += other.value_bytes;
        self.received += other.received;
        self.sent += other.sent;
        self.failed += other.failed;
        self.timeouts += other.timeouts;
        self.failed_reads += other.failed_reads;
        self.reconnects += other.reconnects;
        self.due += other.due;
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        self.verified += other.verified;
        self.cipher_ns += other.cipher_ns;
    }
}

/// Sums and latencies of a stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Sums.
    pub counts: Counts,
    /// Latencies of gets in nanoseconds; in an open loop from the time they were due.
    pub get: Histogram,
    /// Latencies of sets in nanoseconds.
    pub set: Histogram,
    /// Latencies of changes in nanoseconds.
    pub change: Histogram,
    /// In an open loop: how long after their due time requests were sent that did not wait for a
    /// connection. This is the load generator's own error.
    pub late: Histogram,
}

impl Stretch {
    /// Adds another thread's or second's.
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

/// All that a thread, or all threads of a step, counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Up to the last full second.
    pub total: Stretch,
    /// Since then; merged by [`Tally::roll`].
    pub now: Stretch,
    /// Faults by kind, in the order of [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    /// The first faults.
    pub fault_samples: Vec<Fault>,
    /// Errors by text.
    pub errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Moves the running stretch into the total and gives it back through `out`, if someone wants
    /// it.
    pub fn roll(&mut self, out: Option<&mut Stretch>) {
        self.total.add(&self.now);
        if let Some(out) = out {
            out.clone_from(&self.now);
        }
        self.now.clear();
    }

    /// Counts a fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault.kind as usize] += 1;
        if self.fault_samples.len() < KEPT_FAULTS {
            self.fault_samples.push(fault);
        }
    }

    /// Faults of all kinds.
    pub fn fault_count(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Faults of one kind.
    pub fn faults_of(&self, kind: FaultKind) -> u64 {
        self.faults[kind as usize]
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

    /// Adds another thread's, which has rolled.
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
