// SPDX-License-Identifier: Apache-2.0
//! One connection: sends a batch in bursts and pieces, reads the replies at the same time, and
//! checks them.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use senko_workload::Rng;

use super::keys::Use;
use super::own::{Context, Flushed, OwnKey};
use super::shared::Span;
use super::view::View;
use super::wire::{self, Act, Command, Reader, Reply};
use super::{Flush, Round, World};
use crate::serve::client::PATIENCE;

/// One connection and its keys.
pub struct Peer {
    pub view: View,
    stream: TcpStream,
    reader: Reader,
    rng: Rng,
    pub commands: usize,
    /// A copy of the world's, and its version.
    flushes: (usize, Vec<Flush>),
    /// The last commands for each own key, with their replies.
    said: HashMap<usize, VecDeque<String>>,
    /// Events of silent commands wait for the next reply's time.
    pub silent: usize,
}

/// Closes the socket when its thread panics, so that the sending thread ends too.
struct CloseOnPanic<'a>(&'a TcpStream);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }
}

/// A part of a batch that is sent without a pause.
struct Burst {
    bytes: std::ops::Range<usize>,
    /// Pieces are up to two to the power of this long.
    scale: u64,
    flushes: bool,
    sent: AtomicU64,
}

impl Peer {
    pub fn new(world: &World, number: usize, port: u16) -> Peer {
        let stream = connect(port);
        let reader = Reader::new(stream.try_clone().unwrap());
        let seed =
            world.run_settings.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (number as u64 + 1) << 32;
        Peer {
            view: View::new(number, number % 3 == 2, &world.layout),
            stream,
            reader,
            rng: Rng::new(seed | 1),
            commands: 0,
            flushes: (0, Vec::new()),
            said: HashMap::new(),
            silent: 0,
        }
    }

    /// A batch: commands, each with the number of its burst; the bursts; all bytes.
    fn batch(
        &mut self,
        world: &World,
        round: Round,
    ) -> (Vec<(Command, usize)>, Vec<Burst>, Vec<u8>) {
        let count = match self.rng.below(10) {
            _ if round.fill => world.layout.own as u64,
            0..3 => 1 + self.rng.below(10),
            3..7 => 10 + self.rng.below(90),
            _ => 100 + self.rng.below(700),
        };
        let flush_at = (round.flusher == Some(self.view.number)).then(|| self.rng.below(count));
        let (mut list, mut bursts, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut left, mut from, mut first) = (0, 0, 0);
        let keys = (world.layout, &world.names[..]);
        let mut maker = (self.view).maker(&mut self.rng, keys, round.now, round.joint);
        for n in 0..=count {
            if left == 0 {
                let most = if maker.rng.chance(30) { 300 } else { 20 };
                left = 1 + maker.rng.below(most);
                if n > 0 {
                    let flushes = flush_at.is_some_and(|at| (first as u64..n).contains(&at));
                    bursts.push(burst(from..bytes.len(), flushes, maker.rng));
                    (from, first) = (bytes.len(), list.len());
                }
            }
            left -= 1;
            let command = if n == count {
                maker.mark(&mut bytes)
            } else if flush_at == Some(n) {
                maker.flush(&mut bytes)
            } else if round.fill {
                maker.fill(&mut bytes, n as usize)
            } else {
                maker.command(&mut bytes)
            };
            list.push((command, bursts.len()));
        }
        let flushes = flush_at.is_some_and(|at| at >= first as u64);
        bursts.push(burst(from..bytes.len(), flushes, maker.rng));
        self.commands += list.len();
        (list, bursts, bytes)
    }

    pub fn round(&mut self, world: &World, round: Round, port: u16) {
        for own in &mut self.view.own {
            // All silent commands have ended long ago.
            own.last.1 = own.last.1.min(round.began);
        }
        if self.rng.chance(3) {
            self.stream = connect(port);
            self.reader = Reader::new(self.stream.try_clone().unwrap());
        }
        let (list, bursts, bytes) = self.batch(world, round);
        let mut sender = self.stream.try_clone().unwrap();
        let closer = self.stream.try_clone().unwrap();
        let mut pieces = Rng::new(self.rng.next_u64() | 1);
        let (slow, number) = (self.rng.chance(10), self.view.number);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for burst in &bursts {
                    let mut rest = &bytes[burst.bytes.clone()];
                    let start = world.time.fetch_add(1, Ordering::SeqCst);
                    burst.sent.store(start, Ordering::SeqCst);
                    if burst.flushes {
                        world.announce(start, number);
                    }
                    while !rest.is_empty() {
                        let piece = (1 + pieces.below(1 << burst.scale)).min(rest.len() as u64);
                        let (now, later) = rest.split_at(piece as usize);
                        if sender.write_all(now).is_err() {
                            return; // the reading side reports it
                        }
                        rest = later;
                    }
                }
            });
            let _guard = CloseOnPanic(&closer);
            for (n, (command, burst)) in list.iter().enumerate() {
                if slow && n % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let replies = self.reader.replies(command, &world.names, &world.time);
                let start = bursts[*burst].sent.load(Ordering::SeqCst);
                self.take(world, round, command, &replies, start);
            }
        });
    }

    /// Checks the replies of a command that was sent no earlier than `start`.
    fn take(
        &mut self,
        world: &World,
        round: Round,
        command: &Command,
        replies: &[Reply],
        start: u64,
    ) {
        // The end of a silent command is not known yet.
        let silent = matches!(replies[0], Reply::Silent);
        let end = if silent { u64::MAX } else { self.reader.came };
        let span = Span { start, end };
        if !silent {
            // A connection that got this reply knows that earlier commands are done.
            for (_, _, earlier) in &mut self.view.seen.events[self.silent..] {
                earlier.end = span.end;
            }
        }
        for ((key, act), reply) in command.parts.iter().zip(replies) {
            match act {
                Act::Mark | Act::Flush => self.keyless(world, act, reply, span),
                _ => self.keyed(world, round, command, *key, act, reply, span),
            }
        }
        if !silent {
            self.silent = self.view.seen.events.len();
        }
    }

    fn keyless(&mut self, world: &World, act: &Act, reply: &Reply, span: Span) {
        let wanted: &[u8] = match (act, self.view.binary) {
            (_, true) => &[0, 0],
            (Act::Flush, _) => b"OK",
            _ => b"MN",
        };
        let Reply::Said { head, .. } = reply else {
            panic!("no reply to {act:?}")
        };
        assert_eq!(head, wanted, "connection {}", self.view.number);
        if matches!(act, Act::Flush) {
            let mut flushes = world.flushes.lock().unwrap();
            let open = flushes
                .iter_mut()
                .find(|f| f.by == self.view.number && f.span.end == u64::MAX);
            open.expect("the flush was announced").span.end = span.end;
            world.flush_version.fetch_add(1, Ordering::SeqCst);
            self.view.own.iter_mut().for_each(OwnKey::flush);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn keyed(
        &mut self,
        world: &World,
        round: Round,
        command: &Command,
        key: usize,
        act: &Act,
        reply: &Reply,
        span: Span,
    ) {
        let told = format!(
            "round {} connection {} now {} {span:?}: {} {:?}\n   {}",
            round.number,
            self.view.number,
            round.now,
            wire::short(act),
            command.form,
            wire::head_of(reply)
        );
        if world.trace == Some(key) {
            eprintln!("{told}");
        }
        let said = self.said.entry(key).or_default();
        said.truncate(7);
        said.push_front(told);
        let flushed = match world.layout.what(key) {
            Use::Own => self.flushed(world, key - self.view.number * world.layout.own, span),
            _ => Flushed::No,
        };
        let at = Context {
            command,
            key: &world.names[key],
            now: round.now,
            lossy: world.run_settings.lossy,
        };
        let found = (span, flushed);
        if let Err(why) = (self.view).check(&world.layout, &at, (key, act), reply, found) {
            panic!(
                "{:?} round {} connection {} now {}: key {:?}: {} {:?}\n {why}\n{}",
                world.run_settings,
                round.number,
                self.view.number,
                round.now,
                wire::show(at.key),
                wire::short(act),
                command.form,
                self.said[&key]
                    .iter()
                    .rev()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("\n"),
            );
        }
    }

    /// Whether another connection's flush came between the last command for a key and this one.
    fn flushed(&mut self, world: &World, own: usize, span: Span) -> Flushed {
        let version = world.flush_version.load(Ordering::SeqCst);
        if version != self.flushes.0 {
            self.flushes = (version, world.flushes.lock().unwrap().clone());
        }
        let (last_start, last_end) = self.view.own[own].last;
        let mut flushed = Flushed::No;
        for flush in self.flushes.1.iter().filter(|f| f.by != self.view.number) {
            let f = flush.span;
            if f.start > last_end && f.end < span.start {
                return Flushed::Surely;
            }
            if f.start < span.end && f.end > last_start {
                flushed = Flushed::Perhaps;
            }
        }
        flushed
    }
}

fn burst(bytes: std::ops::Range<usize>, flushes: bool, rng: &mut Rng) -> Burst {
    // Pieces of a few bytes only if there are not too many of them.
    let least = (bytes.len() / 200).max(1).ilog2() as u64;
    Burst {
        bytes,
        scale: (least + rng.below(17)).clamp(1, 20),
        flushes,
        sent: AtomicU64::new(u64::MAX),
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}
