// SPDX-License-Identifier: Apache-2.0
//! The writes, and a check whether a store has a prefix of them.
//!
//! Writes are numbered by their times, which the model predicts: its clock moves only between
//! calls, and a time is the larger of the clock and the last time plus 1. A value is made from its
//! key and time, so each byte that a store returns can be checked by itself.
//!
//! ```text
//! base: what no crash may lose | window[..written]: what no kill may lose | window[written..]: may be there or not, as a prefix
//! ```

use std::collections::{BTreeMap, BTreeSet};

use senko_store::{Entry, KeyVersion, Store, StoreError};

pub const SECOND: u64 = 1_000_000;

/// A version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ver {
    pub time: u64,
    /// Length of the value and its expiry in seconds, or a deletion.
    pub value: Option<(u32, u64)>,
}

/// One call: writes with one time.
#[derive(Clone, Debug)]
pub struct Op {
    pub time: u64,
    pub writes: Vec<(u32, Option<(u32, u64)>)>,
}

#[derive(Clone)]
pub struct Model {
    /// Versions by key, oldest first.
    base: Vec<Vec<Ver>>,
    window: Vec<Op>,
    written: usize,
    pub keep: usize,
    pub last_time: u64,
    pub clock: u64,
    /// The latest time that the clock ever had.
    pub high_clock: u64,
    /// Whether there was a write since the last recovery: only then is the store's last time known,
    /// and the clock may go back.
    pub settled: bool,
}

/// The key of a number: short ones, some of several hundred bytes, one longer than a page.
pub fn key(number: u32) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    let pad = match number % 40 {
        7 => 300,
        13 => 1000,
        29 => 5000,
        other => other as usize % 5,
    };
    key.resize(4 + pad, b'.');
    key
}

/// The number of this key.
pub fn number(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
    (key(number) == bytes).then_some(number)
}

/// The value of a key that was written at a time.
pub fn value(key: u32, time: u64, len: u32) -> Vec<u8> {
    let word = (time ^ u64::from(key) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = Vec::with_capacity(len as usize + 8);
    let mut next = word;
    while value.len() < len as usize {
        value.extend_from_slice(&next.to_le_bytes());
        next = next.wrapping_add(word);
    }
    value.truncate(len as usize);
    value
}

impl Model {
    pub fn new(keys: u32, keep: usize) -> Model {
        Model {
            base: vec![Vec::new(); keys as usize],
            window: Vec::new(),
            written: 0,
            keep,
            last_time: 0,
            clock: 1_700_000_000 * SECOND,
            high_clock: 1_700_000_000 * SECOND,
            settled: true,
        }
    }

    pub fn keys(&self) -> u32 {
        self.base.len() as u32
    }

    pub fn set_clock(&mut self, clock: u64) {
        self.clock = clock;
        self.high_clock = self.high_clock.max(clock);
    }

    /// A call is about to be made; returns the time that its writes will have.
    pub fn begin(&mut self, writes: Vec<(u32, Option<(u32, u64)>)>) -> u64 {
        let time = self.clock.max(self.last_time + 1);
        self.window.push(Op { time, writes });
        self.settled = true;
        self.last_time = time;
        time
    }

    /// Everything so far survives the death of the process.
    pub fn all_written(&mut self) {
        self.written = self.window.len();
    }

    /// The power failed: writes that were not flushed may be lost.
    pub fn power_failed(&mut self) {
        self.written = 0;
    }

    /// Everything so far survives any crash.
    pub fn all_durable(&mut self) {
        for op in std::mem::take(&mut self.window) {
            apply(&mut self.base, &op);
        }
        self.written = 0;
    }

    /// Every version of every key at this time.
    pub fn now(&self) -> Vec<Vec<Ver>> {
        let mut state = self.base.clone();
        for op in &self.window {
            apply(&mut state, op);
        }
        state
    }

    /// Goes back to the recovered state: the first `cut` calls of the window. `durable`: no crash
    /// can take them any more.
    pub fn recovered(&mut self, cut: usize, durable: bool) {
        self.window.truncate(cut);
        self.written = cut;
        if durable {
            self.all_durable();
        }
        // Times of lost writes are not reused, so that a time identifies one write.
        self.set_clock(self.clock.max(self.last_time + 1));
        self.settled = false;
    }

    /// Whether the store has the state after some number of calls, at least as many as certainly
    /// survive; returns the number within the window.
    pub fn check(&self, store: &Store, after_kill: bool, full: bool) -> Result<usize, String> {
        let found = self.found(store)?;
        let first = if after_kill { self.written } else { 0 };
        let mut state = self.base.clone();
        for op in &self.window[..first] {
            apply(&mut state, op);
        }
        let mut wrong: BTreeSet<u32> = (0..self.keys())
            .filter(|&key| !self.agrees(&state[key as usize], &found[key as usize]))
            .collect();
        let mut cut = first;
        while !wrong.is_empty() {
            let Some(op) = self.window.get(cut) else {
                let key = *wrong.first().expect("not empty");
                return Err(format!(
                    "no cut fits: base, {} calls, {} of them written; {} keys differ, the first {key}: found {:?}, of {:?}",
                    self.window.len(),
                    self.written,
                    wrong.len(),
                    found[key as usize],
                    tail(&state[key as usize]),
                ));
            };
            apply(&mut state, op);
            cut += 1;
            self.renew(&mut wrong, op, &state, &found);
        }
        // If calls changed nothing that a scan shows, one of the cuts fits.
        loop {
            let wrong = self.check_gets(store, &state, full);
            let next = self.window.get(cut).map(|op| {
                let mut next = state.clone();
                apply(&mut next, op);
                (op, next)
            });
            match next {
                Some((op, next))
                    if op.writes.iter().all(|(key, _)| {
                        self.agrees(&next[*key as usize], &found[*key as usize])
                    }) =>
                {
                    // The last of them is taken, unless only an earlier one fits.
                    if wrong.is_ok()
                        && self.keep > 1
                        && self.check_gets(store, &next, full).is_err()
                    {
                        return Ok(cut);
                    }
                    state = next;
                    cut += 1;
                }
                // A key may appear and disappear between two cuts with the same result, for example
                // if it is put and deleted.
                Some(_) if wrong.is_err() => match self.next_fit(&state, cut, &found) {
                    Some((further, next)) => (state, cut) = (next, further),
                    None => return wrong.map(|()| cut),
                },
                _ => return wrong.map(|()| cut),
            }
        }
    }

    /// Which keys of a call differ in the state after it.
    fn renew(&self, wrong: &mut BTreeSet<u32>, op: &Op, state: &[Vec<Ver>], found: &[Option<u64>]) {
        for &(key, _) in &op.writes {
            if self.agrees(&state[key as usize], &found[key as usize]) {
                wrong.remove(&key);
            } else {
                wrong.insert(key);
            }
        }
    }

    /// The next cut after `cut` that has what was found, and the state there.
    fn next_fit(
        &self,
        state: &[Vec<Ver>],
        cut: usize,
        found: &[Option<u64>],
    ) -> Option<(usize, Vec<Vec<Ver>>)> {
        let mut state = state.to_vec();
        let mut wrong = BTreeSet::new();
        for (nth, op) in self.window.iter().enumerate().skip(cut) {
            apply(&mut state, op);
            self.renew(&mut wrong, op, &state, found);
            if wrong.is_empty() {
                return Some((nth + 1, state));
            }
        }
        None
    }

    /// The newest version of each key that a scan returns.
    fn found(&self, store: &Store) -> Result<Vec<Option<u64>>, String> {
        let mut found = vec![None; self.base.len()];
        for entry in store.scan().map_err(|error| format!("scan: {error}"))? {
            let entry = entry.map_err(|error| format!("scan: {error}"))?;
            let number = self.check_entry(&entry)?;
            if found[number as usize].replace(entry.time).is_some() {
                return Err(format!("the scan has key {number} twice"));
            }
        }
        Ok(found)
    }

    /// Whether an entry was ever written in this form.
    fn check_entry(&self, entry: &Entry) -> Result<u32, String> {
        let number = number(&entry.key)
            .filter(|&number| number < self.keys())
            .ok_or_else(|| format!("a key that was never written: {:?}", entry.key))?;
        check_bytes(entry, number, self.version(number, entry.time))
    }

    fn version(&self, key: u32, time: u64) -> Option<Ver> {
        let old = self.base[key as usize].iter().rev();
        if let Some(ver) = old.clone().find(|ver| ver.time == time) {
            return Some(*ver);
        }
        let op = self.window.iter().find(|op| op.time == time)?;
        let (_, value) = op.writes.iter().rev().find(|(at, _)| *at == key)?;
        Some(Ver {
            time,
            value: *value,
        })
    }

    /// The expected result for a key with these versions; `Err`: either this or nothing.
    fn expected(&self, versions: &[Ver]) -> Result<Option<u64>, u64> {
        let Some(top) = versions.last() else {
            return Ok(None);
        };
        match top.value {
            None => Ok(None),
            Some((_, 0)) => Ok(Some(top.time)),
            Some((_, expiry)) if expiry > self.high_clock / SECOND => Ok(Some(top.time)),
            Some((_, expiry)) if expiry <= self.clock / SECOND => Ok(None),
            // The clock went back; the value may have been dropped before.
            Some(_) => Err(top.time),
        }
    }

    fn agrees(&self, versions: &[Ver], found: &Option<u64>) -> bool {
        match self.expected(versions) {
            Ok(expected) => expected == *found,
            Err(either) => found.is_none_or(|found| found == either),
        }
    }

    /// Whether gets agree with the state.
    fn check_gets(&self, store: &Store, state: &[Vec<Ver>], full: bool) -> Result<(), String> {
        let step = if full { 1 } else { 7 };
        let first = if full { 0 } else { self.last_time % 7 } as u32;
        let numbers: Vec<u32> = (first..self.keys()).step_by(step).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for ((&number, got), key) in numbers.iter().zip(store.multi_get(&asked)).zip(&keys) {
            let versions = &state[number as usize];
            let got = got.map_err(|error| format!("multi_get of key {number}: {error}"))?;
            self.check_value(number, versions, got.as_deref())
                .map_err(|what| format!("multi_get: {what}"))?;
            if !full && number % 4 != 0 {
                continue;
            }
            let entry = store
                .get_entry(key)
                .map_err(|error| format!("get of key {number}: {error}"))?;
            if let Some(entry) = &entry {
                self.check_entry(entry)?;
            }
            if !self.agrees(versions, &entry.as_ref().map(|entry| entry.time)) {
                let found = entry.map(|entry| entry.time);
                return Err(format!(
                    "get: key {number} is {found:?}, of {:?}",
                    tail(versions)
                ));
            }
            if self.keep > 1 || full {
                self.check_history(store, number, versions)?;
            }
        }
        Ok(())
    }

    /// Whether a get of an open store returns the last write.
    pub fn check_get(&self, store: &Store, number: u32) -> Result<(), String> {
        let mut state = vec![Vec::new(); self.base.len()];
        state[number as usize].clone_from(&self.base[number as usize]);
        for op in &self.window {
            apply(&mut state, op);
        }
        let got = store
            .get(&key(number))
            .map_err(|error| format!("get of key {number}: {error}"))?;
        self.check_value(number, &state[number as usize], got.as_deref())
            .map_err(|what| format!("get: {what}"))
    }

    fn check_value(&self, number: u32, versions: &[Ver], got: Option<&[u8]>) -> Result<(), String> {
        let made = |time| {
            let ver = versions.iter().find(|ver| ver.time == time)?;
            Some(value(number, time, ver.value?.0))
        };
        let fits = match self.expected(versions) {
            Ok(expected) => expected.and_then(made).as_deref() == got,
            Err(either) => got.is_none() || made(either).as_deref() == got,
        };
        if fits {
            return Ok(());
        }
        Err(format!(
            "key {number}: {:?} bytes, of {:?}",
            got.map(<[u8]>::len),
            tail(versions)
        ))
    }

    /// The expected newest versions of a key, including deletions and expired versions, without
    /// those at the old end.
    fn shape(&self, versions: impl Iterator<Item = (u64, Option<u64>)>) -> Vec<(u64, bool)> {
        let high = self.high_clock / SECOND;
        let mut shape: Vec<(u64, bool)> = versions
            .map(|(time, expiry)| {
                (
                    time,
                    expiry.is_some_and(|expiry| expiry == 0 || expiry > high),
                )
            })
            .take(self.keep)
            .collect();
        while shape.last().is_some_and(|(_, alive)| !alive) {
            shape.pop();
        }
        shape
    }

    fn check_history(&self, store: &Store, number: u32, versions: &[Ver]) -> Result<(), String> {
        let bytes = key(number);
        let history: Vec<KeyVersion> = store
            .history(&bytes)
            .map_err(|error| format!("history of key {number}: {error}"))?;
        for found in &history {
            if let Some(value) = &found.value {
                self.check_entry(&Entry {
                    key: bytes.clone(),
                    value: value.clone(),
                    time: found.time,
                    expires_at: found.expires_at,
                })?;
            }
        }
        let newest = versions.iter().rev();
        let expected =
            self.shape(newest.map(|ver| (ver.time, ver.value.map(|(_, expiry)| expiry))));
        let found = self.shape(
            history
                .iter()
                .map(|found| (found.time, found.value.as_ref().map(|_| found.expires_at))),
        );
        if history.len() > self.keep || expected != found {
            return Err(format!(
                "the history of key {number} is {found:?}, not {expected:?}"
            ));
        }
        self.check_get_at(store, number, versions)
    }

    /// A kept version is found at its times; older ones are there unchanged, or not at all.
    fn check_get_at(&self, store: &Store, number: u32, versions: &[Ver]) -> Result<(), String> {
        let bytes = key(number);
        let high = self.high_clock / SECOND;
        let newest = versions.len().saturating_sub(self.keep);
        for nth in versions.len().saturating_sub(self.keep + 2)..versions.len() {
            let ver = versions[nth];
            let next = versions.get(nth + 1).map_or(ver.time + 5, |next| next.time);
            for at in [ver.time, next - 1] {
                let got = store
                    .get_at(&bytes, at)
                    .map_err(|error| format!("key {number} at {at}: {error}"))?;
                let right = ver.value.map(|(len, _)| value(number, ver.time, len));
                let sure = nth >= newest
                    && ver
                        .value
                        .is_none_or(|(_, expiry)| expiry == 0 || expiry > high);
                let fits = got.as_deref() == right.as_deref() || (got.is_none() && !sure);
                if !fits {
                    return Err(format!(
                        "key {number} at {at}: {:?} bytes, not those of {ver:?}, of {:?}",
                        got.map(|got| got.len()),
                        tail(versions)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a snapshot that was taken at the time of `state` still shows it.
    pub fn check_snapshot(
        &self,
        snapshot: &senko_store::Snapshot,
        state: &[Vec<Ver>],
    ) -> Result<(), String> {
        let mut scanned = BTreeMap::new();
        let entries = snapshot
            .scan()
            .map_err(|error| format!("snapshot scan: {error}"))?;
        for entry in entries {
            let entry = match entry {
                Err(StoreError::SnapshotExpired) => return Ok(()),
                other => other.map_err(|error| format!("snapshot scan: {error}"))?,
            };
            let number = number(&entry.key).ok_or("a snapshot has a key that was never written")?;
            let written = state[number as usize]
                .iter()
                .find(|ver| ver.time == entry.time);
            scanned.insert(check_bytes(&entry, number, written.copied())?, entry.time);
        }
        for (number, versions) in state.iter().enumerate() {
            if versions
                .iter()
                .any(|ver| ver.value.is_some_and(|(_, expiry)| expiry > 0))
            {
                // Another test checks whether it had expired then.
                continue;
            }
            let bytes = key(number as u32);
            let entry = match snapshot.get_entry(&bytes) {
                Err(StoreError::SnapshotExpired) => return Ok(()),
                other => other.map_err(|error| format!("snapshot get: {error}"))?,
            };
            let found = entry.as_ref().map(|entry| entry.time);
            if let Some(entry) = &entry {
                let written = versions.iter().find(|ver| ver.time == entry.time);
                check_bytes(entry, number as u32, written.copied())?;
            }
            let expected = versions.last().filter(|ver| ver.value.is_some());
            let expected = expected.map(|ver| ver.time);
            if found != expected || scanned.get(&(number as u32)).copied() != expected {
                return Err(format!(
                    "the snapshot of {} shows key {number} as {found:?}, its scan as {:?}; it was {expected:?}",
                    snapshot.time(),
                    scanned.get(&(number as u32)),
                ));
            }
        }
        Ok(())
    }
}

/// Whether an entry has the bytes that were written at its time.
fn check_bytes(entry: &Entry, number: u32, written: Option<Ver>) -> Result<u32, String> {
    let fits = written.is_some_and(|ver| {
        ver.value.is_some_and(|(len, expiry)| {
            entry.expires_at == expiry && *value(number, ver.time, len) == *entry.value
        })
    });
    if fits {
        return Ok(number);
    }
    Err(format!(
        "key {number} at {}, expiring {}, has {} bytes that were never written so: {written:?}",
        entry.time,
        entry.expires_at,
        entry.value.len()
    ))
}

/// Versions of a key that the model remembers.
const REMEMBERED: usize = 48;

fn apply(state: &mut [Vec<Ver>], op: &Op) {
    for (key, value) in &op.writes {
        let versions = &mut state[*key as usize];
        // The last write of a batch to a key counts.
        if versions.last().is_some_and(|last| last.time == op.time) {
            versions.pop();
        }
        versions.push(Ver {
            time: op.time,
            value: *value,
        });
        if versions.len() > REMEMBERED {
            versions.drain(..REMEMBERED / 2);
        }
    }
}

fn tail(versions: &[Ver]) -> &[Ver] {
    &versions[versions.len().saturating_sub(4)..]
}
