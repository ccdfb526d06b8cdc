// SPDX-License-Identifier: Apache-2.0
//! The server over real sockets: many connections, misbehaving ones among them, limits, several
//! workers, the stop. Each test runs on both I/O backends.

pub(crate) mod client; // a server in this process, and connections to it

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, PATIENCE, Place, Refusal, on_both};
use senko_io::Op;
use senko_io::fault::{Fault, FaultSwitch};
use senko_server::server::Server;
use senko_server::settings::{BackendChoice, FlashSpec, Settings};

use crate::session::packet;

/// A value that names its key and offsets, so that a wrong byte is noticed.
pub(crate) fn value(key: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| b'a' + ((key * 31 + at * 7 + at / 251) % 26) as u8)
        .collect()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both(1, |place| {
        let mut client = place.connect();
        let mut request = Vec::new();
        let mut wanted = Vec::new();
        for n in 0..5000 {
            request.extend_from_slice(
                format!("set k{n} {n} 0 5\r\n{n:05}\r\nget k{n} nothing\r\nmg k{n} v k\r\n")
                    .as_bytes(),
            );
            wanted.extend_from_slice(
                format!("STORED\r\nVALUE k{n} {n} 5\r\n{n:05}\r\nEND\r\nVA 5 kk{n}\r\n{n:05}\r\n")
                    .as_bytes(),
            );
        }
        client.send_while_reading(&request, &wanted);
    });
}

#[test]
fn a_request_may_come_in_any_pieces() {
    on_both(1, |place| {
        let mut client = place.connect();
        let request = b"set key 7 0 10\r\n0123456789\r\nget key\r\nset key 0 0 3 noreply\r\nabc\r\ngets key key\r\nmn\r\n";
        for piece in [1, 2, 3, 7, 19] {
            for part in request.chunks(piece) {
                client.send(part);
                thread::sleep(Duration::from_micros(200));
            }
            client.expect(b"STORED\r\nVALUE key 7 10\r\n0123456789\r\nEND\r\n");
            let rest = client.until(b"MN\r\n");
            assert_eq!(
                rest.iter().filter(|&&b| b == b'\n').count(),
                6,
                "{}",
                String::from_utf8_lossy(&rest)
            );
        }
    });
}

#[test]
fn half_sent_requests_hold_up_nobody() {
    on_both(1, |place| {
        let mut halves: Vec<Client> = (0..50).map(|_| place.connect()).collect();
        for (n, half) in halves.iter_mut().enumerate() {
            match n % 3 {
                0 => half.send(b"get some"),
                1 => half.send(b"set k 0 0 100000\r\nabc"),
                _ => half.send([0x80, 1, 0, 3]),
            }
        }
        let mut client = place.connect();
        for n in 0..200 {
            client.ask(&format!("set a{n} 0 0 1\r\nx\r\n"), "STORED\r\n");
            client.ask(
                &format!("get a{n}\r\n"),
                &format!("VALUE a{n} 0 1\r\nx\r\nEND\r\n"),
            );
        }
        for half in halves.iter_mut().step_by(3) {
            half.send(b"thing\r\n");
            half.expect(b"END\r\n");
        }
    });
}

#[test]
fn clients_that_vanish_mid_value_leave_nothing_behind() {
    vanish(1);
    vanish(2);
}

fn vanish(shards: usize) {
    on_both(shards, |place| {
        let len = 500_000;
        // Together far more than the server's memory.
        for round in 0..300 {
            let mut client = place.connect();
            client.send(format!("set vanish{round} 0 0 {len}\r\n"));
            client.send(value(round, len / 2));
            if round % 2 == 0 {
                client.reset();
            }
        }
        let mut client = place.connect();
        client.ask("get vanish0 vanish1 vanish299\r\n", "END\r\n");
        client.send(format!("set after 0 0 {len}\r\n"));
        client.send(value(1, len));
        client.ask("\r\n", "STORED\r\n");
        place.wait_for_connections(1);
    });
}

#[test]
fn a_slow_reader_gets_everything_and_harms_nobody() {
    on_both(1, |place| {
        let len = 100_000;
        let mut client = place.connect();
        for n in 0..20 {
            client.store(&format!("big{n}"), &value(n, len));
        }
        let mut slow = place.connect();
        let asked = 400;
        let mut sender = slow.second_handle();
        let writer = thread::spawn(move || {
            for n in 0..asked {
                sender
                    .write_all(format!("get big{}\r\n", n % 20).as_bytes())
                    .unwrap();
            }
        });
        // 40 MB of answers wait for a client that does not read; others are served as before.
        for n in 0..500 {
            client.ask(&format!("set other{n} 0 0 2\r\nhi\r\n"), "STORED\r\n");
        }
        for n in 0..asked {
            let key = n % 20;
            slow.expect_value(&format!("big{key}"), &value(key, len));
        }
        writer.join().unwrap();
    });
}

#[test]
fn readers_of_flash_that_stop_reading_are_closed_before_they_hold_all_memory() {
    on_both(1, |place| {
        let mut client = place.connect();
        let (keys, len) = (3000, 30_000);
        for n in 0..keys {
            client.store(&format!("f{n}"), &value(n, len));
        }
        let mut stuck: Vec<Client> = (0..60).map(|_| place.connect()).collect();
        for (c, slow) in stuck.iter_mut().enumerate() {
            let mut request = Vec::new();
            for n in 0..200 {
                request
                    .extend_from_slice(format!("get f{}\r\n", (c * 37 + n * 11) % keys).as_bytes());
            }
            slow.send(&request);
        }
        // All others are served, from flash too.
        let mut found = 0;
        for n in (0..keys).step_by(10) {
            client.send(format!("get f{n}\r\n"));
            let answer = client.until(b"END\r\n");
            if answer.len() > len {
                assert!(answer.windows(100).any(|w| w == &value(n, len)[..100]));
                found += 1;
            }
        }
        assert!(found > keys / 10 * 9 / 10, "{found} found");
        assert!(client.stat("senko_slow_readers_closed") > 0);
    });
}

/// The binary protocol's `stats` asks the other workers before any key does; the following bytes
/// are still binary to them.
#[test]
fn binary_stats_before_anything_else() {
    let answer = |client: &mut Client| {
        let head = client.exactly(24);
        let body = u32::from_be_bytes(head[8..12].try_into().unwrap());
        (head, client.exactly(body as usize))
    };
    on_both(2, |place| {
        let mut client = place.connect();
        client.send(packet(0x10, b"", &[], b"", 0));
        while !answer(&mut client).1.is_empty() {}
        for n in 0..20 {
            let key = format!("key{n}");
            client.send(packet(0x01, key.as_bytes(), &[0; 8], b"a\nb", 0));
            assert_eq!(answer(&mut client).0[6..8], [0, 0], "{key}");
            client.send(packet(0x00, key.as_bytes(), &[], b"", 0));
            assert_eq!(answer(&mut client).1, b"\0\0\0\0a\nb", "{key}");
        }
    });
}

/// Far more answers are requested than there is memory for answers, of all workers' keys by
/// connections of all workers; some send a command in two parts. All are answered, in order, except
/// those whose reader the server counts as too slow: a busy machine makes some so.
#[test]
fn more_answers_than_memory_reach_everybody() {
    on_both(3, |place| {
        let mut client = place.connect();
        const KEYS: usize = 60;
        let len_of = |n: usize| [30_000, 1000, 300_000][n % 3];
        for n in 0..KEYS {
            client.store(&format!("k{n}"), &value(n, len_of(n)));
        }
        let asked = |c: usize| (0..150).map(move |n| (c * 7 + n * 11 + n * n) % KEYS);
        let clients: Vec<_> = (0..60)
            .map(|c| {
                let mut client = place.connect();
                thread::spawn(move || {
                    let mut text = String::new();
                    for key in asked(c) {
                        text += &format!("get k{key}\r\n");
                    }
                    let (first, second) = text.split_at(text.len() - 3);
                    client.send(first.as_bytes());
                    let count = asked(c).count();
                    for (n, key) in asked(c).enumerate() {
                        if n + 1 == count {
                            client.send(second.as_bytes());
                        }
                        client.expect_value(&format!("k{key}"), &value(key, len_of(key)));
                    }
                })
            })
            .collect();
        let of = clients.len();
        let ended: Vec<_> = clients
            .into_iter()
            .filter_map(|client| client.join().err())
            .collect();
        for why in &ended {
            let why = why.downcast_ref::<String>().unwrap();
            let closed = [
                "connection ended",
                "reset by peer",
                "ConnectionReset",
                "BrokenPipe",
            ];
            assert!(closed.iter().any(|words| why.contains(words)), "{why}");
        }
        assert!(ended.len() < of, "none was answered");
        while client.stat("senko_slow_readers_closed") < ended.len() as u64 {
            thread::yield_now();
        }
        let mut halves: Vec<Client> = (0..3).map(|_| place.connect()).collect();
        for half in &mut halves {
            half.send(b"get k1 n");
        }
        let crowd = asked(3).fold(String::new(), |text, key| text + &format!("get k{key}\r\n"));
        let mut others: Vec<Client> = (0..30).map(|_| place.connect()).collect();
        for other in &mut others {
            other.send(crowd.as_bytes());
        }
        for half in &mut halves {
            half.send(b"one\r\n");
            half.expect_value("k1", &value(1, 1000));
        }
    });
}

/// Commands without an answer leave no state on their connection, whichever worker executed them.
#[test]
fn commands_without_answers_leave_nothing() {
    on_both(2, |place| {
        let mut client = place.connect();
        for part in 0..20 {
            let mut text = String::new();
            for n in 0..3000 {
                text += &format!("set k{part}.{n} 0 0 1 noreply\r\nx\r\n");
            }
            client.send(text.as_bytes());
        }
        client.ask(
            "mn\r\nget k19.2999\r\n",
            "MN\r\nVALUE k19.2999 0 1\r\nx\r\nEND\r\n",
        );
    });
}

/// If one worker refuses a value because it has no room, the other closes the client's connection.
/// No byte of a value runs as a command.
#[test]
fn a_worker_that_refuses_input_closes_the_connection() {
    let place = Place::start(BackendChoice::Auto, 2);
    let switch = FaultSwitch::new();
    let place = place.restart(|settings| {
        settings.faults = vec![Arc::clone(&switch)];
        settings.patience = 50;
    });
    // The flash tier accepts no writes, so operations that need memory wait.
    let mut client = place.connect();
    for n in 0..8000 {
        client.store(&format!("fill{n}"), &value(n, 8000));
    }
    switch.inject(Some(Op::Write), 0..u64::MAX, Fault::Stall);
    let mut text = Vec::new();
    let body = "x\r\nflush_all\r\nquit\r\n".repeat(400);
    for n in 0..40 {
        text.extend_from_slice(format!("set k{n} 0 0 {}\r\n{body}\r\n", body.len()).as_bytes());
    }
    let clients: Vec<Client> = (0..200).map(|_| place.connect()).collect();
    let senders = clients.into_iter().map(|client| {
        let text = text.clone();
        thread::spawn(move || {
            let mut to = client.second_handle();
            let sender = thread::spawn(move || drop(to.write_all(&text)));
            let mut from = client.second_handle();
            let mut got = Vec::new();
            let mut part = [0; 4096];
            while got.iter().filter(|&&byte| byte == b'\n').count() < 40 {
                match from.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => got.extend_from_slice(&part[..n]),
                }
            }
            drop(from.shutdown(std::net::Shutdown::Both));
            sender.join().unwrap();
            got
        })
    });
    let senders: Vec<_> = senders.collect();
    thread::sleep(Duration::from_secs(2));
    switch.clear();
    for sender in senders {
        let got = sender.join().unwrap();
        let text = String::from_utf8(got).unwrap();
        let known = |line: &str| line == "STORED" || line.starts_with("SERVER_ERROR");
        assert!(text.split_terminator("\r\n").all(known), "{text}");
    }
    let stats = place.connect().text("stats\r\n", "END\r\n");
    assert!(stats.contains("STAT cmd_flush 0\r\n"), "{stats}");
}

#[test]
fn at_the_connection_limit_newcomers_are_told_so() {
    on_both(1, |place| {
        let place = place.restart(|settings| settings.max_connections = 4);
        let mut clients: Vec<Client> = (0..4).map(|_| place.connect()).collect();
        for client in &mut clients {
            client.ask("mn\r\n", "MN\r\n");
        }
        let mut fifth = place.connect();
        assert_eq!(fifth.rest(), b"ERROR Too many open connections\r\n");
        let stats = clients[0].text("stats\r\n", "END\r\n");
        assert!(stats.contains("STAT rejected_connections 1\r\n"), "{stats}");
        clients.pop();
        place.wait_for_connections(3);
    });
}

#[test]
fn at_the_connection_limit_newcomers_may_wait() {
    on_both(2, |place| {
        let place = place.restart(|settings| {
            settings.max_connections = 3;
            settings.refuse_fast = false;
        });
        let mut clients: Vec<Client> = (0..3).map(|_| place.connect()).collect();
        for client in &mut clients {
            client.ask("mn\r\n", "MN\r\n");
        }
        let mut waiting: Vec<Client> = (0..3).map(|_| place.connect()).collect();
        for client in &mut waiting {
            client.send(b"mn\r\n");
        }
        drop(clients);
        for client in &mut waiting {
            client.expect(b"MN\r\n");
        }
        let stats = waiting[0].text("stats\r\n", "END\r\n");
        assert!(!stats.contains("STAT listen_disabled_num 0\r\n"), "{stats}");
    });
}

#[test]
fn idle_connections_are_closed_by_the_clock() {
    on_both(1, |place| {
        let place = place.restart(|settings| settings.idle_timeout = 60);
        let mut idle = place.connect();
        let mut busy = place.connect();
        idle.ask("mn\r\n", "MN\r\n");
        for _ in 0..5 {
            place.clock.fetch_add(20_000, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(150)); // the clock is read at least ten times a second
            busy.ask("mn\r\n", "MN\r\n");
        }
        assert_eq!(idle.rest(), b"");
        let stats = busy.text("stats\r\n", "END\r\n");
        assert!(stats.contains("STAT idle_kicks 1\r\n"), "{stats}");
    });
}

#[test]
fn a_unix_socket_and_tcp_side_by_side() {
    on_both(2, |place| {
        let path = place.folder.join("socket");
        let unix = path.clone();
        let mut place = place.restart(move |settings| settings.unix_socket = Some(unix));
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        client.write_all(b"set a 0 0 1\r\nb\r\n").unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        let mut other = place.connect();
        other.ask("get a\r\n", "VALUE a 0 1\r\nb\r\nEND\r\n");
        let conns = other.text("stats conns\r\n", "END\r\n");
        assert!(
            conns.contains("unix:") && conns.contains("tcp:127.0.0.1:"),
            "{conns}"
        );
        place.end();
        assert!(!path.exists());
    });
}

#[test]
fn a_shutdown_answers_what_was_received() {
    on_both(2, |mut place| {
        let mut client = place.connect();
        for n in 0..2000 {
            client.store(&format!("d{n}"), &value(n, 2000));
        }
        let mut half = place.connect();
        half.ask("mn\r\n", "MN\r\n");
        half.send(b"set never 0 0 100\r\nhalf");
        let mut request = Vec::new();
        for n in 0..500 {
            request.extend_from_slice(format!("get d{n}\r\n").as_bytes());
        }
        client.send(&request);
        client.expect(b"VALUE d0 "); // it was received, and is under way
        place.server().shutdown();
        let text = client.rest();
        let ends = text.windows(5).filter(|w| *w == b"END\r\n").count();
        assert_eq!(ends, 500);
        assert_eq!(half.rest(), b"");
        place.end();
    });
}

/// Clients that always had a request under way used to keep a server from stopping until it closed
/// all connections.
#[test]
fn a_shutdown_ends_also_clients_that_go_on() {
    let request: &[u8] = b"get here\r\nget nowhere\r\n";
    let answer: &[u8] = b"VALUE here 0 4\r\nhere\r\nEND\r\nEND\r\n";
    on_both(2, |place| {
        // They kept it for an hour and more then.
        let mut place = place.restart(|settings| settings.patience = 1000);
        place.connect().store("here", b"here");
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let mut client = place.connect();
                let answered = &answered;
                scope.spawn(move || {
                    while client.try_ask(request, answer) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while answered.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            let begin = Instant::now();
            place.end();
            assert!(begin.elapsed() < 5 * PATIENCE);
        });
    });
}

/// A client that sends without waiting always leaves bytes to read.
#[test]
fn a_shutdown_ends_also_a_client_that_sends_on_and_on() {
    on_both(2, |place| {
        let mut place = place.restart(|settings| settings.patience = 2);
        let mut client = place.connect();
        let mut sender = client.second_handle();
        std::thread::scope(|scope| {
            scope.spawn(move || while sender.write_all(&b"get no\r\n".repeat(5000)).is_ok() {});
            client.expect(b"END\r\n");
            scope.spawn(move || client.rest());
            place.end();
        });
    });
}

#[test]
fn a_client_that_does_not_read_cannot_prevent_the_end() {
    on_both(1, |place| {
        let mut place = place.restart(|settings| settings.patience = 1);
        let mut client = place.connect();
        client.store("big", &value(1, 900_000));
        client.send(b"get big\r\n".repeat(50));
        client.expect(b"VALUE big ");
        // It returns, after some seconds.
        place.server().shutdown();
        place.end();
    });
}

#[test]
fn several_workers_answer_as_one() {
    on_both(3, |place| {
        let mut clients: Vec<Client> = (0..7).map(|_| place.connect()).collect();
        for n in 0..300 {
            let client = &mut clients[n % 7];
            client.ask(
                &format!("set s{n} {n} 0 {}\r\n{n}\r\n", n.to_string().len()),
                "STORED\r\n",
            );
        }
        // Every connection sees every key, whoever stored it; one line has keys of all shards,
        // including missing ones.
        for client in &mut clients {
            let keys: Vec<String> = (0..300).map(|n| format!("s{n} no{n}")).collect();
            client.send(format!("get {}\r\n", keys.join(" ")));
            let mut wanted = String::new();
            for n in 0..300 {
                wanted += &format!("VALUE s{n} {n} {}\r\n{n}\r\n", n.to_string().len());
            }
            client.expect(wanted.as_bytes());
            client.expect(b"END\r\n");
        }
        for n in 0..60 {
            let client = &mut clients[n % 7];
            let k = format!("c{n}");
            client.ask(&format!("add {k} 0 0 1\r\n5\r\n"), "STORED\r\n");
            client.ask(&format!("add {k} 0 0 1\r\n5\r\n"), "NOT_STORED\r\n");
            client.ask(&format!("replace {k} 1 0 1\r\n6\r\n"), "STORED\r\n");
            client.ask(&format!("append {k} 0 0 1\r\n7\r\n"), "STORED\r\n");
            client.ask(&format!("prepend {k} 0 0 1\r\n1\r\n"), "STORED\r\n");
            client.ask(&format!("incr {k} 10\r\n"), "177\r\n");
            client.ask(&format!("decr {k} 7\r\n"), "170\r\n");
            client.ask(&format!("touch {k} 100\r\n"), "TOUCHED\r\n");
            client.ask(
                &format!("gat 0 {k}\r\n"),
                &format!("VALUE {k} 1 3\r\n170\r\nEND\r\n"),
            );
            let gets = client.text(&format!("gets {k}\r\n"), "END\r\n");
            let cas: u64 = gets
                .lines()
                .next()
                .unwrap()
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            client.ask(&format!("cas {k} 0 0 1 {cas}\r\nx\r\n"), "STORED\r\n");
            client.ask(&format!("cas {k} 0 0 1 {cas}\r\ny\r\n"), "EXISTS\r\n");
            client.ask(&format!("mg {k} v\r\n"), "VA 1\r\nx\r\n");
            client.ask(&format!("ms m{k} 2\r\nab\r\n"), "HD\r\n");
            client.ask(&format!("ma n{k} N0 J5 v\r\n"), "VA 1\r\n5\r\n");
            client.ask(&format!("md {k} q\r\nmg {k} v\r\nmn\r\n"), "EN\r\nMN\r\n");
            client.ask(&format!("delete m{k}\r\n"), "DELETED\r\n");
            client.ask(
                &format!("set {k} 0 0 2 noreply\r\nzz\r\nget {k}\r\n"),
                &format!("VALUE {k} 0 2\r\nzz\r\nEND\r\n"),
            );
        }
        let stats = clients[0].text("stats\r\n", "END\r\n");
        assert!(stats.contains("STAT threads 3\r\n"), "{stats}");
        clients[1].ask("flush_all\r\n", "OK\r\n");
        for client in &mut clients {
            client.ask("get s1 s2 s3 s4 s5 s6 s7 s8 s9\r\n", "END\r\n");
        }
    });
}

/// A worker that did not know of a `flush_all` yet took memory for a value. It learned of the flush
/// when the value was complete, and stored the item as one from before the flush. So the item was
/// acknowledged, and lost at once.
#[test]
fn what_is_stored_after_a_flush_stays() {
    on_both(3, |place| {
        let mut clients: Vec<Client> = (0..3).map(|_| place.connect()).collect();
        for n in 0..200 {
            clients[n % 3].ask("flush_all\r\n", "OK\r\n");
            let client = &mut clients[(n + 1) % 3];
            client.ask(&format!("set w{n} 0 0 2\r\nhi\r\n"), "STORED\r\n");
            client.ask(
                &format!("get w{n}\r\n"),
                &format!("VALUE w{n} 0 2\r\nhi\r\nEND\r\n"),
            );
        }
    });
}

#[test]
fn large_values_cross_workers_whole() {
    on_both(2, |place| {
        let place = place.restart(|settings| {
            settings.max_item = 6 << 20;
            settings.memory = 256 << 20;
        });
        let mut clients: Vec<Client> = (0..4).map(|_| place.connect()).collect();
        for n in 0..12 {
            clients[n % 4].store(&format!("large{n}"), &value(n, 4_000_000 + n));
        }
        for n in 0..12 {
            let client = &mut clients[(n + 1) % 4];
            client.get(&format!("large{n}"), &value(n, 4_000_000 + n));
        }
    });
}

#[test]
fn many_connections_come_and_go_across_workers() {
    on_both(3, |place| {
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let port = place.port();
                thread::spawn(move || {
                    for round in 0..100 {
                        let mut client = Client::connect(port);
                        let key = format!("t{t}r{}", round % 10);
                        client.send(format!("set {key} 0 0 4\r\nabcd\r\nget {key} x y z\r\n"));
                        if round % 5 != 0 {
                            client.expect(
                                format!("STORED\r\nVALUE {key} 0 4\r\nabcd\r\nEND\r\n").as_bytes(),
                            );
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        place.wait_for_connections(0);
    });
}

#[test]
fn what_cannot_start_says_why() {
    let folder = client::Scratch::new();
    let base = || Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        memory: 64 << 20,
        ..Settings::default()
    };
    let flash = |name: &str, bytes| FlashSpec {
        path: folder.join(name),
        bytes,
    };
    let first = Server::start(Settings {
        flash: vec![flash("f", 64 << 20)],
        ..base()
    })
    .unwrap();
    let taken = first.report().addresses[0];
    let taken_name = taken.to_string();
    let refused: &[Refusal<'_>] = &[
        (&|s| s.listen = vec![taken], &taken_name),
        (&|s| s.flash = vec![flash("f", 64 << 20)], "/f"),
        (&|s| s.memory = 1 << 20, "too small"),
        (&|s| s.listen.clear(), "nothing to listen on"),
        (&|s| s.flash = vec![flash("g", 8 << 10)], "too small"),
        (&|s| s.trace = Some(folder.join("t")), "trace"),
    ];
    for (change, why) in refused {
        let mut settings = base();
        change(&mut settings);
        let told = Server::start(settings).map(drop).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    first.shutdown();
    first.join().unwrap();
}

/// `senko serve --flash FILE` used to overwrite a foreign file silently. A file that a server has
/// used before belongs to it, also without a data directory.
#[test]
fn a_flash_file_with_data_of_others_is_refused_unless_told() {
    let folder = client::Scratch::new();
    let path = folder.join("theirs");
    let mut content = vec![0; 1 << 20];
    content[0x438..0x43a].copy_from_slice(b"\x53\xef");
    std::fs::write(&path, &content).unwrap();
    let start = |reinit: bool, data: bool| {
        Server::start(Settings {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            memory: 64 << 20,
            flash: vec![FlashSpec {
                path: path.clone(),
                bytes: 64 << 20,
            }],
            data_dir: data.then(|| folder.join("data")),
            shared_memory: folder.to_path_buf(),
            reinit,
            ..Settings::default()
        })
    };
    for data in [false, true] {
        let error = start(false, data).map(drop).unwrap_err().to_string();
        assert!(
            error.contains("ext4") && error.contains("--reinit"),
            "{error}"
        );
        assert!(std::fs::read(&path).unwrap() == content, "untouched");
    }
    for (reinit, data) in [(true, false), (false, false), (false, true), (false, true)] {
        let server = start(reinit, data).unwrap();
        server.shutdown();
        server.join().unwrap();
    }
    let error = start(false, false).map(drop).unwrap_err().to_string();
    assert!(error.contains("belongs to a data directory"), "{error}");
}

#[test]
fn a_trace_records_what_reached_the_flash_file() {
    on_both(1, |place: Place| {
        let path = place.folder.join("trace");
        let trace = path.clone();
        let mut place = place.restart(move |settings| settings.trace = Some(trace));
        let mut client = place.connect();
        for n in 0..2000 {
            client.store(&format!("t{n}"), &value(n, 30_000));
        }
        client.text("get t0 t1 t2\r\n", "END\r\n");
        place.end();
        let records = senko_io::trace::TraceReader::open(&path).unwrap().count();
        assert!(records > 10, "{records} records");
    });
}
