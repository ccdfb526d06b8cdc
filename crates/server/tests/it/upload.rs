// SPDX-License-Identifier: Apache-2.0
//! Large values that go to flash as they arrive, over real sockets: all commands that may bring
//! one, values larger than DRAM, clients that stop or vanish.

use std::time::Instant;

use senko_server::settings::{AdmissionRule, BackendChoice, Budget};

use crate::serve::client::{Client, PATIENCE, Place, on_both};

/// A value that differs by number and place.
fn value(n: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| b'a' + ((n * 31 + at * 7 + at / 251) % 26) as u8;
    (0..len).map(byte).collect()
}

fn packet(opcode: u8, key: &str, value: &[u8], cas: u64) -> Vec<u8> {
    let body = (8 + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode, 0, key.len() as u8, 8, 0, 0, 0];
    bytes.extend_from_slice(&body.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&cas.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// Sends a line, a value and a line end, and reads this answer.
fn bring(client: &mut Client, line: &str, value: &[u8], answer: &str) {
    client.send(format!("{line}\r\n"));
    client.send(value);
    client.ask("\r\n", answer);
}

#[test]
fn every_command_that_brings_a_value() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let mut client = place.connect();
            for n in 0..6 {
                let (key, len) = (format!("k{n}"), 70_000 + n * 190_000);
                let (old, new) = (value(n, len), value(n + 1, len));
                let line = |command: &str| format!("{command} {key} 0 0 {len}");
                bring(&mut client, &line("replace"), &old, "NOT_STORED\r\n");
                bring(&mut client, &line("add"), &old, "STORED\r\n");
                client.get(&key, &old);
                bring(&mut client, &line("add"), &new, "NOT_STORED\r\n");
                bring(&mut client, &line("replace"), &new, "STORED\r\n");
                client.get(&key, &new);
                client.send(format!("gets {key}\r\n"));
                let head = String::from_utf8(client.until(b"\r\n")).unwrap();
                let cas: u64 = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
                client.exactly(len + 7);
                let line = |cas: u64| format!("cas {key} 0 0 {len} {cas}");
                bring(&mut client, &line(cas + 1), &old, "EXISTS\r\n");
                bring(&mut client, &line(cas), &old, "STORED\r\n");
                bring(&mut client, &line(cas), &new, "EXISTS\r\n");
                client.get(&key, &old);
                // Meta commands: a CAS value of the client's, and a key in base64.
                bring(
                    &mut client,
                    &format!("ms {key} {len} E777 c s"),
                    &new,
                    &format!("HD c777 s{len}\r\n"),
                );
                client.ask(&format!("mg {key} c s\r\n"), &format!("HD c777 s{len}\r\n"));
                bring(
                    &mut client,
                    &format!("ms YWI= {len} b T0 F9"),
                    &old,
                    "HD\r\n",
                );
                client.ask("mg YWI= b f k t\r\n", "HD f9 kYWI= b t-1\r\n");
                // Without an answer, and with other commands in the same packet.
                let mut many = format!("set {key} 0 0 {len} noreply\r\n").into_bytes();
                many.extend_from_slice(&old);
                many.extend_from_slice(format!("\r\nget {key}\r\nmn\r\n").as_bytes());
                client.send(&many);
                client.expect_value(&key, &old);
                client.expect(b"MN\r\n");
                // A value without its line end is not stored.
                client.send(format!("set {key} 0 0 {len}\r\n"));
                client.send(&new);
                client.ask("xx", "CLIENT_ERROR bad data chunk\r\n");
                client.get(&key, &old);
                // It is joined in DRAM.
                bring(
                    &mut client,
                    &format!("append {key} 0 0 3"),
                    b"end",
                    "STORED\r\n",
                );
                client.get(&key, &[&old[..], b"end"].concat());
                if 2 * len < 1 << 20 {
                    bring(
                        &mut client,
                        &format!("prepend {key} 0 0 {len}"),
                        &new,
                        "STORED\r\n",
                    );
                    client.get(&key, &[&new[..], &old, b"end"].concat());
                }
                // The binary protocol.
                let mut other = client.again();
                other.send(packet(1, &key, &new, 0));
                let stored = other.exactly(24);
                assert_eq!(stored[6..8], [0, 0]);
                let cas = u64::from_be_bytes(stored[16..24].try_into().unwrap());
                other.send(packet(1, &key, &old, cas + 1));
                assert_eq!(other.exactly(24)[6..8], [0, 2], "it exists");
                other.exactly(b"Data exists for key.".len());
                client.get(&key, &new);
                other.send(packet(1, &key, &old, cas));
                assert_eq!(other.exactly(24)[6..8], [0, 0]);
                client.get(&key, &old);
            }
            let stats = client.stats();
            assert!(stats.get("flash_uploads") > 40, "{}", stats.0);
            assert_eq!(stats.get("flash_checksum_errors"), 0);
        });
    }
}

/// It takes no memory for items, and the items of DRAM stay.
#[test]
fn a_value_may_be_larger_than_dram() {
    for threads in [1, 2] {
        let place = Place::start(BackendChoice::Auto, threads).restart(|settings| {
            settings.max_item = 100 << 20;
        });
        let mut client = place.connect();
        for n in 0..2000 {
            client.store(&format!("small{n}"), &value(n, 2000));
        }
        let before = client.stats();
        let large = value(3, 90 << 20);
        for n in 0..4 {
            client.store(&format!("large{n}"), &large);
            client.get(&format!("large{n}"), &large);
        }
        let after = client.stats();
        assert_eq!(after.get("dram_items"), before.get("dram_items"));
        assert_eq!(after.get("evictions"), 0);
        for n in 0..2000 {
            client.get(&format!("small{n}"), &value(n, 2000));
        }
        client.send(format!("set more 0 0 {}\r\n", 101 << 20));
        client.expect(b"SERVER_ERROR object too large for cache\r\n");
        let rest = vec![b'.'; (101 << 20) + 2];
        client.send(rest);
        client.ask("mn\r\n", "MN\r\n");
    }
}

/// A client that vanishes in the middle stores nothing, and the old value stays. One that stands
/// still holds up nobody, however many they are.
#[test]
fn clients_that_stop_in_the_middle_cost_nothing() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            // Values that stand still are noticed after half a second.
            let place = place.restart(|settings| settings.patience = 1);
            let mut client = place.connect();
            let (old, new) = (value(1, 300_000), value(2, 900_000));
            for n in 0..10 {
                client.store(&format!("k{n}"), &old);
            }
            let mut still: Vec<Client> = (0..12)
                .map(|n| {
                    let mut other = client.again();
                    other.send(format!("set k{} 0 0 {}\r\n", n % 6, new.len()));
                    other.send(&new[..n * 70_000]);
                    other
                })
                .collect();
            for n in 10..60 {
                client.store(&format!("k{n}"), &new);
                client.get(&format!("k{n}"), &new);
            }
            for other in still.drain(..6) {
                drop(other);
            }
            place.wait_for_connections(7);
            // A set that was refused, because others waited for its memory, took the old value
            // along.
            let mut lost = 0;
            for n in 0..10 {
                client.send(format!("get k{n}\r\n"));
                if client.exactly(3) == b"END" {
                    lost += 1;
                } else {
                    client.expect(format!("UE k{n} 0 {}\r\n", old.len()).as_bytes());
                    client.expect(&old);
                    client.expect(b"\r\nEND");
                }
                client.expect(b"\r\n");
            }
            assert!(lost <= client.stat("senko_values_given_up"));
            // The others go on; their values are whole, or were refused when they had to wait.
            for (n, other) in still.iter_mut().enumerate() {
                other.send(&new[(n + 6) * 70_000..]);
                other.send("\r\n");
                let answer = other.until(b"\r\n");
                let stored = answer == b"STORED\r\n";
                // If the disk is busy, its writes may fail too.
                assert!(stored || answer.starts_with(b"SERVER_ERROR o"));
                client.send(format!("get k{n}\r\n"));
                if stored {
                    client.expect_value(&format!("k{n}"), &new);
                } else {
                    client.expect(b"END\r\n");
                }
            }
            assert_eq!(client.stat("flash_checksum_errors"), 0);
        });
    }
}

/// A value of which a part is on its way to flash.
struct Half {
    client: Client,
    rest: Vec<u8>,
}

impl Half {
    /// Sends the head of a command and half of the value, and waits until some of it is written.
    fn begin(client: &mut Client, head: impl AsRef<[u8]>, value: &[u8], end: &str) -> Half {
        let written = client.stat("flash_written_bytes");
        let mut own = client.again();
        own.send(head);
        let (first, rest) = value.split_at(value.len() / 2);
        own.send(first);
        let deadline = Instant::now() + PATIENCE;
        while client.stat("flash_written_bytes") < written + (128 << 10) {
            assert!(Instant::now() < deadline, "nothing is written");
        }
        Half {
            client: own,
            rest: [rest, end.as_bytes()].concat(),
        }
    }

    fn end(mut self, answer: &[u8]) {
        self.client.send(self.rest);
        self.client.expect(answer);
    }
}

/// What others do to a key while its value arrives, and how the command is answered then: as if
/// all of it had come at once, but for a flush.
#[test]
fn what_others_do_meanwhile() {
    const FLUSHED: &str = "SERVER_ERROR object flushed while it was stored\r\n";
    let gone = b"END\r\n";
    for threads in [1, 2] {
        on_both(threads, |place| {
            let mut client = place.connect();
            let (old, new) = (value(1, 300_000), value(2, 700_000));
            let len = new.len();
            let text = |value: &[u8]| {
                let line = format!("VALUE k 0 {}\r\n", value.len());
                [line.as_bytes(), value, b"\r\nEND\r\n"].concat()
            };
            let (flush, delete) = (("flush_all\r\n", "OK\r\n"), ("delete k\r\n", "DELETED\r\n"));
            let set = ("set k 0 0 5\r\nother\r\n", "STORED\r\n");
            let (other, whole) = (text(b"other"), text(&new));
            for (line, meanwhile, answer, left) in [
                ("set k 0 0 LEN", delete, "STORED\r\n", &whole[..]),
                ("set k 0 0 LEN", set, "STORED\r\n", &whole),
                ("set k 0 0 LEN", flush, FLUSHED, gone),
                ("set k 0 -1 LEN", delete, "STORED\r\n", gone),
                ("set k 0 0 LEN noreply", flush, "", gone),
                ("cas k 0 0 LEN CAS", set, "EXISTS\r\n", &other),
                ("cas k 0 0 LEN CAS", delete, "NOT_FOUND\r\n", gone),
                ("cas k 0 0 LEN CAS", flush, FLUSHED, gone),
                ("replace k 0 0 LEN", delete, "NOT_STORED\r\n", gone),
                ("ms k LEN c", delete, "HD c", &whole),
                ("ms k LEN q", flush, FLUSHED, gone),
                ("ms k LEN C1", set, "EX\r\n", &other),
            ] {
                client.store("k", &old);
                client.send("gets k\r\n");
                let head = String::from_utf8(client.until(b"\r\n")).unwrap();
                let cas = head.trim_end().rsplit(' ').next().unwrap();
                client.expect(&[&old[..], b"\r\nEND\r\n"].concat());
                let line = line.replace("LEN", &len.to_string()).replace("CAS", cas);
                let half = Half::begin(&mut client, line + "\r\n", &new, "\r\nmn\r\n");
                client.ask(meanwhile.0, meanwhile.1);
                half.end(match answer {
                    "" => b"MN\r\n",
                    answer => answer.as_bytes(),
                });
                client.send("get k\r\n");
                client.expect(left);
            }
            client.store("k", &old);
            let half = Half::begin(&mut client, "add n 0 0 700000\r\n", &new, "\r\n");
            client.ask("set n 0 0 1\r\n1\r\n", "STORED\r\n");
            half.end(b"NOT_STORED\r\n");
            let packet = packet(1, "k", &new, 0);
            let (head, body) = packet.split_at(packet.len() - len);
            let half = Half::begin(&mut client, head, body, "");
            client.ask("flush_all\r\n", "OK\r\n");
            let text = b"Flushed meanwhile.";
            let mut answer = vec![0x81, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, text.len() as u8];
            answer.resize(24, 0);
            half.end(&[&answer[..], text].concat());
            client.ask("get k\r\n", "END\r\n");
            assert_eq!(client.stat("store_no_memory"), 0);
        });
    }
}

/// The write budget and the admission rule count large values beside small items. One that they do
/// not let to flash goes to DRAM, or nowhere if it is too large for that.
#[test]
fn what_is_not_admitted_goes_to_dram() {
    for (rule, burst) in [
        (AdmissionRule::All, 1 << 20),
        (AdmissionRule::Bytes(1), 1 << 40),
    ] {
        let place = Place::start(BackendChoice::Auto, 1).restart(|settings| {
            settings.max_item = 100 << 20;
            settings.admission.rule = rule;
            settings.admission.budget = Some(Budget {
                bytes_per_second: 1,
                burst,
            });
        });
        let mut client = place.connect();
        for n in 0..4 {
            client.store(&format!("k{n}"), &value(n, 700_000));
        }
        let stats = client.stats();
        // Of the burst, the first one leaves too little for the second.
        let uploads = u64::from(rule == AdmissionRule::All);
        assert_eq!(stats.get("flash_uploads"), uploads, "{}", stats.0);
        assert_eq!(stats.get("dram_items"), 4 - uploads);
        for n in 0..4 {
            client.get(&format!("k{n}"), &value(n, 700_000));
        }
        let large = vec![b'.'; 50 << 20];
        client.send(format!("set k1 0 0 {}\r\n", large.len()));
        client.expect(b"SERVER_ERROR out of memory storing object\r\n");
        client.send(large);
        client.ask("\r\nget k1\r\n", "END\r\n");
        // What leaves DRAM is not admitted either.
        for n in 0..10_000 {
            client.store(&format!("small{n}"), &value(n, 9000));
        }
        let stats = client.stats();
        let drops = ["flash_drops_budget", "flash_drops_rule"];
        let all: u64 = drops.iter().map(|name| stats.get(name)).sum();
        assert!(all > 1000, "{}", stats.0);
        assert!(stats.get("flash_written_bytes") < 2 << 20);
    }
}
