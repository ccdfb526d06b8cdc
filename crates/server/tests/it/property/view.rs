// SPDX-License-Identifier: Apache-2.0
//! One connection's view of the keys: the states that its own keys may have, its observations of
//! the keys of all, and the numbers for its next values and commands.

use senko_workload::Rng;

use super::commands::Maker;
use super::keys::{Layout, Use};
use super::own::{Context, Flushed, OwnKey};
use super::shared::{Seen, Span};
use super::wire::{Act, Reply};

pub struct View {
    pub number: usize,
    pub binary: bool,
    pub own: Vec<OwnKey>,
    pub seen: Seen,
    /// The newest CAS value seen of each key.
    cas_values: Vec<u64>,
    next_id: u64,
    next_opaque: u32,
}

impl View {
    pub fn new(number: usize, binary: bool, layout: &Layout) -> View {
        View {
            number,
            binary,
            own: (0..layout.own).map(|_| OwnKey::new()).collect(),
            seen: Seen::default(),
            cas_values: vec![0; layout.keys()],
            next_id: 0,
            next_opaque: 0,
        }
    }

    /// Makes its commands; with `joint`, also for ledgers and counters.
    pub fn maker<'a>(
        &'a mut self,
        rng: &'a mut Rng,
        (layout, names): (Layout, &'a [Vec<u8>]),
        now: u32,
        joint: bool,
    ) -> Maker<'a> {
        Maker {
            rng,
            connection: self.number,
            binary: self.binary,
            now,
            layout,
            names,
            cas_values: &self.cas_values,
            next_id: &mut self.next_id,
            next_opaque: &mut self.next_opaque,
            joint,
        }
    }

    /// Checks the reply to a command for one key, which was under way in this span.
    pub fn check(
        &mut self,
        layout: &Layout,
        at: &Context<'_>,
        (key, act): (usize, &Act),
        reply: &Reply,
        (span, flushed): (Span, Flushed),
    ) -> Result<(), String> {
        match layout.what(key) {
            Use::Register => {
                self.seen.register(key, at.command, act, reply, span);
                if let Reply::Said { cas, .. } = reply
                    && *cas != 0
                    && matches!(act, Act::Get { .. } | Act::MetaGet)
                {
                    self.cas_values[key] = *cas;
                }
            }
            Use::Ledger => self.seen.ledger(key, act, reply),
            Use::Counter => self.seen.counter(key, at.command, reply),
            Use::Own => {
                let own = &mut self.own[key - self.number * layout.own];
                own.check(at, act, reply, flushed)?;
                own.last = (span.start, span.end);
                self.cas_values[key] = own.seen;
            }
        }
        Ok(())
    }
}
