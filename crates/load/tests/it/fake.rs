// SPDX-License-Identifier: Apache-2.0
//! A server of a few lines with an intentional fault: classic `get`, `set`, `incr`, `decr`,
//! `append` and `prepend` over a map.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    /// Keeps a key's first value and reports that it stored the others.
    Stale,
    /// Keeps the first half of a key's first value when it is overwritten.
    Torn,
    /// Every hundredth set stores a value with one bit turned.
    BitTurned,
    /// Closes the connection instead of every hundredth answer.
    Closes,
    /// Never answers.
    Silent,
    /// Answers every third set with an error.
    OutOfMemory,
    /// Stalls for this many milliseconds at the hundredth request.
    Stalls(u64),
    /// Answers nonsense to every hundredth get.
    Nonsense,
    /// Answers every hundredth `incr` and `decr` as if it had counted, and does not count.
    LosesCounts,
    /// Counts every hundredth `incr` and `decr` twice, and answers as for one.
    CountsTwice,
    /// Reports that it stored every hundredth chunk, and does not store it.
    LosesChunks,
    /// Stores half of every hundredth chunk.
    HalfChunks,
    /// Stores every hundredth chunk twice.
    DoublesChunks,
    /// Answers every hundredth change with the value from before the key's newest set.
    CountsOnOldValue,
    /// Drops the key of every tenth change, as a cache may, and reports it.
    Evicts,
    /// Ends after a thousand requests: all its connections close, and it no longer listens.
    Dies,
}

struct State {
    wrong: Wrong,
    requests: AtomicU64,
    changes: AtomicU64,
    /// The value that each key's newest set replaced.
    replaced: Mutex<HashMap<String, (String, Vec<u8>)>>,
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
        changes: AtomicU64::new(0),
        replaced: Mutex::new(HashMap::new()),
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
                    // A last connection lets the listener check the flag and end.
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
                [word @ ("append" | "prepend"), key, _, _, len, ..] => {
                    let mut chunk =
                        vec![0; len.parse::<usize>().map_err(std::io::Error::other)? + 2];
                    input.read_exact(&mut chunk)?;
                    chunk.truncate(chunk.len() - 2);
                    self.extend(key, &chunk, *word == "append")
                }
                [word @ ("incr" | "decr"), key, by] => {
                    let by = by.parse::<u64>().map_err(std::io::Error::other)?;
                    self.count(key, by, *word == "incr")
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
        if let Some(old) = items.insert(key.to_owned(), (flags.to_owned(), value)) {
            let mut replaced = self
                .replaced
                .lock()
                .expect("no thread panics with the lock");
            replaced.insert(key.to_owned(), old);
        }
        b"STORED\r\n".to_vec()
    }

    /// Whether the next change is to be faulty, or has no key.
    fn is_nth(&self, wrong: &[Wrong], nth: u64) -> bool {
        wrong.contains(&self.wrong)
            && (self.changes.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(nth)
    }

    fn count(&self, key: &str, by: u64, up: bool) -> Vec<u8> {
        let mut items = self.items.lock().expect("no thread panics with the lock");
        if self.is_nth(&[Wrong::Evicts], 10) {
            items.remove(key);
        }
        let Some((flags, value)) = items.get_mut(key) else {
            return b"NOT_FOUND\r\n".to_vec();
        };
        if self.is_nth(&[Wrong::CountsOnOldValue], 100) {
            let replaced = self
                .replaced
                .lock()
                .expect("no thread panics with the lock");
            if let Some(old) = replaced.get(key) {
                (*flags, *value) = old.clone();
            }
        }
        let old: u64 = String::from_utf8_lossy(value).parse().expect("a number");
        let step = |from: u64| {
            if up {
                from + by
            } else {
                from.saturating_sub(by)
            }
        };
        let answer = format!("{}\r\n", step(old)).into_bytes();
        let twice = [Wrong::LosesCounts, Wrong::CountsTwice];
        let stored = match self.is_nth(&twice, 100) {
            true if self.wrong == Wrong::LosesCounts => old,
            true => step(step(old)),
            false => step(old),
        };
        *value = stored.to_string().into_bytes();
        answer
    }

    fn extend(&self, key: &str, chunk: &[u8], behind: bool) -> Vec<u8> {
        let mut items = self.items.lock().expect("no thread panics with the lock");
        if self.is_nth(&[Wrong::Evicts], 10) {
            items.remove(key);
        }
        let Some((_, value)) = items.get_mut(key) else {
            return b"NOT_STORED\r\n".to_vec();
        };
        let wrong = [Wrong::LosesChunks, Wrong::HalfChunks, Wrong::DoublesChunks];
        let chunk = match self.is_nth(&wrong, 100) {
            true if self.wrong == Wrong::LosesChunks => Vec::new(),
            true if self.wrong == Wrong::HalfChunks => chunk[..chunk.len() / 2].to_vec(),
            true => chunk.repeat(2),
            false => chunk.to_vec(),
        };
        let at = if behind { value.len() } else { 0 };
        value.splice(at..at, chunk);
        b"STORED\r\n".to_vec()
    }
}
