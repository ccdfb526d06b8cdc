// SPDX-License-Identifier: Apache-2.0
//! Where a worker's shard lies while the worker waits for its loop, so that others can read from it what is in DRAM instead of waking the worker.
//!
//! ```text
//!  worker of the shard   | round | lay -- poll (submits, sends, sleeps) -- take | round | lay -- ...
//!  another worker                          look: lookup, answer
//! ```
//! A worker spends most of its time in the kernel, and all of it where it has nothing to do: then its shard is there. Whoever finds it gone hands the
//! command over (`route.rs`) to a worker that is awake, which is when that costs least.
//!
//! - H1. A shard is its worker's, or lies on its shelf under the lock. It is whole there: a round has no half of a change at its end.
//! - H2. Who looks changes nothing but what a lookup and a hit change and the mark that a meta get won, allocates nothing, asks no device and takes no pin. So the worker waits for no
//!   longer than a value's copying when it takes its shard back; from when it wants it, nobody begins to look.
//! - H3. Who looks has seen the latest flush that was acknowledged, or does not answer: the shelf says how many the shard has applied.
//! - H4. A session looks only where none of its own commands is on its way to that shard: it reads its own writes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use senko_cache::Shard;

/// The place of one worker's shard; alone in its cache lines, which all workers write.
#[derive(Default)]
#[repr(align(128))]
pub struct Shelf {
    /// Whether a look is worth its lock: the shard lies there, and its worker does not want it back. Only a hint.
    open: AtomicBool,
    place: Mutex<Option<Lying>>,
}

struct Lying {
    shard: Box<Shard>,
    /// How many `flush_all` it has applied.
    flushes: u64,
}

impl Shelf {
    fn place(&self) -> MutexGuard<'_, Option<Lying>> {
        // After a panic the server is about to end; the shard's worker may still save what it has.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the shard there. It has applied so many flushes.
    pub fn lay(&self, shard: &mut Held, flushes: u64) {
        *self.place() = shard.0.take().map(|shard| Lying { shard, flushes });
        self.open.store(true, Ordering::Relaxed);
    }

    /// Takes it back, from who looks just now when that one has done.
    pub fn take(&self, shard: &mut Held) {
        self.open.store(false, Ordering::Relaxed);
        if let Some(lying) = self.place().take() {
            shard.0 = Some(lying.shard);
        }
    }

    /// The shard, if it lies there and nobody else looks at it.
    #[inline]
    pub fn look(&self) -> Option<Look<'_>> {
        if !self.open.load(Ordering::Relaxed) {
            return None;
        }
        let place = self.place.try_lock().ok()?;
        place.is_some().then_some(Look(place))
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shelf")
    }
}

/// A shard that lies on its shelf, for as long as this is held.
pub struct Look<'a>(MutexGuard<'a, Option<Lying>>);

impl Look<'_> {
    /// How many flushes it has applied, and the shard.
    #[inline]
    pub fn parts(&mut self) -> (u64, &mut Shard) {
        let lying = self.0.as_mut().expect("it lay there when this was made");
        (lying.flushes, &mut lying.shard)
    }
}

/// A worker's own shard; not there while it lies on its shelf.
#[derive(Debug)]
pub struct Held(Option<Box<Shard>>);

impl From<Shard> for Held {
    fn from(shard: Shard) -> Held {
        Held(Some(Box::new(shard)))
    }
}

impl Deref for Held {
    type Target = Shard;
    #[inline]
    fn deref(&self) -> &Shard {
        self.0.as_ref().expect(HELD)
    }
}

impl DerefMut for Held {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        self.0.as_mut().expect(HELD)
    }
}

const HELD: &str = "a worker uses its shard only between taking and laying it";
