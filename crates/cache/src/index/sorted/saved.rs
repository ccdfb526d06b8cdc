// SPDX-License-Identifier: Apache-2.0
//! The sorted records in the file of a clean stop: runs, then the tables, segment by segment.
//!
//! `docs/formats/data-directory.md` has the table.

use std::io::{self, Read, Write};

use senko_io::le::{put, u32_at, u64_at};

use super::Sorted;
use super::ledger::{ENTRY_WORDS, Ledger};
use super::runs::Run;
use super::table::Table;
use crate::arena::Arena;

const MAGIC: &[u8; 8] = b"SENKOSRT";
/// Bytes before the runs: magic, number of runs, their pages, number of tables, newest batch,
/// checksum.
const HEAD: usize = 40;
/// Bytes of a run.
const RUN_BYTES: usize = 4 + 8 * ENTRY_WORDS;
/// Bytes before the segments of a table: first batch, size class, number of segments, checksum.
const TABLE_BYTES: usize = 16;

/// What comes before the runs.
#[derive(Debug)]
pub(crate) struct SavedHead {
    runs: u64,
    tables: u32,
    batch: u32,
    pub run_pages: u64,
}

impl SavedHead {
    /// Reads and checks it; `None` if it is damaged or missing.
    pub fn read(from: &mut dyn Read) -> Option<SavedHead> {
        let head: [u8; HEAD] = bytes(from)?;
        let run_pages = u32_at(&head, 16);
        let fits = run_pages.is_power_of_two() && u64::from(run_pages) <= super::RUN_PAGES as u64;
        (&head[..8] == MAGIC && fits && crc(0, &head[..36]) == u32_at(&head, 36)).then(|| {
            SavedHead {
                runs: u64_at(&head, 8),
                run_pages: run_pages.into(),
                tables: u32_at(&head, 20),
                batch: u32_at(&head, 24),
            }
        })
    }
}

fn crc(seed: usize, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed as u32, bytes)
}

fn bytes<const N: usize>(from: &mut dyn Read) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

impl Sorted {
    /// Writes all records' slots and places.
    pub fn save(&self, lines: &Arena, out: &mut dyn Write) -> io::Result<()> {
        let mut head = [0; HEAD];
        put(&mut head, 0, MAGIC);
        put(
            &mut head,
            8,
            &(self.runs.entries().count() as u64).to_le_bytes(),
        );
        put(&mut head, 16, &(self.run_pages() as u32).to_le_bytes());
        put(&mut head, 20, &(self.tables.len() as u32).to_le_bytes());
        put(&mut head, 24, &self.batch.to_le_bytes());
        let sum = crc(0, &head[..36]);
        put(&mut head, 36, &sum.to_le_bytes());
        out.write_all(&head)?;
        let mut sum = 0;
        for (n, entry) in self.runs.entries() {
            let mut run = [0; RUN_BYTES];
            put(&mut run, 0, &n.to_le_bytes());
            for (nth, word) in entry.iter().enumerate() {
                put(&mut run, 4 + nth * 8, &word.to_le_bytes());
            }
            sum = crc32c::crc32c_append(sum, &run);
            out.write_all(&run)?;
        }
        out.write_all(&sum.to_le_bytes())?;
        for (first, table) in &self.tables {
            let mut head = [0; TABLE_BYTES];
            put(&mut head, 0, &first.to_le_bytes());
            put(&mut head, 4, &(table.step() as u32).to_le_bytes());
            put(&mut head, 8, &(table.segments() as u32).to_le_bytes());
            let sum = crc(1, &head[..12]);
            put(&mut head, 12, &sum.to_le_bytes());
            out.write_all(&head)?;
            for segment in 0..table.segments() {
                let bytes = table.segment_bytes(lines, segment);
                out.write_all(&u32::from(bytes.is_some()).to_le_bytes())?;
                if let Some(bytes) = bytes {
                    out.write_all(bytes)?;
                    out.write_all(&crc(segment, bytes).to_le_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Reads what [`Sorted::save`] wrote behind the head. Returns the records, and how many parts
    /// were damaged. `ledger` has no records yet. `holds`: see [`Sorted::of`].
    pub fn load(
        head: &SavedHead,
        from: &mut dyn Read,
        lines: &mut Arena,
        ledger: &Ledger,
        holds: impl FnMut(&Run) -> bool,
    ) -> (Sorted, u64) {
        let empty = |lines: &Arena| Sorted::of(lines, ledger, |_| false);
        let none = empty(lines);
        let mut sum = 0;
        for _ in 0..head.runs {
            let Some(run) = bytes::<RUN_BYTES>(from) else {
                return (empty(lines), 1);
            };
            sum = crc32c::crc32c_append(sum, &run);
            let entry = std::array::from_fn(|nth| u64_at(&run, 4 + nth * 8));
            if !none.runs.put_entry(u32_at(&run, 0), entry) {
                return (empty(lines), 1);
            }
        }
        if bytes(from).map(u32::from_le_bytes) != Some(sum) {
            return (empty(lines), 1);
        }
        let mut sorted = Sorted::of(lines, ledger, holds);
        let mut damaged = 0;
        for _ in 0..head.tables {
            match sorted.load_table(from, lines, &mut damaged) {
                Some(()) => {}
                None => {
                    damaged += 1;
                    break;
                }
            }
        }
        sorted.batch = sorted.batch.max(head.batch);
        (sorted, damaged)
    }

    fn load_table(
        &mut self,
        from: &mut dyn Read,
        lines: &mut Arena,
        damaged: &mut u64,
    ) -> Option<()> {
        let head: [u8; TABLE_BYTES] = bytes(from)?;
        let (first, step) = (u32_at(&head, 0), u32_at(&head, 4) as usize);
        let follows = self.tables.back().is_none_or(|&(before, _)| before < first);
        if crc(1, &head[..12]) != u32_at(&head, 12) || !follows || !Table::takes(lines, step) {
            return None;
        }
        let segments = u32_at(&head, 8) as usize;
        let mut table = Table::empty(&mut self.directory, first, step, segments)?;
        let mut rest = Some(());
        for segment in 0..segments {
            rest = table.load_segment(from, lines, &self.directory, (segment, damaged));
            if rest.is_none() {
                break;
            }
        }
        self.tables.push_back((first, table));
        self.batch = self.batch.max(first);
        rest
    }
}

impl Table {
    /// Reads a segment. A damaged one, or one for which there is no memory, stays empty. `None` at
    /// the end of the file.
    fn load_segment(
        &mut self,
        from: &mut dyn Read,
        lines: &mut Arena,
        directory: &super::Directory,
        (segment, damaged): (usize, &mut u64),
    ) -> Option<()> {
        match u32::from_le_bytes(bytes(from)?) {
            0 => return Some(()),
            1 => {}
            _ => return None,
        }
        let mut read = vec![0; self.segment_len()];
        from.read_exact(&mut read).ok()?;
        let intact = u32::from_le_bytes(bytes(from)?) == crc(segment, &read);
        *damaged += u64::from(!intact);
        if intact && self.load(lines, directory, segment, &read).is_none() {
            *damaged += 1;
        }
        Some(())
    }
}
