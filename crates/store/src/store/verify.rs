// SPDX-License-Identifier: Apache-2.0
//! Checks that everything in a store is intact. It reads all of it: superblock, manifest, blocks,
//! logs, large values, saved maps.
//!
//! The check changes nothing. Damage is not an error: the check puts it on a list, with its byte in
//! the file, and continues after it. It fails only for another kind of file, or a store of a later
//! version. A log may end with remains of a crash; that is not damage (OPEN-1).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use senko_io::{Device, FileOptions, FlashFile, PAGE_SIZE};

pub use crate::block::Problem;

use crate::block::{Block, BlockRecord, verify_block};
use crate::disk::superblock::{
    CopyState, LogRecord, Manifest, OnDevice, SavedIndex, Superblock, copies,
};
use crate::element::{Element, ExtentRef};
use crate::extent::UNIT_PAGES;
use crate::{Extent, Hasher, StoreError};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Pages of 4,096 bytes that were read.
    pub pages: u64,
    /// Elements in blocks and logs, including old versions and deletions.
    pub elements: u64,
    /// Sorted blocks.
    pub blocks: u64,
    /// Logs in append order.
    pub logs: u64,
    /// Values that have their own extents.
    pub large_values: u64,
    /// The problems found; empty for a sound store.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    fn add(&mut self, offset: u64, what: impl Into<String>) {
        self.problems.push(Problem {
            offset,
            what: what.into(),
        });
    }

    /// Notes an error. `offset` is the place of an error that does not name one.
    fn error(&mut self, offset: u64, error: &StoreError) {
        self.problems.push(Problem::of(offset, error));
    }
}

/// Checks the store in a file or on a block device, which no other process may hold open.
/// `progress` gets the bytes read and their total.
///
/// ```
/// # use senko_store::{Options, Store};
/// # let folder = std::env::temp_dir().join(format!("senko-doc-verify-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("kv");
/// let store = Store::open(&path, Options { block_bytes: 1 << 20, ..Options::default() })?;
/// store.put(b"key", b"value")?;
/// store.close()?;
/// let report = senko_store::verify(&path, |_, _| ())?;
/// assert!(report.problems.is_empty());
/// assert_eq!(report.elements, 1);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), senko_store::StoreError>(())
/// ```
///
/// # Errors
/// The file does not exist, a process holds it, it is not a store, or a later version wrote it.
pub fn verify(
    path: impl AsRef<Path>,
    progress: impl FnMut(u64, u64),
) -> Result<VerifyReport, StoreError> {
    verify_device(open_file(path.as_ref())?, progress)
}

/// Opens the file of an existing store for reading; it may lie on read-only media.
pub(crate) fn open_file(path: &Path) -> Result<Arc<dyn Device>, StoreError> {
    let meta = crate::open::look_at(path)?.ok_or_else(|| crate::open::none_at(path))?;
    crate::open::check_length(&meta)?;
    let options = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let file = FlashFile::open(path, &options).map_err(StoreError::open)?;
    Ok(Arc::new(file))
}

/// Checks the store on a device; see [`verify`].
///
/// # Errors
/// The device holds no store, or one of a later version.
pub fn verify_device(
    device: Arc<dyn Device>,
    mut progress: impl FnMut(u64, u64),
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    let (found, manifest) = match Superblock::find(&*device) {
        Ok(OnDevice::Store(superblock, manifest)) => (superblock, *manifest),
        Ok(OnDevice::Nothing) => {
            return Err(StoreError::Foreign(
                "there is no superblock in it".to_owned(),
            ));
        }
        Err(error @ (StoreError::Damaged { .. } | StoreError::Io { .. })) => {
            check_copies(&*device, &mut report);
            report.error(0, &error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    check_copies(&*device, &mut report);
    let place = found.manifest_extent();
    report.pages += 4 + u64::from(place.pages);
    let mut check = Check {
        hasher: Hasher::new(found.shape.secret),
        device,
        large: BTreeMap::new(),
        uses: vec![
            (
                Extent::new(0, UNIT_PAGES as u32),
                "the superblock".to_owned(),
            ),
            (place, "the manifest".to_owned()),
        ],
        report,
    };
    check.everything(&manifest, &mut progress);
    Ok(check.report)
}

/// Reads the four copies of the superblock. A broken copy beside a whole one does not prevent
/// opening. It is reported all the same, because the next damage may be fatal.
fn check_copies(device: &dyn Device, report: &mut VerifyReport) {
    for (page, state) in copies(device).0 {
        let offset = page * PAGE_SIZE as u64;
        match state {
            CopyState::Whole => {}
            CopyState::Broken => report.add(offset, "a copy of the superblock is not whole"),
            CopyState::Newer(version) => report.add(
                offset,
                format!("a copy of the superblock has format version {version}"),
            ),
        }
    }
}

struct Check {
    device: Arc<dyn Device>,
    hasher: Hasher,
    /// Large values by their first page.
    large: BTreeMap<u64, ExtentRef>,
    /// Every extent in use, and its user.
    uses: Vec<(Extent, String)>,
    report: VerifyReport,
}

impl Check {
    fn everything(&mut self, manifest: &Manifest, progress: &mut impl FnMut(u64, u64)) {
        let blocks = manifest.blocks.iter().map(|(record, _)| record.extent);
        let logs = manifest.logs.iter().map(|log| log.extent);
        let index = manifest.index.iter().map(|saved| saved.extent);
        let mut total: u64 = blocks.chain(logs).chain(index).map(Extent::bytes).sum();
        let mut done = 0;
        progress(done, total);
        for (record, _) in &manifest.blocks {
            self.block(record);
            done += record.extent.bytes();
            progress(done, total);
        }
        for log in &manifest.logs {
            self.log(log);
            done += log.extent.bytes();
            progress(done, total);
        }
        if let Some(saved) = &manifest.index {
            self.saved_maps(saved);
            done += saved.extent.bytes();
        }
        let large = std::mem::take(&mut self.large);
        total += large.values().map(|place| place.bytes).sum::<u64>();
        for place in large.values() {
            self.large_value(place);
            done += place.bytes;
            progress(done, total);
        }
        self.overlaps();
        self.report.problems.sort_by_key(|problem| problem.offset);
        progress(total, total);
    }

    fn block(&mut self, record: &BlockRecord) {
        self.report.blocks += 1;
        self.report.elements += record.elements;
        self.report.pages += u64::from(record.data_pages) * u64::from(record.device_pages())
            + u64::from(record.head_pages);
        self.uses
            .push((record.extent, format!("block {}", record.id)));
        let problems = verify_block(&*self.device, record, &self.hasher);
        self.report.problems.extend(problems);
        // A head that cannot be read is already among the problems.
        if let Ok(block) = Block::open(&*self.device, record) {
            for place in block.large() {
                self.large.insert(place.extent.first, *place);
            }
        }
    }

    fn log(&mut self, log: &LogRecord) {
        self.report.logs += 1;
        self.uses.push((log.extent, format!("log {}", log.id)));
        let large = &mut self.large;
        let each = &mut |element: &Element<'_>| {
            if element.is_large()
                && let Some(place) = ExtentRef::decode(element.value)
            {
                large.insert(place.extent.first, place);
            }
            Ok(())
        };
        let salvaged = crate::log::salvage(&*self.device, log.id, log.extent, log.pages, each);
        match salvaged {
            Ok(salvaged) => {
                self.report.elements += salvaged.elements;
                self.report.pages += u64::from(log.extent.pages);
                for lost in salvaged.lost_bytes(log.extent) {
                    let what = format!(
                        "{} pages of log {} cannot be read or are not as they were written",
                        (lost.end - lost.start) / PAGE_SIZE as u64,
                        log.id
                    );
                    self.report.add(lost.start, what);
                }
            }
            Err(error) => self.report.error(log.extent.offset(), &error),
        }
    }

    fn saved_maps(&mut self, saved: &SavedIndex) {
        self.uses.push((saved.extent, "the saved maps".to_owned()));
        let offset = saved.extent.offset();
        if !saved.extent.lies_within(self.device.pages()) || saved.bytes > saved.extent.bytes() {
            self.report
                .add(offset, "the saved maps lie beyond their extent or the file");
            return;
        }
        self.report.pages += saved.bytes.div_ceil(PAGE_SIZE as u64);
        match crate::open::saved_index::check(&*self.device, saved) {
            Ok(()) => {}
            Err(StoreError::Damaged { what, offset }) => {
                let what = format!("{what}; they will be built again");
                self.report.add(offset, what);
            }
            Err(error) => self.report.error(offset, &error),
        }
    }

    fn large_value(&mut self, place: &ExtentRef) {
        self.report.large_values += 1;
        self.report.pages += place.bytes.div_ceil(PAGE_SIZE as u64);
        self.uses.push((place.extent, "a large value".to_owned()));
        if let Err(error) = crate::disk::large::read(&*self.device, place) {
            self.report.error(place.extent.offset(), &error);
        }
    }

    /// No two extents may overlap, and none may lie beyond the end.
    fn overlaps(&mut self) {
        self.uses.sort_by_key(|(extent, _)| extent.first);
        let pages = self.device.pages();
        for (extent, what) in &self.uses {
            if !extent.lies_within(pages) {
                let what = format!("{what} reaches beyond the end of the file");
                self.report.add(extent.offset(), what);
            }
        }
        for pair in self.uses.windows(2) {
            let ((one, first), (other, second)) = (&pair[0], &pair[1]);
            if one.first.saturating_add(one.pages.into()) > other.first {
                let what = format!("{second} lies where {first} lies");
                self.report.add(other.offset(), what);
            }
        }
    }
}
