// SPDX-License-Identifier: Apache-2.0
//! Repair of a database that does not open: without its superblock or checkpoint, or with a part of
//! the translation table or of the log lost.
//!
//! Every page of the file is read. The checkpoint of the superblock, or else the newest complete
//! one, names the tables and their roots. The newest page of each number, as of that checkpoint,
//! replaces lost parts of the translation table. Then the commits of the log are applied, including
//! those after a hole if something says that the hole was not the log's end. Everything goes into a
//! new database.
//!
//! SALVAGE-1: a key gets only values that it had. A part of a long value names its value's commit,
//! and a leaf gives only the keys that belong to it. SALVAGE-2: what is missing, or may be an old
//! one, is listed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use senko_io::{
    AlignedBuf, Device, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag, Unfinished, le,
};

use crate::db::copy::{CopyReport, owner, unowned};
use crate::disk::entry::{HEAD, Head, Kind, commit_of, page_of, place_of};
use crate::disk::log::{GROUP_HEAD, GroupHead, Position, Remain, Scan};
use crate::disk::maps::CHUNK;
use crate::disk::mark::{self, Mark};
use crate::disk::space::SEGMENT;
use crate::disk::superblock::Superblock;
use crate::pages::lookup::{Border, Borders, check_borders, check_level, children};
use crate::pages::node::Page;
use crate::records::blob::Blob;
use crate::records::changes::{Change, next_commit};
use crate::records::codec::Reader;
use crate::records::table::TableInfo;
use crate::upkeep::record::CheckpointRecord;
use crate::{Database, DbmError, Durability, Options, Table};

/// Approximate number of records of a transaction.
const BATCH: usize = 1000;

/// The contents of the pages of a device.
#[derive(Default)]
struct Remains {
    /// The places of each page of a tree, with the commit and the sequence of each.
    nodes: HashMap<u32, Vec<(u64, u64, u64)>>,
    /// The place of each part of a long value, by its number and the value's commit.
    blobs: HashMap<(u32, u32), u64>,
    checkpoints: Vec<Position>,
    /// First entries of groups of changes, and of groups that begin with long values.
    groups: BTreeMap<u64, Vec<Position>>,
    /// Entries, and pages that are neither entries nor zero.
    entries: u64,
    others: u64,
}

/// Entries are a database's without a superblock if at most this many other pages come with each.
/// Most of a database may be destroyed, and a part of another program's file may be one.
const MOST_OTHERS: u64 = 4;

struct Salvage<'a> {
    device: &'a dyn Device,
    found: Remains,
    /// The places of pages according to the intact parts of the translation table.
    places: HashMap<u32, u64>,
    /// Versions of pages up to this commit are valid.
    bound: u64,
    to: Database,
    /// By their numbers in the old database.
    tables: HashMap<u32, Table>,
    tx: crate::Transaction,
    /// Writes of the transaction.
    writes: usize,
    visited: HashSet<u32>,
    report: CopyReport,
    /// Keys whose long values were not found, and which have no newer ones so far; by the number
    /// of the new table.
    lost_values: BTreeMap<(u32, Vec<u8>), String>,
    /// The leaves, by new table and the lowest key that belongs to each: the commit that each is as
    /// of, 0 for a lost one, and the first key after it.
    leaves: BTreeMap<(u32, Vec<u8>), (u64, Border)>,
}

impl Database {
    /// Saves the intact parts of a database that does not open into a new one at `to`, which must
    /// not exist. It lists what is lost. Trees whose table's name is lost with the checkpoint
    /// become tables named `recovered` and `recovered-N`, and the log's changes of such a table go
    /// into `recovered-table-N`. No process may have the database open for writing. For a database
    /// that opens, [`Database::repair`] is better.
    ///
    /// # Errors
    /// [`DbmError::Foreign`] if no superblock is whole and few pages are those of a database, and
    /// the errors of reading the device or making the copy. An ended repair is
    /// [`DbmError::Invalid`].
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// use senko_dbm::{Database, Durability, Options};
    /// let path = folder.path().join("data.db");
    /// let db = Database::open(&path, Options::default())?;
    /// let table = db.create_table("t")?;
    /// db.run(Durability::Synced, |tx| tx.put(&table, b"key", b"value"))?;
    /// db.close()?;
    /// let report = Database::salvage(&path, &folder.path().join("saved.db"), |_| true)?;
    /// assert_eq!((report.records, report.lost.len()), (1, 0));
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn salvage(
        path: &Path,
        to: &Path,
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        let open = |error: std::io::Error| DbmError::Open(error.into());
        let file = FileOptions {
            beside_writer: true,
            ..FileOptions::default()
        };
        let device = FlashFile::open(path, &file).map_err(open)?;
        let found = look(&device, &mut progress)?;
        let whole = |at: &Position| {
            let group = Scan::new(&device, *at).group().ok().flatten()?;
            CheckpointRecord::decode(&group.bytes).filter(|_| group.kind == Kind::Checkpoint)
        };
        let superblock = Superblock::read(&device).ok().flatten();
        let named = superblock.and_then(|superblock| Some((superblock.at, whole(&superblock.at)?)));
        let records = found.checkpoints.iter();
        let newest = || {
            let records = records.filter_map(|at| Some((*at, whole(at)?)));
            records.max_by_key(|(at, record)| (record.commit, at.sequence))
        };
        let newest = named.or_else(newest);
        let few = found.entries == 0 || found.others / MOST_OTHERS > found.entries;
        if superblock.is_none() && few {
            let text = match found.entries {
                0 => "no page of it is one of a database".to_owned(),
                some => format!("only {some} of its pages are those of a database"),
            };
            return Err(DbmError::Foreign(text));
        }
        let is_newest = match (&superblock, &newest) {
            (Some(superblock), Some((at, _))) => superblock.at.sequence <= at.sequence,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let mut record = newest.map_or_else(|| CheckpointRecord::empty(0), |(_, record)| record);
        let mark = mark::read(&device).map_or(Mark::default(), |marks| marks.of(record.database));
        let is_newest = is_newest
            && superblock.is_none_or(|superblock| superblock.checkpoint >= mark.checkpoint);
        // A name that no table may have is not one of ours.
        record
            .catalogue
            .retain(|table| crate::records::changes::is_name(&table.name));
        let (unfinished, file) = Unfinished::create(to).map_err(open)?;
        drop(file);
        let options = Options {
            threads: 0,
            transaction_bytes: usize::MAX,
            ..Options::default()
        };
        let copy = Database::open(unfinished.draft(), options)?;
        let mut salvage = Salvage {
            device: &device,
            found,
            bound: if is_newest { record.commit } else { u64::MAX },
            places: HashMap::new(),
            tx: copy.begin(),
            to: copy,
            tables: HashMap::new(),
            writes: 0,
            visited: HashSet::new(),
            report: CopyReport::default(),
            lost_values: BTreeMap::new(),
            leaves: BTreeMap::new(),
        };
        if superblock.is_none() && mark == Mark::default() {
            let what =
                "what says how far the log reached is lost: the newest commits may be missing";
            salvage.lose("", 0, what);
        }
        if !is_newest {
            let page = superblock.map_or(0, |superblock| superblock.at.page);
            let what = "the newest checkpoint is not whole: records may be old ones";
            salvage.lose("", page, what);
        }
        if is_newest {
            salvage.map(&record.maps.nodes);
        }
        for table in &record.catalogue {
            salvage.table(table)?;
            if !progress(salvage.report.records) {
                return Err(DbmError::Invalid("the repair was ended".to_owned()));
            }
        }
        if !is_newest {
            salvage.orphans()?;
        } else if !salvage.report.lost.is_empty() {
            salvage.orphan_leaves()?;
        }
        let reached = superblock.map_or(0, |superblock| superblock.at.sequence);
        salvage.log(&record, mark.reach().max(reached))?;
        salvage.commit()?;
        let mut report = salvage.report;
        let now = salvage.to.snapshot();
        (report.tables, report.records) = (0, 0);
        for table in salvage.to.tables() {
            report.tables += 1;
            report.records += now.count(&table)?;
        }
        drop((now, salvage.tx));
        salvage.to.close()?;
        unfinished.finish().map_err(open)?;
        Ok(report)
    }
}

/// Reads all segments.
fn look(device: &dyn Device, progress: &mut impl FnMut(u64) -> bool) -> Result<Remains, DbmError> {
    let mut found = Remains::default();
    let mut segment = AlignedBuf::new(SEGMENT as usize);
    for first in (SEGMENT..device.pages()).step_by(SEGMENT as usize) {
        let pages = SEGMENT.min(device.pages() - first) as usize;
        let bytes = &mut segment[..pages * PAGE_SIZE];
        let tag = Tag::dbm(Purpose::Recover);
        if device.read(first, bytes, tag).is_err() {
            // An unreadable segment counts as damaged.
            continue;
        }
        for (nth, page) in bytes.chunks(PAGE_SIZE).enumerate() {
            match Head::read(page) {
                Some(head) => found.take(&head, page, first + nth as u64),
                None => found.others += u64::from(page.iter().any(|byte| *byte != 0)),
            }
        }
        if !progress(0) {
            return Err(DbmError::Invalid("the repair was ended".to_owned()));
        }
    }
    Ok(found)
}

impl Remains {
    fn take(&mut self, head: &Head, page: &[u8], page_number: u64) {
        self.entries += 1;
        let number = le::u32_at(page, HEAD);
        let at = Position {
            page: page_number,
            sequence: head.sequence,
            previous: head.previous,
        };
        let place = place_of(page_number, head.crc);
        match head.kind {
            Kind::Node => {
                let places = self.nodes.entry(number).or_default();
                places.push((head.commit, head.sequence, place));
            }
            Kind::Blob => {
                let commit = le::u32_at(page, HEAD + 4);
                self.blobs.insert((number, commit), place);
                if head.first && head.left > 0 {
                    self.groups.entry(head.sequence).or_default().push(at);
                }
            }
            Kind::Checkpoint if head.first => self.checkpoints.push(at),
            Kind::Changes if head.first => {
                self.groups.entry(head.sequence).or_default().push(at);
            }
            Kind::Changes | Kind::Checkpoint | Kind::Map => {}
        }
    }
}

impl Salvage<'_> {
    fn lose(&mut self, table: &str, page: u64, what: &str) {
        let why = DbmError::damaged(page, what);
        self.report.lose(table, (None, None), why);
    }

    fn commit(&mut self) -> Result<(), DbmError> {
        let next = self.to.begin();
        std::mem::replace(&mut self.tx, next).commit(Durability::None)?;
        self.tx = self.to.begin();
        self.writes = 0;
        Ok(())
    }

    fn wrote(&mut self, bytes: usize) -> Result<(), DbmError> {
        self.writes += 1 + bytes / 1000;
        self.report.bytes += bytes as u64;
        if self.writes >= BATCH {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn make(&mut self, id: u32, name: &str) -> Result<Table, DbmError> {
        self.commit()?;
        let table = self.to.create_table(name)?;
        self.tables.insert(id, table.clone());
        self.tx = self.to.begin();
        Ok(table)
    }

    fn table(&mut self, info: &TableInfo) -> Result<(), DbmError> {
        let (records, lost) = (self.report.records, self.report.lost.len());
        let table = self.make(info.id, &info.name)?;
        self.tree(&table, info.root, (None, None), None)?;
        let missing = info.count.saturating_sub(self.report.records - records);
        self.report.missing(lost, missing);
        Ok(())
    }

    /// Takes the intact parts of the translation table. For other pages the newest intact version
    /// is taken, which may be older than a damaged one.
    fn map(&mut self, parts: &[u64]) {
        for (nth, part) in parts.iter().enumerate().filter(|(_, part)| **part != 0) {
            match crate::open::map_words(self.device, *part) {
                Ok(words) => {
                    let first = nth as u32 * CHUNK;
                    self.places.extend((first..).zip(words));
                }
                Err(_) => {
                    let what = "a part of the translation table is lost: records may be old ones";
                    self.lose("", page_of(*part), what);
                }
            }
        }
    }

    /// The entry that a place names, if it is whole.
    fn read(&self, place: u64, kind: Kind) -> Option<(Head, AlignedBuf)> {
        let mut page = AlignedBuf::new(1);
        self.device
            .read(page_of(place), &mut page, Tag::dbm(Purpose::Recover))
            .ok()?;
        let head = Head::read(&page)?;
        (head.kind == kind && head.is_at(place)).then_some((head, page))
    }

    fn tree(
        &mut self,
        table: &Table,
        id: u32,
        (from, to): Borders,
        above: Option<u8>,
    ) -> Result<(), DbmError> {
        // A page that was already reached does not belong here.
        let places = self
            .found
            .nodes
            .get(&id)
            .filter(|_| self.visited.insert(id));
        let bound = self.bound;
        let newest = places.and_then(|places| places.iter().filter(|p| p.0 <= bound).max());
        let place = match self.places.get(&id) {
            Some(place) => Some(*place),
            None => newest.map(|(.., place)| *place),
        };
        let page = place
            .and_then(|place| self.node(id, place))
            .filter(|page| check_level(page, above).is_ok());
        let Some(page) = page else {
            let why = DbmError::missing(format!("page {id} of the tree is nowhere whole"));
            self.report
                .lose(table.name(), (from.clone(), to.clone()), why);
            // All that the log has of these keys is missing here.
            self.leaves
                .insert((table.number(), from.unwrap_or_default()), (0, to));
            return Ok(());
        };
        if let Err(why) = check_borders(&page, (&from, &to)) {
            self.report
                .lose(table.name(), (from.clone(), to.clone()), why);
        }
        if page.level() > 0 {
            for (child, borders) in children(&page, &(from, to)) {
                self.tree(table, child, borders, Some(page.level()))?;
            }
            return Ok(());
        }
        self.leaf(table, &page, (from.clone(), to.clone()))?;
        let commit = commit_of(page.bytes());
        self.leaves
            .insert((table.number(), from.unwrap_or_default()), (commit, to));
        Ok(())
    }

    /// The records of a leaf that belong to it: an older version of it may have others.
    fn leaf(&mut self, table: &Table, page: &Page, (from, to): Borders) -> Result<(), DbmError> {
        for nth in 0..page.count() {
            let key = page.key(nth).to_vec();
            if from.as_ref().is_some_and(|from| key < *from)
                || to.as_ref().is_some_and(|to| key >= *to)
            {
                continue;
            }
            let value = match page.value(nth) {
                (value, false) => Some(value.to_vec()),
                (reference, true) => Blob::parse(reference).and_then(|blob| self.long_value(blob)),
            };
            match value {
                Some(value) => {
                    self.tx.put(table, &key, &value)?;
                    self.report.records += 1;
                    self.wrote(key.len() + value.len())?;
                }
                None => {
                    let name = table.name().to_owned();
                    self.lost_values.insert((table.number(), key), name);
                }
            }
        }
        Ok(())
    }

    /// Leaves whose path from the root is lost, but that the translation table names.
    fn orphan_leaves(&mut self) -> Result<(), DbmError> {
        let lost = self.report.lost.clone();
        let mut recovered = None;
        let mut places: Vec<(u32, u64)> = self.places.iter().map(|(id, at)| (*id, *at)).collect();
        places.sort_unstable();
        for (id, place) in places {
            if place == 0 || self.visited.contains(&id) {
                continue;
            }
            let Some(leaf) = self.node(id, place) else {
                continue;
            };
            if leaf.level() > 0 || leaf.count() == 0 {
                continue;
            }
            let table = match (owner(&lost, &leaf), &recovered) {
                (Some(name), _) => self.to.table(name)?,
                (None, Some(table)) => Table::clone(table),
                (None, None) => {
                    let table = self.unowned("recovered")?;
                    self.lose(table.name(), 0, "the table of these records is lost");
                    recovered.insert(table).clone()
                }
            };
            let before = self.report.records;
            self.leaf(&table, &leaf, (None, None))?;
            let found = self.report.records - before;
            self.report.found(table.name(), found);
        }
        Ok(())
    }

    /// A new table for records whose own table is unknown.
    fn unowned(&mut self, name: &str) -> Result<Table, DbmError> {
        self.commit()?;
        let table = unowned(&self.to, name)?;
        self.tx = self.to.begin();
        Ok(table)
    }

    /// A page of a tree, if a place has it intact.
    fn node(&self, id: u32, place: u64) -> Option<Page> {
        let (_, bytes) = self.read(place, Kind::Node)?;
        Page::read(&bytes).filter(|page| page.id() == id)
    }

    /// Trees whose table's name is lost: pages that no other page names. Each goes into its own
    /// table. Single leaves go into one common table, in the order of their commits.
    fn orphans(&mut self) -> Result<(), DbmError> {
        let mut pages: Vec<(u64, u32, u8)> = Vec::new();
        let mut named: HashSet<u32> = HashSet::new();
        for (id, places) in &self.found.nodes {
            let newest = places.iter().max();
            let page = newest.and_then(|(.., place)| self.node(*id, *place));
            if let (Some(page), Some((commit, ..))) = (page, newest) {
                if page.level() > 0 {
                    named.extend((0..=page.count()).map(|nth| page.child(nth)));
                }
                pages.push((*commit, *id, page.level()));
            }
        }
        pages.sort_unstable();
        let mut leaves = None;
        for (_, id, level) in pages {
            if named.contains(&id) || self.visited.contains(&id) {
                continue;
            }
            let table = match &leaves {
                Some(table) if level == 0 => Table::clone(table),
                None if level == 0 => leaves.insert(self.unowned("recovered")?).clone(),
                _ => self.unowned(&format!("recovered-{id}"))?,
            };
            self.tree(&table, id, (None, None), None)?;
            let what = format!("the name of the table of page {id} is lost");
            self.lose(table.name(), 0, &what);
        }
        Ok(())
    }

    fn lose_value(&mut self, table: &str, key: Vec<u8>) {
        let behind = [&key[..], &[0]].concat();
        let why = DbmError::missing("a part of a long value is nowhere whole");
        self.report.lose(table, (Some(key), Some(behind)), why);
    }

    fn long_value(&self, blob: Blob) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for number in blob.numbers() {
            let place = self.found.blobs.get(&(number, blob.commit))?;
            let (head, page) = self.read(*place, Kind::Blob)?;
            let body = &page[HEAD..HEAD + usize::from(head.used)];
            value.extend_from_slice(blob.part(number, body)?);
        }
        (value.len() as u64 == blob.bytes).then_some(value)
    }

    /// Adds the commits of the log, and of the tail that continues it. The log has an entry
    /// `reached`.
    fn log(&mut self, record: &CheckpointRecord, mut reached: u64) -> Result<(), DbmError> {
        let (device, mut done, has) = (self.device, 0, record.commit);
        let halves = crate::disk::tail::read(device).unwrap_or_default();
        let mut follows = vec![false; halves.len()];
        let mut scan = Scan::new(device, record.replay);
        // A group of this database, and the last entry that was durable when it was written.
        let of = |group: GroupHead| {
            let is_ours = record.database == 0 || group.database == record.database;
            is_ours.then_some(group.durable)
        };
        loop {
            for (nth, half) in halves.iter().enumerate() {
                follows[nth] |= half.position == scan.next;
            }
            if let Some(group) = scan.group()? {
                if group.kind == Kind::Changes {
                    let commits = group.bytes.get(GROUP_HEAD..).unwrap_or_default();
                    self.commits(commits, &mut done, has)?;
                }
                continue;
            }
            let end = scan.next;
            let remains = scan.remains()?;
            let told = |remain: &Remain| remain.group.and_then(of).unwrap_or(0);
            reached = reached.max(remains.iter().map(told).max().unwrap_or(0));
            // What lies where the log would have gone on, or else what says that it was durable.
            let mut behind = remains
                .iter()
                .filter(|remain| remain.first && remain.at.sequence > end.sequence)
                .filter(|remain| {
                    let sequence = remain.at.sequence;
                    reached >= end.sequence && (sequence <= reached || told(remain) >= end.sequence)
                })
                .map(|remain| remain.at)
                .filter(|at| Scan::new(device, *at).group().ok().flatten().is_some());
            let goes_on = behind.next().or_else(|| {
                let was_durable = |at: &&Position| {
                    let group = Scan::new(device, **at).group().ok().flatten();
                    group.is_some_and(|group| {
                        let durable = GroupHead::read(&group.bytes).and_then(of);
                        group.kind == Kind::Changes && durable >= Some(end.sequence)
                    })
                };
                let groups = self.found.groups.range(end.sequence.saturating_add(1)..);
                groups.flat_map(|(_, at)| at).find(was_durable).copied()
            });
            if goes_on.is_none() && reached < end.sequence {
                break;
            }
            let what = "an entry of the log is lost, with its commits if it had any";
            self.lose("", end.page, what);
            let next = goes_on.map_or(reached.saturating_add(1), |at| at.sequence);
            for (nth, half) in halves.iter().enumerate() {
                follows[nth] |= (end.sequence..=next).contains(&half.position.sequence);
            }
            let Some(at) = goes_on else { break };
            scan = Scan::new(device, at);
        }
        for (half, _) in halves.iter().zip(follows).filter(|(_, follows)| *follows) {
            self.commits(&half.commits, &mut done, has)?;
            if half.is_cut {
                let what = "commits beside the log are lost";
                self.lose("", half.position.page, what);
            }
        }
        for ((_, key), table) in std::mem::take(&mut self.lost_values) {
            self.lose_value(&table, key);
        }
        Ok(())
    }

    /// Adds commits that were not done yet. Tables are already as of commit `has`.
    fn commits(&mut self, bytes: &[u8], done: &mut u64, has: u64) -> Result<(), DbmError> {
        let mut reader = Reader(bytes);
        while let Some((number, changes)) = next_commit(&mut reader) {
            if number > *done {
                *done = number;
                for change in changes {
                    use Change::{CreateTable, DropTable};
                    let is_new = number > has;
                    if is_new {
                        self.change(&change, true)?;
                    } else if !matches!(change, CreateTable(..) | DropTable(_)) {
                        self.catch_up(number, &change)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies a change up to the checkpoint's commit to the leaves that lack it.
    fn catch_up(&mut self, number: u64, change: &Change<'_>) -> Result<(), DbmError> {
        let (id, from, to) = match *change {
            Change::Put(id, key, _) | Change::PutLong(id, key, _) | Change::Delete(id, key) => {
                (id, key, Some([key, &[0]].concat()))
            }
            Change::DeleteRange(id, from, to) => (id, from, to.map(<[u8]>::to_vec)),
            Change::CreateTable(..) | Change::DropTable(_) => return Ok(()),
        };
        let Some(table) = self.tables.get(&id).map(|table| table.number()) else {
            return Ok(());
        };
        let first = self.leaves.range(..=(table, from.to_vec())).next_back();
        let first = first.filter(|((of, _), _)| *of == table);
        let first = first.map_or(Vec::new(), |((_, from), _)| from.clone());
        let late: Vec<(Vec<u8>, Border)> = self
            .leaves
            .range((table, first)..)
            .take_while(|((of, low), _)| *of == table && to.as_ref().is_none_or(|to| low < to))
            .filter(|(_, (commit, _))| *commit < number)
            .map(|((_, low), (_, high))| (low.clone(), high.clone()))
            .collect();
        for (low, high) in late {
            match *change {
                Change::DeleteRange(id, from, to) => {
                    let ends = [high.as_deref(), to].into_iter().flatten();
                    let change = Change::DeleteRange(id, from.max(&low), ends.min());
                    self.change(&change, false)?;
                }
                ref change if high.as_deref().is_none_or(|high| from < high) => {
                    self.change(change, false)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The table of a change. A table that the checkpoint should have, but has not, was dropped.
    /// After the checkpoint the record with the name is lost, and the table gets another name.
    fn table_of(&mut self, id: u32, is_new: bool) -> Result<Option<Table>, DbmError> {
        let known = self.tables.get(&id).cloned();
        if known.is_some() || !is_new {
            return Ok(known);
        }
        let name = format!("recovered-table-{id}");
        let table = self.make(id, &name)?;
        let what = format!("the name of table {id} is lost");
        self.lose(&name, 0, &what);
        Ok(Some(table))
    }

    fn change(&mut self, change: &Change<'_>, is_new: bool) -> Result<(), DbmError> {
        match *change {
            Change::CreateTable(id, name) => {
                let name = String::from_utf8_lossy(name);
                self.make(id, &name)?;
            }
            Change::DropTable(id) => {
                self.commit()?;
                if let Some(table) = self.tables.remove(&id) {
                    self.lost_values.retain(|(of, _), _| *of != table.number());
                    self.to.drop_table(&table)?;
                    self.tx = self.to.begin();
                }
            }
            Change::Put(id, key, value) => self.put(id, key, Some(value), is_new)?,
            Change::PutLong(id, key, blob) => {
                let value = self.long_value(blob);
                self.put(id, key, value.as_deref(), is_new)?;
            }
            Change::Delete(id, key) => {
                if let Some(table) = self.table_of(id, is_new)? {
                    self.lost_values.remove(&(table.number(), key.to_vec()));
                    self.tx.delete(&table, key)?;
                }
            }
            Change::DeleteRange(id, from, to) => {
                if let Some(table) = self.table_of(id, is_new)? {
                    self.lost_values.retain(|(of, key), _| {
                        let inside = &key[..] >= from && to.is_none_or(|to| &key[..] < to);
                        *of != table.number() || !inside
                    });
                    self.tx.delete_range(&table, from, to)?;
                }
            }
        }
        Ok(())
    }

    /// Puts a value, or notes that it is lost.
    fn put(
        &mut self,
        id: u32,
        key: &[u8],
        value: Option<&[u8]>,
        is_new: bool,
    ) -> Result<(), DbmError> {
        let Some(table) = self.table_of(id, is_new)? else {
            return Ok(());
        };
        let of = (table.number(), key.to_vec());
        let Some(value) = value else {
            // The earlier value is not the right one either.
            self.lost_values.insert(of, table.name().to_owned());
            return self.tx.delete(&table, key);
        };
        self.lost_values.remove(&of);
        self.tx.put(&table, key, value)?;
        self.wrote(key.len() + value.len())
    }
}
