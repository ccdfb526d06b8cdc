// SPDX-License-Identifier: Apache-2.0
//! The adaptive buffer: does what costs this drive the fewest erases under the present load, and needs no setting.
//!
//! Idea: each of a few policies ([`CANDIDATES`]) runs as a ghost, which holds page numbers alone, above a small copy of the very translation layer that lies below ([`ghost`]). All see the
//! host's writes. Every so many writes the erases that each candidate brought its copy are added to its score, in which older ones count less and less; the buffer follows the candidate with the
//! lowest score. To change, the pages held go over into the new policy in the order in which the old one would have let them go; nothing is written for it.
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
/// What remains of a score from one judgement to the next.
const KEPT: f64 = 0.995;
/// A candidate is followed if its score is lower than the present one's by this share,
const BETTER: f64 = 0.005;
/// and by so many erases: about what the change itself may cost.
const BETTER_ERASES: f64 = 4.0;

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
    changes: u64,
    /// A bit for each logical page: whether it has left the buffer for the flash, and was not trimmed since.
    on_flash: Vec<u64>,
    held: Outgoing,
}

pub(super) fn make(_: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let scale = (around.capacity / GHOST_PAGES).max(1) as u32;
    let candidates = CANDIDATES
        .iter()
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
        changes: 0,
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
        let score = |candidate: usize| self.ghosts[candidate].score;
        let best = (0..self.ghosts.len()).min_by(|a, b| score(*a).total_cmp(&score(*b)));
        let best = best.expect("there are candidates");
        if score(best) < score(self.leader) * (1.0 - BETTER) - BETTER_ERASES {
            self.follow(best);
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
        self.changes += 1;
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
