// SPDX-License-Identifier: Apache-2.0
//! The adaptive buffer: does what costs this drive the fewest erases under the present load, and needs no setting.
//!
//! Idea: each of a few policies ([`CANDIDATES`]) runs as a ghost, which holds page numbers alone, above a small copy of the very translation layer that lies below ([`ghost`]). All see the
//! host's writes. Every so many writes the erases that each candidate brought its copy are added to its scores, in which older ones count less and less; the buffer follows the candidate whose score is
//! lower by more than a change may cost. To change, the pages held go over into the new policy in the order in which the old one would have let them go; nothing is written for it.
//! What is compared is what is wanted, erases, and not hits: two candidates with the same hits can differ by a factor of twenty below a log-block layer.
//! Source: the conclusion of Ogawa and Kise's endurance paper, section 3.3, asks for it. Ghosts judge policies as in Gramacy et al., "Adaptive Caching by Refetching", NIPS 2002; sampling of blocks
//! for large buffers is that of Waldspurger et al., "Cache Modeling and Optimization using Miniature Simulations", USENIX ATC 2017.
//!
//! Memory: a buffer of more than [`GHOST_PAGES`] pages has ghosts of that size, which see one in so many groups of eight logical blocks; the copies have a fixed number of logical blocks. So the ghosts
//! take what they take, however large buffer and drive are, but for one bit for each logical page. `table_bytes` is all of it.
//!
//! What always holds, beyond B1 to B3: the future is not looked at; the same requests give the same choices.

mod ghost;

use crate::Error;
use crate::buffer::{Buffer, Leave, Outgoing, Surroundings, build};
use crate::geometry::Lpn;
use crate::spec::Spec;
use ghost::Ghost;
use senko_workload::rng::mix64;

/// The policies that compete. The first is what the buffer begins with: over all layers and traces it is the best.
const CANDIDATES: [&str; 7] = [
    "rent:power=4",
    "rent",
    "rent:padding=true",
    "lru",
    "fab",
    "pud-lru",
    "seldom",
];

/// Pages in a ghost, about: larger buffers are sampled down to this.
const GHOST_PAGES: usize = 512;
/// Logical blocks that are sampled together: neighbours matter to layers that map several blocks together.
const SAMPLED_TOGETHER: u32 = 8;
/// Page writes between judgements, in shares of the buffer.
const JUDGEMENTS: usize = 4;
/// Of the two pasts that candidates are judged by: what remains of a score from one judgement to the next, and by which share another candidate must be better to be followed.
/// A long past tells small differences from chance; a short one finds that the load has changed.
const KEPT: [f64; 2] = [0.97, 0.995];
const BETTER: [f64; 2] = [0.1, 0.005];
/// And by so many erases: about what a change may cost. Below a layer that merges log blocks it shows in whole merges,
const MERGES: f64 = 4.0;
/// and below others page by page: an erase, and what the writes of half a judgement cost.
const ERASES: f64 = 1.0;
const JUDGEMENTS_COST: f64 = 0.5;

/// The layers that merge log blocks with data blocks.
const MERGING: [&str; 4] = ["bast", "fast", "faster", "last"];
/// The layers below which padding is tried: those to which a block that is written whole is worth more than its pages. Elsewhere it can but write more.
const PADDED: [&str; 5] = ["bast", "fast", "faster", "last", "superblock"];

struct Adaptive {
    around: Surroundings,
    candidates: Vec<Spec>,
    ghosts: Vec<Ghost>,
    /// One in so many blocks is seen by the ghosts.
    scale: u32,
    /// Which candidate is followed.
    leader: usize,
    real: Box<dyn Buffer>,
    /// Page writes until the next judgement.
    until: usize,
    /// How many judgements are in the short past, older ones counted for less.
    judged: f64,
    /// A bit for each logical page: whether it has left the buffer for the flash, and was not trimmed since.
    on_flash: Vec<u64>,
    held: Outgoing,
}

pub(super) fn make(_: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let scale = (around.capacity / GHOST_PAGES).max(1) as u32;
    let candidates = CANDIDATES
        .iter()
        .filter(|text| !text.contains("padding") || PADDED.contains(&around.ftl.name()))
        .map(|text| text.parse())
        .collect::<Result<Vec<Spec>, Error>>()?;
    let ghosts = candidates
        .iter()
        .map(|candidate| Ghost::new(candidate, around, scale))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(Box::new(Adaptive {
        real: build(&candidates[0], around)?,
        candidates,
        ghosts,
        scale,
        leader: 0,
        until: interval(around.capacity),
        judged: 0.0,
        on_flash: vec![0; around.logical_pages.div_ceil(64) as usize],
        held: Outgoing::default(),
        around: around.clone(),
    }))
}

fn interval(capacity: usize) -> usize {
    (capacity / JUDGEMENTS).max(32)
}

impl Adaptive {
    /// Whether the ghosts see a page.
    fn sampled(&self, lpn: Lpn) -> bool {
        let group = lpn / self.around.pages_per_block / SAMPLED_TOGETHER;
        self.scale == 1 || mix64(u64::from(group)).is_multiple_of(u64::from(self.scale))
    }

    /// Scores the candidates, and follows another if it is better.
    fn judge(&mut self) {
        self.until = interval(self.around.capacity);
        for ghost in &mut self.ghosts {
            ghost.judge(KEPT);
        }
        let scores = |candidate: usize| self.ghosts[candidate].scores;
        let now = scores(self.leader);
        self.judged = self.judged * KEPT[0] + 1.0;
        let change = if MERGING.contains(&self.around.ftl.name()) {
            MERGES
        } else {
            ERASES + JUDGEMENTS_COST * now[0] / self.judged
        };
        let better = |candidate: usize, past: usize| {
            scores(candidate)[past] < now[past] * (1.0 - BETTER[past]) - change
        };
        let best = |past: usize| {
            let all = 0..self.ghosts.len();
            let best = all.min_by(|a, b| scores(*a)[past].total_cmp(&scores(*b)[past]));
            best.expect("there are candidates")
        };
        // What the long past prefers must not be worse now.
        let (short, long) = (best(0), best(1));
        if better(short, 0) {
            self.follow(short);
        } else if better(long, 1) && scores(long)[0] <= now[0] {
            self.follow(long);
        }
    }

    fn follow(&mut self, candidate: usize) {
        let Ok(mut next) = build(&self.candidates[candidate], &self.around) else {
            unreachable!("each candidate was built for its ghost")
        };
        self.real.drain(&mut self.held);
        let mut none = Outgoing::default();
        for (lpn, how) in self.held.pages.drain(..) {
            // Pads are what the old policy would have added on the way to the flash.
            if how == Leave::Dirty {
                next.write(lpn, &mut none);
            }
        }
        debug_assert!(none.pages.is_empty(), "what one holds, the other can");
        self.real = next;
        self.leader = candidate;
    }

    fn note(&mut self, left: &[(Lpn, Leave)]) {
        for (lpn, how) in left {
            if *how == Leave::Dirty {
                self.on_flash[*lpn as usize / 64] |= 1 << (lpn % 64);
            }
        }
    }
}

/// Whether a page's bit is set. Pages beyond the last have none.
fn has(bits: &[u64], lpn: Lpn) -> bool {
    let word = bits.get(lpn as usize / 64);
    word.is_some_and(|word| word & 1 << (lpn % 64) != 0)
}

impl Buffer for Adaptive {
    fn spec(&self) -> Spec {
        Spec::plain("adaptive")
    }

    fn capacity(&self) -> usize {
        self.real.capacity()
    }

    fn len(&self) -> usize {
        self.real.len()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.real.contains(lpn)
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        if self.sampled(lpn) {
            let on_flash = |lpn| has(&self.on_flash, lpn);
            for ghost in &mut self.ghosts {
                ghost.write(lpn, &on_flash);
            }
        }
        self.until -= 1;
        if self.until == 0 {
            self.judge();
        }
        let before = out.pages.len();
        let hit = self.real.write(lpn, out);
        self.note(&out.pages[before..]);
        hit
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        self.real.read(lpn)
    }

    fn trim(&mut self, lpn: Lpn) {
        if self.sampled(lpn) {
            for ghost in &mut self.ghosts {
                ghost.trim(lpn);
            }
        }
        self.on_flash[lpn as usize / 64] &= !(1 << (lpn % 64));
        self.real.trim(lpn);
    }

    fn drain(&mut self, out: &mut Outgoing) {
        let on_flash = |lpn| has(&self.on_flash, lpn);
        for ghost in &mut self.ghosts {
            ghost.drain(&on_flash);
        }
        let before = out.pages.len();
        self.real.drain(out);
        self.note(&out.pages[before..]);
    }

    fn table_bytes(&self) -> u64 {
        let ghosts: u64 = self.ghosts.iter().map(Ghost::bytes).sum();
        self.real.table_bytes() + ghosts + 8 * self.on_flash.len() as u64
    }
}
