// SPDX-License-Identifier: Apache-2.0
//! Clients that take more than their share, and their effect on others. Nothing here depends on the
//! clock: tests wait for states, and compare counts that do not depend on speed.

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use senko_cache::{HashSeed, Key};
use senko_io::Op;
use senko_io::fault::Fault;
use senko_server::server::Server;
use senko_server::server::plan::{PROCESS_BYTES, memory_plan};
use senko_server::settings::{BackendChoice, Settings};

use crate::gauge;
use crate::lend::{on_flash, unanswered};
use crate::serve::client::{Client, PATIENCE, Place, on_both};
use crate::serve::value;
use crate::tls::client::{self, ALL, Authority, Secure};

/// Attempts of a client whose value found no memory.
const TRIES: usize = 20;

/// Without flash, so that evicted items are gone, and with the patience of a real server.
fn plain(place: Place) -> Place {
    place.restart(|settings| {
        settings.flash.clear();
        settings.patience = 1;
    })
}

/// A client sent `set upN 0 0 1048000` and half of the value, and stopped. Four hundred such
/// clients used to evict every item of a server with 256 MiB, or make all other sets fail.
#[test]
fn values_that_stop_midway_push_out_nobody() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let place = plain(place);
            let mut client = place.connect();
            // On a busy machine our own value may stall too; its next attempt is stored.
            let store = |client: &mut Client, name: &str, len: usize| {
                let stored = (0..TRIES).any(|_| {
                    client.send(format!("set {name} 0 0 {len}\r\n"));
                    client.send(value(len, len));
                    match client.text("\r\n", "\r\n").as_str() {
                        "STORED\r\n" => true,
                        "SERVER_ERROR out of memory storing object\r\n" => false,
                        other => panic!("{name}: {other:?}"),
                    }
                });
                assert!(stored, "{name}: none of {TRIES} tries was stored");
            };
            for n in 0..200 {
                store(&mut client, &format!("kept{n}"), 100_000);
            }
            // Together four times what the items take.
            let len = 400_000;
            let half = value(7, len / 2);
            let mut stopped: Vec<Client> = (0..200).map(|_| place.connect()).collect();
            for (n, up) in stopped.iter_mut().enumerate() {
                up.send(format!("set up{n} 0 0 {len}\r\n"));
                up.send(&half);
                if n == 100 {
                    // While the crowd waits for memory, and part of it holds all that there is.
                    store(&mut client, "small", 100);
                    store(&mut client, "large", 600_000);
                }
            }
            store(&mut client, "another", 600_000);
            for n in 0..200 {
                let hit = client.text(&format!("mg kept{n} s\r\n"), "\r\n");
                assert_eq!(hit, "HD s100000\r\n", "kept{n} was pushed out");
            }
            // A client that continues learns the outcome of its value, and its connection stays in
            // step.
            let mut refused = 0;
            for up in &mut stopped {
                up.send(&half);
                match up.text("\r\nmn\r\n", "MN\r\n").as_str() {
                    "STORED\r\nMN\r\n" => {}
                    "SERVER_ERROR out of memory storing object\r\nMN\r\n" => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert!(refused > 0, "nobody had to give its memory up");
        });
    }
}

/// If too many clients continue to send, they are slowed down. One is refused only if too much
/// waits unread, and its next attempt is stored. No value is torn, and every connection stays in
/// step.
#[test]
fn a_crowd_of_large_values_is_stored_whole() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            // Here no value counts as stalled, however slow the machine is.
            let place = place.restart(|settings| settings.flash.clear());
            let len = 400_000;
            thread::scope(|scope| {
                for n in 0..40 {
                    let place = &place;
                    scope.spawn(move || {
                        let (mut client, value) = (place.connect(), value(n, len));
                        let stored = (0..1000).any(|_| {
                            client.send(format!("set c{n} 0 0 {len}\r\n"));
                            client.send(&value);
                            match client.text("\r\nmn\r\n", "MN\r\n").as_str() {
                                "STORED\r\nMN\r\n" => true,
                                "SERVER_ERROR out of memory storing object\r\nMN\r\n" => false,
                                other => panic!("{other:?}"),
                            }
                        });
                        assert!(stored, "c{n} was refused each time");
                    });
                }
            });
            let mut client = place.connect();
            for n in 0..40 {
                client.get(&format!("c{n}"), &value(n, len));
            }
        });
    }
}

/// One connection that sent `stats sizes` 3,000 times used to delay another's `get` for a second,
/// and eight of them for six. Now any number may send it, and the event loop does a few parts of
/// their work in each round.
#[test]
fn heavy_commands_are_a_few_in_each_round_whoever_asks() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let place = plain(place);
            let mut client = place.connect();
            let mut items = String::new();
            for n in 0..20_000 {
                items.push_str(&format!("set key{n} 0 0 1 noreply\r\nx\r\n"));
            }
            client.send(items.as_bytes());
            client.ask("mn\r\n", "MN\r\n");
            let mut askers = Vec::new();
            for command in [
                "stats sizes",
                "stats cachedump 1 0",
                "lru_crawler metadump 40",
                "lru_crawler metadump all",
                "stats conns",
                "stats",
                "stats items",
                "stats settings",
            ] {
                for _ in 0..4 {
                    let mut asker = place.connect();
                    asker.send(format!("{command}\r\n").repeat(300).as_bytes());
                    askers.push(asker);
                }
            }
            for n in 0..200 {
                client.ask(
                    &format!("get key{n}\r\n"),
                    &format!("VALUE key{n} 0 1\r\nx\r\nEND\r\n"),
                );
            }
            let heavy = client.stat("senko_heavy_turns");
            // Read later, so if anything these counts are higher.
            let rounds = client.stat("senko_rounds");
            assert!(heavy > 100, "the crowd was not there: {heavy}");
            assert!(
                heavy <= 4 * rounds + 4,
                "{heavy} heavy turns in {rounds} rounds"
            );
            // Each client of the crowd gets its turns.
            for asker in &mut askers {
                asker.exactly(1);
            }
        });
    }
}

/// Hundreds of connections with unread requests used to stop reception for all: another's only
/// `get` waited for nine seconds, until they had nearly all been answered.
#[test]
fn requests_that_wait_stop_nobody_elses_reception() {
    on_both(1, |place| {
        let place = plain(place);
        let mut client = place.connect();
        client.store("k", b"v");
        let each = 60_000 / "stats\r\n".len();
        let mut crowd: Vec<Client> = (0..100).map(|_| place.connect()).collect();
        for asker in &mut crowd {
            asker.send("stats\r\n".repeat(each).as_bytes());
        }
        for _ in 0..20 {
            client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
        let done = client.stat("senko_heavy_turns");
        let all = (each * crowd.len()) as u64;
        // They were nearly all answered before. The rest is for a test that waits for a processor.
        assert!(
            done < all / 4 * 3,
            "{done} of {all} stats were answered before"
        );
        // All get their turns. How many are closed as slow readers depends on when they read.
        for asker in &mut crowd {
            asker.until(b"END\r\n");
        }
    });
}

/// A few clients whose items were on a stalled device used to stop all others. While their commands
/// waited at one worker, it received nothing from any connection with commands for it.
#[test]
fn commands_that_wait_at_another_worker_hold_nobody_else_back() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let (place, switch) = on_flash(io, 400, 3000);
        let shard_of = |key: &str| Key::new(key.as_bytes(), HashSeed::default()).shard(2);
        let key_of = |name: &str, shard: usize, nth: usize| {
            let keys = (0..).map(|n| format!("{name}{n}"));
            keys.filter(|key| shard_of(key) == shard).nth(nth).unwrap()
        };
        let mut others: Vec<Client> = (0..4).map(|_| place.connect()).collect();
        for shard in 0..2 {
            others[0].store(&key_of("dram", shard, 0), b"v");
        }
        switch.inject(Some(Op::Read), 0..u64::MAX, Fault::Stall);
        // Half of these have their keys at the other worker. The first command waits for the
        // device, and the others wait for the first.
        let mut crowd: Vec<Client> = (0..32).map(|_| place.connect()).collect();
        for (n, client) in crowd.iter_mut().enumerate() {
            let shard = n / 2 % 2;
            client.send(format!("append {} 0 0 1\r\nx\r\n", key_of("key", shard, n)));
            let key = key_of("later", shard, n);
            let set = format!("set {key} 0 0 3000 noreply\r\n{}\r\n", "y".repeat(3000));
            client.send(set.repeat(20).as_bytes());
        }
        let deadline = Instant::now() + Duration::from_secs(600);
        while others[0].stat("senko_conns_held") < 4 {
            assert!(Instant::now() < deadline, "no connection was held back");
            thread::sleep(Duration::from_millis(5));
        }
        for n in 0..100 {
            for other in &mut others {
                let key = key_of("dram", n % 2, 0);
                other.ask(&format!("touch {key} 0\r\n"), "TOUCHED\r\n");
                other.ask(
                    &format!("get {key}\r\n"),
                    &format!("VALUE {key} 0 1\r\nv\r\nEND\r\n"),
                );
            }
        }
        assert_eq!(unanswered(&crowd), crowd.len(), "the device had stalled");
        switch.clear();
        for client in &mut crowd {
            client.ask("mn\r\n", "STORED\r\nMN\r\n");
        }
    }
}

/// A hundred machines that lost power used to fill `-c 100` forever: the server never checked
/// whether they were still there.
#[test]
fn connections_are_asked_whether_their_peers_are_there() {
    on_both(1, |place| {
        let mut client = place.connect();
        client.ask("mn\r\n", "MN\r\n");
        let ours = format!("0100007F:{:04X}", place.port());
        let mut timer = None;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            // sl, local, remote, state, queues, the timer that runs and when it ends: 02 is
            // keepalive's.
            timer = table.lines().find_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                (fields.get(1) == Some(&ours.as_str()) && fields.get(3) == Some(&"01"))
                    .then(|| fields[5][..2].to_owned())
            });
            // Another timer runs while an answer is not acknowledged.
            if timer.as_deref() == Some("02") {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("no keepalive runs on the server's side: {timer:?}");
    });
}

/// The clients of the next two tests, their requests, and the answer to one of them. All answers to
/// a client are more than the kernel keeps for a connection (4 MiB), whatever memory it has.
const UNREAD: usize = 350;
const PIPELINED: usize = 3000;
const ANSWER: usize = 3000;

/// A server whose clients ask for more than they read.
fn crowded(threads: usize, secure: bool) -> (Settings, Authority) {
    let authority = Authority::new();
    let local = "127.0.0.1:0".parse().unwrap();
    let settings = Settings {
        listen: vec![local],
        tls: secure.then(|| authority.settings()),
        memory: 64 << 20,
        max_connections: 400,
        threads,
        ..Settings::default()
    };
    (settings, authority)
}

/// Not a test by itself: the process of the one below.
#[test]
fn unread_answers_are_counted_here() {
    let Ok(kind) = std::env::var("SENKO_TEST_GAUGE") else {
        return;
    };
    let (threads, secure) = (kind[..1].parse().unwrap(), kind.ends_with("tls"));
    gauge::this_thread_is_a_client();
    let (settings, authority) = crowded(threads, secure);
    let plan = memory_plan(&settings, &[]).unwrap();
    // Receive buffers and items are not allocated one by one.
    let loops = plan.loop_config.recv_buffers * plan.loop_config.recv_buffer_bytes;
    let rest = plan.total as usize - threads * (plan.shard + loops);
    let budget = rest - PROCESS_BYTES as usize;
    let server = Server::start(settings).unwrap();
    gauge::start();
    let door = server.report().addresses[0];
    let config = client::trusting(ALL, None);
    let value = value(1, ANSWER);
    let gets = b"get key\r\n".repeat(PIPELINED);
    let mut all = Vec::new();
    let mut first = match secure {
        true => Err(Secure::secure(door, &config)),
        false => Ok(Client::to(door)),
    };
    match &mut first {
        Ok(client) => client.store("key", &value),
        Err(client) => client.store("key", &value),
    }
    let mut closed = |until: u64| match &mut first {
        Ok(client) => client.stat("senko_slow_readers_closed") >= until,
        Err(client) => client.stat("senko_slow_readers_closed") >= until,
    };
    for _ in 0..UNREAD {
        match secure {
            true => {
                let mut client = Secure::secure(door, &config);
                client.shake().unwrap();
                // The server may have closed it.
                let _ = client.stream.conn.writer().write_all(&gets);
                let _ = client.stream.conn.write_tls(&mut client.stream.sock);
                all.push((None, Some(client)));
            }
            false => {
                let mut client = Client::to(door);
                let _ = client.stream.write_all(&gets);
                all.push((Some(client), None));
            }
        }
    }
    let until = Instant::now() + PATIENCE;
    while !closed(UNREAD as u64 / 4) {
        assert!(Instant::now() < until, "no slow reader was closed");
    }
    let peak = gauge::peak();
    println!("{kind}: {peak} of {budget} bytes");
    assert!(peak <= budget, "{kind}: {peak} of {budget} bytes");
    drop((all, authority));
    server.control().abort();
}

/// Clients that ask for much and read nothing once took half as much again as `--memory` says:
/// buffers were counted by what they held, and not by what they took, and emptied ones that were
/// kept for later were not counted at all.
#[test]
fn answers_that_nobody_reads_stay_within_the_plan() {
    for kind in ["1 plain", "2 plain", "1 tls", "2 tls"] {
        let done = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "harm::unread_answers_are_counted_here",
                "--nocapture",
            ])
            .env("SENKO_TEST_GAUGE", kind)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(said.contains(" bytes"), "{said}");
    }
}

/// A round ran a turn of each connection that had sent many requests, however many those were, and
/// sent all their answers. So with 900 of them a newcomer waited for seconds.
#[test]
fn a_round_is_short_whoever_has_sent_much() {
    // One turn for each receive buffer, and turns of connections that go on: with the events, and
    // from the queue.
    const A_ROUND: u64 = 64 + 2 * 16;
    let (settings, _) = crowded(1, false);
    let plan = memory_plan(&settings, &[]).unwrap();
    assert_eq!(plan.loop_config.recv_buffers, 64);
    let server = Server::start(settings).unwrap();
    let door = server.report().addresses[0];
    let mut client = Client::to(door);
    client.store("key", &value(1, ANSWER));
    let gets = b"get key\r\n".repeat(PIPELINED);
    let numbers = |client: &mut Client| {
        let stats = client.stats();
        [
            "senko_whole_turns",
            "senko_rounds",
            "senko_slow_readers_closed",
        ]
        .map(|name| stats.get(name))
    };
    let mut all = Vec::new();
    let mut last = numbers(&mut client);
    let until = Instant::now() + PATIENCE;
    let mut most = 0;
    while all.len() < UNREAD || last[2] < UNREAD as u64 / 4 {
        if all.len() < UNREAD {
            let mut client = Client::to(door);
            let _ = client.stream.write_all(&gets);
            all.push(client);
        }
        let now = numbers(&mut client);
        let (turns, rounds) = (now[0] - last[0], now[1] - last[1]);
        assert!(
            turns <= A_ROUND * (rounds + 1),
            "{turns} in {rounds} rounds"
        );
        most = most.max(turns / (rounds + 1));
        last = now;
        assert!(Instant::now() < until, "{last:?}");
    }
    assert!(most > 0, "nobody had to wait for a turn");
    server.shutdown();
    server.join().unwrap();
}
