// SPDX-License-Identifier: Apache-2.0
//! Random commands in the three dialects: the bytes to send, and what the checker has to know of them.

use std::sync::{Arc, OnceLock};

use super::own::MAX_ITEM;
use super::wire::{Act, Bytes, Command, Form, Mode};
use crate::session::packet;

/// A small generator (xorshift64*), so that a run is told by its seed.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Which key numbers are whose: first those of each connection, then those of all.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub connections: usize,
    pub own: usize,
    /// Read and written by all; each value tells who wrote it.
    pub registers: usize,
    /// All append to them.
    pub ledgers: usize,
    /// All count them up.
    pub counters: usize,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Own,
    Register,
    Ledger,
    Counter,
}

impl Layout {
    pub fn first_register(&self) -> usize {
        self.connections * self.own
    }
    pub fn first_ledger(&self) -> usize {
        self.first_register() + self.registers
    }
    pub fn first_counter(&self) -> usize {
        self.first_ledger() + self.ledgers
    }
    pub fn keys(&self) -> usize {
        self.first_counter() + self.counters
    }
    pub fn what(&self, key: usize) -> Use {
        match key {
            _ if key < self.first_register() => Use::Own,
            _ if key < self.first_ledger() => Use::Register,
            _ if key < self.first_counter() => Use::Ledger,
            _ => Use::Counter,
        }
    }
}

/// A key of 1 to 250 bytes; the number before the dash keeps them apart.
pub fn key_name(number: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    rng.next();
    let mut name = format!("{number:x}").into_bytes();
    let len = if rng.chance(70) {
        rng.below(30)
    } else {
        rng.below(251)
    };
    if name.len() < len as usize {
        name.push(b'-');
        while name.len() < len as usize {
            name.push(b'!' + rng.below(94) as u8);
        }
    }
    name
}

pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| chunk.get(i).map_or(0, |&b| u32::from(b)) << (16 - 8 * i);
        let n = at(0) | at(1) | at(2);
        for i in 0..4 {
            let digit = ALPHABET[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit as char } else { '=' });
        }
    }
    out
}

/// Bytes of every kind, of which values are cut.
fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut rng = Rng(0x5eed);
        (0..1_000_003).map(|_| rng.next() as u8).collect()
    })
}

/// A value that no other `id` has (where it is long enough to tell): a head with the number, then bytes of the block.
pub fn value_of(id: u64, len: usize) -> Vec<u8> {
    let block = block();
    let from =
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % (block.len() - MAX_ITEM - 4096);
    let mut value = block[from..from + len].to_vec();
    let head = format!("v{id:016x}.");
    let n = head.len().min(len);
    value[..n].copy_from_slice(&head.as_bytes()[..n]);
    value
}

/// Shortest value of a register: its head whole.
pub const REGISTER_LEN: usize = 18;

/// The number in a register's value, if the value is exactly one that was written.
pub fn id_of(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.get(1..17)?).ok()?;
    let id = u64::from_str_radix(text, 16).ok()?;
    (value == value_of(id, value.len())).then_some(id)
}

/// What one connection appends to ledgers.
pub fn token(connection: usize, number: u64) -> String {
    format!("<{connection:x}:{number:08x}>")
}
pub const TOKEN: usize = 12;

/// Makes the commands of one connection.
#[derive(Debug)]
pub struct Maker<'a> {
    pub rng: &'a mut Rng,
    pub connection: usize,
    pub binary: bool,
    pub now: u32,
    pub layout: Layout,
    pub names: &'a [Vec<u8>],
    /// The newest unique seen of each key.
    pub uniques: &'a [u64],
    /// Numbers of values and ledger tokens, and of commands.
    pub next_id: &'a mut u64,
    pub next_opaque: &'a mut u32,
    /// Ledgers and counters may be used in this batch.
    pub joint: bool,
}

/// An expiry as it is sent, and what it means.
type Time = (i64, u32);

impl Maker<'_> {
    fn id(&mut self) -> u64 {
        *self.next_id += 1;
        (self.connection as u64) << 40 | *self.next_id
    }

    fn opaque(&mut self) -> u32 {
        *self.next_opaque += 1;
        *self.next_opaque
    }

    fn own_key(&mut self) -> usize {
        let own = self.layout.own as u64;
        // Some keys are asked for more often than others.
        let n = if self.rng.chance(50) {
            self.rng.below(own)
        } else {
            self.rng
                .below(own)
                .min(self.rng.below(own))
                .min(self.rng.below(own))
        };
        self.connection * self.layout.own + n as usize
    }

    fn register(&mut self) -> usize {
        self.layout.first_register() + self.rng.below(self.layout.registers as u64) as usize
    }

    fn len(&mut self) -> usize {
        (match self.rng.below(200) {
            0..4 => 0,
            4..90 => self.rng.below(200),
            90..145 => self.rng.below(4000),
            145..185 => 3000 + self.rng.below(12_000),
            185..197 => 10_000 + self.rng.below(50_000),
            _ => 50_000 + self.rng.below(150_000),
        }) as usize
    }

    fn value(&mut self) -> Bytes {
        if self.rng.chance(12) {
            let bits = self.rng.below(64);
            return Arc::new((self.rng.next() >> bits).to_string().into_bytes());
        }
        let len = if self.rng.below(1000) == 0 {
            MAX_ITEM + 1 + self.rng.below(3000) as usize
        } else {
            self.len()
        };
        Arc::new(value_of(self.id(), len))
    }

    fn part(&mut self) -> Bytes {
        if self.rng.chance(30) {
            return Arc::new(self.rng.below(1000).to_string().into_bytes());
        }
        let len = self.rng.below(300) as usize;
        Arc::new(value_of(self.id(), len))
    }

    fn flags(&mut self) -> u32 {
        let bits = self.rng.below(33);
        (self.rng.next() >> 32 >> bits) as u32
    }

    fn time(&mut self) -> Time {
        let now = self.now;
        let soon = 1 + self.rng.below(20) as u32;
        match self.rng.below(20) {
            0..12 => (0, 0),
            12..15 => (i64::from(soon), now + soon),
            15..17 => (i64::from(now + soon), now + soon),
            17 => (i64::from(soon * 300), now + soon * 300),
            18 => (2_000_000, now + 2_000_000),
            _ if self.binary => (0, 0),
            _ => (-1, 1),
        }
    }

    /// A time that does not pass in a run.
    fn never(&mut self) -> Time {
        if self.rng.chance(50) {
            (0, 0)
        } else {
            (2_500_000, self.now + 2_500_000)
        }
    }

    /// The newest unique that was seen of a key, or one that none has.
    fn unique(&mut self, key: usize) -> u64 {
        match self.uniques[key] {
            0 => u64::MAX - 5,
            _ if self.rng.chance(5) => u64::MAX - 5,
            unique => unique,
        }
    }

    /// Appends a command's bytes to `out`.
    pub fn command(&mut self, out: &mut Vec<u8>) -> Command {
        let roll = self.rng.below(100);
        if roll < 10 {
            return self.on_register(out);
        }
        if self.joint && roll < 14 {
            return self.on_joint(out);
        }
        if self.binary {
            self.binary_own(out)
        } else if self.rng.chance(35) {
            self.meta_own(out)
        } else {
            self.text_own(out)
        }
    }

    /// Stores one of the connection's own keys, whatever it holds.
    pub fn fill(&mut self, out: &mut Vec<u8>, n: usize) -> Command {
        let key = self.connection * self.layout.own + n;
        let (value, flags) = (self.value(), self.flags());
        if self.binary {
            return self.binary_store(out, key, Mode::Set, value, flags, (0, 0), false);
        }
        self.store(out, key, Mode::Set, value, flags, (0, 0), false)
    }

    /// The last command of a batch.
    pub fn mark(&mut self, out: &mut Vec<u8>) -> Command {
        if self.binary {
            return self.packet(out, 0x0a, false, 0, Act::Mark, &[], &[], 0);
        }
        out.extend_from_slice(b"mn\r\n");
        one(text(false), 0, Act::Mark)
    }

    pub fn flush(&mut self, out: &mut Vec<u8>) -> Command {
        if self.binary {
            return self.packet(out, 0x08, false, 0, Act::Flush, &[], &[], 0);
        }
        out.extend_from_slice(b"flush_all\r\n");
        one(text(false), 0, Act::Flush)
    }

    // ---- classic text ----

    fn line(&self, out: &mut Vec<u8>, name: &str, key: usize, rest: &str) {
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
        out.extend_from_slice(&self.names[key]);
        out.extend_from_slice(rest.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    #[allow(clippy::too_many_arguments)]
    fn store(
        &mut self,
        out: &mut Vec<u8>,
        key: usize,
        mode: Mode,
        value: Bytes,
        flags: u32,
        time: Time,
        noreply: bool,
    ) -> Command {
        let compare = if mode == Mode::Cas {
            self.unique(key)
        } else {
            0
        };
        let name = ["set", "add", "replace", "append", "prepend", "cas"][mode as usize];
        let mut rest = format!(" {flags} {} {}", time.0, value.len());
        if mode == Mode::Cas {
            rest += &format!(" {compare}");
        }
        rest += silence(noreply);
        self.line(out, name, key, &rest);
        out.extend_from_slice(&value);
        out.extend_from_slice(b"\r\n");
        let act = Act::Store {
            mode,
            value,
            flags,
            expiry: time.1,
            compare,
            vivify: false,
        };
        one(text(noreply), key, act)
    }

    fn get(&mut self, out: &mut Vec<u8>, first: usize, touch: Option<Time>) -> Command {
        let mut keys = vec![first];
        // Only get and gets lines may be longer than 2048 bytes before their end is there.
        let most = match touch {
            Some(_) => 6,
            None if self.rng.chance(5) => 120,
            None => 12,
        };
        while keys.len() < most && self.rng.chance(if most > 12 { 97 } else { 35 }) {
            // A touch of a shared key by a passing time would be seen by all.
            let shared = touch.is_none() && self.rng.chance(10);
            keys.push(if shared {
                self.register()
            } else {
                self.own_key()
            });
        }
        let cas = self.rng.chance(40);
        out.extend_from_slice(match (touch.is_some(), cas) {
            (false, false) => b"get",
            (false, true) => b"gets",
            (true, false) => b"gat",
            (true, true) => b"gats",
        });
        if let Some((raw, _)) = touch {
            out.extend_from_slice(format!(" {raw}").as_bytes());
        }
        for &key in &keys {
            out.push(b' ');
            out.extend_from_slice(&self.names[key]);
        }
        out.extend_from_slice(b"\r\n");
        let act = Act::Get {
            touch: touch.map(|t| t.1),
        };
        Command {
            form: Form::Text {
                noreply: false,
                cas,
            },
            parts: keys.into_iter().map(|key| (key, act.clone())).collect(),
        }
    }

    fn text_own(&mut self, out: &mut Vec<u8>) -> Command {
        let key = self.own_key();
        let noreply = self.rng.chance(12);
        match self.rng.below(100) {
            0..42 => {
                let touch = self.rng.chance(12).then(|| self.time());
                self.get(out, key, touch)
            }
            roll @ 42..79 => {
                let mode = match roll {
                    42..62 => Mode::Set,
                    62..66 => Mode::Add,
                    66..70 => Mode::Replace,
                    70..73 => Mode::Append,
                    73..75 => Mode::Prepend,
                    _ => Mode::Cas,
                };
                let value = if matches!(mode, Mode::Append | Mode::Prepend) {
                    self.part()
                } else {
                    self.value()
                };
                let (flags, time) = (self.flags(), self.time());
                self.store(out, key, mode, value, flags, time, noreply)
            }
            79..86 => {
                self.line(out, "delete", key, silence(noreply));
                one(text(noreply), key, Act::Delete { compare: 0 })
            }
            86..95 => {
                let (incr, delta) = (self.rng.chance(50), self.rng.below(1000));
                let name = if incr { "incr" } else { "decr" };
                self.line(out, name, key, &format!(" {delta}{}", silence(noreply)));
                let act = Act::Arith {
                    incr,
                    delta,
                    initial: None,
                };
                one(text(noreply), key, act)
            }
            _ => {
                let time = self.time();
                self.line(
                    out,
                    "touch",
                    key,
                    &format!(" {}{}", time.0, silence(noreply)),
                );
                one(text(noreply), key, Act::Touch { expiry: time.1 })
            }
        }
    }

    // ---- meta ----

    /// A meta line: the flags with their numbers as sent and as meant, shuffled.
    fn meta(
        &mut self,
        out: &mut Vec<u8>,
        name: &str,
        key: usize,
        len: Option<usize>,
        mut flags: Vec<(u8, i64, u64)>,
        act: Act,
    ) -> Command {
        let opaque = u64::from(self.opaque());
        let quiet = flags.iter().any(|f| f.0 == b'q');
        if quiet || self.rng.chance(50) {
            flags.push((b'O', opaque as i64, opaque));
        }
        if self.rng.chance(30) {
            flags.push((b'k', 0, 0));
        }
        let name_len = self.names[key].len();
        if name_len <= 180 && self.rng.chance(10) {
            flags.push((b'b', 0, 0));
        }
        for n in (1..flags.len()).rev() {
            flags.swap(n, self.rng.below(n as u64 + 1) as usize);
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
        if flags.iter().any(|f| f.0 == b'b') {
            out.extend_from_slice(base64(&self.names[key]).as_bytes());
        } else {
            out.extend_from_slice(&self.names[key]);
        }
        if let Some(len) = len {
            out.extend_from_slice(format!(" {len}").as_bytes());
        }
        for (letter, raw, meant) in &flags {
            out.extend_from_slice(&[b' ', *letter]);
            match letter {
                b'M' => out.push(*meant as u8),
                b'C' => out.extend_from_slice(meant.to_string().as_bytes()),
                b'O' | b'T' | b'N' | b'R' | b'F' | b'J' | b'D' => {
                    out.extend_from_slice(raw.to_string().as_bytes());
                }
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        if let (Some(_), Act::Store { value, .. }) = (len, &act) {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        let flags = flags
            .into_iter()
            .map(|(letter, _, n)| (letter, n))
            .collect();
        one(Form::Meta { flags }, key, act)
    }

    fn some(&mut self, letters: &[u8], percent: u64) -> Vec<(u8, i64, u64)> {
        let mut flags = Vec::new();
        for &letter in letters {
            if self.rng.chance(percent) {
                flags.push((letter, 0, 0));
            }
        }
        flags
    }

    fn meta_time(&mut self, letter: u8) -> (u8, i64, u64) {
        let mut time = self.time();
        // An item that is made with no life left is another test's.
        if letter == b'N' && time.0 < 0 {
            time = (0, 0);
        }
        (letter, time.0, u64::from(time.1))
    }

    fn meta_own(&mut self, out: &mut Vec<u8>) -> Command {
        let key = self.own_key();
        match self.rng.below(100) {
            0..48 => self.meta_get(out, key),
            48..76 => {
                let mut flags = self.some(b"csq", 25);
                let mode = [
                    Mode::Set,
                    Mode::Add,
                    Mode::Replace,
                    Mode::Append,
                    Mode::Prepend,
                ][self.rng.below(9).saturating_sub(4) as usize];
                let joins = matches!(mode, Mode::Append | Mode::Prepend);
                let value = if joins { self.part() } else { self.value() };
                if value.len() > MAX_ITEM {
                    flags.retain(|f| f.0 != b'q');
                }
                let client = self.flags();
                flags.push((b'F', i64::from(client), u64::from(client)));
                let (mut expiry, mut vivify) = (0, false);
                if self.rng.chance(40) {
                    let letter = if joins { b'N' } else { b'T' };
                    let time = self.meta_time(letter);
                    flags.push(time);
                    (expiry, vivify) = (time.2 as u32, joins);
                }
                if mode != Mode::Set || self.rng.chance(20) {
                    let letter = b"SERAP"[match mode {
                        Mode::Set | Mode::Cas => 0,
                        Mode::Add => 1,
                        Mode::Replace => 2,
                        Mode::Append => 3,
                        Mode::Prepend => 4,
                    }];
                    flags.push((b'M', 0, u64::from(letter)));
                }
                let mut act = Act::Store {
                    mode,
                    value,
                    flags: client,
                    expiry,
                    compare: 0,
                    vivify,
                };
                if mode == Mode::Set && self.rng.chance(20) {
                    let unique = self.unique(key);
                    flags.push((b'C', 0, unique));
                    if let Act::Store { mode, compare, .. } = &mut act {
                        (*mode, *compare) = (Mode::Cas, unique);
                    }
                }
                let Act::Store { value, .. } = &act else {
                    unreachable!()
                };
                let len = value.len();
                self.meta(out, "ms", key, Some(len), flags, act)
            }
            76..84 => {
                let mut flags = self.some(b"q", 25);
                let mut compare = 0;
                if self.rng.chance(20) {
                    compare = self.unique(key);
                    flags.push((b'C', 0, compare));
                }
                self.meta(out, "md", key, None, flags, Act::Delete { compare })
            }
            84..87 => {
                let mut flags = self.some(b"q", 25);
                flags.push((b'I', 0, 0));
                let time = self.rng.chance(60).then(|| self.meta_time(b'T'));
                flags.extend(time);
                let expiry = time.map(|t| t.2 as u32);
                self.meta(out, "md", key, None, flags, Act::Invalidate { expiry })
            }
            _ => {
                let (incr, delta) = (self.rng.chance(50), self.rng.below(500));
                let mut flags = self.some(b"vtc", 50);
                flags.push((b'D', delta as i64, delta));
                flags.push((b'M', 0, u64::from(if incr { b'I' } else { b'D' })));
                let initial = self.rng.chance(60).then(|| {
                    let (n, time) = (self.rng.below(300), self.meta_time(b'N'));
                    flags.extend([(b'J', n as i64, n), time]);
                    (n, time.2 as u32)
                });
                let act = Act::Arith {
                    incr,
                    delta,
                    initial,
                };
                self.meta(out, "ma", key, None, flags, act)
            }
        }
    }

    fn meta_get(&mut self, out: &mut Vec<u8>, key: usize) -> Command {
        let mut flags = self.some(b"stcfqu", 30);
        if self.rng.chance(75) {
            flags.push((b'v', 0, 0));
        }
        for (letter, percent) in [(b'T', 15), (b'N', 12), (b'R', 12)] {
            if self.rng.chance(percent) {
                let time = self.meta_time(letter);
                flags.push(time);
            }
        }
        self.meta(out, "mg", key, None, flags, Act::MetaGet)
    }

    // ---- binary ----

    #[allow(clippy::too_many_arguments)]
    fn packet(
        &mut self,
        out: &mut Vec<u8>,
        opcode: u8,
        quiet: bool,
        key: usize,
        act: Act,
        extras: &[u8],
        body: &[u8],
        compare: u64,
    ) -> Command {
        let opaque = self.opaque();
        let keyless = matches!(act, Act::Mark | Act::Flush);
        let name: &[u8] = if keyless { &[] } else { &self.names[key] };
        let mut bytes = packet(opcode, name, extras, body, compare);
        bytes[12..16].copy_from_slice(&opaque.to_be_bytes());
        out.extend_from_slice(&bytes);
        let form = Form::Binary {
            opcode,
            quiet,
            opaque,
        };
        one(form, key, act)
    }

    #[allow(clippy::too_many_arguments)]
    fn binary_store(
        &mut self,
        out: &mut Vec<u8>,
        key: usize,
        mode: Mode,
        value: Bytes,
        flags: u32,
        time: Time,
        quiet: bool,
    ) -> Command {
        let opcodes = match mode {
            Mode::Set | Mode::Cas => (0x01, 0x11),
            Mode::Add => (0x02, 0x12),
            Mode::Replace => (0x03, 0x13),
            Mode::Append => (0x0e, 0x19),
            Mode::Prepend => (0x0f, 0x1a),
        };
        let joins = matches!(mode, Mode::Append | Mode::Prepend);
        let extras = if joins {
            Vec::new()
        } else {
            [flags.to_be_bytes(), (time.0 as u32).to_be_bytes()].concat()
        };
        let compare = if mode == Mode::Cas {
            self.unique(key)
        } else {
            0
        };
        let body = Arc::clone(&value);
        let act = Act::Store {
            mode,
            value,
            flags,
            expiry: time.1,
            compare,
            vivify: false,
        };
        let opcode = if quiet { opcodes.1 } else { opcodes.0 };
        self.packet(out, opcode, quiet, key, act, &extras, &body, compare)
    }

    fn binary_get(&mut self, out: &mut Vec<u8>, key: usize, touch: Option<Time>) -> Command {
        let n = self.rng.below(4) as usize;
        let opcode = match touch {
            None => [0x00, 0x09, 0x0c, 0x0d][n],
            Some(_) => [0x1d, 0x1e, 0x23, 0x24][n],
        };
        let extras = touch.map_or(Vec::new(), |t| (t.0 as u32).to_be_bytes().to_vec());
        let act = Act::Get {
            touch: touch.map(|t| t.1),
        };
        self.packet(out, opcode, n % 2 == 1, key, act, &extras, &[], 0)
    }

    fn binary_own(&mut self, out: &mut Vec<u8>) -> Command {
        let key = self.own_key();
        let quiet = self.rng.chance(20);
        match self.rng.below(100) {
            0..42 => {
                let touch = self.rng.chance(15).then(|| self.time());
                self.binary_get(out, key, touch)
            }
            roll @ 42..78 => {
                let mode = match roll {
                    42..62 => Mode::Set,
                    62..66 => Mode::Add,
                    66..69 => Mode::Replace,
                    69..72 => Mode::Append,
                    72..74 => Mode::Prepend,
                    _ => Mode::Cas,
                };
                let value = if matches!(mode, Mode::Append | Mode::Prepend) {
                    self.part()
                } else {
                    self.value()
                };
                let (flags, time) = (self.flags(), self.time());
                self.binary_store(out, key, mode, value, flags, time, quiet)
            }
            78..86 => {
                let compare = if self.rng.chance(20) {
                    self.unique(key)
                } else {
                    0
                };
                let opcode = if quiet { 0x14 } else { 0x04 };
                let act = Act::Delete { compare };
                self.packet(out, opcode, quiet, key, act, &[], &[], compare)
            }
            86..96 => {
                let (incr, delta) = (self.rng.chance(50), self.rng.below(1000));
                let initial = self
                    .rng
                    .chance(60)
                    .then(|| (self.rng.below(100), self.time()));
                let (n, raw) = initial.map_or((0, u32::MAX), |(n, time)| (n, time.0 as u32));
                let mut extras = [delta.to_be_bytes(), n.to_be_bytes()].concat();
                extras.extend_from_slice(&raw.to_be_bytes());
                let opcode = match (incr, quiet) {
                    (true, false) => 0x05,
                    (false, false) => 0x06,
                    (true, true) => 0x15,
                    (false, true) => 0x16,
                };
                let act = Act::Arith {
                    incr,
                    delta,
                    initial: initial.map(|(n, time)| (n, time.1)),
                };
                self.packet(out, opcode, quiet, key, act, &extras, &[], 0)
            }
            _ => {
                let time = self.time();
                let extras = (time.0 as u32).to_be_bytes();
                let act = Act::Touch { expiry: time.1 };
                self.packet(out, 0x1c, false, key, act, &extras, &[], 0)
            }
        }
    }

    // ---- keys of all connections ----

    /// Set, add, cas, get, delete of a register.
    fn on_register(&mut self, out: &mut Vec<u8>) -> Command {
        let key = self.register();
        let noreply = self.rng.chance(15);
        match self.rng.below(100) {
            0..55 if self.binary => {
                let touch = self.rng.chance(15).then(|| self.never());
                self.binary_get(out, key, touch)
            }
            0..35 => {
                let touch = self.rng.chance(15).then(|| self.never());
                if touch.is_some() {
                    // Only keys of this kind in the line.
                    let raw = touch.map_or(0, |t| t.0);
                    self.line(out, &format!("gats {raw}"), key, "");
                    let act = Act::Get { touch: Some(0) };
                    return one(
                        Form::Text {
                            noreply: false,
                            cas: true,
                        },
                        key,
                        act,
                    );
                }
                self.get(out, key, None)
            }
            35..55 => {
                let flags = vec![(b'v', 0, 0), (b'c', 0, 0)];
                self.meta(out, "mg", key, None, flags, Act::MetaGet)
            }
            roll @ 55..93 => {
                let len = self.len().max(REGISTER_LEN);
                let value = Arc::new(value_of(self.id(), len));
                let (mode, noreply) = match roll {
                    55..83 => (Mode::Set, noreply),
                    83..87 => (Mode::Add, false),
                    _ => (Mode::Cas, false),
                };
                let time = self.never();
                if self.binary {
                    return self.binary_store(out, key, mode, value, 7, time, noreply);
                }
                self.store(out, key, mode, value, 7, time, noreply)
            }
            _ if self.binary => {
                let opcode = if noreply { 0x14 } else { 0x04 };
                self.packet(
                    out,
                    opcode,
                    noreply,
                    key,
                    Act::Delete { compare: 0 },
                    &[],
                    &[],
                    0,
                )
            }
            _ => {
                self.line(out, "delete", key, silence(noreply));
                one(text(noreply), key, Act::Delete { compare: 0 })
            }
        }
    }

    /// A ledger's next token or the ledger, a counter's next number.
    fn on_joint(&mut self, out: &mut Vec<u8>) -> Command {
        let silent = self.rng.chance(20);
        if self.rng.chance(40) {
            let key =
                self.layout.first_counter() + self.rng.below(self.layout.counters as u64) as usize;
            let act = Act::Arith {
                incr: true,
                delta: 1,
                initial: None,
            };
            if self.binary {
                let mut extras = [1_u64.to_be_bytes(), [0; 8]].concat();
                extras.extend_from_slice(&u32::MAX.to_be_bytes());
                let opcode = if silent { 0x15 } else { 0x05 };
                return self.packet(out, opcode, silent, key, act, &extras, &[], 0);
            }
            if self.rng.chance(30) {
                return self.meta(out, "ma", key, None, vec![(b'v', 0, 0)], act);
            }
            self.line(out, "incr", key, &format!(" 1{}", silence(silent)));
            return one(text(silent), key, act);
        }
        let key = self.layout.first_ledger() + self.rng.below(self.layout.ledgers as u64) as usize;
        if self.rng.chance(30) {
            if self.binary {
                return self.packet(out, 0x00, false, key, Act::Get { touch: None }, &[], &[], 0);
            }
            self.line(out, "get", key, "");
            return one(text(false), key, Act::Get { touch: None });
        }
        let number = self.id() & 0xffff_ffff;
        let value = Arc::new(token(self.connection, number).into_bytes());
        if self.binary {
            return self.binary_store(out, key, Mode::Append, value, 0, (0, 0), silent);
        }
        self.store(out, key, Mode::Append, value, 0, (0, 0), silent)
    }
}

fn text(noreply: bool) -> Form {
    Form::Text {
        noreply,
        cas: false,
    }
}

fn one(form: Form, key: usize, act: Act) -> Command {
    Command {
        form,
        parts: vec![(key, act)],
    }
}

fn silence(noreply: bool) -> &'static str {
    if noreply { " noreply" } else { "" }
}
