// SPDX-License-Identifier: Apache-2.0
//! The request streams for comparing the policies: real traces, and two synthetic ones.
//!
//! Objects are renumbered densely in order of appearance, once, so that the many simulations of a
//! stream need no hashing.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use senko_workload::rng::mix64;
use senko_workload::trace::{Record, TraceError, TraceOp, TraceReader};
use senko_workload::{KeyChooser, KeyShape, KeySpace, Popularity, Rng, ValueLen};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Looks an object up; if it is missing, it is stored.
    Get,
    /// Looks an object up, and the next request for it is a set. If the object is missing, that set
    /// stores it, so it is written once.
    GetThenSet,
    /// Stores an object.
    Set,
    /// Removes an object.
    Delete,
}

/// A request stream, in memory.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The object number of each request.
    pub objects: Vec<u32>,
    /// The size of each object in bytes, header included; `None` where the trace has no sizes.
    pub sizes: Option<Vec<u64>>,
    /// What each request does. Empty: all look up.
    pub acts: Vec<Act>,
    /// All requests of the stream. It has more than `objects` if it was too long for memory.
    pub all: f64,
    /// The look-ups among all.
    pub lookups: f64,
    /// The share of objects whose requests were kept.
    pub share: f64,
}

impl Requests {
    /// A stream of look-ups.
    pub fn of_lookups(objects: Vec<u32>, sizes: Option<Vec<u64>>) -> Requests {
        let all = objects.len() as f64;
        Requests {
            objects,
            sizes,
            acts: Vec::new(),
            all,
            lookups: all,
            share: 1.0,
        }
    }

    /// What request number `nth` does.
    pub fn act(&self, nth: usize) -> Act {
        self.acts.get(nth).copied().unwrap_or(Act::Get)
    }

    /// The number of different objects.
    pub fn footprint_objects(&self) -> usize {
        self.objects
            .iter()
            .max()
            .map_or(0, |&largest| largest as usize + 1)
    }

    /// The bytes of all objects.
    pub fn footprint_bytes(&self) -> Option<u64> {
        self.sizes.as_ref().map(|sizes| sizes.iter().sum())
    }
}

/// Numbers objects in order of appearance.
#[derive(Default)]
struct Numbering {
    numbers: HashMap<u64, u32>,
}

impl Numbering {
    /// The object's number, and whether it appears for the first time.
    fn number(&mut self, key: u64) -> Result<(u32, bool)> {
        let next = self.numbers.len();
        let number = *self.numbers.entry(key).or_insert(next as u32);
        ensure!(next < u32::MAX as usize, "more than 2^32 different objects");
        Ok((number, self.numbers.len() > next))
    }
}

/// The most requests and objects that are kept of a trace. A longer one is sampled by the hash of
/// its keys, so that a small compressed file cannot take all memory.
const MOST_KEPT: (usize, usize) = (1 << 25, 1 << 22);

/// A trace while it is read.
struct Reading {
    most: (usize, usize),
    numbering: Numbering,
    /// Only keys whose hash is at most this are kept.
    limit: u64,
    /// By object number.
    keys: Vec<u64>,
    sizes: Vec<Option<u64>>,
    objects: Vec<u32>,
    acts: Vec<Act>,
    all: u64,
    lookups: u64,
}

impl Reading {
    fn add(&mut self, record: &Record) -> Result<()> {
        self.all += 1;
        self.lookups += u64::from(record.op == TraceOp::Get);
        if mix64(record.key) > self.limit {
            return Ok(());
        }
        let (number, is_new) = self.numbering.number(record.key)?;
        if is_new {
            self.keys.push(record.key);
            self.sizes.push(None);
        }
        let size = &mut self.sizes[number as usize];
        // A get of an absent key has the size 0 in some traces, as in memcached's own log.
        let told = |bytes: &u64| *bytes > 0 || record.op == TraceOp::Set;
        *size = size.or(record.size.filter(told));
        self.objects.push(number);
        self.acts.push(match record.op {
            TraceOp::Get => Act::Get,
            TraceOp::Set => Act::Set,
            TraceOp::Delete => Act::Delete,
        });
        while self.objects.len() > self.most.0 || self.keys.len() > self.most.1 {
            self.halve()?;
        }
        Ok(())
    }

    /// Drops half of the keys.
    fn halve(&mut self) -> Result<()> {
        self.limit /= 2;
        let keys = std::mem::take(&mut self.keys);
        let sizes = std::mem::take(&mut self.sizes);
        self.numbering = Numbering::default();
        let mut renamed = Vec::with_capacity(keys.len());
        for (key, size) in keys.into_iter().zip(sizes) {
            let kept = mix64(key) <= self.limit;
            renamed.push(kept.then_some(self.keys.len() as u32));
            if kept {
                self.numbering.number(key)?;
                self.keys.push(key);
                self.sizes.push(size);
            }
        }
        let (objects, acts) = (
            std::mem::take(&mut self.objects),
            std::mem::take(&mut self.acts),
        );
        for (object, act) in objects.into_iter().zip(acts) {
            if let Some(object) = renamed[object as usize] {
                self.objects.push(object);
                self.acts.push(act);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Requests {
        if self.acts.iter().all(|act| *act == Act::Get) {
            self.acts.clear();
        }
        let mut next_is_set = vec![
            false;
            if self.acts.is_empty() {
                0
            } else {
                self.keys.len()
            }
        ];
        for (object, act) in self.objects.iter().zip(&mut self.acts).rev() {
            let next = &mut next_is_set[*object as usize];
            if *act == Act::Get && *next {
                *act = Act::GetThenSet;
            }
            *next = *act == Act::Set;
        }
        // An object that was never stored has no size: as large as the others on average.
        let known: Vec<u64> = self.sizes.iter().flatten().copied().collect();
        let mean = known.iter().sum::<u64>() / (known.len() as u64).max(1);
        let sizes = self.sizes.iter().map(|size| size.unwrap_or(mean)).collect();
        Requests {
            objects: self.objects,
            sizes: (!known.is_empty()).then_some(sizes),
            acts: self.acts,
            all: self.all as f64,
            lookups: self.lookups as f64,
            share: (self.limit as f64 / u64::MAX as f64).min(1.0),
        }
    }
}

/// Reads a trace. An object keeps its first known size.
///
/// # Errors
/// If the file cannot be opened, is not a readable trace, or has no look-ups.
pub fn from_trace(path: &Path) -> Result<Requests> {
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    let named = || path.display().to_string();
    read(TraceReader::open(file).with_context(named)?, MOST_KEPT).with_context(named)
}

/// Reads a trace, of which at most so many requests and objects are kept.
fn read(
    records: impl Iterator<Item = Result<Record, TraceError>>,
    most: (usize, usize),
) -> Result<Requests> {
    let mut reading = Reading {
        most,
        numbering: Numbering::default(),
        limit: u64::MAX,
        keys: Vec::new(),
        sizes: Vec::new(),
        objects: Vec::new(),
        acts: Vec::new(),
        all: 0,
        lookups: 0,
    };
    for record in records {
        reading.add(&record?)?;
    }
    ensure!(reading.all > 0, "it holds no requests");
    ensure!(
        reading.lookups > 0,
        "it holds no gets, so there is nothing to find"
    );
    Ok(reading.finish())
}

/// Draws `requests` requests over `keys` keys of Zipf's law; with Facebook's ETC sizes plus
/// `header_bytes`, or without sizes.
///
/// # Errors
/// If the law refuses its parameters.
pub fn zipf(
    s: f64,
    keys: u64,
    requests: usize,
    etc_header_bytes: Option<u64>,
    seed: u64,
) -> Result<Requests> {
    let mut chooser = KeyChooser::new(&Popularity::Zipf { s, scrambled: true }, keys)?;
    let key_space = KeySpace::new("", KeyShape::Etc, keys)?;
    let value_len = ValueLen::Etc {
        cap: ValueLen::ETC_CAP,
    };
    let mut rng = Rng::new(seed);
    let mut numbering = Numbering::default();
    let mut objects = Vec::with_capacity(requests);
    let mut sizes = etc_header_bytes.map(|_| Vec::new());
    for _ in 0..requests {
        let key_id = chooser.next_key(&mut rng);
        let (number, is_new) = numbering.number(key_id)?;
        objects.push(number);
        if let (true, Some(sizes), Some(header)) = (is_new, &mut sizes, etc_header_bytes) {
            sizes.push(header + (key_space.key_len(key_id) + value_len.len_of(key_id, 0)) as u64);
        }
    }
    Ok(Requests::of_lookups(objects, sizes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(text: &str) -> Requests {
        read(TraceReader::open(text.as_bytes()).unwrap(), MOST_KEPT).unwrap()
    }

    /// A get without a size took the sizes of the whole trace away, sets counted as look-ups, and
    /// deletes were left out.
    #[test]
    fn gets_sets_and_deletes_are_told_apart() {
        let requests = of("a,get,\na,set,100\nb,get,30\na,get,\na,delete,\nc,get,\n");
        use Act::{Delete, Get, GetThenSet, Set};
        assert_eq!(requests.acts, [GetThenSet, Set, Get, Get, Delete, Get]);
        assert_eq!(requests.objects, [0, 0, 1, 0, 0, 2]);
        assert_eq!(requests.sizes, Some(vec![100, 30, 65]));
        assert_eq!((requests.all, requests.lookups), (6.0, 4.0));
        assert!(of("a,get,1\nb,get,2\n").acts.is_empty());
        // Misses of memcached's log made a plan for items of 0 bytes.
        let missed = of("a,get,0\na,set,1000\nb,get,0\nb,set,0\na,get,1000\n");
        assert_eq!(missed.sizes, Some(vec![1000, 0]));
        let sets = TraceReader::open(&b"a,set,1\nb,set,2\n"[..]).unwrap();
        let told = read(sets, MOST_KEPT).unwrap_err().to_string();
        assert!(told.contains("no gets"), "{told}");
    }

    /// A gzip file of 400 KB and a `.lis` file of one line took all memory.
    #[test]
    fn what_is_kept_has_a_bound() {
        let record = |key: u64| Record {
            key,
            size: None,
            op: TraceOp::Get,
        };
        let records = (0..300_000u64).map(|nth| Ok(record(nth % 100_000)));
        let requests = read(records, (50_000, 10_000)).unwrap();
        assert_eq!((requests.all, requests.lookups), (3e5, 3e5));
        let objects = requests.footprint_objects();
        assert!(requests.objects.len() <= 50_000 && objects <= 10_000);
        // Each kept object has all its requests.
        assert_eq!(requests.objects.len(), 3 * objects);
        assert!((objects as f64 / requests.share / 1e5 - 1.0).abs() < 0.05);
    }
}
