// SPDX-License-Identifier: Apache-2.0
//! Opening a database: reads the newest checkpoint, and then the log after it, commit by commit.
//! The result is a prefix of the order of commits.

mod catch_up; // leaves that a checkpoint did not write

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, content_of};

use crate::core::Core;
use crate::disk::entry::{BODY, HEAD, Head, Kind, MOST_PAGES, page_of};
use crate::disk::images::Images;
use crate::disk::log::{GROUP_HEAD, Group, GroupHead, Log, Position, Scan, append_bytes, hole};
use crate::disk::maps::{CHUNK, Maps};
use crate::disk::mark::{self, Mark};
use crate::disk::space::{SEGMENT, Space, Use, write_zeros};
use crate::disk::superblock::{COPIES, Superblock};
use crate::disk::tail::{self, Half};
use crate::disk::wear::Wear;
use crate::error::DbmError;
use crate::open::catch_up::catch_up;
use crate::options::{LEAST_BYTES, Options};
use crate::pages::Pages;
use crate::pages::mapping::{Ids, Version};
use crate::records::blob::BlobIds;
use crate::records::changes::Change;
use crate::records::changes::next_commit;
use crate::records::codec::Reader;
use crate::upkeep::record::CheckpointRecord;
use crate::writer::Writer;
use crate::writer::changed::Changed;
use crate::writer::dirty::Began;

/// Pages of a new database: the superblock's segment, the log's first segment, and the one after
/// it.
pub(crate) const FIRST_PAGES: u64 = 3 * SEGMENT;

const _: () = assert!(FIRST_PAGES * PAGE_SIZE as u64 == LEAST_BYTES);

/// The last page of the first segment: it has nothing.
const LAST: u64 = SEGMENT - 1;

fn draw() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library draws new hash keys in each process.
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    drawn ^ u64::from(std::process::id())
}

fn life() -> u32 {
    let drawn = draw();
    (drawn >> 32) as u32 ^ drawn as u32
}

/// One more than the highest number of a page or of a part of a long value. Each of them had a page
/// of the device while it existed, and their numbers are reused.
fn most_numbers(pages: u64) -> u32 {
    u32::try_from(pages.saturating_mul(16).saturating_add(65_536)).unwrap_or(u32::MAX)
}

/// Opens what a device holds, or makes a database on it.
pub(crate) fn open(
    device: Arc<dyn Device>,
    options: Options,
    beside_writer: bool,
) -> Result<Arc<Core>, DbmError> {
    let options = options.checked()?;
    if device.pages() < FIRST_PAGES {
        if let Some(superblock) = Superblock::read(&*device)? {
            return Err(cut(&*device, &superblock));
        }
        let text = format!(
            "a database has at least {FIRST_PAGES} pages, the device has {}",
            device.pages()
        );
        return Err(DbmError::Invalid(text));
    }
    if device.pages() > MOST_PAGES {
        let text = format!("a database has at most {MOST_PAGES} pages");
        return Err(DbmError::Invalid(text));
    }
    let marks = mark::read(&*device)?;
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
    let record = checkpoint_of(&*device, &superblock)?;
    let mark = marks.of(record.database);
    let space = Arc::new(Space::new(Arc::clone(&device), &options));
    space
        .started
        .store(superblock.checkpoint, Ordering::Release);
    let core = load(&device, options, &space, &record, &superblock)?;
    replay(&core, &record, &superblock, &mark, beside_writer)?;
    if !beside_writer {
        superblock.mend_copies(&*device)?;
    }
    Ok(Arc::new(core))
}

/// The device is shorter than the database.
fn cut(device: &dyn Device, superblock: &Superblock) -> DbmError {
    let (has, pages) = (device.pages(), superblock.pages);
    let what = format!("the database has {pages} pages, the file has {has}: it was cut");
    DbmError::damaged(has, what)
}

/// The pages that are written in place: the superblocks, the mark and the tail.
pub(crate) fn changing_pages(device: &dyn Device) -> Result<Vec<u8>, DbmError> {
    let mut pages = AlignedBuf::new(SEGMENT.min(device.pages()) as usize);
    device
        .read(0, &mut pages, Tag::dbm(Purpose::Recover))
        .map_err(DbmError::io("reading the superblock"))?;
    Ok(pages.to_vec())
}

/// The checkpoint that a superblock names.
fn checkpoint_of(
    device: &dyn Device,
    superblock: &Superblock,
) -> Result<CheckpointRecord, DbmError> {
    if superblock.pages > device.pages() {
        return Err(cut(device, superblock));
    }
    let record = match Scan::new(device, superblock.at).group()? {
        Some(group) if group.kind == Kind::Checkpoint => CheckpointRecord::decode(&group.bytes),
        _ => None,
    };
    let most = most_numbers(device.pages());
    record
        .filter(|record| record.is_sound(most))
        .ok_or_else(|| DbmError::damaged(superblock.at.page, "the checkpoint is not whole"))
}

/// Pages of the first segment that have something where it is zero.
fn strays(segment: &[u8]) -> Vec<DbmError> {
    let pages = segment.chunks(PAGE_SIZE).zip(0..);
    pages
        .filter(|(page, number)| match *number {
            mark::PAGE => page[mark::USED..].iter().any(|byte| *byte != 0),
            LAST => page.iter().any(|byte| *byte != 0),
            _ => false,
        })
        .map(|(_, number)| DbmError::damaged(number, "a page has something where it is zero"))
        .collect()
}

/// Checks the superblock, and the log from there to entry `last`, of a database that is open.
/// Returns the problems.
pub(crate) fn check(
    device: &dyn Device,
    superblock: &Superblock,
    last: u64,
) -> Result<Vec<DbmError>, DbmError> {
    let newest = Superblock::read(device)?.unwrap_or(*superblock);
    let mut problems = newest.broken_copies(device)?;
    problems.extend(strays(&changing_pages(device)?));
    let mark = Mark {
        written: last,
        ..Mark::default()
    };
    let read = checkpoint_of(device, superblock)
        .and_then(|record| read_log(device, superblock, &record, &mark, |_, _| Ok(())));
    match read {
        Err(error @ DbmError::Damaged { .. }) => problems.push(error),
        other => drop(other?),
    }
    Ok(problems)
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
    let space = Arc::new(Space::new(Arc::clone(device), options));
    let first = space.take(0, 0, Use::Log)?;
    debug_assert_eq!(first, 1, "the log begins in the lowest segment");
    let database = draw();
    let mut log = Log::new(device, &space, Position::START, None, life(), database);
    log.leave_out_marks();
    let record = CheckpointRecord::empty(database);
    append_bytes(&mut log, Kind::Checkpoint, 0, true, &record.encode())?;
    log.sync()?;
    let superblock = Superblock {
        checkpoint: 1,
        at: Position::START,
        pages: FIRST_PAGES,
        wear: Wear {
            written: (FIRST_PAGES + 1 + COPIES) * PAGE_SIZE as u64,
            ..Wear::default()
        },
    };
    superblock.write(&**device)?;
    Ok(superblock)
}

/// Reads the words of one part of the translation table.
pub(crate) fn map_words(device: &dyn Device, place: u64) -> Result<Vec<u64>, DbmError> {
    let number = page_of(place);
    let damaged = || DbmError::damaged(number, "a part of the translation table is not whole");
    if number >= device.pages() {
        return Err(damaged());
    }
    let mut page = AlignedBuf::new(1);
    device
        .read(number, &mut page, Tag::dbm(Purpose::Recover))
        .map_err(DbmError::io("reading the translation table"))?;
    let head = Head::read(&page).filter(|head| head.kind == Kind::Map && head.is_at(place));
    let used = usize::from(head.ok_or_else(damaged)?.used);
    let words: Vec<u64> = page[HEAD..HEAD + used]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect();
    let is_outside = |word: &u64| page_of(*word) >= device.pages();
    if words.len() != CHUNK as usize || words.iter().any(is_outside) {
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
    superblock: &Superblock,
) -> Result<Core, DbmError> {
    let pages = Pages::new(device, space, options.cache_bytes);
    let (mut nodes, mut blobs) = (Vec::new(), Vec::new());
    let mut ids = Ids {
        next: record.next_node,
        free: Vec::new(),
    };
    let next = ids.next;
    each_word(&**device, space, &record.maps.nodes, next, |id, place| {
        nodes.push(place);
        space.name(place);
        if place == 0 {
            ids.free.push(id);
        } else {
            pages.set(id, Some(Arc::new(Version::placed(id, place, pages.dram()))));
        }
    })?;
    let mut blob_ids = BlobIds {
        next: record.next_blob,
        ..BlobIds::default()
    };
    let next = blob_ids.next;
    each_word(&**device, space, &record.maps.blobs, next, |id, place| {
        blobs.push(place);
        space.name(place);
        if place == 0 {
            blob_ids.give(id, 1);
        } else {
            pages.place_blob(id, place);
        }
    })?;
    let maps = Maps::new(*superblock, record.maps.clone(), nodes, blobs);
    let changed = Changed::since(Began {
        number: superblock.checkpoint,
        position: record.replay,
        changes: 0,
    });
    space.count_from(superblock.wear);
    let mut writer = Writer::new(
        record.commit,
        record.catalogue.clone(),
        record.next_table,
        ids,
        blob_ids,
        changed,
        options.overlap_bytes,
    );
    writer.put = superblock.wear.put;
    let log = Log::new(device, space, record.replay, None, life(), record.database);
    let images = Images::new(device, space, life());
    let (device, space) = (Arc::clone(device), Arc::clone(space));
    let ends = (log, images);
    Ok(Core::new(device, options, space, pages, writer, ends, maps))
}

/// Applies the commits of the tail that the log does not have to the trees, and returns them as a
/// group of changes for the log.
fn replay_tail(core: &Core, halves: &[Half]) -> Result<Vec<u8>, DbmError> {
    let mut group = vec![0; GROUP_HEAD];
    for half in halves {
        let mut reader = Reader(&half.commits);
        while !reader.0.is_empty() {
            let before = reader.0;
            let (commit, changes) = next_commit(&mut reader).ok_or_else(|| {
                DbmError::damaged(
                    half.position.page,
                    "commits in the tail are not well formed",
                )
            })?;
            if commit > core.readers.commit() {
                check_numbers(core, half.position, &changes)?;
                core.replay(commit, &changes)?;
                group.extend_from_slice(&before[..before.len() - reader.0.len()]);
            }
        }
    }
    Ok(group)
}

/// Refuses numbers of parts of long values that no log has.
fn check_numbers(core: &Core, at: Position, changes: &[Change<'_>]) -> Result<(), DbmError> {
    let most = most_numbers(core.device.pages());
    let is_wrong = |change: &Change<'_>| matches!(change, Change::PutLong(.., blob) if blob.numbers().end > most);
    match changes.iter().any(is_wrong) {
        true => Err(DbmError::damaged(
            at.page,
            "changes in the log are not well formed",
        )),
        false => Ok(()),
    }
}

/// The end of a log that was read.
pub(crate) struct LogEnd {
    next: Position,
    next_segment: Option<u32>,
    /// The segments that the log takes, with the last entry of each.
    visited: HashMap<u32, u64>,
    /// The halves of the tail that continue it.
    halves: Vec<Half>,
}

/// Reads the log from a checkpoint's replay position to its end. `each` gets each group and its
/// position.
///
/// The end is the first place without a whole group. It is damage, and an error, if anything says
/// that a group was there: the superblock, whose checkpoint comes after everything that it needs;
/// the mark; a later entry. So a log never ends before an entry that was durable, nor, while the
/// system has not lost power, before one that was written.
pub(crate) fn read_log(
    device: &dyn Device,
    superblock: &Superblock,
    record: &CheckpointRecord,
    mark: &Mark,
    mut each: impl FnMut(Position, &Group) -> Result<(), DbmError>,
) -> Result<LogEnd, DbmError> {
    if mark.checkpoint > superblock.checkpoint {
        let what = "the newest superblock is lost";
        return Err(DbmError::damaged(0, what));
    }
    // The tail is read before the log: everything that a half says is in the log is in it by then.
    let halves = tail::read(device)?;
    let mut follows = vec![false; halves.len()];
    let mut scan = Scan::new(device, record.replay);
    let mut visited: HashMap<u32, u64> = HashMap::new();
    let mut has_checkpoint = false;
    loop {
        let before = scan.next;
        for (nth, half) in halves.iter().enumerate() {
            follows[nth] |= half.position == before;
        }
        let Some(group) = scan.group()? else { break };
        has_checkpoint |= before == superblock.at;
        for page in scan.visited.drain(..) {
            visited.insert((page / SEGMENT) as u32, scan.next.sequence - 1);
        }
        each(before, &group)?;
    }
    if !has_checkpoint {
        return Err(hole(scan.next.page));
    }
    scan.check_end(record.database, mark)?;
    let halves = halves.into_iter().zip(follows);
    let halves: Vec<Half> = halves
        .filter_map(|(half, follows)| follows.then_some(half))
        .collect();
    if let Some(half) = halves.iter().find(|half| half.is_cut) {
        let what = "commits beside the log are not whole";
        return Err(DbmError::damaged(half.position.page, what));
    }
    Ok(LogEnd {
        next: scan.next,
        next_segment: scan.next_segment,
        visited,
        halves,
    })
}

/// Applies the commits of the log to the trees, and finds the log's end.
fn replay(
    core: &Core,
    record: &CheckpointRecord,
    superblock: &Superblock,
    mark: &Mark,
    beside_writer: bool,
) -> Result<(), DbmError> {
    let mut entries = 0;
    let most = most_numbers(core.device.pages());
    let end = read_log(&*core.device, superblock, record, mark, |at, group| {
        let damaged = || DbmError::damaged(at.page, "changes in the log are not well formed");
        if group.kind != Kind::Changes {
            return Ok(());
        }
        entries += group.bytes.len().div_ceil(BODY) as u64;
        // The table has the earlier ones.
        let is_new = at.sequence >= record.began;
        for &(id, place) in group.blobs.iter().filter(|_| is_new) {
            if id >= most {
                return Err(damaged());
            }
            core.pages.place_blob(id, place);
            core.writer.lock().changed.blobs(id, 1);
        }
        let head = GroupHead::read(&group.bytes);
        head.filter(|head| head.database == record.database)
            .ok_or_else(damaged)?;
        let mut reader = Reader(&group.bytes[GROUP_HEAD..]);
        while !reader.0.is_empty() {
            let (commit, changes) = next_commit(&mut reader).ok_or_else(damaged)?;
            check_numbers(core, at, &changes)?;
            if commit <= record.commit {
                catch_up(core, commit, &changes)?;
            } else if commit > core.readers.commit() {
                core.replay(commit, &changes)?;
            }
        }
        Ok(())
    })?;
    let segments = core.device.pages() / SEGMENT;
    if let Some(segment) = end.next_segment
        && !(1..segments).contains(&u64::from(segment))
    {
        let what = "an entry of the log names a segment that is not there";
        return Err(DbmError::damaged(end.next.page, what));
    }
    for (segment, last) in &end.visited {
        core.space
            .segment(*segment)
            .last
            .store(*last, Ordering::Release);
    }
    let (next, next_segment) = (end.next, end.next_segment);
    let in_log = |segment: u32| {
        end.visited.contains_key(&segment)
            || u64::from(segment) == next.page / SEGMENT
            || Some(segment) == next_segment
    };
    let replay = record.replay.sequence;
    core.space.settle(superblock.checkpoint, replay, &in_log);
    let database = record.database;
    let mut log = Log::new(
        &core.device,
        &core.space,
        next,
        next_segment,
        life(),
        database,
    );
    log.checkpoint = superblock.checkpoint;
    log.durable = mark.durable;
    log.written = next.sequence - record.replay.sequence;
    log.changes = entries;
    let mut commits = replay_tail(core, &end.halves)?;
    if !beside_writer && commits.len() > GROUP_HEAD {
        let head = GroupHead {
            durable: log.durable,
            database,
        };
        head.encode(&mut commits);
        let newest = core.readers.commit();
        append_bytes(&mut log, Kind::Changes, newest, true, &commits)?;
        log.sync()?;
    }
    *core.log.lock() = log;
    Ok(())
}
