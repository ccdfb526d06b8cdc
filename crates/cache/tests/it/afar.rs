// SPDX-License-Identifier: Apache-2.0
//! Reads of a shard's flash that another worker submits (AFAR-1 and AFAR-2): an answer is the value
//! of the look-up, however late the read, and whatever the shard did meanwhile.

use std::collections::HashMap;

use senko_cache::{AfarRead, Fetched, HashSeed, Key, Lookup, PACKED_VALUE, Shard, Want};
use senko_io::{Completion, PageBuf};
use senko_workload::Rng;

use crate::model::{Entry, FRAMES, Run, answer, config, key_of, seeds};
use crate::queue::MemoryQueue;
use crate::stream::whole_of;

/// The asking worker, and its reads.
struct Asker {
    shard: Shard,
    /// It has the frames; the run's queue has the device.
    frames: MemoryQueue,
    rng: Rng,
    /// Reads that began and are not submitted yet: late ones.
    held: Vec<(Began, AfarRead, PageBuf)>,
    reads: HashMap<u32, (Began, AfarRead)>,
    next: u32,
    answered: u64,
    pieces: u64,
    headers: u64,
    changed: u64,
}

/// The key of a read, and its value at the look-up.
type Began = (u64, Want, Entry);

impl Asker {
    fn new(seed: u64) -> Asker {
        Asker {
            shard: Shard::new(config(4 << 20, 0)).expect("a shard"),
            frames: MemoryQueue::new(1, &FRAMES, seed),
            rng: Rng::new(seed),
            held: Vec::new(),
            reads: HashMap::new(),
            next: 0,
            answered: 0,
            pieces: 0,
            headers: 0,
            changed: 0,
        }
    }

    fn begin(&mut self, run: &mut Run) {
        let n = self.rng.below(run.keys);
        let (bytes, want) = (key_of(n), WANTS[self.rng.below(3) as usize]);
        let key = Key::new(&bytes, HashSeed::default());
        let Lookup::Flash(at) = run.shard.lookup(&key) else {
            return;
        };
        // A key that the model has lost is about to be missed.
        let Some(entry) = run.live(n).cloned() else {
            return;
        };
        if let Some((read, frame)) = run.shard.read_afar(&mut self.frames, &key, at, want) {
            self.held.push(((n, want, entry), read, frame));
        }
    }

    /// Submits one of the reads that began.
    fn submit(&mut self, run: &mut Run) {
        if self.held.is_empty() {
            return;
        }
        let some = self.rng.below(self.held.len() as u64) as usize;
        let (began, read, frame) = self.held.swap_remove(some);
        read.submit(&mut run.queue, frame, self.next);
        self.reads.insert(self.next, (began, read));
        self.next += 1;
    }

    /// Checks the reads that ended.
    fn take_ended(&mut self, run: &mut Run) {
        for ended in std::mem::take(&mut run.afar) {
            self.ended(run, ended);
        }
    }

    fn ended(&mut self, run: &mut Run, ended: Completion) {
        let number = AfarRead::number(&ended).expect("such a read");
        let ((n, want, entry), read) = self.reads.remove(&number).expect("a read ends once");
        let (Ok(()), Some(frame)) = (ended.result, ended.buf) else {
            return;
        };
        self.shard.set_now(run.now_ms);
        match self.shard.check_afar(read, frame) {
            Fetched::Answer(item) => {
                self.answered += 1;
                self.pieces += u64::from(item.rest.is_some());
                let Some((item, buf)) = whole_of(None, &mut run.queue, item) else {
                    return;
                };
                let (value, flags) = (buf[item.value.clone()].to_vec(), item.meta.flags);
                assert!(
                    (&value, flags) == (&entry.value, entry.flags),
                    "seed {}: key {n}: a wrong answer",
                    run.seed
                );
                assert_eq!(item.answer.is_some(), value.len() > PACKED_VALUE as usize);
                if let Some(whole) = item.answer {
                    assert_eq!(buf[whole], answer(n, &value, flags));
                }
            }
            Fetched::Header(meta, _) => {
                assert_eq!(want, Want::Header);
                let got = (meta.value_len as usize, meta.flags, meta.expiry);
                assert_eq!(got, (entry.value.len(), entry.flags, entry.expiry));
                self.headers += 1;
            }
            Fetched::Changed => self.changed += 1,
            other => panic!("{other:?}"),
        }
    }
}

const WANTS: [Want; 3] = [Want::Answer, Want::Peek, Want::Header];

/// Flash is so small that regions are written again while reads wait, at every pace. Items are
/// replaced, deleted and flushed all the time, and some device operations fail.
#[test]
fn a_late_read_answers_the_value_of_its_look_up_or_nothing() {
    let (mut answered, mut pieces, mut headers, mut changed) = (0, 0, 0, 0);
    for seed in seeds(1, 6) {
        let big = [40_000, 150_000][seed as usize % 2];
        let mut run = Run::new(config(3 << 20, 2048), 3000, big, seed);
        run.one_size = [None, Some(1000), Some(2100)][seed as usize / 2 % 3];
        run.queue.fail_one_in = if seed % 3 == 0 { 300 } else { 0 };
        let mut asker = Asker::new(seed);
        for _ in 0..30_000 {
            run.step();
            asker.take_ended(&mut run);
            let most = [0, 4, 20][(seed % 3) as usize];
            match asker.rng.below(4) {
                0..2 => asker.begin(&mut run),
                _ if asker.held.len() > most => asker.submit(&mut run),
                _ => {}
            }
        }
        assert!(asker.shard.stats().flash_hits == asker.answered);
        answered += asker.answered;
        pieces += asker.pieces;
        headers += asker.headers;
        changed += asker.changed;
    }
    println!("{answered} answers, {pieces} in pieces, {headers} headers, {changed} in vain");
    assert!(answered > 1000 && pieces > 20 && headers > 1000 && changed > 10);
}
