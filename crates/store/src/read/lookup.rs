// SPDX-License-Identifier: Apache-2.0
//! A look-up as a state machine: it says which pages it must see, and is given them.
//!
//! ```text
//!            +-----------> Read(pages) --supply--+
//!            |                                   |
//! start -> logs -> record kept in DRAM? -> generations, youngest first -+-> Done(element or nothing)
//! ```
//!
//! It does no I/O. So a driver that waits for each read (`read.rs`) and a driver with many reads
//! under way can both use it. If a log still has the element in memory, or the cache of records has
//! it ([`crate::cache::record_cache`]), the look-up answers at once. A found element ends the
//! search where nothing that is left can be later (VERSION-4).

use std::sync::Arc;

use crate::block::PageRun;
use crate::cache::hit::Hit;
use crate::cache::record_cache::{FillTicket, RecordCache, TimeBound};
use crate::core::version::{BlockHandle, LogHandle, Version};
use crate::index::{BlockMap, Candidates};
use crate::log::{LogFind, LogRead};
use crate::{KeyHash, StoreError};

/// The limits and the resources of a look-up.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'c> {
    /// Only versions of this time or earlier count.
    pub at: u64,
    /// As in [`crate::Options`].
    pub keep_versions: u32,
    /// Where records may be found without a read.
    pub cache: Option<&'c RecordCache>,
    /// From before the version was loaded, to keep what is found; none where what is found may not
    /// be the newest.
    pub ticket: Option<FillTicket>,
}

/// What comes next.
pub(crate) enum Step {
    /// Read these and [`Lookup::supply`] them.
    Read(PageRun),
    /// The newest version that is not later than asked for, a tombstone or expired one included; or
    /// nothing.
    Done(Option<Hit>),
}

/// The owner of the requested pages.
enum Waiting {
    /// Boxed: it is large and rare.
    Log(Arc<LogHandle>, Box<LogRead>),
    Block(Arc<BlockHandle>, PageRun),
}

/// One look-up in one version.
pub(crate) struct Lookup<'c> {
    hash: KeyHash,
    terms: Terms<'c>,
    /// The cache was asked for the keys that the logs do not have.
    asked_cache: bool,
    best: Option<Hit>,
    waiting: Option<Waiting>,
    log: usize,
    generation: usize,
    /// Of the current generation: the next version's number, and candidates not yet looked at.
    nth: u32,
    candidates: Candidates,
    next_candidate: usize,
}

impl<'c> Lookup<'c> {
    pub fn new(hash: KeyHash, terms: Terms<'c>) -> Lookup<'c> {
        Lookup {
            hash,
            terms,
            asked_cache: terms.cache.is_none(),
            best: None,
            waiting: None,
            log: 0,
            generation: 0,
            nth: 0,
            candidates: Candidates::default(),
            next_candidate: 0,
        }
    }

    /// Goes on until pages are needed or the answer is known.
    pub fn advance(&mut self, version: &Version, key: &[u8]) -> Result<Step, StoreError> {
        debug_assert!(self.waiting.is_none(), "the pages asked for come first");
        while let Some(handle) = version.logs.get(self.log) {
            self.log += 1;
            match handle.log.lookup(self.hash, key, self.terms.at)? {
                LogFind::Absent => {}
                // Whatever lies in older logs and in blocks is older than everything in this log.
                LogFind::Found(found) => return Ok(Step::Done(Some(found.into()))),
                LogFind::Read(read) => {
                    let kept = self.kept(key, TimeBound::Exactly(read.time()));
                    if kept.is_some() {
                        return Ok(Step::Done(kept));
                    }
                    return Ok(self.wait_for_log(Arc::clone(handle), read));
                }
            }
        }
        if !self.asked_cache {
            self.asked_cache = true;
            let kept = self.kept(key, TimeBound::UpTo(self.terms.at));
            if kept.is_some() {
                return Ok(Step::Done(kept));
            }
        }
        let shard = &version.shards[self.hash.shard()];
        loop {
            let Some(entry) = shard.generations.get(self.generation) else {
                return Ok(self.end(key));
            };
            let best_time = self.best.as_ref().map(|found| found.time);
            if best_time.is_some_and(|time| time >= entry.generation.max_time) {
                return Ok(self.end(key));
            }
            if self.next_candidate == self.candidates.len() && !self.refill(entry) {
                continue;
            }
            let ordinal = self.candidates[self.next_candidate];
            self.next_candidate += 1;
            let member = entry.generation.members.get(ordinal as usize);
            let Some(handle) = member.and_then(|&member| version.block(member)) else {
                continue;
            };
            let record = handle.block.record();
            if record.min_time > self.terms.at
                || best_time.is_some_and(|time| time >= record.max_time)
            {
                continue;
            }
            let run = handle.block.find(self.hash);
            if run.is_empty() {
                continue;
            }
            self.waiting = Some(Waiting::Block(Arc::clone(handle), run));
            return Ok(Step::Read(run));
        }
    }

    fn wait_for_log(&mut self, handle: Arc<LogHandle>, read: LogRead) -> Step {
        let (page, pages) = (read.page(), read.pages());
        self.waiting = Some(Waiting::Log(handle, Box::new(read)));
        Step::Read(PageRun { page, pages })
    }

    /// The cache's answer for the key.
    fn kept(&self, key: &[u8], want: TimeBound) -> Option<Hit> {
        self.terms.cache?.get(self.hash, key, want)
    }

    /// Offers the cache what had to be read.
    fn offer(&self, key: &[u8], found: &Hit) {
        if let (Some(cache), Some(ticket)) = (self.terms.cache, self.terms.ticket) {
            cache.offer(ticket, self.hash, key, found);
        }
    }

    /// The answer when all blocks were asked.
    fn end(&mut self, key: &[u8]) -> Step {
        let best = self.best.take();
        if let Some(found) = &best {
            self.offer(key, found);
        }
        Step::Done(best)
    }

    /// Asks the map for the next candidates of this generation; without any, continues to the next
    /// generation.
    fn refill(&mut self, entry: &crate::core::version::ShardGeneration) -> bool {
        self.candidates.clear();
        self.next_candidate = 0;
        let asked = if entry.map.exact_for_members() {
            // One block a question; older versions of the key have their own questions.
            self.nth < self.terms.keep_versions
        } else {
            self.nth == 0
        };
        if asked && entry.generation.min_time <= self.terms.at {
            entry
                .map
                .candidates(self.hash.nth(self.nth), &mut self.candidates);
            self.nth += 1;
        }
        if self.candidates.is_empty() {
            self.next_generation();
            return false;
        }
        true
    }

    fn next_generation(&mut self) {
        self.generation += 1;
        self.nth = 0;
        self.candidates.clear();
        self.next_candidate = 0;
    }

    /// Takes the pages that [`Lookup::advance`] asked for.
    pub fn supply(&mut self, key: &[u8], bytes: &[u8]) -> Result<Option<Step>, StoreError> {
        match self.waiting.take() {
            None => Ok(None),
            Some(Waiting::Log(handle, read)) => match read.finish(&handle.log, key, bytes)? {
                LogFind::Absent => Ok(None),
                LogFind::Found(found) => {
                    let found = Hit::from(found);
                    self.offer(key, &found);
                    Ok(Some(Step::Done(Some(found))))
                }
                LogFind::Read(read) => Ok(Some(self.wait_for_log(handle, read))),
            },
            Some(Waiting::Block(handle, run)) => {
                let found = self.search(&handle, run, key, bytes)?;
                let (present, exact) = (found.present, found.exact);
                if let Some(hit) = found.hit
                    && self.best.as_ref().is_none_or(|best| best.time < hit.time)
                {
                    self.best = Some(hit);
                }
                // The key's blocks come in the order of their youngest versions. The first one that
                // is not too young has the wanted version. A block without the key means that the
                // generation does not know it. Where candidates are only likely, all are looked at.
                let one_at_a_time = self.candidates.len() == 1;
                if one_at_a_time && (exact || !present) {
                    self.next_generation();
                }
                Ok(None)
            }
        }
    }

    /// Looks the key up in the pages of a block.
    fn search(
        &self,
        handle: &BlockHandle,
        run: PageRun,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<Searched, StoreError> {
        let block = &handle.block;
        if self.terms.at >= block.record().max_time {
            let found = block.search(run, bytes, self.hash, key, self.terms.at)?;
            return Ok(Searched {
                present: found.is_some(),
                exact: found.is_some(),
                hit: found.map(Hit::from),
            });
        }
        let mut versions = block.versions(run, bytes, self.hash, key)?;
        let nth = versions
            .iter()
            .position(|found| found.time <= self.terms.at);
        Ok(Searched {
            present: !versions.is_empty(),
            exact: nth == Some(0),
            hit: nth.map(|nth| versions.swap_remove(nth).into()),
        })
    }
}

/// The answer of a block's pages about a key.
struct Searched {
    /// The key has a version here.
    present: bool,
    /// The element found is the newest version here. So no other block of the generation has a
    /// later one that is early enough.
    exact: bool,
    hit: Option<Hit>,
}
