// SPDX-License-Identifier: Apache-2.0
//! Opening and closing: from the data on the device to the version that readers see, and back.
//!
//! ```text
//! superblock -> manifest -> blocks: heads          -> saved maps (after a clean close), or maps built from the hash lists
//!                        -> logs: replayed, oldest first, as far as one follows on the other
//! ```
//!
//! Always holds:
//! - OPEN-1: a log counts only as far as its pages follow each other. The next log counts only if
//!   it follows the end of the log before. So recovery restores a prefix of the writes.
//! - OPEN-2: before the state was read completely, opening changes nothing on the device, except
//!   that it makes the data there durable. In a read-only store it changes nothing at all.

pub(crate) mod saved_index; // the maps at a clean close

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use senko_io::{Device, PAGE_SIZE, Purpose, Tag, content_of, exact_size};

use crate::block::Block;
use crate::core::change::refresh_live;
use crate::core::pace::Pace;
use crate::core::state::counters::Counters;
use crate::core::state::health::{CLOSED, Health, READ_ONLY};
use crate::core::state::logs::{Spare, Writer};
use crate::core::state::manifests::Manifests;
use crate::core::state::pins::Pins;
use crate::core::state::requests::Requests;
use crate::core::state::view::View;
use crate::core::version::{BlockHandle, LogHandle, Version};
use crate::core::{Core, Opened};
use crate::disk::large::LargeValues;
use crate::disk::mark::Mark;
use crate::disk::space::Space;
use crate::disk::superblock::{Manifest, OnDevice, Shape, Superblock};
use crate::disk::wear::{Counted, Wear};
use crate::log::Log;
use crate::options::MAX_FROZEN;
use crate::{Hasher, Options, StoreError};

/// The file at a path, if there is one; an error if that cannot be told.
pub(crate) fn look_at(path: &Path) -> Result<Option<std::fs::Metadata>, StoreError> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let text = format!("cannot open {}: {error}", path.display());
            let error = std::io::Error::new(error.kind(), text);
            Err(StoreError::open(error))
        }
    }
}

/// The error of a path at which nothing lies.
pub(crate) fn none_at(path: &Path) -> StoreError {
    StoreError::Invalid(format!("there is no store at {}", path.display()))
}

/// Refuses a file that is too short for a page: whatever it is, it is not a store.
pub(crate) fn check_length(meta: &std::fs::Metadata) -> Result<(), StoreError> {
    if meta.is_file() && meta.len() < PAGE_SIZE as u64 {
        let text = format!("it has {} bytes, a superblock takes 65536", meta.len());
        return Err(StoreError::Foreign(text));
    }
    Ok(())
}

pub(crate) fn open(device: Arc<dyn Device>, options: Options) -> Result<Core, StoreError> {
    let started = Instant::now();
    let options = options.checked()?;
    let (device, wear) = Counted::over(device);
    let mut made = false;
    if device.pages() < crate::extent::UNIT_PAGES && !options.read_only && options.create {
        // A file that is too short for a store, and is not the beginning of one, belongs to another
        // program, and is not changed.
        if !Superblock::may_begin(&*device)? {
            refuse_foreign(&*device)?;
        }
        device
            .grow(crate::extent::UNIT_PAGES)
            .map_err(StoreError::io("growing the file"))?;
    }
    let (mut superblock, manifest, space) = match Superblock::find(&*device)? {
        OnDevice::Store(superblock, manifest) => {
            if !options.read_only {
                // A process that was killed may have left this superblock unflushed. A power
                // failure would restore the previous manifest. So space that only that manifest
                // names must not be reused until this one is durable (SPACE-1).
                device
                    .flush(Tag::store(Purpose::Meta))
                    .map_err(StoreError::io("flushing the superblock"))?;
            }
            let space = Space::new(Arc::clone(&device), options.max_bytes);
            (superblock, *manifest, space)
        }
        OnDevice::Nothing if options.create && !options.read_only => {
            refuse_foreign(&*device)?;
            options.check_bound()?;
            made = true;
            let space = Space::new(Arc::clone(&device), options.max_bytes);
            let shape = Shape::of(&options, secret()?);
            let (superblock, manifest) = Superblock::make(&*device, &space, shape)?;
            (superblock, manifest, space)
        }
        OnDevice::Nothing => {
            return Err(StoreError::Foreign(
                "there is no superblock in it".to_owned(),
            ));
        }
    };
    let options = superblock.shape.apply(options).checked().map_err(|error| {
        StoreError::damaged(0, format!("the superblock cannot be right: {error}"))
    })?;
    superblock.count_with(&wear);
    let mut core = assemble(device, options, superblock, manifest, space, wear);
    core.opened.made = made;
    load(&core)?;
    if core.options.read_only {
        core.health.latch(READ_ONLY);
    } else {
        core.check_bound()?;
        Superblock::mend_copies(&*core.device)?;
        core.mark.open(&*core.device);
        // The beginning of this opening made durable what lies there.
        let version = core.current();
        for handle in version.logs.iter().rev() {
            core.mark.note(handle.log.id(), handle.log.end().pages());
        }
        core.manifests.lock().prepare(&core.space);
    }
    core.opened.took_us = started.elapsed().as_micros() as u64;
    Ok(core)
}

/// Refuses a device that has content of somebody else: also where the superblock's pages are zero,
/// as they are in some file systems. Remains of an unfinished creation do not count as such
/// content.
fn refuse_foreign(device: &dyn Device) -> Result<(), StoreError> {
    let found = content_of(
        device,
        Tag::store(Purpose::Recover),
        Superblock::may_be_left,
    )
    .map_err(StoreError::io("looking for data of others"))?;
    match found {
        None => Ok(()),
        Some(content) => Err(StoreError::Foreign(format!(
            "it holds {content}; to lose that and make a store there, empty it first (remove the file; `blkdiscard -z` for a device)"
        ))),
    }
}

/// Makes an empty store of a given shape.
pub(crate) fn make(
    device: Arc<dyn Device>,
    options: Options,
    shape: Shape,
) -> Result<Core, StoreError> {
    let options = shape.apply(options).checked()?;
    let (device, wear) = Counted::over(device);
    let space = Space::new(Arc::clone(&device), options.max_bytes);
    let (mut superblock, manifest) = Superblock::make(&*device, &space, shape)?;
    superblock.count_with(&wear);
    let core = assemble(device, options, superblock, manifest, space, wear);
    load(&core)?;
    Ok(core)
}

/// 128 bits that nobody can guess.
pub(crate) fn secret() -> Result<[u8; 16], StoreError> {
    let mut secret = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut secret))
        .map_err(StoreError::open)?;
    Ok(secret)
}

fn assemble(
    device: Arc<dyn Device>,
    options: Options,
    superblock: Superblock,
    manifest: Manifest,
    space: Arc<Space>,
    wear: Arc<Wear>,
) -> Core {
    let hasher = Hasher::new(superblock.shape.secret);
    let capacity = options.log_bytes * (MAX_FROZEN as u64 + 1);
    Core {
        device,
        hasher,
        space,
        view: View::empty(),
        writer: Mutex::new(Writer::new(manifest.last_time)),
        manifests: Mutex::new(Manifests::new(superblock, manifest)),
        spare: Spare::default(),
        longest: AtomicU64::new(0),
        requests: Requests::default(),
        health: Health::default(),
        mark: Mark::default(),
        large: LargeValues::default(),
        pins: Pins::default(),
        pace: Pace::new(capacity),
        cache: crate::cache::record_cache::RecordCache::new(options.cache_bytes),
        counters: Counters::default(),
        wear,
        opened: Opened::default(),
        options,
    }
}

/// Reads blocks, maps and logs, and shows them.
fn load(core: &Core) -> Result<(), StoreError> {
    let manifest = core.manifests.lock().manifest().clone();
    core.manifests.lock().claim(&core.space)?;
    let mut version = Version::empty();
    let mut handles = Vec::with_capacity(manifest.blocks.len());
    // All extents are claimed before any is looked into, so that no large value can take the place
    // of another's block.
    let mut held = Vec::with_capacity(manifest.blocks.len());
    for (record, _) in &manifest.blocks {
        held.push(core.space.claim(record.extent)?);
    }
    let log_extents = manifest
        .logs
        .iter()
        .map(|log| core.space.claim_log(log.extent, core.options.log_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(saved) = manifest.index {
        let held = core.space.claim(saved.extent)?;
        core.manifests.lock().hold_saved_index(held);
    }
    for ((record, live), held) in manifest.blocks.iter().zip(held) {
        let block = Block::open(&*core.device, record)?;
        let large = core.large.holders(&core.space, block.large())?;
        let handle = Arc::new(BlockHandle::new(block, held, large, *live));
        // Large values lie outside of the block.
        let pages = u64::from(record.data_pages) * u64::from(record.page_bytes);
        let bytes = record.key_value_bytes.min(pages);
        core.saw_length(bytes.div_ceil(record.elements.max(1)));
        let member = version.add_block(Arc::clone(&handle));
        handles.push((member, handle));
    }
    core.view.publish(|shown| *shown = version);
    let version = match manifest.index.map(|saved| saved_index::load(core, &saved)) {
        Some(Ok(version)) => version,
        // The saved maps only save time; whatever is wrong with them, the hash lists have it all.
        Some(Err(_)) | None => core.rebuild(handles)?,
    };
    core.view.publish(|shown| *shown = version);
    load_logs(core, &manifest, log_extents)
}

/// Replays the logs (OPEN-1), and makes the last of them take writes again.
fn load_logs(
    core: &Core,
    manifest: &Manifest,
    extents: Vec<crate::disk::space::Held>,
) -> Result<(), StoreError> {
    let mut last_time = manifest.last_time;
    let mut logs: Vec<Arc<LogHandle>> = Vec::new();
    let mut spare = None;
    // Extents of logs that do not count. The manifest on flash names them until the next commit, so
    // nothing may take their place (SPACE-1).
    let mut retired = Vec::new();
    for (record, held) in manifest.logs.iter().zip(extents) {
        if spare.is_some() || !retired.is_empty() {
            retired.push(held);
            continue;
        }
        let log = Log::replay(
            Arc::clone(&core.device),
            record.id,
            held.extent(),
            core.hasher.clone(),
        )?;
        let pages = log.bytes_used() / PAGE_SIZE as u64;
        if pages < u64::from(record.pages) {
            let offset = (record.extent.first + pages) * PAGE_SIZE as u64;
            let what = format!(
                "log {} ends after {pages} pages, and {} of it were durable",
                record.id, record.pages
            );
            return Err(StoreError::damaged(offset, what));
        }
        if log.bytes_used() == 0 && !logs.is_empty() {
            spare = Some((log, held));
            continue;
        }
        if let Some(before) = logs.last()
            && log.follows() != before.log.chain()
        {
            if log.durable_pages() > 0 || record.pages > 0 {
                let offset = before.log.extent().first * PAGE_SIZE as u64;
                let what = "the end of a log is gone, though the next log was made durable";
                return Err(StoreError::damaged(offset, what));
            }
            // The end of the log before it was lost, so nothing of this one was acknowledged as
            // durable.
            retired.push(held);
            continue;
        }
        last_time = last_time.max(log.last_time());
        core.saw_length(log.packing().longest());
        let large = core.large.holders(&core.space, &log.large()?)?;
        let handle = LogHandle::new(log, held);
        handle.hold_large(large);
        logs.push(Arc::new(handle));
    }
    // All is claimed that the manifest names, and nothing was taken yet.
    core.space.set_holes(&manifest.holes);
    core.view.show(last_time);
    let mut writer = core.writer.lock();
    writer.wrote(last_time);
    let mut manifests = core.manifests.lock();
    // The next commit forgets the others.
    let known: Vec<u64> = logs
        .iter()
        .map(|handle| handle.log.id())
        .chain(spare.as_ref().map(|(log, _)| log.id()))
        .collect();
    manifests.keep_logs(&known);
    for handle in logs.iter().rev().skip(1) {
        handle.log.freeze();
        core.pace.froze(handle.log.bytes_used());
    }
    if core.options.read_only {
        core.view
            .publish(|next| next.logs = logs.into_iter().rev().collect());
        return Ok(());
    }
    manifests.retire(retired);
    if let Some((log, held)) = spare {
        log.erase_end()?;
        core.spare.put(Arc::new(LogHandle::new(log, held)));
    }
    if logs.is_empty() {
        let first = match core.spare.take() {
            Some(spare) => Some(spare),
            None => first_log(core, &mut manifests)?,
        };
        logs.extend(first);
    }
    if let Some(active) = logs.last() {
        active.log.erase_end()?;
        writer.turn_to(Arc::clone(active));
    }
    core.view
        .publish(|next| next.logs = logs.into_iter().rev().collect());
    Ok(())
}

/// A log to go on in; `None` if there is no space for one. The first write makes room then.
fn first_log(
    core: &Core,
    manifests: &mut MutexGuard<'_, Manifests>,
) -> Result<Option<Arc<LogHandle>>, StoreError> {
    match core.make_log(manifests) {
        // The saved maps may have the space that was kept for a log (SPACE-6). They only save time,
        // and a commit gives their space back.
        Err(StoreError::NoSpace(_)) => manifests.commit(&core.target())?,
        made => return made.map(Some),
    }
    match core.make_log(manifests) {
        // All of the free space may be in pieces.
        Err(StoreError::NoSpace(_)) => Ok(None),
        made => made.map(Some),
    }
}

/// Ends a store: everything durable, the maps saved.
pub(crate) fn close(core: &Core) -> Result<(), StoreError> {
    core.sync()?;
    let (index, saved) = match saved_index::save(core, &core.current()) {
        Ok(saved) => saved,
        // They only save time.
        Err(StoreError::NoSpace(_)) => {
            core.health.latch(CLOSED);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut manifests = core.manifests.lock();
    manifests.edit(|manifest| {
        let version = core.current();
        for record in &mut manifest.logs {
            let log = version.logs.iter().find(|log| log.log.id() == record.id);
            let pages = log.map_or(0, |log| log.log.bytes_used() / PAGE_SIZE as u64);
            record.pages = pages as u32;
        }
        refresh_live(manifest, &version);
    });
    manifests.commit_saved(&core.target(), index, saved)?;
    // Nothing is written after the maps were saved.
    core.health.latch(CLOSED);
    Ok(())
}

impl Core {
    /// Refuses a bound below what the store has in use: it could never be kept.
    fn check_bound(&self) -> Result<(), StoreError> {
        let (used, _) = self.space.bytes();
        match self.options.max_bytes {
            Some(most) if most < used => Err(StoreError::Invalid(format!(
                "the store has {} in use, and is to have at most {}",
                exact_size(used),
                exact_size(most)
            ))),
            _ => Ok(()),
        }
    }
}
