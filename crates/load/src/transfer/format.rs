// SPDX-License-Identifier: Apache-2.0
//! The bytes of a dump, as `docs/formats/dump.md` describes them: blocks with checksums, and the
//! records of items in them.
//!
//! [`super::dump`] writes with [`Writer`], and [`super::restore`] reads with [`Reader`].

use std::io::{self, Read, Write};

use senko_io::counted;
use senko_io::le::{put, u32_at, u64_at};

use super::{Head, MAX_KEY, Take, TransferError};

/// The first bytes of a dump.
pub const MAGIC: &[u8; 8] = b"SENKODMP";
const VERSION: u32 = 1;
/// Bytes of the head of a dump, and of a block.
const FILE_HEAD: usize = 32;
const BLOCK_HEAD: usize = 16;
/// Most bytes of records in a block.
const BLOCK: usize = 256 << 10;
/// Bytes of the last block, and of a record before its key.
const TOTALS: usize = 24;
const RECORD_HEAD: usize = 20;
/// The mark of a key that was given in base64.
const BINARY_KEY: u8 = 1;
/// The level of zstd: the fastest of the usual ones, since the server is to be the slower part.
const LEVEL: i32 = 1;

/// What a whole dump has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub items: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// When the dump ended, in Unix seconds.
    pub ended: u64,
}

/// Writes a dump.
pub struct Writer<W> {
    to: W,
    zstd: zstd::bulk::Compressor<'static>,
    records: Vec<u8>,
    packed: Vec<u8>,
    block: u32,
    totals: Totals,
}

impl<W: Write> Writer<W> {
    /// Writes the head of a dump that began at `began`, in Unix seconds.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(mut to: W, began: u64) -> io::Result<Writer<W>> {
        let mut head = [0; FILE_HEAD];
        put(&mut head, 0, MAGIC);
        put(&mut head, 8, &VERSION.to_le_bytes());
        put(&mut head, 16, &began.to_le_bytes());
        let sum = crc32c::crc32c(&head[..FILE_HEAD - 4]);
        put(&mut head, FILE_HEAD - 4, &sum.to_le_bytes());
        to.write_all(&head)?;
        Ok(Writer {
            to,
            zstd: zstd::bulk::Compressor::new(LEVEL)?,
            records: Vec::with_capacity(BLOCK),
            packed: vec![0; zstd::zstd_safe::compress_bound(BLOCK)],
            block: 0,
            totals: Totals::default(),
        })
    }

    /// Begins an item. The bytes of its value follow by [`Writer::value`].
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn item(&mut self, item: &Head) -> io::Result<()> {
        let mut head = [0; RECORD_HEAD];
        head[0] = if item.binary_key { BINARY_KEY } else { 0 };
        head[1] = item.key.len() as u8;
        put(&mut head, 4, &item.len.to_le_bytes());
        put(&mut head, 8, &item.expiry.to_le_bytes());
        put(&mut head, 12, &item.flags.to_le_bytes());
        self.totals.items += 1;
        self.totals.bytes += item.key.len() as u64 + u64::from(item.len);
        self.value(&head)?;
        self.value(&item.key)
    }

    /// Appends bytes of the value of the last item.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn value(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.records.len()));
            self.records.extend_from_slice(now);
            bytes = later;
            if self.records.len() == BLOCK {
                self.end_block()?;
            }
        }
        Ok(())
    }

    /// Writes the last block; without it a dump is not whole.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn finish(mut self, ended: u64) -> io::Result<Totals> {
        self.end_block()?;
        self.totals.ended = ended;
        let mut totals = [0; TOTALS];
        put(&mut totals, 0, &self.totals.items.to_le_bytes());
        put(&mut totals, 8, &self.totals.bytes.to_le_bytes());
        put(&mut totals, 16, &ended.to_le_bytes());
        self.to.write_all(&block_head(&totals, 0, self.block))?;
        self.to.write_all(&totals)?;
        self.to.flush()?;
        Ok(self.totals)
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let len = self
            .zstd
            .compress_to_buffer(&self.records, &mut self.packed[..])?;
        let packed = &self.packed[..len];
        let head = block_head(packed, self.records.len() as u32, self.block);
        self.to.write_all(&head)?;
        self.to.write_all(packed)?;
        self.records.clear();
        self.block = self.block.wrapping_add(1);
        Ok(())
    }
}

impl<W: Write> Take for Writer<W> {
    fn item(&mut self, item: &Head) -> Result<(), TransferError> {
        Ok(self.item(item)?)
    }
    fn value(&mut self, part: &[u8]) -> Result<(), TransferError> {
        Ok(self.value(part)?)
    }
}

/// The head of a block of these bytes, which hold so many bytes of records.
fn block_head(data: &[u8], records: u32, number: u32) -> [u8; BLOCK_HEAD] {
    let mut head = [0; BLOCK_HEAD];
    put(&mut head, 0, &(data.len() as u32).to_le_bytes());
    put(&mut head, 4, &records.to_le_bytes());
    put(&mut head, 8, &number.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), data);
    put(&mut head, 12, &sum.to_le_bytes());
    head
}

/// Reads a dump.
pub struct Reader<R> {
    from: R,
    zstd: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    records: Vec<u8>,
    /// The first byte of `records` that was not taken yet.
    at: usize,
    block: u32,
    /// Bytes of the last item's value that were not taken yet.
    rest: usize,
    found: Totals,
    /// When the dump began, in Unix seconds.
    began: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a dump.
    ///
    /// # Errors
    /// If it is not the head of a dump that this version can read.
    pub fn new(mut from: R) -> Result<Reader<R>, TransferError> {
        let mut head = [0; FILE_HEAD];
        let got = fill(&mut from, &mut head)?;
        let magic = got.min(MAGIC.len());
        if got == 0 || head[..magic] != MAGIC[..magic] {
            let what = match got {
                0 => "nothing was read, and so no dump",
                _ => "it is not a dump of senko: it does not begin with SENKODMP",
            };
            return Err(TransferError::Damaged(what.to_owned()));
        }
        if got < FILE_HEAD {
            return damaged(format!("the dump is cut off in its head, after byte {got}"));
        }
        if u32_at(&head, FILE_HEAD - 4) != crc32c::crc32c(&head[..FILE_HEAD - 4]) {
            return damaged("the dump is damaged in its head".to_owned());
        }
        match u32_at(&head, 8) {
            VERSION => {}
            other => {
                let text = format!("the dump has version {other}, and {VERSION} can be read");
                return damaged(text);
            }
        }
        Ok(Reader {
            from,
            zstd: zstd::bulk::Decompressor::new()?,
            packed: Vec::new(),
            records: Vec::new(),
            at: 0,
            block: 0,
            rest: 0,
            found: Totals::default(),
            began: u64_at(&head, 16),
            ended: false,
        })
    }

    /// When the dump began, in Unix seconds.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Items so far; at the end those of the dump.
    pub fn totals(&self) -> Totals {
        self.found
    }

    /// The next item, `None` at the end of a whole dump. What is left of the last item's value is
    /// skipped.
    ///
    /// # Errors
    /// If the dump is cut off or damaged, or cannot be read.
    pub fn item(&mut self) -> Result<Option<Head>, TransferError> {
        while self.value()?.is_some() {}
        let mut head = [0; RECORD_HEAD];
        if !self.take(&mut head, true)? {
            return Ok(None);
        }
        let len = usize::from(head[1]);
        if len == 0 || len > MAX_KEY || head[0] > BINARY_KEY {
            let text = format!("record {} of the dump is no item", self.found.items + 1);
            return damaged(text);
        }
        let mut key = vec![0; len];
        self.take(&mut key, false)?;
        let item = Head {
            key,
            binary_key: head[0] == BINARY_KEY,
            flags: u64_at(&head, 12),
            expiry: u32_at(&head, 8),
            len: u32_at(&head, 4),
        };
        self.rest = item.len as usize;
        self.found.items += 1;
        self.found.bytes += len as u64 + u64::from(item.len);
        Ok(Some(item))
    }

    /// The next bytes of the last item's value, `None` at its end.
    ///
    /// # Errors
    /// As [`Reader::item`].
    pub fn value(&mut self) -> Result<Option<&[u8]>, TransferError> {
        if self.rest == 0 {
            return Ok(None);
        }
        if self.at == self.records.len() && !self.next_block()? {
            return self.ends_early();
        }
        let from = self.at;
        let len = self.rest.min(self.records.len() - from);
        (self.at, self.rest) = (from + len, self.rest - len);
        Ok(Some(&self.records[from..from + len]))
    }

    /// Fills `to` from the records. False, if `may_end` and they end before it.
    fn take(&mut self, to: &mut [u8], may_end: bool) -> Result<bool, TransferError> {
        let mut done = 0;
        while done < to.len() {
            if self.at == self.records.len() && !self.next_block()? {
                if done == 0 && may_end {
                    return Ok(false);
                }
                return self.ends_early();
            }
            let len = (to.len() - done).min(self.records.len() - self.at);
            to[done..done + len].copy_from_slice(&self.records[self.at..self.at + len]);
            (self.at, done) = (self.at + len, done + len);
        }
        Ok(true)
    }

    fn ends_early<T>(&self) -> Result<T, TransferError> {
        damaged("the dump's last block comes within an item".to_owned())
    }

    /// Reads the next block; false, if it is the last one.
    fn next_block(&mut self) -> Result<bool, TransferError> {
        if self.ended {
            return Ok(false);
        }
        // An item whose value is not whole does not count.
        let items = self.found.items - u64::from(self.rest > 0);
        let number = self.block;
        let cut = || {
            damaged(format!(
                "the dump is not whole: it is cut off in block {number}, after {}",
                counted(items, "item")
            ))
        };
        let wrong = || damaged(format!("the dump is damaged in block {number}"));
        let mut head = [0; BLOCK_HEAD];
        if fill(&mut self.from, &mut head)? < BLOCK_HEAD {
            return cut();
        }
        let (len, records) = (u32_at(&head, 0) as usize, u32_at(&head, 4) as usize);
        let most = zstd::zstd_safe::compress_bound(BLOCK);
        if len > most || records > BLOCK || u32_at(&head, 8) != number {
            return wrong();
        }
        self.packed.resize(len, 0);
        if fill(&mut self.from, &mut self.packed)? < len {
            return cut();
        }
        if block_head(&self.packed, records as u32, number) != head {
            return wrong();
        }
        self.block = number.wrapping_add(1);
        self.at = 0;
        self.records.clear();
        if records == 0 {
            return self.last_block().map(|()| false);
        }
        self.records.resize(records, 0);
        match self
            .zstd
            .decompress_to_buffer(&self.packed, &mut self.records[..])
        {
            Ok(got) if got == records => Ok(true),
            _ => wrong(),
        }
    }

    fn last_block(&mut self) -> Result<(), TransferError> {
        if self.packed.len() != TOTALS {
            return damaged("the dump's last block has another length".to_owned());
        }
        let (items, bytes) = (u64_at(&self.packed, 0), u64_at(&self.packed, 8));
        let found = self.found;
        if (items, bytes) != (found.items, found.bytes) {
            return damaged(format!(
                "the dump says that it has {}, and has {}",
                counted(items, "item"),
                found.items
            ));
        }
        self.found.ended = u64_at(&self.packed, 16);
        self.ended = true;
        if fill(&mut self.from, &mut [0])? != 0 {
            return damaged("there is something behind the end of the dump".to_owned());
        }
        Ok(())
    }
}

fn damaged<T>(text: String) -> Result<T, TransferError> {
    Err(TransferError::Damaged(text))
}

/// Reads until `to` is full or the input ends; returns the bytes read.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match from.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn item(key: &[u8], len: usize) -> Head {
        Head {
            key: key.to_vec(),
            binary_key: key.contains(&b' '),
            flags: u64::from(key[0]) << 33 | 7,
            expiry: if len.is_multiple_of(2) {
                0
            } else {
                1_900_000_000
            },
            len: len as u32,
        }
    }

    type Items = Vec<(Head, Vec<u8>)>;

    fn items() -> Items {
        let keys: [(&[u8], usize); 5] = [
            (b"a", 0),
            (b"b c", 3),
            (&[b'k'; MAX_KEY], 2 * BLOCK + 5),
            (b"\0\xff\n", 100),
            (b"last", BLOCK - 1),
        ];
        let value = |len: usize| (0..len).map(|n| (n * n / 7) as u8).collect::<Vec<u8>>();
        keys.map(|(key, len)| (item(key, len), value(len))).into()
    }

    fn written(items: &Items) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 1_800_000_000).unwrap();
        for (head, value) in items {
            writer.item(head).unwrap();
            // In parts, as they come from a socket.
            value
                .chunks(1000)
                .for_each(|part| writer.value(part).unwrap());
        }
        let totals = writer.finish(1_800_000_009).unwrap();
        assert_eq!(totals.items, items.len() as u64);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Items, TransferError> {
        let mut reader = Reader::new(bytes)?;
        let mut found = Vec::new();
        while let Some(head) = reader.item()? {
            let mut value = Vec::new();
            while let Some(part) = reader.value()? {
                value.extend_from_slice(part);
            }
            found.push((head, value));
        }
        assert_eq!(reader.totals().ended, 1_800_000_009);
        Ok(found)
    }

    #[test]
    fn items_come_back() {
        let items = items();
        let bytes = written(&items);
        assert_eq!(read(&bytes).unwrap(), items);
        assert_eq!(read(&written(&Vec::new())).unwrap(), []);
        // Values that nobody takes are skipped.
        let mut reader = Reader::new(&bytes[..]).unwrap();
        for (head, _) in &items {
            assert_eq!(reader.item().unwrap().as_ref(), Some(head));
        }
        assert_eq!(reader.item().unwrap(), None);
        assert_eq!(reader.item().unwrap(), None);
    }

    fn small() -> Items {
        vec![
            (item(b"one", 3), b"abc".to_vec()),
            (item(b"two", 40), vec![b'x'; 40]),
        ]
    }

    /// The table of docs/formats/dump.md.
    #[test]
    fn the_layout_is_as_documented() {
        let bytes = written(&small());
        assert_eq!(&bytes[..8], MAGIC);
        assert_eq!((u32_at(&bytes, 8), u32_at(&bytes, 12)), (1, 0));
        assert_eq!(u64_at(&bytes, 16), 1_800_000_000);
        assert_eq!(u32_at(&bytes, 28), crc32c::crc32c(&bytes[..28]));
        let len = u32_at(&bytes, 32) as usize;
        assert_eq!(u32_at(&bytes, 36), 2 * (20 + 3) + 3 + 40);
        assert_eq!(u32_at(&bytes, 40), 0);
        let records = zstd::decode_all(&bytes[48..48 + len]).unwrap();
        assert_eq!(records[..4], [0, 3, 0, 0]);
        assert_eq!(
            (u32_at(&records, 4), u32_at(&records, 8)),
            (3, 1_900_000_000)
        );
        assert_eq!(u64_at(&records, 12), u64::from(b'o') << 33 | 7);
        assert_eq!(&records[20..26], b"oneabc");
        let last = &bytes[48 + len..];
        assert_eq!(last.len(), 16 + 24);
        assert_eq!(
            (u32_at(last, 0), u32_at(last, 4), u32_at(last, 8)),
            (24, 0, 1)
        );
        let sum = crc32c::crc32c_append(crc32c::crc32c(&last[..12]), &last[16..]);
        assert_eq!(u32_at(last, 12), sum);
        assert_eq!((u64_at(last, 16), u64_at(last, 24)), (2, 6 + 43));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = written(&small());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                let found = read(&wrong);
                assert!(
                    matches!(found, Err(TransferError::Damaged(_))),
                    "bit {bit} of byte {at}: {found:?}"
                );
            }
            let told = read(&bytes[..at]).unwrap_err().to_string();
            let wanted = match at {
                0 => "nothing was read",
                1..32 => "cut off in its head",
                _ => "the dump is not whole: it is cut off in block",
            };
            assert!(told.contains(wanted), "{at}: {told}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(
            read(&longer)
                .unwrap_err()
                .to_string()
                .contains("behind the end")
        );
        let other = read(b"PK\x03\x04 and more").unwrap_err().to_string();
        assert!(other.contains("not a dump"), "{other}");
    }

    /// Blocks have numbers: one that is missing, twice there or elsewhere is found.
    #[test]
    fn blocks_that_are_out_of_place_are_found() {
        let bytes = written(&items());
        let mut cuts = vec![FILE_HEAD];
        while *cuts.last().unwrap() < bytes.len() {
            let at = *cuts.last().unwrap();
            cuts.push(at + BLOCK_HEAD + u32_at(&bytes, at) as usize);
        }
        let blocks: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
        assert!(blocks.len() > 3);
        let head = &bytes[..FILE_HEAD];
        let with = |order: &[usize]| {
            let chosen: Vec<&[u8]> = order.iter().map(|n| blocks[*n]).collect();
            read(&[head, &chosen.concat()].concat())
        };
        let all: Vec<usize> = (0..blocks.len()).collect();
        assert!(with(&all).is_ok());
        for n in 0..blocks.len() - 1 {
            let missing: Vec<usize> = all.iter().copied().filter(|other| *other != n).collect();
            let mut twice = all.clone();
            twice.insert(n, n);
            let mut swapped = all.clone();
            swapped.swap(n, n + 1);
            for order in [missing, twice, swapped] {
                assert!(with(&order).is_err(), "{order:?}");
            }
        }
    }
}
