// SPDX-License-Identifier: Apache-2.0
//! An echo server under random chunks, slow readers, few receive buffers and backpressure.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use senko_io::{
    Backend, ConnId, Event, EventLoop, Listener, LoopConfig, Piece, SendBatch, SendMode,
};
use senko_workload::Rng;

use crate::support::{Folder, PATIENCE, address, config, event_loop, local, on_both, seed};

/// Echoes received bytes; stops receiving while more than this is unsent.
const MOST_UNSENT: usize = 128 << 10;

#[derive(Default)]
struct Conn {
    unsent: Vec<u8>,
    batch: Option<Box<SendBatch>>,
    paused: bool,
    ended: bool,
}

/// Serves until `stop`, then until all connections are gone.
fn serve(config: &LoopConfig, listener: &Listener, stop: &AtomicBool, seed: u64) {
    let mut io = event_loop(config);
    io.listen(listener).unwrap();
    let mut rng = Rng::new(seed);
    let mut conns: HashMap<ConnId, Conn> = HashMap::new();
    let mut events = Vec::new();
    while !stop.load(Ordering::Relaxed) || !conns.is_empty() {
        io.poll(Some(Duration::from_millis(20)), &mut events)
            .unwrap();
        for event in events.drain(..) {
            match event {
                Event::Accepted { stream, .. } => {
                    let conn = io.adopt(stream).unwrap();
                    let state = Conn {
                        batch: Some(Box::default()),
                        ..Conn::default()
                    };
                    assert!(conns.insert(conn, state).is_none(), "a number came twice");
                }
                Event::Received { conn, data } => {
                    let state = conns.get_mut(&conn).unwrap();
                    assert!(!state.ended, "bytes after the end");
                    assert!(!data.is_empty());
                    state.unsent.extend_from_slice(&data);
                    if state.unsent.len() > MOST_UNSENT && !state.paused {
                        state.paused = true;
                        io.set_receiving(conn, false);
                        io.set_receiving(conn, false);
                    }
                    go_on(&mut io, conn, state, &mut rng);
                }
                Event::Ended { conn, error } => {
                    assert!(error.is_none(), "{error:?}");
                    let state = conns.get_mut(&conn).unwrap();
                    assert!(!std::mem::replace(&mut state.ended, true), "two ends");
                    close_if_done(&mut io, conn, &mut conns);
                }
                Event::Sent {
                    conn,
                    mut batch,
                    result,
                } => {
                    let sent = result.unwrap();
                    let state = conns.get_mut(&conn).unwrap();
                    let mut pins = Vec::new();
                    batch.spill(sent, &mut pins);
                    let rest = batch.bytes.clone();
                    batch.clear(&mut pins);
                    assert!(pins.is_empty());
                    state.unsent.splice(0..0, rest);
                    state.batch = Some(batch);
                    if sent == 0 {
                        // Full: a server then does a send that waits.
                        send(&mut io, conn, state, SendMode::Wait, &mut rng);
                    } else {
                        go_on(&mut io, conn, state, &mut rng);
                    }
                    if state.paused && state.unsent.len() < MOST_UNSENT / 2 {
                        state.paused = false;
                        io.set_receiving(conn, true);
                        io.set_receiving(conn, true);
                    }
                    close_if_done(&mut io, conn, &mut conns);
                }
                Event::AcceptFailed { error, .. } => panic!("{error}"),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    assert_eq!(
        io.recv_buffers_free(),
        config.recv_buffers,
        "a receive buffer got lost"
    );
}

fn go_on(io: &mut EventLoop, conn: ConnId, state: &mut Conn, rng: &mut Rng) {
    let mode = if rng.below(2) == 0 {
        SendMode::Try
    } else {
        SendMode::Wait
    };
    send(io, conn, state, mode, rng);
}

fn send(io: &mut EventLoop, conn: ConnId, state: &mut Conn, mode: SendMode, rng: &mut Rng) {
    if state.unsent.is_empty() {
        return;
    }
    let Some(mut batch) = state.batch.take() else {
        return;
    };
    batch.bytes.append(&mut state.unsent);
    // Sometimes in pieces, more than one operation takes.
    if rng.below(3) == 0 {
        let mut at = 0;
        while at < batch.bytes.len() {
            let end = (at + 1 + rng.below(100) as usize).min(batch.bytes.len());
            batch.pieces.push(Piece::Bytes(at..end));
            at = end;
        }
    }
    io.send(conn, batch, mode);
}

fn close_if_done(io: &mut EventLoop, conn: ConnId, conns: &mut HashMap<ConnId, Conn>) {
    let state = &conns[&conn];
    if state.ended && state.unsent.is_empty() && state.batch.is_some() {
        io.close(conn);
        conns.remove(&conn);
    }
}

/// Sends `bytes` random bytes in random chunks, reads them back as slowly as `slow` says, and
/// compares.
fn client(stream: impl Read + Write + Stream, bytes: usize, slow: bool, seed: u64) {
    let mut rng = Rng::new(seed);
    let sent = rng.bytes(bytes);
    // If the server dies, its clients must not hang.
    stream.limit(PATIENCE);
    let mut reader = stream.reader();
    let expected = sent.clone();
    let reading = std::thread::spawn(move || {
        let mut rng = Rng::new(seed ^ 1);
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let mut part = vec![0; 1 + rng.below(50_000) as usize];
            let count = reader.read(&mut part).unwrap();
            assert!(
                count > 0,
                "ended after {} of {} bytes",
                got.len(),
                expected.len()
            );
            got.extend_from_slice(&part[..count]);
            if slow {
                std::thread::sleep(Duration::from_millis(rng.below(3)));
            }
        }
        assert!(got == expected, "the echo differs, seed {seed}");
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "more than was sent");
    });
    let mut stream = stream;
    let mut at = 0;
    while at < sent.len() {
        let end = (at + 1 + rng.below(if slow { 40_000 } else { 3000 }) as usize).min(sent.len());
        stream.write_all(&sent[at..end]).unwrap();
        at = end;
        if rng.below(50) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    stream.end();
    reading.join().unwrap();
}

trait Stream {
    fn limit(&self, time: Duration);
    fn reader(&self) -> Box<dyn Read + Send>;
    fn end(&self);
}
impl Stream for TcpStream {
    fn limit(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
        self.set_write_timeout(Some(time)).unwrap();
    }
    fn reader(&self) -> Box<dyn Read + Send> {
        Box::new(self.try_clone().unwrap())
    }
    fn end(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}
impl Stream for UnixStream {
    fn limit(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
        self.set_write_timeout(Some(time)).unwrap();
    }
    fn reader(&self) -> Box<dyn Read + Send> {
        Box::new(self.try_clone().unwrap())
    }
    fn end(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

fn run(config: LoopConfig, clients: u64, bytes: usize, slow: bool, seed: u64) {
    let listener = local();
    let stop = Arc::new(AtomicBool::new(false));
    let server = {
        let (listener, stop) = (listener.clone(), Arc::clone(&stop));
        std::thread::spawn(move || serve(&config, &listener, &stop, seed))
    };
    let address = address(&listener);
    let clients: Vec<_> = (0..clients)
        .map(|number| {
            std::thread::spawn(move || {
                let stream = TcpStream::connect(address).unwrap();
                client(stream, bytes, slow, seed.wrapping_add(number * 1000));
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap();
}

#[test]
fn many_connections_with_random_chunks() {
    let seed = seed("many_connections_with_random_chunks");
    on_both(|backend| run(config(backend), 64, 300_000, false, seed));
}

#[test]
fn slow_readers_and_backpressure() {
    let seed = seed("slow_readers_and_backpressure");
    on_both(|backend| run(config(backend), 8, 6_000_000, true, seed));
}

/// Two small buffers for fifty connections: receives run out of buffers again and again and must
/// continue.
#[test]
fn receive_buffers_run_out() {
    let seed = seed("receive_buffers_run_out");
    on_both(|backend| {
        let config = LoopConfig {
            recv_buffers: 2,
            recv_buffer_bytes: 256,
            ..config(backend)
        };
        run(config, 50, 60_000, false, seed);
    });
}

#[test]
fn unix_sockets() {
    let seed = seed("unix_sockets");
    on_both(|backend| {
        let folder = Folder::new();
        let path = folder.file("socket");
        let listener = Listener::unix(&path, 0o600, 64).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let server = {
            let (listener, stop) = (listener.clone(), Arc::clone(&stop));
            std::thread::spawn(move || serve(&config(backend), &listener, &stop, seed))
        };
        client(UnixStream::connect(&path).unwrap(), 2_000_000, true, seed);
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        drop(listener);
        assert!(!path.exists(), "the last drop removes the socket file");
    });
}

/// The server holds all buffers: nothing arrives, nothing spins, and the bytes arrive when one is
/// given back.
#[test]
fn held_buffers_hold_back_receives() {
    on_both(|backend: Backend| {
        let config = LoopConfig {
            recv_buffers: 2,
            recv_buffer_bytes: 64,
            ..config(backend)
        };
        let mut io = event_loop(&config);
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let mut ours = Vec::new();
        let mut conns = Vec::new();
        for (nth, (theirs, mine)) in pairs.into_iter().enumerate() {
            theirs.set_nonblocking(true).unwrap();
            conns.push(io.adopt(theirs.into()).unwrap());
            let mut mine = mine;
            mine.write_all(&[nth as u8; 10]).unwrap();
            ours.push(mine);
        }
        let mut held = Vec::new();
        let mut events = Vec::new();
        for _ in 0..20 {
            io.poll(Some(Duration::from_millis(5)), &mut events)
                .unwrap();
        }
        held.append(&mut events);
        assert_eq!(held.len(), 2, "{held:?}");
        let mut seen = Vec::new();
        for _ in 0..4 {
            let Event::Received { data, .. } = held.remove(0) else {
                panic!()
            };
            assert_eq!(data.len(), 10);
            seen.push(data[0]);
            drop(data);
            for _ in 0..20 {
                io.poll(Some(Duration::from_millis(5)), &mut events)
                    .unwrap();
            }
            held.append(&mut events);
            assert!(held.len() <= 2);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}

/// A peer that sends without end gets one buffer at a time once it has filled one. So it takes
/// neither all buffers nor many of them in a round. When it has stopped, small receives work as
/// before, and no byte is lost.
#[test]
fn a_sender_without_end_takes_one_buffer_a_round() {
    on_both(|backend: Backend| {
        let config = LoopConfig {
            recv_buffers: 32,
            recv_buffer_bytes: 1024,
            ..config(backend)
        };
        let mut io = event_loop(&config);
        let (theirs, mut mine) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        io.adopt(theirs.into()).unwrap();
        let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        mine.write_all(&sent).unwrap();
        let mut got = Vec::new();
        let round = |io: &mut EventLoop, got: &mut Vec<u8>| {
            let mut events = Vec::new();
            io.poll(Some(Duration::from_millis(200)), &mut events)
                .unwrap();
            for event in &events {
                let Event::Received { data, .. } = event else {
                    panic!("{event:?}")
                };
                got.extend_from_slice(data);
            }
            events.len()
        };
        // The first may be a burst: nothing is known about the sender yet.
        let first = round(&mut io, &mut got);
        assert!(first <= 32 && got.len() < sent.len());
        while got.len() < sent.len() {
            let buffers = round(&mut io, &mut got);
            assert_ne!(buffers, 0, "nothing came, but there is more");
            if backend == Backend::Uring && got.len() < sent.len() {
                assert!(buffers <= 2, "{buffers} buffers in a round");
            }
        }
        for _ in 0..10 {
            mine.write_all(b"small").unwrap();
            let before = got.len();
            while got.len() < before + 5 {
                assert_ne!(round(&mut io, &mut got), 0);
            }
        }
        assert!(got[..sent.len()] == sent && got[sent.len()..] == b"small".repeat(10));
    });
}

/// An owner that has enough other work takes little at a time from a sender that does not stop, and
/// no byte is lost.
#[test]
fn limited_receives_take_little_at_a_time() {
    const BYTES: usize = 4 << 20;
    on_both(|backend| {
        let listener = local();
        let mut io = event_loop(&config(backend));
        io.listen(&listener).unwrap();
        let mut client = TcpStream::connect(address(&listener)).unwrap();
        let sender = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            client.write_all(&bytes).unwrap();
            client
        });
        let (mut total, mut small) = (0, 0);
        let mut events = Vec::new();
        let deadline = std::time::Instant::now() + PATIENCE;
        while total < BYTES {
            assert!(std::time::Instant::now() < deadline, "{total} bytes came");
            io.poll(Some(Duration::from_millis(20)), &mut events)
                .unwrap();
            for event in events.drain(..) {
                match event {
                    Event::Accepted { stream, .. } => {
                        io.adopt(stream).unwrap();
                    }
                    Event::Received { data, .. } => {
                        assert!(
                            (total..)
                                .zip(&data[..])
                                .all(|(at, &b)| b == (at % 251) as u8)
                        );
                        total += data.len();
                        small += usize::from(data.len() <= 1000);
                        // Whole buffers again for the second half.
                        io.limit_receives((total < BYTES / 2).then_some(1000));
                    }
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        assert!(small > 10, "{small} receives were small");
        drop(sender.join().unwrap());
    });
}
