// SPDX-License-Identifier: Apache-2.0
//! Saves the intact elements of a damaged store into a new one.
//!
//! Card. Idea: every element has its own key and time, so only the elements are needed. Each block
//! and each log is read page by page, also after damage. Its elements go into the new store as
//! sorted blocks, one generation for each source. The new store's own merges and compaction then
//! decide by time which version of a key is the newest (VERSION-3). So the memory use is that of
//! one run ([`RUN_BYTES`]), whatever the size of the store. The damaged file is only read.
//!
//! ```text
//! superblock and manifest whole -> the blocks and logs that it names
//! either of them lost           -> every page of the file: does a log begin here (its label), is this a block's head (its magic)?
//! ```
//!
//! - Without the manifest it is unknown which blocks and logs were still in use. The repair then
//!   also finds elements that compaction or sealing had dropped, if nothing was written over them.
//!   For a key that still exists, the newest version wins. A deleted key may come back.
//! - Without any copy of the superblock the secret of the hash is lost too. Hashes are computed
//!   again with another secret, so blocks are no longer in order: elements are sorted in runs. The
//!   number of kept versions is lost as well, so only the newest is kept.
//! - If a page is lost, an older version of its keys may take their place, if there is one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::block::{BlockRecord, BlockScan, probe};
use crate::core::Core;
use crate::disk::superblock::{CopyState, LogRecord, OnDevice, Shape, Superblock, copies};
use crate::element::{Element, ExtentRef};
use crate::log::SortedElements;
use crate::store::backup::{Copy, GoOn, Target, check_go_on};
use crate::{Extent, KeyHash, Options, StoreError};

/// Bytes of encoded elements that are sorted in memory at a time.
const RUN_BYTES: usize = 64 << 20;

/// DRAM to read a block ahead.
const READ_AHEAD: usize = 1 << 20;

/// Pages of each read, when the whole file is searched.
const LOOK_PAGES: usize = 256;

/// Gets the bytes read and their total, and says whether the work goes on.
type Progress<'p> = dyn FnMut(u64, u64) -> Result<(), StoreError> + 'p;

const RECOVER: Tag = Tag::store(Purpose::Recover);

/// A part of the damaged store that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Byte in the damaged file.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The former content of this place, if known.
    pub what: String,
}

/// The saved and the lost elements of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Intact elements that were read, including old versions and deletions.
    pub salvaged: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Logs that were read.
    pub logs: u64,
    /// The losses, in the order of their offsets in the file.
    pub lost: Vec<Loss>,
    /// The list of blocks and logs was lost, so deleted keys may have come back.
    pub manifest_lost: bool,
    /// The superblock was lost, and with it the store's settings.
    pub secret_lost: bool,
}

impl RepairReport {
    /// All bytes that are lost.
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|loss| loss.bytes).sum()
    }

    fn lose(&mut self, offset: u64, bytes: u64, what: impl Into<String>) {
        self.lost.push(Loss {
            offset,
            bytes,
            what: what.into(),
        });
    }
}

/// Saves every intact element of the store at `from` into a new store at `to`, which must not
/// exist. The new store is named `TO.part` until it is complete, and removed after a failure.
/// `progress` gets the bytes read and their total, which may still grow. It may stop the work
/// ([`GoOn`]).
///
/// ```
/// # use senko_store::{Options, Store};
/// # let folder = std::env::temp_dir().join(format!("senko-doc-repair-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let (path, saved) = (folder.join("kv"), folder.join("saved"));
/// # let store = Store::open(&path, Options { block_bytes: 1 << 20, ..Options::default() })?;
/// # store.put(b"key", b"value")?;
/// # store.close()?;
/// let report = senko_store::repair(&path, &saved, |_, _| ())?;
/// println!("{} elements saved, {} bytes lost", report.salvaged, report.lost_bytes());
/// let store = Store::open(&saved, Options::default())?;
/// assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # store.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), senko_store::StoreError>(())
/// ```
///
/// # Errors
/// The file does not exist, a later version wrote it, nothing is found in it, or there is no space
/// for the new store.
pub fn repair<G: GoOn>(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    progress: impl FnMut(u64, u64) -> G,
) -> Result<RepairReport, StoreError> {
    let device = crate::store::verify::open_file(from.as_ref())?;
    repair_device(device, to, progress)
}

/// As [`repair`], from a device.
///
/// # Errors
/// As [`repair`].
pub fn repair_device<G: GoOn>(
    from: Arc<dyn Device>,
    to: impl AsRef<Path>,
    mut progress: impl FnMut(u64, u64) -> G,
) -> Result<RepairReport, StoreError> {
    let to = to.as_ref();
    // As it was before all of it is read.
    if to.symlink_metadata().is_ok() {
        let text = format!("{} exists already", to.display());
        return Err(StoreError::Invalid(text));
    }
    let mut progress = |done, total| check_go_on(progress(done, total));
    let mut report = RepairReport::default();
    let sources = Sources::find(&*from, &mut report, &mut progress)?;
    let shape = match sources.shape {
        Some(shape) => shape,
        None => sources.guess_shape()?,
    };
    let target = Target::make(shape, &Options::default(), to)?;
    let repair = Repair {
        from,
        to: &target.core,
        report,
    };
    // Pages that cannot be read are counted as losses. So any error comes from the new store.
    let report = repair
        .run(&sources, &mut progress)
        .map_err(|error| target.told(error))?;
    target.finish()?;
    Ok(report)
}

/// A part of the device with elements.
#[derive(Default)]
struct Sources {
    shape: Option<Shape>,
    /// The sources, oldest first as far as that is known.
    blocks: Vec<BlockRecord>,
    logs: Vec<LogRecord>,
    /// Bytes that were read to find them.
    looked: u64,
}

impl Sources {
    fn find(
        device: &dyn Device,
        report: &mut RepairReport,
        progress: &mut Progress<'_>,
    ) -> Result<Sources, StoreError> {
        let mut sources = Sources::default();
        match Superblock::find(device) {
            Ok(OnDevice::Store(superblock, manifest)) => {
                sources.shape = Some(superblock.shape);
                sources.blocks = manifest.blocks.iter().map(|(record, _)| *record).collect();
                sources.logs = manifest.logs;
            }
            Err(error @ StoreError::NewerVersion { .. }) => return Err(error),
            other => {
                // If opening fails for any reason, the whole file is searched. The error of the
                // opening is returned only if nothing is found.
                let (states, shape) = copies(device);
                sources.shape = shape;
                report.manifest_lost = true;
                report.secret_lost = shape.is_none();
                for (page, state) in states {
                    if state == CopyState::Broken {
                        let offset = page * PAGE_SIZE as u64;
                        report.lose(offset, PAGE_SIZE as u64, "a copy of the superblock");
                    }
                }
                if let (Some(_), Err(StoreError::Damaged { what, offset })) = (shape, &other) {
                    report.lose(*offset, PAGE_SIZE as u64, what.as_str());
                }
                sources.look(device, progress)?;
                if sources.blocks.is_empty() && sources.logs.is_empty() && shape.is_none() {
                    return Err(other.err().unwrap_or_else(|| {
                        StoreError::Foreign("there is no block and no log in it".to_owned())
                    }));
                }
            }
        }
        sources
            .blocks
            .sort_by_key(|record| (record.max_time, record.id));
        sources.logs.sort_by_key(|log| log.id);
        Ok(sources)
    }

    /// Searches every page of the device.
    fn look(&mut self, device: &dyn Device, progress: &mut Progress<'_>) -> Result<(), StoreError> {
        let pages = device.pages();
        let total = pages * PAGE_SIZE as u64;
        let mut buf = AlignedBuf::new(LOOK_PAGES);
        let mut blocks = BTreeMap::new();
        let mut logs = BTreeMap::new();
        let mut first = 0;
        while first < pages {
            let count = (pages - first).min(LOOK_PAGES as u64) as usize;
            let bytes = &mut buf[..count * PAGE_SIZE];
            let whole = device.read(first, bytes, RECOVER).is_ok();
            for (nth, page) in (first..).zip(bytes.chunks_mut(PAGE_SIZE)) {
                // If a read of many pages fails, read them one by one, and keep the readable ones.
                if !whole && device.read(nth, page, RECOVER).is_err() {
                    continue;
                }
                if let Some(record) = probe(page)
                    && record.head() == nth
                    && record.extent.end() <= pages
                {
                    // An earlier block at this place may have been longer, so its head may still
                    // lie after the new block.
                    blocks.insert(record.id, record);
                }
                if let Some((id, extent)) = crate::log::read_label(page)
                    && extent.first == nth
                    && extent.first.saturating_add(extent.pages.into()) <= pages
                {
                    let pages = 0;
                    logs.insert(id, LogRecord { id, extent, pages });
                }
            }
            first += count as u64;
            progress(first * PAGE_SIZE as u64, total)?;
        }
        self.looked = total;
        self.blocks = blocks.into_values().collect();
        self.logs = logs.into_values().collect();
        Ok(())
    }

    /// Settings for a store whose own settings are lost: large enough for everything that was
    /// found.
    fn guess_shape(&self) -> Result<Shape, StoreError> {
        let sizes = 1 << 20..=1_u64 << 30;
        let default = Options::default();
        let extents = self.blocks.iter().map(|record| record.extent);
        let block_bytes = extents
            .chain(self.logs.iter().map(|log| log.extent))
            .map(Extent::bytes)
            .max()
            .unwrap_or(0)
            .clamp(default.block_bytes.min(*sizes.end()), *sizes.end());
        let pages = self.blocks.iter().map(|record| record.page_bytes as usize);
        let options = Options {
            block_bytes: block_bytes.next_multiple_of(crate::extent::UNIT_BYTES),
            page_bytes: pages.max().unwrap_or(default.page_bytes),
            ..default
        };
        Ok(Shape::of(&options.checked()?, crate::open::secret()?))
    }

    fn bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|record| record.extent.bytes());
        let logs = self.logs.iter().map(|log| log.extent.bytes());
        blocks.chain(logs).sum()
    }
}

struct Repair<'c> {
    from: Arc<dyn Device>,
    to: &'c Core,
    report: RepairReport,
}

impl Repair<'_> {
    fn run(
        mut self,
        sources: &Sources,
        progress: &mut Progress<'_>,
    ) -> Result<RepairReport, StoreError> {
        let mut copy = Copy::new(self.to);
        let total = sources.looked + sources.bytes();
        let mut done = sources.looked;
        for record in &sources.blocks {
            self.block(record, &mut copy)?;
            self.merge_some()?;
            done += record.extent.bytes();
            progress(done, total)?;
        }
        for log in &sources.logs {
            self.log(log, &mut copy)?;
            self.merge_some()?;
            done += log.extent.bytes();
            progress(done, total)?;
        }
        self.drop_dead()?;
        copy.finish()?;
        self.report.lost.sort_by_key(|loss| loss.offset);
        Ok(self.report)
    }

    /// The elements of a block.
    fn block(&mut self, record: &BlockRecord, copy: &mut Copy<'_>) -> Result<(), StoreError> {
        self.report.blocks += 1;
        let device = Arc::clone(&self.from);
        let hasher = self.to.hasher.clone();
        let scan = BlockScan::new(device, record, hasher, READ_AHEAD, RECOVER);
        let ordered = !self.report.secret_lost;
        let mut scan = if ordered { scan } else { scan.in_any_order() };
        let mut run = SortedElements::default();
        let before = self.report.lost.len();
        let mut elements = 0;
        loop {
            let page = scan.page();
            match scan.next_element() {
                Ok(None) => break,
                Ok(Some((hash, element))) => {
                    elements += 1;
                    if ordered {
                        self.save(hash, &element, copy)?;
                    } else {
                        self.gather(hash, &element, &mut run, copy)?;
                    }
                }
                Err(error) => {
                    let (offset, what) = match &error {
                        StoreError::Damaged { what, offset } => (*offset, what.clone()),
                        other => (record.page_offset(page), other.to_string()),
                    };
                    let bytes = u64::from(record.page_bytes);
                    let first = offset - offset % PAGE_SIZE as u64;
                    let known = self.report.lost.last();
                    if known.is_none_or(|loss| loss.offset != first) {
                        let what = format!("a page of block {}: {what}", record.id);
                        self.report.lose(first, bytes, what);
                    }
                    if !scan.skip_damage() {
                        break;
                    }
                }
            }
        }
        let missing = record.elements.saturating_sub(elements);
        if let Some(loss) = self.report.lost.get_mut(before)
            && missing > 0
        {
            loss.what
                .push_str(&format!(" ({missing} elements of this block in all)"));
        }
        self.flush(&mut run, copy)
    }

    /// The elements of a log.
    fn log(&mut self, log: &LogRecord, copy: &mut Copy<'_>) -> Result<(), StoreError> {
        self.report.logs += 1;
        if !log.extent.lies_within(self.from.pages()) {
            let what = format!("log {}: the file ends before it does", log.id);
            let (offset, bytes) = (log.extent.offset(), log.extent.bytes());
            self.report.lose(offset, bytes, what);
        }
        let pages = self.from.pages().saturating_sub(log.extent.first);
        let extent = Extent::new(log.extent.first, pages.min(log.extent.pages.into()) as u32);
        if extent.pages == 0 {
            return Ok(());
        }
        let mut run = SortedElements::default();
        let from = Arc::clone(&self.from);
        let each = &mut |element: &Element<'_>| {
            let hash = self.to.hasher.hash(element.key);
            self.gather(hash, element, &mut run, copy)
        };
        let salvaged = crate::log::salvage(&*from, log.id, extent, log.pages, each)?;
        self.flush(&mut run, copy)?;
        for lost in salvaged.lost_bytes(extent) {
            let what = format!("pages of log {}", log.id);
            self.report.lose(lost.start, lost.end - lost.start, what);
        }
        Ok(())
    }

    /// Adds an element to a run, and writes the run when it is full.
    fn gather(
        &mut self,
        hash: KeyHash,
        element: &Element<'_>,
        run: &mut SortedElements,
        copy: &mut Copy<'_>,
    ) -> Result<(), StoreError> {
        run.push(hash, element);
        if run.bytes() >= RUN_BYTES {
            self.flush(run, copy)?;
        }
        Ok(())
    }

    /// Sorts and writes a run, as its own generation.
    fn flush(&mut self, run: &mut SortedElements, copy: &mut Copy<'_>) -> Result<(), StoreError> {
        run.sort();
        let mut before = None;
        for (hash, element) in run.iter() {
            let this = Some((hash, element.time, element.key));
            if before != this {
                self.save(hash, &element, copy)?;
            }
            before = this;
        }
        run.clear();
        copy.next_run()
    }

    /// Writes an element, and its value if it has its own extent.
    fn save(
        &mut self,
        hash: KeyHash,
        element: &Element<'_>,
        copy: &mut Copy<'_>,
    ) -> Result<(), StoreError> {
        let mut large = None;
        if element.is_large() {
            let Some(place) = ExtentRef::decode(element.value) else {
                return Ok(());
            };
            match crate::disk::large::read(&*self.from, &place) {
                Ok(value) => large = Some(value),
                Err(error) => {
                    let key = String::from_utf8_lossy(&element.key[..element.key.len().min(64)]);
                    let what = format!("the value of the key \"{}\": {error}", key.escape_debug());
                    let offset = place.extent.offset();
                    if !self.report.lost.iter().any(|loss| loss.offset == offset) {
                        self.report.lose(offset, place.bytes, what);
                    }
                    return Ok(());
                }
            }
        }
        let value = large.as_deref().unwrap_or(element.value);
        self.report.salvaged += 1;
        self.report.bytes += (element.key.len() + value.len()) as u64;
        copy.push(hash, element, large.as_deref())
    }

    /// Merges maps, so that there are few while blocks are added.
    fn merge_some(&self) -> Result<(), StoreError> {
        let _working = self.to.requests.map_work();
        loop {
            let due = self.to.merge_due(false);
            if !self.to.merge(&due)? {
                return Ok(());
            }
        }
    }

    /// Drops the versions that newer ones have made dead, like [`crate::Store::compact`].
    fn drop_dead(&self) -> Result<(), StoreError> {
        for _ in 0..2 {
            {
                let _working = self.to.requests.map_work();
                self.to.merge(&self.to.generations())?;
            }
            let _working = self.to.requests.block_work();
            while self.to.compact_emptiest()? {}
        }
        Ok(())
    }
}
