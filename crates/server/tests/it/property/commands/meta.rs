// SPDX-License-Identifier: Apache-2.0
//! The meta commands.

use super::{Maker, one};
use crate::property::keys::base64;
use crate::property::own::MAX_ITEM;
use crate::property::wire::{Act, Command, Form, Mode};

impl Maker<'_> {
    /// A meta line: the flags with their numbers, as sent and with their meaning, shuffled.
    pub(super) fn meta(
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
        // Another test covers items that are made already expired.
        if letter == b'N' && time.0 < 0 {
            time = (0, 0);
        }
        (letter, time.0, u64::from(time.1))
    }

    pub(super) fn meta_own(&mut self, out: &mut Vec<u8>) -> Command {
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
                let value = self.value_for(mode);
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
                    let cas = self.cas(key);
                    flags.push((b'C', 0, cas));
                    if let Act::Store { mode, compare, .. } = &mut act {
                        (*mode, *compare) = (Mode::Cas, cas);
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
                    compare = self.cas(key);
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
}
