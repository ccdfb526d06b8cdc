// SPDX-License-Identifier: Apache-2.0
//! Writes requests as bytes, in the three dialects.
//!
//! [`crate::engine`] appends to a connection's send batch. Nothing is allocated once the batch has
//! its size. Every set carries the value's version as its flags (see [`mod@crate::check`]).

use senko_workload::{KeySpace, fill_value};

use crate::changes::{self, CHUNK, Change, Class};
use crate::settings::Wire;

/// Writes requests of one dialect.
pub struct Writer<'a> {
    pub wire: Wire,
    pub space: &'a KeySpace,
    /// Whether answers should repeat the key if the dialect leaves that open.
    pub with_key: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Set {
    pub key_id: u64,
    pub version: u32,
    pub class: Class,
    pub len: usize,
    /// Seconds to live; 0: forever.
    pub expire: u32,
    /// Whether the answer is suppressed.
    pub quiet: bool,
}

/// Relative times end here: memcached takes a larger number as a date.
const LONGEST_RELATIVE: u32 = 30 * 24 * 3600;

impl Writer<'_> {
    pub fn get(&self, key_id: u64, out: &mut Vec<u8>) {
        match self.wire {
            Wire::Classic => {
                out.extend_from_slice(b"get ");
                self.space.append(key_id, out);
                out.extend_from_slice(b"\r\n");
            }
            Wire::Meta => self.meta_get(
                key_id,
                if self.with_key {
                    b" v f k\r\n"
                } else {
                    b" v f\r\n"
                },
                out,
            ),
            Wire::Binary => self.binary(
                if self.with_key { 0x0C } else { 0x00 },
                Some(key_id),
                &[],
                0,
                out,
            ),
        }
    }

    /// A get of several keys with one end; its answers repeat the keys.
    pub fn get_many(&self, keys: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        match self.wire {
            Wire::Classic => {
                out.extend_from_slice(b"get");
                for key_id in keys {
                    out.push(b' ');
                    self.space.append(key_id, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Wire::Meta => {
                keys.for_each(|key_id| self.meta_get(key_id, b" v f k q\r\n", out));
                self.sync(out);
            }
            Wire::Binary => {
                keys.for_each(|key_id| self.binary(0x0D, Some(key_id), &[], 0, out));
                self.sync(out);
            }
        }
    }

    pub fn set(&self, set: Set, now_unix: u32, out: &mut Vec<u8>) {
        let expire = if set.expire > LONGEST_RELATIVE {
            now_unix.saturating_add(set.expire)
        } else {
            set.expire
        };
        match self.wire {
            Wire::Classic => {
                out.extend_from_slice(b"set ");
                self.space.append(set.key_id, out);
                for number in [u64::from(set.version), u64::from(expire), set.len as u64] {
                    out.push(b' ');
                    decimal(number, out);
                }
                out.extend_from_slice(if set.quiet { b" noreply\r\n" } else { b"\r\n" });
            }
            Wire::Meta => {
                out.extend_from_slice(b"ms ");
                self.space.append(set.key_id, out);
                out.push(b' ');
                decimal(set.len as u64, out);
                out.extend_from_slice(b" F");
                decimal(u64::from(set.version), out);
                if expire > 0 {
                    out.extend_from_slice(b" T");
                    decimal(u64::from(expire), out);
                }
                out.extend_from_slice(if set.quiet { b" q\r\n" } else { b"\r\n" });
            }
            Wire::Binary => {
                let mut extras = [0; 8];
                extras[..4].copy_from_slice(&set.version.to_be_bytes());
                extras[4..].copy_from_slice(&expire.to_be_bytes());
                self.binary(
                    if set.quiet { 0x11 } else { 0x01 },
                    Some(set.key_id),
                    &extras,
                    set.len,
                    out,
                );
            }
        }
        if set.class == Class::Counter {
            decimal(changes::counter(set.version), out);
        } else {
            let from = out.len();
            out.resize(from + set.len, 0);
            fill_value(&mut out[from..], set.key_id, set.version);
        }
        if self.wire != Wire::Binary {
            out.extend_from_slice(b"\r\n");
        }
    }

    pub fn change(&self, key_id: u64, change: Change, out: &mut Vec<u8>) {
        match change.class() {
            Class::Counter => self.count(key_id, change, out),
            Class::Text | Class::Plain => self.extend(key_id, change, out),
        }
    }

    fn count(&self, key_id: u64, change: Change, out: &mut Vec<u8>) {
        let up = change == Change::Incr;
        match self.wire {
            Wire::Classic => {
                out.extend_from_slice(if up { b"incr " } else { b"decr " });
                self.space.append(key_id, out);
                out.extend_from_slice(b" 1\r\n");
            }
            Wire::Meta => {
                out.extend_from_slice(b"ma ");
                self.space.append(key_id, out);
                out.extend_from_slice(if up { b" v\r\n" } else { b" v MD\r\n" });
            }
            Wire::Binary => {
                // By 1; a missing key stays missing.
                let mut extras = [0; 20];
                extras[7] = 1;
                extras[16..].fill(0xFF);
                let opcode = if up { 0x05 } else { 0x06 };
                self.binary(opcode, Some(key_id), &extras, 0, out);
            }
        }
    }

    fn extend(&self, key_id: u64, change: Change, out: &mut Vec<u8>) {
        let behind = change == Change::Append;
        match self.wire {
            Wire::Classic => {
                out.extend_from_slice(if behind { b"append " } else { b"prepend " });
                self.space.append(key_id, out);
                out.extend_from_slice(b" 0 0 ");
                decimal(CHUNK as u64, out);
                out.extend_from_slice(b"\r\n");
            }
            Wire::Meta => {
                out.extend_from_slice(b"ms ");
                self.space.append(key_id, out);
                out.push(b' ');
                decimal(CHUNK as u64, out);
                out.extend_from_slice(if behind { b" MA\r\n" } else { b" MP\r\n" });
            }
            Wire::Binary => {
                let opcode = if behind { 0x0E } else { 0x0F };
                self.binary(opcode, Some(key_id), &[], CHUNK, out);
            }
        }
        out.extend_from_slice(&changes::chunk(key_id, change));
        if self.wire != Wire::Binary {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// A request whose answer proves that all earlier ones were answered.
    pub fn sync(&self, out: &mut Vec<u8>) {
        match self.wire {
            Wire::Classic => out.extend_from_slice(b"version\r\n"),
            Wire::Meta => out.extend_from_slice(b"mn\r\n"),
            Wire::Binary => self.binary(0x0A, None, &[], 0, out),
        }
    }

    fn meta_get(&self, key_id: u64, flags: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"mg ");
        self.space.append(key_id, out);
        out.extend_from_slice(flags);
    }

    /// A header with everything after it except the value.
    fn binary(
        &self,
        opcode: u8,
        key_id: Option<u64>,
        extras: &[u8],
        value: usize,
        out: &mut Vec<u8>,
    ) {
        let key_len = key_id.map_or(0, |key_id| self.space.key_len(key_id));
        let mut header = [0; 24];
        header[0] = 0x80;
        header[1] = opcode;
        header[2..4].copy_from_slice(&(key_len as u16).to_be_bytes());
        header[4] = extras.len() as u8;
        header[8..12].copy_from_slice(&((extras.len() + key_len + value) as u32).to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(extras);
        if let Some(key_id) = key_id {
            self.space.append(key_id, out);
        }
    }
}

fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::KeyShape;

    #[test]
    fn requests_are_what_the_protocol_says() {
        let space = KeySpace::new("k", KeyShape::Shortest, 100).expect("a good key space");
        let mut out = Vec::new();
        let classic = Writer {
            wire: Wire::Classic,
            space: &space,
            with_key: false,
        };
        classic.get(7, &mut out);
        classic.get_many([1, 20].into_iter(), &mut out);
        let set = Set {
            key_id: 5,
            version: 4_294_967_295,
            class: Class::Plain,
            len: 0,
            expire: 60,
            quiet: true,
        };
        classic.set(set, 0, &mut out);
        classic.sync(&mut out);
        assert_eq!(
            out,
            b"get k7\r\nget k1 k20\r\nset k5 4294967295 60 0 noreply\r\n\r\nversion\r\n"
        );
        out.clear();
        let meta = Writer {
            wire: Wire::Meta,
            space: &space,
            with_key: true,
        };
        meta.get(7, &mut out);
        meta.get_many([1, 20].into_iter(), &mut out);
        meta.set(
            Set {
                version: 0,
                expire: 10_000_000,
                quiet: false,
                ..set
            },
            1_000_000_000,
            &mut out,
        );
        let wanted = b"mg k7 v f k\r\nmg k1 v f k q\r\nmg k20 v f k q\r\nmn\r\nms k5 0 F0 T1010000000\r\n\r\n";
        assert_eq!(
            out.escape_ascii().to_string(),
            wanted.escape_ascii().to_string()
        );
        out.clear();
        let binary = Writer {
            wire: Wire::Binary,
            space: &space,
            with_key: false,
        };
        binary.set(Set { len: 3, ..set }, 0, &mut out);
        assert_eq!(out.len(), 24 + 8 + 2 + 3);
        assert_eq!(out[..12], [0x80, 0x11, 0, 2, 8, 0, 0, 0, 0, 0, 0, 13]);
        assert_eq!(out[24..34], [255, 255, 255, 255, 0, 0, 0, 60, b'k', b'5']);
    }

    #[test]
    fn changes_are_what_the_protocol_says() {
        let space = KeySpace::new("k", KeyShape::Shortest, 100).expect("a good key space");
        let chunk = |change| changes::chunk(7, change).to_vec();
        for (wire, count, extend) in [
            (
                Wire::Classic,
                ["incr k7 1\r\n", "decr k7 1\r\n"],
                ["append k7 0 0 16\r\n", "prepend k7 0 0 16\r\n"],
            ),
            (
                Wire::Meta,
                ["ma k7 v\r\n", "ma k7 v MD\r\n"],
                ["ms k7 16 MA\r\n", "ms k7 16 MP\r\n"],
            ),
        ] {
            let writer = Writer {
                wire,
                space: &space,
                with_key: true,
            };
            let written = |change| {
                let mut out = Vec::new();
                writer.change(7, change, &mut out);
                out
            };
            assert_eq!(written(Change::Incr), count[0].as_bytes());
            assert_eq!(written(Change::Decr), count[1].as_bytes());
            for (change, head) in [Change::Append, Change::Prepend].into_iter().zip(extend) {
                let wanted = [head.as_bytes(), &chunk(change), b"\r\n"].concat();
                assert_eq!(written(change), wanted);
            }
        }
        let binary = Writer {
            wire: Wire::Binary,
            space: &space,
            with_key: true,
        };
        let mut out = Vec::new();
        binary.change(7, Change::Decr, &mut out);
        assert_eq!(out[..12], [0x80, 0x06, 0, 2, 20, 0, 0, 0, 0, 0, 0, 22]);
        assert_eq!(out[24..32], [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(out[40..46], [255, 255, 255, 255, b'k', b'7']);
        out.clear();
        binary.change(7, Change::Append, &mut out);
        assert_eq!(out[..12], [0x80, 0x0E, 0, 2, 0, 0, 0, 0, 0, 0, 0, 18]);
        assert_eq!(out[26..], chunk(Change::Append));
    }

    #[test]
    fn a_counter_is_set_in_decimal() {
        let space = KeySpace::new("k", KeyShape::Shortest, 100).expect("a good key space");
        let writer = Writer {
            wire: Wire::Classic,
            space: &space,
            with_key: false,
        };
        let set = Set {
            key_id: 5,
            version: 3,
            class: Class::Counter,
            len: 10,
            expire: 0,
            quiet: false,
        };
        let mut out = Vec::new();
        writer.set(set, 0, &mut out);
        assert_eq!(out, b"set k5 3 0 10\r\n3500000000\r\n");
    }
}
