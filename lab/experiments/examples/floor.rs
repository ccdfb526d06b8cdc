// SPDX-License-Identifier: Apache-2.0
//! The minimum cost of a server on this event loop: no index, no checks, no order of answers.
//!
//! `floor PORT FILE [PAGES [VALUE]]` answers each `get` with one read from a random place of an
//! existing flash file, of its first PAGES pages, as a value of VALUE bytes: a page, or as many
//! pages as it takes. Another process may write the file. `floor PORT` answers with a kilobyte of
//! memory. Both answer with a hit of the requested key, so `senko load` can measure them with one
//! request at a time on a connection. They know `stats` and `version` too. Port 0 is any free port.
//! It is written to the file that `MEMCACHED_PORT_FILENAME` names.
//!
//! `docs/measurements/flash-get.md` compares a server with this one, and `senko-lab run
//! serve-flash-get` has it as a contender.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use senko_io::{
    BackendChoice, ConnId, Event, EventLoop, FileOptions, FlashFile, Listener, LoopConfig,
    PAGE_SIZE, Piece, Purpose, Queue, SendBatch, SendMode, Tag,
};

const KEY: usize = 16;
const TAIL: &[u8] = b"\r\nEND\r\n";

/// Bytes of an answer besides its value, at most.
const AROUND: usize = 64;

/// Writes the answer of a hit, except for its value, to `to`; returns its length.
fn answer(to: &mut [u8], key: &[u8; KEY], value: usize) -> usize {
    let length = format!(" 0 {value}\r\n");
    let head = 6 + KEY + length.len();
    to[..6].copy_from_slice(b"VALUE ");
    to[6..6 + KEY].copy_from_slice(key);
    to[6 + KEY..head].copy_from_slice(length.as_bytes());
    to[head + value..head + value + TAIL.len()].copy_from_slice(TAIL);
    head + value + TAIL.len()
}

fn other(data: &[u8], hits: u64) -> String {
    if data.starts_with(b"stats") {
        let pid = std::process::id();
        return format!("STAT pid {pid}\r\nSTAT flash_hits {hits}\r\nEND\r\n");
    }
    "VERSION 1\r\n".to_owned()
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let options = FileOptions {
        beside_writer: true,
        ..FileOptions::default()
    };
    let file = match args.next() {
        Some(path) => Some(FlashFile::open(Path::new(&path), &options)?),
        None => None,
    };
    let mut number = || args.next().and_then(|number| number.parse::<u64>().ok());
    let all = file.as_ref().map_or(0, FlashFile::pages);
    let pages = number().unwrap_or(all).min(all);
    let value = number().unwrap_or(3990) as usize;
    let span = (value + AROUND).div_ceil(PAGE_SIZE);
    let places = (pages + 1).saturating_sub(span as u64).max(1);
    let mut io = EventLoop::new(&LoopConfig {
        backend: BackendChoice::Auto,
        recv_buffers: 256,
        recv_buffer_bytes: 16 << 10,
        frames: vec![(span, if span == 1 { 576 } else { 32 })],
        disk_threads: 16,
        max_connections: 512,
    })?;
    let device = file.map(|file| io.attach(Arc::new(file)));
    let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], port)), 512)?;
    io.listen(&listener)?;
    let port = listener.local_port().unwrap_or(0);
    println!("port {port}");
    if let Some(file) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        // It appears complete.
        let mut new = file.clone();
        new.push(".new");
        std::fs::write(&new, format!("TCP INET: {port}\n"))?;
        std::fs::rename(&new, &file)?;
    }

    let mut keys: Vec<[u8; KEY]> = Vec::new();
    let mut spare: Vec<Box<SendBatch>> = Vec::new();
    let mut unpinned = Vec::new();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut events = Vec::new();
    let mut hits = 0;
    loop {
        io.poll(Some(Duration::from_millis(100)), &mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Accepted { stream, .. } => drop(io.adopt(stream)?),
                Event::Received { conn, data } => {
                    if !data.starts_with(b"get ") {
                        let mut batch = spare.pop().unwrap_or_default();
                        batch.bytes.extend(other(&data, hits).bytes());
                        io.send(conn, batch, SendMode::Try);
                        continue;
                    }
                    let Some(&key) = data.get(4..).and_then(|rest| rest.first_chunk::<KEY>())
                    else {
                        continue;
                    };
                    let Some(device) = device else {
                        let mut batch = spare.pop().unwrap_or_default();
                        batch.bytes.resize(2048, b'x');
                        let bytes = answer(&mut batch.bytes, &key, 1000);
                        batch.bytes.truncate(bytes);
                        io.send(conn, batch, SendMode::Try);
                        continue;
                    };
                    let slot = conn.0 as u32 as usize;
                    if keys.len() <= slot {
                        keys.resize(slot + 1, [0; KEY]);
                    }
                    keys[slot] = key;
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let frame = io.frame(span).expect("more frames than connections");
                    let tag = Tag::cache(Purpose::Lookup);
                    io.read(device, random % places, span, frame, tag, conn.0);
                }
                Event::Disk(done) => {
                    hits += 1;
                    let mut frame = done.buf.expect("a read brings its frame back");
                    let bytes = answer(&mut frame, &keys[done.token as u32 as usize], value);
                    let mut batch = spare.pop().unwrap_or_default();
                    batch.pieces.push(Piece::Page(frame, 0..bytes));
                    io.send(ConnId(done.token), batch, SendMode::Try);
                }
                Event::Sent { mut batch, .. } => {
                    batch.clear(&mut unpinned);
                    spare.push(batch);
                }
                Event::Ended { conn, .. } => io.close(conn),
                Event::AcceptFailed { error, .. } => return Err(error),
                Event::Woken => {}
            }
        }
    }
}
