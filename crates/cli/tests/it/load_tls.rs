// SPDX-License-Identifier: Apache-2.0
//! `senko load --tls` against senko's own listener with TLS.

use std::process::{Command, Output};

use crate::process::{
    Running, Scratch, ask, have, hears_signals, run, senko, signal, start, text, undone, wait_for,
};

/// A folder with a CA, certificates that it signed for the server (`server`) and for a client
/// (`client`), and another CA (`other.pem`).
pub fn certificates() -> Scratch {
    let folder = Scratch::new();
    let script = "
        set -e
        new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
        for ca in ca other; do
            openssl req -x509 $new -keyout $ca.key -out $ca.pem -days 9 -subj /CN=$ca \
                -addext basicConstraints=critical,CA:TRUE
        done
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > names
        for name in server client; do
            openssl req -new $new -keyout $name.key -out $name.csr -subj /CN=$name
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 \
                -extfile names -out $name.pem
        done";
    let made = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{told}");
    folder
}

fn serve(folder: &Scratch, args: &str) -> Running {
    Running::serve(folder, format!("-p 0 --no-flash -m 64 {args}"))
}

pub const CERTIFICATE: [&str; 4] = ["--tls-chain-cert", "server.pem", "--tls-key", "server.key"];

fn load(folder: &Scratch, port: u16, args: &str) -> Output {
    let address = format!("127.0.0.1:{port}");
    senko("load", folder, format!("-s {address} {args}"))
}

/// Values longer than TLS records, and many values in one record, in every dialect on both
/// backends: each byte comes back unchanged.
#[test]
fn every_byte_comes_back_through_tls() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let server = serve(&folder, &CERTIFICATE.join(" "));
    let suites = [
        ("TLS_AES_128_GCM_SHA256", "1.3"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "1.2"),
    ];
    let mut turns = 0;
    for dialect in ["classic", "meta", "binary"] {
        for backend in ["auto", "posix"] {
            let (suite, version) = suites[turns % 2];
            turns += 1;
            let options = format!(
                "--tls --tls-ca ca.pem --tls-cipher {suite} --protocol {dialect} --io {backend} -c 5 -t 2 \
                 -P {} --load -n 3000 --read-back -k 400 --value-size 1-60000 --vary-size --verify \
                 --expect-found 1 --json",
                if turns % 2 == 0 { 1 } else { 16 },
            );
            let output = load(&folder, server.port, &options);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{options}: {told}");
            let text = text(&output.stdout);
            assert_eq!(text.lines().count(), 3, "{text}");
            for line in text.lines() {
                let step: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(step["tls"], format!("{version} {suite}"), "{options}");
                assert_eq!(step["failed"], 0, "{options}: {step}");
                assert!(step["tls_us_per_request"].as_f64().unwrap() > 0.0, "{step}");
            }
        }
    }
    for dialect in ["classic", "meta", "binary"] {
        let options = format!(
            "--tls --tls-ca ca.pem --protocol {dialect} -c 5 -P 4 --load -n 3000 --read-back -k 400 \
             --prefix {dialect}- --value-size 0-3000 --verify --expect-found 1 --json \
             --mix set=0.1,incr=0.2,decr=0.1,append=0.2,prepend=0.1"
        );
        let output = load(&folder, server.port, &options);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{options}: {told}");
        let text = text(&output.stdout);
        let mix: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert!(mix["changed"].as_u64().unwrap() > 1000, "{mix}");
        assert_eq!(mix["changed"], mix["changes"], "{mix}");
    }
    // Without TLS no suite is reported, and a server that has TLS closes the connection.
    let plain = load(&folder, server.port, "-n 5 -c 1 --timeout 200ms");
    assert_eq!(plain.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("TLS"));
}

/// A line of success that is not even shown took the place of the line that says why the next
/// certificate was refused. One that has ended was taken without a word.
#[test]
fn what_is_wrong_with_a_new_certificate_is_in_the_log() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let plain = "-l notls:127.0.0.1";
    let server = serve(&folder, &format!("{} {plain}", CERTIFICATE.join(" ")));
    let mut client = server.connect();
    let mut refresh = || ask(&mut client, "refresh_certs\r\n", "\r\n");
    assert_eq!(refresh(), "OK\r\n");
    std::fs::copy(folder.join("client.key"), folder.join("server.key")).unwrap();
    assert_eq!(refresh(), "Error validating the certificate\r\n");
    wait_for(|| server.stderr(&folder).contains("before stay").then_some(()));
    drop(server);
    let ended = "x509 -req -in client.csr -CA ca.pem -CAkey ca.key -days -1 -out ended.pem";
    let made = run("openssl", &folder, ended);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let ended = "--tls-chain-cert ended.pem --tls-key client.key";
    let server = serve(&folder, &format!("{ended} {plain}"));
    wait_for(|| (server.stderr(&folder).matches("has ended").count() == 1).then_some(()));
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "refresh_certs\r\n", "\r\n"), "OK\r\n");
    wait_for(|| (server.stderr(&folder).matches("has ended").count() == 2).then_some(()));
}

/// A bad certificate or file is reported in one sentence.
#[test]
fn a_bad_certificate_is_one_sentence() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let server = serve(&folder, &CERTIFICATE.join(" "));
    // Each of these options asks for TLS, with --tls or without.
    let go = |args: &str| load(&folder, server.port, &format!("-n 100 -k 100 {args}"));
    for good in [
        "--tls-ca ca.pem",
        "--tls --tls-ca ca.pem --tls-name localhost",
        "--tls-insecure",
    ] {
        let output = go(good);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{good}: {told}");
    }
    for (bad, words) in rows! {
        "--tls-ca other.pem", "no known CA vouches";
        "--tls-ca ca.pem --tls-name cache.example", "for other names";
        "--tls-ca absent.pem", "cannot read absent.pem";
        "--tls-ca server.key", "no certificate in server.key";
        "--tls-ca ca.pem --tls-name a..b", "not a name";
        "--tls-insecure --tls-cipher RC4", "there is no cipher suite RC4";
        "--tls-insecure --tls-cert client.pem --tls-key server.key",
            "server.key belongs to another certificate than client.pem";
        "--tls-insecure --tls-cert client.pem", "there is no private key in client.pem";
    } {
        undone(&go(bad), words);
    }
    let socket = senko("load", &folder, "-s ./a.sock --tls --tls-insecure");
    undone(&socket, "a Unix socket has no TLS");
}

/// A server that asks clients for certificates accepts that of `--tls-cert`, and rejects a client
/// without one.
#[test]
fn a_client_shows_its_certificate() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let mutual = "--tls-ca-cert ca.pem --tls-verify-mode require";
    let server = serve(&folder, &format!("{} {mutual}", CERTIFICATE.join(" ")));
    let own = "--tls --tls-ca ca.pem -k 100 -n 100";
    let go = |args: &str| load(&folder, server.port, &format!("{own} {args}"));
    let shown = go("--tls-cert client.pem --tls-key client.key");
    let told = text(&shown.stderr);
    assert_eq!(shown.status.code(), Some(0), "{told}");
    undone(&go("-c 2"), "wants a client's certificate");
}

/// With a server without TLS, the client does not wait for the handshake forever.
#[test]
fn a_server_without_tls_is_told() {
    let folder = Scratch::new();
    let server = serve(&folder, "");
    let args = "--tls --tls-insecure -n 9 --timeout 2s";
    undone(&load(&folder, server.port, args), "TLS: ");
}

/// The certificate that everybody makes first was refused with words of Rust.
#[test]
fn a_certificate_of_a_ca_is_told_as_one() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let server = serve(&folder, "--tls-chain-cert ca.pem --tls-key ca.key");
    let args = "--tls --tls-ca ca.pem -n 9 --tls-name ca";
    undone(&load(&folder, server.port, args), "is one of a CA");
}

/// A server that stops answers no handshake either. With many connections, each of them was tried
/// for the whole time first.
#[test]
fn a_stopped_server_with_tls_is_given_up() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    let server = serve(&folder, &CERTIFICATE.join(" "));
    let (port, more) = (server.port, "-d 100s -k 100 -c 40 --timeout 1s");
    let line = format!("load -s 127.0.0.1:{port} --tls --tls-insecure {more}");
    let child = start(&folder, line);
    hears_signals(&child);
    signal(server.child.id(), "STOP");
    let ended = child.wait_with_output().unwrap();
    signal(server.child.id(), "CONT");
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(
        told.contains("is gone") || told.contains("cannot connect"),
        "{told}"
    );
}
