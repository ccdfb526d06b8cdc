// SPDX-License-Identifier: Apache-2.0
//! Replays a trace through one cache shard over a device in memory: counts the hits and the bytes
//! of the pages that the shard gives out.
//!
//! The shard is the server's own; there is no network and no time. A look-up that misses stores its
//! object, unless the trace has a set for that; sets and deletes are done as the trace says. The
//! device ends every operation before the next request, so the same trace gives the same counts.
//!
//! A replay begins empty. Pages count when they are given out, although the newest are still in
//! write buffers at the end. What is only in DRAM then does not count.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use senko_cache::{
    Admission, AdmissionRule, AllocError, DeviceSlice, Fetch, Fetched, HashSeed, Key, Lookup,
    PolicyKind, Shard, ShardConfig, Want,
};
use senko_io::{AlignedBuf, Completion, DeviceId, FramePool, Op, PAGE_SIZE, PageBuf, Queue, Tag};

use senko_plan::requests::{Act, Requests};
use senko_ssd::Request;

use crate::experiments::endurance_loads::request;

/// The largest value; the rest of a larger object is cut off.
pub const LARGEST_VALUE: u64 = 64 << 10;
/// The values of a trace without sizes: its objects have about this many bytes in total, ...
const PLAIN_FOOTPRINT: u64 = 64 << 20;
/// ... but sizes stay between these bounds. Otherwise a trace with few objects would fit into DRAM.
const PLAIN_VALUES: (u64, u64) = (1000, 16 << 10);
const TICK: usize = 64;

/// The rule for admission to flash and for reinsertion.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub rule: AdmissionRule,
    /// Whether items that were hit are written again when their region is reclaimed.
    pub reinsert: bool,
}

impl Rules {
    const fn of(name: &'static str, rule: AdmissionRule, reinsert: bool) -> Rules {
        Rules {
            name,
            rule,
            reinsert,
        }
    }
}

/// The settings that are compared.
pub const RULES: [Rules; 6] = [
    Rules::of("all", AdmissionRule::All, true),
    Rules::of("all_fifo", AdmissionRule::All, false),
    Rules::of("fetched", AdmissionRule::Fetched, true),
    Rules::of("fetched_fifo", AdmissionRule::Fetched, false),
    Rules::of("random50", AdmissionRule::Random(50), true),
    Rules::of("random50_fifo", AdmissionRule::Random(50), false),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    /// Of these, found.
    pub hits: u64,
    /// Of these, on flash.
    pub flash_hits: u64,
    /// Bytes of pages for the device.
    pub written: u64,
}

pub struct Sizes<'a> {
    own: Option<&'a [u64]>,
    plain: u64,
}

impl<'a> Sizes<'a> {
    pub fn new(requests: &'a Requests) -> Sizes<'a> {
        let objects = requests.footprint_objects().max(1) as u64;
        Sizes {
            own: requests.sizes.as_deref(),
            plain: (PLAIN_FOOTPRINT / objects).clamp(PLAIN_VALUES.0, PLAIN_VALUES.1),
        }
    }

    pub fn of(&self, object: u32) -> u64 {
        self.own.map_or(self.plain, |sizes| {
            sizes[object as usize].min(LARGEST_VALUE)
        })
    }
}

pub fn key_of(object: u32) -> String {
    format!("{object:x}")
}

/// A device in memory that ends operations in order, when it is told to.
struct Memory {
    pages: Vec<u8>,
    frames: FramePool,
    ended: VecDeque<Completion>,
    writes: Vec<Request>,
}

impl Queue for Memory {
    fn frame(&mut self, pages: usize) -> Option<PageBuf> {
        self.frames.take(pages)
    }

    fn read(&mut self, _: DeviceId, page: u64, pages: usize, mut buf: PageBuf, _: Tag, token: u64) {
        let (at, bytes) = (page as usize * PAGE_SIZE, pages * PAGE_SIZE);
        buf[..bytes].copy_from_slice(&self.pages[at..at + bytes]);
        self.end(Op::Read, token, Some(buf));
    }

    fn write(
        &mut self,
        _: DeviceId,
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        _: Tag,
        token: u64,
    ) {
        let (at, from, bytes) = (
            page as usize * PAGE_SIZE,
            first * PAGE_SIZE,
            pages * PAGE_SIZE,
        );
        self.pages[at..at + bytes].copy_from_slice(&buf[from..from + bytes]);
        drop(buf);
        let written = request(senko_ssd::Op::Write, at as u64, bytes as u64);
        self.writes.push(written);
        self.end(Op::Write, token, None);
    }

    fn flush(&mut self, _: DeviceId, _: Tag, token: u64) {
        self.end(Op::Flush, token, None);
    }

    fn discard(&mut self, _: DeviceId, _: u64, _: u64, _: Tag, token: u64) {
        self.end(Op::Discard, token, None);
    }
}

impl Memory {
    fn end(&mut self, op: Op, token: u64, buf: Option<PageBuf>) {
        self.ended.push_back(Completion {
            token,
            op,
            result: Ok(()),
            buf,
        });
    }
}

pub struct Replay {
    shard: Shard,
    queue: Memory,
    value: Vec<u8>,
    counts: Counts,
}

impl Replay {
    /// An empty cache with `memory` bytes of DRAM and `flash` bytes of flash; S3-FIFO orders DRAM.
    pub fn new(memory: usize, flash: u64, rules: Rules, seed: u64) -> Result<Replay> {
        Replay::with(PolicyKind::S3Fifo, (memory, flash), rules, seed)
    }

    /// The same with another order of DRAM. Without flash, there is only DRAM.
    pub fn with(
        policy: PolicyKind,
        (memory, flash): (usize, u64),
        rules: Rules,
        seed: u64,
    ) -> Result<Replay> {
        let pages = flash / PAGE_SIZE as u64;
        // As the server chooses it: a sixteenth of memory and of flash.
        let region = (memory as u64 / 16).min(flash / 16).max(1).ilog2();
        let mut shard = Shard::new(ShardConfig {
            memory,
            max_item: LARGEST_VALUE as usize + 1024,
            flash: (pages > 0)
                .then_some(DeviceSlice {
                    device: 0,
                    first_page: 0,
                    pages,
                })
                .into_iter()
                .collect(),
            region: (1_usize << region).clamp(64 << 10, 16 << 20),
            policy,
            admission: Admission {
                rule: rules.rule,
                budget: None,
            },
            promote_after: 2,
            sort_small: false,
            upload_over: usize::MAX,
            upload_bytes: 0,
            reinsert: rules.reinsert,
            no_evict: false,
            shard: 0,
            shards: 1,
            seed,
            hash_seed: HashSeed::default(),
        })?;
        shard.set_now(1_700_000_000_000);
        Ok(Replay {
            shard,
            queue: Memory {
                pages: vec![0; pages as usize * PAGE_SIZE],
                frames: FramePool::new(&[(1, 24), (4, 6), (senko_cache::FRAME_PAGES, 4)]),
                ended: VecDeque::new(),
                writes: Vec::new(),
            },
            value: vec![b'v'; LARGEST_VALUE as usize],
            counts: Counts::default(),
        })
    }

    /// Replays all requests and returns the counts.
    pub fn run(mut self, requests: &Requests) -> Result<Counts> {
        self.replay(requests)?;
        Ok(self.counts())
    }

    /// Replays all requests, after earlier ones.
    pub fn replay(&mut self, requests: &Requests) -> Result<()> {
        let sizes = Sizes::new(requests);
        for (number, &object) in requests.objects.iter().enumerate() {
            let size = sizes.of(object) as usize;
            self.request(object, size, requests.act(number))?;
            if number % TICK == 0 {
                self.shard.tick(&mut self.queue);
                self.settle();
            }
        }
        Ok(())
    }

    pub fn counts(&self) -> Counts {
        let stats = self.shard.stats();
        Counts {
            flash_hits: stats.flash_hits,
            written: stats.page_fill_page_bytes,
            ..self.counts
        }
    }

    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The writes that the device got, in order.
    pub fn writes(&self) -> &[Request] {
        &self.queue.writes
    }

    fn request(&mut self, object: u32, size: usize, act: Act) -> Result<()> {
        let text = key_of(object);
        let key = Key::new(text.as_bytes(), HashSeed::default());
        match act {
            Act::Set => return self.store(&key, size),
            Act::Delete => return self.delete(&key),
            Act::Get | Act::GetThenSet => {}
        }
        self.counts.requests += 1;
        if self.look(&key)? {
            self.counts.hits += 1;
        } else if act == Act::Get {
            self.store(&key, size)?;
        }
        Ok(())
    }

    fn delete(&mut self, key: &Key<'_>) -> Result<()> {
        for _ in 0..8 {
            let at = match self.shard.lookup(key) {
                Lookup::Dram(item) => {
                    self.shard.unlink(item);
                    return Ok(());
                }
                Lookup::Miss => return Ok(()),
                Lookup::Flash(at) => at,
            };
            let fetched = match self.shard.fetch(&mut self.queue, key, at, Want::Header, 0) {
                Fetch::Now(fetched) => fetched,
                Fetch::Queued => self.wait()?,
            };
            if let Fetched::Header(_, at) = fetched {
                self.shard.remove_flash(key, at);
            }
            self.shard.frames_freed(&mut self.queue);
        }
        bail!("a deleted object is still there")
    }

    fn look(&mut self, key: &Key<'_>) -> Result<bool> {
        // A fetch that met a change is run again. Nothing changes between two requests, so a few
        // tries suffice.
        for _ in 0..8 {
            let at = match self.shard.lookup(key) {
                Lookup::Dram(item) => {
                    self.shard.hit(item);
                    return Ok(true);
                }
                Lookup::Miss => return Ok(false),
                Lookup::Flash(at) => at,
            };
            let fetched = match self.shard.fetch(&mut self.queue, key, at, Want::Answer, 0) {
                Fetch::Now(fetched) => fetched,
                Fetch::Queued => self.wait()?,
            };
            match fetched {
                Fetched::Answer(_) | Fetched::Resident(_) => {
                    drop(fetched);
                    self.shard.frames_freed(&mut self.queue);
                    return Ok(true);
                }
                Fetched::Absent | Fetched::OutOfMemory => return Ok(false),
                Fetched::Changed => {}
                Fetched::Header(..) | Fetched::Listed(_) | Fetched::Piece(..) => {
                    bail!("a fetch of an answer ended in something else")
                }
            }
        }
        Ok(false)
    }

    /// The end of the one fetch under way.
    fn wait(&mut self) -> Result<Fetched> {
        for _ in 0..1_000_000 {
            if let Some(done) = self.shard.next_done(&mut self.queue) {
                return Ok(done.fetched);
            }
            match self.queue.ended.pop_front() {
                Some(completion) => self.shard.on_disk(&mut self.queue, completion),
                None => self.shard.tick(&mut self.queue),
            }
        }
        Err(anyhow!("a read never ends"))
    }

    fn store(&mut self, key: &Key<'_>, size: usize) -> Result<()> {
        for _ in 0..1_000_000 {
            match self.shard.alloc(&mut self.queue, key, 0, 0, size) {
                Ok(mut draft) => {
                    self.shard
                        .fill(&mut self.queue, &mut draft, &self.value[..size]);
                    self.shard.link(draft, None);
                    self.settle();
                    return Ok(());
                }
                Err(AllocError::Busy) => match self.queue.ended.pop_front() {
                    Some(completion) => self.shard.on_disk(&mut self.queue, completion),
                    None => self.shard.tick(&mut self.queue),
                },
                Err(error) => bail!("an object cannot be stored: {error}"),
            }
        }
        Err(anyhow!("the flash tier never takes an item"))
    }

    fn settle(&mut self) {
        while let Some(completion) = self.queue.ended.pop_front() {
            self.shard.on_disk(&mut self.queue, completion);
        }
    }
}
