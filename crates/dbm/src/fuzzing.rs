// SPDX-License-Identifier: Apache-2.0
//! Each reader of the device's content on arbitrary bytes, for the fuzz targets of the DBM.
//! Checksums are corrected, so that the input reaches the code after the checks.

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::disk::entry::{BODY, HEAD, Head};
use crate::disk::log::Position;
use crate::disk::superblock::Superblock;
use crate::disk::wear::Wear;
use crate::open::FIRST_PAGES;
use crate::pages::node::Page;
use crate::records::changes::next_commit;
use crate::records::codec::Reader;
use crate::upkeep::record::CheckpointRecord;
use crate::{Database, Options};

const TAG: Tag = Tag::dbm(Purpose::Meta);
/// Pages of the device of [`log`].
const PAGES: u64 = 4 * FIRST_PAGES;
/// Bytes in front of each entry of an input of [`log`]: kind and `first`, `left`, `used`.
const ENTRY: usize = 4;

fn whole_page(data: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    let len = data.len().min(PAGE_SIZE);
    page[..len].copy_from_slice(&data[..len]);
    page
}

/// A page of a tree: each key is searched for and found, also after changes.
///
/// # Panics
/// If a well-formed page does not find a key that it has.
pub fn page(data: &[u8]) -> usize {
    let Some(mut page) = Page::read(&whole_page(data)) else {
        return 0;
    };
    let count = page.count();
    for nth in 0..count {
        let key = page.key(nth).to_vec();
        let found = page.search(&key);
        assert!(found == Ok(nth), "a key is found where it is");
        let _ = page.value(nth);
    }
    if page.level() > 0 {
        for nth in 0..=count {
            let _ = page.child(nth);
        }
    } else if count > 1 {
        page.remove(count / 2);
        assert_eq!(page.count(), count - 1);
        let last = page.key(count - 2).to_vec();
        let found = page.search(&last);
        assert!(found == Ok(count - 2));
    }
    count
}

/// An entry of the log: the lengths in its head fit into it.
///
/// # Panics
/// If they do not.
pub fn entry(data: &[u8]) -> usize {
    let mut page = whole_page(data);
    assert!(Head::read(&page).is_none_or(|head| usize::from(head.used) <= BODY));
    let crc = crate::disk::entry::checksum(&page);
    page[..4].copy_from_slice(&crc.to_le_bytes());
    let Some(head) = Head::read(&page) else {
        return 0;
    };
    assert!(usize::from(head.used) <= BODY);
    1
}

/// The commits of a group of changes.
pub fn changes(data: &[u8]) -> usize {
    let mut reader = Reader(data);
    let mut commits = 0;
    while next_commit(&mut reader).is_some() {
        commits += 1;
    }
    commits
}

/// A checkpoint's record: encoding what was decoded returns the same bytes.
///
/// # Panics
/// If it does not.
pub fn checkpoint(data: &[u8]) -> usize {
    let Some(record) = CheckpointRecord::decode(data) else {
        return 0;
    };
    let again = CheckpointRecord::decode(&record.encode()).map(|record| record.encode());
    assert_eq!(again, Some(record.encode()));
    1
}

/// The pages beside the log, from page 1 on.
pub fn tail(data: &[u8]) -> usize {
    let device = FaultyDevice::new(FIRST_PAGES, 1);
    for (nth, part) in data.chunks(PAGE_SIZE).take(15).enumerate() {
        let mut page = AlignedBuf::new(1);
        page[..part.len()].copy_from_slice(part);
        let _ = device.write(1 + nth as u64, &page, TAG);
    }
    let halves = crate::disk::tail::read(&*device).unwrap_or_default();
    halves.iter().map(|half| changes(&half.commits)).sum()
}

/// A database whose log is made of the input's entries: it is opened, verified, repaired from and
/// written to. Returns how many of these succeeded.
pub fn log(data: &[u8]) -> usize {
    let device = device_of(data);
    let options = Options {
        threads: 0,
        create: false,
        max_bytes: Some(4 * PAGES * PAGE_SIZE as u64),
        ..Options::default()
    };
    let Ok(db) = Database::open_device(device, options) else {
        return 0;
    };
    let mut done = 1;
    done += usize::from(db.verify().is_ok_and(|report| report.problems.is_empty()));
    for table in db.tables() {
        let now = db.snapshot();
        let cursor = now.cursor(&table, ..);
        let read = cursor.map(|cursor| cursor.take(1000).filter(Result::is_ok).count());
        done += usize::from(read.is_ok());
        let put = db.run(crate::Durability::Synced, |tx| tx.put(&table, b"k", b"v"));
        done += usize::from(put.is_ok());
    }
    done + usize::from(db.close().is_ok())
}

fn device_of(data: &[u8]) -> Arc<FaultyDevice> {
    let device = FaultyDevice::new(PAGES, 1);
    let (mut rest, mut at) = (data, Position::START);
    while rest.len() >= ENTRY && at.page < PAGES {
        let (head, behind) = rest.split_at(ENTRY);
        let used = usize::from(u16::from_le_bytes([head[2], head[3]])) % (BODY + 1);
        let (body, behind) = behind.split_at(used.min(behind.len()));
        rest = behind;
        let mut page = AlignedBuf::new(1);
        page[HEAD..HEAD + body.len()].copy_from_slice(body);
        let segment = (at.page / crate::disk::space::SEGMENT + 1) as u32;
        page[4..8].copy_from_slice(&at.previous.to_le_bytes());
        page[8..16].copy_from_slice(&at.sequence.to_le_bytes());
        page[28..32].copy_from_slice(&u32::from(head[1]).to_le_bytes());
        page[32..36].copy_from_slice(&segment.to_le_bytes());
        page[36..38].copy_from_slice(&(body.len() as u16).to_le_bytes());
        page[38] = head[0] & 0x7f;
        page[39] = head[0] >> 7;
        let crc = crate::disk::entry::checksum(&page);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        let _ = device.write(at.page, &page, TAG);
        at = Position {
            page: at.page + 1,
            sequence: at.sequence + 1,
            previous: crc,
        };
    }
    let superblock = Superblock {
        checkpoint: 1,
        at: Position::START,
        pages: PAGES,
        wear: Wear::default(),
    };
    let _ = superblock.write(&*device);
    device
}

/// The entries of a device's log, as an input of [`log`] has them.
#[cfg(test)]
fn input_of(device: &dyn Device) -> Vec<u8> {
    let mut input = Vec::new();
    let mut page = AlignedBuf::new(1);
    for at in Position::START.page..device.pages() {
        device.read(at, &mut page, TAG).expect("it reads");
        let Some(head) = Head::read(&page) else { break };
        input.push(head.kind as u8 | u8::from(head.first) << 7);
        input.push(head.left as u8);
        input.extend_from_slice(&head.used.to_le_bytes());
        input.extend_from_slice(&page[HEAD..HEAD + usize::from(head.used)]);
    }
    input
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Durability;
    use crate::disk::entry::Kind;

    fn folder(target: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target)
    }

    /// Each seed as it is, with bytes changed, and cut. Some seeds must be read.
    fn seeds(target: &str, step: usize, run: impl Fn(&[u8]) -> usize) {
        let folder = folder(target);
        let (mut count, mut read) = (0, 0);
        for file in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
            let mut data = std::fs::read(file.expect("a file").path()).expect("a readable seed");
            read += run(&data);
            for at in (0..data.len().min(120)).chain((120..data.len()).step_by(step)) {
                for flip in [1, 0x80, 0xff] {
                    data[at] ^= flip;
                    run(&data);
                    data[at] ^= flip;
                }
                run(&data[..at]);
            }
            count += 1;
        }
        assert!(count >= 2 && read > 0, "{count} seeds, {read} read");
    }

    #[test]
    fn page_seeds() {
        seeds("dbm_page", 13, page);
    }

    #[test]
    fn entry_seeds() {
        seeds("dbm_entry", 501, entry);
    }

    #[test]
    fn changes_seeds() {
        seeds("dbm_changes", 7, changes);
    }

    #[test]
    fn checkpoint_seeds() {
        seeds("dbm_checkpoint", 1, checkpoint);
    }

    #[test]
    fn tail_seeds() {
        seeds("dbm_tail", 97, tail);
    }

    #[test]
    fn log_seeds() {
        seeds("dbm_log", 211, log);
    }

    /// Writes the seeds again, after a change of the format: `cargo test -p senko_dbm write_seeds
    /// -- --ignored`.
    #[test]
    #[ignore = "writes into the tree"]
    fn write_seeds() {
        let put = |target: &str, name: &str, data: &[u8]| {
            std::fs::create_dir_all(folder(target)).expect("a folder");
            let end = data
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(1, |last| last + 1);
            std::fs::write(folder(target).join(name), &data[..end]).expect("a file");
        };
        for (name, checkpoint) in [("log", false), ("trees", true)] {
            let device = FaultyDevice::new(PAGES, 1);
            let options = Options {
                threads: 0,
                ..Options::default()
            };
            let db = Database::open_device(Arc::clone(&device) as _, options).expect("it opens");
            let table = db.create_table("table").expect("a table");
            db.create_table("other").expect("a table");
            for nth in 0..60u64 {
                db.run(Durability::Buffered, |tx| {
                    tx.put(&table, &nth.to_be_bytes(), &vec![7; 3 * nth as usize])?;
                    tx.delete(&table, &(nth / 2).to_be_bytes())?;
                    tx.delete_range(&table, b"x", Some(b"z"))
                })
                .expect("a commit");
            }
            let tail: Vec<u8> = (1..16)
                .flat_map(|at| {
                    let mut page = AlignedBuf::new(1);
                    device.read(at, &mut page, TAG).expect("it reads");
                    page.to_vec()
                })
                .collect();
            put("dbm_tail", name, &tail);
            let halves = crate::disk::tail::read(&*device).expect("it reads");
            for (nth, half) in halves.iter().enumerate() {
                put("dbm_changes", &format!("{name}{nth}"), &half.commits);
            }
            let long = vec![9; 5000];
            let done = db.run(Durability::Synced, |tx| tx.put(&table, b"long", &long));
            done.expect("a commit");
            if checkpoint {
                db.checkpoint().expect("a checkpoint");
            }
            put("dbm_log", name, &input_of(&*device));
            let (mut nodes, mut page) = (0, AlignedBuf::new(1));
            for at in Position::START.page..PAGES {
                device.read(at, &mut page, TAG).expect("it reads");
                let Some(head) = Head::read(&page) else { break };
                let body = &page[HEAD..HEAD + usize::from(head.used)];
                match head.kind {
                    Kind::Node if nodes < 3 => {
                        put("dbm_page", &format!("{name}{nodes}"), &page);
                        nodes += 1;
                    }
                    Kind::Checkpoint => put("dbm_checkpoint", name, body),
                    _ => {}
                }
                put(
                    "dbm_entry",
                    &format!("{name}_{:?}", head.kind).to_lowercase(),
                    &page,
                );
            }
        }
    }
}
