// SPDX-License-Identifier: Apache-2.0
//! How far the commits came: into the memory beside the device, to the device, to its flash.

use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

pub(crate) struct Progress {
    /// The newest durable commit.
    durable: AtomicU64,
    /// The newest commit that was handed to the device.
    written: AtomicU64,
    /// The newest commit in the memory beside the device.
    tailed: AtomicU64,
    /// The newest commit that made a table.
    made_table: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
}

impl Progress {
    /// After the opening. What was read may be an earlier process's writes that no flush has
    /// covered.
    pub fn new(commit: u64) -> Progress {
        Progress {
            durable: AtomicU64::new(0),
            written: AtomicU64::new(commit),
            tailed: AtomicU64::new(commit),
            made_table: AtomicU64::new(commit),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn tailed(&self) -> u64 {
        self.tailed.load(Ordering::Acquire)
    }

    /// The transactions that committed, and those that met a conflict.
    pub fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.commits), count(&self.conflicts))
    }

    /// All commits up to this one were handed to the device.
    pub fn write(&self, commit: u64) {
        self.written.fetch_max(commit, Ordering::AcqRel);
    }

    /// A flush covers everything that was written.
    pub fn flush(&self) {
        self.durable.fetch_max(self.written(), Ordering::AcqRel);
    }

    pub fn tail(&self, commit: u64) {
        self.tailed.fetch_max(commit, Ordering::AcqRel);
    }

    /// A commit that made a table.
    pub fn make_table(&self, commit: u64) {
        self.made_table.fetch_max(commit, Ordering::AcqRel);
    }

    /// All tables that are there were made until this commit.
    pub fn made_table(&self) -> u64 {
        self.made_table.load(Ordering::Acquire)
    }

    pub fn commit(&self, commits: u64) {
        self.commits.fetch_add(commits, Ordering::Relaxed);
    }

    pub fn conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }
}
