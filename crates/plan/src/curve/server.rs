// SPDX-License-Identifier: Apache-2.0
//! The smallest server with wanted shares of hits, by simulations of both its tiers.
//!
//! DRAM is sought for the hits that it shall find by itself, then flash for the hits of both, and
//! both once more if that changed what DRAM finds. A search begins with what an LRU cache would
//! need, and follows LRU's curve, which is known for all sizes.

use std::cell::RefCell;

use senko_cache::Footprint;

use super::tiers::{self, Item, Machine};
use super::{Curve, Policy};

/// A search ends when its interval is so narrow, ...
const NARROW: f64 = 1.01;
/// ... or is so narrow and hits are so little above the wanted share.
const CLOSE: f64 = 1.06;
const ENOUGH: f64 = 0.001;
/// The most simulations of a search.
const STEPS: usize = 40;
/// The most times that both tiers are sought.
const ROUNDS: usize = 3;
/// Flash of at most so many times all objects is looked at: records that were deleted or stored
/// again take room, too. Its log has at least a few regions.
const MOST_TIMES: f64 = 64.0;
const SPARE: f64 = 4.0 * (16u64 << 20) as f64;
/// DRAM for all objects has so much beside them: each size class has a page that is not full.
const DRAM_SPARE: f64 = 8e6;
/// Bytes of the index for an item, while a server is sought.
const INDEX_BYTES: f64 = 9.4;

/// What a server does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Its size; the index is that of the objects which it holds.
    pub machine: Machine,
    /// The share of look-ups that hit, and of those that hit in DRAM.
    pub hits: f64,
    /// Of them, in DRAM.
    pub dram_hits: f64,
    /// Bytes of pages written for each request, with what is only in DRAM at the end.
    pub written: f64,
    /// Of them, what is only in DRAM at the end.
    pub unwritten: f64,
}

/// Servers of all sizes for the requests of a curve.
#[derive(Debug)]
pub struct Servers<'a> {
    curve: &'a Curve,
    policy: Policy,
    /// Of each level.
    items: Vec<Vec<Item>>,
    /// Bytes of DRAM and of pages on flash for a unit of the curve.
    unit: Machine,
    /// For each object; `None`: what the index of `senko serve` takes.
    index_bytes: Option<f64>,
    /// By so much hits may be above the wanted share.
    enough: f64,
    known: RefCell<Vec<(usize, Served)>>,
}

impl<'a> Servers<'a> {
    /// Servers for a curve whose objects have these sizes, keys included: that of an object by its
    /// number. An object takes `index_bytes` of DRAM for the index; `None`: what it takes in
    /// `senko serve`.
    pub fn new(
        curve: &'a Curve,
        policy: Policy,
        size: impl Fn(usize) -> u64,
        (unit, index_bytes): (Machine, Option<f64>),
    ) -> Servers<'a> {
        let items = curve.levels.iter().map(|level| {
            let objects = level.requests.footprint_objects();
            Item::of((0..objects).map(&size))
        });
        Servers {
            policy,
            items: items.collect(),
            curve,
            unit,
            index_bytes,
            enough: ENOUGH,
            known: RefCell::default(),
        }
    }

    /// Lets later searches end when hits are at most so much above the wanted share, which takes
    /// less time.
    pub fn search_roughly(&mut self, enough: f64) {
        self.enough = enough;
    }

    /// Flash for all objects, of which no region is ever reclaimed if nothing is stored again.
    pub fn room_for_all(&self) -> f64 {
        let flash = self.curve.footprint * self.unit.flash;
        let machine = Machine {
            dram: self.dram_for_all(),
            index: 0.0,
            flash,
        };
        flash + 4.0 * machine.region()
    }

    /// DRAM for all objects.
    pub fn dram_for_all(&self) -> f64 {
        self.curve.footprint * self.unit.dram
    }

    /// The number of the level for so many units of the curve.
    fn level(&self, units: f64) -> usize {
        let levels = &self.curve.levels;
        let at = levels
            .iter()
            .position(|level| units <= level.range.1 as f64);
        at.unwrap_or(levels.len() - 1)
    }

    /// A server with these bytes of DRAM for items, and of flash.
    pub fn of(&self, dram: f64, flash: f64) -> Served {
        let mut served = self.about(dram, flash);
        if self.index_bytes.is_none() {
            let machine = &mut served.machine;
            let items = (machine.index / INDEX_BYTES) as u64;
            let memory = machine.memory() as u64;
            machine.index = Footprint::index_bytes(flash as u64, memory, items) as f64;
        }
        served
    }

    /// A server that is a little smaller or larger than another. Its index follows from that one's:
    /// where an index takes a further page says nothing of the error of a plan.
    pub fn near(&self, other: &Machine, dram: f64, flash: f64) -> Served {
        let mut served = self.about(dram, flash);
        let about = self.about(other.dram, other.flash).machine.index;
        if about > 0.0 {
            served.machine.index *= other.index / about;
        }
        served
    }

    /// A server, with about the index of its objects.
    fn about(&self, dram: f64, flash: f64) -> Served {
        let units = (flash / self.unit.flash).max(dram / self.unit.dram);
        self.at(self.level(units), dram, flash)
    }

    fn at(&self, at: usize, dram: f64, flash: f64) -> Served {
        let same = |(level, known): &&(usize, Served)| {
            *level == at && (known.machine.dram, known.machine.flash) == (dram, flash)
        };
        if let Some((_, known)) = self.known.borrow().iter().find(same) {
            return *known;
        }
        let level = &self.curve.levels[at];
        let units = (flash / self.unit.flash + dram / self.unit.dram).min(self.curve.footprint);
        let index_bytes = self.index_bytes.unwrap_or(INDEX_BYTES);
        let index = units / self.curve.footprint * self.curve.objects * index_bytes;
        let machine = Machine { dram, index, flash };
        let part = (level.scale, level.warm);
        let found = tiers::simulate(
            self.policy,
            (&level.requests, &self.items[at]),
            machine,
            part,
        );
        let missing = level.missing();
        let share = |hits: f64| ((hits + missing) / level.lookups.max(1.0)).clamp(0.0, 1.0);
        let a_request = |bytes: f64| bytes / level.scale / level.whole.max(1.0);
        let served = Served {
            machine: Machine {
                index: found.objects / level.scale * index_bytes,
                ..machine
            },
            hits: share(found.hits),
            dram_hits: match dram > 0.0 {
                true => share(found.dram_hits),
                false => 0.0,
            },
            written: a_request(found.written + found.unwritten),
            unwritten: a_request(found.unwritten),
        };
        self.known.borrow_mut().push((at, served));
        served
    }

    /// The smallest DRAM that finds this share of the look-ups by itself, beside so much flash;
    /// about `guess`. `None` if none finds so many.
    pub fn dram_for(&self, share: f64, flash: f64, guess: f64) -> Option<f64> {
        if share <= 0.0 {
            return Some(0.0);
        }
        let unit = self.unit.dram;
        let most = self.dram_for_all() * 1.3 + DRAM_SPARE;
        self.least((guess, most, unit), share, |dram| {
            self.at(self.level(dram / unit), dram, flash).dram_hits
        })
    }

    /// The smallest flash with which this share of the look-ups hits, beside so much DRAM; about
    /// `guess`. `None` if with none so many hit.
    pub fn flash_for(&self, share: f64, dram: f64, guess: f64) -> Option<f64> {
        let unit = self.unit.flash;
        let hits = |flash: f64| self.about(dram, flash).hits;
        let most = self.curve.footprint * unit * MOST_TIMES + SPARE;
        self.least((guess, most, unit), share, hits)
    }

    /// The smallest server of which DRAM finds `in_dram`, and both tiers find `share`. No flash, if
    /// DRAM alone finds it all. `None` if none finds so many.
    pub fn least_of(&self, share: f64, in_dram: f64) -> Option<Served> {
        let size = |share| Some(self.curve.size_for(share)? as f64);
        if in_dram >= share {
            let guess = size(share)? * self.unit.dram;
            return Some(self.of(self.dram_for(share, 0.0, guess)?, 0.0));
        }
        let mut flash = size(share)? * self.unit.flash;
        let mut dram = size(in_dram)? * self.unit.dram;
        for _ in 0..ROUNDS {
            dram = self.dram_for(in_dram, flash, dram)?;
            if self.about(dram, 0.0).hits >= share * (1.0 - 1e-9) {
                return Some(self.of(dram, 0.0));
            }
            let before = flash;
            flash = self.flash_for(share, dram, flash)?;
            // More flash has more items that it promotes, but DRAM hardly finds more.
            let served = self.at(self.level(dram / self.unit.dram), dram, flash);
            let settled = (served.dram_hits - in_dram).abs() < 3.0 * self.enough;
            if settled || (before / flash - 1.0).abs() < 0.1 {
                break;
            }
        }
        Some(self.of(dram, flash))
    }

    /// The smallest size from 1 to `most` with a share of at least `wanted`. A step follows the
    /// curve, whose unit takes `unit` bytes: its hits are others, but rise alike.
    fn least(
        &self,
        (guess, most, unit): (f64, f64, f64),
        wanted: f64,
        share: impl Fn(f64) -> f64,
    ) -> Option<f64> {
        // A share such as 0.55 of 100 requests may be a little more than 55 of them.
        let wanted = wanted * (1.0 - 1e-9);
        let (mut low, mut high) = (1.0, None);
        let mut size = guess.clamp(1.0, most);
        for nth in 0..STEPS {
            let hits = share(size);
            match hits >= wanted {
                true => high = Some(size),
                false if size >= most => return None,
                false => low = size,
            }
            let enough = hits >= wanted && hits - wanted < self.enough;
            let width = high.map_or(f64::MAX, |high| high / low);
            if width < NARROW || enough && width < CLOSE || size - low < 1.0 && high == Some(size) {
                break;
            }
            let alike = self.curve.hit_ratio((size / unit) as u64);
            let next = self
                .curve
                .size_for(alike + wanted - hits + self.enough / 2.0);
            let next = next.map_or(f64::MAX, |units| units as f64 * unit);
            let (least, largest) = (low * 1.002, high.map_or(most, |high| high * 0.998));
            let far = (low * high.unwrap_or(low * 4.0))
                .sqrt()
                .clamp(low + 1.0, most);
            size = match nth % 3 < 2 && next > least && next < largest {
                // Where hits hardly rise, much less may do.
                _ if enough => (size / CLOSE * 1.01).max(least),
                true => next,
                false => far,
            };
        }
        high
    }
}
