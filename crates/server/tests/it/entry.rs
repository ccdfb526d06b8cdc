// SPDX-License-Identifier: Apache-2.0
//! The code of the fuzz targets, which `corpus` runs once for each seed: arbitrary bytes through
//! the parsers and through a session over a real shard with flash in memory.
//!
//! The first byte of the data decides how the rest is split into pieces, and the number of shards.
//! The same bytes in one piece must get the same answer. Otherwise only panics count as failures.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use senko_server::auth::{Form, Users};
use senko_server::protocol::binary::{HEADER, Header};
use senko_server::protocol::meta::{Clock, KeyBuf};
use senko_server::protocol::{MAX_KEY, Tokens, classic, meta, split_line};
use senko_server::settings::{Dialect, TlsMode, TlsSettings};
use senko_server::tls;

use crate::rig::{Rig, RigSettings};

fn rig_settings(shards: usize, dialect: Option<Dialect>) -> RigSettings {
    let mut rig_settings = RigSettings {
        shards,
        memory: 2 << 20,
        flash_pages: 1 << 10,
        ..RigSettings::default()
    };
    rig_settings.settings.max_item = 64 << 10;
    rig_settings.settings.only_protocol = dialect;
    rig_settings
}

/// The answer to `input` in pieces of `piece` bytes.
fn answer(input: &[u8], piece: usize, shards: usize, dialect: Dialect) -> (Vec<u8>, bool) {
    let mut rig = Rig::new(&rig_settings(shards, Some(dialect)));
    let id = rig.connect();
    for part in input.chunks(piece) {
        rig.send(id, part);
    }
    rig.settle();
    let answer = rig.answers(id);
    let closed = rig.closed(id);
    rig.vanish(id);
    (answer, closed)
}

/// A password file, for as long as the process lives.
fn users() -> &'static Path {
    static USERS: OnceLock<PathBuf> = OnceLock::new();
    USERS.get_or_init(|| {
        let name = format!("senko-login-users-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "alice:secret\n").expect("a writable folder");
        path
    })
}

/// Bytes that arrive before and after a password, and as a password file.
fn login(data: &[u8], dialect: Dialect) {
    for form in [Form::Ascii, Form::Sasl] {
        if let Ok(users) = Users::read(data, form) {
            assert!((1..=64).contains(&users.len()) && !users.check(b"", b""));
        }
    }
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let answer = |piece: usize| {
        let mut rig_settings = rig_settings(1, Some(dialect));
        match dialect {
            Dialect::Ascii => rig_settings.settings.auth_file = Some(users().to_path_buf()),
            Dialect::Binary => rig_settings.settings.sasl_file = Some(users().to_path_buf()),
        }
        let mut rig = Rig::new(&rig_settings);
        let id = rig.connect();
        for part in input.chunks(piece) {
            rig.send(id, part);
        }
        rig.settle();
        let answer = rig.answers(id);
        rig.vanish(id);
        answer
    };
    let whole = answer(usize::MAX);
    // Without the password nothing is stored, read or reported.
    if !contains(input, &[b"secret"]) {
        assert!(!contains(
            &whole,
            &[b"STORED", b"VALUE", b"STAT", b"Authenticated"]
        ));
    }
    answer(1 + usize::from(choice));
}

/// Passwords of the ascii protocol (`-Y`).
pub fn login_ascii(data: &[u8]) {
    login(data, Dialect::Ascii);
}

/// Passwords of the binary protocol (`-S`).
pub fn login_sasl(data: &[u8]) {
    login(data, Dialect::Binary);
}

/// A certificate's file, and a certificate: with any content, it is read or refused.
pub fn tls_pem(data: &[u8]) {
    if let Ok(all) = tls::pem::certificates(data) {
        all.iter().for_each(|certificate| {
            tls::x509::end(certificate);
        });
    }
    let _ = tls::pem::key(data);
    tls::x509::end(data);
}

/// A server's certificate, for as long as the process lives.
fn server() -> &'static tls::Tls {
    static SERVER: OnceLock<tls::Tls> = OnceLock::new();
    SERVER.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .expect("a certificate can be made");
        let folder = std::env::temp_dir().join(format!("senko-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let settings = TlsSettings {
            chain: folder.join("chain.pem"),
            key: folder.join("key.pem"),
            ..TlsSettings::default()
        };
        std::fs::write(&settings.chain, made.cert.pem()).expect("a writable folder");
        std::fs::write(&settings.key, made.signing_key.serialize_pem()).expect("a writable folder");
        let server = tls::Tls::open(&settings, 0, None).expect("a good certificate");
        let _ = std::fs::remove_dir_all(&folder);
        server
    })
}

/// A client's bytes before its handshake has ended. The outcome does not depend on how they are
/// split, and none of them reaches a session.
pub fn tls_stream(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let outcome = |piece: usize| {
        let mut stream = server().accept(TlsMode::Default).expect("there is TLS");
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        for part in input.chunks(piece) {
            let mut part = part.to_vec();
            let taken = stream.receive(&mut part, &mut plain, &mut out);
            assert!(plain.is_empty() && !stream.is_open());
            match taken {
                Err(fault) => {
                    assert!(fault.handshake && !fault.why.is_empty());
                    return false;
                }
                Ok(received) => assert_eq!(received.opened, None),
            }
        }
        true
    };
    assert_eq!(outcome(usize::MAX), outcome(1 + usize::from(choice)));
}

fn session(data: &[u8], dialect: Dialect) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let piece = 1 + usize::from(choice >> 2);
    let shards = 1 + usize::from(choice & 1);
    let whole = answer(input, usize::MAX, 1, dialect);
    let pieces = answer(input, piece, shards, dialect);
    // Memory limits and counters differ between one shard and two, and times between two runs.
    let differs = [&b"STAT "[..], b"MEMLIMIT", b"SERVER_ERROR"];
    let same = !contains(&whole.0, &differs);
    // Each shard assigns its own CAS values, and walks go shard by shard.
    let by_shard = [&b" C"[..], b"cas", b" c", b"gets", b"gats", b"dump", b"me "];
    let comparable = shards == 1 || !contains(input, &by_shard);
    // Whether a long line without an end closes the connection depends on when its end arrives.
    let long_line = input.split(|&b| b == b'\n').any(|line| line.len() > 2048);
    if comparable && same && !long_line && dialect == Dialect::Ascii {
        assert_eq!(whole.1, pieces.1, "closed or not");
        if !whole.1 {
            let show = String::from_utf8_lossy;
            assert!(
                whole.0 == pieces.0,
                "in pieces of {piece}: {:?} and {:?}",
                show(&whole.0),
                show(&pieces.0)
            );
        }
    }
}

fn contains(bytes: &[u8], words: &[&[u8]]) -> bool {
    words
        .iter()
        .any(|word| memchr::memmem::find(bytes, word).is_some())
}

/// Classic text.
pub fn classic(data: &[u8]) {
    let mut rest = data;
    while let Some((line, used)) = split_line(rest) {
        let _ = classic::parse(line);
        rest = &rest[used..];
    }
    session(data, Dialect::Ascii);
}

/// Meta commands.
pub fn meta(data: &[u8]) {
    let clock = Clock {
        now: 1_700_000_000,
        started: 1_699_999_000,
    };
    for line in data.split(|&b| b == b'\n') {
        let mut room: KeyBuf = None;
        let _ = meta::keyed(line, clock, &mut room);
        let _ = meta::arith(line, clock, &mut room);
        let _ = meta::debug(line, &mut room);
        if let Ok((command, _, _)) = meta::store(line, clock, &mut room) {
            assert!(!command.key.is_empty() && command.key.len() <= MAX_KEY);
            assert!(Tokens::new(command.text).all(|token| !token.is_empty()));
        }
    }
    session(data, Dialect::Ascii);
}

/// Binary packets.
pub fn binary(data: &[u8]) {
    for at in 0..data.len().saturating_sub(HEADER) {
        if let Ok(header) = Header::read(&data[at..]) {
            assert!(header.key_len <= MAX_KEY && header.extras_len <= 255);
        }
    }
    session(data, Dialect::Binary);
}
