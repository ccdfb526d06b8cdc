// SPDX-License-Identifier: Apache-2.0
//! The table of connections, which both backends use. Slots are reused, connection numbers are not.
//!
//! A [`ConnId`] is a slot number and the slot's generation. The generation changes when a slot is
//! freed, so a stale number finds nothing. A backend frees a slot only after the last operation on
//! its descriptor ended.

use std::io;

use crate::{ConnId, counted};

/// Ends the free list.
const NONE: u32 = u32::MAX;

struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

pub(crate) struct Conns<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    /// Connections that are not closing.
    open: usize,
    most: usize,
}

impl<T> Conns<T> {
    pub(crate) fn new(most: usize) -> Conns<T> {
        Conns {
            slots: Vec::with_capacity(most.min(1 << 16)),
            free: NONE,
            open: 0,
            most,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> io::Result<ConnId> {
        if self.open >= self.most {
            let text = format!(
                "{} open, the most that this loop takes",
                counted(self.open, "connection")
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        self.open += 1;
        if self.free == NONE {
            self.slots.push(Slot {
                generation: 0,
                next_free: NONE,
                value: Some(value),
            });
            return Ok(id((self.slots.len() - 1) as u32, 0));
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.value = Some(value);
        Ok(id(index, slot.generation))
    }

    /// The connection with this number, unless its slot was freed since.
    pub(crate) fn get(&mut self, conn: ConnId) -> Option<&mut T> {
        let slot = self.slots.get_mut(conn.0 as u32 as usize)?;
        if slot.generation != (conn.0 >> 32) as u32 {
            return None;
        }
        slot.value.as_mut()
    }

    /// The connection in a slot, and its number.
    pub(crate) fn at(&mut self, index: u32) -> Option<(ConnId, &mut T)> {
        let slot = self.slots.get_mut(index as usize)?;
        let conn = id(index, slot.generation);
        slot.value.as_mut().map(|value| (conn, value))
    }

    /// Notes that a connection began to close: it no longer counts against the limit.
    pub(crate) fn closing(&mut self) {
        self.open -= 1;
    }

    /// Frees the slot of a closing connection.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        let index = conn.0 as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != (conn.0 >> 32) as u32 {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.free;
        self.free = index;
        Some(value)
    }

    /// Slots, used or not.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
}

fn id(index: u32, generation: u32) -> ConnId {
    ConnId(u64::from(generation) << 32 | u64::from(index))
}
