// SPDX-License-Identifier: Apache-2.0
//! A server of a few lines that misbehaves on purpose: classic `get` and `set` over a map, with one
//! fault.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing.
    Nothing,
    /// Keeps a key's first value and says that it stored the others.
    Stale,
    /// Keeps the first half of a key's first value when it is overwritten.
    Torn,
    /// Every hundredth set stores a value with one bit turned.
    BitTurned,
    /// Closes the connection in place of every hundredth answer.
    Closes,
    /// Never answers.
    Silent,
    /// Answers every third set with an error.
    OutOfMemory,
    /// Stands still for this many milliseconds at the hundredth request.
    Stalls(u64),
    /// Answers nonsense to every hundredth get.
    Nonsense,
    /// Ends after a thousand requests: all its connections close, and it listens no more.
    Dies,
}

struct State {
    wrong: Wrong,
    requests: AtomicU64,
    items: Mutex<HashMap<String, (String, Vec<u8>)>>,
}

/// Starts it; its threads end with the test process.
pub fn start(wrong: Wrong) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    let state = Arc::new(State {
        wrong,
        requests: AtomicU64::new(0),
        items: Mutex::new(HashMap::new()),
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if state.is_dead() {
                return;
            }
            let state = Arc::clone(&state);
            // An error ends the connection, as a server's would.
            thread::spawn(move || state.serve(stream));
        }
    });
    address
}

impl State {
    fn is_dead(&self) -> bool {
        self.wrong == Wrong::Dies && self.requests.load(Ordering::Relaxed) >= 1000
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let hundredth = number.is_multiple_of(100);
            match self.wrong {
                Wrong::Stalls(ms) if number == 100 => thread::sleep(Duration::from_millis(ms)),
                Wrong::Closes if hundredth => return Ok(()),
                Wrong::Dies if self.is_dead() => {
                    // A last visitor lets the listener look, and go.
                    drop(TcpStream::connect(stream.local_addr()?));
                    return Ok(());
                }
                _ => {}
            }
            let answer = match words.as_slice() {
                ["get", ..] if self.wrong == Wrong::Nonsense && hundredth => {
                    b"VALUE nonsense\r\n".to_vec()
                }
                ["get", keys @ ..] => self.get(keys),
                ["set", key, flags, _, len, ..] => {
                    let mut value =
                        vec![0; len.parse::<usize>().map_err(std::io::Error::other)? + 2];
                    input.read_exact(&mut value)?;
                    value.truncate(value.len() - 2);
                    self.set(key, flags, value, number)
                }
                _ => b"ERROR\r\n".to_vec(),
            };
            if self.wrong != Wrong::Silent {
                stream.write_all(&answer)?;
            }
        }
    }

    fn get(&self, keys: &[&str]) -> Vec<u8> {
        let items = self.items.lock().expect("no thread panics with the lock");
        let mut answer = Vec::new();
        for key in keys {
            if let Some((flags, value)) = items.get(*key) {
                answer.extend_from_slice(
                    format!("VALUE {key} {flags} {}\r\n", value.len()).as_bytes(),
                );
                answer.extend_from_slice(value);
                answer.extend_from_slice(b"\r\n");
            }
        }
        answer.extend_from_slice(b"END\r\n");
        answer
    }

    fn set(&self, key: &str, flags: &str, mut value: Vec<u8>, number: u64) -> Vec<u8> {
        let mut items = self.items.lock().expect("no thread panics with the lock");
        match self.wrong {
            Wrong::OutOfMemory if number.is_multiple_of(3) => {
                return b"SERVER_ERROR out of memory storing object\r\n".to_vec();
            }
            Wrong::Stale if items.contains_key(key) => return b"STORED\r\n".to_vec(),
            Wrong::Torn => {
                if let Some((_, old)) = items.get(key) {
                    let half = value.len() / 2;
                    value[..half].copy_from_slice(&old[..half]);
                }
            }
            Wrong::BitTurned if number.is_multiple_of(100) => {
                let at = value.len() / 3;
                value[at] ^= 0x10;
            }
            _ => {}
        }
        items.insert(key.to_owned(), (flags.to_owned(), value));
        b"STORED\r\n".to_vec()
    }
}
