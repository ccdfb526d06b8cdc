// SPDX-License-Identifier: Apache-2.0
//! `-M` with flash: nothing is evicted, and flash holds what does not fit into memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use crate::process::{Running, Scratch};

/// Commands that are sent before their replies are read.
const BATCH: usize = 200;

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Running) -> Client {
        Client(BufReader::new(server.connect()))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Sets items; returns for each whether it was stored.
    fn set(&mut self, items: Range<usize>) -> Vec<bool> {
        let mut stored = Vec::new();
        for first in items.clone().step_by(BATCH) {
            let batch = first..items.end.min(first + BATCH);
            let mut bytes = Vec::new();
            for n in batch.clone() {
                let value = value_of(n);
                bytes.extend(format!("set key-{n} 0 0 {}\r\n", value.len()).bytes());
                bytes.extend(value);
                bytes.extend(b"\r\n");
            }
            self.send(&bytes);
            for n in batch {
                let line = self.line();
                let refused = "SERVER_ERROR out of memory storing object\r\n";
                assert!(line == "STORED\r\n" || line == refused, "key {n}: {line}");
                stored.push(line == "STORED\r\n");
            }
        }
        stored
    }

    /// Checks which items exist and that their values are right.
    fn get(&mut self, items: Range<usize>) -> Vec<bool> {
        let mut there = Vec::new();
        for first in items.clone().step_by(BATCH) {
            let batch = first..items.end.min(first + BATCH);
            let lines: String = batch.clone().map(|n| format!("get key-{n}\r\n")).collect();
            self.send(lines.as_bytes());
            for n in batch {
                let line = self.line();
                if line == "END\r\n" {
                    there.push(false);
                    continue;
                }
                let value = value_of(n);
                assert_eq!(line, format!("VALUE key-{n} 0 {}\r\n", value.len()));
                let mut rest = vec![0; value.len() + 7];
                self.0.read_exact(&mut rest).unwrap();
                assert!(rest == [&value[..], b"\r\nEND\r\n"].concat(), "key {n}");
                there.push(true);
            }
        }
        there
    }

    fn delete(&mut self, n: usize) {
        self.send(format!("delete key-{n}\r\n").as_bytes());
        assert_eq!(self.line(), "DELETED\r\n");
    }
}

/// About four kilobytes; every five hundredth value is larger than a frame of the flash tier.
fn value_of(n: usize) -> Vec<u8> {
    let len = if n % 500 == 7 {
        150_000
    } else {
        3000 + n % 2500
    };
    format!("{n:08}-").bytes().cycle().take(len).collect()
}

fn count(all: &[bool]) -> usize {
    all.iter().filter(|&&yes| yes).count()
}

/// Of 40,000 items that fit into memory and flash, 25,529 used to be refused: flash accepted none.
#[test]
fn flash_holds_what_memory_does_not() {
    let folder = Scratch::new();
    let args = "-p 0 -M -m 64m --flash f:512m";
    let server = Running::serve(&folder, &args);
    let mut client = Client::of(&server);
    assert_eq!(count(&client.set(0..40_000)), 40_000);
    assert_eq!(count(&client.get(0..40_000)), 40_000);
    // A new value replaces one on flash, which does not come back when the new one is deleted.
    for n in (0..40_000).step_by(97) {
        client.send(format!("set key-{n} 1 0 3\r\nnew\r\nget key-{n}\r\n").as_bytes());
        let lines = ["STORED", &format!("VALUE key-{n} 1 3"), "new", "END"];
        for line in lines {
            assert_eq!(client.line(), format!("{line}\r\n"), "key {n}");
        }
        client.delete(n);
    }
    let there = client.get(0..40_000);
    assert!((0..40_000).all(|n| there[n] == (n % 97 != 0)));
    assert!(server.stop().0.success());
}
