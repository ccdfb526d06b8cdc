// SPDX-License-Identifier: Apache-2.0
//! Which handshakes are refused, by which alert, and in which words for the log.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};
use senko_server::settings::{TlsMode, TlsSettings, TlsVerify};
use senko_server::tls::Tls;

use super::client::{self, ALL, Authority, openssl};
use crate::serve::client::Scratch;

/// The record of the alert `protocol_version`.
const BAD_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// Why the server ends a connection on which these bytes come, and what it sends.
fn refusal_of(server: &Tls, mut data: Vec<u8>) -> (String, Vec<u8>) {
    let mut stream = server.accept(TlsMode::Default).unwrap();
    let mut out = Vec::new();
    let fault = stream.receive(&mut data, &mut Vec::new(), &mut out);
    let fault = fault.expect_err("a refusal");
    assert!(fault.handshake);
    (plain(fault.why), out)
}

/// A text that is nobody's debug form.
fn plain(why: String) -> String {
    let is_word = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let camel = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        word == "clientAuth" || !word.as_bytes().windows(2).any(camel)
    };
    assert!(why.split(' ').all(is_word) && !why.contains('{'), "{why}");
    why
}

/// Why the handshake of this client fails; `None`: it does not.
fn shaken(server: &Tls, config: &Arc<ClientConfig>) -> Option<String> {
    let mut stream = server.accept(TlsMode::Default).unwrap();
    let name = "localhost".try_into().unwrap();
    let mut link = ClientConnection::new(Arc::clone(config), name).unwrap();
    while !stream.is_open() {
        let (mut data, mut out) = (Vec::new(), Vec::new());
        while link.wants_write() {
            link.write_tls(&mut data).unwrap();
        }
        assert!(!data.is_empty(), "neither side has anything to say");
        if let Err(fault) = stream.receive(&mut data, &mut Vec::new(), &mut out) {
            return Some(plain(fault.why));
        }
        let mut answer = &out[..];
        while !answer.is_empty() {
            link.read_tls(&mut answer).unwrap();
            link.process_new_packets().unwrap();
        }
    }
    None
}

/// A client that ends before TLS 1.2 used to get the alert `handshake_failure`, which says nothing
/// about versions, and the log had the debug form of an error about a missing extension.
#[test]
fn an_old_client_is_told_that_its_version_is_too_old() {
    let authority = Authority::new();
    let server = Tls::open(&authority.settings(), 0, None).unwrap();
    for (minor, version) in [(0, "SSL 3"), (1, "TLS 1.0"), (2, "TLS 1.1")] {
        let mut body = vec![3, minor];
        body.extend([7; 32]);
        // No session, two suites of the time, no compression.
        body.extend([0, 0, 4, 0, 0x2f, 0xc0, 0x13, 1, 0]);
        let message = [&[1, 0, 0, body.len() as u8], &body[..]].concat();
        let record = [&[22, 3, 1, 0, message.len() as u8], &message[..]].concat();
        let (why, out) = refusal_of(&server, record);
        assert!(why.contains(version), "{why}");
        assert!(why.contains("TLS 1.2 is the least"), "{why}");
        assert_eq!(out, BAD_VERSION);
    }
    let (why, _) = refusal_of(&server, b"get key\r\n".to_vec());
    assert!(why.contains("no TLS"), "{why}");
    // TLS 1.2 is too old where only 1.3 is served.
    let newer = TlsSettings {
        only_1_3: true,
        ..authority.settings()
    };
    let server = Tls::open(&newer, 0, None).unwrap();
    let config = client::trusting(&[&TLS12], None);
    let why = shaken(&server, &config).expect("a refusal");
    assert!(why.contains("no version of TLS"), "{why}");
}

/// A certificate with a key of P-521, or with a small RSA key, was refused as one with a wrong
/// signature, or with identifiers in numbers; other refusals had Rust's names.
#[test]
fn a_client_that_is_refused_is_told_in_plain_words() {
    let authority = Authority::new();
    let folder = Scratch::new();
    let made = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let run = |line: String| openssl(&folder, &line);
    let curve = |name| format!("ec -pkeyopt ec_paramgen_curve:{name}");
    let new = |name: &str, key: &str| {
        run(format!(
            "req -x509 -nodes -newkey {key} -keyout {name}.key -out {name}.pem -subj /CN={name}"
        ));
    };
    std::fs::write(folder.join("3"), "subjectAltName=DNS:a\n").unwrap();
    std::fs::write(folder.join("web"), "extendedKeyUsage=serverAuth\n").unwrap();
    new("ca", &curve("P-256"));
    new("ca521", &curve("P-521"));
    new("self", &curve("P-256"));
    new("self521", &curve("P-521"));
    new("stranger", &curve("P-384"));
    for (name, key, ca, more) in [
        ("good", curve("P-256"), "ca", " -extfile 3"),
        ("p521", curve("P-521"), "ca", " -extfile 3"),
        ("p521v1", curve("P-521"), "ca", ""),
        ("small", "rsa:1024".to_owned(), "ca", " -extfile 3"),
        ("by521", curve("P-256"), "ca521", " -extfile 3"),
        ("by521v1", curve("P-256"), "ca521", ""),
        ("web", curve("P-256"), "ca", " -extfile web"),
    ] {
        run(format!(
            "req -new -nodes -newkey {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        run(format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -out {name}.pem{more}"
        ));
    }
    let cas = ["ca.pem", "ca521.pem", "self.pem", "self521.pem"].map(made);
    std::fs::write(folder.join("cas.pem"), cas.concat()).unwrap();
    let settings = TlsSettings {
        ca: Some(folder.join("cas.pem")),
        verify: TlsVerify::Require,
        ..authority.settings()
    };
    let server = Tls::open(&settings, 0, None).unwrap();
    let keys = "a key that the server does not take; it takes RSA keys of 2048 to 4096 bits";
    for versions in [&[&TLS12], &[&TLS13]] {
        // These clients sign with a key of P-256, for they cannot use others. The server refuses
        // the certificate before the signature.
        for (name, why) in [
            ("p521", keys),
            ("p521v1", keys),
            ("self521", keys),
            ("small", keys),
            ("by521", keys),
            ("by521v1", keys),
            ("stranger", "stands itself in the file of --tls-ca-cert"),
            ("web", "is not for clients"),
        ] {
            let own = (made(&format!("{name}.pem")), made("good.key"));
            let told = shaken(&server, &client::trusting(versions, Some(own)));
            let told = told.unwrap_or_else(|| panic!("{name} was let in"));
            assert!(told.contains(why), "{name}: {told}");
        }
        for name in ["good", "self"] {
            let own = (made(&format!("{name}.pem")), made(&format!("{name}.key")));
            let told = shaken(&server, &client::trusting(versions, Some(own)));
            assert_eq!(told, None, "{name}");
        }
        let other = (made("good.pem"), made("self.key"));
        let told = shaken(&server, &client::trusting(versions, Some(other))).unwrap();
        assert!(told.contains("has a wrong signature"), "{told}");
    }
    let told = shaken(&server, &client::trusting(ALL, None)).unwrap();
    assert!(told.contains("showed no certificate"), "{told}");
}
