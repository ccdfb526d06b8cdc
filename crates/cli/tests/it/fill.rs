// SPDX-License-Identifier: Apache-2.0
//! A server is filled from another, from outside: all items of the peer are found, what clients do
//! meanwhile holds, and failures are said.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::ctl::{ctl, status};
use crate::load_tls::{CERTIFICATE, certificates};
use crate::process::{Running, Scratch, ask, have, text, user_args, wait_for};

const DRAM: [&str; 5] = ["-p", "0", "--no-flash", "-m", "64"];
const CTL: [&str; 2] = ["--ctl", "ctl"];

/// Waits until a fill is over; returns the state.
fn over(folder: &Scratch) -> serde_json::Value {
    wait_for(|| Some(status(folder)).filter(|now| now["fill"] != "running"))
}

fn fill(folder: &Scratch, peer: &str, args: &[&str]) -> Output {
    ctl(folder, &[&["fill", peer], args].concat())
}

fn address(server: &Running) -> String {
    format!("127.0.0.1:{}", server.port)
}

/// Stores items with flags; each third one with an hour to live.
fn store(stream: &mut impl Write, from: u64, to: u64, len: usize) {
    let mut requests = Vec::new();
    for n in from..to {
        let ttl = if n % 3 == 0 { 3600 } else { 0 };
        let line = format!("set key{n} {n} {ttl} {len} noreply\r\n");
        requests.extend_from_slice(line.as_bytes());
        let letter = b'a' + (n % 26) as u8;
        requests.extend(std::iter::repeat_n(letter, len));
        requests.extend_from_slice(b"\r\n");
    }
    stream.write_all(&requests).unwrap();
}

/// Reads those items; returns how many are there.
fn found(server: &Running, from: u64, to: u64, len: usize) -> u64 {
    let mut stream = server.connect();
    let mut found = 0;
    for n in from..to {
        let answer = ask(&mut stream, &format!("mg key{n} f t s\r\n"), "\r\n");
        if answer == "EN\r\n" {
            continue;
        }
        found += 1;
        let words: Vec<&str> = answer.split_whitespace().collect();
        assert_eq!(
            (words[1], words[3]),
            (&*format!("f{n}"), &*format!("s{len}"))
        );
        let ttl: i64 = words[2][1..].parse().unwrap();
        assert_eq!(ttl > 3000 && ttl <= 3600, n % 3 == 0, "{answer}");
        assert!(ttl > 3000 || ttl == -1, "{answer}");
    }
    found
}

fn number(stats: &str, name: &str) -> u64 {
    let start = format!("STAT {name} ");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap().trim().parse().unwrap()
}

fn items(stream: &mut TcpStream) -> u64 {
    number(&ask(stream, "stats\r\n", "END\r\n"), "curr_items")
}

/// All items of a senko with both tiers come, with flags and times of expiry, also one above 64 KiB
/// and one with a key in base64. Keys that a client has changed here meanwhile stay as they are.
#[test]
fn all_items_of_a_senko_come() {
    const ITEMS: u64 = 40_000;
    let (source, folder) = (Scratch::new(), Scratch::new());
    let flash = ["-p", "0", "-m", "48", "--flash", "flash:256m", "-t", "2"];
    let peer = Running::serve(&source, &flash);
    let mut stream = peer.connect();
    store(&mut stream, 0, ITEMS, 1000);
    let large = "x".repeat(300_000);
    ask(
        &mut stream,
        &format!("set large 0 0 300000\r\n{large}\r\n"),
        "STORED\r\n",
    );
    ask(&mut stream, "ms AP8g 2 b\r\nhi\r\n", "HD\r\n");
    assert!(items(&mut stream) == ITEMS + 2);
    let server = Running::serve(&folder, &[&flash[..], &CTL].concat());
    assert_eq!(status(&folder)["fill"], "none");
    let mut own = server.connect();
    // It is here, so the peer's is left out.
    ask(&mut own, "set key1 5 0 2\r\nme\r\n", "STORED\r\n");
    // Slow enough that clients come between.
    let output = fill(&folder, &address(&peer), &["--rate", "8m/s", "--json"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        said.contains("has begun") && said.contains(r#""request":"fill "#),
        "{said}"
    );
    let second = fill(&folder, &address(&peer), &[]);
    assert!(
        text(&second.stderr).contains("runs already"),
        "{}",
        text(&second.stderr)
    );
    // These are acknowledged after the fill began.
    ask(&mut own, "delete key39999\r\nmn\r\n", "MN\r\n");
    ask(&mut own, "delete key0\r\nmn\r\n", "MN\r\n");
    let end = over(&folder);
    assert_eq!(
        (&end["fill"], &end["fill-refused"]),
        (&"done".into(), &0.into()),
        "{end}"
    );
    assert_eq!(end["fill-of"], ITEMS + 2);
    assert!(end["fill-listed"].as_u64().unwrap() >= ITEMS + 2, "{end}");
    ask(&mut own, "get key39999 key0\r\n", "END\r\n");
    ask(&mut own, "get key1\r\n", "VALUE key1 5 2\r\nme\r\nEND\r\n");
    assert_eq!(found(&server, 2, ITEMS - 1, 1000), ITEMS - 3);
    let answer = ask(&mut own, "get large\r\n", "\r\nEND\r\n");
    assert_eq!(
        answer.len(),
        "VALUE large 0 300000\r\n\r\nEND\r\n".len() + 300_000
    );
    ask(&mut own, "mg AP8g b v\r\n", "VA 2\r\nhi\r\n");
}

/// A fill that is begun again reads no value of a key that is here.
#[test]
fn a_fill_that_is_begun_again_reads_what_is_missing() {
    const ITEMS: u64 = 20_000;
    let (source, folder) = (Scratch::new(), Scratch::new());
    let peer = Running::serve(&source, &DRAM);
    let mut stream = peer.connect();
    store(&mut stream, 0, ITEMS, 1000);
    ask(&mut stream, "mn\r\n", "MN\r\n");
    let gets = |stream: &mut TcpStream| {
        let stats = ask(stream, "stats\r\n", "END\r\n");
        number(&stats, "get_hits")
    };
    let server = Running::serve(&folder, &[&DRAM[..], &CTL].concat());
    assert!(
        fill(&folder, &address(&peer), &["--rate", "4m/s"])
            .status
            .success()
    );
    wait_for(|| (status(&folder)["fill-items"].as_u64().unwrap() > 2000).then_some(()));
    assert!(fill(&folder, "stop", &[]).status.success());
    // Its thread may still end.
    wait_for(|| {
        fill(&folder, &address(&peer), &["--rate", "1g/s"])
            .status
            .success()
            .then_some(())
    });
    let end = over(&folder);
    assert_eq!(end["fill"], "done", "{end}");
    assert!(end["fill-kept"].as_u64().unwrap() > 2000, "{end}");
    assert_eq!(found(&server, 0, ITEMS, 1000), ITEMS);
    // One batch of 512 may come without a question, and one was on its way at the end. What
    // was stored just before the fill is listed twice.
    let read = gets(&mut stream);
    assert!((ITEMS..ITEMS + 3 * 512).contains(&read), "{read}");
}

/// A cache that comes back with items is not filled at its start: the peer may have what was
/// deleted here before.
#[test]
fn a_cache_that_came_back_is_not_filled_at_its_start() {
    let folder = Scratch::new();
    let kept = ["--data-dir", "data", "--keep-dram"];
    let from = ["--fill-from", "127.0.0.1:1"];
    let all = [&DRAM[..], &CTL, &kept, &from].concat();
    let server = Running::serve(&folder, &all);
    assert_eq!(over(&folder)["fill"], "failed");
    ask(&mut server.connect(), "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert!(server.stop().0.success());
    let server = Running::serve(&folder, &all);
    assert_eq!(status(&folder)["fill"], "none");
    let said = server.stderr(&folder);
    assert!(
        said.contains("is left out: the cache came back with 1 item;"),
        "{said}"
    );
}

/// One moves from a memcached by filling the new server from it.
#[test]
fn all_items_of_a_memcached_come() {
    const ITEMS: u64 = 20_000;
    if !have("memcached") {
        return;
    }
    let folder = Scratch::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let (listen, number) = ("127.0.0.1", port.to_string());
    let mut child = Command::new("memcached")
        .args(["-l", listen, "-p", &number, "-U", "0", "-m", "128"])
        .args(user_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = wait_for(|| TcpStream::connect((listen, port)).ok());
    store(&mut stream, 0, ITEMS, 500);
    ask(&mut stream, "mn\r\n", "MN\r\n");
    let peer = format!("{listen}:{port}");
    let from = ["--fill-from", &peer, "--fill-rate", "1g/s"];
    let server = Running::serve(&folder, &[&DRAM[..], &CTL, &from].concat());
    let end = over(&folder);
    assert_eq!(
        (&end["fill"], &end["fill-items"]),
        (&"done".into(), &ITEMS.into()),
        "{end}"
    );
    assert_eq!(found(&server, 0, ITEMS, 500), ITEMS);
    child.kill().unwrap();
    child.wait().unwrap();
    // It is gone: one sentence, and the server serves on.
    assert!(fill(&folder, &peer, &[]).status.success());
    let end = over(&folder);
    assert_eq!(end["fill"], "failed");
    assert!(
        end["fill-why"]
            .as_str()
            .unwrap()
            .contains("cannot connect to"),
        "{end}"
    );
    assert_eq!(found(&server, 0, 10, 500), 10);
    let said = server.stderr(&folder);
    assert!(
        said.contains("failed: ") && said.contains("; the server serves on"),
        "{said}"
    );
}

/// No more than the rate comes. If the peer is killed meanwhile, or answers nonsense, the fill has
/// failed, and what has come stays.
#[test]
fn a_peer_that_dies_ends_its_fill_and_nothing_else() {
    const RATE: u64 = 1 << 20;
    /// Items are asked for, and the time is looked at, a mebibyte at a time.
    const BATCH: u64 = 2 << 20;
    let (source, folder) = (Scratch::new(), Scratch::new());
    let mut peer = Running::serve(&source, &DRAM);
    let mut stream = peer.connect();
    store(&mut stream, 0, 20_000, 1000);
    ask(&mut stream, "mn\r\n", "MN\r\n");
    let server = Running::serve(&folder, &[&DRAM[..], &CTL].concat());
    let began = Instant::now();
    assert!(
        fill(&folder, &address(&peer), &["--rate", "1m/s"])
            .status
            .success()
    );
    let bytes = wait_for(|| {
        let now = status(&folder);
        assert_eq!(now["fill"], "running", "{now}");
        now["fill-bytes"].as_u64().filter(|bytes| *bytes > 3 << 20)
    });
    let most = (began.elapsed().as_secs_f64() * RATE as f64) as u64 + BATCH;
    assert!(bytes <= most, "{bytes} of {most}");
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    let end = over(&folder);
    assert_eq!(end["fill"], "failed", "{end}");
    assert!(
        end["fill-why"].as_str().unwrap().contains(" is gone: "),
        "{end}"
    );
    let mut own = server.connect();
    assert_eq!(items(&mut own), end["fill-items"].as_u64().unwrap());

    for nonsense in [
        "\0\u{1}\u{2}\r\n",
        "key=\r\n",
        "VA 99999999999 f0\r\n",
        "STAT\r\nEND\r\n",
    ] {
        let liar = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = liar.local_addr().unwrap().to_string();
        let answers = std::thread::spawn(move || {
            while let Ok((mut client, _)) = liar.accept() {
                let mut request = [0; 4096];
                while client.read(&mut request).is_ok_and(|got| got > 0) {
                    if client.write_all(nonsense.as_bytes()).is_err() {
                        break;
                    }
                }
                if request.starts_with(b"over") {
                    return;
                }
            }
        });
        assert!(fill(&folder, &name, &[]).status.success());
        let end = over(&folder);
        assert_eq!(end["fill"], "failed", "{nonsense:?}: {end}");
        TcpStream::connect(&name)
            .unwrap()
            .write_all(b"over")
            .unwrap();
        answers.join().unwrap();
    }
    assert_eq!(found(&server, 0, 20_000, 1000), items(&mut own));
}

/// A wrong password, a wrong certificate, a peer that is the server itself, and words that are no
/// peer, are told apart in one sentence.
#[test]
fn a_fill_that_cannot_be_is_refused_in_one_sentence() {
    if !have("openssl") {
        return;
    }
    let (source, folder) = (certificates(), Scratch::new());
    std::fs::write(source.join("users"), "bob:secret7\n").unwrap();
    std::fs::write(source.join("right"), "secret7\n").unwrap();
    std::fs::write(source.join("wrong"), "secret8\n").unwrap();
    let guarded = [&DRAM[..], &CERTIFICATE, &["--auth-file", "users"]].concat();
    let peer = Running::serve(&source, &guarded);
    let ca = source.join("ca.pem").display().to_string();
    let (right, wrong) = (source.join("right"), source.join("wrong"));
    let (right, wrong) = (right.display().to_string(), wrong.display().to_string());
    let from = ["--fill-from", &address(&peer), "--fill-user", "bob"];
    let with = ["--fill-password-file", &right, "--fill-tls-ca", &ca];
    // The peer has no item, so that this one is at its end at once.
    let server = Running::serve(&folder, &[&DRAM[..], &CTL, &from, &with].concat());
    assert_eq!(over(&folder)["fill"], "done");
    let fails = |peer: &str, args: &[&str], words: &str| {
        let output = fill(&folder, peer, args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let end = over(&folder);
        assert_eq!(end["fill"], "failed", "{end}");
        let why = end["fill-why"].as_str().unwrap();
        assert!(
            why.contains(words) && !why.contains("secret8"),
            "{words}: {why}"
        );
    };
    fails(&address(&server), &[], "is this server itself");
    fails("127.0.0.1:1", &[], "cannot connect to 127.0.0.1:1");
    let peer = address(&peer);
    fails(&peer, &[], "closed the connection");
    fails(&peer, &["--tls"], "cannot connect to");
    let tls = ["--tls", "--tls-ca", &ca];
    fails(&peer, &tls, "it wants a user (--user, --password-file)");
    let user = ["--user", "bob", "--password-file", &wrong];
    fails(&peer, &[&tls[..], &user].concat(), "authentication failure");
    let undone = fill(&folder, "some/path", &[]);
    assert!(text(&undone.stderr).contains("is no peer to fill from"));
    let undone = fill(&folder, "stop", &[]);
    assert!(text(&undone.stderr).contains("no fill runs"));
    ask(&mut server.connect(), "set a 0 0 1\r\nx\r\n", "STORED\r\n");
}
