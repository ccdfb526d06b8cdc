// SPDX-License-Identifier: Apache-2.0
//! The model of a key that only one connection changes: the required reply of each command, and the
//! key's value after it.
//!
//! A key has *candidates*: states that agree with all replies so far. If nothing may be lost and
//! nobody flushes, there is one. If flash is too small an item may be lost at any time, so every
//! command may also find nothing. A reply tells which case it was; a silent command leaves both
//! possible. Each candidate counts the losses that it needs.

use std::sync::Arc;

use super::replies::{meta_get, reply};
use super::wire::{Act, Bytes, Command, Form, Mode, Reply, head_of, show};

/// The server's limit on the record of an item, and the margin around it in which the model allows
/// both outcomes.
pub const MAX_ITEM: usize = 300_000;
const UNSURE: usize = 600;

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Bytes,
    pub flags: u32,
    pub expiry: u32,
    /// 0: not yet seen, and different from all seen values.
    pub cas: u64,
    pub stale: bool,
    pub won: bool,
    pub base64: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    state: Option<Entry>,
    losses: u64,
}

#[derive(Clone, Debug)]
pub struct OwnKey {
    candidates: Vec<Candidate>,
    /// The newest CAS value that was seen.
    pub seen: u64,
    /// When the newest command for it was sent, and answered.
    pub last: (u64, u64),
}

/// Other events that may have affected a key before a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    No,
    Perhaps,
    Surely,
}

impl OwnKey {
    pub fn new() -> OwnKey {
        OwnKey {
            candidates: vec![Candidate {
                state: None,
                losses: 0,
            }],
            seen: 0,
            last: (0, 0),
        }
    }

    /// Everything is gone, because the connection itself flushed.
    pub fn flush(&mut self) {
        let losses = self.losses();
        self.candidates = vec![Candidate {
            state: None,
            losses,
        }];
    }

    /// Everything may be gone.
    pub fn perhaps_flush(&mut self) {
        if self.candidates.iter().all(|c| c.state.is_some()) {
            let losses = self.losses();
            self.candidates.push(Candidate {
                state: None,
                losses,
            });
        }
    }

    /// How often the key was lost at least.
    pub fn losses(&self) -> u64 {
        self.candidates.iter().map(|c| c.losses).min().unwrap_or(0)
    }

    /// Applies a reply, or returns what it should have been.
    pub fn check(
        &mut self,
        at: &Context<'_>,
        act: &Act,
        reply: &Reply,
        flushed: Flushed,
    ) -> Result<(), String> {
        let mut next: Vec<Candidate> = Vec::new();
        let mut wanted = Vec::new();
        let cas = match reply {
            Reply::Said { cas, .. } => *cas,
            Reply::Silent => 0,
        };
        for candidate in &self.candidates {
            let alive = |e: &Entry| e.expiry == 0 || e.expiry > at.now;
            let state = candidate.state.clone().filter(alive);
            let gone = state.is_some();
            let mut branches = Vec::new();
            if flushed != Flushed::Surely {
                branches.push((state, candidate.losses));
            } else if !gone {
                branches.push((None, candidate.losses));
            }
            if gone && flushed != Flushed::No {
                branches.push((None, candidate.losses));
            } else if gone && at.lossy {
                branches.push((None, candidate.losses + 1));
            }
            for (state, losses) in branches {
                // An unknown CAS value is learnt from the reply, if it can be new.
                for (expected, state) in effects(at, act, state, cas) {
                    let learnt = state.as_ref().map_or(0, |e| e.cas);
                    if expected != *reply || (cas != 0 && learnt == cas && cas < self.seen) {
                        wanted.push(head_of(&expected));
                        continue;
                    }
                    match next.iter_mut().find(|c| c.state == state) {
                        Some(same) => same.losses = same.losses.min(losses),
                        None => next.push(Candidate { state, losses }),
                    }
                }
            }
        }
        if next.is_empty() {
            let states: Vec<String> = self.candidates.iter().map(describe).collect();
            return Err(format!(
                "got {}\n wanted {}\n as the key held {}",
                head_of(reply),
                wanted.join("\n     or "),
                states.join("\n     or ")
            ));
        }
        assert!(next.len() < 200, "too many states are possible");
        self.candidates = next;
        self.seen = self.seen.max(cas);
        Ok(())
    }
}

fn describe(candidate: &Candidate) -> String {
    match &candidate.state {
        None => "nothing".to_owned(),
        Some(e) => format!(
            "{} bytes {:?}, flags {}, expiry {}, cas {}, stale {}, won {}, {} losses",
            e.value.len(),
            show(&e.value),
            e.flags,
            e.expiry,
            e.cas,
            e.stale,
            e.won,
            candidate.losses
        ),
    }
}

/// Circumstances of a command besides the key's state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub command: &'a Command,
    pub key: &'a [u8],
    pub now: u32,
    pub lossy: bool,
}

/// The result of a command.
pub enum End {
    Hit,
    Missing,
    Stored,
    NotStored,
    Exists,
    Deleted,
    /// The new number; whether the item was made.
    Number(u64, bool),
    NotNumeric,
    Touched,
    TooLarge,
}

/// Replies and new states that a command may lead to: one, but near to the limit of an item's size.
fn effects(
    at: &Context<'_>,
    act: &Act,
    old: Option<Entry>,
    cas: u64,
) -> Vec<(Reply, Option<Entry>)> {
    let mut all = Vec::new();
    let mut end = |end: End, state: Option<Entry>| {
        let mut state = state;
        if let Some(e) = &mut state
            && e.cas == 0
        {
            e.cas = cas;
        }
        all.push((reply(at, act, end, state.as_ref()), state));
    };
    match act {
        Act::Get { touch } => match old {
            Some(mut e) => {
                e.expiry = touch.unwrap_or(e.expiry);
                end(End::Hit, Some(e));
            }
            None => end(End::Missing, None),
        },
        Act::Touch { expiry } => match old {
            Some(e) => end(
                End::Touched,
                Some(Entry {
                    expiry: *expiry,
                    ..e
                }),
            ),
            None => end(End::Missing, None),
        },
        Act::Delete { compare } => match old {
            Some(e) if *compare != 0 && e.cas != *compare => end(End::Exists, Some(e)),
            Some(_) => end(End::Deleted, None),
            None => end(End::Missing, None),
        },
        Act::Invalidate { expiry } => match old {
            Some(e) => end(
                End::Deleted,
                Some(Entry {
                    expiry: expiry.unwrap_or(e.expiry),
                    cas: 0,
                    stale: true,
                    won: false,
                    ..e
                }),
            ),
            None => end(End::Missing, None),
        },
        Act::Arith {
            incr,
            delta,
            initial,
        } => match (old, initial) {
            (None, None) => end(End::Missing, None),
            (None, Some((n, expiry))) => {
                let value = Arc::new(n.to_string().into_bytes());
                let made = Entry {
                    expiry: *expiry,
                    ..plain(value)
                };
                end(End::Number(*n, true), Some(made));
            }
            (Some(e), _) => match number(&e.value) {
                None => end(End::NotNumeric, Some(e)),
                Some(n) => {
                    let n = if *incr {
                        n.wrapping_add(*delta)
                    } else {
                        n.saturating_sub(*delta)
                    };
                    let mut text = n.to_string().into_bytes();
                    text.resize(text.len().max(e.value.len()), b' ');
                    // A longer number makes a new item, which has no marks.
                    let same = text.len() == e.value.len();
                    let new = Entry {
                        value: Arc::new(text),
                        cas: 0,
                        stale: same && e.stale,
                        won: same && e.won,
                        ..e
                    };
                    end(End::Number(n, false), Some(new));
                }
            },
        },
        Act::Store { .. } => store(at, act, old, &mut end),
        Act::MetaGet => return vec![meta_get(at, old, cas)],
        Act::Flush | Act::Mark => unreachable!("these have no key"),
    }
    all
}

pub fn plain(value: Bytes) -> Entry {
    Entry {
        value,
        flags: 0,
        expiry: 0,
        cas: 0,
        stale: false,
        won: false,
        base64: false,
    }
}

fn store(at: &Context<'_>, act: &Act, old: Option<Entry>, end: &mut dyn FnMut(End, Option<Entry>)) {
    let Act::Store {
        mode,
        value,
        flags,
        expiry,
        compare,
        vivify,
    } = act
    else {
        unreachable!("the caller has looked")
    };
    if value.len() > MAX_ITEM {
        // No old value survives a failed set. (A compare-and-set is a set here only in the binary
        // and meta dialects.)
        let sets = match at.command.form {
            Form::Text { .. } => *mode == Mode::Set,
            Form::Binary { opcode, .. } => opcode & 0x0f == 1,
            Form::Meta { .. } => true,
        };
        return end(End::TooLarge, if sets { None } else { old });
    }
    let new = Entry {
        flags: *flags,
        expiry: *expiry,
        base64: at.command.form.flag(b'b').is_some(),
        ..plain(Arc::clone(value))
    };
    match (mode, old) {
        (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
            end(End::Stored, Some(new))
        }
        (Mode::Add, old @ Some(_)) => end(End::NotStored, old),
        (Mode::Append | Mode::Prepend, None) if *vivify => end(End::Stored, Some(new)),
        (Mode::Replace | Mode::Append | Mode::Prepend, None) => end(End::NotStored, None),
        (Mode::Cas, None) => end(End::Missing, None),
        (Mode::Cas, Some(e)) if e.cas == *compare => end(End::Stored, Some(new)),
        (Mode::Cas, Some(e)) => end(End::Exists, Some(e)),
        (Mode::Append | Mode::Prepend, Some(e)) => {
            let whole = if *mode == Mode::Append {
                [&e.value[..], value].concat()
            } else {
                [&value[..], &e.value].concat()
            };
            let len = whole.len();
            if len > MAX_ITEM - UNSURE {
                end(End::NotStored, Some(e.clone()));
            }
            if len < MAX_ITEM {
                let joined = Entry {
                    value: Arc::new(whole),
                    cas: 0,
                    stale: false,
                    won: false,
                    ..e
                };
                end(End::Stored, Some(joined));
            }
        }
    }
}

/// A number as memcached reads it: white space may precede it, and ends it.
fn number(value: &[u8]) -> Option<u64> {
    let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let start = value.iter().position(|b| !space(b))?;
    let digits = value[start..].split(space).next()?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
