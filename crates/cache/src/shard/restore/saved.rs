// SPDX-License-Identifier: Apache-2.0
//! The files of a clean stop: the index, and the items of DRAM if they are to be kept.
//!
//! `docs/formats/data-directory.md` has the tables. The files are written and read from start to
//! end. Each segment of the index and each item has a checksum, so damage affects only that part.
//! Head and table have their own checksums; if these are wrong, nothing is read.
//!
//! Always holds: checks before each read bound it. Arbitrary bytes cost at most as much memory as
//! their length.

use std::io::{self, Read, Write};
use std::sync::Arc;

use senko_io::le::{put, u32_at, u64_at};
use senko_io::{AlignedBuf, DeviceId, PageBuf, Queue, Tag};

use super::{Places, Recovered, Sizes};
use crate::flash::log::{Log, LogMark};
use crate::index::{Index, Shape, Slot};
use crate::key::Key;
use crate::record;
use crate::shard::Shard;
use crate::stats::CacheStats;
use crate::superblock::{VERSION, is_sealed, seal};
use crate::words::Belongs;

const INDEX_MAGIC: &[u8; 8] = b"SENKOIDX";
const ITEMS_MAGIC: &[u8; 8] = b"SENKOITM";
/// Bytes of the fixed part of an index.
const HEAD: usize = 96;
/// Bytes of the head of a file of items.
const ITEMS_HEAD: usize = 48;
/// Bytes before each item.
const ENTRY: usize = 24;
/// Bytes of a log in the table.
const LOG_BYTES: usize = 24;
/// The item was not on probation in the eviction policy.
const PROVEN: u32 = 1;
/// From this bit on: the share of similar items that was newer, in parts of 65,536.
const NEWER_AT: u32 = 16;

/// The head of a saved index, before the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub life: u32,
    pub shape: Shape,
    pub marks: Vec<LogMark>,
    /// The size step of each segment.
    pub steps: Vec<u8>,
    /// Items of DRAM that the stop saved, without those that are on flash too.
    pub only_dram: u64,
    /// Whether sorted records follow behind the segments.
    pub has_sorted: bool,
}

/// Fills in the head of a file: all fields except those that [`seal`] writes.
fn begin(head: &mut [u8], belongs: &Belongs, stop: u64) {
    put(head, 16, &belongs.id.to_le_bytes());
    put(head, 24, &stop.to_le_bytes());
    put(head, 32, &belongs.shard.to_le_bytes());
}

/// Checks the fields that [`begin`] and [`seal`] wrote.
fn check(head: &[u8], magic: &[u8; 8], belongs: &Belongs, stop: u64) -> Result<(), &'static str> {
    if &head[..8] != magic {
        return Err("is of another kind");
    }
    if u32_at(head, 8) != VERSION {
        return Err("is of another version of senko");
    }
    if !is_sealed(head) {
        return Err("is damaged");
    }
    if (u64_at(head, 16), u64_at(head, 24), u32_at(head, 32)) != (belongs.id, stop, belongs.shard) {
        return Err("is of another stop");
    }
    Ok(())
}

impl Head {
    fn write(&self, out: &mut dyn Write, belongs: &Belongs, stop: u64) -> io::Result<()> {
        let mut head = [0; HEAD];
        begin(&mut head, belongs, stop);
        put(&mut head, 36, &self.life.to_le_bytes());
        put(&mut head, 40, &self.shape.segment_bits.to_le_bytes());
        put(&mut head, 44, &self.shape.tag_bits.to_le_bytes());
        put(&mut head, 48, &(self.shape.page_bytes as u64).to_le_bytes());
        put(&mut head, 56, &belongs.region_pages.to_le_bytes());
        put(&mut head, 64, &(belongs.logs as u32).to_le_bytes());
        put(&mut head, 68, &(belongs.regions as u32).to_le_bytes());
        put(&mut head, 72, &self.only_dram.to_le_bytes());
        put(&mut head, 80, &u32::from(self.has_sorted).to_le_bytes());
        seal(&mut head, INDEX_MAGIC);
        out.write_all(&head)?;
        let mut table = Vec::new();
        for mark in &self.marks {
            for position in [mark.head, mark.tail, mark.flushed] {
                table.extend_from_slice(&position.to_le_bytes());
            }
        }
        for first in self.marks.iter().flat_map(|m| &m.regions) {
            table.extend_from_slice(&first.to_le_bytes());
        }
        table.extend_from_slice(&self.steps);
        out.write_all(&table)?;
        out.write_all(&crc32c::crc32c(&table).to_le_bytes())
    }

    /// Reads and checks everything before the segments, or says why it is unusable.
    pub fn read(from: &mut dyn Read, plan: &Sizes, stop: u64) -> Result<Head, String> {
        Head::read_checked(from, plan, stop).map_err(|why| format!("the saved index {why}"))
    }

    fn read_checked(from: &mut dyn Read, plan: &Sizes, stop: u64) -> Result<Head, &'static str> {
        let belongs = &plan.belongs;
        let mut head = [0; HEAD];
        from.read_exact(&mut head).map_err(|_| "is cut short")?;
        check(&head, INDEX_MAGIC, belongs, stop)?;
        let shape = Shape {
            segment_bits: u32_at(&head, 40),
            tag_bits: u32_at(&head, 44),
            page_bytes: u64_at(&head, 48) as usize,
        };
        let of_flash = (
            u64_at(&head, 56),
            u32_at(&head, 64) as usize,
            u32_at(&head, 68) as usize,
        );
        if of_flash != (belongs.region_pages, belongs.logs, belongs.regions)
            || !shape.fits(plan.flash_pages)
        {
            return Err("is of other flash");
        }
        let records = belongs.logs * LOG_BYTES;
        let len = records + belongs.regions * 4 + shape.segments();
        let mut table = Vec::new();
        let read = from.take(len as u64 + 4).read_to_end(&mut table);
        if read.is_err() || table.len() < len + 4 {
            return Err("is cut short");
        }
        if crc32c::crc32c(&table[..len]) != u32_at(&table, len) {
            return Err("is damaged");
        }
        let mut firsts = table[records..]
            .chunks_exact(4)
            .map(|b| u32_at(b, 0))
            .take(belongs.regions);
        let marks = (0..belongs.logs)
            .map(|n| {
                let log = &table[n * LOG_BYTES..];
                LogMark {
                    head: u64_at(log, 0),
                    written: u64_at(log, 0),
                    tail: u64_at(log, 8),
                    flushed: u64_at(log, 16),
                    regions: firsts.by_ref().take(plan.regions[n]).collect(),
                }
            })
            .collect();
        Ok(Head {
            life: u32_at(&head, 36),
            shape,
            marks,
            steps: table[len - shape.segments()..len].to_vec(),
            only_dram: u64_at(&head, 72),
            has_sorted: u32_at(&head, 80) == 1,
        })
    }

    /// Fills the segments of an index with this head's size steps. Damaged or missing segments stay
    /// empty.
    pub fn read_segments(
        &self,
        from: &mut dyn Read,
        index: &mut Index,
        recovered: &mut Recovered,
        places: &Places<'_>,
    ) {
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        let mut whole = true;
        for n in 0..index.segments() {
            let crc = if whole {
                load(from, index.load(n))
            } else {
                None
            };
            whole &= crc.is_some();
            let intact = crc.is_some_and(|crc| crc == segment_crc(n, index.segment_bytes(n)));
            if !intact {
                recovered.damaged += 1;
                index.wipe(n);
                continue;
            }
            let mut all = true;
            index.each(n, |slot| all &= places.holds(slot));
            if all {
                index.count(n);
            } else {
                index.slots_of(n, &mut slots);
                let kept = slots.iter().copied().filter(|&slot| places.holds(slot));
                index.mend(n, kept, &mut new);
            }
        }
    }
}

/// Reads a segment and the checksum after it.
fn load(from: &mut dyn Read, into: &mut [u8]) -> Option<u32> {
    let mut crc = [0; 4];
    from.read_exact(into).ok()?;
    from.read_exact(&mut crc).ok()?;
    Some(u32::from_le_bytes(crc))
}

/// Seeded with the segment's number, so that segments can't be confused.
fn segment_crc(n: usize, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(n as u32, bytes)
}

/// The queue of a shard that does not serve yet. A closed shard writes nothing when it evicts
/// (`demote.rs`).
struct Nowhere;

impl Queue for Nowhere {
    fn frame(&mut self, _: usize) -> Option<PageBuf> {
        None
    }
    fn read(&mut self, _: DeviceId, _: u64, _: usize, _: PageBuf, _: Tag, _: u64) {
        unreachable!("nothing is read");
    }
    fn write(
        &mut self,
        _: DeviceId,
        _: u64,
        _: Arc<AlignedBuf>,
        _: usize,
        _: usize,
        _: Tag,
        _: u64,
    ) {
        unreachable!("nothing is written");
    }
    fn flush(&mut self, _: DeviceId, _: Tag, _: u64) {
        unreachable!("nothing is flushed");
    }
    fn discard(&mut self, _: DeviceId, _: u64, _: u64, _: Tag, _: u64) {
        unreachable!("nothing is discarded");
    }
}

/// Items of a clean stop, still to be read.
pub(crate) struct SavedItems<'a> {
    from: Box<dyn Read + 'a>,
    belongs: Belongs,
    stop: u64,
}

impl<'a> SavedItems<'a> {
    pub fn new(from: Box<dyn Read + 'a>, belongs: Belongs, stop: u64) -> SavedItems<'a> {
        SavedItems {
            from,
            belongs,
            stop,
        }
    }

    /// The next item, with its record separate; `None` at the end, or at damage, which `damaged`
    /// tells.
    fn next(&mut self, record: &mut Vec<u8>, damaged: &mut bool) -> Option<SavedItem> {
        *damaged = true;
        let mut entry = [0; ENTRY];
        self.from.read_exact(&mut entry).ok()?;
        let len = u64::from(u32_at(&entry, 4));
        record.clear();
        let read = (&mut self.from).take(len).read_to_end(record);
        if read.is_err() || record.len() as u64 != len {
            return None;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&entry[4..]), record);
        if crc != u32_at(&entry, 0) {
            return None;
        }
        *damaged = false;
        let flags = u32_at(&entry, 12);
        (len > 0).then(|| SavedItem {
            access: u32_at(&entry, 8),
            copy: Slot(u64_at(&entry, 16)),
            proven: flags & PROVEN != 0,
            newer: flags >> NEWER_AT,
        })
    }
}

/// The saved metadata of an item besides its record.
struct SavedItem {
    access: u32,
    copy: Slot,
    proven: bool,
    newer: u32,
}

/// The items of DRAM that were saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedCounts {
    /// All of them.
    pub items: u64,
    /// Those that are on flash too: [`Shard::save`] counts them again.
    pub on_flash: u64,
}

impl SavedCounts {
    fn only_dram(&self) -> u64 {
        self.items - self.on_flash
    }
}

impl Shard {
    /// Writes the items of DRAM, oldest first, for [`Shard::open`] after a clean stop. Call it
    /// before [`Shard::save`].
    pub fn save_items(&self, out: &mut dyn Write, stop: u64) -> io::Result<SavedCounts> {
        let mut head = [0; ITEMS_HEAD];
        begin(&mut head, &self.belongs(), stop);
        put(&mut head, 40, &self.dram.item_bytes().to_le_bytes());
        seal(&mut head, ITEMS_MAGIC);
        out.write_all(&head)?;
        let mut saved = SavedCounts::default();
        for order in self.dram.orders() {
            let proven = order.iter().filter(|(_, proven)| *proven).count();
            // For items on probation and for the others: their number, and how many of them are
            // newer.
            let all = [order.len() - proven, proven];
            let mut newer = all;
            for (item, proven) in order {
                let like = usize::from(proven);
                newer[like] -= 1;
                if self.is_dead(item) {
                    continue;
                }
                let share = ((newer[like] << 16) / all[like]) as u32;
                let copy = self.dram.arena().flash_copy(item);
                let copy = if self.copy_holds(copy) {
                    saved.on_flash += 1;
                    copy
                } else {
                    Slot::EMPTY
                };
                let len = self.dram.arena().header(item).dram_len();
                let mut entry = [0; ENTRY];
                put(&mut entry, 4, &(len as u32).to_le_bytes());
                put(&mut entry, 8, &self.dram.arena().access(item).to_le_bytes());
                let flags = u32::from(proven) | share << NEWER_AT;
                put(&mut entry, 12, &flags.to_le_bytes());
                put(&mut entry, 16, &copy.0.to_le_bytes());
                let mut crc = crc32c::crc32c(&entry[4..]);
                self.dram.arena().pieces(item, 0, len, |piece| {
                    crc = crc32c::crc32c_append(crc, piece);
                });
                put(&mut entry, 0, &crc.to_le_bytes());
                out.write_all(&entry)?;
                let mut result = Ok(());
                self.dram.arena().pieces(item, 0, len, |piece| {
                    if result.is_ok() {
                        result = out.write_all(piece);
                    }
                });
                result?;
                saved.items += 1;
            }
        }
        let mut end = [0; ENTRY];
        let crc = crc32c::crc32c(&end[4..]);
        put(&mut end, 0, &crc.to_le_bytes());
        out.write_all(&end)?;
        Ok(saved)
    }

    /// Whether the saved index will have the copy, even if its device is out of use now. If an item
    /// were saved without its existing copy, it would have two slots. The older value would
    /// reappear when the item is deleted (SHARD-1).
    fn copy_holds(&self, copy: Slot) -> bool {
        copy != Slot::EMPTY && !self.is_gone(copy)
    }

    /// Writes the index, for [`Shard::open`] after a clean stop, and how many items of DRAM were
    /// saved. Slots of items in DRAM turn to the flash copy, or are dropped: the shard ends here.
    /// Returns how many items are on flash.
    pub fn save(&mut self, out: &mut dyn Write, stop: u64, items: SavedCounts) -> io::Result<u64> {
        debug_assert!(self.is_closed());
        let belongs = self.belongs();
        let Shard {
            index,
            dram,
            flash,
            now,
            ..
        } = self;
        let (arena, logs) = (dram.arena(), flash.logs());
        let places = Places {
            logs,
            written: logs.iter().map(|log| log.mark().head).collect(),
            shape: index.shape(),
            now: *now,
        };
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        for n in 0..index.segments() {
            index.slots_of(n, &mut slots);
            let on_flash = slots.iter().map(|&slot| {
                if slot.is_dram() {
                    arena.flash_copy(places.shape.handle(slot)).with_hot(1)
                } else {
                    slot
                }
            });
            index.mend(n, on_flash.filter(|&slot| places.holds(slot)), &mut new);
        }
        let head = Head {
            life: logs.first().map_or(0, Log::life),
            shape: index.shape(),
            marks: logs.iter().map(Log::mark).collect(),
            steps: (0..index.segments()).map(|n| index.step_of(n)).collect(),
            only_dram: items.only_dram(),
            has_sorted: index.sorted().is_some(),
        };
        head.write(out, &belongs, stop)?;
        for n in 0..index.segments() {
            let bytes = index.segment_bytes(n);
            out.write_all(bytes)?;
            out.write_all(&segment_crc(n, bytes).to_le_bytes())?;
        }
        index.save_sorted(out)?;
        Ok(index.flash_slots())
    }

    /// Loads the items of a clean stop, as far as there is memory.
    pub(crate) fn load_items(&mut self, saved: &mut SavedItems<'_>, recovered: &mut Recovered) {
        let mut head = [0; ITEMS_HEAD];
        let read = saved.from.read_exact(&mut head).is_ok();
        if !read || check(&head, ITEMS_MAGIC, &saved.belongs, saved.stop).is_err() {
            recovered.damaged += 1;
            return;
        }
        let mut record = Vec::new();
        let mut damaged = false;
        // If there is less memory than before, the oldest items of each class are not loaded; those
        // with a copy on flash keep it. Apart from that, a start evicts as commands do, but writes
        // nothing.
        let room = self.dram.memory().saturating_sub(self.index.bytes()) as u64;
        let keep = u128::from(room << 16) / u128::from(u64_at(&head, 40).max(1));
        self.flash.set_closed(true);
        while let Some(item) = saved.next(&mut record, &mut damaged) {
            let Some((header, key)) = record::whole(&record) else {
                damaged = true;
                break;
            };
            if item.copy == Slot::EMPTY {
                recovered.lost = recovered.lost.saturating_sub(1);
            }
            if record::expired(header.expiry, self.now) {
                continue;
            }
            let loaded = u128::from(item.newer) < keep && self.load_item(&record, key, &item);
            recovered.dropped += u64::from(!loaded);
        }
        self.flash.set_closed(false);
        // Operations during the start do not count as requests of commands.
        recovered.dropped += self.stats.evictions + self.stats.demotions_clean;
        self.stats = CacheStats::default();
        self.dram.reset_evictions();
        recovered.damaged += u64::from(damaged);
        recovered.dram_items = self.dram.items();
        recovered.flash_items = self.index.flash_slots();
    }

    /// Links one item; false if there is no memory for it.
    fn load_item(&mut self, record: &[u8], key: &[u8], saved: &SavedItem) -> bool {
        let copy = saved.copy;
        let hash = Key::new(key, self.config.hash_seed).hash;
        self.grow_index(&mut Nowhere, hash);
        let Ok(item) = self.take_item(&mut Nowhere, record.len()) else {
            return false;
        };
        self.dram.put(item, 0, record);
        self.dram.set_access(item, saved.access);
        self.dram.set_epoch(item, self.epoch);
        let there = (copy != Slot::EMPTY)
            .then(|| self.index.find_same(hash, copy))
            .flatten();
        if let Some((pos, _)) = there {
            self.dram.set_flash_copy(item, copy.with_hot(0));
            self.turn_to_dram(&pos, hash, item);
            self.dram.link(item, hash, saved.proven);
            return true;
        }
        let slot = self.index.dram_slot(hash, item);
        if self.index.insert(hash, slot).is_err() {
            self.dram.free_item(item);
            return false;
        }
        self.dram.link(item, hash, saved.proven);
        true
    }
}

/// The readers of saved files on arbitrary bytes, for the fuzz target of the saved files. If the
/// first byte is odd, the checksums of head and table are corrected first.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_saved(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let shape = Shape::plan(256, 1 << 20, false);
    let plan = Sizes {
        belongs: Belongs {
            id: 1,
            shard: 0,
            logs: 1,
            regions: 16,
            region_pages: 16,
        },
        regions: vec![16],
        flash_pages: 256,
        memory: 1 << 20,
        item_pages: 16,
        now: 0,
        sorted: None,
        sorts: false,
    };
    let mut bytes = data.to_vec();
    if first & 1 == 1 && bytes.len() >= HEAD {
        let mut head = [0; HEAD];
        begin(&mut head, &plan.belongs, 1);
        put(&mut bytes, 0, &head[..36]);
        seal(&mut bytes[..HEAD], INDEX_MAGIC);
        let len = LOG_BYTES + 16 * 4 + shape.segments();
        if bytes.len() >= HEAD + len + 4 {
            let crc = crc32c::crc32c(&bytes[HEAD..HEAD + len]);
            put(&mut bytes, HEAD + len, &crc.to_le_bytes());
        }
    }
    let mut from = bytes.as_slice();
    if let Ok(head) = Head::read(&mut from, &plan, 1) {
        assert!(head.shape.fits(256) && head.steps.len() == head.shape.segments());
    }
    let mut items = SavedItems::new(Box::new(data), plan.belongs, 1);
    let (mut record, mut damaged) = (Vec::new(), false);
    while items.next(&mut record, &mut damaged).is_some() {
        if let Some((header, key)) = record::whole(&record) {
            assert!(header.dram_prefix() <= record.len() && !key.is_empty());
        }
    }
}
