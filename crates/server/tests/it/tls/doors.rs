// SPDX-License-Identifier: Apache-2.0
//! Who gets in by TLS: tickets, passed sockets, and the kinds of certificates and keys.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use senko_io::Listener;
use senko_server::server::{RunningServer, Server};
use senko_server::settings::{Settings, TlsMode, TlsSettings, TlsVerify};
use senko_server::tls::x509::Certificate;

use super::address;
use super::client::{self, ALL, Authority, Secure, openssl};
use crate::serve::client::Scratch;

/// A server with one door of each kind, whose clients may resume sessions.
struct Doors {
    authority: Authority,
    clock: Arc<AtomicU64>,
    server: RunningServer,
    usual: SocketAddr,
    basic: SocketAddr,
    mutual: SocketAddr,
}

impl Doors {
    fn new(verify: TlsVerify) -> Doors {
        let authority = Authority::new();
        let mut tls = authority.settings();
        tls.ca = Some(authority.path("ca.pem"));
        (tls.verify, tls.session_cache) = (verify, true);
        let doors = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"].map(address);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = Arc::new(AtomicU64::new(now.as_millis() as u64));
        let server = Server::start(Settings {
            listen: doors.to_vec(),
            tls_modes: vec![(doors[1], TlsMode::Basic), (doors[2], TlsMode::Mutual)],
            tls: Some(tls),
            memory: 64 << 20,
            clock: Some(Arc::clone(&clock)),
            ..Settings::default()
        })
        .unwrap();
        let [usual, basic, mutual] = server.report().addresses[..] else {
            panic!("all addresses are bound");
        };
        Doors {
            authority,
            clock,
            server,
            usual,
            basic,
            mutual,
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

/// How a client got in; `None`: it was refused.
pub(super) fn enter(door: SocketAddr, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut client = Secure::secure(door, config);
    client.shake().ok()?;
    // With TLS 1.3 a client learns with its first answer that it was refused.
    client.stream.write_all(b"get k\r\n").ok()?;
    let mut answer = [0; 5];
    client.stream.read_exact(&mut answer).ok()?;
    assert_eq!(&answer, b"END\r\n");
    client.stream.conn.handshake_kind()
}

/// One key encrypted the tickets of all doors. So a client without a certificate began a session at
/// a `btls:` door, or at one that only requests certificates, and resumed it at an `mtls:` door,
/// which served it. rustls does not ask for a certificate when a session is resumed.
#[test]
fn a_ticket_opens_no_other_door() {
    for verify in [TlsVerify::None, TlsVerify::Request, TlsVerify::Require] {
        let doors = Doors::new(verify);
        for versions in [&[&TLS12], &[&TLS13]] {
            let config = doors.authority.client(versions, None);
            let open = [doors.basic, doors.usual];
            let open = &open[..if verify == TlsVerify::Require { 1 } else { 2 }];
            for &door in open {
                assert_eq!(enter(door, &config), Some(HandshakeKind::Full));
                assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
                let closed = [doors.mutual, doors.usual];
                for &other in &closed[..if verify == TlsVerify::Require { 2 } else { 1 }] {
                    assert_eq!(enter(other, &config), None, "{verify:?}");
                }
            }
            // At the door where it began, a session with a certificate is resumed.
            let own = Some(doors.authority.sign("client", None));
            let config = doors.authority.client(versions, own);
            for door in [doors.mutual, doors.usual, doors.mutual] {
                assert_eq!(enter(door, &config), Some(HandshakeKind::Full));
                assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
            }
        }
    }
}

/// `-l mtls:...` was dropped without a word where a service manager passed the socket: clients
/// without a certificate were served.
#[test]
fn a_passed_socket_keeps_its_prefix() {
    let authority = Authority::new();
    let mut tls = authority.settings();
    tls.ca = Some(authority.path("ca.pem"));
    let local = address("127.0.0.1:0");
    let sockets = [(); 2].map(|()| Listener::tcp(local, 16).unwrap());
    let [first, second] = sockets.each_ref().map(|s| s.local_address().unwrap());
    let settings = |modes: Vec<(SocketAddr, TlsMode)>| Settings {
        listen: modes.iter().map(|(address, _)| *address).collect(),
        tls_modes: modes,
        tls: Some(tls.clone()),
        passed: sockets
            .iter()
            .map(|s| ("cache".to_owned(), s.clone()))
            .collect(),
        memory: 64 << 20,
        ..Settings::default()
    };
    let server = Server::start(settings(vec![(second, TlsMode::Mutual)])).unwrap();
    let stranger = authority.client(ALL, None);
    let known = authority.client(ALL, Some(authority.sign("client", None)));
    assert_eq!(enter(first, &stranger), Some(HandshakeKind::Full));
    assert_eq!(enter(second, &stranger), None);
    assert_eq!(enter(second, &known), Some(HandshakeKind::Full));
    server.shutdown();
    server.join().unwrap();
    // No passed socket has the address of the prefix.
    for lost in ["127.0.0.9:1", "0.0.0.0:1"] {
        let modes = vec![(second, TlsMode::Mutual), (address(lost), TlsMode::Mutual)];
        let why = Server::bind(settings(modes))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(why.contains(&format!("a prefix for {lost}")), "{why}");
    }
    let lost = Settings {
        noauth: vec![address("127.0.0.9:1")],
        auth_file: Some(authority.path("users")),
        ..settings(Vec::new())
    };
    std::fs::write(authority.path("users"), "a:b\n").unwrap();
    assert!(Server::bind(lost).is_err());
    // A socket of [::] is that of 0.0.0.0, too.
    if let Ok(wide) = Listener::tcp(address("[::]:0"), 16) {
        let port = wide.local_port().unwrap();
        let both =
            ["0.0.0.0", "[::]"].map(|ip| (address(&format!("{ip}:{port}")), TlsMode::Mutual));
        let with = |modes: &[(SocketAddr, TlsMode)]| {
            let mut settings = settings(modes.to_vec());
            settings.passed = vec![("cache".to_owned(), wide.clone())];
            Server::bind(settings)
        };
        assert!(with(&both).is_ok());
        assert!(with(&both[..1]).is_err());
    }
}

/// Tickets used to outlive the CA file. So a client of a CA that was taken away resumed its session
/// again and again, for as long as the server lived.
#[test]
fn a_session_ends_with_its_ca() {
    for verify in [TlsVerify::Request, TlsVerify::Require] {
        let doors = Doors::new(verify);
        for versions in [&[&TLS12], &[&TLS13]] {
            let ca = doors.authority.path("ca.pem");
            let own = Some(doors.authority.sign("client", None));
            let config = doors.authority.client(versions, own);
            for door in [doors.usual, doors.mutual] {
                std::fs::write(&ca, &doors.authority.ca).unwrap();
                doors.server.control().reload();
                assert_eq!(enter(door, &config), Some(HandshakeKind::Full));
                // A new certificate of the server ends no session.
                doors.authority.roll(None);
                doors.server.control().reload();
                assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
                std::fs::write(&ca, Authority::new().ca).unwrap();
                doors.server.control().reload();
                assert_eq!(enter(door, &config), None);
            }
        }
    }
}

/// A client whose certificate had expired used to resume the session that it began before.
#[test]
fn a_session_ends_with_its_certificate() {
    let doors = Doors::new(TlsVerify::Require);
    let start = doors.clock.load(Ordering::Relaxed);
    let year = 2100;
    // 2100-01-01.
    let end = 4_102_444_800_000;
    for versions in [&[&TLS12], &[&TLS13]] {
        for door in [doors.usual, doors.mutual] {
            doors.clock.store(start, Ordering::Relaxed);
            let own = Some(doors.authority.sign("client", Some(year)));
            let config = doors.authority.client(versions, own);
            assert_eq!(enter(door, &config), Some(HandshakeKind::Full));
            assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
            doors.clock.store(end - 1, Ordering::Relaxed);
            assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
            doors.clock.store(end + 2000, Ordering::Relaxed);
            assert_eq!(enter(door, &config), None);
        }
    }
}

/// `openssl x509 -req` without extensions makes certificates of version 1, and `openssl req -x509`
/// one that calls itself a CA. rustls reads neither of them as a client's, nor the first as the
/// server's, so such a server did not start, and such clients were refused.
#[test]
fn certificates_that_openssl_makes_are_taken() {
    let folder = Scratch::new();
    let made = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let run = |line: &str| openssl(&folder, line);
    run("req -x509 -nodes -newkey rsa:2048 -keyout ca.key -out ca.pem -subj /CN=ca");
    for (name, kind) in [
        ("server", "rsa:2048"),
        ("client", "rsa:2048"),
        ("curve", "ec -pkeyopt ec_paramgen_curve:P-256"),
    ] {
        run(&format!(
            "req -new -nodes -newkey {kind} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem"
        ));
        // Newer ones make version 3 of it, which is taken anyway.
        let shown = CertificateDer::from_pem_slice(made(&format!("{name}.pem")).as_bytes());
        assert!(Certificate::read(&shown.unwrap()).is_some());
    }
    for name in ["self", "other"] {
        run(&format!(
            "req -x509 -nodes -newkey rsa:2048 -keyout {name}.key -out {name}.pem -subj /CN=ca"
        ));
    }
    let cas = made("ca.pem") + &made("self.pem");
    std::fs::write(folder.join("cas.pem"), cas).unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    clock.store(now.as_millis() as u64, Ordering::Relaxed);
    let server = Server::start(Settings {
        listen: vec![address("127.0.0.1:0")],
        tls: Some(TlsSettings {
            chain: folder.join("server.pem"),
            key: folder.join("server.key"),
            ca: Some(folder.join("cas.pem")),
            verify: TlsVerify::Require,
            ..TlsSettings::default()
        }),
        memory: 64 << 20,
        clock: Some(Arc::clone(&clock)),
        ..Settings::default()
    })
    .unwrap();
    let door = server.report().addresses[0];
    for versions in [&[&TLS12], &[&TLS13]] {
        let with = |certificate: &str, key: &str| {
            let own = (made(certificate), made(key));
            client::trusting(versions, Some(own))
        };
        for name in ["client", "curve", "self"] {
            let config = with(&format!("{name}.pem"), &format!("{name}.key"));
            assert_eq!(enter(door, &config), Some(HandshakeKind::Full), "{name}");
        }
        // Not the key of the certificate, a CA that nobody trusts by the name of a trusted one, and
        // none at all.
        assert_eq!(enter(door, &with("client.pem", "server.key")), None);
        assert_eq!(enter(door, &with("self.pem", "other.key")), None);
        assert_eq!(enter(door, &with("other.pem", "other.key")), None);
        assert_eq!(enter(door, &client::trusting(versions, None)), None);
        // They expire after 30 days.
        clock.fetch_add(40 * 86_400_000, Ordering::Relaxed);
        for name in ["client", "self"] {
            let config = with(&format!("{name}.pem"), &format!("{name}.key"));
            assert_eq!(enter(door, &config), None, "{name}");
        }
        clock.fetch_sub(40 * 86_400_000, Ordering::Relaxed);
    }
    server.shutdown();
    server.join().unwrap();
}

/// A CA that expires ends the sessions that it vouched for, too.
#[test]
fn a_session_ends_with_the_validity_of_its_ca() {
    let authority = Authority::new();
    let ending = Signer::new(|params| params.not_after = date_time_ymd(2100, 1, 1), None);
    // 2100-01-01.
    let end = 4_102_444_800_000;
    let clock = Arc::new(AtomicU64::new(end - 60_000));
    let mut tls = authority.settings();
    std::fs::write(authority.path("ca.pem"), authority.ca.clone() + &ending.1).unwrap();
    tls.ca = Some(authority.path("ca.pem"));
    tls.verify = TlsVerify::Require;
    tls.session_cache = true;
    let server = Server::start(Settings {
        listen: vec![address("127.0.0.1:0")],
        tls: Some(tls),
        memory: 64 << 20,
        clock: Some(Arc::clone(&clock)),
        ..Settings::default()
    })
    .unwrap();
    let door = server.report().addresses[0];
    for versions in [&[&TLS12], &[&TLS13]] {
        clock.store(end - 60_000, Ordering::Relaxed);
        let config = authority.client(versions, Some(ending.sign()));
        assert_eq!(enter(door, &config), Some(HandshakeKind::Full));
        assert_eq!(enter(door, &config), Some(HandshakeKind::Resumed));
        clock.store(end + 60_000, Ordering::Relaxed);
        assert_eq!(enter(door, &config), None);
    }
    server.shutdown();
    server.join().unwrap();
}

/// What `ca.pem` has, and what signs with it.
struct Signer(Issuer<'static, KeyPair>, String);

impl Signer {
    fn new(change: impl FnOnce(&mut CertificateParams), by: Option<&Signer>) -> Signer {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = key.serialize_pem();
        (params.distinguished_name).push(DnType::CommonName, name[100..130].to_owned());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let made = match by {
            Some(by) => params.signed_by(&key, &by.0),
            None => params.self_signed(&key),
        };
        let pem = made.unwrap().pem();
        Signer(Issuer::new(params, key), pem)
    }

    /// A client's certificate with this one behind it, and its key.
    fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let client = params.signed_by(&key, &self.0).unwrap().pem();
        (client + &self.1, key.serialize_pem())
    }
}

/// rustls takes each certificate of the file for a CA: a client whose own certificate is there
/// could let in whomever it wanted.
#[test]
fn only_sound_cas_vouch_for_clients() {
    let sound = Signer::new(|_| {}, None);
    let pinned = Signer::new(|params| params.is_ca = IsCa::ExplicitNoCa, None);
    let without = Signer::new(|params| params.is_ca = IsCa::NoCa, None);
    let expired = Signer::new(|params| params.not_after = date_time_ymd(2020, 1, 1), None);
    let other_use = |params: &mut CertificateParams| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    };
    let no_signer = Signer::new(other_use, None);
    let last = Signer::new(
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
        None,
    );
    let below = |ca: &Signer| Signer::new(|_| {}, Some(ca)).sign();
    let all = [&sound, &pinned, &without, &expired, &no_signer, &last];
    let pinned_key = pinned.0.key().serialize_pem();
    let authority = Authority::new();
    let mut tls = authority.settings();
    let file = all.map(|signer| signer.1.as_str()).concat();
    std::fs::write(authority.path("ca.pem"), file).unwrap();
    tls.ca = Some(authority.path("ca.pem"));
    tls.verify = TlsVerify::Require;
    let server = Server::start(Settings {
        listen: vec![address("127.0.0.1:0")],
        tls: Some(tls),
        memory: 64 << 20,
        ..Settings::default()
    })
    .unwrap();
    let door = server.report().addresses[0];
    for (what, own, good) in [
        ("a CA", sound.sign(), true),
        ("a CA below one", below(&sound), true),
        ("itself", (pinned.1.clone(), pinned_key), true),
        ("a client", pinned.sign(), false),
        ("a client without constraints", without.sign(), false),
        ("an expired CA", expired.sign(), false),
        ("a CA that may not sign", no_signer.sign(), false),
        (
            "a CA that may not sign, below one",
            Signer::new(other_use, Some(&sound)).sign(),
            false,
        ),
        ("the last CA", last.sign(), true),
        ("a CA below the last", below(&last), false),
    ] {
        for versions in [&[&TLS12], &[&TLS13]] {
            let config = client::trusting(versions, Some(own.clone()));
            assert_eq!(enter(door, &config).is_some(), good, "{what}");
        }
    }
    server.shutdown();
    server.join().unwrap();
}

/// A message used to show Rust's debug form of an error, or to say that there was no key, where the
/// key was encrypted or of a kind that is not served.
#[test]
fn a_key_that_cannot_be_used_is_told_in_plain_words() {
    let folder = Scratch::new();
    let authority = Authority::new();
    let good = authority.settings();
    let why = |chain: &str, key: &str| {
        let settings = Settings {
            listen: vec![address("127.0.0.1:0")],
            tls: Some(TlsSettings {
                chain: folder.join(chain),
                key: folder.join(key),
                ..TlsSettings::default()
            }),
            ..Settings::default()
        };
        let error = Server::bind(settings).map(drop).unwrap_err().to_string();
        assert!(!error.contains('{') && !error.contains('\n'), "{error}");
        error
    };
    for (name, line) in [
        ("p521", "ec -pkeyopt ec_paramgen_curve:P-521 -nodes"),
        ("small", "rsa:1024 -nodes"),
        ("locked", "rsa:2048 -passout pass:secret"),
    ] {
        let line = format!(
            "req -x509 -newkey {line} -keyout {name}.key -out {name}.pem -subj /CN=localhost"
        );
        openssl(&folder, &line);
    }
    let p521 = why("p521.pem", "p521.key");
    for part in [
        "a key of the curve P-521, and the server takes RSA",
        "openssl genpkey",
    ] {
        assert!(p521.contains(part), "{p521}");
    }
    let small = why("small.pem", "small.key");
    assert!(small.contains("RSA keys of 2048 to 4096 bits"), "{small}");
    let locked = why("locked.pem", "locked.key");
    assert!(locked.contains("encrypted with a passphrase"), "{locked}");
    assert!(why("locked.pem", "p521.pem").contains("no private key"));
    let whole = std::fs::read_to_string(&good.chain).unwrap();
    std::fs::write(folder.join("cut.pem"), &whole[..whole.len() / 2]).unwrap();
    let cut = why("cut.pem", "locked.key");
    assert!(cut.contains("no END line"), "{cut}");
}
