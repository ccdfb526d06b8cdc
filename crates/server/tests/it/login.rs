// SPDX-License-Identifier: Apache-2.0
//! Passwords: the commands of a connection before login, over sessions and over sockets. The
//! answers of the ascii protocol are in `tests/transcripts/auth`, with memcached as the reference.

use std::path::PathBuf;

use senko_server::server::{RunningServer, Server};
use senko_server::settings::{Dialect, Settings};

use crate::rig::{Rig, RigSettings};
use crate::serve::client::{Client, Refusal, Scratch};
use crate::session::{packet, replies};

const SASL_LIST: u8 = 0x20;
const SASL_AUTH: u8 = 0x21;
const SASL_STEP: u8 = 0x22;
const GET: u8 = 0;
const SET: u8 = 1;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;

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
    let got = replies(&rig.ask(id, packet(SASL_LIST, b"", b"", b"", 0)));
    assert_eq!(got, [(SASL_LIST, 0, "PLAIN".to_owned())]);
    let got = replies(&rig.ask(id, packet(VERSION, b"", b"", b"", 0)));
    assert_eq!((got[0].0, got[0].1), (VERSION, 0));
    for wrong in [
        &b"\0alice\0wrong"[..],
        b"\0mallory\0secret",
        b"\0alice\0",
        b"",
        b"bob\0alice\0secret",
    ] {
        let got = replies(&rig.ask(id, packet(SASL_AUTH, b"PLAIN", b"", wrong, 0)));
        assert_eq!(got, [denied(SASL_AUTH)]);
    }
    let got = replies(&rig.ask(
        id,
        packet(SASL_AUTH, b"CRAM-MD5", b"", b"\0alice\0secret", 0),
    ));
    assert_eq!(got, [denied(SASL_AUTH)]);
    let got = replies(&rig.ask(id, packet(SASL_STEP, b"PLAIN", b"", b"\0alice\0secret", 0)));
    assert_eq!(got, [denied(SASL_STEP)], "nothing was begun");
    let got = replies(&rig.ask(id, packet(SASL_AUTH, b"PLAIN", b"", &[b'x'; 3000], 0)));
    assert_eq!(got, [denied(SASL_AUTH)], "too long, and swallowed");
    let got = replies(&rig.ask(id, packet(SASL_AUTH, b"PLAIN", b"", b"\0alice\0secret", 0)));
    assert_eq!(got, [(SASL_AUTH, 0, "Authenticated".to_owned())]);
    let set = packet(SET, b"k", &[0; 8], b"v", 0);
    assert_eq!(replies(&rig.ask(id, &set)), [(SET, 0, String::new())]);
    // A wrong password cancels an earlier login.
    let wrong = packet(SASL_AUTH, b"PLAIN", b"", b"\0alice\0wrong", 0);
    assert_eq!(replies(&rig.ask(id, &wrong)), [denied(SASL_AUTH)]);
    let get = packet(GET, b"k", b"", b"", 0);
    assert_eq!(replies(&rig.ask(id, &get)), [denied(GET)]);
    assert!(rig.closed(id));
}

#[test]
fn a_binary_command_before_the_password_is_refused_and_hung_up_on() {
    let folder = Scratch::new();
    for (opcode, packet) in [
        (GET, packet(GET, b"k", b"", b"", 0)),
        (SET, packet(SET, b"k", &[0; 8], b"v", 0)),
        (NOOP, packet(NOOP, b"", b"", b"", 0)),
        (GET, packet(GET, b"", b"no extras", b"v", 0)),
        (0x77, packet(0x77, b"k", b"", b"", 0)),
    ] {
        let mut rig = sasl_rig(&folder);
        let id = rig.connect();
        assert_eq!(replies(&rig.ask(id, &packet)), [denied(opcode)]);
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
    exempt.send(&packet(NOOP, b"", b"", b"", 0)[..1]);
    let mut asks = Client::to(place.asks);
    asks.send(b"get k\r\n");
    asks.expect(b"CLIENT_ERROR unauthenticated\r\n");
    asks.send(b"set x 0 0 3\r\na b\r\nget k\r\n");
    asks.expect(b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
}

/// A client of the binary protocol waited for ever, since no line end came.
#[test]
fn a_binary_request_is_hung_up_on_where_passwords_are_ascii() {
    let folder = Scratch::new();
    let place = Guarded::start(file(&folder, "users", "a:b\n"), None);
    let mut asks = Client::to(place.asks);
    asks.send(&packet(NOOP, b"", b"", b"", 0)[..1]);
    assert_eq!(asks.rest(), b"");
}

#[test]
fn a_reload_takes_new_users_and_a_bad_file_changes_nothing() {
    let folder = Scratch::new();
    let users = file(&folder, "users", "a:old\n");
    let place = Guarded::start(users.clone(), file(&folder, "sasl", "s:1\n"));
    let control = place.server.as_ref().unwrap().control();
    let says = |password: &str| {
        let mut client = Client::to(place.asks);
        client.send(format!("set x 0 0 5\r\na {password}\r\n"));
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
    let base = || Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..Settings::default()
    };
    let refused: &[Refusal<'_>] = &[
        (
            &|s| {
                s.auth_file = users.clone();
                s.only_protocol = Some(Dialect::Binary);
            },
            "-B binary",
        ),
        (
            &|s| {
                s.sasl_file = users.clone();
                s.only_protocol = Some(Dialect::Ascii);
            },
            "-B ascii",
        ),
        (&|s| s.auth_file = Some(folder.join("missing")), "missing"),
        (
            &|s| s.auth_file = file(&folder, "bad", "a:b\nsecret\n"),
            "line 2",
        ),
        (&|s| s.auth_file = file(&folder, "empty", "\n"), "no user"),
        (
            &|s| {
                s.auth_file = file(&folder, "users", "a:b\n");
                s.protocols = vec![(s.listen[0], Dialect::Binary)];
            },
            "proto[]",
        ),
        (&|s| s.noauth = s.listen.clone(), "noauth:"),
    ];
    for (change, why) in refused {
        let mut settings = base();
        change(&mut settings);
        let told = Server::bind(settings).map(drop).unwrap_err().to_string();
        assert!(told.contains(why) && !told.contains("secret"), "{told}");
    }
}
