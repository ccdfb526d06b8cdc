// SPDX-License-Identifier: Apache-2.0
//! Opening a database: reads the newest checkpoint, and then the log after it, commit by commit.
//! The result is a prefix of the order of commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, content_of};

use crate::DbmError;
use crate::blob::BlobIds;
use crate::changes::next_commit;
use crate::checkpoint::CheckpointRecord;
use crate::codec::Reader;
use crate::core::{Core, MapPlaces, Maps};
use crate::dirty::{Began, Dirty};
use crate::entry::{BODY, HEAD, Head, Kind};
use crate::flush::GROUP_HEAD;
use crate::growing::Growing;
use crate::images::Images;
use crate::log::{Log, Position, Scan, append_bytes};
use crate::mapping::{Nodes, Version};
use crate::options::Options;
use crate::space::{SEGMENT, Space, write_zeros};
use crate::superblock::Superblock;
use crate::sync::{ArcSwapOption, AtomicU64};
use crate::tail;
use crate::writer::{CHUNK, Ids, Writer};

/// Pages of a new database: the superblock's segment, the log's first segment, and the one after
/// it.
pub(crate) const FIRST_PAGES: u64 = 3 * SEGMENT;

fn life() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library draws new hash keys in each process.
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    (drawn >> 32) as u32 ^ drawn as u32 ^ std::process::id()
}

/// Opens what a device holds, or makes a database on it.
pub(crate) fn open(
    device: Arc<dyn Device>,
    options: Options,
    beside_writer: bool,
) -> Result<Arc<Core>, DbmError> {
    let options = options.checked()?;
    if device.pages() < FIRST_PAGES {
        let text = format!(
            "a database has at least {FIRST_PAGES} pages, the device has {}",
            device.pages()
        );
        return Err(DbmError::Invalid(text));
    }
    let superblock = match Superblock::read(&*device)? {
        Some(superblock) => superblock,
        None if options.create && !beside_writer => {
            refuse_foreign(&*device)?;
            make(&device, &options)?
        }
        None => {
            let text = "there is no superblock".to_owned();
            return Err(DbmError::Foreign(text));
        }
    };
    if superblock.pages > device.pages() {
        return Err(DbmError::damaged(
            device.pages(),
            format!(
                "the database has {} pages, the file has {}: it was cut",
                superblock.pages,
                device.pages()
            ),
        ));
    }
    let mut scan = Scan::new(&*device, superblock.at);
    let record = match scan.group()? {
        Some(group) if group.kind == Kind::Checkpoint => CheckpointRecord::decode(&group.bytes),
        _ => None,
    };
    // A page and a part of a value each had a page of the device while they existed, and their
    // numbers are reused.
    let most = u32::try_from(16 * device.pages() + 65_536).unwrap_or(u32::MAX);
    let record = record
        .filter(|record| record.next_node <= most && record.next_blob <= most)
        .ok_or_else(|| DbmError::damaged(superblock.at.page, "the checkpoint is not whole"))?;
    let space = Arc::new(Space::new(Arc::clone(&device), options.max_bytes));
    space
        .started
        .store(superblock.checkpoint, Ordering::Release);
    let core = load(&device, options, &space, &record, superblock.checkpoint)?;
    replay(&core, &record, superblock.checkpoint, beside_writer)?;
    Ok(Arc::new(core))
}

/// Refuses a device with foreign content, even if the superblocks' pages are zero, as in some file
/// systems. Remains of an unfinished creation do not count as foreign.
fn refuse_foreign(device: &dyn Device) -> Result<(), DbmError> {
    let is_left = |offset: u64, page: &[u8]| {
        offset == Position::START.page * PAGE_SIZE as u64
            && Head::read(page).is_some_and(|head| {
                head.kind == Kind::Checkpoint && head.sequence == Position::START.sequence
            })
    };
    let found = content_of(device, Tag::dbm(Purpose::Recover), is_left)
        .map_err(DbmError::io("looking for data of others"))?;
    match found {
        None => Ok(()),
        Some(content) => Err(DbmError::Foreign(format!(
            "it holds {content}; to lose that and make one there, empty it first (remove the file; \
             `blkdiscard -z` for a device)"
        ))),
    }
}

/// Writes the first checkpoint of an empty database.
fn make(device: &Arc<dyn Device>, options: &Options) -> Result<Superblock, DbmError> {
    write_zeros(&**device, 0, FIRST_PAGES).map_err(DbmError::io("writing the first pages"))?;
    let space = Arc::new(Space::new(Arc::clone(device), options.max_bytes));
    let first = space.take(0)?;
    debug_assert_eq!(first, 1, "the log begins in the lowest segment");
    let mut log = Log::new(device, &space, Position::START, None, life());
    let record = CheckpointRecord {
        commit: 0,
        replay: Position::START,
        began: Position::START.sequence,
        next_node: 0,
        next_blob: 0,
        next_table: 1,
        maps: MapPlaces::default(),
        catalogue: Vec::new(),
    };
    append_bytes(&mut log, Kind::Checkpoint, 0, true, &record.encode())?;
    log.sync()?;
    let superblock = Superblock {
        checkpoint: 1,
        at: Position::START,
        pages: FIRST_PAGES,
    };
    superblock.write(&**device)?;
    Ok(superblock)
}

/// Reads the words of one part of the translation table.
pub(crate) fn map_words(device: &dyn Device, place: u64) -> Result<Vec<u64>, DbmError> {
    let damaged = || DbmError::damaged(place, "a part of the translation table is not whole");
    if place >= device.pages() {
        return Err(damaged());
    }
    let mut page = AlignedBuf::new(1);
    device
        .read(place, &mut page, Tag::dbm(Purpose::Recover))
        .map_err(DbmError::io("reading the translation table"))?;
    let head = Head::read(&page).filter(|head| head.kind == Kind::Map);
    let used = usize::from(head.ok_or_else(damaged)?.used);
    let words: Vec<u64> = page[HEAD..HEAD + used]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect();
    if words.len() != CHUNK as usize || words.iter().any(|word| *word >= device.pages()) {
        return Err(damaged());
    }
    Ok(words)
}

/// All words of a table, except those of numbers from `next` on.
fn each_word(
    device: &dyn Device,
    space: &Space,
    places: &[u64],
    next: u32,
    mut work: impl FnMut(u32, u64),
) -> Result<(), DbmError> {
    let mut id = 0;
    for &place in places {
        let words = match place {
            0 => vec![0; CHUNK as usize],
            place => {
                let words = map_words(device, place)?;
                space.name(place);
                words
            }
        };
        for word in words {
            if id < next {
                work(id, word);
            }
            id += 1;
        }
    }
    for id in id..next {
        work(id, 0);
    }
    Ok(())
}

fn load(
    device: &Arc<dyn Device>,
    options: Options,
    space: &Arc<Space>,
    record: &CheckpointRecord,
    checkpoint: u64,
) -> Result<Core, DbmError> {
    let mut maps = Maps {
        places: record.maps.clone(),
        ..Maps::default()
    };
    let (nodes, blobs) = (Nodes::new(), Growing::<AtomicU64>::new());
    let mut ids = Ids {
        next: record.next_node,
        free: Vec::new(),
    };
    each_word(
        &**device,
        space,
        &record.maps.nodes,
        ids.next,
        |id, place| {
            maps.nodes.push(place);
            space.name(place);
            if place == 0 {
                ids.free.push(id);
            } else {
                let version = Arc::new(Version::placed(id, place, space));
                ArcSwapOption::store(nodes.at(id), Some(version));
            }
        },
    )?;
    let mut blob_ids = BlobIds {
        next: record.next_blob,
        ..BlobIds::default()
    };
    let next = blob_ids.next;
    each_word(&**device, space, &record.maps.blobs, next, |id, place| {
        maps.blobs.push(place);
        space.name(place);
        if place == 0 {
            blob_ids.give(id, 1);
        } else {
            space.hold(place);
            blobs.at(id).store(place, Ordering::Release);
        }
    })?;
    let catalogue = record.catalogue.clone();
    let dirty = Dirty::new(Began {
        number: checkpoint,
        position: record.replay,
        changes: 0,
    });
    let writer = |node| {
        let mut writer = Writer::new(node, catalogue, ids, blob_ids, dirty);
        writer.next_table = writer.next_table.max(record.next_table);
        writer
    };
    let log = Log::new(device, space, record.replay, None, life());
    let images = Images::new(device, space, life());
    Ok(Core::new(
        Arc::clone(device),
        options,
        Arc::clone(space),
        nodes,
        blobs,
        record.commit,
        writer,
        log,
        images,
        maps,
    ))
}

/// Applies the commits of the tail that the log does not have to the trees, and returns them as a
/// group of changes for the log.
fn replay_tail(
    core: &Core,
    halves: impl Iterator<Item = (Position, Vec<u8>)>,
) -> Result<Vec<u8>, DbmError> {
    let mut group = vec![0; GROUP_HEAD];
    for (position, bytes) in halves {
        let mut reader = Reader(&bytes);
        while !reader.0.is_empty() {
            let before = reader.0;
            let (commit, changes) = next_commit(&mut reader).ok_or_else(|| {
                DbmError::damaged(position.page, "commits in the tail are not well formed")
            })?;
            if commit > core.registry.lock().visible.commit {
                core.replay(commit, &changes)?;
                group.extend_from_slice(&before[..before.len() - reader.0.len()]);
            }
        }
    }
    Ok(group)
}

/// Applies the commits of the log to the trees, and finds the log's end.
fn replay(
    core: &Core,
    record: &CheckpointRecord,
    checkpoint: u64,
    beside_writer: bool,
) -> Result<(), DbmError> {
    // The tail is read before the log: everything that a half says is in the log is in it by then.
    let halves = tail::read(&*core.device)?;
    let mut follows = vec![false; halves.len()];
    let mut scan = Scan::new(&*core.device, record.replay);
    let mut visited: HashMap<u32, u64> = HashMap::new();
    let mut entries = 0;
    loop {
        let before = scan.next;
        for (nth, (position, _)) in halves.iter().enumerate() {
            follows[nth] |= *position == before;
        }
        let Some(group) = scan.group()? else { break };
        for page in scan.visited.drain(..) {
            visited.insert((page / SEGMENT) as u32, scan.next.sequence - 1);
        }
        let mut reader = Reader(&group.bytes);
        if group.kind != Kind::Changes {
            continue;
        }
        entries += group.bytes.len().div_ceil(BODY) as u64;
        // The table has the earlier ones.
        let is_new = before.sequence >= record.began;
        for &(id, place) in group.blobs.iter().filter(|_| is_new) {
            core.space.hold(place);
            let old = core.blobs.at(id).swap(place, Ordering::AcqRel);
            core.space.release(old);
            core.writer.lock().changed_blobs.insert(id / CHUNK);
        }
        let damaged = || DbmError::damaged(before.page, "changes in the log are not well formed");
        reader.u64().ok_or_else(damaged)?;
        while !reader.0.is_empty() {
            let (commit, changes) = next_commit(&mut reader).ok_or_else(damaged)?;
            if commit <= record.commit {
                core.catch_up(commit, &changes)?;
            } else if commit > core.registry.lock().visible.commit {
                core.replay(commit, &changes)?;
            }
        }
    }
    if !beside_writer {
        scan.check_end()?;
    }
    for (segment, last) in &visited {
        core.space
            .segment(*segment)
            .last
            .store(*last, Ordering::Release);
    }
    let (next, next_segment) = (scan.next, scan.next_segment);
    let in_log = |segment: u32| {
        visited.contains_key(&segment)
            || u64::from(segment) == next.page / SEGMENT
            || Some(segment) == next_segment
    };
    core.space.settle(checkpoint, &in_log);
    let mut log = Log::new(&core.device, &core.space, next, next_segment, life());
    log.checkpoint = checkpoint;
    log.written = next.sequence - record.replay.sequence;
    log.changes = entries;
    let halves = halves.into_iter().zip(follows);
    let commits = replay_tail(
        core,
        halves.filter_map(|(half, follows)| follows.then_some(half)),
    )?;
    if !beside_writer && commits.len() > GROUP_HEAD {
        let newest = core.registry.lock().visible.commit;
        append_bytes(&mut log, Kind::Changes, newest, true, &commits)?;
        log.sync()?;
    }
    *core.log.lock() = log;
    Ok(())
}
