// SPDX-License-Identifier: Apache-2.0
//! A fill under clients that change keys meanwhile. The peer is a thread of the test, which has
//! read all old values before any client changes one. So each of them is in flight as long as the
//! test wants. None may ever be read under a key whose change was acknowledged.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use senko_server::fill::{Job, Progress};
use senko_server::settings::{BackendChoice, Settings};
use senko_workload::Rng;

use crate::admin;
use crate::serve::client::{Client, PATIENCE, Place};

/// Keys of the peer, and the bytes of a value.
const KEYS: usize = 6000;
const LEN: usize = 8 << 10;
/// Items that are sent before their answers are read.
const BATCH: usize = 16;

/// What the peer and the clients tell each other.
#[derive(Default)]
struct Gate {
    /// The peer's values were read, so clients may begin.
    read: AtomicBool,
    /// Commands of clients, and whether these have ended.
    commands: AtomicU64,
    left: AtomicBool,
    /// Items that the peer has sent.
    sent: AtomicU64,
}

/// The gates of the running tests, by name: a pull is a function without a state.
static GATES: Mutex<BTreeMap<String, Arc<Gate>>> = Mutex::new(BTreeMap::new());

fn gate(name: &str) -> Arc<Gate> {
    let mut gates = GATES.lock().unwrap();
    Arc::clone(gates.entry(name.to_owned()).or_default())
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// Every fifth value is a number, so that it can be counted.
fn old(number: usize) -> Vec<u8> {
    match number % 5 {
        0 => b"1000".to_vec(),
        _ => padded(&format!("old {number} ")),
    }
}

fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(LEN, b'.');
    bytes
}

/// Sends the old items in batches. After each of them clients have the time for some commands.
fn pull(job: &dyn Job) -> Result<(), String> {
    let gate = gate(job.how());
    let mut socket = UnixStream::from(job.connect().map_err(|error| error.to_string())?);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    gate.read.store(true, Ordering::SeqCst);
    let mut progress = Progress::default();
    let numbers: Vec<usize> = (0..KEYS).collect();
    for batch in numbers.chunks(BATCH) {
        let mut request = Vec::new();
        for number in batch {
            let value = old(*number);
            let line = format!("add {} 7 0 {}\r\n", key(*number), value.len());
            request.extend_from_slice(line.as_bytes());
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        let failed = |error: std::io::Error| error.to_string();
        socket.write_all(&request).map_err(failed)?;
        let mut answers = Vec::new();
        while answers.iter().filter(|byte| **byte == b'\n').count() < batch.len() {
            let mut part = [0; 1024];
            match socket.read(&mut part).map_err(failed)? {
                0 => return Err("the server closed the connection".to_owned()),
                got => answers.extend_from_slice(&part[..got]),
            }
        }
        for line in String::from_utf8(answers).unwrap().lines() {
            match line {
                "STORED" => progress.items += 1,
                "NOT_STORED" => progress.kept += 1,
                line => return Err(line.to_owned()),
            }
        }
        progress.listed += batch.len() as u64;
        // The test that evicts goes on in a full cache.
        if job.how() != "dram" {
            job.tell(progress);
        }
        let now = gate.commands.load(Ordering::SeqCst);
        gate.sent.fetch_add(batch.len() as u64, Ordering::SeqCst);
        wait_until("clients go on", || {
            gate.commands.load(Ordering::SeqCst) >= now + 30
                || gate.left.load(Ordering::SeqCst)
                || job.stop().load(Ordering::SeqCst)
        });
    }
    job.tell(progress);
    Ok(())
}

/// The answer to a request at the ctl socket.
fn ctl(place: &Place, request: &str) -> String {
    let mut stream = UnixStream::connect(place.folder.join("ctl")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A row of `status`.
fn row(place: &Place, name: &str) -> String {
    let status = ctl(place, "status");
    let start = format!("= {name} ");
    let found = status.lines().find_map(|line| line.strip_prefix(&start));
    found
        .unwrap_or_else(|| panic!("no {name} in {status}"))
        .to_owned()
}

fn wait_for(place: &Place, state: &str) {
    wait_until(state, || row(place, "fill") == state);
}

/// A server with a ctl socket that can be filled.
fn fillable(threads: usize, change: impl FnOnce(&mut Settings, &Path)) -> Place {
    let place = Place::start(BackendChoice::Auto, threads);
    let folder = place.folder.to_path_buf();
    place.restart(|settings| {
        settings.ctl = Some(folder.join("ctl"));
        settings.pull = Some(pull);
        change(settings, &folder);
    })
}

/// What a client knows of a key.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// Nobody has changed it: it has the peer's value, or none.
    Untouched,
    /// This value, or none if it was evicted or has expired.
    Has(Vec<u8>),
    /// It was deleted, or has expired: nothing.
    Gone,
}

/// A client that changes the keys of one remainder, and reads them.
struct Changer<'a> {
    client: Client,
    gate: &'a Gate,
    random: Rng,
    own: Vec<usize>,
    known: BTreeMap<usize, Known>,
    version: u64,
}

impl Changer<'_> {
    fn new<'a>(place: &Place, gate: &'a Gate, seed: u64, (own, of): (usize, usize)) -> Changer<'a> {
        Changer {
            client: place.connect(),
            gate,
            random: Rng::new(seed),
            own: (0..KEYS).filter(|number| number % of == own).collect(),
            known: BTreeMap::new(),
            version: 0,
        }
    }

    fn line(&mut self, request: &str) -> String {
        self.client.text(request, "\r\n").trim_end().to_owned()
    }

    fn store(&mut self, command: &str, number: usize, rest: &str, value: &[u8]) -> String {
        let line = format!(
            "{command} {} {} {}{rest}\r\n",
            key(number),
            "3 0",
            value.len()
        );
        self.client.send(line);
        self.client.send(value);
        self.line("\r\n")
    }

    /// The value now, and its CAS value.
    fn read(&mut self, number: usize) -> Option<(Vec<u8>, String)> {
        let head = self.line(&format!("gets {}\r\n", key(number)));
        if head == "END" {
            return None;
        }
        let words: Vec<&str> = head.split(' ').collect();
        let len: usize = words[3].parse().unwrap();
        let value = self.client.exactly(len);
        let cas = words[4].to_owned();
        self.client.expect(b"\r\nEND\r\n");
        Some((value, cas))
    }

    fn check(&mut self, number: usize) -> Option<(Vec<u8>, String)> {
        let found = self.read(number);
        let known = self.known.get(&number).unwrap_or(&Known::Untouched);
        if let Some((value, _)) = &found {
            let show =
                |value: &[u8]| String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
            match known {
                Known::Untouched => assert_eq!(show(value), show(&old(number)), "{number}"),
                Known::Has(has) => assert_eq!(show(value), show(has), "{number}"),
                Known::Gone => panic!("key {number} is gone, and has {}", show(value)),
            }
        }
        found
    }

    /// One command, of a key that is soon or was just sent by the peer, or of any.
    fn step(&mut self) {
        let all = self.own.len() as u64;
        let sent = self.gate.sent.load(Ordering::SeqCst) * all / KEYS as u64;
        let at = match self.random.below(3) {
            0 => self.random.below(all),
            _ => (sent + self.random.below(64))
                .saturating_sub(32)
                .min(all - 1),
        };
        let number = self.own[at as usize];
        self.version += 1;
        let new = padded(&format!("new {number} {} ", self.version));
        match self.random.below(10) {
            0 | 1 => {
                assert_eq!(self.store("set", number, "", &new), "STORED");
                self.known.insert(number, Known::Has(new));
            }
            2 | 3 => {
                let answer = self.line(&format!("delete {}\r\n", key(number)));
                assert!(answer == "DELETED" || answer == "NOT_FOUND", "{answer}");
                // Deleted is deleted, whether it was here or still at the peer.
                self.known.insert(number, Known::Gone);
            }
            4 => {
                let request = format!("delete {} noreply\r\n", key(number));
                self.client.send(request);
                self.known.insert(number, Known::Gone);
            }
            5 => {
                if self.line(&format!("touch {} -1\r\n", key(number))) == "TOUCHED" {
                    self.known.insert(number, Known::Gone);
                }
            }
            6 => {
                let answer = self.line(&format!("incr {} 1\r\n", key(number)));
                if answer.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.known.insert(number, Known::Has(answer.into_bytes()));
                }
            }
            7 => {
                if let Some((_, cas)) = self.check(number)
                    && self.store("cas", number, &format!(" {cas}"), &new) == "STORED"
                {
                    self.known.insert(number, Known::Has(new));
                }
            }
            8 => {
                if self.store("add", number, "", &new) == "STORED" {
                    self.known.insert(number, Known::Has(new));
                }
            }
            _ => {
                self.check(number);
            }
        }
        self.gate.commands.fetch_add(1, Ordering::SeqCst);
    }
}

/// Nothing older than what was acknowledged is read, while two clients change keys of which the
/// peer has old values, and changed keys are evicted again.
fn no_change_is_undone(name: &str, place: &Place, evicts: bool) {
    let gate = gate(name);
    assert!(ctl(place, &format!("fill peer {name}")).starts_with("ok "));
    assert!(ctl(place, &format!("fill peer {name}")).starts_with("no a fill from peer runs"));
    wait_until("the peer has read", || gate.read.load(Ordering::SeqCst));
    let mut changers = [0, 1].map(|own| Changer::new(place, &gate, 11 + own as u64, (own, 2)));
    std::thread::scope(|scope| {
        for changer in &mut changers {
            scope.spawn(|| {
                let sent = || gate.sent.load(Ordering::SeqCst);
                while sent() < KEYS as u64 {
                    // As many as the peer waits for, so that not all keys are changed early.
                    if gate.commands.load(Ordering::SeqCst) <= sent() * 5 / 2 + 200 {
                        changer.step();
                    } else {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                (0..1000).for_each(|_| changer.step());
            });
        }
    });
    gate.left.store(true, Ordering::SeqCst);
    wait_for(place, "done");
    for mut changer in changers {
        let own = changer.own.clone();
        let has = own
            .iter()
            .filter(|number| changer.check(**number).is_some());
        assert!(has.count() > 100);
        let changed = changer.known.len();
        assert!(changed > own.len() / 8, "{changed} of {}", own.len());
    }
    let number = |name| row(place, name).parse::<u64>().unwrap();
    assert!(number("fill-items") > KEYS as u64 / 10);
    assert!(number("fill-kept") > KEYS as u64 / 20);
    assert_eq!(number("evictions") > 100, evicts, "{}", number("evictions"));
}

#[test]
fn changes_in_a_tiny_dram_are_not_undone_by_a_fill() {
    let place = fillable(1, |settings, _| {
        settings.flash.clear();
        settings.memory = 32 << 20;
    });
    no_change_is_undone("dram", &place, true);
}

#[test]
fn changes_at_two_workers_and_on_flash_are_not_undone_by_a_fill() {
    let place = fillable(2, |settings, _| settings.memory = 40 << 20);
    no_change_is_undone("flash", &place, false);
}

/// A flush ends the fill before it is answered, whether it is due now or later: nothing of the peer
/// comes after it, also not what is in flight.
#[test]
fn a_flush_ends_a_fill() {
    for (name, flush) in [("now", "flush_all\r\n"), ("later", "flush_all 2\r\n")] {
        let place = fillable(2, |settings, _| {
            settings.admin = Some("127.0.0.1:0".parse().unwrap());
        });
        let gate = gate(name);
        let filled = || {
            let mut stream = std::net::TcpStream::connect(admin::admin(&place)).unwrap();
            let request = b"GET /healthz/filled HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(filled().starts_with("HTTP/1.1 200 ") && filled().ends_with("\nserving\n"));
        assert!(ctl(&place, &format!("fill peer {name}")).starts_with("ok "));
        assert!(filled().starts_with("HTTP/1.1 503 ") && filled().ends_with("\nfilling\n"));
        wait_until("some items came", || gate.sent.load(Ordering::SeqCst) > 0);
        let mut client = place.connect();
        client.ask(flush, "OK\r\n");
        assert_eq!(row(&place, "fill"), "stopped");
        assert!(row(&place, "fill-why").starts_with("flush_all"));
        assert!(filled().starts_with("HTTP/1.1 200 "));
        place.clock.fetch_add(3000, Ordering::SeqCst);
        for number in 0..KEYS {
            client.ask(&format!("get {}\r\n", key(number)), "END\r\n");
        }
        assert!(ctl(&place, "fill stop").starts_with("no no fill runs"));
    }
}

/// A drain does not wait for the fill's own connection, nor does a stop.
#[test]
fn a_drain_and_a_stop_end_a_fill() {
    let mut place = fillable(2, |_, _| {});
    let drained = gate("drained");
    assert!(ctl(&place, "fill peer drained").starts_with("ok "));
    wait_until("some items came", || {
        drained.sent.load(Ordering::SeqCst) > 0
    });
    let mut client = place.connect();
    client.ask("mn\r\n", "MN\r\n");
    let mut drain = UnixStream::connect(place.folder.join("ctl")).unwrap();
    drain.write_all(b"drain 3600\n").unwrap();
    wait_for(&place, "stopped");
    assert_eq!(row(&place, "fill-why"), "the server drains");
    drop(client);
    // The connection of the one who drains ends with the server.
    let mut said = Client::over(drain);
    let said = String::from_utf8(said.until(b"; the server stops\n")).unwrap();
    assert!(said.contains("no connection is open after"), "{said}");
    place.end();

    let mut place = place.restart(|_| {});
    let stopped = gate("stopped");
    assert!(ctl(&place, "fill peer stopped").starts_with("ok "));
    wait_until("some items came", || {
        stopped.sent.load(Ordering::SeqCst) > 0
    });
    place.end();
    assert!(stopped.sent.load(Ordering::SeqCst) < KEYS as u64);
}

/// Late items of an ended fill are refused, as soon as the workers know that it has ended.
#[test]
fn items_of_an_ended_fill_come_too_late() {
    fn late(job: &dyn Job) -> Result<(), String> {
        let gate = gate(job.how());
        let mut socket = UnixStream::from(job.connect().unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut ask = |command: &str, name: &str| {
            let request = format!("{command} {name} 0 0 1\r\nx\r\n");
            socket.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 64];
            let got = socket.read(&mut answer).unwrap();
            String::from_utf8_lossy(&answer[..got]).into_owned()
        };
        assert_eq!(ask("add", "early"), "STORED\r\n");
        // Only `add` stores.
        assert_eq!(ask("set", "other"), "NOT_STORED\r\n");
        gate.read.store(true, Ordering::SeqCst);
        wait_until("the test goes on", || gate.left.load(Ordering::SeqCst));
        // Keys of both workers.
        let refused = |ask: &mut dyn FnMut(&str, &str) -> String, round: usize| {
            (0..50).all(|n| ask("add", &format!("late{round}-{n}")) == "NOT_STORED\r\n")
        };
        let mut rounds = 0..;
        while !refused(&mut ask, rounds.next().unwrap()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(refused(&mut ask, rounds.next().unwrap()));
        gate.commands.store(1, Ordering::SeqCst);
        Ok(())
    }
    let place = fillable(2, |settings, _| settings.pull = Some(late));
    let gate = gate("late");
    assert!(ctl(&place, "fill peer late").starts_with("ok "));
    wait_until("the first item came", || gate.read.load(Ordering::SeqCst));
    assert_eq!(
        ctl(&place, "fill stop"),
        "ok the fill has ended; what it has brought stays\n"
    );
    // Its thread is still there.
    assert!(ctl(&place, "fill peer late").starts_with("no the fill before it still ends"));
    gate.left.store(true, Ordering::SeqCst);
    wait_until("the late ones were sent", || {
        gate.commands.load(Ordering::SeqCst) > 0
    });
    assert_eq!(row(&place, "fill"), "stopped");
    let mut client = place.connect();
    client.ask("get early other\r\n", "VALUE early 0 1\r\nx\r\nEND\r\n");
    place.wait_for_connections_on(&mut client, 1);
}

/// Workers come to note changes ten times a second, and a fill was said to have begun before they
/// did. A key that was deleted in that time came back with the peer's value, for good.
#[test]
fn a_change_counts_from_the_answer_on_that_the_fill_has_begun() {
    fn brings(job: &dyn Job) -> Result<(), String> {
        let gate = gate("answer");
        let mut socket = UnixStream::from(job.connect().unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        wait_until("it is deleted", || gate.left.load(Ordering::SeqCst));
        for n in 0..50 {
            let request = format!("add key{n} 0 0 1\r\nx\r\n");
            socket.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 64];
            assert!(socket.read(&mut answer).unwrap() > 0);
        }
        Ok(())
    }
    let place = fillable(2, |settings, _| settings.pull = Some(brings));
    let gate = gate("answer");
    let mut client = place.connect();
    for _ in 0..8 {
        gate.left.store(false, Ordering::SeqCst);
        // The thread of the fill before may still end.
        wait_until("it begins", || {
            ctl(&place, "fill peer answer").starts_with("ok ")
        });
        // Keys of both workers.
        for n in 0..50 {
            client.ask(&format!("delete key{n}\r\n"), "NOT_FOUND\r\n");
        }
        gate.left.store(true, Ordering::SeqCst);
        wait_for(&place, "done");
        for n in 0..50 {
            client.ask(&format!("get key{n}\r\n"), "END\r\n");
        }
    }
}

/// The hottest items come first, so a fill does not go on in a full cache: it is done.
#[test]
fn a_fill_is_done_when_the_cache_is_full() {
    fn endless(job: &dyn Job) -> Result<(), String> {
        let mut socket = UnixStream::from(job.connect().unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut progress = Progress::default();
        let value = padded("");
        while !job.stop().load(Ordering::SeqCst) {
            let line = format!("add {} 0 0 {LEN}\r\n", key(progress.listed as usize));
            let request = [line.as_bytes(), &value, b"\r\n"].concat();
            socket.write_all(&request).unwrap();
            let mut answer = [0; 64];
            let got = socket.read(&mut answer).unwrap();
            progress.listed += 1;
            progress.items += u64::from(&answer[..got] == b"STORED\r\n");
            job.tell(progress);
        }
        Err("interrupted".to_owned())
    }
    let tiers: [fn(&mut Settings); 2] = [
        |settings| settings.flash.clear(),
        |settings| {
            settings
                .flash
                .iter_mut()
                .for_each(|flash| flash.bytes = 64 << 20)
        },
    ];
    for (tier, change) in tiers.into_iter().enumerate() {
        let place = fillable(2, |settings, folder| {
            settings.memory = 40 << 20;
            settings.pull = Some(endless);
            if tier == 1 {
                settings.flash[0].path = folder.join("small");
            }
            change(settings);
        });
        assert!(ctl(&place, "fill peer endless").starts_with("ok "));
        wait_for(&place, "done");
        assert!(row(&place, "fill-why").starts_with("full: "));
        let bytes = row(&place, "fill-items").parse::<u64>().unwrap() * LEN as u64;
        let memory = row(&place, "item-memory").parse::<u64>().unwrap();
        // It went on until there was no room, on flash too.
        let least = memory / 2 + tier as u64 * (32 << 20);
        assert!(bytes > least, "{bytes}");
        // What was lost since is all in the counts when another one begins.
        assert!(ctl(&place, "fill peer endless").starts_with("ok "));
        wait_for(&place, "done");
    }
}

/// A fill asks which keys it may leave out: those that are here, and those that were changed here.
/// Nobody else gets such an answer, no get is counted, and no right to replace is won.
#[test]
fn a_fill_asks_for_keys_and_leaves_no_trace() {
    fn asks(job: &dyn Job) -> Result<(), String> {
        let gate = gate(job.how());
        let mut socket = UnixStream::from(job.connect().unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        gate.read.store(true, Ordering::SeqCst);
        wait_until("the test goes on", || gate.left.load(Ordering::SeqCst));
        for _ in 0..20 {
            for (key, answer) in [
                ("mine", "HD\r\n"),
                ("gone", "HD\r\n"),
                ("stale", "HD\r\n"),
                ("before", "HD\r\n"),
                ("other", "EN\r\n"),
            ] {
                socket
                    .write_all(format!("mg {key} u\r\n").as_bytes())
                    .unwrap();
                let mut got = [0; 64];
                let len = socket.read(&mut got).unwrap();
                assert_eq!(String::from_utf8_lossy(&got[..len]), answer, "{key}");
            }
            gate.commands.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
    let place = fillable(2, |settings, _| settings.pull = Some(asks));
    let gate = gate("asks");
    let mut client = place.connect();
    client.ask("set before 0 0 1\r\nx\r\n", "STORED\r\n");
    assert!(ctl(&place, "fill peer asks").starts_with("ok "));
    wait_until("the fill is there", || gate.read.load(Ordering::SeqCst));
    client.ask("set mine 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("set stale 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("md stale I T300\r\n", "HD\r\n");
    client.ask("delete gone\r\n", "NOT_FOUND\r\n");
    gate.left.store(true, Ordering::SeqCst);
    let mut gets = 0;
    let mut asked = || {
        gets += 1;
        client.ask("mg mine v\r\n", "VA 1\r\nx\r\n");
        gate.commands.load(Ordering::SeqCst)
    };
    while asked() < 20 {}
    wait_for(&place, "done");
    client.ask("mg stale v\r\n", "VA 1 X W\r\nx\r\n");
    wait_until("counts are there", || {
        row(&place, "gets") == (gets + 1).to_string()
    });
}
