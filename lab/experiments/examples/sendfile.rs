// SPDX-License-Identifier: Apache-2.0
//! A minimal form of paper B's prototype: a file has complete answers, and the kernel's sendfile
//! sends them to the socket.
//!
//! `sendfile FILE BYTES` answers `set`, `get` of one key, `stats` and `version` on a free port of
//! 127.0.0.1, which it writes to the file that `MEMCACHED_PORT_FILENAME` names. It has a thread for
//! each connection, since sendfile blocks, and it checks nothing that it sends. `senko-lab run
//! serve-flash-get` compares it with the server, whose answers go through frames.
//!
//! - An answer starts on a page, is written once with O_DIRECT, and is never moved.
//! - The page cache is not a second cache: its pages of an answer are dropped before the answer is
//!   sent, so each `get` reads the device.

#![allow(unsafe_code)] // sendfile and posix_fadvise: the standard library has neither

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use senko_io::{AlignedBuf, PAGE_SIZE};

/// The largest answer, in pages.
const MOST_PAGES: usize = 16;

struct Server {
    /// Written past the page cache, and read through it.
    direct: File,
    cached: File,
    pages: u64,
    next: AtomicU64,
    hits: AtomicU64,
    /// Where each key's answer begins, in pages, and its length in bytes.
    places: RwLock<HashMap<Vec<u8>, (u64, usize)>>,
}

impl Server {
    fn open(path: &Path, bytes: u64) -> io::Result<Server> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let direct = options.custom_flags(libc::O_DIRECT).open(path)?;
        direct.set_len(bytes)?;
        let cached = File::open(path)?;
        // SAFETY: takes no memory; the descriptor is open.
        unsafe { libc::posix_fadvise(cached.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        Ok(Server {
            direct,
            cached,
            pages: bytes / PAGE_SIZE as u64,
            next: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            places: RwLock::new(HashMap::new()),
        })
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut page = AlignedBuf::new(MOST_PAGES);
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let text = line.trim_ascii_end();
            let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
            match words[..] {
                [b"get", key] => self.get(key, &stream)?,
                [b"set", key, flags, _, len, ref rest @ ..] => {
                    let len = String::from_utf8_lossy(len).parse::<usize>().ok();
                    let Some(len) = len.filter(|&len| len < (MOST_PAGES - 1) * PAGE_SIZE) else {
                        return Err(io::Error::other("a value is too long for this server"));
                    };
                    let said = self.set(key, flags, len, &mut input, &mut page)?;
                    if rest.is_empty() {
                        (&stream).write_all(said)?;
                    }
                }
                [b"stats"] => {
                    let hits = self.hits.load(Ordering::Relaxed);
                    let pid = std::process::id();
                    write!(
                        &stream,
                        "STAT pid {pid}\r\nSTAT flash_hits {hits}\r\nEND\r\n"
                    )?;
                }
                [b"version"] => (&stream).write_all(b"VERSION 1\r\n")?,
                _ => (&stream).write_all(b"ERROR\r\n")?,
            }
        }
    }

    fn get(&self, key: &[u8], mut stream: &TcpStream) -> io::Result<()> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let place = places.get(key).copied();
        drop(places);
        let Some((page, len)) = place else {
            return stream.write_all(b"END\r\n");
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        let start = (page * PAGE_SIZE as u64) as libc::off_t;
        let mut at = start;
        let end = at + len as libc::off_t;
        let file = self.cached.as_raw_fd();
        // SAFETY: takes no memory; the descriptor is open.
        unsafe { libc::posix_fadvise(file, start, len as libc::off_t, libc::POSIX_FADV_DONTNEED) };
        while at < end {
            // SAFETY: the kernel reads and writes only `at`, on this stack. Both descriptors
            // are open.
            let sent = unsafe {
                libc::sendfile(stream.as_raw_fd(), file, &raw mut at, (end - at) as usize)
            };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    fn set(
        &self,
        key: &[u8],
        flags: &[u8],
        len: usize,
        input: &mut impl Read,
        buf: &mut AlignedBuf,
    ) -> io::Result<&'static [u8]> {
        let head = [
            b"VALUE ",
            key,
            b" ",
            flags,
            format!(" {len}\r\n").as_bytes(),
        ]
        .concat();
        let value = head.len() + len + 2;
        buf[..head.len()].copy_from_slice(&head);
        input.read_exact(&mut buf[head.len()..value])?;
        let end = value + b"END\r\n".len();
        buf[value..end].copy_from_slice(b"END\r\n");
        let pages = end.div_ceil(PAGE_SIZE);
        let page = self.next.fetch_add(pages as u64, Ordering::Relaxed);
        if page + pages as u64 > self.pages {
            return Ok(b"SERVER_ERROR out of memory storing object\r\n");
        }
        self.direct
            .write_all_at(&buf[..pages * PAGE_SIZE], page * PAGE_SIZE as u64)?;
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        places.insert(key.to_vec(), (page, end));
        Ok(b"STORED\r\n")
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes] = &args[..] else {
        return Err(io::Error::other("use: sendfile FILE BYTES"));
    };
    let bytes = bytes.parse().map_err(io::Error::other)?;
    let server = Server::open(Path::new(path), bytes)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    if let Some(file) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        // It appears complete.
        let mut new = file.clone();
        new.push(".new");
        fs::write(&new, format!("TCP INET: {port}\n"))?;
        fs::rename(&new, &file)?;
    }
    std::thread::scope(|scope| {
        loop {
            let (stream, _) = listener.accept()?;
            let server = &server;
            std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, move || {
                    // A client that is gone ends its thread, and affects no other.
                    drop(server.serve(stream));
                })?;
        }
    })
}
