// SPDX-License-Identifier: Apache-2.0
//! Shards over devices in memory, and sessions on them, connected as in a worker. But all run in
//! one thread, with a clock that the test drives and completions in a random order from a seed.
//! While a session runs, the shards of other nodes are parked at random, and some reads of their
//! flash fail.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use senko_cache::{
    Admission, AdmissionRule, AfarRead, DeviceSlice, HashSeed, Key, Lookup, PolicyKind, Shard,
    ShardConfig,
};
use senko_io::faulty::{FaultyDevice, FaultyQueue};
use senko_io::{IoError, SendBatch};
use senko_server::auth::Auth;
use senko_server::context::{Ctx, Router, Window, Work};
use senko_server::parked::OwnShards;
use senko_server::reply::worker_of;
use senko_server::session::{FeedState, Session, Wait};
use senko_server::settings::Settings;
use senko_server::shards::{Deal, Shards};
use senko_server::shared::{Cursor, Shared, ThreadStats};
use senko_workload::Rng;

/// When the rig's clock starts, Unix seconds.
pub const START: u32 = 1_700_000_000;

#[derive(Clone)]
pub struct RigSettings {
    pub shards: usize,
    /// Nodes; 0: one a shard.
    pub workers: usize,
    pub memory: usize,
    /// Pages of flash for each shard; 0: none.
    pub flash_pages: u64,
    pub settings: Settings,
    pub seed: u64,
    /// How often a shard is parked while another node's session runs, of 100 times.
    pub parks: u64,
    /// How often a read of another node's flash fails, of 100 times.
    pub fails: u64,
}

impl Default for RigSettings {
    fn default() -> RigSettings {
        RigSettings {
            shards: 1,
            workers: 0,
            memory: 8 << 20,
            flash_pages: 0,
            settings: Settings::default(),
            seed: 1,
            parks: 50,
            fails: 20,
        }
    }
}

pub struct Node {
    pub shard: OwnShards,
    pub queue: FaultyQueue,
    pub stats: ThreadStats,
    cursor: Cursor,
    work: Work,
}

/// Commands that wait to be carried to another shard.
#[derive(Default)]
struct Mail(VecDeque<(usize, u64, Vec<u8>)>, Vec<(usize, u64)>);

impl Router for Mail {
    fn forward(&mut self, shard: usize, conn: u64, bytes: &[u8]) {
        self.0.push_back((shard, conn, bytes.to_vec()));
    }

    fn unpin(&mut self, shard: usize, pin: u64) {
        self.1.push((shard, pin));
    }

    fn give_up(&mut self, _: usize, _: u64) {
        unreachable!("no value stands still here")
    }
}

struct Conn {
    node: usize,
    session: Session,
    /// For a virtual connection: the real one that it stands for.
    origin: Option<u64>,
    tail: Vec<u8>,
    state: FeedState,
    sent: Vec<u8>,
    /// Whether its value waits for a frame.
    starved: bool,
}

pub struct Rig {
    pub nodes: Vec<Node>,
    pub shared: Shared,
    conns: HashMap<u64, Conn>,
    mail: Mail,
    parks: u64,
    fails: u64,
    rng: Rng,
    /// For [`Rig::one_turn`]: copies for other workers already take all the memory available to
    /// them.
    pub no_copies: bool,
    next: u64,
    now_ms: u64,
    /// Virtual connections by shard and origin.
    virtuals: HashMap<(usize, u64), u64>,
}

impl Rig {
    pub fn new(rig_settings: &RigSettings) -> Rig {
        let pages = rig_settings.flash_pages.max(1) * rig_settings.shards as u64;
        let device = FaultyDevice::new(pages, rig_settings.seed);
        let workers = match rig_settings.workers {
            0 => rig_settings.shards,
            workers => workers,
        };
        let deal = Deal::new(rig_settings.shards, workers);
        let nodes: Vec<Node> = (0..workers)
            .map(|n| Node::new(rig_settings, (n, deal), &device))
            .collect();
        let auth = Auth::open(&rig_settings.settings).expect("the password files are good");
        let shared = Shared::new(rig_settings.settings.clone(), deal, START - 10).guarded(auth);
        nodes.iter().for_each(|node| shared.note_items(&node.shard));
        Rig {
            nodes,
            shared,
            conns: HashMap::new(),
            mail: Mail::default(),
            parks: rig_settings.parks,
            fails: rig_settings.fails,
            rng: Rng::new(rig_settings.seed | 1),
            no_copies: false,
            next: 1,
            now_ms: u64::from(START) * 1000,
            virtuals: HashMap::new(),
        }
    }

    pub fn connect(&mut self) -> u64 {
        self.connect_to(0)
    }
    pub fn connect_to(&mut self, node: usize) -> u64 {
        let mut session = Session::new(self.shared.settings.only_protocol);
        if self.shared.auth.is_on() {
            session.ask_password();
        }
        self.add(node, session, None)
    }
    /// A virtual connection of a node. Nothing takes its answers.
    pub fn connect_for_another(&mut self, node: usize) -> u64 {
        self.add(node, Session::remote(), None)
    }
    /// Commands of a connection that are parked, and the bytes that their reads will copy.
    pub fn parked(&self, id: u64) -> (usize, usize) {
        let session = &self.conns[&id].session;
        (session.parked(), session.copies())
    }
    /// Bytes of a connection's answers in its own memory.
    pub fn owned(&mut self, id: u64) -> usize {
        let conn = self.conns.get_mut(&id).expect("the connection is open");
        conn.session.replies().owned_memory().0
    }
    fn add(&mut self, node: usize, session: Session, origin: Option<u64>) -> u64 {
        let id = self.next;
        self.next += 1;
        let conn = Conn {
            node,
            session,
            origin,
            tail: Vec::new(),
            state: FeedState::NeedMore,
            sent: Vec::new(),
            starved: false,
        };
        self.conns.insert(id, conn);
        id
    }

    /// Advances the clock by which devices are judged.
    pub fn pass(&mut self, ms: u64) {
        for node in &mut self.nodes {
            let steady_ms = node.shard.steady_ms() + ms;
            node.shard.set_steady(steady_ms);
            node.tick();
        }
    }

    /// Reads of other nodes' flash that were answered.
    pub fn read_afar(&self) -> u64 {
        self.nodes.iter().map(|node| node.stats.read_afar).sum()
    }

    /// Advances the clock.
    pub fn advance(&mut self, seconds: u32) {
        self.advance_ms(u64::from(seconds) * 1000);
    }

    pub fn advance_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        for node in &mut self.nodes {
            node.shard.set_now(self.now_ms);
            node.tick();
        }
    }

    /// Receives bytes from the client; nothing else happens.
    pub fn send(&mut self, id: u64, bytes: &[u8]) {
        self.conns
            .get_mut(&id)
            .expect("the connection is open")
            .tail
            .extend_from_slice(bytes);
        self.feed(id);
    }

    /// The result of one turn with these bytes: the number consumed, the end, and the bytes of
    /// answers left unsent.
    pub fn one_turn(
        &mut self,
        id: u64,
        bytes: &[u8],
        window: Window,
        heavy: usize,
    ) -> (usize, FeedState, usize) {
        let conn = self.conns.get_mut(&id).expect("the connection is open");
        let node = &mut self.nodes[conn.node];
        (node.work.heavy, node.work.no_copies) = (heavy, self.no_copies);
        let mut ctx = Ctx {
            window,
            ..node.ctx(&self.shared, &mut self.mail, conn.node, id)
        };
        let mut budget = self.shared.settings.requests_per_turn;
        let fed = conn.session.feed(&mut ctx, bytes, &mut budget);
        (node.work.heavy, node.work.no_copies) = (usize::MAX, false);
        (
            fed.consumed,
            fed.state,
            conn.session.replies().queued_bytes(),
        )
    }

    /// Parks the shards of other nodes, some of them.
    fn park_others(&mut self, node: usize) {
        for (n, other) in self.nodes.iter_mut().enumerate() {
            if n != node && self.rng.below(100) < self.parks {
                self.shared.parked[n].park(&mut other.shard, other.cursor.applied());
            }
        }
    }

    fn take_others(&mut self) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            self.shared.parked[n].take(&mut node.shard);
        }
    }

    fn feed(&mut self, id: u64) {
        let Some(at) = self.conns.get(&id).map(|conn| conn.node) else {
            return;
        };
        self.park_others(at);
        let conn = self.conns.get_mut(&id).expect("it was there");
        let node = &mut self.nodes[conn.node];
        let mut ctx = node.ctx(&self.shared, &mut self.mail, conn.node, id);
        let mut budget = 1000;
        let fed = conn.session.feed(&mut ctx, &conn.tail, &mut budget);
        conn.tail.drain(..fed.consumed);
        conn.state = fed.state;
        self.take_others();
        let conn = &self.conns[&id];
        if fed.state == FeedState::NeedMore {
            assert!(
                conn.tail.len() <= 2048 + 400,
                "an incomplete command is short"
            );
        }
        self.drain(id);
    }

    /// Takes the bytes that can be sent.
    fn drain(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if let Some(origin) = conn.origin {
            let shard = conn.node;
            let mut units = Vec::new();
            while let Some(unit) = conn.session.replies().next_unit(|| None) {
                units.push(unit);
            }
            for unit in units {
                let left = match self.conns.get_mut(&origin) {
                    Some(conn) => conn.session.remote_reply(shard, unit),
                    None => unit,
                };
                for pin in left.pins(shard) {
                    self.unpin(shard, pin);
                }
                if self.conns.contains_key(&origin) {
                    self.feed(origin);
                }
            }
            return;
        }
        let mut batch = SendBatch::default();
        let mut pins = Vec::new();
        loop {
            let node = &mut self.nodes[conn.node];
            let mut ctx = node.ctx(&self.shared, &mut self.mail, conn.node, id);
            conn.starved = conn.session.read_ahead(&mut ctx);
            assert!(!conn.session.is_broken(), "no piece is damaged");
            if !conn.session.replies().fill_batch(&mut batch) {
                break;
            }
            assert!(batch.pieces.len() <= 64);
            batch.spill(0, &mut pins);
            conn.sent.extend_from_slice(&batch.bytes);
            batch.clear(&mut pins);
        }
        let at = conn.node;
        for pin in pins {
            self.unpin(at, pin);
        }
        let node = &mut self.nodes[at];
        node.shard.frames_freed(&mut node.queue);
    }

    /// Gives back a pin that the connections of a node held, and those that sessions gave back.
    fn unpin(&mut self, node: usize, pin: u64) {
        let (worker, pin) = worker_of(pin);
        self.nodes[worker.unwrap_or(node)].shard.unpin(pin);
        for (shard, pin) in std::mem::take(&mut self.mail.1) {
            self.nodes[shard].shard.unpin(pin);
        }
    }

    /// One pending event happens; false if there is none.
    pub fn happen(&mut self) -> bool {
        if let Some((shard, origin, bytes)) = self.mail.0.pop_front() {
            let id = match self.virtuals.get(&(shard, origin)) {
                Some(&id) => id,
                None => {
                    if !self.conns.contains_key(&origin) {
                        return true;
                    }
                    let id = self.add(shard, Session::remote(), Some(origin));
                    self.virtuals.insert((shard, origin), id);
                    id
                }
            };
            self.send(id, &bytes);
            return true;
        }
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            let Some(mut completion) = node.queue.complete_one() else {
                continue;
            };
            let afar = &mut node.work.afar;
            // A value that was begun is not read elsewhere.
            if AfarRead::number(&completion).is_some_and(|number| !afar.is_piece(number))
                && self.rng.chance(self.fails)
            {
                completion.result = Err(IoError::Os(5));
            }
            afar.on_disk(&mut node.shard, &mut node.queue, completion);
            self.dones(n);
            self.stuck();
            return true;
        }
        let mut moved = false;
        for n in 0..self.nodes.len() {
            moved |= self.dones(n);
        }
        moved | self.stuck()
    }

    fn dones(&mut self, n: usize) -> bool {
        let mut any = false;
        loop {
            let node = &mut self.nodes[n];
            let afar = &mut node.work.afar;
            let Some(done) = afar.next_done(&mut node.shard, &mut node.queue) else {
                return any;
            };
            any = true;
            let id = done.user >> 16;
            let Some(conn) = self.conns.get_mut(&id) else {
                continue;
            };
            let mut ctx = node.ctx(&self.shared, &mut self.mail, n, id);
            conn.session.done(&mut ctx, done);
            self.feed(id);
        }
    }

    /// Feeds the connections whose reason to wait may be over; true if one continued.
    fn stuck(&mut self) -> bool {
        let mut ids: Vec<u64> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        let mut moved = false;
        for id in ids {
            let conn = &self.conns[&id];
            let before = (conn.tail.len(), conn.sent.len());
            if matches!(
                conn.state,
                FeedState::Blocked(
                    Wait::Memory | Wait::Window | Wait::Turn | Wait::Heavy | Wait::Room
                )
            ) {
                self.feed(id);
                let conn = &self.conns[&id];
                moved |= (conn.tail.len(), conn.sent.len()) != before
                    || !matches!(conn.state, FeedState::Blocked(_));
            }
            if self.conns[&id].starved {
                // As a worker does if nothing moves.
                self.conns
                    .values_mut()
                    .for_each(|conn| conn.session.replies().spill());
                self.drain(id);
                moved |= !self.conns[&id].starved;
            }
        }
        moved
    }

    /// Lets all pending events happen.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if self.happen() {
                continue;
            }
            // Waiting for memory may end with a tick.
            let waits = self
                .conns
                .values()
                .any(|c| matches!(c.state, FeedState::Blocked(_)));
            if !waits {
                return;
            }
            for node in &mut self.nodes {
                node.tick();
            }
            let still = !self.happen();
            assert!(!still, "sessions wait for something that never happens");
        }
        panic!("it never ends");
    }

    /// The answers since the last call.
    pub fn answers(&mut self, id: u64) -> Vec<u8> {
        std::mem::take(
            &mut self
                .conns
                .get_mut(&id)
                .expect("the connection is open")
                .sent,
        )
    }
    pub fn closed(&self, id: u64) -> bool {
        self.conns[&id].state == FeedState::Close
    }
    pub fn idle(&self, id: u64) -> bool {
        self.conns[&id].session.is_idle()
    }

    /// Bytes from the client, and their answer.
    pub fn ask(&mut self, id: u64, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.send(id, bytes.as_ref());
        self.settle();
        self.answers(id)
    }
    /// As [`Rig::ask`], and the answer is this.
    pub fn expect(&mut self, id: u64, bytes: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) {
        let got = self.ask(id, bytes.as_ref());
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            show(&got),
            show(answer.as_ref()),
            "{}",
            show(bytes.as_ref())
        );
    }

    /// The client vanishes.
    pub fn vanish(&mut self, id: u64) {
        let mut gone = vec![id];
        gone.extend(
            self.virtuals
                .iter()
                .filter(|((_, origin), _)| *origin == id)
                .map(|(_, v)| *v),
        );
        self.virtuals.retain(|(_, origin), _| *origin != id);
        self.mail.0.retain(|(_, origin, _)| *origin != id);
        for id in gone {
            let mut conn = self.conns.remove(&id).expect("the connection is open");
            let node = &mut self.nodes[conn.node];
            let mut ctx = node.ctx(&self.shared, &mut self.mail, conn.node, id);
            conn.session.cancel(&mut ctx);
        }
    }

    pub fn on_flash(&mut self, key: &[u8]) -> bool {
        let key = Key::new(key, HashSeed::default());
        let shards = &mut self.nodes[self.shared.deal.worker_of(key.hash)].shard;
        shards.turn_to(key.hash);
        matches!(shards.lookup(&key), Lookup::Flash(_))
    }

    /// Pushes these keys out to flash, by storing other items of about `len` bytes until they have
    /// left DRAM and the write buffers.
    pub fn press(&mut self, id: u64, keys: &[&[u8]], len: usize) {
        let mut rounds_left = 400;
        let mut beyond = 2;
        let mut n = 0;
        while beyond > 0 {
            assert!(rounds_left > 0, "the pressure is too low");
            rounds_left -= 1;
            if keys.iter().all(|key| self.on_flash(key)) {
                beyond -= 1;
            }
            let mut commands = Vec::new();
            while commands.len() < 1 << 20 {
                commands
                    .extend_from_slice(format!("set filler{n} 0 0 {len} noreply\r\n").as_bytes());
                commands.resize(commands.len() + len, b'.');
                commands.extend_from_slice(b"\r\n");
                n += 1;
            }
            // With less memory, pages of the classes whose items stay longest are emptied first.
            self.set_memory(4);
            // A connection's unread bytes move with each command, so they are few.
            for piece in commands.chunks(16 << 10) {
                self.send(id, piece);
                self.settle();
            }
            self.set_memory(1);
        }
        assert_eq!(self.answers(id), b"");
    }
}

impl Rig {
    /// Leaves the shards this part of their memory.
    fn set_memory(&mut self, part: usize) {
        for node in &mut self.nodes {
            for (_, shard) in node.shard.own_mut() {
                let bytes = *shard.dram_bounds().end() / part;
                assert!(shard.set_dram_limit(bytes));
            }
        }
    }
}

impl Node {
    fn ctx<'a>(
        &'a mut self,
        shared: &'a Shared,
        mail: &'a mut Mail,
        me: usize,
        conn: u64,
    ) -> Ctx<'a, FaultyQueue> {
        Ctx {
            shard: &mut self.shard,
            queue: &mut self.queue,
            shared,
            stats: &mut self.stats,
            cursor: &mut self.cursor,
            router: mail,
            me,
            conn,
            fd: 0,
            entry: None,
            window: Window::Wide,
            work: &mut self.work,
        }
    }

    fn tick(&mut self) {
        let afar = &mut self.work.afar;
        afar.tick(&mut self.shard, &mut self.queue);
    }

    fn new(
        rig_settings: &RigSettings,
        (n, deal): (usize, Deal),
        device: &Arc<FaultyDevice>,
    ) -> Node {
        let config = |shard: usize| ShardConfig {
            memory: rig_settings.memory,
            max_item: rig_settings.settings.max_item,
            flash: match rig_settings.flash_pages {
                0 => Vec::new(),
                pages => vec![DeviceSlice {
                    device: 0,
                    first_page: shard as u64 * pages,
                    pages,
                }],
            },
            region: 256 << 10,
            policy: PolicyKind::Lru,
            admission: Admission {
                rule: AdmissionRule::All,
                budget: None,
            },
            promote_after: 3,
            sort_small: false,
            upload_over: usize::MAX,
            upload_bytes: 0,
            reinsert: true,
            no_evict: rig_settings.settings.no_evict,
            shard: shard as u32,
            shards: rig_settings.shards as u32,
            seed: rig_settings.seed,
            hash_seed: HashSeed::default(),
        };
        let new = |shard| {
            let made = Shard::new(config(shard));
            made.map(|mut shard| {
                // No test guesses a CAS value that was given out.
                shard.begin_cas(1000);
                shard
            })
        };
        let own = deal.of(n).map(new);
        let own = own.collect::<Result<Vec<_>, _>>();
        let own = own.expect("the settings are valid");
        let mut shards = Shards::new(own, (n, deal), &config(0));
        shards.set_now(u64::from(START) * 1000);
        let queue = FaultyQueue::new(
            vec![Arc::clone(device)],
            &[(1, 32), (4, 8), (16, 8)],
            rig_settings.seed + n as u64,
        );
        Node {
            shard: shards.into(),
            queue,
            stats: ThreadStats::default(),
            cursor: Cursor::default(),
            work: Work {
                heavy: usize::MAX,
                // More than there are frames, with some seeds.
                most_pieces: [4, 6, 16][rig_settings.seed as usize % 3],
                ..Work::default()
            },
        }
    }
}
