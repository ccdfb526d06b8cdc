// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker: sockets, and the virtual ones over which other workers send
//! commands for this shard.
//!
//! A connection is named by a [`ConnKey`] (slot and generation), so a completion after the
//! connection's end finds nothing. Sockets are found by the loop's [`ConnId`], virtual connections
//! by their owner.
//!
//! Always holds: a key finds the connection for which it was made, or none, since the generation
//! changes when a slot is freed. The run queue and the dirty list name a connection at most once
//! each, as its flags say.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::RawFd;
use std::sync::Arc;

use senko_io::ConnId;

use super::accounts::{Account, Sums};
use super::secure::Secure;
use crate::connection::{ConnKey, GENERATION_BITS, RemoteConn, SLOT_MASK};
use crate::session::{PARKED_BYTES, Session, Wait};
use crate::shared::ConnEntry;
use crate::watch;

/// The destination of a connection's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Socket(ConnId),
    /// A connection of another worker.
    Virtual(RemoteConn),
}

/// A set of shards, or of workers. With more than 64 of them, several share a bit.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberSet(u64);

impl NumberSet {
    pub fn add(&mut self, number: usize) {
        self.0 |= 1 << (number % 64);
    }
    pub fn has(self, number: usize) -> bool {
        self.0 >> (number % 64) & 1 != 0
    }
    pub fn meets(self, other: NumberSet) -> bool {
        self.0 & other.0 != 0
    }
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

pub struct Conn {
    pub link: Link,
    pub session: Session,
    /// Received bytes; the session has consumed those before `tail_start`.
    pub tail: Vec<u8>,
    pub tail_start: usize,
    /// Clock (ms) of the last bytes received.
    pub last_active: u64,
    /// Whether the loop receives from it.
    pub receiving: bool,
    /// Whether a batch is in the loop (for a virtual connection: on the lent socket).
    pub sending: bool,
    /// Clock (ms) at which the batch in the loop did not fit into the socket's buffer; 0: it fits
    /// so far.
    pub slow_since: u64,
    /// Memory of the slow batch in the loop, and of what waits behind it.
    pub copied: usize,
    /// Memory of the batch in the loop, and of what waits behind it.
    pub in_batch: usize,
    /// The account at its last count.
    account: Account,
    /// Bytes of pinned memory in a slow batch in the loop, and the workers that they belong to.
    pub lent: usize,
    pub lent_of: NumberSet,
    /// The shard to whose worker the socket is lent.
    pub lent_to: Option<usize>,
    /// Whether something waits for the return of the socket: then it is in the worker's list of
    /// those.
    pub needed: bool,
    /// The socket that was lent to this worker with the oldest command (virtual connections only).
    pub borrowed: Option<RawFd>,
    /// The event that the session waits for before it takes more bytes.
    pub wait: Option<Wait>,
    /// Whether the incomplete value ends here, once everything before it was fed (virtual
    /// connections only).
    pub value_ends: bool,
    pub queued: bool,
    pub dirty: bool,
    /// Whether it sent much to a worker that is behind: no more input is taken until that worker
    /// has caught up.
    pub paused: bool,
    /// How many workers have unread commands of it that must wait: meanwhile no more input is
    /// taken.
    pub holds: usize,
    /// Whether the worker that sends its commands was told to wait (virtual connections only).
    pub holds_origin: bool,
    /// Whether its answers wait until the requesting worker takes them (virtual connections only).
    pub held_back: bool,
    /// Whether the peer will send no more.
    pub ended: bool,
    /// Its TLS state; `None`: it is not encrypted.
    pub tls: Option<Box<Secure>>,
    /// Whether it is closing: it takes no more input, and closes after the answers that are ready
    /// or under way were sent.
    pub closing: bool,
    pub entry: Option<Arc<ConnEntry>>,
    /// Whether the worker knows that it watches.
    pub watches: bool,
    /// Why it is closed, if neither client nor server simply ended it.
    pub reason: Option<&'static str>,
    /// The number of that row: the descriptor, or the client's for a virtual connection.
    pub fd: u64,
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
            in_batch: 0,
            account: Account::default(),
            lent: 0,
            lent_of: NumberSet::default(),
            lent_to: None,
            needed: false,
            borrowed: None,
            wait: None,
            value_ends: false,
            queued: false,
            dirty: false,
            paused: false,
            holds: 0,
            holds_origin: false,
            held_back: false,
            ended: false,
            tls: None,
            closing: false,
            watches: false,
            reason: None,
            entry: None,
            fd: 0,
        }
    }

    /// Notes that its batch was sent, all of it.
    pub fn was_sent(&mut self, now_ms: u64) {
        (self.lent, self.lent_of) = (0, NumberSet::default());
        (self.copied, self.sending) = (0, false);
        let slow = std::mem::take(&mut self.slow_since) != 0;
        if let Some(window) = self.session.replies().window() {
            window.pace(slow);
        }
        self.last_active = now_ms;
    }

    /// Whether input would be passed to the session at once.
    pub fn takes_input(&self) -> bool {
        self.wait.is_none() && !self.queued && !self.is_stopped()
    }

    /// The bytes of the worker that it holds, at the last count.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Counts the bytes of the worker that it holds. `usual_answer` is the assumed size of an
    /// answer from another worker that has not arrived.
    pub fn counted(&mut self, usual_answer: usize) -> Account {
        // Frames are counted elsewhere.
        let (owned, ready) = self.session.replies().owned_memory();
        let slow = self.slow_since != 0;
        let (waiting, leaving) = match self.link {
            Link::Socket(_) if slow => (self.session.foreign(), 0),
            Link::Socket(_) => (self.session.foreign(), self.in_batch + ready),
            Link::Virtual(_) => (0, 0),
        };
        // An answer read for another worker is copied out of its frame before it leaves.
        let copies = match self.link {
            Link::Socket(_) => 0,
            Link::Virtual(_) => owned + self.in_batch + self.session.copies(),
        };
        let commands =
            self.session.parked() * PARKED_BYTES + self.session.copies() + self.session.tables();
        let (queued, answers, pinned) = if slow {
            let queued = self.session.replies().pinned();
            let queued: usize = queued.map(|(len, _)| len).sum();
            (owned, 0, self.lent + queued)
        } else {
            (0, owned + self.in_batch, 0)
        };
        let memory = self.unread_memory() + self.session.watcher().map_or(0, |_| watch::BUFFER);
        let ciphered = self.tls.as_ref().map_or(0, |tls| tls.held());
        Account {
            held: memory + ciphered + self.copied + queued,
            backlog: if self.has_backlog() { memory } else { 0 },
            answers: answers + waiting * usual_answer + commands,
            leaving,
            copies,
            pinned,
        }
    }

    /// Whether its unread bytes are requests that wait. Bytes that wait for the rest of a request,
    /// or for a slow reader, do not count as a backlog.
    pub fn has_backlog(&self) -> bool {
        !self.takes_input() && self.slow_since == 0
    }

    /// Whether another worker must catch up before more input is taken.
    pub fn is_stopped(&self) -> bool {
        self.paused || self.holds > 0
    }

    /// Whether feeding the session would do nothing: it waits for bytes, and there are none.
    pub fn is_read_out(&self) -> bool {
        self.takes_input()
            && self.unread() == 0
            && !self.ended
            && !self.closing
            && self.session.is_idle()
    }

    pub fn is_socket(&self) -> bool {
        matches!(self.link, Link::Socket(_))
    }

    /// Whether bytes besides the session's answers are still to be sent.
    pub fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Whether a handshake waits for its turn and has enough bytes.
    pub fn is_full(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_full())
    }

    /// Bytes received and not consumed.
    pub fn unread(&self) -> usize {
        self.tail.len() - self.tail_start
    }

    /// Memory that the unread bytes take.
    pub fn unread_memory(&self) -> usize {
        match self.unread() {
            0 => 0,
            _ => self.tail.capacity(),
        }
    }

    pub fn append(&mut self, data: &[u8]) {
        if self.tail.capacity() - self.tail.len() < data.len() {
            self.drop_consumed();
            // Uses few sizes, because an allocator keeps memory for each size separately.
            let bytes = (self.tail.len() + data.len()).next_power_of_two();
            self.tail.reserve_exact(bytes - self.tail.len());
        }
        self.tail.extend_from_slice(data);
    }

    /// Notes that the session consumed this many bytes of the tail.
    pub fn consume(&mut self, bytes: usize) {
        self.tail_start += bytes;
        if self.tail_start > self.tail.len() / 2 {
            self.drop_consumed();
            // When most of a burst was read, the buffer gives up the burst's memory.
            let kept = self.tail.len().next_power_of_two().max(KEPT_TAIL);
            if self.tail.capacity() > 2 * kept {
                self.tail.shrink_to(kept);
            }
        }
    }

    fn drop_consumed(&mut self) {
        self.tail.drain(..self.tail_start);
        self.tail_start = 0;
    }
}

/// An empty tail keeps at most twice this capacity: room for the start of a request line, not for a
/// whole receive buffer.
const KEPT_TAIL: usize = 512;

/// A map whose keys this program numbers itself.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes a [`RemoteConn`] and similar keys. They are numbers from this program, so no attacker
/// chooses them.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u64(u64::from(byte)));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29);
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

#[derive(Default)]
pub struct Conns {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The slot of each socket, by the slot number in its `ConnId`.
    sockets: Vec<Option<ConnKey>>,
    virtuals: ByNumber<RemoteConn, ConnKey>,
    sums: Sums,
}

impl Conns {
    /// The bytes of the worker that all connections hold, at their last counts.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    pub fn count(&mut self, at: ConnKey, account: Account) {
        if let Some(conn) = self.get(at) {
            let virtual_one = !conn.is_socket();
            let before = std::mem::replace(&mut conn.account, account);
            self.sums.follow(virtual_one, before, account);
        }
    }

    pub fn insert(&mut self, conn: Conn) -> ConnKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                conn: None,
            });
            self.slots.len() - 1
        });
        debug_assert!(slot as u64 <= SLOT_MASK);
        let at = ConnKey::new(self.slots[slot].generation, slot);
        match conn.link {
            Link::Socket(id) => {
                let slot = id.0 as u32 as usize;
                if self.sockets.len() <= slot {
                    self.sockets.resize(slot + 1, None);
                }
                self.sockets[slot] = Some(at);
            }
            Link::Virtual(origin) => {
                self.virtuals.insert(origin, at);
            }
        }
        self.slots[slot].conn = Some(Box::new(conn));
        at
    }

    /// The connection with that name, unless it is gone.
    #[inline]
    pub fn get(&mut self, at: ConnKey) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(at.slot())?;
        if slot.generation != at.generation() {
            return None;
        }
        slot.conn.as_deref_mut()
    }

    #[inline]
    pub fn of_socket(&mut self, id: ConnId) -> Option<ConnKey> {
        let at = (*self.sockets.get(id.0 as u32 as usize)?)?;
        // The loop may have given the slot to another connection since.
        (self.get(at)?.link == Link::Socket(id)).then_some(at)
    }

    /// The connection that serves another worker's connection.
    pub fn of_origin(&self, origin: RemoteConn) -> Option<ConnKey> {
        self.virtuals.get(&origin).copied()
    }

    pub fn remove(&mut self, at: ConnKey) -> Option<Box<Conn>> {
        self.get(at)?;
        let slot = &mut self.slots[at.slot()];
        let conn = slot.conn.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(at.slot());
        self.sums
            .follow(!conn.is_socket(), conn.account, Account::default());
        match conn.link {
            Link::Socket(id) => {
                self.sockets[id.0 as u32 as usize] = None;
            }
            Link::Virtual(origin) => {
                self.virtuals.remove(&origin);
            }
        }
        Some(conn)
    }

    pub fn iter(&mut self) -> impl Iterator<Item = (ConnKey, &mut Conn)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| {
                let at = ConnKey::new(slot.generation, index);
                slot.conn.as_deref_mut().map(|conn| (at, conn))
            })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    fn conn(link: Link) -> Conn {
        Conn::new(link, Session::new(None), 0)
    }

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut conns = Conns::default();
        let first = conns.insert(conn(Link::Socket(ConnId(5))));
        assert_eq!(conns.of_socket(ConnId(5)), Some(first));
        conns.remove(first);
        let second = conns.insert(conn(Link::Socket(ConnId(1 << 32 | 5))));
        assert_ne!(first, second);
        assert!(conns.get(first).is_none() && conns.get(second).is_some());
        assert_eq!(conns.of_socket(ConnId(5)), None);
        assert!(second.0 < 1 << 48);
    }

    /// After any counts in any order, the sums are those of the existing connections.
    #[test]
    fn sums_follow_the_accounts() {
        let mut random = Rng::new(3);
        let mut conns = Conns::default();
        let mut there: Vec<(ConnKey, bool, Account)> = Vec::new();
        for n in 0..5000 {
            let mut some = || random.below(1000) as usize;
            let account = Account {
                held: some(),
                backlog: some(),
                answers: some(),
                leaving: some(),
                copies: some(),
                pinned: some(),
            };
            let which = some();
            if there.len() < 3 || which < 200 {
                let link = match n % 2 {
                    0 => Link::Socket(ConnId(n)),
                    _ => Link::Virtual(RemoteConn {
                        worker: 1,
                        conn: ConnKey(n),
                    }),
                };
                there.push((conns.insert(conn(link)), n % 2 == 0, Account::default()));
            } else if which < 400 {
                let (at, ..) = there.swap_remove(which % there.len());
                conns.remove(at);
            } else {
                let place = which % there.len();
                there[place].2 = account;
                conns.count(there[place].0, account);
            }
            let sum = |of: fn(&(ConnKey, bool, Account)) -> usize| there.iter().map(of).sum();
            let wanted = Sums {
                held: sum(|(.., a)| a.held),
                backlog: sum(|(_, socket, a)| if *socket { a.backlog } else { 0 }),
                backlog_of_others: sum(|(_, socket, a)| if *socket { 0 } else { a.backlog }),
                answers: sum(|(.., a)| a.answers),
                leaving: sum(|(.., a)| a.leaving),
                copies: sum(|(.., a)| a.copies),
                pinned: sum(|(.., a)| a.pinned),
            };
            assert_eq!(conns.sums(), wanted);
        }
        // A connection that is gone counts nothing.
        let gone = there[0].0;
        conns.remove(gone);
        let before = conns.sums();
        conns.count(
            gone,
            Account {
                held: 1,
                ..Account::default()
            },
        );
        assert_eq!(conns.sums(), before);
    }

    #[test]
    fn virtual_connections_are_found_by_who_asks() {
        let mut conns = Conns::default();
        let origin = RemoteConn {
            worker: 1,
            conn: ConnKey(9),
        };
        let at = conns.insert(conn(Link::Virtual(origin)));
        assert_eq!(conns.of_origin(origin), Some(at));
        conns.remove(at);
        assert_eq!(conns.of_origin(origin), None);
    }

    #[test]
    fn the_tail_is_consumed_from_its_start() {
        let mut conn = conn(Link::Socket(ConnId(0)));
        conn.tail.extend_from_slice(b"abcdefgh");
        conn.consume(3);
        assert_eq!(&conn.tail[conn.tail_start..], b"defgh");
        conn.consume(2);
        assert_eq!(
            (conn.unread(), &conn.tail[conn.tail_start..]),
            (3, b"fgh".as_slice())
        );
        conn.consume(3);
        assert!(conn.tail.is_empty() && conn.tail_start == 0);
    }

    /// For any parts that arrive and are consumed, no byte is lost or reordered, and the memory is
    /// at most a few times the unread bytes.
    #[test]
    fn the_tail_keeps_all_that_is_unread_and_little_memory() {
        let mut random = Rng::new(7);
        let mut conn = conn(Link::Socket(ConnId(0)));
        let (mut came, mut went) = (0_usize, 0);
        for _ in 0..20_000 {
            // Now and then a burst, otherwise small parts.
            let most = if random.below(50) == 0 { 100_000 } else { 2000 };
            let part = random.below(most) as usize;
            let data: Vec<u8> = (came..came + part).map(|n| (n % 251) as u8).collect();
            came += part;
            conn.append(&data);
            let most = conn.unread() as u64 + 1;
            let part = random.below(most).max(random.below(most)) as usize;
            conn.consume(part);
            went += part;
            assert_eq!(conn.unread(), came - went);
            let rest = &conn.tail[conn.tail_start..];
            assert!(
                rest.iter()
                    .zip(went..)
                    .all(|(byte, n)| *byte == (n % 251) as u8)
            );
            let memory = conn.unread_memory();
            assert!(
                memory <= 8 * conn.unread() + 2 * KEPT_TAIL,
                "{memory} for {}",
                conn.unread()
            );
            assert_eq!(memory == 0, conn.unread() == 0);
        }
    }
}
