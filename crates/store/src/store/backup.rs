// SPDX-License-Identifier: Apache-2.0
//! A copy of the store while it is used: a snapshot, written into its own store as sorted blocks.
//!
//! The copy has the store's secret, so the snapshot's elements already come in the order of its
//! blocks: the copy writes each element once and needs no log. It copies the kept versions of each
//! key. Where one version is kept, it does not copy dead, deleted or expired elements.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use senko_io::{FileOptions, FlashFile, Purpose, Unfinished};

use crate::background::seal::{Output, Versions};
use crate::core::Core;
use crate::disk::space::Held;
use crate::disk::superblock::Shape;
use crate::element::{Element, ExtentRef, LARGE};
use crate::read::scan::Merge;
use crate::read::snapshot::Snapshot;
use crate::{KeyHash, Options, StoreError};

/// Elements between two calls of the progress callback.
const PROGRESS: u64 = 4096;

/// What a backup copied.
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
    /// Extents that no written block uses yet.
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

    /// Enough for what one block takes.
    fn output(to: &'c Core) -> Output<'c> {
        let bytes = to.options.block_bytes;
        Output::new(to, Purpose::Admit, bytes / 64, bytes)
    }

    /// Adds an element; `large` is its value if the value has its own extent.
    pub fn push(
        &mut self,
        hash: KeyHash,
        element: &Element<'_>,
        large: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let reference;
        let value = match large {
            None => element.value,
            Some(value) => {
                let held = self.to.allocate(value.len() as u64)?;
                let place = crate::disk::large::write(&self.to.device, &held, value)?;
                self.large.push(self.to.large.register(held));
                reference = place.encode();
                &reference[..]
            }
        };
        self.output.push(hash, &Element { value, ..*element })?;
        // Adds the contents of a store. The store's own times continue after its newest element.
        self.to.view.show_at_least(element.time);
        self.report.elements += 1;
        self.report.bytes += (element.key.len() + large.map_or(value.len(), <[u8]>::len)) as u64;
        if self.output.bytes >= self.to.options.block_bytes - self.to.options.block_bytes / 16 {
            self.next_run()?;
        }
        Ok(())
    }

    /// Ends a run of ordered elements. The next element may start from the beginning of the order,
    /// as a generation of its own.
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
            let _working = self.to.requests.map_work();
            self.to.merge(&self.to.generations())?;
        }
        // A block's place is as long as the block may become.
        match self.to.shrink(None) {
            Err(StoreError::NoSpace(_)) => {}
            other => other.map(drop)?,
        }
        crate::open::close(self.to)?;
        Ok(self.report)
    }
}

/// A store that is being written. It is named `NAME.part` until it is complete, then it gets its
/// name.
pub(crate) struct Target {
    pub core: Core,
    unfinished: Unfinished,
    path: PathBuf,
}

impl Target {
    /// Makes an empty store of a shape, for a file that does not exist yet.
    pub fn make(shape: Shape, options: &Options, to: &Path) -> Result<Target, StoreError> {
        let (unfinished, file) = Unfinished::create(to).map_err(StoreError::open)?;
        // Close this handle before the device is opened. A later close would drop the lock that
        // names this process.
        drop(file);
        let options = Options {
            background: false,
            read_only: false,
            max_bytes: None,
            recorder: None,
            ..options.clone()
        };
        let how = FileOptions {
            bytes: crate::extent::UNIT_BYTES,
            ..FileOptions::default()
        };
        let core = FlashFile::open(unfinished.draft(), &how)
            .map_err(StoreError::open)
            .and_then(|file| crate::open::make(Arc::new(file), options, shape))
            .map_err(|error| error.in_copy(to))?;
        Ok(Target {
            core,
            unfinished,
            path: to.to_path_buf(),
        })
    }

    /// Marks an error as one of this copy, not of the store that is copied.
    pub fn told(&self, error: StoreError) -> StoreError {
        error.in_copy(&self.path)
    }

    /// Gives the closed store its name.
    pub fn finish(self) -> Result<(), StoreError> {
        let Target {
            core, unfinished, ..
        } = self;
        drop(core);
        unfinished.finish().map_err(StoreError::open)
    }
}

/// The answer of a progress callback: nothing, or whether the work should continue.
///
/// ```
/// # let store = senko_store::example::store();
/// # let copy = std::env::temp_dir().join(format!("senko-doc-go-on-{}", std::process::id()));
/// store.put(b"colour", b"green")?;
/// let stopped = store.backup(&copy, |_elements| false); // a caller that asks to stop
/// assert!(matches!(stopped, Err(senko_store::StoreError::Stopped)));
/// assert!(!copy.exists());
/// # Ok::<(), senko_store::StoreError>(())
/// ```
pub trait GoOn {
    /// Whether the work should continue.
    fn go_on(self) -> bool;
}

/// The work always continues.
impl GoOn for () {
    fn go_on(self) -> bool {
        true
    }
}

/// The work continues if this is true.
impl GoOn for bool {
    fn go_on(self) -> bool {
        self
    }
}

/// An error if the caller does not want the work to continue.
pub(crate) fn check_go_on(answer: impl GoOn) -> Result<(), StoreError> {
    match answer.go_on() {
        true => Ok(()),
        false => Err(StoreError::Stopped),
    }
}

/// Copies what a snapshot shows.
pub(crate) fn backup<G: GoOn>(
    core: &Core,
    snapshot: &Snapshot,
    to: &Path,
    progress: &mut impl FnMut(u64) -> G,
) -> Result<BackupReport, StoreError> {
    let mut progress = |elements| check_go_on(progress(elements));
    let shape = core.manifests.lock().shape();
    let target = Target::make(shape, &core.options, to)?;
    let report = fill(core, snapshot, &target, &mut progress)?;
    target.finish()?;
    Ok(report)
}

fn fill(
    core: &Core,
    snapshot: &Snapshot,
    to: &Target,
    progress: &mut dyn FnMut(u64) -> Result<(), StoreError>,
) -> Result<BackupReport, StoreError> {
    let pin = snapshot.pin();
    let mut merge = Merge::new(core, &*pin.version()?, pin.time())?;
    let mut copy = Copy::new(&to.core);
    let mut versions = Versions::default();
    loop {
        // Held for one step, so that no writer reuses the space that is being read.
        let _version = pin.version()?;
        let Some(merged) = merge.next()? else {
            break;
        };
        let nth = versions.next(merged.hash, &merged.key);
        if nth >= core.options.keep_versions {
            continue;
        }
        let there = core.has_value(&merged.found, Some(pin.seconds()));
        if !there && core.options.keep_versions == 1 {
            continue;
        }
        let large = match ExtentRef::decode(&merged.found.value) {
            Some(place) if merged.found.flags & LARGE != 0 => {
                Some(crate::disk::large::read(&*core.device, &place)?)
            }
            _ => None,
        };
        let element = merged.found.element(&merged.key);
        copy.push(merged.hash, &element, large.as_deref())
            .map_err(|error| to.told(error))?;
        if copy.report.elements.is_multiple_of(PROGRESS) {
            progress(copy.report.elements)?;
        }
    }
    progress(copy.report.elements)?;
    copy.report.time = pin.time();
    copy.finish().map_err(|error| to.told(error))
}
