// SPDX-License-Identifier: Apache-2.0
//! From a dump into a server. `senko restore` calls [`Sink`] and [`check`], and [`super::fill()`]
//! stores with [`Adding`].
//!
//! Items go by `set`, which every server and every proxy has, and by `ms` if their keys were given
//! in base64.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::client::Client;
use super::dump::{push_base64, push_key};
use super::format::{Reader, Totals};
use super::pace::Pace;
use super::{Head, Peer, Take, TransferError, is_word, shown, unix_now};

/// Items that are sent before their answers are read, and the bytes after which they are.
const ITEMS: usize = 512;
const BYTES: u64 = 1 << 20;
/// Batches of a fill that come without a question, if no key of the one before was there.
const SELDOM: u32 = 1;

/// What a restore has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Items that were stored, and the bytes of their keys and values.
    pub items: u64,
    pub bytes: u64,
    /// Items whose key the server had, which were to stay.
    pub kept: u64,
    /// Items that have expired since they were dumped.
    pub expired: u64,
    /// Items with other prefixes.
    pub others: u64,
    /// Items that the server refused, and for each reason how many.
    pub refused: u64,
    pub reasons: BTreeMap<String, u64>,
}

/// A server that is to get the items of a dump.
pub struct Sink<'a> {
    client: Client<'a>,
    /// Bytes a second; 0: no bound.
    rate: u64,
    /// Whether it has the meta commands; `None`: it was not asked.
    meta: Option<bool>,
    /// Items whose answers were not read yet: their bytes.
    sent: VecDeque<u64>,
}

impl<'a> Sink<'a> {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn connect(peer: &Peer, stop: &'a AtomicBool) -> Result<Sink<'a>, TransferError> {
        Ok(Sink {
            client: Client::connect(peer, stop)?,
            rate: 0,
            meta: None,
            sent: VecDeque::new(),
        })
    }

    /// Bounds the bytes of keys and values that are stored in a second, on average; 0: not at all.
    pub fn limit(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Stores the items whose keys begin with `prefix`; with `keep`, none whose key the server has.
    /// `restored` has what was done also if it fails.
    ///
    /// # Errors
    /// If the dump is not whole, or the server fails. Refused items are no error here.
    pub fn restore(
        mut self,
        mut from: Reader<impl Read>,
        prefix: &[u8],
        keep: bool,
        restored: &mut Restored,
        watch: &mut dyn FnMut(&Restored),
    ) -> Result<Totals, TransferError> {
        let done = self.store_all(&mut from, prefix, keep, restored, watch);
        if let Err(TransferError::Damaged(_) | TransferError::Io(_) | TransferError::Stopped) = done
        {
            // The items before that are stored, and counted. One that was sent in part is not: the
            // connection ends within it.
            self.settle(restored)?;
        }
        done.map(|()| from.totals())
    }

    fn store_all(
        &mut self,
        from: &mut Reader<impl Read>,
        prefix: &[u8],
        keep: bool,
        restored: &mut Restored,
        watch: &mut dyn FnMut(&Restored),
    ) -> Result<(), TransferError> {
        let pace = Pace::new(self.rate);
        let (mut bytes, mut all) = (0, 0);
        while let Some(item) = from.item()? {
            self.client.go_on()?;
            if !item.key.starts_with(prefix) {
                restored.others += 1;
            } else if item.expiry != 0 && item.expiry <= unix_now() {
                restored.expired += 1;
            } else {
                let len = item.key.len() as u64 + u64::from(item.len);
                if self.store(&item, keep, from, restored)? {
                    self.sent.push_back(len);
                }
                bytes += len;
            }
            if self.sent.len() >= ITEMS || bytes >= BYTES {
                self.settle(restored)?;
                (all, bytes) = (all + bytes, 0);
                watch(restored);
                pace.keep(all, || self.client.go_on())?;
            }
        }
        self.settle(restored)
    }

    /// Sends an item; false, if the server cannot take it.
    fn store(
        &mut self,
        item: &Head,
        keep: bool,
        from: &mut Reader<impl Read>,
        restored: &mut Restored,
    ) -> Result<bool, TransferError> {
        if !self.begin(item, keep, restored)? {
            return Ok(false);
        }
        while let Some(part) = from.value()? {
            self.client.push(part)?;
        }
        self.client.push(b"\r\n")?;
        Ok(true)
    }

    /// Sends the line of an item; false, if the server cannot take it.
    fn begin(
        &mut self,
        item: &Head,
        keep: bool,
        restored: &mut Restored,
    ) -> Result<bool, TransferError> {
        let Head {
            key,
            flags,
            expiry,
            len,
            ..
        } = item;
        let mut line = Vec::new();
        if item.binary_key || !is_word(key) {
            // A server that does not know the command would run the value as commands.
            if !self.has_meta(restored)? {
                let reason = "the server has no meta commands, which keys in base64 need";
                restored.refuse(reason);
                return Ok(false);
            }
            line.extend_from_slice(b"ms ");
            push_base64(&mut line, key);
            let mode = if keep { "E" } else { "S" };
            let rest = format!(" {len} b F{flags} T{expiry} M{mode}\r\n");
            line.extend_from_slice(rest.as_bytes());
        } else {
            line.extend_from_slice(if keep { b"add " } else { b"set " });
            line.extend_from_slice(key);
            line.extend_from_slice(format!(" {flags} {expiry} {len}\r\n").as_bytes());
        }
        self.client.push(&line)?;
        Ok(true)
    }

    fn has_meta(&mut self, restored: &mut Restored) -> Result<bool, TransferError> {
        if let Some(has) = self.meta {
            return Ok(has);
        }
        self.settle(restored)?;
        self.client.push(b"mn\r\n")?;
        self.client.flush()?;
        let has = self.client.line()? == b"MN";
        self.meta = Some(has);
        Ok(has)
    }

    /// Waits until every item that was sent has its answer.
    fn settle(&mut self, restored: &mut Restored) -> Result<(), TransferError> {
        self.client.flush()?;
        while !self.sent.is_empty() {
            self.answer(restored)?;
        }
        Ok(())
    }

    /// Takes the answer about the oldest item.
    fn answer(&mut self, restored: &mut Restored) -> Result<(), TransferError> {
        let line = self.client.line()?.to_vec();
        let bytes = self.sent.pop_front().unwrap_or_default();
        match &line[..] {
            b"STORED" | b"HD" => {
                restored.items += 1;
                restored.bytes += bytes;
            }
            b"NOT_STORED" | b"NS" => restored.kept += 1,
            line if line.starts_with(b"SERVER_ERROR ") || line.starts_with(b"CLIENT_ERROR ") => {
                restored.refuse(&shown(line));
            }
            line => {
                return self
                    .client
                    .refused("does not answer as memcached does", line);
            }
        }
        Ok(())
    }
}

/// Stores items as they come, none whose key the server has.
pub(super) struct Adding<'a> {
    sink: Sink<'a>,
    pub restored: Restored,
    /// The size of the item that comes, and the bytes of its value that are still to come; `None`:
    /// it is left out.
    coming: Option<(u64, u32)>,
    /// Bytes that were sent and not answered.
    bytes: u64,
    /// Batches until it is asked again which keys are there.
    until_asked: u32,
}

impl<'a> Adding<'a> {
    /// `socket` leads to a server of senko.
    pub fn over(
        socket: OwnedFd,
        timeout: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Adding<'a>, TransferError> {
        Ok(Adding {
            sink: Sink {
                client: Client::over(socket, timeout, stop)?,
                rate: 0,
                meta: Some(true),
                sent: VecDeque::new(),
            },
            restored: Restored::default(),
            coming: None,
            bytes: 0,
            until_asked: 0,
        })
    }

    /// Waits until every item has its answer.
    pub fn settle(&mut self) -> Result<(), TransferError> {
        self.bytes = 0;
        self.sink.settle(&mut self.restored)
    }

    fn came(&mut self, bytes: u32) -> Result<(), TransferError> {
        let Some((size, left)) = &mut self.coming else {
            return Ok(());
        };
        *left -= bytes;
        if *left == 0 {
            let size = *size;
            self.sink.client.push(b"\r\n")?;
            self.sink.sent.push_back(size);
            self.bytes += size;
            self.coming = None;
        }
        Ok(())
    }
}

impl Take for Adding<'_> {
    /// As long as the server has some of them, it is asked for all; otherwise now and then.
    fn unwanted(&mut self, keys: &[&[u8]]) -> Result<Vec<bool>, TransferError> {
        if self.until_asked > 0 || keys.is_empty() {
            self.until_asked = self.until_asked.saturating_sub(1);
            return Ok(Vec::new());
        }
        self.settle()?;
        let client = &mut self.sink.client;
        for key in keys {
            let mut line = b"mg ".to_vec();
            push_key(&mut line, key, b"");
            line.extend_from_slice(b" u\r\n");
            client.push(&line)?;
        }
        client.flush()?;
        let mut there = Vec::with_capacity(keys.len());
        for _ in keys {
            there.push(client.line()?.starts_with(b"HD"));
        }
        let count = there.iter().filter(|there| **there).count() as u64;
        self.restored.kept += count;
        self.until_asked = if count == 0 { SELDOM } else { 0 };
        Ok(there)
    }

    fn item(&mut self, item: &Head) -> Result<(), TransferError> {
        if self.sink.sent.len() >= ITEMS || self.bytes >= BYTES {
            self.settle()?;
        }
        self.coming = None;
        if item.expiry != 0 && item.expiry <= unix_now() {
            self.restored.expired += 1;
            return Ok(());
        }
        if self.sink.begin(item, true, &mut self.restored)? {
            let size = item.key.len() as u64 + u64::from(item.len);
            self.coming = Some((size, item.len));
        }
        // It may have no bytes.
        self.came(0)
    }

    fn value(&mut self, part: &[u8]) -> Result<(), TransferError> {
        if self.coming.is_some() {
            self.sink.client.push(part)?;
        }
        self.came(part.len() as u32)
    }
}

impl Restored {
    fn refuse(&mut self, reason: &str) {
        self.refused += 1;
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }

    /// The most frequent reason of refusals.
    pub fn reason(&self) -> Option<&str> {
        let most = self.reasons.iter().max_by_key(|(_, count)| **count);
        most.map(|(reason, _)| &reason[..])
    }
}

/// Reads a dump to its end, without a server.
///
/// # Errors
/// If it is not a whole dump.
pub fn check(mut from: Reader<impl Read>) -> Result<Totals, TransferError> {
    while from.item()?.is_some() {}
    Ok(from.totals())
}
