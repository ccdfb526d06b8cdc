// SPDX-License-Identifier: Apache-2.0
//! Connections that come and go: no descriptor, slot or receive buffer leaks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use senko_io::{Event, EventLoop, SendBatch, SendMode};
use senko_workload::Rng;

use crate::support::{
    PATIENCE, address, child, child_task, config, event_loop, local, on_both, poll_until, seed,
};

/// Runs in its own process, since it counts the descriptors of the process.
#[test]
fn ten_thousand_connections() {
    if child_task().is_none() {
        let output = child("churn::ten_thousand_connections", "yes")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    on_both(|backend| {
        let mut rng = Rng::new(seed("ten_thousand_connections"));
        let mut io = event_loop(&config(backend));
        let listener = local();
        io.listen(&listener).unwrap();
        let address = address(&listener);
        let before = crate::support::open_sockets();
        let mut events = Vec::new();
        for _ in 0..100 {
            let mut clients: Vec<_> = (0..100)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            let (mut accepted, mut gone) = (0, 0);
            let mut batches = 0;
            while accepted < 100 || gone < accepted || batches > 0 {
                io.poll(Some(PATIENCE), &mut events).unwrap();
                assert!(
                    !events.is_empty(),
                    "{accepted} accepted, {gone} gone, {batches} batches"
                );
                for event in events.drain(..) {
                    match event {
                        Event::Accepted { stream, .. } => {
                            accepted += 1;
                            let mut client = clients.pop().unwrap();
                            match rng.below(4) {
                                0 => {
                                    drop(stream);
                                    gone += 1;
                                }
                                1 => {
                                    let conn = io.adopt(stream).unwrap();
                                    client.write_all(b"hello").unwrap();
                                    io.close(conn);
                                    io.close(conn);
                                    gone += 1;
                                }
                                2 => {
                                    let conn = io.adopt(stream).unwrap();
                                    let batch = SendBatch::from(vec![b'x'; 100_000]);
                                    io.send(conn, Box::new(batch), SendMode::Wait);
                                    batches += 1;
                                    io.close(conn);
                                    gone += 1;
                                }
                                _ => {
                                    io.adopt(stream).unwrap();
                                    client.write_all(b"hello").unwrap();
                                    drop(client);
                                }
                            }
                        }
                        Event::Ended { conn, .. } => {
                            io.close(conn);
                            gone += 1;
                        }
                        Event::Sent { conn, .. } => {
                            batches -= 1;
                            io.close(conn);
                        }
                        Event::Received { .. } => {}
                        other => panic!("unexpected {other:?}"),
                    }
                }
            }
        }
        // The kernel ends what was under way in its own time.
        let until = std::time::Instant::now() + PATIENCE;
        while crate::support::open_sockets() != before || io.recv_buffers_free() != 64 {
            assert!(
                std::time::Instant::now() < until,
                "descriptors or buffers are left: {} sockets, {before} before",
                crate::support::open_sockets()
            );
            io.poll(Some(Duration::from_millis(1)), &mut events)
                .unwrap();
        }
    });
}

/// Everything is in flight when the loop is dropped: the drop returns, and the peers see the end.
#[test]
fn dropping_a_busy_loop() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let listener = local();
        io.listen(&listener).unwrap();
        let mut peers = Vec::new();
        for nth in 0..20 {
            let (mine, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let conn = io.adopt(theirs.into()).unwrap();
            if nth % 2 == 0 {
                let batch = SendBatch::from(vec![1; 4 << 20]);
                io.send(conn, Box::new(batch), SendMode::Wait);
            }
            peers.push(mine);
        }
        if backend == senko_io::Backend::Uring {
            let mut events = Vec::new();
            io.poll(Some(Duration::from_millis(10)), &mut events)
                .unwrap();
        }
        drop(io);
        for mut peer in peers {
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).unwrap();
        }
    });
}

/// A closed connection's number is invalid in every call, and no later connection gets it.
#[test]
fn closed_numbers_stay_dead() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let adopt = |io: &mut EventLoop| {
            let (mine, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            (mine, io.adopt(theirs.into()).unwrap())
        };
        let (_mine, first) = adopt(&mut io);
        io.close(first);
        let mut events = Vec::new();
        for _ in 0..10 {
            io.poll(Some(Duration::from_millis(1)), &mut events)
                .unwrap();
        }
        let (mut mine, second) = adopt(&mut io);
        assert_ne!(first, second);
        io.close(first);
        io.set_receiving(first, false);
        let batch = Box::new(SendBatch::from(b"lost".to_vec()));
        io.send(first, batch, SendMode::Wait);
        mine.write_all(b"alive").unwrap();
        let events = poll_until(&mut io, |events| events.len() == 2);
        assert!(events.iter().any(
            |event| matches!(event, Event::Sent { conn, result: Err(_), .. } if *conn == first)
        ));
        assert!(events.iter().any(
            |event| matches!(event, Event::Received { conn, data } if *conn == second && &data[..] == b"alive")
        ));
    });
}

/// Bytes received before come first, even if receiving is off at that moment, and then the end. The
/// other direction stays open.
#[test]
fn ended_input_brings_what_was_received() {
    on_both(|backend| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut io = event_loop(&config(backend));
        for (tcp, off) in [(true, false), (true, true), (false, false), (false, true)] {
            let (mine, theirs): (OwnedFd, OwnedFd) = if tcp {
                let mine = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let theirs = listener.accept().unwrap().0;
                theirs.set_nonblocking(true).unwrap();
                (mine.into(), theirs.into())
            } else {
                let (mine, theirs) = UnixStream::pair().unwrap();
                theirs.set_nonblocking(true).unwrap();
                (mine.into(), theirs.into())
            };
            let mut mine = std::fs::File::from(mine);
            let conn = io.adopt(theirs).unwrap();
            if off {
                io.set_receiving(conn, false);
            }
            io.poll(Some(Duration::from_millis(5)), &mut Vec::new())
                .unwrap();
            let bytes = [7; 100_000];
            mine.write_all(&bytes).unwrap();
            io.end_input(conn);
            if off {
                io.set_receiving(conn, true);
            }
            let ended = |event: &Event| matches!(event, Event::Ended { error: None, .. });
            let events = poll_until(&mut io, |events| events.iter().any(ended));
            let mut received = Vec::new();
            for event in &events {
                if let Event::Received { data, .. } = event {
                    received.extend_from_slice(data);
                }
            }
            assert!(ended(&events[events.len() - 1]) && received == bytes);
            let batch = Box::new(SendBatch::from(b"answer".to_vec()));
            io.send(conn, batch, SendMode::Try);
            io.close(conn);
            io.end_input(conn);
            poll_until(&mut io, |events| !events.is_empty());
            let mut answer = [0; 6];
            mine.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
        }
    });
}

#[test]
fn the_connection_limit_holds() {
    on_both(|backend| {
        let mut io = event_loop(&senko_io::LoopConfig {
            max_connections: 3,
            ..config(backend)
        });
        let mut conns = Vec::new();
        let mut peers = Vec::new();
        let mut events = Vec::new();
        for round in 0..50 {
            let (mine, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            match io.adopt(theirs.into()) {
                Ok(conn) => conns.push(conn),
                Err(error) => {
                    assert_eq!(conns.len(), 3, "{error}");
                    io.close(conns.remove(round % 3));
                }
            }
            peers.push(mine);
            if round % 5 == 0 {
                io.poll(Some(Duration::ZERO), &mut events).unwrap();
            }
        }
    });
}

/// If the process has no descriptor left, accepting fails with an event and continues later by
/// itself.
#[test]
fn accepting_survives_a_lack_of_descriptors() {
    if child_task().is_none() {
        let output = child("churn::accepting_survives_a_lack_of_descriptors", "yes")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let listener = local();
        io.listen(&listener).unwrap();
        let mut waiting: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address(&listener)).unwrap())
            .collect();
        let mut hoard = Vec::new();
        // SAFETY: plain system calls on a limit structure that lives on this stack.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = 64;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let events = poll_until(&mut io, |events| !events.is_empty());
        assert!(
            matches!(&events[0], Event::AcceptFailed { .. }),
            "{events:?}"
        );
        hoard.clear();
        let mut accepted = Vec::new();
        while accepted.len() < 3 {
            let events = poll_until(&mut io, |events| !events.is_empty());
            for event in events {
                if let Event::Accepted { stream, .. } = event {
                    accepted.push(stream);
                }
            }
        }
        waiting.clear();
    });
}

/// No connection is accepted while accepting is off; waiting connections are accepted when it is on
/// again.
#[test]
fn accepting_off_and_on() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let listener = local();
        io.listen(&listener).unwrap();
        let mut events = Vec::new();
        io.set_accepting(false);
        io.poll(Some(Duration::from_millis(10)), &mut events)
            .unwrap();
        let _client = TcpStream::connect(address(&listener)).unwrap();
        io.poll(Some(Duration::from_millis(30)), &mut events)
            .unwrap();
        assert!(events.is_empty(), "{events:?}");
        io.set_accepting(true);
        io.set_accepting(false);
        io.set_accepting(true);
        let events = poll_until(&mut io, |events| !events.is_empty());
        assert!(matches!(events[0], Event::Accepted { .. }));
    });
}

/// Old completions must not delay new ones: the kernel runs some twenty pieces of
/// deferred work an enter.
#[test]
fn one_round_brings_all_that_came() {
    const MANY: usize = 60;
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let (mut clients, streams): (Vec<_>, Vec<_>) =
            (0..MANY).map(|_| UnixStream::pair().unwrap()).unzip();
        for stream in streams {
            stream.set_nonblocking(true).unwrap();
            io.adopt(OwnedFd::from(stream)).unwrap();
        }
        let mut events = Vec::new();
        io.poll(Some(Duration::ZERO), &mut events).unwrap();
        assert!(events.is_empty(), "{events:?}");
        for client in &mut clients {
            client.write_all(b"x").unwrap();
        }
        io.poll(Some(PATIENCE), &mut events).unwrap();
        assert_eq!(events.len(), MANY, "on {backend:?}");
    });
}
