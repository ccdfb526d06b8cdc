// SPDX-License-Identifier: Apache-2.0
//! The log: where entries go, and how they are found again.
//!
//! The log fills a segment of 16 pages and continues in the segment that the entries of this one
//! name. Entries come in groups: either all entries of a group are valid, or none. A commit is
//! durable by one write of its group and one flush.
//!
//! An end of the log that is damage is told from one that a crash left: something durable names a
//! later entry ([`crate::open`]).
//!
//! ENTRY-1: the place of the next entry never holds a valid entry. ENTRY-2: a page that holds an
//! entry is not written again until its segment is free (`space.rs`). ENTRY-3: after a failed write
//! or flush nothing more is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, le};

use crate::disk::entry::{BODY, HEAD, Head, Kind, place_of};
use crate::disk::mark::{Mark, Marks};
use crate::disk::space::{SEGMENT, Space, UNIT, Use};
use crate::error::DbmError;

/// The place of an entry, and the values that it needs to follow the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub page: u64,
    pub sequence: u64,
    pub previous: u32,
}

impl Position {
    /// Where the log of a new database begins.
    pub const START: Position = Position {
        page: SEGMENT,
        sequence: 1,
        previous: 0,
    };
}

/// The head of an entry without its position.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    pub kind: Kind,
    pub commit: u64,
    pub left: u32,
    pub first: bool,
}

impl Label {
    /// Of an entry that is a group of its own.
    pub fn alone(kind: Kind, commit: u64) -> Label {
        Label {
            kind,
            commit,
            left: 0,
            first: true,
        }
    }
}

/// Entries of changes in the log.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    /// Those after the position from which the log would be replayed.
    pub replay: u64,
    /// Those since the newest checkpoint began.
    pub checkpoint: u64,
}

/// The end of the log.
pub(crate) struct Log {
    device: Arc<dyn Device>,
    space: Arc<Space>,
    next: Position,
    /// The segment after the current one; `None` before the first entry of a segment.
    next_segment: Option<u32>,
    life: u32,
    pub database: u64,
    /// The memory for marks, once it was asked for.
    marks: Option<Option<Marks>>,
    /// Entries that were not written yet, in adjacent pages.
    buf: AlignedBuf,
    buffered: usize,
    /// Whether something was written since the last flush.
    unflushed: bool,
    /// The last entry that was written.
    pub reached: u64,
    /// The last durable entry.
    pub durable: u64,
    /// The newest durable checkpoint.
    pub checkpoint: u64,
    /// Pages written since the checkpoint before.
    pub written: u64,
    /// Entries of changes that were appended.
    pub changes: u64,
    /// How many of them the newest durable checkpoint no longer needs.
    pub replayed: u64,
    /// How many of them there were when the newest checkpoint began.
    pub begun: u64,
}

impl Log {
    pub fn new(
        device: &Arc<dyn Device>,
        space: &Arc<Space>,
        next: Position,
        next_segment: Option<u32>,
        life: u32,
        database: u64,
    ) -> Log {
        Log {
            device: Arc::clone(device),
            space: Arc::clone(space),
            next,
            next_segment,
            life,
            database,
            marks: None,
            buf: AlignedBuf::new(UNIT as usize),
            buffered: 0,
            unflushed: true,
            reached: next.sequence - 1,
            durable: 0,
            checkpoint: 0,
            written: 0,
            changes: 0,
            replayed: 0,
            begun: 0,
        }
    }

    pub fn position(&self) -> Position {
        self.next
    }

    /// Entries of changes that a replay would read, and those since the newest checkpoint.
    pub fn behind(&self) -> Behind {
        Behind {
            replay: self.changes - self.replayed,
            checkpoint: self.changes - self.begun,
        }
    }

    /// Pages that can be written before another segment is needed.
    pub fn left(&self) -> usize {
        match self.next_segment {
            Some(_) => (SEGMENT - self.next.page % SEGMENT) as usize,
            None => 0,
        }
    }

    /// The segments that the log is about to write.
    pub fn open_segments(&self) -> Vec<u32> {
        let mut open = vec![(self.next.page / SEGMENT) as u32];
        open.extend(self.next_segment);
        open
    }

    /// Appends an entry. `fill` writes its body and returns how many bytes it used. Returns the
    /// entry's place.
    pub fn append(
        &mut self,
        label: Label,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<u64, DbmError> {
        let next_segment = match self.next_segment {
            Some(segment) => segment,
            None => {
                let of = match u64::from(label.left) < 2 * SEGMENT {
                    true => Use::Log,
                    false => Use::Group,
                };
                let segment =
                    self.space
                        .take((self.next.page / SEGMENT) as u32, self.checkpoint, of)?;
                *self.next_segment.insert(segment)
            }
        };
        let page_number = self.next.page;
        let at = self.buffered * PAGE_SIZE;
        let page = &mut self.buf[at..at + PAGE_SIZE];
        let used = fill(&mut page[HEAD..]);
        page[HEAD + used..].fill(0);
        let head = Head {
            crc: 0,
            previous: self.next.previous,
            sequence: self.next.sequence,
            commit: label.commit,
            life: self.life,
            left: label.left,
            next_segment,
            used: used as u16,
            kind: label.kind,
            first: label.first,
        };
        let crc = head.seal(page);
        self.buffered += 1;
        let place = place_of(page_number, crc);
        let segment = self.space.of(place);
        let last = &segment.last;
        last.fetch_max(self.next.sequence, Ordering::AcqRel);
        segment.stamp.store(self.next.sequence, Ordering::Release);
        self.next.previous = crc;
        self.next.sequence += 1;
        self.next.page += 1;
        self.written += 1;
        self.changes += u64::from(label.kind == Kind::Changes);
        if matches!(label.kind, Kind::Changes | Kind::Checkpoint) {
            self.space.waste(1);
        }
        if self.next.page.is_multiple_of(SEGMENT) {
            let next = u64::from(next_segment) * SEGMENT;
            if next != self.next.page || self.next.page.is_multiple_of(UNIT) {
                self.put_out()?;
            }
            self.next.page = next;
            self.next_segment = None;
        }
        Ok(place)
    }

    /// Writes what is buffered, which ends with a whole group.
    pub fn write_out(&mut self) -> Result<(), DbmError> {
        self.put_out()?;
        self.mark();
        Ok(())
    }

    /// Stores no marks. A new database has none before its superblock: whoever finds a mark alone
    /// takes it for another program's data.
    pub fn leave_out_marks(&mut self) {
        self.marks = Some(None);
    }

    /// Stores how far the log reaches (REACH-1). What it names was written.
    pub fn mark(&mut self) {
        self.reached = self.next.sequence - 1;
        let of = || Marks::of(&*self.device, self.database);
        if let Some(marks) = self.marks.get_or_insert_with(of) {
            marks.store(Mark {
                durable: self.durable,
                written: self.reached,
                checkpoint: self.checkpoint,
            });
        }
    }

    fn put_out(&mut self) -> Result<(), DbmError> {
        if self.buffered == 0 {
            return Ok(());
        }
        self.unflushed = true;
        let first = self.next.page - self.buffered as u64;
        let bytes = &self.buf[..self.buffered * PAGE_SIZE];
        self.space.wrote(self.buffered as u64);
        self.buffered = 0;
        self.device
            .write(first, bytes, Tag::dbm(Purpose::Log))
            .map_err(DbmError::io("writing the log"))
    }

    /// Makes all appended entries durable: by one durable write if nothing else waits for a flush.
    pub fn sync(&mut self) -> Result<(), DbmError> {
        let failed = DbmError::io("making the log durable");
        let tag = Tag::dbm(Purpose::Log);
        if self.buffered > 0 && !self.unflushed {
            let first = self.next.page - self.buffered as u64;
            let bytes = &self.buf[..self.buffered * PAGE_SIZE];
            self.space.wrote(self.buffered as u64);
            self.buffered = 0;
            self.device
                .write_durable(first, bytes, tag)
                .map_err(failed)?;
        } else {
            self.put_out()?;
            if self.unflushed {
                self.device.flush(tag).map_err(failed)?;
                self.unflushed = false;
            }
        }
        self.durable = self.next.sequence - 1;
        self.mark();
        Ok(())
    }
}

/// Reads entries in their order.
pub(crate) struct Scan<'a> {
    device: &'a dyn Device,
    pub next: Position,
    /// The next segment, named by the last entry of each segment.
    pub next_segment: Option<u32>,
    /// Pages of the entries that were read.
    pub visited: Vec<u64>,
    buf: AlignedBuf,
    /// The first page in the buffer, and how many.
    held: (u64, u64),
}

#[derive(Debug)]
pub(crate) struct Group {
    pub kind: Kind,
    /// The bodies of all entries except blobs, one after the other.
    pub bytes: Vec<u8>,
    /// Place of each part of a long value.
    pub blobs: Vec<(u32, u64)>,
}

/// The bytes before a group's commits: the last entry that was durable when the group was written,
/// and the number of the database.
pub(crate) const GROUP_HEAD: usize = 16;

/// The head of a group of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHead {
    pub durable: u64,
    pub database: u64,
}

impl GroupHead {
    pub fn encode(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.durable.to_le_bytes());
        to[8..GROUP_HEAD].copy_from_slice(&self.database.to_le_bytes());
    }

    pub fn read(bytes: &[u8]) -> Option<GroupHead> {
        (bytes.len() >= GROUP_HEAD).then(|| GroupHead {
            durable: le::u64_at(bytes, 0),
            database: le::u64_at(bytes, 8),
        })
    }
}

/// An intact entry after the end of a log, in the page where the log would have had it.
pub(crate) struct Remain {
    pub at: Position,
    pub first: bool,
    /// Of the first entry of a group of changes.
    pub group: Option<GroupHead>,
}

impl<'a> Scan<'a> {
    pub fn new(device: &'a dyn Device, from: Position) -> Scan<'a> {
        Scan {
            device,
            next: from,
            next_segment: None,
            visited: Vec::new(),
            buf: AlignedBuf::new(SEGMENT as usize),
            held: (0, 0),
        }
    }

    /// A page, read together with the later pages of its segment.
    fn page(&mut self, page: u64) -> Result<Option<&[u8]>, DbmError> {
        if page >= self.device.pages() {
            return Ok(None);
        }
        if page < self.held.0 || page >= self.held.0 + self.held.1 {
            let end = (page / SEGMENT + 1) * SEGMENT;
            let pages = end.min(self.device.pages()) - page;
            let to = &mut self.buf[..pages as usize * PAGE_SIZE];
            self.held = (0, 0);
            self.device
                .read(page, to, Tag::dbm(Purpose::Recover))
                .map_err(DbmError::io("reading the log"))?;
            self.held = (page, pages);
        }
        let at = (page - self.held.0) as usize * PAGE_SIZE;
        Ok(Some(&self.buf[at..at + PAGE_SIZE]))
    }

    /// The next entry, if it follows the previous one.
    fn entry(&mut self, work: impl FnOnce(&Head, &[u8], u64)) -> Result<Option<Head>, DbmError> {
        let next = self.next;
        let Some(bytes) = self.page(next.page)? else {
            return Ok(None);
        };
        let Some(head) = Head::read(bytes) else {
            return Ok(None);
        };
        if head.sequence != next.sequence || head.previous != next.previous {
            return Ok(None);
        }
        work(&head, &bytes[HEAD..], next.page);
        self.visited.push(next.page);
        self.next = Position {
            page: next.page + 1,
            sequence: next.sequence.wrapping_add(1),
            previous: head.crc,
        };
        self.next_segment = Some(head.next_segment);
        if self.next.page.is_multiple_of(SEGMENT) {
            self.next.page = u64::from(head.next_segment) * SEGMENT;
            self.next_segment = None;
        }
        Ok(Some(head))
    }

    /// The next group, if it is complete; otherwise the scan stays before it.
    pub fn group(&mut self) -> Result<Option<Group>, DbmError> {
        let before = (self.next, self.next_segment);
        let mut group: Option<Group> = None;
        let mut left = 0;
        loop {
            let is_first = group.is_none();
            let taken = &mut group;
            let mut fits = true;
            let head = self.entry(|head, body, page| {
                fits = head.first == is_first && (is_first || head.left + 1 == left);
                if !fits {
                    return;
                }
                let group = taken.get_or_insert_with(|| Group {
                    kind: head.kind,
                    bytes: Vec::new(),
                    blobs: Vec::new(),
                });
                if head.kind == Kind::Blob {
                    let id = le::u32_at(body, 0);
                    group.blobs.push((id, place_of(page, head.crc)));
                } else {
                    group.kind = head.kind;
                    group
                        .bytes
                        .extend_from_slice(&body[..usize::from(head.used)]);
                }
            })?;
            match head {
                Some(head) if fits => {
                    left = head.left;
                    if left == 0 {
                        return Ok(group);
                    }
                }
                _ => {
                    (self.next, self.next_segment) = before;
                    return Ok(None);
                }
            }
        }
    }

    /// The entries after the end that lie where the log would have had them, as far as they name
    /// their segments. Remains of what a crash cut off are among them.
    pub fn remains(&mut self) -> Result<Vec<Remain>, DbmError> {
        let mut remains = Vec::new();
        let (mut page, mut sequence) = (self.next.page, self.next.sequence);
        let mut next_segment = self.next_segment;
        loop {
            let before = remains.len();
            for page in page..(page / SEGMENT + 1) * SEGMENT {
                let Some(bytes) = self.page(page)? else { break };
                let head = Head::read(bytes).filter(|head| head.sequence == sequence);
                if let Some(head) = head {
                    let is_group = head.kind == Kind::Changes && head.first;
                    next_segment = Some(head.next_segment);
                    remains.push(Remain {
                        at: Position {
                            page,
                            sequence,
                            previous: head.previous,
                        },
                        first: head.first,
                        group: GroupHead::read(&bytes[HEAD..HEAD + usize::from(head.used)])
                            .filter(|_| is_group),
                    });
                }
                sequence = sequence.wrapping_add(1);
            }
            // A hole may take the last page of a segment, but no whole segment.
            let is_begun = page % SEGMENT > 0 || remains.len() > before;
            match next_segment.take() {
                Some(next) if is_begun => page = u64::from(next) * SEGMENT,
                _ => return Ok(remains),
            }
        }
    }

    /// After the end: an error if something says that what should be here was there. Then this is
    /// damage, not the end.
    pub fn check_end(&mut self, database: u64, mark: &Mark) -> Result<(), DbmError> {
        let end = self.next;
        let was_there = |remain: &Remain| {
            let group = remain.group.filter(|group| group.database == database);
            group.is_some_and(|group| group.durable >= end.sequence)
        };
        if mark.reach() >= end.sequence || self.remains()?.iter().any(was_there) {
            return Err(hole(end.page));
        }
        Ok(())
    }
}

/// An entry of the log is missing.
pub(crate) fn hole(page: u64) -> DbmError {
    DbmError::damaged(page, "an entry of the log is not whole")
}

/// Appends a group of bytes that may need several entries.
pub(crate) fn append_bytes(
    log: &mut Log,
    kind: Kind,
    commit: u64,
    first: bool,
    bytes: &[u8],
) -> Result<(), DbmError> {
    let entries = bytes.len().div_ceil(BODY).max(1);
    for nth in 0..entries {
        let from = nth * BODY;
        let part = &bytes[from..(from + BODY).min(bytes.len())];
        let label = Label {
            kind,
            commit,
            left: (entries - 1 - nth) as u32,
            first: first && nth == 0,
        };
        log.append(label, |body| {
            body[..part.len()].copy_from_slice(part);
            part.len()
        })?;
    }
    Ok(())
}
