// SPDX-License-Identifier: Apache-2.0
//! TLS over real sockets: both versions, both tiers, both backends, and misbehaving clients.

pub mod client; // certificates, and clients
mod doors; // who gets in: tickets, passed sockets, kinds of certificates and keys
pub mod proxy; // plain connections for tests that know no TLS
mod refusals; // handshakes that are refused, and the words for it

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};
use senko_server::server::Server;
use senko_server::settings::{BackendChoice, PolicyKind, Settings, TlsMode, TlsVerify};

use crate::serve::client::{Client, PATIENCE, Place, on_both};
use client::{ALL, Authority, Secure};

/// A server with an encrypted and an unencrypted address.
struct Guarded {
    authority: Authority,
    place: Place,
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

impl Guarded {
    fn new(place: Place, change: impl FnOnce(&mut Settings)) -> Guarded {
        let authority = Authority::new();
        let tls = authority.settings();
        let place = place.restart(|settings| {
            settings.listen.push(address("127.0.0.2:0"));
            settings.tls_modes = vec![(address("127.0.0.2:0"), TlsMode::Off)];
            settings.tls = Some(tls);
            settings.policy = PolicyKind::Lru;
            change(settings);
        });
        Guarded { authority, place }
    }

    fn secure_address(&self) -> SocketAddr {
        self.place.server().report().addresses[0]
    }

    fn connect(&self) -> Secure {
        Secure::secure(self.secure_address(), &self.authority.client(ALL, None))
    }

    fn plain(&self) -> Client {
        Client::to(self.place.server().report().addresses[1])
    }
}

/// Bytes that differ at every record boundary.
fn value(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (n.wrapping_mul(31).wrapping_add(seed * 7 + n / 251) % 255) as u8)
        .collect()
}

/// Waits until an item is on flash and no longer in DRAM.
fn push_out(guarded: &Guarded) {
    let mut plain = guarded.plain();
    let filler = vec![b'f'; 500_000];
    for n in 0..200 {
        plain.store(&format!("filler{n}"), &filler);
    }
}

#[test]
fn both_versions_serve_both_tiers() {
    on_both(2, |place| {
        let guarded = Guarded::new(place, |_| {});
        let config = guarded.authority.client(&[&TLS13], None);
        let mut client = Secure::secure(guarded.secure_address(), &config);
        let values: Vec<Vec<u8>> = [0, 1, 3000, 16 << 10, (16 << 10) + 1, 100_000, 1_000_000]
            .iter()
            .enumerate()
            .map(|(n, &len)| value(len, n))
            .collect();
        push_out(&guarded);
        for (n, value) in values.iter().enumerate() {
            client.store(&format!("k{n}"), value);
            client.get(&format!("k{n}"), value);
        }
        push_out(&guarded);
        for versions in [&[&TLS12], &[&TLS13]] {
            let config = guarded.authority.client(versions, None);
            let mut client = Secure::secure(guarded.secure_address(), &config);
            for (n, value) in values.iter().enumerate().rev() {
                client.get(&format!("k{n}"), value);
            }
        }
        assert!(client.stat("flash_hits") > 0 && client.stat("senko_streams") > 0);
        assert_eq!(client.stat("ssl_handshake_errors"), 0);
        assert_eq!(client.stat("ssl_proto_errors"), 0);
        assert_eq!(client.stat("senko_tls_handshakes"), 3);
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both(2, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        for n in 0..2000 {
            let text = value(n % 700, n);
            request.extend(format!("set k{n} 0 0 {}\r\n", text.len()).into_bytes());
            request.extend_from_slice(&text);
            request.extend(format!("\r\nget k{n} nothing k{}\r\n", n / 2).into_bytes());
            answer.extend(b"STORED\r\n");
            for key in if n == 0 { vec![0, 0] } else { vec![n, n / 2] } {
                let text = value(key % 700, key);
                answer.extend(format!("VALUE k{key} 0 {}\r\n", text.len()).into_bytes());
                answer.extend_from_slice(&text);
                answer.extend(b"\r\n");
            }
            answer.extend(b"END\r\n");
        }
        for part in request.chunks(50_000) {
            client.send(part);
        }
        client.expect(&answer);
        client.ask("quit\r\n", "");
        assert_eq!(client.rest(), (Vec::new(), true));
    });
}

/// However a handshake is split into pieces.
#[test]
fn a_handshake_may_come_byte_by_byte() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        for versions in [&[&TLS12], &[&TLS13]] {
            let config = guarded.authority.client(versions, None);
            let mut client = Secure::secure(guarded.secure_address(), &config);
            while client.stream.conn.is_handshaking() {
                let mut bytes = Vec::new();
                while client.stream.conn.wants_write() {
                    client.stream.conn.write_tls(&mut bytes).unwrap();
                }
                for byte in bytes {
                    client.stream.sock.write_all(&[byte]).unwrap();
                }
                if client.stream.conn.is_handshaking() {
                    client
                        .stream
                        .conn
                        .read_tls(&mut client.stream.sock)
                        .unwrap();
                    client.stream.conn.process_new_packets().unwrap();
                }
            }
            client.ask(
                "set k 0 0 1\r\nv\r\nget k\r\n",
                "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
            );
            assert_eq!(client.stat("ssl_handshake_errors"), 0);
        }
    });
}

/// A client of TLS 1.3 sends its first request with the last bytes of its handshake.
#[test]
fn requests_may_come_with_the_handshake() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        client
            .stream
            .conn
            .writer()
            .write_all(b"get a\r\nget b\r\n")
            .unwrap();
        client.shake().unwrap();
        client.expect(b"END\r\nEND\r\n");
        // More bytes than a handshake has: such a client used to be disconnected while its
        // handshake had to wait.
        let mut client = guarded.connect();
        client.stream.conn.set_buffer_limit(None);
        let gets = b"get a\r\n".repeat(50_000);
        client.stream.conn.writer().write_all(&gets).unwrap();
        client.shake().unwrap();
        client.expect(&b"END\r\n".repeat(50_000));
    });
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let authority = Authority::new();
    let mut tls = authority.settings();
    tls.ca = Some(authority.path("ca.pem"));
    tls.verify = TlsVerify::Request;
    let doors = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"].map(address);
    let server = Server::start(Settings {
        listen: doors.to_vec(),
        tls_modes: vec![
            (doors[1], TlsMode::Mutual),
            (doors[2], TlsMode::Basic),
            (doors[3], TlsMode::Off),
        ],
        tls: Some(tls),
        memory: 64 << 20,
        ..Settings::default()
    })
    .unwrap();
    let [usual, mutual, basic, plain] = server.report().addresses[..] else {
        panic!("all addresses are bound");
    };
    let stranger = Authority::new();
    let none = authority.client(ALL, None);
    let known = authority.client(ALL, Some(authority.sign("client", None)));
    let unknown = authority.client(ALL, Some(stranger.sign("client", None)));
    let expired = authority.client(ALL, Some(authority.sign("client", Some(2020))));
    let old = authority.client(&[&TLS12], Some(authority.sign("client", None)));
    for (address, config, good) in [
        (usual, &none, true),
        (usual, &known, true),
        (usual, &unknown, false),
        (mutual, &none, false),
        (mutual, &known, true),
        (mutual, &old, true),
        (mutual, &unknown, false),
        (mutual, &expired, false),
        (basic, &none, true),
        (basic, &unknown, true),
    ] {
        assert_eq!(doors::enter(address, config).is_some(), good, "{address}");
    }
    let mut client = Client::to(plain);
    assert_eq!(client.stat("ssl_handshake_errors"), 4);
    let settings = client.text("stats settings\r\n", "END\r\n");
    for row in [
        "STAT ssl_enabled yes\r\n",
        "STAT ssl_verify_mode 1\r\n",
        "STAT ssl_ciphers NULL\r\n",
        "STAT ssl_session_cache no\r\n",
        "STAT ssl_min_version tlsv1.2\r\n",
    ] {
        assert!(settings.contains(row), "{settings}");
    }
    server.shutdown();
    server.join().unwrap();
}

/// A client without TLS on a port with TLS, and the reverse.
#[test]
fn plain_text_is_hung_up_on_and_counted() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        for text in [
            &b"get k\r\n"[..],
            b"GET / HTTP/1.1\r\n\r\n",
            &[0x80; 24],
            &[0; 40],
        ] {
            let mut client = Client::to(guarded.secure_address());
            client.send(text);
            let answer = client.rest();
            assert!(
                answer.is_empty() || answer[0] == 0x15,
                "an alert at most: {answer:?}"
            );
        }
        let mut plain = guarded.plain();
        assert_eq!(plain.stat("ssl_handshake_errors"), 4);
        let config = guarded.authority.client(ALL, None);
        let off = guarded.place.server().report().addresses[1];
        assert!(Secure::secure(off, &config).shake().is_err());
        plain.ask("get k\r\n", "END\r\n");
    });
}

#[test]
fn a_broken_record_ends_the_connection_and_is_counted() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        client.ask("get k\r\n", "END\r\n");
        let mut record = vec![0x17, 3, 3, 0, 40];
        record.extend([7; 40]);
        client.stream.sock.write_all(&record).unwrap();
        let error = client.stream.conn.complete_io(&mut client.stream.sock);
        assert!(error.is_err(), "an alert came");
        let mut plain = guarded.plain();
        assert_eq!(plain.stat("ssl_proto_errors"), 1);
        assert_eq!(plain.stat("ssl_handshake_errors"), 0);
    });
}

/// Requests before a `close_notify` are still answered, followed by the server's own
/// `close_notify`.
#[test]
fn a_last_word_ends_the_requests_only() {
    on_both(2, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        let big = value(700_000, 3);
        client.store("big", &big);
        let gets = b"get big\r\n".repeat(20);
        client.stream.conn.writer().write_all(&gets).unwrap();
        client.stream.conn.send_close_notify();
        while client.stream.conn.wants_write() {
            client
                .stream
                .conn
                .write_tls(&mut client.stream.sock)
                .unwrap();
        }
        let one = [
            format!("VALUE big 0 {}\r\n", big.len()).as_bytes(),
            &big,
            b"\r\nEND\r\n",
        ]
        .concat();
        assert!(client.rest() == (one.repeat(20), true));
    });
}

/// A slow reader gets all its answers, and holds no frame of flash meanwhile.
#[test]
fn slow_readers_get_everything() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        let values: Vec<Vec<u8>> = (0..40).map(|n| value(20_000 + n * 3000, n)).collect();
        push_out(&guarded);
        for (n, value) in values.iter().enumerate() {
            client.store(&format!("k{n}"), value);
        }
        push_out(&guarded);
        let mut slow = guarded.connect();
        slow.shake().unwrap();
        let mut wanted = Vec::new();
        for round in 0..4 {
            for (n, value) in values.iter().enumerate() {
                slow.send(format!("get k{n}\r\n"));
                let len = value.len();
                wanted.extend(format!("VALUE k{n} 0 {len}\r\n").into_bytes());
                wanted.extend_from_slice(value);
                wanted.extend(b"\r\nEND\r\n");
            }
            // Meanwhile others are answered from flash.
            client.get(&format!("k{round}"), &values[round]);
        }
        slow.expect(&wanted);
        assert!(client.stat("flash_hits") > 0 && client.stat("senko_streams") > 0);
    });
}

#[test]
fn certificates_are_rolled_while_it_serves() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |settings| {
            settings.tls.as_mut().unwrap().session_cache = true;
        });
        let shown = |guarded: &Guarded| {
            let mut client = guarded.connect();
            client.shake().unwrap();
            client.ask("get k\r\n", "END\r\n");
            client.stream.conn.peer_certificates().unwrap()[0].to_vec()
        };
        let mut before = guarded.connect();
        before.ask("get k\r\n", "END\r\n");
        let first = shown(&guarded);
        guarded.authority.roll(Some(2099));
        assert_eq!(shown(&guarded), first, "nobody asked for it");
        before.ask("refresh_certs\r\n", "OK\r\n");
        let second = shown(&guarded);
        assert_ne!(first, second);
        // A key of another certificate, a file of another kind, a missing file.
        let (_, other) = guarded.authority.sign("localhost", None);
        let key = guarded.authority.path("key.pem");
        let good = std::fs::read(&key).unwrap();
        std::fs::write(&key, other).unwrap();
        before.ask("refresh_certs\r\n", "Error validating the certificate\r\n");
        std::fs::write(&key, "nothing").unwrap();
        let path = key.display();
        let answer = format!("Error loading the key: {path}\r\n");
        before.ask("refresh_certs\r\n", &answer);
        let chain = guarded.authority.path("chain.pem");
        std::fs::remove_file(&chain).unwrap();
        let answer = format!(
            "Error loading the certificate chain: {}\r\n",
            chain.display()
        );
        before.ask("refresh_certs\r\n", &answer);
        assert_eq!(shown(&guarded), second, "the pair before stays");
        // SIGHUP does the same.
        guarded.authority.roll(None);
        let control = guarded.place.server().control();
        assert_eq!(control.reload(), (1, 1));
        assert_ne!(shown(&guarded), second);
        std::fs::write(&key, good).unwrap();
        guarded.place.clock.fetch_add(5000, Ordering::Relaxed);
        before.ask("get k\r\n", "END\r\n");
        assert_eq!(before.stat("time_since_server_cert_refresh"), 5);
        let mut plain = guarded.plain();
        plain.ask("refresh_certs noreply\r\nget k\r\n", "END\r\n");
    });
    let place = Place::start(BackendChoice::Auto, 1);
    let mut plain = place.connect();
    plain.ask("refresh_certs\r\n", "Error TLS not enabled\r\n");
}

#[test]
fn sessions_are_resumed_where_that_is_asked_for() {
    for (cache, whole) in [(true, 1), (false, 3)] {
        let place = Place::start(BackendChoice::Auto, 1);
        let guarded = Guarded::new(place, |settings| {
            settings.tls.as_mut().unwrap().session_cache = cache;
        });
        for versions in [&[&TLS12], &[&TLS13]] {
            let config = guarded.authority.client(versions, None);
            let mut kinds = Vec::new();
            for _ in 0..3 {
                let mut client = Secure::secure(guarded.secure_address(), &config);
                client.ask("get k\r\n", "END\r\n");
                kinds.push(client.stream.conn.handshake_kind().unwrap());
            }
            let full = kinds.iter().filter(|&&kind| kind == HandshakeKind::Full);
            assert_eq!(full.count(), whole, "{kinds:?}");
        }
        let stats = guarded.plain().text("stats\r\n", "END\r\n");
        let row = "STAT ssl_new_sessions 2\r\n";
        assert_eq!(stats.contains(row), cache, "{stats}");
    }
}

/// A handshake that stops midway holds its connection for at most a minute, even if bytes continue
/// to drip in.
#[test]
fn a_handshake_that_stops_is_ended() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut open = guarded.connect();
        open.ask("get k\r\n", "END\r\n");
        let mut plain = guarded.plain();
        let mut hello = Vec::new();
        let mut never = guarded.connect();
        never.stream.conn.write_tls(&mut hello).unwrap();
        let mut dripping: Vec<Client> = (0..20)
            .map(|n| {
                let mut client = Client::to(guarded.secure_address());
                client.send(&hello[..n * 5]);
                client
            })
            .collect();
        guarded.place.wait_for_connections_on(&mut plain, 23);
        guarded.place.clock.fetch_add(59_000, Ordering::Relaxed);
        plain.ask("get k\r\n", "END\r\n");
        for client in &mut dripping[1..] {
            client.send(&hello[..1]);
        }
        guarded.place.clock.fetch_add(2_000, Ordering::Relaxed);
        for client in &mut dripping {
            let answer = client.rest();
            assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
        }
        assert!(never.shake().is_err());
        open.ask("get k\r\n", "END\r\n");
        assert_eq!(plain.stat("ssl_handshake_errors"), 21);
    });
}

/// A client's bytes before the end of its handshake are limited.
#[test]
fn a_hello_without_end_is_refused() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let mut client = Client::to(guarded.secure_address());
        // A ClientHello of 60 kB, in records of 16.
        let mut hello = vec![1, 0, 0xea, 0x60];
        hello.resize(60_000, 0);
        let mut sent = 0;
        for part in hello.chunks(16_000) {
            let len = part.len() as u16;
            let record = [&[0x16, 3, 1][..], &len.to_be_bytes(), part].concat();
            if client.stream.write_all(&record).is_err() {
                break;
            }
            sent += part.len();
        }
        let answer = client.rest();
        assert!(answer.is_empty() || answer[0] == 0x15, "{sent}: {answer:?}");
        assert_eq!(guarded.plain().stat("ssl_handshake_errors"), 1);
    });
}

/// 200 handshakes at once: a round takes few of them, and other connections' requests run in the
/// rounds between. The test counts rounds, which do not depend on the machine's speed.
#[test]
fn handshakes_take_turns_with_requests() {
    const CLIENTS: usize = 200;
    const A_ROUND: u64 = 2;
    const TRIES: usize = 20;
    on_both(1, |place| {
        let guarded = Guarded::new(place, |_| {});
        let config = guarded.authority.client(&[&TLS13], None);
        let mut plain = guarded.plain();
        plain.store("k", b"v");
        for attempt in 0.. {
            // A machine that takes each ClientHello before the next one comes shows nothing.
            assert!(attempt < TRIES, "no handshake ever waited for its turn");
            let mut clients: Vec<Secure> = (0..CLIENTS)
                .map(|_| Secure::secure(guarded.secure_address(), &config))
                .collect();
            let first = Work::of(&mut plain);
            for client in &mut clients {
                client
                    .stream
                    .conn
                    .write_tls(&mut client.stream.sock)
                    .unwrap();
            }
            let mut last = first;
            let until = Instant::now() + PATIENCE;
            while !clients.iter().all(has_bytes) {
                plain.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
                let now = Work::of(&mut plain);
                let (steps, rounds) = (now.steps - last.steps, now.rounds - last.rounds);
                assert!(steps <= A_ROUND * rounds, "{steps} in {rounds} rounds");
                last = now;
                assert!(Instant::now() < until, "not all are answered");
            }
            for client in &mut clients {
                client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
            }
            let now = Work::of(&mut plain);
            // A ClientHello, and the client's last message.
            assert!(now.steps - first.steps >= 2 * CLIENTS as u64);
            if now.waited > first.waited {
                break;
            }
        }
    });
}

/// Counts of the server's work so far.
#[derive(Clone, Copy)]
struct Work {
    steps: u64,
    rounds: u64,
    /// Rounds that left handshakes to the next one.
    waited: u64,
}

impl Work {
    /// All of the same moment.
    fn of(client: &mut Client) -> Work {
        let stats = client.stats();
        Work {
            steps: stats.get("senko_tls_handshake_steps"),
            waited: stats.get("senko_tls_handshake_rounds"),
            rounds: stats.get("senko_rounds"),
        }
    }
}

fn has_bytes(client: &Secure) -> bool {
    client.stream.sock.set_nonblocking(true).unwrap();
    let peeked = client.stream.sock.peek(&mut [0]);
    client.stream.sock.set_nonblocking(false).unwrap();
    match peeked {
        Ok(n) => n > 0,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let authority = Authority::new();
    let good = authority.settings();
    let base = || Settings {
        listen: vec![address("127.0.0.1:0")],
        tls: Some(good.clone()),
        ..Settings::default()
    };
    let why = |change: &dyn Fn(&mut Settings)| {
        let mut settings = base();
        change(&mut settings);
        Server::bind(settings).map(drop).unwrap_err().to_string()
    };
    let tls = |settings: &mut Settings| settings.tls.take().unwrap();
    for (change, words) in [
        (
            &(|s: &mut Settings| {
                s.tls = Some({
                    let mut t = tls(s);
                    t.verify = TlsVerify::Require;
                    t
                })
            }) as &dyn Fn(&mut Settings),
            "no CA is named",
        ),
        (
            &|s| s.tls_modes = vec![(s.listen[0], TlsMode::Mutual)],
            "no CA is named",
        ),
        (
            &|s| {
                s.tls = None;
                s.tls_modes = vec![(s.listen[0], TlsMode::Basic)];
            },
            "there is no certificate",
        ),
        (
            &|s| s.tls.as_mut().unwrap().chain = "/nowhere".into(),
            "Error loading the certificate chain /nowhere",
        ),
        (
            &|s| s.tls.as_mut().unwrap().ciphers = Some("RC4".into()),
            "no cipher suite RC4",
        ),
    ] {
        let text = why(change);
        assert!(text.contains(words), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    // A key is never shown, whatever is wrong with its file.
    let key = std::fs::read_to_string(&good.key).unwrap();
    let secret = key.lines().nth(1).unwrap();
    std::fs::write(
        &good.key,
        format!("{}\n{secret}\n", "-----BEGIN PRIVATE KEY-----"),
    )
    .unwrap();
    let text = why(&|_| {});
    assert!(text.contains("Error loading the key"), "{text}");
    assert!(!text.contains(&secret[..10]), "{text}");
}

/// Connections that were open before the stop are answered, and told of it.
#[test]
fn a_stop_says_goodbye() {
    on_both(1, |place| {
        let mut guarded = Guarded::new(place, |_| {});
        let mut client = guarded.connect();
        client.ask("get k\r\n", "END\r\n");
        guarded.place.end();
        assert_eq!(client.rest(), (Vec::new(), true));
    });
}

/// `ssl_wbuf_size` was accepted without effect.
#[test]
fn answers_are_encrypted_in_parts_of_the_size_that_was_asked_for() {
    on_both(1, |place| {
        let guarded = Guarded::new(place, |settings| {
            settings.tls.as_mut().unwrap().write_kib = NonZeroU16::new(2);
        });
        let mut client = guarded.connect();
        let long = value(100_000, 1);
        client.store("k", &long);
        client.get("k", &long);
        client.ask("get x\r\n", "END\r\n");
        client.send(b"get k\r\n");
        let mut plaintext = 0;
        while plaintext < long.len() {
            let mut header = [0; 5];
            client.stream.sock.read_exact(&mut header).unwrap();
            let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
            client.stream.sock.read_exact(&mut vec![0; len]).unwrap();
            // The content's kind, and the cipher's tag of 16 bytes, follow the plaintext.
            assert!(len <= (2 << 10) + 17, "{len}");
            plaintext += len - 17;
        }
    });
}
