// SPDX-License-Identifier: Apache-2.0
//! Parked shards: while a worker waits for events, other workers answer gets from its shards' DRAM,
//! or look up where an item lies on flash and read it themselves (`afar.rs`). They need not wake
//! it. All shards of a worker are parked together, under one lock.
//!
//! ```text
//!  the shard's worker | round | park -- poll (submit, send, sleep) -- take | round | park ...
//!  another worker                      look: lookup, answer or place on flash
//! ```
//! A worker spends most of its time in the kernel, and all of it if it has no work. During that
//! time its shards are parked. If another worker does not find a shard, it sends the command to the
//! owner (`route.rs`). The owner is awake then, so this is cheap.
//!
//! - PARK-1. A shard is either with its worker, or parked under the lock. A parked shard is
//!   consistent: no change is half done at the end of a round.
//! - PARK-2. The reader only changes the state that a lookup and a hit change, and the mark that a
//!   meta get won. It allocates nothing, takes no pin, and submits nothing before it has left the
//!   shard. So a worker that takes its shard back waits at most for the copy of one value, and no
//!   new reader begins meanwhile.
//! - PARK-3. A reader answers only if the shards have applied the latest acknowledged flush and
//!   `stats reset`. Parked shards come with the numbers of those that they have applied.
//! - PARK-4. A session reads parked shards only while none of its own commands is on its way to
//!   their worker. So it reads its own writes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::shards::Shards;

/// The place of one worker's parked shards. It has cache lines of its own, since all workers write
/// it.
#[derive(Default)]
#[repr(align(128))]
pub struct Parked {
    /// Whether taking the lock may be worth it: the shards are parked, and their worker does not
    /// want them back. This is only a hint.
    open: AtomicBool,
    place: Mutex<Option<Inside>>,
}

struct Inside {
    shards: Box<Shards>,
    applied: Applied,
}

/// The requests to all shards that a worker's shards have applied.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// How many `flush_all`.
    pub flushes: u64,
    /// How many `stats reset`.
    pub resets: u64,
}

impl Parked {
    fn place(&self) -> MutexGuard<'_, Option<Inside>> {
        // After a panic the server is about to end; their worker may still save its state.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks the shards, which have applied these.
    pub fn park(&self, own: &mut OwnShards, applied: Applied) {
        *self.place() = own.0.take().map(|shards| Inside { shards, applied });
        self.open.store(true, Ordering::Relaxed);
    }

    /// Takes the shards back. If another worker is reading one, this waits until that worker is
    /// done.
    pub fn take(&self, own: &mut OwnShards) {
        self.open.store(false, Ordering::Relaxed);
        if let Some(inside) = self.place().take() {
            own.0 = Some(inside.shards);
        }
    }

    /// The shards, if they are parked and no other worker is reading one.
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

/// A worker's parked shards, which nobody else can use while this exists.
pub struct Look<'a>(MutexGuard<'a, Option<Inside>>);

impl Look<'_> {
    /// The requests that the shards have applied, and the shards.
    #[inline]
    pub fn parts(&mut self) -> (Applied, &mut Shards) {
        let inside = self.0.as_mut().expect("they lay there when this was made");
        (inside.applied, &mut inside.shards)
    }
}

/// A worker's own shards; absent while they are parked.
#[derive(Debug)]
pub struct OwnShards(Option<Box<Shards>>);

impl From<Shards> for OwnShards {
    fn from(shards: Shards) -> OwnShards {
        OwnShards(Some(Box::new(shards)))
    }
}

impl Deref for OwnShards {
    type Target = Shards;
    #[inline]
    fn deref(&self) -> &Shards {
        self.0.as_ref().expect(HELD)
    }
}

impl DerefMut for OwnShards {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shards {
        self.0.as_mut().expect(HELD)
    }
}

const HELD: &str = "a worker uses its shards only between taking and parking them";
