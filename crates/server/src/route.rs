// SPDX-License-Identifier: Apache-2.0
//! Requests for keys that another shard owns: messages between workers.
//!
//! Each worker has an inbox. A round's messages to another worker gather in an [`Outbox`]. They are
//! delivered at the round's end, under one lock and with one wake-up. A worker takes its whole
//! inbox at once.
//!
//! ```text
//! session -> Outbox::forward -> inbox -> virtual session of the owner -> Outbox::answer -> inbox -> Session::remote_reply
//! ```
//!
//! A large value is lent, not copied: the answer has its address, and a pin keeps it in place until
//! a [`Message::Unpin`] comes back. The mesh keeps the memory of all shards mapped as long as any
//! worker exists.
//!
//! An answer need not go back to the worker that has the connection. If a command is the only one
//! under way on its connection, the connection's socket is *lent* with it. The worker of the shard
//! then sends the answer itself and reports that ([`Message::Sent`]). The report wakes no thread.
//!
//! - LEND-1. A socket is lent to one worker at a time. It is lent only while its connection has no
//!   other unanswered command, and nothing is being sent on it. It comes back with the answer to
//!   that command, or with the report that the answer was sent or never will be. Until then its
//!   worker neither sends on it nor closes it.
//! - LEND-2. Each lent socket is returned exactly once, even if the virtual connection is closed.
//! - LEND-3. A worker that needs a socket back says so in each round ([`Mesh::want`]), and looks
//!   into its inbox after that. So it either sees a message or is woken by it. A tick checks the
//!   inbox too.
//!
//! Always holds: messages from one worker to another arrive in the order in which they were sent.
//! Bytes between two workers are bounded:
//! - Commands of one connection: its session stops when [`crate::session::FOREIGN_BYTES`] are
//!   unanswered.
//! - Commands in an inbox: beyond [`Mesh::congested`], no data is received from a connection that
//!   adds more than a little. This ends with the worker's next round, which takes the whole inbox.
//! - Commands that a virtual connection has not read: if they are many, the worker holds back that
//!   connection ([`Message::Hold`]).
//! - Answers: while the requesting worker holds many ([`Mesh::full`]), they stay with the answering
//!   worker.
//!
//! A worker registers as a waiter ([`Mesh::wait`]) before it checks whether another worker has
//! less. So it either sees the change or is woken by it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use senko_cache::Pinned;
use senko_io::{MappedMemory, Waker};

use crate::connection::{ConnKey, Newcomer, RemoteConn};
use crate::context::Router;
use crate::reply::Answer;
use crate::shared::lock;

/// Messages between workers. "I" is the sender, "you" the receiver.
#[derive(Debug)]
pub enum Message {
    /// A socket that you own from now on.
    Newcomer(Newcomer),
    /// Commands, and parts of their values, from a connection of mine.
    Commands {
        origin: RemoteConn,
        /// The bytes, which continue those sent before.
        bytes: Vec<u8>,
        /// The connection's socket, lent with them.
        socket: Option<RawFd>,
    },
    /// The answer to the oldest command that I have of a connection of yours.
    Answer {
        conn: ConnKey,
        /// The worker that answers.
        worker: usize,
        answer: Answer,
    },
    /// The socket that was lent with the oldest command that I have from a connection of yours. The
    /// answer was sent, unless I have closed the virtual connection.
    Sent {
        conn: ConnKey,
        /// The worker that answered.
        worker: usize,
        /// An empty buffer in return for the one that came with the command.
        buffer: Vec<u8>,
    },
    /// Pins of your shards that were held here.
    Unpin(Vec<u64>),
    /// A connection of mine is gone.
    Gone(RemoteConn),
    /// The rest of the value that I last sent for a connection of mine will not come.
    GiveUp(RemoteConn),
    /// I have closed the virtual connection for this connection of yours, and drop further data
    /// from it: close it.
    Refused(ConnKey),
    /// I have unread commands from this connection of yours, and they must wait. Send no more of
    /// them until I send [`Message::GoOn`].
    Hold(ConnKey),
    /// The commands for which I held back this connection of yours have run.
    GoOn(ConnKey),
}

impl Message {
    /// Whether the message can wait for the receiver's next round.
    fn can_wait(&self) -> bool {
        matches!(self, Message::Sent { .. })
    }
}

/// The state through which workers reach each other.
#[derive(Debug)]
pub struct Mesh {
    workers: Vec<Place>,
    /// Most bytes of commands in a worker's inbox.
    most_backlog: usize,
    /// Most bytes of answers that a worker may hold or have in its inbox.
    most_answers: usize,
    /// Workers that accept no more connections, because the server ends.
    draining: AtomicUsize,
}

#[derive(Debug, Default)]
struct Place {
    waker: OnceLock<Waker>,
    /// The memory of its shards' items. Other workers may still be sending from it after this
    /// worker ended.
    memory: Mutex<Vec<MappedMemory>>,
    inbox: Mutex<Inbox>,
    /// Whether the inbox has something.
    mail: AtomicBool,
    /// Whether it must be woken for whatever comes.
    wants: AtomicBool,
    /// Connections that the worker has or will get.
    sockets: AtomicUsize,
    /// Bytes of commands in its inbox.
    backlog: AtomicUsize,
    /// Bytes of answers in its inbox, and of those that its connections hold.
    mailed: AtomicUsize,
    held: AtomicUsize,
    /// Whether it waits for another worker to have less.
    waits: AtomicBool,
    /// How much of one of its shards is pinned at most, as a number.
    pinned: AtomicU8,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: Vec<Message>,
    /// The worker was woken for these messages.
    rung: bool,
}

impl Place {
    fn answers(&self) -> usize {
        self.mailed.load(Ordering::SeqCst) + self.held.load(Ordering::SeqCst)
    }
}

impl Mesh {
    pub fn new(workers: usize, most_backlog: usize, most_answers: usize) -> Mesh {
        Mesh {
            workers: (0..workers).map(|_| Place::default()).collect(),
            most_backlog,
            most_answers,
            draining: AtomicUsize::new(0),
        }
    }

    /// Registers a worker's loop, so that others can wake it.
    pub fn enter(&self, worker: usize, waker: Waker, memory: Vec<MappedMemory>) {
        // A worker registers once; a second waker would belong to no loop.
        let _ = self.workers[worker].waker.set(waker);
        *lock(&self.workers[worker].memory) = memory;
    }

    /// Whether all workers have ended.
    pub fn release_memory(&self) {
        for place in &self.workers {
            lock(&place.memory).clear();
        }
    }

    fn wake(&self, worker: usize) {
        if let Some(waker) = self.workers[worker].waker.get() {
            waker.wake();
        }
    }

    pub fn wake_all(&self) {
        (0..self.workers.len()).for_each(|worker| self.wake(worker));
    }

    /// The worker with the fewest connections, whose count is raised by one.
    pub fn welcome(&self) -> usize {
        let fewest = (0..self.workers.len())
            .min_by_key(|&w| self.workers[w].sockets.load(Ordering::Relaxed));
        let worker = fewest.expect("a server has at least one worker");
        self.workers[worker].sockets.fetch_add(1, Ordering::Relaxed);
        worker
    }

    /// Gives a socket to the worker with the fewest connections, from any thread.
    pub fn bring(&self, newcomer: Newcomer) {
        self.deliver(self.welcome(), &mut vec![Message::Newcomer(newcomer)]);
    }

    /// Notes that a connection of this worker is gone.
    pub fn goodbye(&self, worker: usize) {
        self.workers[worker].sockets.fetch_sub(1, Ordering::Release);
    }

    /// Notes that a worker accepts no more connections.
    pub fn drains(&self) {
        self.draining.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether no worker has a connection or will get one.
    pub fn everybody_left(&self) -> bool {
        self.draining.load(Ordering::SeqCst) == self.workers.len()
            && self
                .workers
                .iter()
                .all(|place| place.sockets.load(Ordering::Acquire) == 0)
    }

    /// Whether a worker has more bytes of commands in its inbox than it should. Its next round
    /// empties the inbox, whatever the commands of one connection wait for.
    pub fn congested(&self, worker: usize) -> bool {
        self.workers[worker].backlog.load(Ordering::SeqCst) > self.most_backlog
    }

    /// Notes that a worker has taken this many bytes of commands out of its inbox.
    pub fn took_commands(&self, worker: usize, bytes: usize) {
        let before = self.workers[worker]
            .backlog
            .fetch_sub(bytes, Ordering::SeqCst);
        if before > self.most_backlog && before - bytes <= self.most_backlog {
            self.wake_waiting();
        }
    }

    /// Whether a worker has so many bytes of answers that others should keep theirs.
    pub fn full(&self, worker: usize) -> bool {
        self.workers[worker].answers() > self.most_answers
    }

    /// Notes that a worker has taken this many bytes of answers out of its inbox.
    pub fn taken(&self, worker: usize, bytes: usize) {
        let place = &self.workers[worker];
        let mailed = place.mailed.fetch_sub(bytes, Ordering::SeqCst);
        self.fallen(mailed + place.held.load(Ordering::SeqCst), bytes);
    }

    /// Wakes waiters if a worker's answers, which were `before`, fell by `bytes` below the bound.
    fn fallen(&self, before: usize, bytes: usize) {
        if before > self.most_answers && before - bytes <= self.most_answers {
            self.wake_waiting();
        }
    }

    /// Sets the bytes of answers that a worker's connections hold.
    pub fn holds(&self, worker: usize, bytes: usize) {
        let place = &self.workers[worker];
        // Only this worker stores it.
        let before = place.held.load(Ordering::Relaxed);
        if before != bytes {
            place.held.store(bytes, Ordering::SeqCst);
            let mailed = place.mailed.load(Ordering::SeqCst);
            self.fallen(mailed + before, before.saturating_sub(bytes));
        }
    }

    /// Sets how much of a worker's shards is pinned.
    pub fn pins(&self, worker: usize, pinned: Pinned) {
        let place = &self.workers[worker].pinned;
        if place.load(Ordering::Relaxed) != pinned as u8 {
            place.store(pinned as u8, Ordering::Relaxed);
        }
    }

    /// How much of a worker's shards is pinned.
    pub fn pinned(&self, worker: usize) -> Pinned {
        match self.workers[worker].pinned.load(Ordering::Relaxed) {
            0 => Pinned::Little,
            1 => Pinned::Much,
            2 => Pinned::Wanted,
            _ => Pinned::TooMuch,
        }
    }

    /// Registers this worker as a waiter for another to have less; it is then woken. Call it before
    /// checking.
    pub fn wait(&self, worker: usize) {
        self.workers[worker].waits.store(true, Ordering::SeqCst);
    }

    fn wake_waiting(&self) {
        for (worker, place) in self.workers.iter().enumerate() {
            if place.waits.load(Ordering::SeqCst) && place.waits.swap(false, Ordering::SeqCst) {
                self.wake(worker);
            }
        }
    }

    /// Takes all messages of a worker. `into` is empty, and becomes the inbox's next buffer.
    pub fn take(&self, worker: usize, into: &mut Vec<Message>) {
        let place = &self.workers[worker];
        let mut inbox = lock(&place.inbox);
        place.mail.store(false, Ordering::SeqCst);
        inbox.rung = false;
        std::mem::swap(&mut inbox.messages, into);
    }

    /// Whether a worker has messages.
    pub fn has_mail(&self, worker: usize) -> bool {
        self.workers[worker].mail.load(Ordering::SeqCst)
    }

    /// Says that this worker must be woken for the next message. Call it before checking
    /// ([`Mesh::has_mail`]).
    pub fn want(&self, worker: usize) {
        self.workers[worker].wants.store(true, Ordering::SeqCst);
    }

    fn deliver(&self, worker: usize, messages: &mut Vec<Message>) {
        let place = &self.workers[worker];
        let urgent = !messages.iter().all(Message::can_wait);
        let mut inbox = lock(&place.inbox);
        inbox.messages.append(messages);
        place.mail.store(true, Ordering::SeqCst);
        // The worker empties its whole inbox, so one wake-up suffices for all later messages.
        let wake = !inbox.rung && (urgent || place.wants.load(Ordering::SeqCst));
        if wake {
            inbox.rung = true;
            place.wants.store(false, Ordering::SeqCst);
        }
        drop(inbox);
        if wake {
            self.wake(worker);
        }
    }
}

/// The messages of one worker to the others, until the end of its round.
#[derive(Debug)]
pub struct Outbox {
    me: usize,
    mesh: Arc<Mesh>,
    to: Vec<Vec<Message>>,
    /// The last worker that got a command although it was behind.
    behind: Option<usize>,
    /// Emptied buffers of received messages, for the next ones to send. Each answer that arrives
    /// belongs to a command that was sent. So the workers' stocks of buffers stay level, and none
    /// allocates buffers that another frees.
    spare: Vec<Vec<u8>>,
}

/// Most buffers kept, and most bytes of each.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 8 << 10;

impl Outbox {
    /// The outbox of worker `me`.
    pub fn new(me: usize, mesh: Arc<Mesh>) -> Outbox {
        let to = mesh.workers.iter().map(|_| Vec::new()).collect();
        Outbox {
            me,
            mesh,
            to,
            behind: None,
            spare: Vec::new(),
        }
    }

    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// Adds any message.
    pub fn send(&mut self, worker: usize, message: Message) {
        self.to[worker].push(message);
    }

    /// Adds an answer to another worker's connection.
    pub fn answer(&mut self, origin: RemoteConn, answer: Answer) {
        self.mesh.workers[origin.worker]
            .mailed
            .fetch_add(answer.bytes.len(), Ordering::SeqCst);
        let message = Message::Answer {
            conn: origin.conn,
            worker: self.me,
            answer,
        };
        self.to[origin.worker].push(message);
    }

    /// An empty buffer of a received message, if there is one.
    pub fn empty(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Keeps the buffer of a received message.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_BYTES).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Tells all workers that may serve a connection that it is gone.
    pub fn gone(&mut self, conn: ConnKey) {
        let origin = RemoteConn {
            worker: self.me,
            conn,
        };
        for worker in (0..self.to.len()).filter(|&worker| worker != self.me) {
            self.to[worker].push(Message::Gone(origin));
        }
    }

    /// Lends a connection's socket with the command of it that was just forwarded, which has this
    /// many bytes. False if some of these bytes were delivered before: a command that is refused by
    /// its first line is answered before its last byte.
    pub fn lend(&mut self, worker: usize, conn: ConnKey, command: usize, lent: RawFd) -> bool {
        match self.to[worker].last_mut() {
            Some(Message::Commands {
                origin,
                bytes,
                socket,
            }) if origin.conn == conn && bytes.len() >= command => {
                debug_assert!(socket.is_none(), "lent once");
                *socket = Some(lent);
                true
            }
            _ => false,
        }
    }

    /// Returns a lent socket.
    pub fn give_back(&mut self, origin: RemoteConn) {
        let message = Message::Sent {
            conn: origin.conn,
            worker: self.me,
            buffer: self.spare.pop().unwrap_or_default(),
        };
        self.to[origin.worker].push(message);
    }

    /// A worker that is behind and to which something was forwarded since the last call.
    pub fn take_behind(&mut self) -> Option<usize> {
        self.behind.take()
    }

    /// Delivers all messages.
    pub fn flush(&mut self) {
        for (worker, messages) in self.to.iter_mut().enumerate() {
            if !messages.is_empty() {
                self.mesh.deliver(worker, messages);
            }
        }
    }
}

impl Router for Outbox {
    fn forward(&mut self, worker: usize, conn: u64, bytes: &[u8]) {
        let origin = RemoteConn {
            worker: self.me,
            conn: ConnKey(conn),
        };
        self.mesh.workers[worker]
            .backlog
            .fetch_add(bytes.len(), Ordering::SeqCst);
        if self.mesh.congested(worker) {
            self.behind = Some(worker);
        }
        // A connection's data of a round becomes one message, unless a message of another comes in
        // between.
        if let Some(Message::Commands {
            origin: last,
            bytes: before,
            ..
        }) = self.to[worker].last_mut()
            && *last == origin
        {
            before.extend_from_slice(bytes);
            return;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        self.to[worker].push(Message::Commands {
            origin,
            bytes: buffer,
            socket: None,
        });
    }

    fn give_up(&mut self, worker: usize, conn: u64) {
        let origin = RemoteConn {
            worker: self.me,
            conn: ConnKey(conn),
        };
        self.to[worker].push(Message::GiveUp(origin));
    }

    fn unpin(&mut self, worker: usize, pin: u64) {
        if let Some(Message::Unpin(pins)) = self.to[worker].last_mut() {
            pins.push(pin);
        } else {
            self.to[worker].push(Message::Unpin(vec![pin]));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_bytes_of_a_connection_gather() {
        let mesh = Arc::new(Mesh::new(2, 100, 100));
        let mut outbox = Outbox::new(0, Arc::clone(&mesh));
        outbox.forward(1, 7, b"one ");
        outbox.forward(1, 7, b"two ");
        outbox.forward(1, 8, b"other");
        outbox.forward(1, 7, b"three");
        outbox.gone(ConnKey(8));
        let mut inbox = Vec::new();
        mesh.take(1, &mut inbox);
        assert!(
            inbox.is_empty(),
            "nothing goes over before the end of the round"
        );
        outbox.flush();
        mesh.take(1, &mut inbox);
        let texts: Vec<String> = inbox
            .iter()
            .map(|m| match m {
                Message::Commands { origin, bytes, .. } => {
                    format!("{} {}", origin.conn.0, String::from_utf8_lossy(bytes))
                }
                Message::Gone(origin) => format!("{} gone", origin.conn.0),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["7 one two ", "8 other", "7 three", "8 gone"]);
    }

    #[test]
    fn nobody_is_woken_for_what_can_wait_but_who_wants_to_be() {
        let mesh = Arc::new(Mesh::new(2, 100, 100));
        let mut outbox = Outbox::new(1, Arc::clone(&mesh));
        let origin = RemoteConn {
            worker: 0,
            conn: ConnKey(7),
        };
        let rung = || lock(&mesh.workers[0].inbox).rung;
        let mut inbox = Vec::new();
        outbox.give_back(origin);
        outbox.flush();
        assert!(mesh.has_mail(0) && !rung());
        // Messages that can wait come after messages that can't.
        outbox.answer(origin, Answer::default());
        outbox.flush();
        assert!(rung());
        mesh.take(0, &mut inbox);
        assert!(!mesh.has_mail(0) && !rung() && inbox.len() == 2);
        mesh.want(0);
        outbox.give_back(origin);
        outbox.flush();
        assert!(rung());
        mesh.take(0, &mut inbox);
        outbox.give_back(origin);
        outbox.flush();
        assert!(mesh.has_mail(0) && !rung(), "it was woken once");
    }

    #[test]
    fn a_socket_goes_with_the_command_that_was_just_forwarded() {
        let mesh = Arc::new(Mesh::new(2, 100, 100));
        let mut outbox = Outbox::new(0, mesh);
        assert!(!outbox.lend(1, ConnKey(7), 0, 5));
        outbox.forward(1, 7, b"one ");
        outbox.forward(1, 8, b"other");
        assert!(!outbox.lend(1, ConnKey(7), 4, 5));
        // Its beginning was delivered before.
        assert!(!outbox.lend(1, ConnKey(8), 6, 5));
        assert!(outbox.lend(1, ConnKey(8), 5, 5));
        assert!(matches!(
            &outbox.to[1][..],
            [
                Message::Commands { socket: None, .. },
                Message::Commands {
                    socket: Some(5),
                    ..
                }
            ]
        ));
    }

    #[test]
    fn buffers_go_around() {
        let mut outbox = Outbox::new(0, Arc::new(Mesh::new(2, 100, 100)));
        assert!(outbox.empty().is_none());
        outbox.keep(Vec::new());
        outbox.keep(vec![0; SPARE_BYTES + 1]);
        assert!(
            outbox.empty().is_none(),
            "what has no memory or too much is not kept"
        );
        for _ in 0..2 * SPARE {
            outbox.keep(b"old".to_vec());
        }
        outbox.forward(1, 7, b"new");
        let kept = std::iter::from_fn(|| outbox.empty()).collect::<Vec<_>>();
        assert_eq!(kept.len(), SPARE - 1);
        assert!(kept.iter().all(|buffer| buffer.is_empty()));
        outbox.flush();
        let mut inbox = Vec::new();
        outbox.mesh().take(1, &mut inbox);
        assert!(matches!(&inbox[..], [Message::Commands { bytes, .. }] if bytes == b"new"));
    }

    #[test]
    fn commands_congest_until_they_are_taken() {
        let mesh = Arc::new(Mesh::new(2, 10, 10));
        let mut outbox = Outbox::new(0, Arc::clone(&mesh));
        outbox.forward(1, 1, &[0; 10]);
        assert_eq!(outbox.take_behind(), None);
        outbox.forward(1, 1, &[0]);
        assert_eq!(outbox.take_behind(), Some(1));
        assert_eq!(outbox.take_behind(), None);
        mesh.wait(0);
        mesh.took_commands(1, 1);
        assert!(!mesh.congested(1) && !mesh.workers[0].waits.load(Ordering::SeqCst));
    }

    #[test]
    fn answers_fill_a_worker_until_it_has_sent_them() {
        let mesh = Arc::new(Mesh::new(2, 10, 10));
        let mut outbox = Outbox::new(1, Arc::clone(&mesh));
        let origin = RemoteConn {
            worker: 0,
            conn: ConnKey(1),
        };
        let answer = || Answer {
            bytes: vec![0; 8],
            ..Answer::default()
        };
        outbox.answer(origin, answer());
        assert!(!mesh.full(0));
        outbox.answer(origin, answer());
        assert!(mesh.full(0) && !mesh.full(1));
        // After a message was taken, the connection still exists.
        mesh.holds(0, 16);
        mesh.taken(0, 16);
        assert!(mesh.full(0));
        mesh.wait(1);
        mesh.holds(0, 12);
        assert!(mesh.workers[1].waits.load(Ordering::SeqCst));
        mesh.holds(0, 10);
        assert!(!mesh.full(0) && !mesh.workers[1].waits.load(Ordering::SeqCst));
    }

    #[test]
    fn newcomers_go_where_there_are_fewest() {
        let mesh = Mesh::new(3, 10, 10);
        let mut places: Vec<usize> = (0..6).map(|_| mesh.welcome()).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 0, 1, 1, 2, 2]);
        mesh.goodbye(1);
        assert_eq!(mesh.welcome(), 1);
        assert!(!mesh.everybody_left());
    }

    /// A worker once ended while another still accepted connections. It no longer read their
    /// commands, and the server's end waited for the answers.
    #[test]
    fn nobody_leaves_while_somebody_admits() {
        let mesh = Mesh::new(2, 10, 10);
        mesh.drains();
        assert!(!mesh.everybody_left());
        let worker = mesh.welcome();
        mesh.drains();
        assert!(!mesh.everybody_left());
        mesh.goodbye(worker);
        assert!(mesh.everybody_left());
    }
}
