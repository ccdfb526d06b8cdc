// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker: sockets, and the virtual ones over which other workers send commands for this shard.
//!
//! A connection is named by a [`ConnKey`] (slot and generation), so that a completion that comes after its connection is
//! gone finds nothing. Sockets are found from the loop's [`ConnId`], virtual ones from who asks.
//!
//! Always holds: a key is never used twice in the life of a worker (the generation moves on when a slot is freed); the run
//! queue, the dirty list and the blocked list name a connection at most once each (its flags say so).

use std::collections::HashMap;

use senko_io::ConnId;

use crate::session::Session;

/// A connection's name within its worker: generation in the upper 32 bits, slot in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnKey(pub u64);

/// Where a virtual connection comes from: the asking worker, and the connection's key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The asking worker.
    pub worker: usize,
    /// The connection there.
    pub key: ConnKey,
}

/// What a connection's answers go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A socket of this worker's loop.
    Socket(ConnId),
    /// A connection of another worker.
    Virtual(Origin),
}

/// One connection.
pub struct Conn {
    pub link: Link,
    pub session: Session,
    /// Received bytes that the session has not consumed; those before `tail_start` it has.
    pub tail: Vec<u8>,
    pub tail_start: usize,
    /// Clock (ms) of the last bytes received.
    pub last_active: u64,
    /// The loop was told to receive.
    pub receiving: bool,
    /// A batch is in the loop.
    pub sending: bool,
    /// Clock (ms) at which the batch in the loop was found not to fit the socket's buffer; 0: it was not.
    pub slow_since: u64,
    /// Bytes of the slow batch in the loop that were copied for it.
    pub copied: usize,
    /// Bytes of memory used for it, as counted in the worker's sum.
    pub held: usize,
    /// Bytes of pinned memory that a slow batch in the loop refers to.
    pub pinned: usize,
    /// The session stopped for lack of memory; it is tried again after the next disk completion or tick.
    pub blocked: bool,
    /// In the run queue.
    pub queued: bool,
    /// In the dirty list.
    pub dirty: bool,
    /// Too much is unanswered: the session is not fed until it is less.
    pub throttled: bool,
    /// The peer will send no more.
    pub ended: bool,
    /// No more input is taken; what is ready or under way is sent, then the connection is closed.
    pub closing: bool,
    /// The row of `stats conns`.
    pub entry: Option<std::sync::Arc<crate::shared::ConnEntry>>,
}

impl Conn {
    pub fn new(link: Link, session: Session, now: u64) -> Conn {
        Conn {
            link,
            session,
            tail: Vec::new(),
            tail_start: 0,
            last_active: now,
            receiving: true,
            sending: false,
            slow_since: 0,
            copied: 0,
            held: 0,
            pinned: 0,
            blocked: false,
            queued: false,
            dirty: false,
            throttled: false,
            ended: false,
            closing: false,
            entry: None,
        }
    }

    /// Bytes received and not consumed.
    pub fn unread(&self) -> usize {
        self.tail.len() - self.tail_start
    }

    /// Notes that the session consumed so much of the tail.
    pub fn consume(&mut self, bytes: usize) {
        self.tail_start += bytes;
        if self.tail_start == self.tail.len() {
            self.tail.clear();
            self.tail_start = 0;
            if self.tail.capacity() > KEPT_TAIL {
                self.tail = Vec::new();
            }
        } else if self.tail_start > self.tail.len() / 2 {
            self.tail.drain(..self.tail_start);
            self.tail_start = 0;
        }
    }
}

/// Capacity that an empty tail keeps: the start of a request line, not a whole receive buffer.
const KEPT_TAIL: usize = 512;

struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

/// The table.
#[derive(Default)]
pub struct Conns {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slot of each socket, by the slot number in its `ConnId`.
    sockets: Vec<Option<ConnKey>>,
    virtuals: HashMap<Origin, ConnKey>,
    open_sockets: usize,
}

impl Conns {
    /// The key that the next [`Conns::insert`] will give: a session is made with it.
    pub fn next_key(&self) -> ConnKey {
        match self.free.last() {
            Some(&slot) => key(self.slots[slot as usize].generation, slot),
            None => key(0, self.slots.len() as u32),
        }
    }

    /// Takes a connection in.
    pub fn insert(&mut self, conn: Conn) -> ConnKey {
        let at = self.next_key();
        match conn.link {
            Link::Socket(id) => {
                let slot = id.0 as u32 as usize;
                if self.sockets.len() <= slot {
                    self.sockets.resize(slot + 1, None);
                }
                self.sockets[slot] = Some(at);
                self.open_sockets += 1;
            }
            Link::Virtual(origin) => {
                self.virtuals.insert(origin, at);
            }
        }
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize].conn = Some(Box::new(conn)),
            None => self.slots.push(Slot { generation: 0, conn: Some(Box::new(conn)) }),
        }
        at
    }

    /// The connection of that name, unless it is gone.
    #[inline]
    pub fn get(&mut self, at: ConnKey) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(at.0 as u32 as usize)?;
        if slot.generation != (at.0 >> 32) as u32 {
            return None;
        }
        slot.conn.as_deref_mut()
    }

    /// The connection on a socket.
    #[inline]
    pub fn of_socket(&mut self, id: ConnId) -> Option<ConnKey> {
        let at = (*self.sockets.get(id.0 as u32 as usize)?)?;
        // The slot of the loop may have been given to another since.
        (self.get(at)?.link == Link::Socket(id)).then_some(at)
    }

    /// The connection that serves another worker's.
    pub fn of_origin(&self, origin: Origin) -> Option<ConnKey> {
        self.virtuals.get(&origin).copied()
    }

    /// Takes a connection out.
    pub fn remove(&mut self, at: ConnKey) -> Option<Box<Conn>> {
        self.get(at)?;
        let slot = &mut self.slots[at.0 as u32 as usize];
        let conn = slot.conn.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(at.0 as u32);
        match conn.link {
            Link::Socket(id) => {
                self.sockets[id.0 as u32 as usize] = None;
                self.open_sockets -= 1;
            }
            Link::Virtual(origin) => {
                self.virtuals.remove(&origin);
            }
        }
        Some(conn)
    }

    /// Sockets open.
    pub fn open_sockets(&self) -> usize {
        self.open_sockets
    }

    /// All connections.
    pub fn iter(&mut self) -> impl Iterator<Item = (ConnKey, &mut Conn)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let at = key(slot.generation, index as u32);
            slot.conn.as_deref_mut().map(|conn| (at, conn))
        })
    }
}

fn key(generation: u32, slot: u32) -> ConnKey {
    ConnKey(u64::from(generation) << 32 | u64::from(slot))
}
