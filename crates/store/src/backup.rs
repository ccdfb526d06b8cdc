// SPDX-License-Identifier: Apache-2.0
//! A copy of the store while it is used: a snapshot, written into a store of its own as sorted blocks.
//!
//! The copy has the store's secret, so the snapshot's elements already come in the order of its blocks: each is written once, and no log is
//! needed. Of each key the versions that are kept are copied; what is dead, deleted or expired is not, where one version is kept.

use std::path::Path;
use std::sync::Arc;

use senko_io::{FileOptions, FlashFile, Purpose};

use crate::core::Core;
use crate::element::{Element, ExtentRef, LARGE, TOMBSTONE};
use crate::scan::{Merge, Merged};
use crate::seal::{Output, Versions};
use crate::snapshot::Snapshot;
use crate::space::Held;
use crate::{Options, StoreError};

/// Elements between two calls of the progress.
const PROGRESS: u64 = 4096;

/// What a backup copied.
///
/// ```
/// # let store = senko_store::example::store();
/// # let copy = std::env::temp_dir().join(format!("senko-doc-report-{}", std::process::id()));
/// # let _ = std::fs::remove_file(&copy);
/// let time = store.put(b"colour", b"green")?;
/// let report = store.backup(&copy, |_| ())?;
/// assert_eq!((report.elements, report.bytes, report.time), (1, 11, time));
/// # std::fs::remove_file(&copy).unwrap();
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Elements written.
    pub elements: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The moment that the copy shows: microseconds since 1970.
    pub time: u64,
}

/// Writes elements that come in order into an empty store.
pub(crate) struct Copy<'c> {
    to: &'c Core,
    output: Output<'c>,
    /// Extents that no block holds yet.
    large: Vec<Arc<Held>>,
    pub report: BackupReport,
}

impl<'c> Copy<'c> {
    pub fn new(to: &'c Core) -> Copy<'c> {
        Copy {
            to,
            output: Copy::output(to),
            large: Vec::new(),
            report: BackupReport::default(),
        }
    }

    /// For as much as a block takes.
    fn output(to: &'c Core) -> Output<'c> {
        let bytes = to.options.block_bytes;
        Output::new(to, Purpose::Admit, bytes / 64, bytes)
    }

    /// Adds an element; `large` is its value where that lies in an extent of its own.
    pub fn push(&mut self, merged: &Merged, large: Option<&[u8]>) -> Result<(), StoreError> {
        let reference;
        let value = match large {
            None => &merged.found.value[..],
            Some(value) => {
                let held = self.to.allocate(value.len() as u64)?;
                let place = crate::read::write_large(&self.to.device, &held, value)?;
                self.large.push(self.to.register_large(held));
                reference = place.encode();
                &reference[..]
            }
        };
        let element = Element {
            flags: merged.found.flags,
            key: &merged.key,
            value,
            time: merged.found.time,
            expiry: merged.found.expiry,
        };
        self.output.push(merged.hash, &element)?;
        // What a store shows, and the times that it gives, go from its newest element on.
        self.to
            .visible
            .fetch_max(element.time, std::sync::atomic::Ordering::AcqRel);
        self.report.elements += 1;
        self.report.bytes += (merged.key.len() + large.map_or(value.len(), <[u8]>::len)) as u64;
        if self.output.bytes >= self.to.options.block_bytes - self.to.options.block_bytes / 16 {
            self.next_run()?;
        }
        Ok(())
    }

    /// Ends what came in order so far: what comes next may begin anew, as a generation of its own.
    pub fn next_run(&mut self) -> Result<(), StoreError> {
        let full = std::mem::replace(&mut self.output, Copy::output(self.to));
        self.enter(full)
    }

    fn enter(&mut self, output: Output<'c>) -> Result<(), StoreError> {
        if output.elements == 0 {
            return Ok(());
        }
        let change = output.finish()?.change(self.to, Vec::new(), Vec::new())?;
        self.to.replace_blocks(change)?;
        self.large.clear();
        Ok(())
    }

    /// Ends the last block and closes the store.
    pub fn finish(mut self) -> Result<BackupReport, StoreError> {
        self.next_run()?;
        {
            let _working = self.to.map_work.lock();
            self.to.merge(&self.to.generations())?;
        }
        crate::open::close(self.to)?;
        Ok(self.report)
    }
}

/// Makes an empty store of the same shape, with the same secret, in a file that does not exist yet.
pub(crate) fn empty_like(
    shape: crate::superblock::Shape,
    options: &Options,
    to: &Path,
) -> Result<Core, StoreError> {
    if to.exists() {
        let text = format!("{} exists already", to.display());
        return Err(StoreError::Invalid(text));
    }
    let file = FileOptions {
        bytes: crate::options::UNIT_BYTES,
        ..FileOptions::default()
    };
    let file = FlashFile::open(to, &file).map_err(|error| StoreError::Open(Arc::new(error)))?;
    let options = Options {
        background: false,
        read_only: false,
        max_bytes: None,
        recorder: None,
        ..options.clone()
    };
    crate::open::make(Arc::new(file), options, shape)
}

/// Copies what a snapshot shows.
pub(crate) fn backup(
    core: &Core,
    snapshot: &Snapshot,
    to: &Path,
    mut progress: impl FnMut(u64),
) -> Result<BackupReport, StoreError> {
    let shape = core.state.lock().superblock.shape;
    let copy = empty_like(shape, &core.options, to)?;
    let result = fill(core, snapshot, &copy, &mut progress);
    if result.is_err() {
        // Half a copy is of no use to anybody.
        drop(copy);
        let _ = std::fs::remove_file(to);
    }
    result
}

fn fill(
    core: &Core,
    snapshot: &Snapshot,
    to: &Core,
    progress: &mut impl FnMut(u64),
) -> Result<BackupReport, StoreError> {
    let pin = snapshot.pin();
    let mut merge = Merge::new(core, &*pin.version()?, pin.time)?;
    let mut copy = Copy::new(to);
    let mut versions = Versions::default();
    loop {
        // Held for one step, so that what is read is not written over meanwhile.
        let _version = pin.version()?;
        let Some(merged) = merge.next()? else {
            break;
        };
        let nth = versions.next(merged.hash, &merged.key);
        if nth >= core.options.keep_versions {
            continue;
        }
        let gone = merged.found.flags & TOMBSTONE != 0
            || !core.has_value(&merged.found, Some(pin.seconds));
        if gone && core.options.keep_versions == 1 {
            continue;
        }
        let large = match ExtentRef::decode(&merged.found.value) {
            Some(place) if merged.found.flags & LARGE != 0 => {
                Some(crate::read::large(&*core.device, &place)?)
            }
            _ => None,
        };
        copy.push(&merged, large.as_deref())?;
        if copy.report.elements.is_multiple_of(PROGRESS) {
            progress(copy.report.elements);
        }
    }
    progress(copy.report.elements);
    copy.report.time = pin.time;
    copy.finish()
}
