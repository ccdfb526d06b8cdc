// SPDX-License-Identifier: Apache-2.0
//! Passwords: the commands of a connection before login, over sessions and over sockets. The
//! answers of the ascii protocol are in `tests/transcripts/auth`, with memcached as the reference.

use std::path::PathBuf;

use senko_server::server::{RunningServer, Server};
use senko_server::settings::{Dialect, Settings};

use crate::rig::{Rig, RigSettings};
use crate::serve::client::{Client, Scratch};

const SASL_LIST: u8 = 0x20;
const SASL_AUTH: u8 = 0x21;
const SASL_STEP: u8 = 0x22;
const GET: u8 = 0;
const SET: u8 = 1;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend([0; 12]);
    bytes.extend([extras, key, value].concat());
    bytes
}

/// Opcode, status and body of each answer.
fn answers(mut bytes: &[u8]) -> Vec<(u8, u16, String)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(24) {
        let body = u32::from_be_bytes(head[8..12].try_into().unwrap()) as usize;
        let status = u16::from_be_bytes([head[6], head[7]]);
        let text = String::from_utf8_lossy(&rest[..body]).into_owned();
        all.push((head[1], status, text));
        bytes = &rest[body..];
    }
    assert!(bytes.is_empty());
    all
}

fn file(folder: &Scratch, name: &str, text: &str) -> Option<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    Some(path)
}

fn sasl_rig(folder: &Scratch) -> Rig {
    let mut rig_settings = RigSettings::default();
    rig_settings.settings.sasl_file = file(folder, "sasl", "alice:secret\n");
    rig_settings.settings.only_protocol = Some(Dialect::Binary);
    Rig::new(&rig_settings)
}

fn denied(opcode: u8) -> (u8, u16, String) {
    (opcode, 0x20, "Auth failure.".to_owned())
}

#[test]
fn sasl_plain_opens_a_binary_connection() {
    let folder = Scratch::new();
    let mut rig = sasl_rig(&folder);
    let id = rig.connect();
    let got = answers(&rig.ask(id, &packet(SASL_LIST, b"", b"", b"")));
    assert_eq!(got, [(SASL_LIST, 0, "PLAIN".to_owned())]);
    let got = answers(&rig.ask(id, &packet(VERSION, b"", b"", b"")));
    assert_eq!((got[0].0, got[0].1), (VERSION, 0));
    for wrong in [
        &b"\0alice\0wrong"[..],
        b"\0mallory\0secret",
        b"\0alice\0",
        b"",
        b"bob\0alice\0secret",
    ] {
        let got = answers(&rig.ask(id, &packet(SASL_AUTH, b"", b"PLAIN", wrong)));
        assert_eq!(got, [denied(SASL_AUTH)]);
    }
    let got = answers(&rig.ask(id, &packet(SASL_AUTH, b"", b"CRAM-MD5", b"\0alice\0secret")));
    assert_eq!(got, [denied(SASL_AUTH)]);
    let got = answers(&rig.ask(id, &packet(SASL_STEP, b"", b"PLAIN", b"\0alice\0secret")));
    assert_eq!(got, [denied(SASL_STEP)], "nothing was begun");
    let got = answers(&rig.ask(id, &packet(SASL_AUTH, b"", b"PLAIN", &[b'x'; 3000])));
    assert_eq!(got, [denied(SASL_AUTH)], "too long, and swallowed");
    let got = answers(&rig.ask(id, &packet(SASL_AUTH, b"", b"PLAIN", b"\0alice\0secret")));
    assert_eq!(got, [(SASL_AUTH, 0, "Authenticated".to_owned())]);
    let set = packet(SET, &[0; 8], b"k", b"v");
    assert_eq!(answers(&rig.ask(id, &set)), [(SET, 0, String::new())]);
    // A wrong password cancels an earlier login.
    let wrong = packet(SASL_AUTH, b"", b"PLAIN", b"\0alice\0wrong");
    assert_eq!(answers(&rig.ask(id, &wrong)), [denied(SASL_AUTH)]);
    let get = packet(GET, b"", b"k", b"");
    assert_eq!(answers(&rig.ask(id, &get)), [denied(GET)]);
    assert!(rig.closed(id));
}

#[test]
fn a_binary_command_before_the_password_is_refused_and_hung_up_on() {
    let folder = Scratch::new();
    for (opcode, packet) in [
        (GET, packet(GET, b"", b"k", b"")),
        (SET, packet(SET, &[0; 8], b"k", b"v")),
        (NOOP, packet(NOOP, b"", b"", b"")),
        (GET, packet(GET, b"no extras", b"", b"v")),
        (0x77, packet(0x77, b"", b"k", b"")),
    ] {
        let mut rig = sasl_rig(&folder);
        let id = rig.connect();
        assert_eq!(answers(&rig.ask(id, &packet)), [denied(opcode)]);
        assert!(rig.closed(id));
    }
}

struct Guarded {
    server: Option<RunningServer>,
    exempt: std::net::SocketAddr,
    asks: std::net::SocketAddr,
}

impl Guarded {
    fn start(auth_file: Option<PathBuf>, sasl_file: Option<PathBuf>) -> Guarded {
        // Two addresses of this machine: with port 0 both would get the same port.
        let exempt = "127.0.0.2:0".parse().unwrap();
        let server = Server::start(Settings {
            listen: vec!["127.0.0.1:0".parse().unwrap(), exempt],
            noauth: vec![exempt],
            auth_file,
            sasl_file,
            memory: 64 << 20,
            threads: 2,
            ..Settings::default()
        })
        .unwrap();
        let addresses = &server.report().addresses;
        let (asks, exempt) = (addresses[0], addresses[1]);
        Guarded {
            server: Some(server),
            exempt,
            asks,
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let server = self.server.take().unwrap();
        server.shutdown();
        server.join().unwrap();
    }
}

#[test]
fn an_exempt_listener_asks_for_nothing() {
    let folder = Scratch::new();
    let place = Guarded::start(file(&folder, "users", "a:b\n"), None);
    let mut exempt = Client::to(place.exempt);
    exempt.send(b"set k 0 0 1\r\nv\r\n");
    exempt.expect(b"STORED\r\n");
    exempt.send(&packet(NOOP, b"", b"", b"")[..1]);
    let mut asks = Client::to(place.asks);
    asks.send(b"get k\r\n");
    asks.expect(b"CLIENT_ERROR unauthenticated\r\n");
    asks.send(b"set x 0 0 3\r\na b\r\nget k\r\n");
    asks.expect(b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn a_reload_takes_new_users_and_a_bad_file_changes_nothing() {
    let folder = Scratch::new();
    let users = file(&folder, "users", "a:old\n");
    let place = Guarded::start(users.clone(), file(&folder, "sasl", "s:1\n"));
    let control = place.server.as_ref().unwrap().control();
    let says = |password: &str| {
        let mut client = Client::to(place.asks);
        client.send(format!("set x 0 0 5\r\na {password}\r\n").as_bytes());
        String::from_utf8(client.until(b"\r\n")).unwrap()
    };
    let wrong = "CLIENT_ERROR authentication failure\r\n";
    let mut before = Client::to(place.asks);
    before.send(b"set x 0 0 5\r\na old\r\n");
    before.expect(b"STORED\r\n");
    assert_eq!(says("new"), wrong);
    // An empty file, as a tool leaves it for a moment, used to lock everybody out, and the line
    // about the reload counted files that were not read.
    for bad in ["no colon\n", "", "\n", ":\n"] {
        file(&folder, "users", bad);
        assert_eq!(control.reload(), (1, 2));
        assert_eq!(says("old"), "STORED\r\n");
    }
    file(&folder, "users", "a:new\n");
    control.reload();
    assert_eq!(
        (says("old").as_str(), says("new").as_str()),
        (wrong, "STORED\r\n")
    );
    std::fs::remove_file(users.unwrap()).unwrap();
    control.reload();
    assert_eq!(says("new"), "STORED\r\n");
    // A connection that has logged in stays logged in.
    before.send(b"get k\r\n");
    before.expect(b"END\r\n");
}

#[test]
fn settings_that_would_leave_a_protocol_open_are_refused() {
    let folder = Scratch::new();
    let users = file(&folder, "users", "a:b\n");
    let why = |settings: Settings| Server::bind(settings).map(drop).unwrap_err().to_string();
    let base = || Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..Settings::default()
    };
    let text = why(Settings {
        auth_file: users.clone(),
        only_protocol: Some(Dialect::Binary),
        ..base()
    });
    assert!(text.contains("-B binary"), "{text}");
    let text = why(Settings {
        sasl_file: users,
        only_protocol: Some(Dialect::Ascii),
        ..base()
    });
    assert!(text.contains("-B ascii"), "{text}");
    let text = why(Settings {
        auth_file: Some(folder.join("missing")),
        ..base()
    });
    assert!(text.contains("missing"), "{text}");
    let text = why(Settings {
        auth_file: file(&folder, "bad", "a:b\nsecret\n"),
        ..base()
    });
    assert!(
        text.contains("line 2") && !text.contains("secret"),
        "{text}"
    );
    let text = why(Settings {
        auth_file: file(&folder, "empty", "\n"),
        ..base()
    });
    assert!(text.contains("no user"), "{text}");
    let text = why(Settings {
        auth_file: file(&folder, "users", "a:b\n"),
        protocols: vec![(base().listen[0], Dialect::Binary)],
        ..base()
    });
    assert!(text.contains("proto[]"), "{text}");
    let text = why(Settings {
        noauth: base().listen,
        ..base()
    });
    assert!(text.contains("noauth:"), "{text}");
}
