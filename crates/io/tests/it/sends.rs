// SPDX-License-Identifier: Apache-2.0
//! Sends: every kind of piece, both modes, their events, and the effect of a close.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use senko_io::{
    Backend, ConnId, Event, EventLoop, LoopConfig, PAGE_SIZE, Piece, PinnedBytes, Queue, SendBatch,
    SendMode,
};
use senko_workload::Rng;

use crate::support::{config, event_loop, on_both, poll_until, seed};

fn pair(io: &mut EventLoop) -> (UnixStream, ConnId) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (mine, io.adopt(theirs.into()).unwrap())
}

fn sent(io: &mut EventLoop) -> (Box<SendBatch>, std::io::Result<usize>) {
    let mut events = poll_until(io, |events| !events.is_empty());
    assert_eq!(events.len(), 1, "{events:?}");
    match events.remove(0) {
        Event::Sent { batch, result, .. } => (batch, result),
        other => panic!("unexpected {other:?}"),
    }
}

/// A batch of random pieces of all three kinds, its concatenated bytes, and its number of pins.
/// `pinned` must outlive the batch.
fn random_batch(
    io: &mut EventLoop,
    rng: &mut Rng,
    pinned: &[u8],
) -> (Box<SendBatch>, Vec<u8>, usize) {
    let len = 1 + rng.below(200_000) as usize;
    let mut batch = Box::new(SendBatch::from(rng.bytes(len)));
    let mut all = Vec::new();
    let mut pins = 0;
    for _ in 0..rng.below(3000) {
        let mut range = |len: usize| {
            let start = rng.below(len as u64 + 1) as usize;
            let end = start + rng.below(3000).min((len - start) as u64) as usize;
            start..end
        };
        match range(3).start {
            0 => {
                let range = range(batch.bytes.len());
                all.extend_from_slice(&batch.bytes[range.clone()]);
                batch.pieces.push(Piece::Bytes(range));
            }
            1 => {
                let Some(mut frame) = io.frame(1) else {
                    continue;
                };
                let range = range(PAGE_SIZE);
                rng.fill(&mut frame);
                all.extend_from_slice(&frame[range.clone()]);
                batch.pieces.push(Piece::Page(frame, range));
            }
            _ => {
                let part = &pinned[range(pinned.len())];
                all.extend_from_slice(part);
                // SAFETY: the caller keeps the memory until the loop has given the batch back.
                let bytes = unsafe { PinnedBytes::new(part.as_ptr(), part.len(), pins as u64) };
                batch.pieces.push(Piece::Pinned(bytes));
                pins += 1;
            }
        }
    }
    if batch.pieces.is_empty() {
        all.extend_from_slice(&batch.bytes);
    }
    assert_eq!(batch.len(), all.len());
    (batch, all, pins)
}

#[test]
fn pieces_of_all_kinds() {
    let seed = seed("pieces_of_all_kinds");
    on_both(|backend| {
        let mut rng = Rng::new(seed);
        let pinned = rng.bytes(1 << 20);
        let mut io = event_loop(&LoopConfig {
            frames: vec![(1, 500)],
            ..config(backend)
        });
        let (mut mine, conn) = pair(&mut io);
        for _ in 0..40 {
            let (batch, all, pins) = random_batch(&mut io, &mut rng, &pinned);
            let expected = all.clone();
            let mut peer = mine.try_clone().unwrap();
            let reading = std::thread::spawn(move || {
                let mut got = vec![0; expected.len()];
                peer.read_exact(&mut got).unwrap();
                assert!(got == expected, "other bytes arrived, seed {seed}");
            });
            let mut unpinned = Vec::new();
            if rng.below(2) == 0 {
                io.send(conn, batch, SendMode::Wait);
                let (mut batch, result) = sent(&mut io);
                assert_eq!(result.unwrap(), all.len());
                assert_eq!(batch.len(), all.len(), "it comes back unchanged");
                batch.clear(&mut unpinned);
                assert!(batch.is_empty());
            } else {
                // Like a server: try, then spill the rest and wait.
                io.send(conn, batch, SendMode::Try);
                let (mut batch, result) = sent(&mut io);
                let count = result.unwrap();
                batch.spill(count, &mut unpinned);
                assert!(batch.pieces.is_empty());
                assert!(batch.bytes == all[count..]);
                io.send(conn, batch, SendMode::Wait);
                let (_, result) = sent(&mut io);
                assert_eq!(result.unwrap(), all.len() - count);
            }
            unpinned.sort_unstable();
            assert!(
                unpinned.into_iter().eq(0..pins as u64),
                "each pin is named once"
            );
            assert_eq!(io.frames().usage().1, 0, "all frames are free again");
            reading.join().unwrap();
        }
        mine.set_nonblocking(true).unwrap();
        assert!(
            mine.read(&mut [0; 1]).is_err(),
            "more arrived than was sent"
        );
    });
}

#[test]
fn a_loop_sends_on_a_socket_of_another() {
    on_both(|backend| {
        let small = LoopConfig {
            max_connections: 2,
            ..config(backend)
        };
        let mut owner = event_loop(&config(backend));
        let mut other = event_loop(&small);
        let (mut mine, conn) = pair(&mut owner);
        let batch = |bytes: &[u8]| Box::new(SendBatch::from(bytes.to_vec()));
        let Some(socket) = owner.descriptor(conn) else {
            assert_eq!(backend, Backend::Posix);
            let batch = other
                .send_for(mine.as_raw_fd(), batch(b"back"))
                .unwrap_err();
            assert_eq!(batch.bytes, b"back");
            return;
        };
        let mut got = [0; 4];
        for n in 0..100 {
            let id = other.send_for(socket, batch(b"over")).unwrap();
            let (_, result) = sent(&mut other);
            assert_eq!(result.unwrap(), 4);
            mine.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"over");
            // The number was only for this send.
            other.send(id, batch(b"none"), SendMode::Try);
            assert!(sent(&mut other).1.is_err());
            owner.send(conn, batch(b"mine"), SendMode::Try);
            assert_eq!(sent(&mut owner).1.unwrap(), 4);
            mine.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"mine", "round {n}");
        }
        assert!(other.send_for(socket, batch(b"")).is_err());
        // At most as many at a time as it accepts connections.
        for _ in 0..2 {
            other.send_for(socket, batch(b"over")).unwrap();
        }
        assert!(other.send_for(socket, batch(b"over")).is_err());
        poll_until(&mut other, |events| events.len() == 2);
        // Bytes that the socket does not take stay unsent, and neither loop nor socket is harmed.
        let large = batch(&vec![7; 4 << 20]);
        other.send_for(socket, large).unwrap();
        let (mut rest, result) = sent(&mut other);
        let count = result.unwrap();
        assert!(count < 4 << 20, "{count}");
        other.send_for(socket, batch(b"over")).unwrap();
        drop(other);
        rest.spill(count, &mut Vec::new());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            mine.read_to_end(&mut all).unwrap();
            all
        });
        owner.send(conn, rest, SendMode::Wait);
        sent(&mut owner).1.unwrap();
        owner.close(conn);
        drop(owner);
        let all = reader.join().unwrap();
        assert_eq!(all.iter().filter(|&&byte| byte == 7).count(), 4 << 20);
    });
}

#[test]
fn a_full_socket_takes_nothing() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let (mut mine, conn) = pair(&mut io);
        let bytes = vec![7; 8 << 20];
        io.send(conn, Box::new(SendBatch::from(bytes)), SendMode::Try);
        let (mut batch, result) = sent(&mut io);
        let first = result.unwrap();
        assert!(first > 0 && first < 8 << 20, "{first}");
        let mut pins = Vec::new();
        batch.spill(first, &mut pins);
        io.send(conn, batch, SendMode::Try);
        let (batch, result) = sent(&mut io);
        assert_eq!(result.unwrap(), 0);
        // With two pieces, so by the other system call.
        let mut batch = batch;
        let len = batch.bytes.len();
        batch.pieces = vec![Piece::Bytes(0..1), Piece::Bytes(1..len)];
        io.send(conn, batch, SendMode::Try);
        let (mut batch, result) = sent(&mut io);
        assert_eq!(result.unwrap(), 0);
        io.send(
            conn,
            Box::new(SendBatch::from(b"!".to_vec())),
            SendMode::Wait,
        );
        let mut events = Vec::new();
        io.poll(Some(Duration::from_millis(20)), &mut events)
            .unwrap();
        assert!(events.is_empty(), "a send that waits, waits: {events:?}");
        let mut got = vec![0; first + 1];
        mine.read_exact(&mut got[..first]).unwrap();
        assert_eq!(sent(&mut io).1.unwrap(), 1);
        mine.read_exact(&mut got[first..]).unwrap();
        assert_eq!(got[first], b'!');
        batch.clear(&mut pins);
        assert!(batch.bytes.capacity() <= 64 << 10);
        io.send(conn, batch, SendMode::Wait);
        assert_eq!(
            sent(&mut io).1.unwrap(),
            0,
            "an empty batch comes back at once"
        );
    });
}

#[test]
fn closing_with_a_send_in_flight() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        for rounds in 0..4 {
            let (mut mine, conn) = pair(&mut io);
            let bytes = vec![9; 8 << 20];
            io.send(conn, Box::new(SendBatch::from(bytes)), SendMode::Wait);
            let mut events = Vec::new();
            for _ in 0..rounds {
                io.poll(Some(Duration::from_millis(2)), &mut events)
                    .unwrap();
            }
            assert!(events.is_empty(), "{events:?}");
            io.close(conn);
            let (_, result) = sent(&mut io);
            assert!(result.is_err());
            for _ in 0..5 {
                io.poll(Some(Duration::from_millis(1)), &mut events)
                    .unwrap();
            }
            assert!(events.is_empty(), "{events:?}");
            let mut rest = Vec::new();
            mine.read_to_end(&mut rest).unwrap();
            assert!(rest.len() < 8 << 20);
        }
    });
}

#[test]
fn a_peer_that_is_gone() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        for mode in [SendMode::Try, SendMode::Wait] {
            let (mine, conn) = pair(&mut io);
            drop(mine);
            let bytes = vec![9; 1 << 20];
            io.send(conn, Box::new(SendBatch::from(bytes)), mode);
            let events = poll_until(&mut io, |events| events.len() == 2);
            let mut ends = 0;
            for event in events {
                match event {
                    Event::Sent { result, .. } => {
                        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPIPE));
                    }
                    Event::Ended { .. } => ends += 1,
                    other => panic!("unexpected {other:?}"),
                }
            }
            assert_eq!(ends, 1);
            io.close(conn);
        }
    });
}

/// While a send waits for a slow reader, the connection can still receive.
#[test]
fn receiving_goes_on_during_a_send() {
    use std::io::Write;
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let (mut mine, conn) = pair(&mut io);
        let bytes = vec![9; 8 << 20];
        io.send(conn, Box::new(SendBatch::from(bytes)), SendMode::Wait);
        mine.write_all(b"ping").unwrap();
        let events = poll_until(&mut io, |events| !events.is_empty());
        assert!(matches!(&events[0], Event::Received { data, .. } if &data[..] == b"ping"));
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; 8 << 20];
            mine.read_exact(&mut got).unwrap();
            assert!(got.iter().all(|byte| *byte == 9));
            mine
        });
        assert_eq!(sent(&mut io).1.unwrap(), 8 << 20);
        // Its end is open until here: the end of the stream is an event too.
        reading.join().unwrap();
    });
}

/// Copying the frames does not change the bytes to send, and leaves pinned memory where it is.
#[test]
fn copied_pages_leave_the_same_bytes() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let mut rng = Rng::new(seed("copied_pages"));
        let pinned = rng.bytes(100_000);
        for _ in 0..20 {
            let (mut batch, all, pins) = random_batch(&mut io, &mut rng, &pinned);
            assert!(batch.slices().collect::<Vec<_>>().concat() == all);
            batch.copy_pages();
            assert!(batch.slices().collect::<Vec<_>>().concat() == all);
            let is_pinned = |piece: &&Piece| matches!(piece, Piece::Pinned(_));
            assert_eq!(batch.pieces.iter().filter(is_pinned).count(), pins);
            let is_page = |piece: &Piece| matches!(piece, Piece::Page(..));
            assert!(!batch.pieces.iter().any(is_page));
            let mut unpinned = Vec::new();
            batch.clear(&mut unpinned);
            assert_eq!(unpinned.len(), pins);
        }
    });
}
