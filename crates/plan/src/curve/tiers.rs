// SPDX-License-Identifier: Apache-2.0
//! Both tiers of a cache server, without values: what DRAM and flash find together, and what is
//! written. For `senko plan`.
//!
//! A cache of one tier tells neither. An item that is deleted or stored again while it is in DRAM
//! is never written. One that flash finds twice goes back to DRAM, and keeps its copy. The log
//! writes items again that were hit, and dead records fill it until their region is reclaimed. So
//! this is a model of `senko_cache::Shard`, one rule after the other. Its pages come from that
//! crate.
//!
//! Always holds:
//! - TIERS-1: an object is nowhere, in DRAM, or on flash. In DRAM it may have a copy on flash,
//!   which has the same value.
//! - TIERS-2: objects in DRAM take at most its bytes. One that is larger goes to flash at once.
//! - TIERS-3: positions of pages only grow. An object on flash, or a copy, lies at or behind the
//!   tail. A record at any other position is dead.
//! - TIERS-4: while fewer than two regions are free, the oldest is reclaimed. Reclaim writes at
//!   most half of its region again, and only what was hit there since it was written.
//!
//! A part of the objects is simulated with the same part of DRAM and flash. Regions may then be
//! larger than that part of a region: half of a region of a few records would be another limit than
//! half of one of thousands. The mean of the pages in use stays the same.
//!
//! Left out: an item larger than the write buffers is streamed; keys that share a tag; several
//! threads with their own logs.

mod memory; // chunks of DRAM

use memory::Memory;
use senko_cache::{Footprint, PageFill};
use senko_io::PAGE_SIZE;

use super::{Policy, mixed};
use crate::requests::{Act, Requests};

/// A link to nothing, and the position of nothing.
const NONE: u32 = u32::MAX;
const NOWHERE: u64 = u64::MAX;
/// Pages of the largest record that is read into a frame. Reclaim does not write a larger one
/// again.
const FRAME_PAGES: u64 = senko_cache::FRAME_PAGES as u64;
/// Bytes of DRAM for each name of an evicted item.
const BYTES_PER_GHOST: f64 = 512.0;
/// The least number of items that DRAM counts as, when hits on flash age.
const LEAST_AGING: f64 = 1024.0;
/// Slots of the index that age at most with a hit on flash.
const MOST_AGED: f64 = 51.0;
/// The smallest and the largest region of `senko serve`.
const REGION: (u64, u64) = (64 << 10, 16 << 20);
/// The small queue has this part of the objects in DRAM.
const SMALL: u64 = 10;
/// Pages of the smallest region of a part of the objects, while there are so many regions.
const LEAST_REGION: f64 = 64.0;
const LEAST_REGIONS: f64 = 64.0;
/// Pages move between classes after this part of the objects left DRAM, but not after fewer.
const TURNOVER: u64 = 8;
const REBALANCE_EVERY: f64 = 256.0;

/// What an object takes.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Bytes of its key and value.
    bytes: u32,
    /// Its chunks in DRAM, without flash and with it.
    chunks: [Chunks; 2],
    /// Pages of its record.
    pages: u32,
    /// Bytes of its record.
    record: u32,
}

/// Chunks of an item: their bytes, how many, and the class of the last one.
#[derive(Clone, Copy, Debug)]
struct Chunks {
    bytes: u32,
    count: u32,
    last: u8,
}

impl Item {
    /// Items of these sizes, keys included.
    pub fn of(sizes: impl Iterator<Item = u64>) -> Vec<Item> {
        let chunks = Footprint::default();
        sizes
            .map(|size| {
                let bytes = size.min(u64::from(u32::MAX) / 4) as u32;
                let record = Footprint::record_bytes(0, bytes);
                Item {
                    bytes,
                    chunks: [false, true].map(|flash| {
                        let (count, last) = chunks.chunks(0, bytes, flash);
                        Chunks {
                            bytes: chunks.chunk_bytes(0, bytes, flash) as u32,
                            count: count as u32,
                            last: last as u8,
                        }
                    }),
                    pages: record.div_ceil(PAGE_SIZE as u64) as u32,
                    record: record as u32,
                }
            })
            .collect()
    }
}

/// The sizes of a server with one thread, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// For items in DRAM.
    pub dram: f64,
    /// For the index in DRAM.
    pub index: f64,
    /// Of the flash.
    pub flash: f64,
}

impl Machine {
    /// Bytes of memory of its shard: with the names of evicted items, and the write buffers.
    pub fn memory(&self) -> f64 {
        let memory = (self.dram + self.index) * (1.0 + 4.0 / BYTES_PER_GHOST);
        let buffer = match memory {
            ..16e6 => 64.0,
            ..400e6 => 256.0,
            _ => 1024.0,
        } * 1024.0;
        let buffers = (memory / 24.0 / buffer).floor().clamp(4.0, 12.0);
        memory + buffers * buffer + (FRAME_PAGES * PAGE_SIZE as u64) as f64
    }

    /// Bytes of a region, as `senko serve` chooses it.
    pub(super) fn region(&self) -> f64 {
        let most = self.flash.min(self.memory()) / 16.0;
        let region = 1u64 << (most.max(1.0) as u64).ilog2();
        region.clamp(REGION.0, REGION.1) as f64
    }
}

/// What a simulation counted, of requests that are as many as those of the whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Look-ups that hit, and those that hit in DRAM.
    pub hits: f64,
    /// Of them, in DRAM.
    pub dram_hits: f64,
    /// Bytes of pages written.
    pub written: f64,
    /// Bytes of pages for what is only in DRAM at the end. All of it will be written, since each
    /// item that comes to a full DRAM pushes another out.
    pub unwritten: f64,
    /// Objects in either tier at the end.
    pub objects: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Small,
    Main,
    Flash,
}

#[derive(Clone, Copy, Debug)]
struct State {
    place: Place,
    /// Hits in DRAM, as S3-FIFO counts them.
    hits: u8,
    /// How lately flash had hits: 0 never, 1 not since the hand passed, 2 and 3 since then.
    hot: u8,
    /// Read since it came to DRAM.
    read: bool,
    /// Position on flash, of the object or of its copy.
    at: u64,
    /// Neighbours in its queue.
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    len: u64,
}

const EMPTY: List = List {
    newest: NONE,
    oldest: NONE,
    len: 0,
};

/// Objects of one size in DRAM.
#[derive(Clone, Copy, Debug)]
struct Class {
    small: List,
    main: List,
    evicts: bool,
    /// Evictions since about the last move of a page.
    recent: u32,
}

impl Class {
    fn len(&self) -> u64 {
        self.small.len + self.main.len
    }
}

/// A cache server.
pub(super) struct Tiers<'a> {
    policy: Policy,
    items: &'a [Item],
    state: Vec<State>,
    // DRAM
    dram: Memory,
    classes: Vec<Class>,
    in_dram: u64,
    /// Evictions until pages may move between classes.
    evictions_left: u64,
    rebalance_every: u64,
    ghosts: Vec<u32>,
    // flash
    log: PageFill,
    pages: u64,
    region: u64,
    /// Reclaim keeps so many pages free.
    kept_free: u64,
    tail: u64,
    /// Records by the region in which they start: object and position.
    regions: Vec<Vec<(u32, u64)>>,
    on_flash: f64,
    hand: usize,
    owed: f64,
    least_aging: f64,
}

impl<'a> Tiers<'a> {
    /// An empty server for a part `scale` of all objects.
    fn new(policy: Policy, items: &'a [Item], machine: Machine, scale: f64) -> Self {
        let page = PAGE_SIZE as f64;
        let whole = machine.region();
        let part = whole * scale / page;
        let mut pages = (machine.flash / whole).floor() * part;
        let (mut region, mut kept_free) = (part.max(1.0), 2.0 * part);
        if scale < 1.0 {
            // As many pages in use, on average, as with regions of that part.
            region = region.max(LEAST_REGION.min(pages / LEAST_REGIONS)).round();
            kept_free = (2.5 * part - region / 2.0).max(region / 2.0 + 1.0);
            pages += kept_free + region / 2.0 - 2.5 * part;
        }
        let region = region as u64;
        let regions = (pages / region as f64) as u64;
        let kept_free = kept_free as u64;
        let memory = (machine.dram + machine.index) / BYTES_PER_GHOST;
        let ghosts = (memory.max(1.0) as u64).next_power_of_two() as f64 * scale;
        let dram = Memory::new(machine, scale, items);
        let class = Class {
            small: EMPTY,
            main: EMPTY,
            evicts: false,
            recent: 0,
        };
        let none = State {
            place: Place::Nowhere,
            hits: 0,
            hot: 0,
            read: false,
            at: NOWHERE,
            newer: NONE,
            older: NONE,
        };
        Tiers {
            policy,
            items,
            state: vec![none; items.len()],
            classes: vec![class; dram.classes()],
            dram,
            in_dram: 0,
            evictions_left: (REBALANCE_EVERY * scale) as u64,
            rebalance_every: (REBALANCE_EVERY * scale) as u64,
            ghosts: vec![NONE; ghosts.max(1.0) as usize],
            log: PageFill::default(),
            pages: regions * region,
            region,
            kept_free,
            tail: 0,
            regions: vec![Vec::new(); regions as usize],
            on_flash: 0.0,
            hand: 0,
            owed: 0.0,
            least_aging: LEAST_AGING * scale,
        }
    }

    // ---- DRAM ----

    fn list(&mut self, object: u32, place: Place) -> &mut List {
        let class = &mut self.classes[self.dram.class(self.items, object)];
        match place {
            Place::Small => &mut class.small,
            _ => &mut class.main,
        }
    }

    fn push(&mut self, object: u32, place: Place) {
        let newest = self.list(object, place).newest;
        let state = &mut self.state[object as usize];
        (state.place, state.older, state.newer) = (place, newest, NONE);
        match newest {
            NONE => self.list(object, place).oldest = object,
            newest => self.state[newest as usize].newer = object,
        }
        let list = self.list(object, place);
        list.newest = object;
        list.len += 1;
    }

    fn unlink(&mut self, object: u32) {
        let State {
            place,
            newer,
            older,
            ..
        } = self.state[object as usize];
        match newer {
            NONE => self.list(object, place).newest = older,
            newer => self.state[newer as usize].older = older,
        }
        match older {
            NONE => self.list(object, place).oldest = newer,
            older => self.state[older as usize].newer = newer,
        }
        self.list(object, place).len -= 1;
    }

    fn ghost(&mut self, object: u32) -> &mut u32 {
        let at = mixed(object, 0x5e4a) % self.ghosts.len() as u64;
        &mut self.ghosts[at as usize]
    }

    /// An object that has its memory comes to DRAM. `known`: flash found it.
    fn enter(&mut self, object: u32, known: bool) {
        let s3_fifo = self.policy == Policy::S3Fifo;
        let ghost = self.ghost(object);
        let known = known || *ghost == object;
        if *ghost == object {
            *ghost = NONE;
        }
        let class = &self.classes[self.dram.class(self.items, object)];
        let fills = !class.evicts && class.small.len * SMALL > class.len();
        let place = match s3_fifo && !(known || fills) {
            true => Place::Small,
            false => Place::Main,
        };
        self.state[object as usize].hits = 0;
        self.push(object, place);
        self.in_dram += 1;
    }

    fn hit(&mut self, object: u32) {
        let state = &mut self.state[object as usize];
        state.read = true;
        state.hits = (state.hits + 1).min(3);
        if self.policy == Policy::Lru {
            self.unlink(object);
            self.push(object, Place::Main);
        }
    }

    fn victim(&mut self, class: usize) -> Option<u32> {
        loop {
            let Class { small, main, .. } = self.classes[class];
            if small.len + main.len == 0 {
                return None;
            }
            let from_small = main.len == 0 || small.len * SMALL > small.len + main.len;
            let oldest = if from_small {
                small.oldest
            } else {
                main.oldest
            };
            let hits = self.state[oldest as usize].hits;
            let moves =
                self.policy == Policy::S3Fifo && if from_small { hits > 1 } else { hits > 0 };
            if !moves {
                return Some(oldest);
            }
            self.unlink(oldest);
            self.state[oldest as usize].hits = if from_small { 0 } else { hits - 1 };
            self.push(oldest, Place::Main);
        }
    }

    /// Takes an object out of DRAM, to nowhere.
    fn leave(&mut self, object: u32) {
        self.unlink(object);
        self.dram.free(self.items, object);
        self.state[object as usize].place = Place::Nowhere;
        self.in_dram -= 1;
    }

    /// Takes memory for an object; false if DRAM is smaller than it.
    fn make_room(&mut self, object: u32) -> bool {
        loop {
            let lacks = match self.dram.take(self.items, object) {
                Ok(()) => return true,
                Err(Some(class)) => class,
                Err(None) => return false,
            };
            if self.evictions_left == 0 {
                self.evictions_left = (self.in_dram / TURNOVER).max(self.rebalance_every);
                if let Some(class) = self.class_to_shrink()
                    && self.empty_page(class)
                {
                    continue;
                }
            }
            if let Some(victim) = self.victim(lacks) {
                self.evict(victim);
            } else if !self.shed_page() {
                self.dram.give_up(object);
                return false;
            }
        }
    }

    /// The class whose objects stay much longer than those of the class with the fastest turnover.
    fn class_to_shrink(&mut self) -> Option<usize> {
        let (mut slowest, mut fastest) = (None::<(f64, usize)>, None::<(f64, usize)>);
        for (at, class) in self.classes.iter_mut().enumerate() {
            let recent = class.recent;
            class.recent /= 2;
            let pages = self.dram.pages_of(at);
            let stay = class.len() as f64 / (f64::from(recent) + 0.5);
            if pages > 1 && slowest.is_none_or(|(most, _)| stay > most) {
                slowest = Some((stay, at));
            }
            if pages > 0 && recent > 0 && fastest.is_none_or(|(least, _)| stay < least) {
                fastest = Some((stay, at));
            }
        }
        let ((slow, from), (fast, to)) = slowest.zip(fastest)?;
        (from != to && slow > 1.5 * fast).then_some(from)
    }

    /// Frees a page of the class whose objects stay longest, otherwise of any.
    fn shed_page(&mut self) -> bool {
        let mut order: Vec<(u64, usize)> = (0..self.classes.len())
            .filter(|at| self.dram.pages_of(*at) > 0)
            .map(|at| {
                let class = &self.classes[at];
                let stay = class.len() * 16 / (u64::from(class.recent) + 1);
                (stay + self.dram.pages_of(at) as u64, at)
            })
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().any(|(_, class)| self.empty_page(class))
    }

    /// Evicts all objects of the page of the oldest object of a class.
    fn empty_page(&mut self, class: usize) -> bool {
        let Some(oldest) = self.victim(class) else {
            return false;
        };
        let Some((page, objects)) = self.dram.page_of(oldest) else {
            return false;
        };
        for object in objects {
            // Two chunks of an object may be in one page.
            let place = self.state[object as usize].place;
            if matches!(place, Place::Small | Place::Main) {
                self.evict(object);
            }
        }
        self.dram.release_if_empty(page);
        true
    }

    fn evict(&mut self, object: u32) {
        let class = &mut self.classes[self.dram.class(self.items, object)];
        class.evicts = true;
        class.recent += 1;
        self.evictions_left = self.evictions_left.saturating_sub(1);
        if self.state[object as usize].place == Place::Small {
            *self.ghost(object) = object;
        }
        self.leave(object);
        let state = &mut self.state[object as usize];
        if state.at == NOWHERE {
            self.write(object);
            return;
        }
        // It turns to its copy (TIERS-1), which does not know that the object was read.
        state.hot = u8::from(state.read);
        state.place = Place::Flash;
        self.on_flash += 1.0;
    }

    // ---- flash ----

    /// Writes an object to the head of the log, if it can hold it at all.
    fn write(&mut self, object: u32) {
        let pages = u64::from(self.items[object as usize].pages);
        if pages > self.pages.saturating_sub(self.region) / 2 {
            self.state[object as usize].at = NOWHERE;
            return;
        }
        loop {
            let needed = self.with_wrap(pages);
            if needed <= self.free() {
                break;
            }
            self.reclaim();
        }
        self.place(object);
        // TIERS-4
        while self.free() < self.kept_free && self.tail + self.region <= self.log.head() {
            self.reclaim();
        }
    }

    fn place(&mut self, object: u32) {
        let item = self.items[object as usize];
        if item.pages > 1 {
            let pages = u64::from(item.pages);
            self.log.skip(self.with_wrap(pages) - pages);
        }
        let at = self.log.place(0, item.bytes, u64::from(object));
        let state = &mut self.state[object as usize];
        (state.place, state.at, state.hot) = (Place::Flash, at, 0);
        self.on_flash += 1.0;
        let region = at / self.region % self.regions.len() as u64;
        self.regions[region as usize].push((object, at));
    }

    fn free(&self) -> u64 {
        self.tail + self.pages - self.log.head()
    }

    /// Pages with those left empty at the end of the slice.
    fn with_wrap(&self, pages: u64) -> u64 {
        let left = self.pages - self.log.head() % self.pages;
        if pages > left { left + pages } else { pages }
    }

    fn reclaim(&mut self) {
        let number = self.tail / self.region % self.regions.len() as u64;
        let records = std::mem::take(&mut self.regions[number as usize]);
        let (half, mut again) = (self.region * PAGE_SIZE as u64 / 2, 0);
        for (object, at) in &records {
            let state = &mut self.state[*object as usize];
            if state.at != *at {
                continue;
            }
            state.at = NOWHERE; // TIERS-3
            if state.place != Place::Flash {
                continue; // it is in DRAM, and loses its copy
            }
            state.place = Place::Nowhere;
            self.on_flash -= 1.0;
            let item = self.items[*object as usize];
            let (pages, bytes) = (u64::from(item.pages), u64::from(item.record));
            let stays = state.hot > 0 && again + bytes <= half && pages <= FRAME_PAGES;
            if stays && self.with_wrap(pages) <= self.free() {
                again += bytes;
                self.place(*object);
            }
        }
        self.tail += self.region;
    }

    /// The CLOCK hand passes over some objects, after a hit on flash.
    fn age(&mut self) {
        let dram = self.in_dram as f64;
        let around = (2.0 * dram.max(self.least_aging)).max(self.on_flash / MOST_AGED);
        self.owed += self.items.len() as f64 / around.max(1.0);
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let state = &mut self.state[self.hand];
            if state.place == Place::Flash && state.hot > 1 {
                state.hot = 1;
            }
            self.hand = (self.hand + 1) % self.items.len();
        }
    }

    fn hit_flash(&mut self, object: u32) {
        let state = &mut self.state[object as usize];
        let lately = state.hot.saturating_sub(1);
        state.hot = (state.hot.max(1) + 1).min(3);
        self.age();
        if lately == 0 {
            return;
        }
        if !self.make_room(object) {
            return;
        }
        let state = &mut self.state[object as usize];
        // Making room may have dropped it from flash.
        if state.place == Place::Flash {
            state.read = true;
            self.on_flash -= 1.0;
            self.enter(object, true);
        } else {
            self.dram.free(self.items, object);
        }
    }

    // ---- requests ----

    fn store(&mut self, object: u32) {
        // The new value takes its memory before the old one leaves. Its size is the same, so it
        // takes that of the old one.
        self.delete(object);
        let fits = self.make_room(object);
        let state = &mut self.state[object as usize];
        (state.read, state.at) = (false, NOWHERE);
        match fits {
            true => self.enter(object, false),
            false => self.write(object), // TIERS-2
        }
    }

    fn delete(&mut self, object: u32) {
        match self.state[object as usize].place {
            Place::Nowhere => {}
            Place::Flash => self.on_flash -= 1.0,
            Place::Small | Place::Main => self.leave(object),
        }
        let state = &mut self.state[object as usize];
        (state.place, state.at) = (Place::Nowhere, NOWHERE);
    }

    /// Looks an object up: the tier that has it.
    fn get(&mut self, object: u32) -> Place {
        let place = self.state[object as usize].place;
        match place {
            Place::Nowhere => {}
            Place::Flash => self.hit_flash(object),
            Place::Small | Place::Main => self.hit(object),
        }
        place
    }

    /// The head of the log, if what is only in DRAM were written.
    fn emptied(&mut self) -> u64 {
        for object in 0..self.items.len() {
            let state = self.state[object];
            let dirty = matches!(state.place, Place::Small | Place::Main) && state.at == NOWHERE;
            if dirty && self.pages > 0 {
                self.log.place(0, self.items[object].bytes, object as u64);
            }
        }
        self.log.head()
    }
}

/// Simulates a server for a part `scale` of all objects. The first `warm` requests fill it, and are
/// not counted.
pub fn simulate(
    policy: Policy,
    (requests, items): (&Requests, &[Item]),
    machine: Machine,
    (scale, warm): (f64, usize),
) -> Found {
    let mut tiers = Tiers::new(policy, items, machine, scale);
    let mut found = Found::default();
    let mut before = 0;
    for (nth, object) in requests.objects.iter().enumerate() {
        if nth == warm {
            before = tiers.log.head();
        }
        let act = requests.act(nth);
        match act {
            Act::Delete => tiers.delete(*object),
            Act::Set => tiers.store(*object),
            Act::Get | Act::GetThenSet => {
                let place = tiers.get(*object);
                if nth >= warm {
                    found.hits += f64::from(u8::from(place != Place::Nowhere));
                    let in_dram = matches!(place, Place::Small | Place::Main);
                    found.dram_hits += f64::from(u8::from(in_dram));
                }
                if place == Place::Nowhere && act == Act::Get {
                    tiers.store(*object);
                }
            }
        }
    }
    found.objects = tiers.on_flash + tiers.in_dram as f64;
    let written = tiers.log.head();
    found.written = ((written - before) * PAGE_SIZE as u64) as f64;
    if warm == 0 {
        found.unwritten = ((tiers.emptied() - written) * PAGE_SIZE as u64) as f64;
    }
    found
}
