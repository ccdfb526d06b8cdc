// SPDX-License-Identifier: Apache-2.0
//! The keys that all connections use: their checks, which use only times.
//!
//! Card. Each operation on a register (set, delete, get) has an interval. It begins before the
//! first byte was sent and ends after the reply had come (for a silent operation: the next reply of
//! its connection). A get of value W is wrong if W began after the get ended, or if some other
//! change lies wholly between the end of W and the beginning of the get. A miss is wrong if no
//! delete can explain it. This is the necessary part of linearizability (Herlihy and Wing 1990)
//! that needs no search. The results of gets narrow it down. A change that a get saw has happened
//! by the end of that get. A miss shows that the key held nothing.
//!
//! A ledger (all append) must have each token once, in the order in which its connection sent it.
//! The answers of a counter must differ, and must have the right sum.

use std::collections::{HashMap, HashSet};

use super::keys::{TOKEN, id_of};
use super::wire::{Act, Command, Form, Mode, Reply, show};

/// From before it was sent to after it was answered.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    fn before(self, other: Span) -> bool {
        self.end < other.start
    }
}

/// The facts learnt about a register.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Write(u64),
    Delete,
    /// It held this value, or nothing.
    Read(Option<u64>),
}

/// A connection's observations of shared keys in a round.
#[derive(Debug, Default)]
pub struct Seen {
    pub events: Vec<(usize, Event, Span)>,
    /// CAS values and their items' values; kept from round to round.
    cas_values: HashMap<u64, u64>,
    /// Ledgers: tokens sent, in order, with the ledger.
    pub tokens: Vec<(usize, Vec<u8>)>,
    /// Counters: the returned numbers, and how often the connection incremented them.
    pub numbers: Vec<(usize, u64)>,
    pub counted: HashMap<usize, u64>,
}

impl Seen {
    /// A command for a register and its reply.
    pub fn register(
        &mut self,
        key: usize,
        command: &Command,
        act: &Act,
        reply: &Reply,
        span: Span,
    ) {
        let mut event = |event| self.events.push((key, event, span));
        let said = |wanted: [&[u8]; 3]| match (reply, &command.form) {
            (Reply::Silent, _) => true,
            (Reply::Said { head, .. }, Form::Text { .. }) => head == wanted[0],
            (Reply::Said { head, .. }, Form::Meta { .. }) => head.starts_with(wanted[1]),
            (Reply::Said { head, .. }, Form::Binary { .. }) => head.starts_with(wanted[2]),
        };
        match act {
            Act::Store {
                mode,
                value,
                compare,
                ..
            } => {
                let id = id_of(value).expect("a register's value has its number");
                if said([b"STORED", b"HD", &[0, 0]]) {
                    match mode {
                        Mode::Add => event(Event::Read(None)),
                        Mode::Cas => {
                            // Only the value that was read with this CAS value can have been there.
                            let was = *self.cas_values.get(compare).unwrap_or_else(|| {
                                panic!("stored for a cas that was never seen: {compare}")
                            });
                            self.events.push((key, Event::Read(Some(was)), span));
                        }
                        _ => {}
                    }
                    self.events.push((key, Event::Write(id), span));
                } else {
                    let fine = match mode {
                        Mode::Add => said([b"NOT_STORED", b"NS", &[0, 2]]),
                        Mode::Cas => {
                            said([b"EXISTS", b"EX", &[0, 2]])
                                || said([b"NOT_FOUND", b"NF", &[0, 1]])
                        }
                        _ => false,
                    };
                    assert!(fine, "{command:?}: {reply:?}");
                }
            }
            Act::Delete { .. } => {
                if !matches!(reply, Reply::Silent) && said([b"NOT_FOUND", b"NF", &[0, 1]]) {
                    event(Event::Read(None));
                } else {
                    assert!(said([b"DELETED", b"HD", &[0, 0]]), "{command:?}: {reply:?}");
                    event(Event::Delete);
                }
            }
            Act::Get { .. } | Act::MetaGet => {
                // A quiet get does not report a miss.
                let Reply::Said { head, value, cas } = reply else {
                    return event(Event::Read(None));
                };
                let miss = head.is_empty() || head.starts_with(b"EN") || head.starts_with(&[0, 1]);
                if miss {
                    return event(Event::Read(None));
                }
                let value = value.as_ref().expect("a hit has a value");
                let id = id_of(value).unwrap_or_else(|| {
                    panic!(
                        "no value that was ever written, or a torn one: {} bytes {:?}",
                        value.len(),
                        show(value)
                    )
                });
                event(Event::Read(Some(id)));
                if *cas != 0 {
                    let before = self.cas_values.insert(*cas, id);
                    assert!(
                        before.is_none_or(|b| b == id),
                        "two values with the cas {cas}"
                    );
                }
            }
            _ => unreachable!("a register is stored, deleted and read"),
        }
    }

    /// A command for a ledger: a read must be whole.
    pub fn ledger(&mut self, key: usize, act: &Act, reply: &Reply) {
        match (act, reply) {
            (Act::Store { value, .. }, _) => {
                let fine = match reply {
                    Reply::Silent => true,
                    Reply::Said { head, .. } => head == b"STORED" || head == &[0, 0],
                };
                assert!(fine, "a ledger could not be appended to: {reply:?}");
                self.tokens.push((key, value.to_vec()));
            }
            (
                _,
                Reply::Said {
                    head,
                    value: Some(value),
                    ..
                },
            ) if !head.starts_with(&[0, 1]) => {
                check_ledger(value);
            }
            _ => panic!("a ledger is gone: {reply:?}"),
        }
    }

    /// A counter was incremented.
    pub fn counter(&mut self, key: usize, command: &Command, reply: &Reply) {
        *self.counted.entry(key).or_default() += 1;
        let number = match (reply, &command.form) {
            (Reply::Silent, _) => return,
            (
                Reply::Said {
                    value: Some(value), ..
                },
                Form::Binary { .. },
            ) => value[..].try_into().ok().map(u64::from_be_bytes),
            (
                Reply::Said {
                    value: Some(text), ..
                },
                _,
            ) => parse(text),
            (Reply::Said { head, .. }, _) => parse(head),
        };
        let number = number.unwrap_or_else(|| panic!("a counter answered {reply:?}"));
        self.numbers.push((key, number));
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// Tokens are complete, none occurs twice, and each connection's are in order.
fn check_ledger(value: &[u8]) -> Vec<&[u8]> {
    assert_eq!(value.len() % TOKEN, 0, "a ledger with a part of a token");
    let tokens: Vec<&[u8]> = value.chunks(TOKEN).collect();
    let mut last: HashMap<u8, &[u8]> = HashMap::new();
    for token in &tokens {
        assert!(
            token[0] == b'<' && token[11] == b'>',
            "{:?} in a ledger",
            show(token)
        );
        let before = last.insert(token[1], token);
        assert!(
            before.is_none_or(|b| b < token),
            "{:?} behind {:?} in a ledger",
            show(token),
            before.map(show)
        );
    }
    tokens
}

/// At a round's end: a ledger has exactly the appended tokens.
pub fn settle_ledger(value: &[u8], sent: &[Vec<u8>]) {
    let mut held: Vec<&[u8]> = check_ledger(value);
    let mut sent: Vec<&[u8]> = sent.iter().map(|t| &t[..]).collect();
    held.sort_unstable();
    sent.sort_unstable();
    if held != sent {
        let lost = sent.iter().find(|t| held.binary_search(t).is_err());
        panic!(
            "a ledger holds {} tokens of {}; lost is {:?}",
            held.len(),
            sent.len(),
            lost.map(|t| show(t))
        );
    }
}

/// At a round's end: no number was returned twice.
pub fn settle_counter(numbers: &[u64], value: u64, before: u64, counted: u64) {
    assert_eq!(
        value,
        before + counted,
        "a counter that was {before} and counted {counted} times"
    );
    let different: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(
        different.len(),
        numbers.len(),
        "a counter answered a number twice"
    );
    assert!(
        numbers.iter().all(|&n| n > before && n <= value),
        "a counter answered a number out of its range"
    );
}

/// One register, from round to round.
#[derive(Debug)]
pub struct Register {
    /// Values that it may have, with the times of their writes; then deletes that may still affect
    /// it.
    writes: Vec<(u64, Span)>,
    deletes: Vec<Span>,
    /// The end of the last unexplained miss.
    lost: u64,
    pub losses: u64,
}

impl Register {
    pub fn new() -> Register {
        Register {
            writes: Vec::new(),
            deletes: vec![Span { start: 0, end: 0 }],
            lost: 0,
            losses: 0,
        }
    }

    /// Checks the observations of a round.
    pub fn settle(&mut self, events: &[(Event, Span)], lossy: bool) -> Result<(), String> {
        for &(event, span) in events {
            match event {
                Event::Write(id) => self.writes.push((id, span)),
                Event::Delete => self.deletes.push(span),
                Event::Read(_) => {}
            }
        }
        // Observed changes have happened.
        let place: HashMap<u64, usize> = self
            .writes
            .iter()
            .enumerate()
            .map(|(n, w)| (w.0, n))
            .collect();
        let mut absent = self.deletes.clone();
        for &(event, span) in events {
            match event {
                Event::Read(Some(id)) => {
                    let &n = place.get(&id).ok_or_else(|| {
                        format!("a value came back that was overwritten, or of another key: {id:x}")
                    })?;
                    let end = &mut self.writes[n].1.end;
                    *end = (*end).min(span.end);
                }
                Event::Read(None) => absent.push(span),
                _ => {}
            }
        }
        for &(event, span) in events {
            match event {
                Event::Read(Some(id)) => {
                    let (_, write) = self.writes[place[&id]];
                    if span.before(write) {
                        return Err(format!("{id:x} was read before it was written"));
                    }
                    let between = |x: Span| write.before(x) && x.before(span);
                    if let Some((newer, x)) = self.writes.iter().find(|w| between(w.1)) {
                        return Err(format!(
                            "stale: {id:x} (written {write:?}) was read {span:?}, after {newer:x} was written {x:?}"
                        ));
                    }
                    if let Some(x) = absent.iter().find(|x| between(**x)) {
                        return Err(format!(
                            "back from the dead: {id:x} (written {write:?}) was read {span:?}, after it was gone {x:?}"
                        ));
                    }
                }
                Event::Read(None) => self.miss(span, lossy)?,
                _ => {}
            }
        }
        self.forget();
        Ok(())
    }

    fn miss(&mut self, span: Span, lossy: bool) -> Result<(), String> {
        let undone = |d: Span| {
            self.writes
                .iter()
                .any(|w| d.before(w.1) && w.1.before(span))
        };
        if self.deletes.iter().any(|&d| !span.before(d) && !undone(d)) {
            return Ok(());
        }
        if !lossy {
            return Err(format!(
                "a miss {span:?} that no delete explains; written {:x?}, deleted {:?}",
                self.writes, self.deletes
            ));
        }
        // It was lost once more only if it was stored after the last observed loss.
        let lost = self.lost;
        if self
            .writes
            .iter()
            .any(|w| w.1.start > lost && w.1.before(span))
        {
            self.losses += 1;
            self.lost = span.end;
        }
        Ok(())
    }

    /// Keeps what may still be there at the end of a round: all intervals have ended.
    fn forget(&mut self) {
        let newest = self
            .writes
            .iter()
            .map(|w| w.1.start)
            .chain(self.deletes.iter().map(|d| d.start))
            .max()
            .unwrap_or(0);
        self.writes.retain(|w| w.1.end >= newest);
        self.deletes.retain(|d| d.end >= newest);
    }

    /// All keys were flushed.
    pub fn flush(&mut self, span: Span) {
        self.deletes.push(span);
    }
}
