// SPDX-License-Identifier: Apache-2.0
//! Random commands in the three dialects: the bytes to send, and the facts that the checker needs.

mod binary; // the binary protocol
mod meta; // mg, ms, md, ma

use std::sync::Arc;

use senko_workload::Rng;

use super::keys::{Layout, REGISTER_LEN, token, value_of};
use super::own::MAX_ITEM;
use super::wire::{Act, Bytes, Command, Form, Mode};

/// Makes the commands of one connection.
#[derive(Debug)]
pub struct Maker<'a> {
    pub rng: &'a mut Rng,
    pub connection: usize,
    pub binary: bool,
    pub now: u32,
    pub layout: Layout,
    pub names: &'a [Vec<u8>],
    /// The newest CAS value seen of each key.
    pub cas_values: &'a [u64],
    /// Numbers of values and ledger tokens, and of commands.
    pub next_id: &'a mut u64,
    pub next_opaque: &'a mut u32,
    /// Ledgers and counters may be used in this batch.
    pub joint: bool,
}

/// An expiry as it is sent, and its meaning.
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
        // Some keys are requested more often than others.
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
            return Arc::new((self.rng.next_u64() >> bits).to_string().into_bytes());
        }
        let len = if self.rng.below(1000) == 0 {
            MAX_ITEM + 1 + self.rng.below(3000) as usize
        } else {
            self.len()
        };
        Arc::new(value_of(self.id(), len))
    }

    fn value_for(&mut self, mode: Mode) -> Bytes {
        match mode {
            Mode::Append | Mode::Prepend => self.part(),
            _ => self.value(),
        }
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
        (self.rng.next_u64() >> 32 >> bits) as u32
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

    /// A time that does not come during a run.
    fn never(&mut self) -> Time {
        if self.rng.chance(50) {
            (0, 0)
        } else {
            (2_500_000, self.now + 2_500_000)
        }
    }

    /// The newest CAS value seen for a key, or one that no item has.
    fn cas(&mut self, key: usize) -> u64 {
        match self.cas_values[key] {
            0 => u64::MAX - 5,
            _ if self.rng.chance(5) => u64::MAX - 5,
            cas => cas,
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

    /// Stores one of the connection's own keys, whatever its value.
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
        let compare = if mode == Mode::Cas { self.cas(key) } else { 0 };
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
        // Only get and gets lines may exceed 2048 bytes before their end arrives.
        let most = match touch {
            Some(_) => 6,
            None if self.rng.chance(5) => 120,
            None => 12,
        };
        while keys.len() < most && self.rng.chance(if most > 12 { 97 } else { 35 }) {
            // All connections would see the effect of a touch of a shared key with a short time.
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
                let value = self.value_for(mode);
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
                    // The line has only keys of this kind.
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

    /// A ledger's next token, a read of the ledger, or a counter's next number.
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
