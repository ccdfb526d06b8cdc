// SPDX-License-Identifier: Apache-2.0
//! From a server into a dump, or into what else takes its items. `senko dump` calls [`Source`], and
//! so does [`super::fill()`].
//!
//! `lru_crawler metadump` lists the keys, and encodes every key, so that no key can forge a line.
//! memcached's `all` walks its LRU lists. It skips items that are in use at that moment, such as
//! those that the dump reads. Its `hash` skips none, but lists nothing while the table of hashes
//! grows. So `hash` is tried first, and `all` where there is no answer to that. `mg` with `u` reads
//! the values, which changes neither the order of eviction nor a time of last access.
//!
//! To read a stale item is to win the right to replace it. The dump gives that right back: `md`
//! with `I` and the item's CAS value makes the item stale again, for the next client to win.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use super::client::Client;
use super::format::{Totals, Writer};
use super::pace::Pace;
use super::spool::Spool;
use super::{Head, MAX_KEY, Peer, Take, TransferError, is_word, shown, unix_now};

/// Keys of a batch, and the bytes of items after which it has no more. Two batches are asked for:
/// the server reads one while the other is passed on.
const KEYS: usize = 256;
const BYTES: u64 = 1 << 20;
/// Bytes of keys of a batch: the requests of two fit in a socket, since no answer is read before
/// all are sent.
const KEY_BYTES: usize = 4 << 10;
/// Seconds by which the clocks of both sides may differ, since they count whole ones.
const DRIFT: u32 = 1;

/// What a dump has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Keys that the server listed.
    pub listed: u64,
    /// Items that were written, and the bytes of their keys and values.
    pub items: u64,
    pub bytes: u64,
    /// Items that were gone when they were read: expired, deleted or evicted meanwhile.
    pub gone: u64,
    /// Items that were left out, since their value is not one to give to clients: stale ones, and
    /// ones without a value that a client was asked to fill.
    pub stale: u64,
}

/// A server whose items are to be dumped.
pub struct Source<'a> {
    list: Client<'a>,
    values: Client<'a>,
    items: Option<u64>,
    /// The server's clock when it was asked, in Unix seconds; 0: it did not say.
    time: u32,
    /// Whether the hottest items are to come first.
    hottest_first: bool,
    /// Bytes a second; 0: no bound.
    rate: u64,
    /// What is listed now.
    lists: Lists,
    /// The list of a memcached.
    spool: Option<BufReader<File>>,
    /// Keys of stale items that were given back, without an answer yet.
    given_back: Vec<Vec<u8>>,
}

/// Keys that the server was asked for.
struct Batch {
    keys: Vec<Listed>,
    /// Bytes of their items, by the list.
    bytes: u64,
    /// When, in Unix seconds.
    asked: u32,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    All,
    Dram,
    /// What was not listed with the items in DRAM. Who came to DRAM since was accessed since.
    Rest,
    Ended,
}

/// A key of the list.
struct Listed {
    key: Vec<u8>,
    /// Unix seconds; 0: never.
    expiry: u32,
    /// Unix seconds of the last access.
    accessed: u32,
    on_flash: bool,
}

/// The first line of an answer to `mg`.
#[derive(Default)]
struct Found {
    len: u32,
    flags: u64,
    /// Seconds; `None`: it does not expire.
    left: Option<u32>,
    cas: u64,
    opaque: Option<u64>,
    binary_key: bool,
    won: bool,
    stale: bool,
    taken: bool,
}

impl<'a> Source<'a> {
    /// Connects, and asks whether the server can be dumped.
    ///
    /// # Errors
    /// If it cannot be reached, or does not have the commands.
    pub fn connect(peer: &Peer, stop: &'a AtomicBool) -> Result<Source<'a>, TransferError> {
        let mut values = Client::connect(peer, stop)?;
        values.push(b"mn\r\n")?;
        values.flush()?;
        let line = values.line()?.to_vec();
        if line == b"ERROR" {
            return values
                .failed("has no meta commands: a dump needs senko, or memcached 1.6 or newer");
        }
        if line != b"MN" {
            return values.refused("cannot be dumped", &line);
        }
        let mut list = Client::connect(peer, stop)?;
        let (items, time) = state(&mut list)?;
        Ok(Source {
            list,
            values,
            items,
            time,
            hottest_first: false,
            rate: 0,
            lists: Lists::All,
            spool: None,
            given_back: Vec::new(),
        })
    }

    /// Items that the server has, if it says so.
    pub fn items(&self) -> Option<u64> {
        self.items
    }

    /// Bounds the bytes of keys and values that are read in a second, on average; 0: not at all.
    pub fn limit(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Senko lists its items in DRAM first, and memcached's list is sorted by the last access.
    pub(super) fn hottest_first(&mut self) {
        self.hottest_first = true;
    }

    /// The own address of the connection that reads the values.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.values.local_address()
    }

    /// Writes all items whose keys begin with `prefix`. `watch` sees how far it is.
    ///
    /// # Errors
    /// If the server or `to` fails. Then the dump lacks its last block.
    pub fn dump(
        self,
        prefix: &[u8],
        to: impl Write,
        watch: &mut dyn FnMut(&Dumped),
    ) -> Result<Dumped, TransferError> {
        let mut writer = Writer::new(to, u64::from(unix_now()))?;
        let mut dumped = self.pour(prefix, &mut writer, &mut |dumped, _| {
            watch(dumped);
            Ok(())
        })?;
        let Totals { items, bytes, .. } = writer.finish(u64::from(unix_now()))?;
        (dumped.items, dumped.bytes) = (items, bytes);
        Ok(dumped)
    }

    /// Passes all items on whose keys begin with `prefix`. `watch` is called now and then, between
    /// two items.
    pub(super) fn pour<T: Take>(
        mut self,
        prefix: &[u8],
        to: &mut T,
        watch: &mut dyn FnMut(&Dumped, &mut T) -> Result<(), TransferError>,
    ) -> Result<Dumped, TransferError> {
        let mut dumped = Dumped::default();
        self.begin_list()?;
        let pace = Pace::new(self.rate);
        let mut next = self.ask_for_more(prefix, to, &mut dumped)?;
        while let Some(batch) = next {
            next = None;
            // A server whose answers wait for a sleeper might close its connection.
            let sleeps = pace.left(dumped.bytes + batch.bytes).is_some();
            if !sleeps {
                next = self.ask_for_more(prefix, to, &mut dumped)?;
            }
            self.read_values(&batch, to, &mut dumped)?;
            watch(&dumped, to)?;
            self.values.go_on()?;
            pace.keep(dumped.bytes, || self.values.go_on())?;
            if sleeps {
                self.was_given_back()?;
                next = self.ask_for_more(prefix, to, &mut dumped)?;
            }
        }
        self.was_given_back()?;
        Ok(dumped)
    }

    /// Asks for the values of the next keys of the list; nothing, if it has ended.
    fn ask_for_more(
        &mut self,
        prefix: &[u8],
        to: &mut impl Take,
        dumped: &mut Dumped,
    ) -> Result<Option<Batch>, TransferError> {
        if self.lists == Lists::Ended {
            return Ok(None);
        }
        let mut keys = Vec::new();
        let (mut bytes, mut key_bytes) = (0, 0);
        while keys.len() < KEYS && bytes < BYTES && key_bytes < KEY_BYTES {
            let Some((listed, size)) = self.next_key()? else {
                self.lists = Lists::Ended;
                break;
            };
            dumped.listed += 1;
            if listed.key.starts_with(prefix) {
                bytes += size;
                key_bytes += listed.key.len();
                keys.push(listed);
            }
            self.list.go_on()?;
        }
        let all: Vec<&[u8]> = keys.iter().map(|listed| &listed.key[..]).collect();
        let mut unwanted = to.unwanted(&all)?.into_iter();
        keys.retain(|_| !unwanted.next().unwrap_or_default());
        for (number, listed) in keys.iter().enumerate() {
            let mut line = b"mg ".to_vec();
            // The key of a word says whether it was given in base64. In others it might forge
            // flags.
            push_key(&mut line, &listed.key, b" k");
            line.extend_from_slice(format!(" v t f c u O{number}\r\n").as_bytes());
            self.values.push(&line)?;
        }
        let asked = unix_now();
        self.values.flush()?;
        Ok(Some(Batch { keys, bytes, asked }))
    }

    /// Asks for the list of keys. memcached's is read to its end first: while it waits for its
    /// reader it may hold a lock that a value needs.
    fn begin_list(&mut self) -> Result<(), TransferError> {
        // No memcached has a class of this name.
        if self.hottest_first && self.time > 0 && self.ask_list("dram")? == b"OK" {
            self.lists = Lists::Dram;
            return Ok(());
        }
        let mut line = Vec::new();
        for what in ["hash", "all"] {
            line = self.ask_list(what)?;
            let empty = line == b"END" && self.items == Some(0);
            if line.starts_with(b"key=") || line == b"OK" || empty {
                break;
            }
        }
        if line == b"OK" {
            return Ok(()); // it is senko, whose walk holds no locks
        }
        let failed = |error: std::io::Error| {
            let text = format!("the list of keys, in a file without a name: {error}");
            TransferError::Io(std::io::Error::new(error.kind(), text))
        };
        let mut spool = Spool::new().map_err(failed)?;
        while line != b"END" {
            if read_listed(&line).is_none() {
                return self.list.refused("does not list its keys", &line);
            }
            spool.push(&line).map_err(failed)?;
            self.list.go_on()?;
            line.clear();
            line.extend_from_slice(self.list.line()?);
        }
        self.spool = Some(match self.hottest_first {
            true => spool.latest_first().map_err(failed)?,
            false => spool.into_order_of_arrival().map_err(failed)?,
        });
        Ok(())
    }

    /// Asks for a list; returns its first line.
    fn ask_list(&mut self, what: &str) -> Result<Vec<u8>, TransferError> {
        let request = format!("lru_crawler metadump {what}\r\n");
        self.list.push(request.as_bytes())?;
        self.list.flush()?;
        Ok(self.list.line()?.to_vec())
    }

    /// The next key of the lists, and the size of its item.
    fn next_key(&mut self) -> Result<Option<(Listed, u64)>, TransferError> {
        loop {
            match self.next_listed()? {
                None if self.lists == Lists::Dram => {
                    self.lists = Lists::Rest;
                    let line = self.ask_list("all")?;
                    if line != b"OK" {
                        return self.list.refused("does not list its keys", &line);
                    }
                }
                Some((listed, _)) if self.was_listed(&listed) => self.list.go_on()?,
                found => return Ok(found),
            }
        }
    }

    /// Whether it was listed with the items in DRAM.
    fn was_listed(&self, listed: &Listed) -> bool {
        let before = listed.accessed < self.time.saturating_sub(DRIFT);
        self.lists == Lists::Rest && !listed.on_flash && before
    }

    fn next_listed(&mut self) -> Result<Option<(Listed, u64)>, TransferError> {
        let mut line = Vec::new();
        match &mut self.spool {
            Some(spool) => {
                if spool.read_until(b'\n', &mut line)? == 0 {
                    return Ok(None);
                }
                line.pop();
            }
            None => line.extend_from_slice(self.list.line()?),
        }
        if line == b"END" {
            return Ok(None);
        }
        match read_listed(&line) {
            None => self.list.refused("does not list its keys", &line),
            listed => Ok(listed),
        }
    }

    fn read_values(
        &mut self,
        batch: &Batch,
        to: &mut impl Take,
        dumped: &mut Dumped,
    ) -> Result<(), TransferError> {
        let mut won = Vec::new();
        for (number, listed) in batch.keys.iter().enumerate() {
            let line = self.values.line()?;
            if line == b"EN" || line.starts_with(b"EN ") {
                dumped.gone += 1;
                continue;
            }
            let Some(found) = read_found(line, &listed.key) else {
                let line = line.to_vec();
                let what = format!("does not give the value of {}", shown(&listed.key));
                return self.values.refused(&what, &line);
            };
            if found.opaque != Some(number as u64) {
                return self.values.failed("mixes up its answers");
            }
            let len = found.len as usize;
            if found.won {
                won.push((listed.key.clone(), found.cas));
            }
            // A win without `X` is that of a client which is to fill an item, or to renew it.
            if found.stale || found.taken && len == 0 {
                dumped.stale += 1;
                self.values.value(len, |_| Ok(()))?;
                continue;
            }
            to.item(&Head {
                key: listed.key.clone(),
                binary_key: found.binary_key,
                flags: found.flags,
                expiry: expiry(listed.expiry, found.left, (batch.asked, unix_now())),
                len: found.len,
            })?;
            self.values.value(len, |part| to.value(part))?;
            dumped.items += 1;
            dumped.bytes += (listed.key.len() + len) as u64;
        }
        self.was_given_back()?;
        self.give_back(won)
    }

    /// Gives the right to replace stale items back. The answers come behind those of the next
    /// batch, if it has been asked for.
    fn give_back(&mut self, won: Vec<(Vec<u8>, u64)>) -> Result<(), TransferError> {
        for (key, cas) in won {
            let mut line = b"md ".to_vec();
            push_key(&mut line, &key, b"");
            line.extend_from_slice(format!(" I C{cas}\r\n").as_bytes());
            self.values.push(&line)?;
            self.given_back.push(key);
        }
        self.values.flush()
    }

    /// Reads the answers to what was given back.
    fn was_given_back(&mut self) -> Result<(), TransferError> {
        for key in std::mem::take(&mut self.given_back) {
            // Where another client was quicker, the item is its own.
            let line = self.values.line()?;
            if !line.starts_with(b"HD") && !line.starts_with(b"EX") && !line.starts_with(b"NF") {
                let line = line.to_vec();
                let what = format!("does not take {} as stale again", shown(&key));
                return self.values.refused(&what, &line);
            }
        }
        Ok(())
    }
}

/// Items that the server has, and its clock.
fn state(list: &mut Client<'_>) -> Result<(Option<u64>, u32), TransferError> {
    list.push(b"stats\r\n")?;
    list.flush()?;
    let (mut items, mut time) = (None, 0);
    loop {
        let line = list.line()?;
        if line == b"END" {
            return Ok((items, time));
        }
        if !line.starts_with(b"STAT ") {
            let line = line.to_vec();
            return list.refused("cannot be dumped", &line);
        }
        if let Some(number) = line.strip_prefix(b"STAT curr_items ") {
            items = number_of(number);
        }
        if let Some(number) = line.strip_prefix(b"STAT time ") {
            let second = number_of(number).and_then(|second| second.try_into().ok());
            time = second.unwrap_or_default();
        }
    }
}

/// Appends a key as a word, and `flags` behind it; or in base64.
pub(super) fn push_key(line: &mut Vec<u8>, key: &[u8], flags: &[u8]) {
    if is_word(key) {
        line.extend_from_slice(key);
        line.extend_from_slice(flags);
    } else {
        push_base64(line, key);
        line.extend_from_slice(b" b");
    }
}

/// Appends bytes in base64.
pub(super) fn push_base64(line: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let mut three = [0; 4];
        three[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(three);
        for nth in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * nth) & 63) as usize];
            line.push(if nth <= chunk.len() { digit } else { b'=' });
        }
    }
}

fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A line of the list, and the size that it says.
fn read_listed(line: &[u8]) -> Option<(Listed, u64)> {
    let (mut key, mut expiry, mut size) = (None, None, 0);
    let (mut accessed, mut on_flash) = (u32::MAX, false);
    for field in line.split(|byte| *byte == b' ') {
        if let Some(text) = field.strip_prefix(b"key=") {
            key = Some(from_uri(text)?);
        } else if let Some(text) = field.strip_prefix(b"exp=") {
            expiry = Some(match text {
                b"-1" => 0,
                text => number_of(text)?.try_into().unwrap_or(u32::MAX),
            });
        } else if let Some(text) = field.strip_prefix(b"size=") {
            size = number_of(text)?;
        } else if let Some(text) = field.strip_prefix(b"la=") {
            accessed = number_of(text)?.try_into().unwrap_or(u32::MAX);
        } else if field == b"tier=flash" {
            on_flash = true;
        }
    }
    let key = key.filter(|key| (1..=MAX_KEY).contains(&key.len()))?;
    let expiry = expiry?;
    let listed = Listed {
        key,
        expiry,
        accessed,
        on_flash,
    };
    Some((listed, size))
}

fn from_uri(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        key.push(match byte {
            b'%' => {
                let digits = [*rest.next()?, *rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => *byte,
        });
    }
    Some(key)
}

/// Reads `VA LEN FLAGS`, the answer about `key`.
fn read_found(line: &[u8], key: &[u8]) -> Option<Found> {
    let mut words = line.strip_prefix(b"VA ")?.split(|byte| *byte == b' ');
    let mut found = Found {
        len: number_of(words.next()?)?.try_into().ok()?,
        // What is no word was given in base64.
        binary_key: !is_word(key),
        ..Found::default()
    };
    for word in words.filter(|word| !word.is_empty()) {
        let (flag, text) = (word[0], &word[1..]);
        match flag {
            b't' if text == b"-1" => {}
            b't' => found.left = Some(number_of(text)?.try_into().unwrap_or(u32::MAX)),
            b'f' => found.flags = number_of(text)?,
            b'c' => found.cas = number_of(text)?,
            b'O' => found.opaque = Some(number_of(text)?),
            b'b' => found.binary_key = true,
            b'W' => found.won = true,
            b'X' => found.stale = true,
            b'Z' => found.taken = true,
            _ => {}
        }
    }
    Some(found)
}

/// The expiry of an item that was listed with one, and had these seconds left at some time between
/// two. The list is exact, if the clocks agree and the item was not touched meanwhile.
fn expiry(listed: u32, left: Option<u32>, (asked, got): (u32, u32)) -> u32 {
    let Some(left) = left else { return 0 };
    let (first, last) = (asked.saturating_add(left), got.saturating_add(left));
    let fits = first.saturating_sub(DRIFT) <= listed && listed <= last.saturating_add(DRIFT);
    if fits { listed } else { first }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_are_read() {
        let line = b"key=a%20b%ff exp=1900000000 la=17 cas=3 fetch=no cls=1 size=70 tier=flash ";
        let (listed, size) = read_listed(line).unwrap();
        assert_eq!(
            (&listed.key[..], listed.expiry, size),
            (&b"a b\xff"[..], 1_900_000_000, 70)
        );
        assert_eq!((listed.accessed, listed.on_flash), (17, true));
        assert_eq!(
            read_listed(b"key=a exp=-1 la=1 size=9").unwrap().0.expiry,
            0
        );
        for wrong in [
            "",
            "ERROR",
            "BUSY",
            "key=a",
            "key= exp=1",
            "key=%4 exp=1",
            "key=%zz exp=1",
        ] {
            assert!(read_listed(wrong.as_bytes()).is_none(), "{wrong}");
        }
        let long = format!("key={} exp=-1", "x".repeat(251));
        assert!(read_listed(long.as_bytes()).is_none());
    }

    #[test]
    fn answers_are_read() {
        let found =
            read_found(b"VA 5 kfoo b t30 f18446744073709551615 c9 O17 W X", b"foo").unwrap();
        assert_eq!(
            (found.len, found.left, found.flags),
            (5, Some(30), u64::MAX)
        );
        assert_eq!((found.cas, found.opaque), (9, Some(17)));
        assert!(found.binary_key && found.won && found.stale && !found.taken);
        let found = read_found(b"VA 0 t-1 f0 c9 O1 Z", b"a b").unwrap();
        assert!(found.binary_key && found.taken && found.left.is_none());
        for wrong in [
            "HD",
            "VA",
            "VA x",
            "VA 4294967296 f0",
            "VA 1 f-1",
            "SERVER_ERROR",
        ] {
            assert!(read_found(wrong.as_bytes(), b"k").is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_expiry_is_the_listed_one_unless_it_was_changed() {
        assert_eq!(expiry(1000, Some(500), (500, 500)), 1000);
        assert_eq!(expiry(1000, Some(500), (501, 501)), 1000);
        assert_eq!(expiry(1000, Some(499), (400, 600)), 1000);
        assert_eq!(expiry(1000, None, (500, 500)), 0);
        assert_eq!(expiry(0, Some(500), (500, 503)), 1000);
        assert_eq!(expiry(1000, Some(900), (500, 503)), 1400);
        assert_eq!(expiry(7, Some(u32::MAX), (500, 500)), u32::MAX);
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut line = Vec::new();
            push_base64(&mut line, bytes.as_bytes());
            assert_eq!(line, text.as_bytes());
        }
    }
}
