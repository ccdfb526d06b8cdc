// SPDX-License-Identifier: Apache-2.0
//! Walks over all items: `lru_crawler metadump` and `mgdump`, `stats cachedump`. `stats sizes`
//! walks over the items in DRAM only.
//!
//! A walk proceeds in parts of bounded size, shard by shard. So neither the reply nor the delay for
//! other clients grows with the cache. A part of another shard is requested with an internal
//! command ([`part_request`]) that only a virtual connection understands. The keys of items on
//! flash are not in DRAM, so the session reads them, a few at a time, to complete a part
//! ([`Part`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use senko_cache::{FlashRef, Listed, Meta, Scanned, Shard, SlabClassStats};
use senko_io::Queue;

use super::sink::Sink;
use crate::context::Ctx;
use crate::protocol::number::{push_base64, push_u64};
use crate::protocol::{is_word, push_key, push_uri};
use crate::shards::Shards;
use crate::shared::{ConnEntry, ConnState};

/// Slab class numbers are below this (memcached's bound).
pub(super) const MAX_CLASSES: u32 = 64;
/// Most rows of a table (connections, prefixes) in a part.
const TABLE_ROWS: usize = 32;
/// Most rows of `stats sizes`. Each connection may hold one histogram.
const SIZE_ROWS: usize = 256;
/// Bytes of a row of `stats sizes`, as in memcached, as long as there are not too many rows.
const SIZE_STEP: u32 = 32;
/// `stats cachedump` answers at most this many bytes, as in memcached.
const CACHEDUMP_BYTES: usize = 2 << 20;
/// A part ends after so many items, or scans where the index has few. One of items in DRAM alone
/// has more: most may be on flash, and take no time.
const PART_ITEMS: usize = 128;
const DRAM_PART_ITEMS: usize = 2048;
const PART_SCANS: usize = 64;
/// The cursor of a finished walk.
const END: u64 = u64::MAX;

/// What a walk collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpKind {
    /// A line of metadata for each item; of both tiers, or of DRAM alone.
    Metadump { classes: Classes, dram_only: bool },
    /// A `mg` line for each item.
    Mgdump { classes: Classes },
    /// Keys of a class, at most `limit` (0: no limit).
    Cachedump { class: u32, limit: u32 },
    /// A histogram of sizes.
    Sizes,
    /// No items, but the rows of a table that all workers share.
    Table(Table),
}

impl DumpKind {
    /// Whether it omits items on flash, and reads nothing.
    fn is_of_dram(self) -> bool {
        matches!(
            self,
            DumpKind::Sizes
                | DumpKind::Metadump {
                    dram_only: true,
                    ..
                }
        )
    }
}

/// A set of slab classes, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classes(u64);

impl Classes {
    /// All possible classes.
    pub const ALL: Classes = Classes(u64::MAX);
    /// The empty set.
    pub const NONE: Classes = Classes(0);

    /// The set with one more class; `class` is below [`MAX_CLASSES`].
    #[must_use]
    pub fn with(self, class: u32) -> Classes {
        Classes(self.0 | 1 << class)
    }
    fn has(self, class: u32) -> bool {
        class < MAX_CLASSES && self.0 >> class & 1 != 0
    }
}

/// A table that may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// `stats conns`.
    Connections,
    /// `stats detail dump`.
    Prefixes,
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Dump {
    kind: DumpKind,
    worker: usize,
    cursor: u64,
    items: u32,
    bytes: usize,
    sizes: Sizes,
    /// The last prefix that was shown.
    prefix: Option<Vec<u8>>,
    /// Another worker was asked for a part.
    pub waiting: bool,
}

/// Items by their size, in a bounded number of rows. Each row counts the items up to its size that
/// are larger than the previous row's size.
#[derive(Debug)]
struct Sizes {
    step: u32,
    rows: BTreeMap<u32, u64>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            step: SIZE_STEP,
            rows: BTreeMap::new(),
        }
    }
}

impl Sizes {
    /// Counts items. If there are too many rows, it joins pairs of rows.
    fn add(&mut self, size: u32, count: u64) {
        let row = |size: u32, step: u32| size.checked_next_multiple_of(step).unwrap_or(u32::MAX);
        *self.rows.entry(row(size, self.step)).or_default() += count;
        while self.rows.len() > SIZE_ROWS {
            self.step *= 2;
            for (size, count) in std::mem::take(&mut self.rows) {
                *self.rows.entry(row(size, self.step)).or_default() += count;
            }
        }
    }
}

/// The next step of a walk.
#[derive(Debug)]
pub(crate) enum DumpStep {
    /// The next rows of a table.
    Table(Table),
    /// A part of this worker's shards.
    Local(DumpKind, u64),
    /// This request, sent to that worker.
    Foreign(usize, Vec<u8>),
    Finished,
}

impl Dump {
    pub fn new(kind: DumpKind) -> Dump {
        Dump {
            kind,
            worker: 0,
            cursor: 0,
            items: 0,
            bytes: 0,
            sizes: Sizes::default(),
            prefix: None,
            waiting: false,
        }
    }

    /// The next step; `me` is this worker.
    pub fn next(&self, me: usize, workers: usize) -> DumpStep {
        if self.worker >= workers || self.is_full() {
            DumpStep::Finished
        } else if let DumpKind::Table(table) = self.kind {
            DumpStep::Table(table)
        } else if self.worker == me {
            DumpStep::Local(self.kind, self.cursor)
        } else {
            DumpStep::Foreign(self.worker, part_request(self.kind, self.cursor))
        }
    }

    fn is_full(&self) -> bool {
        match self.kind {
            DumpKind::Cachedump { limit, .. } => {
                (limit != 0 && self.items >= limit) || self.bytes >= CACHEDUMP_BYTES
            }
            _ => false,
        }
    }

    /// Takes a part (from [`Part::finish`]) and appends its output for the client.
    pub fn take(&mut self, part: &[u8], out: &mut Vec<u8>) {
        let (cursor, body) = part.split_at_checked(8).unwrap_or((&[0xff; 8], &[]));
        self.cursor = u64::from_le_bytes(cursor.try_into().expect("eight bytes were split off"));
        if self.cursor == END {
            self.worker += 1;
            self.cursor = 0;
        }
        match self.kind {
            DumpKind::Metadump { .. } | DumpKind::Mgdump { .. } => out.extend_from_slice(body),
            DumpKind::Cachedump { limit, .. } => {
                for line in body.split_inclusive(|&b| b == b'\n') {
                    if (limit != 0 && self.items >= limit)
                        || self.bytes + line.len() > CACHEDUMP_BYTES
                    {
                        self.bytes = CACHEDUMP_BYTES;
                        break;
                    }
                    self.items += 1;
                    self.bytes += line.len();
                    out.extend_from_slice(line);
                }
            }
            DumpKind::Table(_) => {}
            DumpKind::Sizes => {
                for pair in body.chunks_exact(12) {
                    let size = u32::from_le_bytes(pair[..4].try_into().expect("four bytes"));
                    let count = u64::from_le_bytes(pair[4..].try_into().expect("eight bytes"));
                    self.sizes.add(size, count);
                }
            }
        }
    }

    /// Appends the next rows of a table.
    pub fn table_part(&mut self, ctx: &mut Ctx<'_, impl Queue>, table: Table, out: &mut Vec<u8>) {
        let more = match table {
            Table::Connections => {
                let rows = ctx.shared.connections(self.cursor, TABLE_ROWS);
                connections(ctx, &rows, out);
                self.cursor = rows.last().map_or(END, |(id, _)| id + 1);
                rows.len() == TABLE_ROWS
            }
            Table::Prefixes => {
                let after = self.prefix.take();
                self.prefix = ctx.shared.prefixes.dump(after.as_deref(), TABLE_ROWS, out);
                self.prefix.is_some()
            }
        };
        if !more {
            self.worker = ctx.shared.deal.workers();
        }
    }

    /// Appends the end of the output.
    pub fn finish(&self, out: &mut Vec<u8>) {
        for (size, count) in &self.sizes.rows {
            out.extend_from_slice(format!("STAT {size} {count}\r\n").as_bytes());
        }
        out.extend_from_slice(match self.kind {
            DumpKind::Mgdump { .. } => b"EN\r\n",
            _ => b"END\r\n",
        });
    }
}

/// First byte of the commands that workers send each other. No forwarded client command begins with
/// it.
pub(crate) const INTERNAL: u8 = 0;

/// Asks a worker to publish its counters; the answer is an empty unit.
pub(crate) const SHOW_COUNTERS: &[u8] = b"\0show\r\n";

/// The internal command for a part.
fn part_request(kind: DumpKind, cursor: u64) -> Vec<u8> {
    let (code, classes) = match kind {
        DumpKind::Metadump {
            classes,
            dram_only: false,
        } => (b'm', classes.0),
        DumpKind::Metadump { classes, .. } => (b'd', classes.0),
        DumpKind::Mgdump { classes } => (b'g', classes.0),
        DumpKind::Cachedump { class, .. } => (b'c', u64::from(class)),
        DumpKind::Sizes | DumpKind::Table(_) => (b's', 0),
    };
    let mut request = vec![INTERNAL, code, b' '];
    push_u64(&mut request, classes);
    request.push(b' ');
    push_u64(&mut request, cursor);
    request.extend_from_slice(b"\r\n");
    request
}

/// Reads the internal command, without its line end.
pub(crate) fn parse_part_request(line: &[u8]) -> Option<(DumpKind, u64)> {
    use crate::protocol::number::plain_u64;
    let [INTERNAL, code, rest @ ..] = line else {
        return None;
    };
    let mut tokens = crate::protocol::Tokens::new(rest);
    let number = plain_u64(tokens.next()?)?;
    let cursor = plain_u64(tokens.next()?)?;
    let classes = Classes(number);
    let kind = match code {
        b'm' | b'd' => DumpKind::Metadump {
            classes,
            dram_only: *code == b'd',
        },
        b'g' => DumpKind::Mgdump { classes },
        b'c' => DumpKind::Cachedump {
            class: u32::try_from(number).ok()?,
            limit: 0,
        },
        b's' => DumpKind::Sizes,
        _ => return None,
    };
    Some((kind, cursor))
}

/// A part of this worker's shards while it is being made. It lies in one of them.
#[derive(Debug)]
pub(crate) struct Part {
    kind: DumpKind,
    /// Its cursor.
    from: u64,
    /// The next cursor, or [`END`].
    cursor: u64,
    text: Vec<u8>,
    sizes: BTreeMap<u32, u64>,
    classes: Vec<SlabClassStats>,
    no_cas: bool,
    /// Items on flash that still have to be read.
    pub flash: Vec<FlashRef>,
}

impl Part {
    /// The part that begins at `from`, with the items that are in DRAM.
    pub fn begin(ctx: &mut Ctx<'_, impl Queue>, kind: DumpKind, from: u64) -> Part {
        ctx.cursor.flush(ctx.shared, ctx.shard);
        let mut part = Part {
            kind,
            from,
            cursor: END,
            text: Vec::new(),
            sizes: BTreeMap::new(),
            classes: ctx.shard.slab_classes(),
            no_cas: ctx.shared.settings.no_cas,
            flash: Vec::new(),
        };
        let own_from = ctx.shard.turn_to_part(from);
        let shard: &Shard = ctx.shard;
        let most = match kind.is_of_dram() {
            true => DRAM_PART_ITEMS,
            false => PART_ITEMS,
        };
        let mut cursor = Some(own_from);
        let (mut items, mut scans) = (0, 0);
        while let Some(at) = cursor
            && items < most
            && scans < PART_SCANS
        {
            scans += 1;
            cursor = shard.scan(at, |found| {
                items += 1;
                match found {
                    Scanned::Dram(item) => {
                        let size = shard.footprint(item);
                        part.add(shard.key(item), &shard.meta(item), size, false);
                    }
                    Scanned::Flash(_) if kind.is_of_dram() => {}
                    Scanned::Flash(at) => part.flash.push(at),
                }
            });
        }
        part.cursor = ctx.shard.next_part(cursor).unwrap_or(END);
        part
    }

    /// Turns to the shard in which it lies.
    pub fn turn_to_its_shard(&self, shards: &mut Shards) {
        shards.turn_to_part(self.from);
    }

    /// Adds items that were read from flash.
    pub fn add_listed(&mut self, items: &[Listed]) {
        for item in items {
            self.add(&item.key, &item.meta, item.footprint, true);
        }
    }

    fn add(&mut self, key: &[u8], meta: &Meta, size: usize, on_flash: bool) {
        let class = class_of(&self.classes, size);
        let text = &mut self.text;
        match self.kind {
            DumpKind::Metadump { classes, .. } if classes.has(class) => {
                text.extend_from_slice(b"key=");
                push_uri(text, key);
                let expiry = match meta.expiry {
                    0 => -1,
                    expiry => i64::from(expiry),
                };
                let line = format!(
                    " exp={expiry} la={} cas={} fetch={} cls={class} size={size} flags={}{} \n",
                    meta.last_access,
                    if self.no_cas { 0 } else { meta.cas },
                    if meta.fetched { "yes" } else { "no" },
                    meta.flags,
                    if on_flash { " tier=flash" } else { "" },
                );
                text.extend_from_slice(line.as_bytes());
            }
            DumpKind::Mgdump { classes } if classes.has(class) => {
                text.extend_from_slice(b"mg ");
                // A key with a line end in it would forge lines.
                if meta.binary_key || !is_word(key) {
                    push_base64(text, key);
                    text.extend_from_slice(b" b\r\n");
                } else {
                    text.extend_from_slice(key);
                    text.extend_from_slice(b"\r\n");
                }
            }
            DumpKind::Cachedump { class: only, .. } if only == class => {
                text.extend_from_slice(b"ITEM ");
                push_key(text, key);
                let line = format!(" [{} b; {} s]\r\n", meta.value_len, meta.expiry);
                text.extend_from_slice(line.as_bytes());
            }
            DumpKind::Sizes => {
                let size = size.next_multiple_of(SIZE_STEP as usize) as u32;
                *self.sizes.entry(size).or_default() += 1;
            }
            _ => {}
        }
    }

    /// The next cursor (8 bytes, little-endian), then text, or pairs of size and count.
    pub fn finish(self) -> Vec<u8> {
        let mut part = self.cursor.to_le_bytes().to_vec();
        part.extend_from_slice(&self.text);
        for (size, count) in self.sizes {
            part.extend_from_slice(&size.to_le_bytes());
            part.extend_from_slice(&count.to_le_bytes());
        }
        part
    }
}

/// The number of the class whose chunks hold an item of `size` bytes; the largest class for a
/// chained item.
pub(super) fn class_of(classes: &[SlabClassStats], size: usize) -> u32 {
    let fits = classes
        .iter()
        .filter(|class| class.chunk_size as usize >= size)
        .min_by_key(|class| class.chunk_size);
    fits.or(classes.iter().max_by_key(|class| class.chunk_size))
        .map_or(1, |class| class.id)
}

/// Some rows of `stats conns`.
fn connections(ctx: &Ctx<'_, impl Queue>, rows: &[(u64, Arc<ConnEntry>)], out: &mut Vec<u8>) {
    let mut sink = Sink::Text(out);
    let now = ctx.shard.now();
    for (id, entry) in rows {
        sink.stat(&format!("{id}:addr"), &entry.addr);
        if !entry.listen_addr.is_empty() {
            sink.stat(&format!("{id}:listen_addr"), &entry.listen_addr);
        }
        let own = ctx.entry.is_some_and(|own| std::ptr::eq(own, &**entry));
        let state = match entry.state() {
            _ if entry.listen_addr.is_empty() => "conn_listening",
            _ if own => "conn_parse_cmd",
            ConnState::Value => "conn_nread",
            ConnState::Swallowed => "conn_swallow",
            ConnState::Watching => "conn_watch",
            ConnState::Command => "conn_read",
        };
        sink.stat(&format!("{id}:state"), state);
        sink.stat(
            &format!("{id}:secs_since_last_cmd"),
            now.saturating_sub(entry.last_command.load(Relaxed)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_requests_round_trip() {
        for kind in [
            DumpKind::Metadump {
                classes: Classes::NONE.with(3).with(63),
                dram_only: false,
            },
            DumpKind::Metadump {
                classes: Classes::ALL,
                dram_only: true,
            },
            DumpKind::Mgdump {
                classes: Classes::ALL,
            },
            DumpKind::Cachedump { class: 9, limit: 0 },
            DumpKind::Sizes,
        ] {
            let request = part_request(kind, u64::MAX - 1);
            let line = request.strip_suffix(b"\r\n").expect("a whole line");
            assert_eq!(parse_part_request(line), Some((kind, u64::MAX - 1)));
        }
        assert_eq!(parse_part_request(b"get a"), None);
    }

    /// Nine hundred connections with `stats sizes` once held a histogram each, with a row for each
    /// size that occurred: 79 MiB of `-m 64m`.
    #[test]
    fn sizes_have_a_bounded_number_of_rows() {
        let mut dump = Dump::new(DumpKind::Sizes);
        for sizes in [1..=256_u32, 257..=10_000] {
            let mut part = END.to_le_bytes().to_vec();
            for n in sizes {
                part.extend_from_slice(&(n * SIZE_STEP).to_le_bytes());
                part.extend_from_slice(&2_u64.to_le_bytes());
            }
            let mut out = Vec::new();
            dump.take(&part, &mut out);
            dump.finish(&mut out);
            let text = String::from_utf8(out).expect("ASCII");
            let rows: Vec<(u64, u64)> = text
                .lines()
                .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
                .map(|(size, n)| (size.parse().expect("a size"), n.parse().expect("a count")))
                .collect();
            // Each row counts all items up to its size, each item once.
            let mut sum = 0;
            for (size, count) in &rows {
                sum += count;
                let below = (size / u64::from(SIZE_STEP)).min(10_000);
                assert_eq!(sum, below * 2, "up to {size} in {} rows", rows.len());
            }
            assert!(rows.len() > SIZE_ROWS / 4 && rows.len() <= SIZE_ROWS);
        }
        assert_eq!(dump.sizes.step, 64 * SIZE_STEP);
        // The largest possible items are counted.
        dump.sizes.add(u32::MAX, 1);
        assert_eq!(dump.sizes.rows.last_key_value(), Some((&u32::MAX, &1)));
    }

    #[test]
    fn cachedump_stops_at_its_limit() {
        let mut dump = Dump::new(DumpKind::Cachedump { class: 1, limit: 2 });
        let mut part = END.to_le_bytes().to_vec();
        part.extend_from_slice(b"ITEM a [1 b; 0 s]\r\nITEM b [1 b; 0 s]\r\nITEM c [1 b; 0 s]\r\n");
        let mut out = Vec::new();
        dump.take(&part, &mut out);
        dump.finish(&mut out);
        assert_eq!(out, b"ITEM a [1 b; 0 s]\r\nITEM b [1 b; 0 s]\r\nEND\r\n");
        assert!(matches!(dump.next(0, 5), DumpStep::Finished));
    }
}
