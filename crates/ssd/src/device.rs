// SPDX-License-Identifier: Apache-2.0
//! One drive, page by page: the host's link, the write buffer, the translation layer and the flash,
//! one above the other.
//!
//! A page that the host writes goes into the buffer. Pages that leave the buffer go through the
//! layer to the flash. The write is done when its page is in RAM and the pages that had to leave
//! for it are on the flash. With write-behind it does not wait for the flash as long as few pages
//! are on their way there. A read is served by the buffer or by the flash.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::buffer::{self, Buffer, Leave, Outgoing, Surroundings};
use crate::ftl::{self, Ftl};
use crate::geometry::Lpn;
use crate::link::{Link, LinkBusy, Wire};
use crate::nand::{Cause, Nand, Timing};
use crate::profile::{PartialPages, Profile};
use crate::shadow::Shadow;
use crate::spec::Spec;
use crate::{Error, Time};

/// The parts of a drive that differ from its profile.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Another translation layer than the profile's.
    pub ftl: Option<Spec>,
    pub buffer: Option<Spec>,
    /// Another size of the buffer, in pages.
    pub buffer_pages: Option<usize>,
    /// Write-amplification mode: no times.
    pub untimed: bool,
    pub check: bool,
    /// The seed of all randomness in the drive: lives of blocks, failures, choices of the layer.
    pub seed: u64,
}

/// The pages that passed between host, buffer and layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    pub host_writes: u64,
    /// Of those, overwritten in the buffer.
    pub write_hits: u64,
    pub host_reads: u64,
    /// Of those, found in the buffer.
    pub read_hits: u64,
    /// Of those, never written.
    pub unwritten_reads: u64,
    pub trims: u64,
    pub trimmed_in_buffer: u64,
    /// Pages that left the buffer for the flash.
    pub evicted: u64,
    /// Pages read and written again to complete blocks.
    pub padded: u64,
    /// Pages read because only a part was written.
    pub partial_reads: u64,
}

senko_io::counters! {
    PageCounts: host_writes write_hits host_reads read_hits unwritten_reads trims
        trimmed_in_buffer evicted padded partial_reads
}

/// Pages on their way from the buffer to the flash whose writes are already done.
#[derive(Debug, Default)]
struct Behind {
    room: usize,
    /// When each is on the flash.
    ends: BinaryHeap<Reverse<Time>>,
}

impl Behind {
    /// Adds a page that leaves at `at` and is on the flash at `end`; returns how long its write
    /// waits.
    fn after(&mut self, at: Time, end: Time) -> Time {
        if self.room == 0 {
            return end;
        }
        while self.ends.peek().is_some_and(|first| first.0 <= at) {
            self.ends.pop();
        }
        self.ends.push(Reverse(end));
        if self.ends.len() <= self.room {
            return at;
        }
        self.ends.pop().map_or(at, |first| first.0)
    }

    fn end(&self) -> Time {
        self.ends.iter().map(|end| end.0).max().unwrap_or(0)
    }
}

pub struct Device {
    wire: Wire,
    behind: Behind,
    nand: Nand,
    ftl: Box<dyn Ftl>,
    buffer: Box<dyn Buffer>,
    /// The layer and the buffer, with their options.
    specs: (Spec, Spec),
    logical_pages: u32,
    out: Outgoing,
    shadow: Option<Shadow>,
    counts: PageCounts,
    ram_ns: Time,
    read_rest: bool,
}

impl Device {
    /// An erased drive.
    ///
    /// # Errors
    /// If its parts don't exist or don't fit together.
    pub fn new(profile: &Profile, parts: &Parts) -> Result<Self, Error> {
        profile.check()?;
        let timing = (!parts.untimed).then_some(profile.timing);
        let mut nand = Nand::new(profile.geometry, timing, &profile.endurance, parts.seed)?;
        if parts.check {
            nand.keep_sequence();
        }
        if let Some(single) = profile.slc {
            nand.allow_single_level(single);
        }
        let ftl_spec = match &parts.ftl {
            Some(spec) => spec.clone(),
            None => profile.ftl.parse()?,
        };
        let logical_pages = profile.user_pages();
        let (ftl, full_ftl_spec) = ftl::build(&ftl_spec, &nand, logical_pages)?;
        let around = Surroundings {
            capacity: parts.buffer_pages.unwrap_or(profile.buffer_pages()),
            pages_per_block: profile.geometry.pages,
            logical_pages,
            ftl: ftl_spec,
        };
        let buffer_spec = match &parts.buffer {
            Some(spec) => spec.clone(),
            None => profile.buffer.parse()?,
        };
        let (buffer, full_buffer_spec) = buffer::build(&buffer_spec, &around)?;
        let Timing { ram_ns, .. } = profile.timing;
        let (link, room) = match parts.untimed {
            true => (Link::None, 0),
            false => (profile.link, profile.write_behind_pages as usize),
        };
        Ok(Self {
            wire: Wire::new(link),
            behind: Behind {
                room,
                ends: BinaryHeap::new(),
            },
            nand,
            ftl,
            buffer,
            specs: (full_ftl_spec, full_buffer_spec),
            logical_pages,
            out: Outgoing::default(),
            shadow: parts.check.then(|| Shadow::new(logical_pages)),
            counts: PageCounts::default(),
            ram_ns: if parts.untimed { 0 } else { ram_ns },
            read_rest: profile.partial_pages == PartialPages::ReadModifyWrite,
        })
    }

    /// Logical pages: 0 to this.
    pub fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// How long the host's link was busy since the drive was new; `None` if no link is modelled.
    pub fn link_busy(&self) -> Option<LinkBusy> {
        self.wire.is_limited().then(|| self.wire.busy())
    }

    pub(crate) fn wire_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Says that nothing will be issued before `now` any more.
    pub(crate) fn advance(&mut self, now: Time) {
        self.wire.advance(now);
        self.nand.advance(now);
    }

    /// Treats everything issued so far as done at time 0.
    pub(crate) fn rest(&mut self) {
        self.wire.rest();
        self.behind.ends.clear();
        self.nand.rest();
    }

    pub fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    pub fn buffer(&self) -> &dyn Buffer {
        &*self.buffer
    }

    /// The layer and the buffer, with their options.
    pub fn specs(&self) -> (&Spec, &Spec) {
        (&self.specs.0, &self.specs.1)
    }

    /// The pages that passed so far.
    pub fn counts(&self) -> &PageCounts {
        &self.counts
    }

    /// The host writes a page, or a part of it.
    #[inline]
    pub fn write(&mut self, lpn: Lpn, whole: bool, stream: u16, at: Time) -> Time {
        self.counts.host_writes += 1;
        let mut ready = at;
        if !whole && self.read_rest && !self.buffer.contains(lpn) {
            let (found, done) = self.ftl.read(&mut self.nand, lpn, at);
            self.counts.partial_reads += u64::from(found.is_some());
            ready = done;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.host_writes(lpn);
        }
        let hit = self.buffer.write(lpn, &mut self.out);
        self.counts.write_hits += u64::from(hit);
        self.let_go(stream, ready, Some(lpn)) + self.ram_ns
    }

    /// The host writes whole pages one after the other, in no time. The result is that of
    /// [`Device::write`] for each, but runs of pages are written in one step if possible.
    pub fn write_many(&mut self, lpns: &[Lpn], stream: u16) {
        if self.shadow.is_some() || !self.buffer.passes_through() {
            for lpn in lpns {
                self.write(*lpn, true, stream, 0);
            }
            return;
        }
        self.counts.host_writes += lpns.len() as u64;
        self.counts.evicted += lpns.len() as u64;
        self.ftl.write_many(&mut self.nand, lpns, stream);
    }

    /// Writes the pages that the buffer evicts, in its order.
    fn let_go(&mut self, stream: u16, at: Time, incoming: Option<Lpn>) -> Time {
        let mut done = at;
        for index in 0..self.out.pages.len() {
            let (lpn, how) = self.out.pages[index];
            if let Some(shadow) = &mut self.shadow {
                shadow.leaves(lpn, how, incoming);
            }
            let ready = match how {
                Leave::Dirty => {
                    self.counts.evicted += 1;
                    at
                }
                Leave::Pad => {
                    let Some(page) = self.ftl.locate(lpn) else {
                        continue;
                    };
                    self.counts.padded += 1;
                    self.nand.read(page, at, Cause::Pad)
                }
            };
            let before = self.nand.last_host_sequence();
            let written = self.ftl.write(&mut self.nand, lpn, stream, ready);
            done = done.max(self.behind.after(at, written));
            if let Some(shadow) = &mut self.shadow {
                shadow.programmed(lpn, &self.nand, before);
            }
        }
        self.out.pages.clear();
        done
    }

    #[inline]
    pub fn read(&mut self, lpn: Lpn, at: Time) -> Time {
        self.counts.host_reads += 1;
        let hit = self.buffer.read(lpn);
        if let Some(shadow) = &self.shadow {
            shadow.buffer_read(lpn, hit);
        }
        if hit {
            self.counts.read_hits += 1;
            return at + self.ram_ns;
        }
        let (found, done) = self.ftl.read(&mut self.nand, lpn, at);
        // A drive that lost power while it looked up the page gives no answer.
        if let Some(shadow) = self.shadow.as_ref().filter(|_| !self.nand.is_off()) {
            shadow.flash_read(lpn, found, &self.nand);
        }
        if found.is_none() {
            self.counts.unwritten_reads += 1;
            return done + self.ram_ns;
        }
        self.buffer.read_from_flash(lpn, &mut self.out);
        if self.out.pages.is_empty() {
            done + self.ram_ns
        } else {
            // A clean page replaced dirty ones; the reader does not wait for them.
            self.let_go(0, done, None);
            done + self.ram_ns
        }
    }

    pub fn trim(&mut self, lpn: Lpn, at: Time) -> Time {
        self.counts.trims += 1;
        self.counts.trimmed_in_buffer += u64::from(self.buffer.contains(lpn));
        self.buffer.trim(lpn);
        if let Some(shadow) = &mut self.shadow {
            shadow.host_trims(lpn);
        }
        self.ftl.trim(&mut self.nand, lpn, at)
    }

    /// Writes everything to the flash.
    pub fn flush(&mut self, at: Time) -> Time {
        self.buffer.drain(&mut self.out);
        let drained = self.let_go(0, at, None).max(self.behind.end());
        if let Some(shadow) = &self.shadow {
            shadow.flushed();
        }
        drained
    }

    /// Does one step of background work; returns its end, or `None` if there is none to do.
    pub fn idle(&mut self, at: Time) -> Option<Time> {
        self.ftl.idle(&mut self.nand, at)
    }

    /// The power goes and comes back. The buffer's contents are lost (`empty` replaces it), and the
    /// layer recovers from the flash.
    pub fn power_cycle(&mut self, empty: Box<dyn Buffer>) {
        self.buffer = empty;
        self.out.pages.clear();
        self.behind.ends.clear();
        self.nand.power_on();
        self.ftl.recover(&mut self.nand);
        if let Some(shadow) = &mut self.shadow {
            shadow.recovered(&*self.ftl, &self.nand);
        }
    }

    /// Checks that no page was lost or invented. Every page that the host wrote was overwritten in
    /// the buffer, trimmed there, written to the flash, or is still held. Every program has a
    /// cause.
    ///
    /// # Panics
    /// If that does not hold, which would be a bug in the simulator.
    pub fn assert_conservation(&self) {
        let counts = &self.counts;
        let nand = self.nand.counts();
        let host = nand.programs[Cause::Host as usize];
        assert_eq!(
            host,
            counts.evicted + counts.padded,
            "programs for the host are those that left the buffer"
        );
        let gone = counts.write_hits + counts.trimmed_in_buffer + counts.evicted;
        let held = counts.host_writes - gone.min(counts.host_writes);
        assert!(
            gone <= counts.host_writes + counts.trimmed_in_buffer
                && held <= self.buffer.len() as u64,
            "of {} written pages {gone} are gone and {} held",
            counts.host_writes,
            self.buffer.len()
        );
    }
}
