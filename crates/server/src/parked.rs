// SPDX-License-Identifier: Apache-2.0
//! Parked shards: while a worker waits for events, other workers answer gets from its shard's DRAM,
//! and need not wake it.
//!
//! ```text
//!  the shard's worker | round | park -- poll (submit, send, sleep) -- take | round | park ...
//!  another worker                      look: lookup, answer
//! ```
//! A worker spends most of its time in the kernel, and all of it where it has nothing to do: then
//! its shard is parked. Another worker that finds the shard gone hands the command over
//! (`route.rs`). The owner is awake then, so that costs least.
//!
//! - PARK-1. A shard is its worker's, or it is parked, under the lock. A parked shard is whole: no
//!   change is half done at the end of a round.
//! - PARK-2. The reader only changes the state that a lookup and a hit change, and the mark that a
//!   meta get won. It allocates nothing, submits no operations and takes no pin. So the worker that
//!   takes its shard back waits for the copy of one value at most, and no new reader begins
//!   meanwhile.
//! - PARK-3. The reader has seen the latest flush that was acknowledged, or it does not answer. A
//!   parked shard comes with the number of flushes that it has applied.
//! - PARK-4. A session looks only while none of its own commands is on its way to that shard. So it
//!   reads its own writes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use senko_cache::Shard;

/// The place of one worker's parked shard. It has cache lines of its own, since all workers write
/// it.
#[derive(Default)]
#[repr(align(128))]
pub struct Parked {
    /// Whether a look is worth its lock: the shard lies there, and its worker does not want it
    /// back. Only a hint.
    open: AtomicBool,
    place: Mutex<Option<Inside>>,
}

struct Inside {
    shard: Box<Shard>,
    /// How many `flush_all` it has applied.
    flushes: u64,
}

impl Parked {
    fn place(&self) -> MutexGuard<'_, Option<Inside>> {
        // After a panic the server is about to end; the shard's worker may still save what it has.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the shard there. It has applied this many flushes.
    pub fn park(&self, shard: &mut OwnShard, flushes: u64) {
        *self.place() = shard.0.take().map(|shard| Inside { shard, flushes });
        self.open.store(true, Ordering::Relaxed);
    }

    /// Takes it back, from who looks just now when that one has done.
    pub fn take(&self, shard: &mut OwnShard) {
        self.open.store(false, Ordering::Relaxed);
        if let Some(inside) = self.place().take() {
            shard.0 = Some(inside.shard);
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

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

/// A shard that is parked, for as long as this is held.
pub struct Look<'a>(MutexGuard<'a, Option<Inside>>);

impl Look<'_> {
    /// How many flushes it has applied, and the shard.
    #[inline]
    pub fn parts(&mut self) -> (u64, &mut Shard) {
        let inside = self.0.as_mut().expect("it lay there when this was made");
        (inside.flushes, &mut inside.shard)
    }
}

/// A worker's own shard; not there while it is parked.
#[derive(Debug)]
pub struct OwnShard(Option<Box<Shard>>);

impl From<Shard> for OwnShard {
    fn from(shard: Shard) -> OwnShard {
        OwnShard(Some(Box::new(shard)))
    }
}

impl Deref for OwnShard {
    type Target = Shard;
    #[inline]
    fn deref(&self) -> &Shard {
        self.0.as_ref().expect(HELD)
    }
}

impl DerefMut for OwnShard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        self.0.as_mut().expect(HELD)
    }
}

const HELD: &str = "a worker uses its shard only between taking and parking it";
