// SPDX-License-Identifier: Apache-2.0
//! Answers that another shard's worker sends on a connection's socket: their order, and what
//! happens to the socket when the client does not read, sends more, or leaves meanwhile. Each test
//! runs on both I/O backends; on posix no socket is lent.

use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use senko_io::Op;
use senko_io::fault::{Fault, FaultSwitch};
use senko_server::settings::BackendChoice;

use crate::serve::client::{Client, PATIENCE, Place, on_both};
use crate::serve::value;

fn answer(key: usize, len: usize) -> Vec<u8> {
    let head = format!("VALUE key{key} 0 {len}\r\n").into_bytes();
    [head, value(key, len), b"\r\nEND\r\n".to_vec()].concat()
}

/// The clients that have no answer yet.
pub(crate) fn unanswered(clients: &[Client]) -> usize {
    let waits = |client: &&Client| {
        client.stream.set_nonblocking(true).unwrap();
        let seen = client.stream.peek(&mut [0]);
        client.stream.set_nonblocking(false).unwrap();
        seen.is_err()
    };
    clients.iter().filter(waits).count()
}

/// Waits until the devices hold more than this many operations.
fn wait_for_reads(place: &Place, more_than: u64) {
    let mut client = place.connect();
    let until = Instant::now() + PATIENCE;
    while client.stat("extstore_io_queue") <= more_than {
        assert!(Instant::now() < until, "the reads do not come");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether sockets are lent at all.
fn lends(place: &Place) -> bool {
    place.server().report().backend == "io_uring"
}

/// Two workers whose keys `key0` to `key{count - 1}` are on flash; their reads stall when the
/// switch is on.
pub(crate) fn on_flash(io: BackendChoice, count: usize, len: usize) -> (Place, Arc<FaultSwitch>) {
    let switch = FaultSwitch::new();
    let place = Place::start(io, 2).restart(|settings| {
        settings.faults = vec![Arc::clone(&switch)];
        settings.patience = 1000;
    });
    let mut client = place.connect();
    for key in 0..count {
        client.store(&format!("key{key}"), &value(key, len));
    }
    for n in 0..4000 {
        if n == 2000 {
            // With less memory, pages of the classes whose items stay longest are emptied first.
            client.ask("cache_memlimit 8\r\n", "OK\r\n");
        }
        client.store(&format!("later{n}"), &value(n, 30_000));
    }
    client.ask("cache_memlimit 32\r\n", "OK\r\n");
    (place, switch)
}

#[test]
fn each_answer_comes_once_whoever_has_the_key() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let place = Place::start(io, 3);
        let mut clients: Vec<Client> = (0..5).map(|_| place.connect()).collect();
        for key in 0..200 {
            clients[key % 5].store(&format!("key{key}"), &value(key, 1 + key * 40));
        }
        for round in 0..2000 {
            let key = round * 7 % 200;
            let client = &mut clients[round % 5];
            // Commands that change an item are always forwarded.
            let command = if round % 2 == 0 { "get" } else { "gat 0" };
            client.send(format!("{command} key{key}\r\n"));
            client.expect(&answer(key, 1 + key * 40));
        }
        let for_others = clients[0].stat("senko_sent_for_others");
        // Two of three keys belong to another worker, and each of these requests was alone.
        assert_eq!(for_others > 500, lends(&place), "{for_others}");
        // Missing keys, other commands and dialects.
        for client in &mut clients {
            for n in 0..50 {
                client.ask(&format!("get none{n}\r\n"), "END\r\n");
                client.ask(&format!("mg none{n} v\r\n"), "EN\r\n");
                client.ask(&format!("delete none{n}\r\n"), "NOT_FOUND\r\n");
                client.ask(&format!("mg none{n} v q\r\nmn\r\n"), "MN\r\n");
            }
        }
    }
}

/// Requests arrive one by one, so the socket is lent with each until it is full. From then on its
/// own worker sends, and must not be overtaken.
#[test]
fn a_client_that_does_not_read_for_a_while_gets_everything_in_order() {
    on_both(2, |place| {
        let (keys, len, asked) = (40, 30_000, 500);
        let mut client = place.connect();
        for key in 0..keys {
            client.store(&format!("key{key}"), &value(key, len));
        }
        let mut slow: Vec<Client> = (0..4).map(|_| place.connect()).collect();
        let wanted: Vec<u8> = (0..asked).flat_map(|n| answer(n * 3 % keys, len)).collect();
        let mut read = 0;
        for n in 0..asked {
            thread::sleep(Duration::from_millis(2));
            for client in &mut slow {
                // Once the kernel's buffer is full, room appears together with the next request.
                let taken = if n > asked / 2 { 20_000 } else { 0 };
                client.expect(&wanted[read..read + taken]);
                client.send(format!("get key{}\r\n", n * 3 % keys));
            }
            read += if n > asked / 2 { 20_000 } else { 0 };
        }
        for client in &mut slow {
            client.expect(&wanted[read..]);
        }
    });
}

#[test]
fn what_comes_behind_a_command_that_waits_is_answered_behind_it() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let (place, switch) = on_flash(io, 64, 3000);
        let mut clients: Vec<Client> = (0..64).map(|_| place.connect()).collect();
        switch.inject(Some(Op::Read), 0..u64::MAX, Fault::Stall);
        for (key, client) in clients.iter_mut().enumerate() {
            client.send(format!("get key{key}\r\n"));
        }
        wait_for_reads(&place, 48);
        assert!(unanswered(&clients) > 48);
        // Keys in memory, of either shard, and commands of this worker alone.
        for (key, client) in clients.iter_mut().enumerate() {
            let request = match key % 4 {
                0 => "mn\r\n".to_owned(),
                1 => format!("set new{key} 0 0 1\r\nx\r\n"),
                2 => "get none1\r\nget none2\r\nget none3\r\n".to_owned(),
                _ => "get none1 none2 none3\r\nversi".to_owned(),
            };
            client.send(request.as_bytes());
        }
        thread::sleep(Duration::from_millis(100));
        switch.clear();
        for (key, client) in clients.iter_mut().enumerate() {
            client.expect(&answer(key, 3000));
            match key % 4 {
                0 => client.expect(b"MN\r\n"),
                1 => client.expect(b"STORED\r\n"),
                2 => client.expect(b"END\r\nEND\r\nEND\r\n"),
                _ => {
                    client.expect(b"END\r\n");
                    client.text("on\r\n", "\r\n");
                }
            }
            client.ask("mn\r\n", "MN\r\n");
        }
    }
}

/// A lent socket stays open until it is back: otherwise a new connection with its number would read
/// another's answer.
#[test]
fn newcomers_read_nothing_of_those_who_leave_at_once() {
    on_both(2, |place| {
        let mut client = place.connect();
        for key in 0..100 {
            client.store(&format!("key{key}"), &value(key, 100));
        }
        thread::scope(|scope| {
            for t in 0..6 {
                let port = place.port();
                scope.spawn(move || {
                    for n in 0..400 {
                        let mut gone = Client::connect(port);
                        gone.send(format!("get key{}\r\n", (t * 7 + n) % 100));
                        // From before the request is read until after its answer was sent.
                        let until = Instant::now() + Duration::from_micros(n % 80);
                        while Instant::now() < until {}
                        gone.reset();
                        let mut newcomer = Client::connect(port);
                        newcomer.ask("mn\r\n", "MN\r\n");
                        newcomer.ask("mn\r\n", "MN\r\n");
                    }
                });
            }
        });
        place.wait_for_connections(1);
    });
}

#[test]
fn sockets_come_back_from_commands_that_are_given_up() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let (mut place, switch) = on_flash(io, 192, 3000);
        for round in 0..3 {
            let mut gone: Vec<Client> = (0..64).map(|_| place.connect()).collect();
            switch.inject(Some(Op::Read), 0..u64::MAX, Fault::Stall);
            // Other keys in each round, since those that were read may be in memory now.
            for (n, client) in gone.iter_mut().enumerate() {
                client.send(format!("get key{}\r\n", round * 64 + n));
            }
            // Where their class kept a page, some are still in DRAM.
            wait_for_reads(&place, 16);
            assert!(unanswered(&gone) > 16);
            for (n, mut client) in gone.into_iter().enumerate() {
                if n % 2 == 0 {
                    client.send(b"get key1\r\nge");
                }
                client.reset();
            }
            place.wait_for_connections(0);
            let mut newcomers: Vec<Client> = (0..80).map(|_| place.connect()).collect();
            for client in &mut newcomers {
                client.ask("mn\r\n", "MN\r\n");
            }
            switch.clear();
            thread::sleep(Duration::from_millis(50));
            for (n, client) in newcomers.iter_mut().enumerate() {
                client.ask("mn\r\n", "MN\r\n");
                client.ask(&format!("get none{round}-{n}\r\n"), "END\r\n");
            }
        }
        // A socket that did not come back would keep the workers from stopping.
        place.end();
    }
}

#[test]
fn a_client_that_sends_no_more_is_answered() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let (place, switch) = on_flash(io, 32, 3000);
        switch.inject(Some(Op::Read), 0..u64::MAX, Fault::Stall);
        let clients: Vec<Client> = (0..32)
            .map(|key| {
                let mut client = place.connect();
                client.send(format!("get key{key}\r\n"));
                client.stream.shutdown(Shutdown::Write).unwrap();
                client
            })
            .collect();
        wait_for_reads(&place, 24);
        assert!(unanswered(&clients) > 24);
        switch.clear();
        for (key, mut client) in clients.into_iter().enumerate() {
            assert_eq!(client.rest(), answer(key, 3000));
        }
        place.wait_for_connections(0);
        let for_others = place.connect().stat("senko_sent_for_others");
        assert_eq!(for_others > 4, lends(&place), "{for_others}");
    }
}

/// A command that is refused by its first line is answered before its value has arrived.
#[test]
fn refused_values_in_pieces() {
    on_both(2, |place| {
        let mut client = place.connect();
        for key in 0..40 {
            client.store(&format!("key{key}"), &value(key, 20_000));
        }
        thread::scope(|scope| {
            for t in 0..4 {
                let port = place.port();
                scope.spawn(move || {
                    let mut client = Client::connect(port);
                    let body = vec![b'x'; (1 << 20) + 7];
                    for n in 0..60 {
                        let head = format!("set large{t}-{n} 0 0 {}\r\n", body.len());
                        client.send(head.as_bytes());
                        client.send(&body[..100_000]);
                        let until = Instant::now() + Duration::from_micros(n * 7 % 100);
                        while Instant::now() < until {}
                        client.send(&body[100_000..]);
                        client.send(b"\r\n");
                        // Keys of either shard, together and alone.
                        let keys = [n % 40, (n * 7 + 1) % 40, (n * 3 + 2) % 40];
                        for key in keys {
                            client.send(format!("get key{key}\r\n"));
                        }
                        client.expect(b"SERVER_ERROR object too large for cache\r\n");
                        for key in keys {
                            client.expect(&answer(key as usize, 20_000));
                        }
                        client.send(b"get key5\r\n");
                        client.expect(&answer(5, 20_000));
                    }
                });
            }
        });
    });
}

/// A stopping server still answers what it had received.
#[test]
fn a_shutdown_sends_what_is_under_way() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let (mut place, switch) = on_flash(io, 32, 3000);
        let mut clients: Vec<Client> = (0..32).map(|_| place.connect()).collect();
        for client in &mut clients {
            // A connection that no worker has taken yet would be turned away.
            client.ask("mn\r\n", "MN\r\n");
        }
        switch.inject(Some(Op::Read), 0..u64::MAX, Fault::Stall);
        for (key, client) in clients.iter_mut().enumerate() {
            client.send(format!("get key{key}\r\n"));
        }
        wait_for_reads(&place, 24);
        let opener = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            switch.clear();
        });
        place.end();
        opener.join().unwrap();
        for (key, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.rest(), answer(key, 3000));
        }
    }
}
