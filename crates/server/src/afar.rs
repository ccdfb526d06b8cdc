// SPDX-License-Identifier: Apache-2.0
//! Reads of other shards' flash that a worker has under way on its own queue
//! ([`senko_cache::Shard::read_afar`] has the rules AFAR-1 and AFAR-2).
//!
//! ```text
//!  Forwarded::read_across -> begin -> at the device -> on_disk -> next_done -> Session::done -> answer
//!                                          `- 1 s -> give_up_late -^                `- or: the command is handed over
//! ```
//!
//! - AFAR-3. A get takes effect at its look-up in the parked shard (PARK-3 and PARK-4 in
//!   `parked.rs`). Flushes, deletes and stores that were answered before the get was sent come
//!   before it; whatever that shard does after the look-up comes after it. Commands of the same
//!   connection keep their order: one that changes the key waits (PIPELINE-2), and a flush waits
//!   for all.
//! - AFAR-4. A read ends at the latest [`LATE_MS`] after it began: then its command is handed over,
//!   and the shard of the key judges the device. The kernel gives the frame back only when the
//!   device answers. Until then no further read of this kind begins, so such a device gets at most
//!   the frames of that time.
//! - AFAR-5. Reads of this worker's own shard that wait for frames come first.
//!
//! The pieces of large values are read here, too, of whichever shard they are (`window.rs`). They
//! may take [`LATE_PIECE_MS`], since a value that was begun can't be asked for elsewhere.

use std::collections::VecDeque;

use senko_cache::{AfarRead, Done, Fetched, FlashRef, Key, PieceRead, Want};
use senko_io::{Completion, PageBuf, Queue};

use crate::shards::Shards;

/// The longest time at the device: the pause of a device for which other waits have patience.
const LATE_MS: u64 = 1000;
/// The same for a piece of a value.
const LATE_PIECE_MS: u64 = 10_000;
/// How often late reads are looked for.
const LOOK_MS: u64 = 100;

/// The reads of one worker.
#[derive(Debug, Default)]
pub struct Afar {
    /// By number.
    reads: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    /// Reads that ended, in order.
    ended: VecDeque<Done>,
    /// Reads that were given up, and are still at the device.
    lost: usize,
    /// When late reads are looked for again.
    next_look_ms: u64,
}

#[derive(Debug)]
enum Read {
    Record(Box<AfarRead>),
    Piece(PieceRead),
}

#[derive(Debug)]
struct UnderWay {
    read: Read,
    /// The caller's number; `None`: it was given up.
    user: Option<u64>,
    since_ms: u64,
}

impl Afar {
    /// Begins a read at a parked shard, `there`, into a frame of the queue of this worker and of
    /// its shard, `own`. `None`: the command must be handed over.
    pub(crate) fn begin<Q: Queue>(
        &self,
        queue: &mut Q,
        (own, there): (&Shards, &mut Shards),
        key: &Key<'_>,
        at: FlashRef,
        want: Want,
    ) -> Option<(AfarRead, PageBuf)> {
        let free = self.lost == 0 && !own.frames_wanted();
        free.then(|| there.read_afar(queue, key, at, want))?
    }

    /// Submits a read that began. A [`Done`] with this user number follows.
    pub(crate) fn submit<Q: Queue>(
        &mut self,
        queue: &mut Q,
        (read, frame): (AfarRead, PageBuf),
        user: u64,
        steady_ms: u64,
    ) {
        let number = self.number();
        read.submit(queue, frame, number);
        let read = Read::Record(Box::new(read));
        self.began(number, read, user, steady_ms);
    }

    /// Reads the first pages of a piece of a value, as many as this, into a frame.
    pub(crate) fn read_piece<Q: Queue>(
        &mut self,
        queue: &mut Q,
        (piece, pages, frame): (PieceRead, usize, PageBuf),
        user: u64,
        steady_ms: u64,
    ) {
        let number = self.number();
        AfarRead::submit_piece(&piece, queue, (pages, frame), number);
        self.began(number, Read::Piece(piece), user, steady_ms);
    }

    /// Whether the read with this number is one of a piece.
    pub fn is_piece(&self, number: u32) -> bool {
        let read = self.reads.get(number as usize).and_then(Option::as_ref);
        read.is_some_and(|read| matches!(read.read, Read::Piece(_)))
    }

    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() as u32 - 1
        })
    }

    fn began(&mut self, number: u32, read: Read, user: u64, since_ms: u64) {
        self.reads[number as usize] = Some(UnderWay {
            read,
            user: Some(user),
            since_ms,
        });
    }

    /// Takes a completion of the queue: of such a read, or of this worker's own shard.
    pub fn on_disk<Q: Queue>(&mut self, own: &mut Shards, queue: &mut Q, completion: Completion) {
        let Some(number) = AfarRead::number(&completion) else {
            return own.on_disk(queue, completion);
        };
        let Some(ended) = self.reads[number as usize].take() else {
            debug_assert!(false, "a read ends once");
            return;
        };
        self.free.push(number);
        let frame = completion.buf.filter(|_| completion.result.is_ok());
        let fetched = match (ended.user, ended.read, frame) {
            (Some(_), Read::Record(read), Some(frame)) => own.check_afar(*read, frame),
            (Some(_), Read::Piece(piece), frame) => {
                let range = frame.as_ref().and_then(|frame| piece.check(frame));
                match (frame, range) {
                    (Some(frame), Some(range)) => Fetched::Piece(frame, range),
                    (frame, _) => {
                        own.count_broken(frame.is_some());
                        Fetched::Changed
                    }
                }
            }
            _ => Fetched::Changed,
        };
        if matches!(fetched, Fetched::Changed | Fetched::Header(..)) {
            // Its frame is free.
            own.frames_freed(queue);
        }
        match ended.user {
            Some(user) => self.ended.push_back(Done { user, fetched }),
            None => self.lost -= 1,
        }
    }

    /// The next read that ended, of either kind. [`Fetched::Changed`] for a read of another shard:
    /// the command must be handed over.
    pub fn next_done<Q: Queue>(&mut self, own: &mut Shards, queue: &mut Q) -> Option<Done> {
        (self.ended.pop_front()).or_else(|| own.next_done(queue))
    }

    /// AFAR-4: gives up reads that are late; then the shard's work that is due.
    pub fn tick<Q: Queue>(&mut self, own: &mut Shards, queue: &mut Q) {
        let now_ms = own.steady_ms();
        if now_ms >= self.next_look_ms {
            self.next_look_ms = now_ms + LOOK_MS;
            self.give_up_late(now_ms);
        }
        own.set_frames_lost(self.lost > 0);
        own.tick(queue);
    }

    fn give_up_late(&mut self, now_ms: u64) {
        for read in self.reads.iter_mut().flatten() {
            let late = match read.read {
                Read::Record(_) => LATE_MS,
                Read::Piece(_) => LATE_PIECE_MS,
            };
            if now_ms.saturating_sub(read.since_ms) > late
                && let Some(user) = read.user.take()
            {
                self.lost += 1;
                let fetched = Fetched::Changed;
                self.ended.push_back(Done { user, fetched });
            }
        }
    }
}
