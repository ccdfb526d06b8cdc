// SPDX-License-Identifier: Apache-2.0
//! The binary commands.

use std::sync::Arc;

use super::{Maker, Time, one};
use crate::property::wire::{Act, Bytes, Command, Form, Mode};
use crate::session::packet;

impl Maker<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn packet(
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
    pub(super) fn binary_store(
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
        let compare = if mode == Mode::Cas { self.cas(key) } else { 0 };
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

    pub(super) fn binary_get(
        &mut self,
        out: &mut Vec<u8>,
        key: usize,
        touch: Option<Time>,
    ) -> Command {
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

    pub(super) fn binary_own(&mut self, out: &mut Vec<u8>) -> Command {
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
                let value = self.value_for(mode);
                let (flags, time) = (self.flags(), self.time());
                self.binary_store(out, key, mode, value, flags, time, quiet)
            }
            78..86 => {
                let compare = if self.rng.chance(20) {
                    self.cas(key)
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
}
