// SPDX-License-Identifier: Apache-2.0
//! The request streams for comparing the policies: real traces, and two synthetic ones.
//!
//! Objects are renumbered densely in order of appearance, once, so that the many simulations of a
//! stream need no hashing.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use senko_workload::trace::{TraceOp, TraceReader};
use senko_workload::{KeyChooser, KeyShape, KeySpace, Popularity, Rng, ValueLen};

/// A request stream, in memory.
pub struct Requests {
    /// The object number of each request.
    pub objects: Vec<u32>,
    /// The size of each object in bytes, header included; `None` where the trace has no sizes.
    pub sizes: Option<Vec<u64>>,
}

impl Requests {
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

/// Reads a trace of lookups. An object keeps the size of its first appearance.
///
/// # Errors
/// If the file cannot be opened or is not a readable trace.
pub fn from_trace(path: &Path) -> Result<Requests> {
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    let reader = TraceReader::open(file).with_context(|| path.display().to_string())?;
    let mut numbering = Numbering::default();
    let mut objects = Vec::new();
    let mut sizes = Some(Vec::new());
    for record in reader {
        let record = record.with_context(|| path.display().to_string())?;
        if record.op == TraceOp::Delete {
            continue;
        }
        let (number, is_new) = numbering.number(record.key)?;
        objects.push(number);
        if is_new {
            match (&mut sizes, record.size) {
                (Some(sizes), Some(size)) => sizes.push(size),
                _ => sizes = None,
            }
        }
    }
    ensure!(!objects.is_empty(), "{} holds no requests", path.display());
    Ok(Requests { objects, sizes })
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
    Ok(Requests { objects, sizes })
}
