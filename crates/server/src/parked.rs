// SPDX-License-Identifier: Apache-2.0
//! Parked shards: while a worker waits for events, other workers answer gets from its shard's DRAM,
//! or look up where an item lies on flash and read it themselves (`afar.rs`). They need not wake
//! it.
//!
//! ```text
//!  the shard's worker | round | park -- poll (submit, send, sleep) -- take | round | park ...
//!  another worker                      look: lookup, answer or place on flash
//! ```
//! A worker spends most of its time in the kernel, and all of it if it has no work. During that
//! time its shard is parked. If another worker does not find the shard, it sends the command to the
//! owner (`route.rs`). The owner is awake then, so this is cheap.
//!
//! - PARK-1. A shard is either with its worker, or parked under the lock. A parked shard is
//!   consistent: no change is half done at the end of a round.
//! - PARK-2. The reader only changes the state that a lookup and a hit change, and the mark that a
//!   meta get won. It allocates nothing, takes no pin, and submits nothing before it has left the
//!   shard. So a worker that takes its shard back waits at most for the copy of one value, and no
//!   new reader begins meanwhile.
//! - PARK-3. A reader answers only if the shard has applied the latest acknowledged flush and
//!   `stats reset`. A parked shard comes with the numbers of those that it has applied.
//! - PARK-4. A session reads a parked shard only while none of its own commands is on its way to
//!   that shard. So it reads its own writes.

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
    /// Whether taking the lock may be worth it: the shard is parked, and its worker does not want
    /// it back. This is only a hint.
    open: AtomicBool,
    place: Mutex<Option<Inside>>,
}

struct Inside {
    shard: Box<Shard>,
    applied: Applied,
}

/// The requests to all shards that a shard has applied.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// How many `flush_all`.
    pub flushes: u64,
    /// How many `stats reset`.
    pub resets: u64,
}

impl Parked {
    fn place(&self) -> MutexGuard<'_, Option<Inside>> {
        // After a panic the server is about to end; the shard's worker may still save its state.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks the shard, which has applied these.
    pub fn park(&self, shard: &mut OwnShard, applied: Applied) {
        *self.place() = shard.0.take().map(|shard| Inside { shard, applied });
        self.open.store(true, Ordering::Relaxed);
    }

    /// Takes the shard back. If another worker is reading it, this waits until that worker is done.
    pub fn take(&self, shard: &mut OwnShard) {
        self.open.store(false, Ordering::Relaxed);
        if let Some(inside) = self.place().take() {
            shard.0 = Some(inside.shard);
        }
    }

    /// The shard, if it is parked and no other worker is reading it.
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

/// A parked shard, which nobody else can use while this exists.
pub struct Look<'a>(MutexGuard<'a, Option<Inside>>);

impl Look<'_> {
    /// The requests that the shard has applied, and the shard.
    #[inline]
    pub fn parts(&mut self) -> (Applied, &mut Shard) {
        let inside = self.0.as_mut().expect("it lay there when this was made");
        (inside.applied, &mut inside.shard)
    }
}

/// A worker's own shard; absent while it is parked.
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
