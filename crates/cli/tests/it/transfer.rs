// SPDX-License-Identifier: Apache-2.0
//! `senko dump` and `senko restore` from outside: what comes back, and what is said of work that
//! was not done.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use senko_load::transfer::{Head, Peer, Reader, Restored, Sink, TransferError, Writer};

use crate::load_tls::{CERTIFICATE, certificates};
use crate::process::{Running, SENKO, Scratch, ask, have, hears_signals, refused, run, signal};

const DRAM: [&str; 5] = ["-p", "0", "--no-flash", "-m", "128"];
/// An hour.
const SOON: u64 = 3600;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `senko dump` or `restore` with a server.
fn go(command: &str, folder: &Scratch, server: &Running, args: &[&str]) -> Output {
    let address = format!("127.0.0.1:{}", server.port);
    run(SENKO, folder, &[&[command, "-s", &address], args].concat())
}

/// It ended with 0; returns its stdout.
fn done(output: &Output) -> String {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    text(&output.stdout)
}

/// It ended with 1 and one sentence on stderr that has these words. Returns its stdout.
fn undone(output: &Output, words: &str) -> String {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}: {told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(words), "{words}: {told}");
    text(&output.stdout)
}

fn number(stats: &str, name: &str) -> u64 {
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap().trim().parse().unwrap()
}

fn items(server: &Running) -> u64 {
    let stats = ask(&mut server.connect(), "stats\r\n", "END\r\n");
    number(&stats, "curr_items")
}

type Items = BTreeMap<Vec<u8>, (Head, Vec<u8>)>;

fn in_dump(folder: &Scratch, name: &str) -> Items {
    let file = std::fs::File::open(folder.join(name)).unwrap();
    let mut reader = Reader::new(BufReader::new(file)).unwrap();
    let mut all = Items::new();
    while let Some(head) = reader.item().unwrap() {
        let mut value = Vec::new();
        while let Some(part) = reader.value().unwrap() {
            value.extend_from_slice(part);
        }
        all.insert(head.key.clone(), (head, value));
    }
    all
}

/// A dump with these items, which have keys and lengths.
fn write_dump(folder: &Scratch, name: &str, items: &[(&str, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1).unwrap();
    for (number, (key, len)) in (0..).zip(items) {
        let head = Head {
            key: key.as_bytes().to_vec(),
            binary_key: key.contains(' '),
            flags: 5,
            expiry: 0,
            len: *len as u32,
        };
        writer.item(&head).unwrap();
        writer.value(&letters(number, *len)).unwrap();
    }
    writer.finish(2).unwrap();
    std::fs::write(folder.join(name), &bytes).unwrap();
    bytes
}

/// Letters that differ with each number.
fn letters(number: u64, len: usize) -> Vec<u8> {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1);
    let mut next = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        b'0' + (bits & 63) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// 100,000 items on both tiers, with flags, times of expiry and keys in base64: a second dump, of
/// the server that got the first one, has the same.
#[test]
fn all_items_come_back_as_they_were() {
    const ITEMS: u64 = 100_000;
    let folder = Scratch::new();
    let flash = ["-p", "0", "-m", "64", "--flash", "flash:256m", "-t", "2"];
    let server = Running::serve(&folder, &flash);
    let mut stream = server.connect();
    let mut requests = Vec::new();
    for n in 0..ITEMS {
        let value = letters(n, (n % 1500) as usize);
        let (len, flags) = (value.len(), n * 40_503 % 4_294_967_291);
        let ttl = if n % 3 == 0 { 0 } else { SOON + n };
        let line = match n % 100 {
            // A word that was given in base64 is to stay one.
            0 | 1 => {
                let key = format!("{}{n}", if n % 2 == 0 { " \n" } else { "word" });
                format!("ms {} {len} b q F{flags} T{ttl}\r\n", base64(&key))
            }
            _ => format!("set {}key{n} {flags} {ttl} {len} noreply\r\n", n % 7),
        };
        requests.extend_from_slice(line.as_bytes());
        requests.extend_from_slice(&value);
        requests.extend_from_slice(b"\r\n");
    }
    requests.extend_from_slice(b"mn\r\n");
    stream.write_all(&requests).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MN\r\n");
    let stats = ask(&mut stream, "stats\r\n", "END\r\n");
    assert_eq!(number(&stats, "curr_items"), ITEMS);
    assert!(number(&stats, "flash_items") > 1000, "{stats}");

    let out = done(&go("dump", &folder, &server, &["--to", "first", "--json"]));
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&line["gone"], &line["stale"]), (&0.into(), &0.into()));
    let first = in_dump(&folder, "first");
    assert_eq!(first.len() as u64, ITEMS);
    let binary = first.values().filter(|(head, _)| head.binary_key).count();
    assert_eq!(binary as u64, ITEMS / 50);
    assert_eq!(first[&b"2key2"[..]].1, letters(2, 2));
    assert_eq!(first[&b"2key2"[..]].0.flags, 2 * 40_503);
    // It was only looked at.
    let stats = ask(&mut stream, "stats\r\n", "END\r\n");
    assert_eq!(number(&stats, "curr_items"), ITEMS);

    let other = Running::serve(&folder, &["-p", "0", "--no-flash", "-m", "512"]);
    let out = done(&go("restore", &folder, &other, &["first"]));
    assert!(out.starts_with("100000 items stored, "), "{out}");
    done(&go("dump", &folder, &other, &["--to", "second"]));
    let second = in_dump(&folder, "second");
    for (key, one) in &first {
        let (head, value) = &second[key];
        assert!(head == &one.0 && value == &one.1, "{:?} {head:?}", one.0);
    }
    assert_eq!(second.len(), first.len());

    // A part, through a pipe.
    let out = go("dump", &folder, &server, &["--prefix", "3key"]);
    let told = text(&out.stderr);
    assert!(told.contains("items dumped"), "{told}");
    std::fs::write(folder.join("part"), &out.stdout).unwrap();
    let part = in_dump(&folder, "part");
    let wanted = first.keys().filter(|key| key.starts_with(b"3key")).count();
    assert!(part.len() == wanted && wanted > 10_000, "{wanted}");
    ask(&mut other.connect(), "flush_all\r\n", "OK\r\n");
    let args = ["--prefix", "3key1", "part", "--json"];
    let line = done(&go("restore", &folder, &other, &args));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let wanted = first.keys().filter(|key| key.starts_with(b"3key1")).count();
    assert_eq!(line["items"], wanted);
    assert_eq!(line["others"], part.len() - wanted);
    assert_eq!(line["whole"], true);
}

fn base64(text: &str) -> String {
    let digits: Vec<char> = ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain(['+', '/'])
        .collect();
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk
            .iter()
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for nth in 0..4 {
            let digit = digits[bits >> (18 - 6 * nth) & 63];
            out.push(if nth <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

/// A dump never reads what a client has declared stale, and leaves it for the next client to win.
#[test]
fn stale_items_are_left_out_and_left_alone() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let mut stream = server.connect();
    for (request, answer) in [
        ("set good 0 0 1\r\na\r\n", "STORED\r\n"),
        ("set stale 0 0 1\r\nb\r\n", "STORED\r\n"),
        ("md stale I T3000\r\n", "HD\r\n"),
        ("mg vacant N3000 v\r\n", "VA 0 W\r\n\r\n"),
    ] {
        assert_eq!(ask(&mut stream, request, answer), answer);
    }
    let out = done(&go("dump", &folder, &server, &["--to", "dump"]));
    assert!(out.starts_with("1 item dumped, "), "{out}");
    assert!(out.contains("; 2 stale and left out"), "{out}");
    assert_eq!(in_dump(&folder, "dump").len(), 1);
    // Nor does it count as a use of the item.
    assert_eq!(ask(&mut stream, "mg good h\r\n", "\r\n"), "HD h0\r\n");
    assert_eq!(
        ask(&mut stream, "mg stale v\r\n", "b\r\n"),
        "VA 1 X W\r\nb\r\n"
    );
    assert_eq!(
        ask(&mut stream, "mg stale v\r\n", "b\r\n"),
        "VA 1 Z X\r\nb\r\n"
    );
}

/// Over batches that are asked for ahead, and with a rate that makes the dump sleep between them:
/// there the answers to what is given back come in another order.
#[test]
fn stale_items_of_many_batches_are_left_alone() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let mut stream = server.connect();
    for n in 0..1200 {
        let set = format!("set k{n} 0 0 1\r\na\r\n");
        assert_eq!(ask(&mut stream, &set, "STORED\r\n"), "STORED\r\n");
        if n % 10 == 0 {
            let stale = format!("md k{n} I T3000\r\n");
            assert_eq!(ask(&mut stream, &stale, "HD\r\n"), "HD\r\n");
        }
    }
    for (name, options) in [("fast", &[][..]), ("slow", &["--rate", "10k/s"])] {
        let args = [&["--to", name], options].concat();
        let out = done(&go("dump", &folder, &server, &args));
        assert!(out.contains("; 120 stale and left out"), "{out}");
        assert_eq!(in_dump(&folder, name).len(), 1080);
    }
    for n in (0..1200).step_by(10) {
        let get = format!("mg k{n} v\r\n");
        assert_eq!(ask(&mut stream, &get, "a\r\n"), "VA 1 X W\r\na\r\n");
    }
}

/// What the server has stays with `--keep`; what expired, and what it refuses, is counted.
#[test]
fn what_is_not_stored_is_said() {
    let folder = Scratch::new();
    let small = ["-p", "0", "--no-flash", "-m", "64", "-I", "8k"];
    let server = Running::serve(&folder, &small);
    let mut stream = server.connect();
    ask(&mut stream, "set here 9 0 3\r\nnew\r\n", "STORED\r\n");
    ask(&mut stream, "ms aGVyZSAy 3 b\r\nnew\r\n", "HD\r\n");
    write_dump(&folder, "dump", &[("here", 3), ("here 2", 3), ("there", 4)]);
    let out = done(&go("restore", &folder, &server, &["--keep", "dump"]));
    assert!(out.contains("1 item stored"), "{out}");
    assert!(out.contains("; 2 kept as the server has them"), "{out}");
    let found = ask(&mut stream, "get here\r\n", "END\r\n");
    assert_eq!(found, "VALUE here 9 3\r\nnew\r\nEND\r\n");
    assert_eq!(
        ask(&mut stream, "mg aGVyZSAy b v\r\n", "new\r\n"),
        "VA 3\r\nnew\r\n"
    );
    let out = done(&go("restore", &folder, &server, &["dump"]));
    assert!(out.contains("3 items stored"), "{out}");
    let found = ask(&mut stream, "get here\r\n", "END\r\n");
    assert!(found.starts_with("VALUE here 5 3"), "{found}");

    let large = [
        ("a", 100),
        ("large", 300_000),
        ("b", 100),
        ("large 2", 9000),
    ];
    write_dump(&folder, "dump", &large);
    let out = undone(
        &go("restore", &folder, &server, &["dump"]),
        "2 items were not stored: SERVER_ERROR object too large for cache",
    );
    assert!(
        out.contains("2 items stored") && out.contains("; 2 refused"),
        "{out}"
    );
    assert!(ask(&mut stream, "get b\r\n", "END\r\n").starts_with("VALUE b 5 100"));

    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1).unwrap();
    let head = Head {
        key: b"past".to_vec(),
        binary_key: false,
        flags: 0,
        expiry: 1_600_000_000,
        len: 0,
    };
    writer.item(&head).unwrap();
    // memcached may be built with flags of 64 bits.
    let wide = Head {
        key: b"wide x".to_vec(),
        binary_key: true,
        flags: 1 << 40,
        expiry: 0,
        len: 0,
    };
    writer.item(&wide).unwrap();
    writer.finish(2).unwrap();
    std::fs::write(folder.join("dump"), &bytes).unwrap();
    let out = undone(
        &go("restore", &folder, &server, &["dump"]),
        "1 item was not stored: CLIENT_ERROR bad command line format",
    );
    assert!(
        out.contains("0 items stored") && out.contains("; 1 expired since the dump"),
        "{out}"
    );
}

/// Wherever a dump is cut off, the items before are stored, and it is not taken for whole.
#[test]
fn a_dump_that_is_not_whole_is_never_taken_for_one() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let peer = Peer {
        target: format!("127.0.0.1:{}", server.port).parse().unwrap(),
        tls: None,
        login: None,
        timeout: Duration::from_secs(300),
    };
    let stop = AtomicBool::new(false);
    let mut stream = server.connect();
    let small = write_dump(&folder, "small", &[("a", 10), ("b c", 20), ("d", 30)]);
    for cut in 32..small.len() {
        ask(&mut stream, "flush_all\r\n", "OK\r\n");
        let mut restored = Restored::default();
        let sink = Sink::connect(&peer, &stop).unwrap();
        let reader = Reader::new(&small[..cut]).unwrap();
        let ended = sink.restore(reader, b"", false, &mut restored, &mut |_| {});
        assert!(
            matches!(ended, Err(TransferError::Damaged(_))),
            "{cut}: {ended:?}"
        );
        let found = ask(&mut stream, "get a d\r\n", "END\r\n")
            .matches("VALUE")
            .count();
        let whole = cut >= small.len() - 40;
        assert_eq!(
            (restored.items, found),
            if whole { (3, 2) } else { (0, 0) },
            "{cut}"
        );
    }

    let keys: Vec<String> = (0..3000).map(|n| format!("key{n}")).collect();
    let many: Vec<(&str, usize)> = keys.iter().map(|key| (&key[..], 1000)).collect();
    let bytes = write_dump(&folder, "whole", &many);
    let out = done(&run(SENKO, &folder, &["restore", "--check", "whole"]));
    assert!(out.starts_with("a whole dump: 3000 items, "), "{out}");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for (name, bytes, words) in [
        ("flipped", &flipped[..], "the dump is damaged in block"),
        (
            "cut",
            &bytes[..bytes.len() / 2],
            "the dump is not whole: it is cut off in block",
        ),
        ("early", &bytes[..20], "cut off in its head"),
        ("empty", &[][..], "nothing was read"),
        (
            "other",
            b"key,value\ncolour,green\n",
            "it is not a dump of senko",
        ),
        ("longer", &[&bytes[..], b"\n"].concat(), "behind the end"),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
        let told = refused(SENKO, &folder, &["restore", "--check", name]);
        assert!(told.contains(words) && told.contains(name), "{told}");
        ask(&mut stream, "flush_all\r\n", "OK\r\n");
        let out = undone(&go("restore", &folder, &server, &[name]), words);
        let stored: usize = out.split(' ').next().unwrap().parse().unwrap();
        // An item was counted whose value was cut off.
        let before = format!(", after {stored} items");
        assert!(name != "cut" || told.ends_with(&before), "{told}");
        let request = format!("get {}\r\n", keys.join(" "));
        let found = ask(&mut stream, &request, "END\r\n");
        assert_eq!(found.matches("VALUE").count(), stored, "{name}: {out}");
        match name {
            "flipped" | "cut" => assert!(stored > 500 && stored < 2500, "{name}: {out}"),
            "longer" => assert_eq!(stored, 3000),
            _ => assert_eq!(stored, 0),
        }
        // Through a pipe as well.
        let piped = format!("senko restore -s 127.0.0.1:{} < {name}", server.port);
        let piped = Command::new("sh")
            .args(["-c", &piped.replacen("senko", SENKO, 1)])
            .current_dir(folder.path())
            .output()
            .unwrap();
        undone(&piped, words);
    }
    let told = refused(SENKO, &folder, &["restore", "--check", "absent"]);
    assert!(told.contains("cannot read absent"), "{told}");
}

/// A dump that fails leaves no file, and says why.
#[test]
fn a_dump_that_fails_leaves_nothing() {
    let folder = Scratch::new();
    let mut server = Running::serve(&folder, &DRAM);
    let mut stream = server.connect();
    for n in 0..64 {
        let value = letters(n, 500_000);
        stream
            .write_all(format!("set key{n} 0 0 {} noreply\r\n", value.len()).as_bytes())
            .unwrap();
        stream.write_all(&value).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    assert_eq!(ask(&mut stream, "mn\r\n", "\r\n"), "MN\r\n");
    let address = format!("127.0.0.1:{}", server.port);
    let shell = |line: &str| {
        Command::new("sh")
            .args(["-c", line])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    // As on a full disk.
    let full = shell(&format!("{SENKO} dump -s {address} > /dev/full"));
    undone(&full, "cannot write to stdout: No space left on device");
    let long = shell(&format!(
        "ulimit -f 1000; exec {SENKO} dump -s {address} --to new"
    ));
    undone(&long, "cannot write new: File too large");
    let left = || {
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| text(entry.unwrap().file_name().as_encoded_bytes()));
        names.filter(|name| name.starts_with("new")).count()
    };
    assert_eq!(left(), 0);
    std::fs::write(folder.join("mine"), "mine").unwrap();
    undone(
        &go("dump", &folder, &server, &["--to", "mine"]),
        "mine exists already",
    );
    assert_eq!(std::fs::read(folder.join("mine")).unwrap(), b"mine");
    // A reader that leaves, as head does.
    let left_early = shell(&format!(
        "{SENKO} dump -s {address} | head -c 9 > /dev/null; exit 0"
    ));
    assert!(left_early.stderr.is_empty(), "{}", text(&left_early.stderr));

    // A dump into a pipe that nobody reads stops in the middle; then the server dies.
    let mut child = Command::new(SENKO)
        .args(["dump", "-s", &address])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut some = [0; 40];
    out.read_exact(&mut some).unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut bytes = some.to_vec();
    out.read_to_end(&mut bytes).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(
        told.contains("is gone") && told.lines().count() == 1,
        "{told}"
    );
    std::fs::write(folder.join("half"), &bytes).unwrap();
    let told = refused(SENKO, &folder, &["restore", "--check", "half"]);
    assert!(told.contains("the dump is not whole"), "{told}");
    let never = run(SENKO, &folder, &["dump", "-s", &address, "--to", "new"]);
    // Its port may take a connection for a moment.
    undone(&never, &address);
    assert_eq!(left(), 0);
}

/// No more than the rate is read or stored: both take two seconds at least.
#[test]
fn a_dump_and_a_restore_keep_their_rate() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let many: Vec<String> = (0..2100).map(|n| format!("key{n}")).collect();
    let many: Vec<(&str, usize)> = many.iter().map(|key| (&key[..], 1000)).collect();
    write_dump(&folder, "dump", &many);
    let rate = ["--rate", "1m/s"];
    let began = std::time::Instant::now();
    done(&go(
        "restore",
        &folder,
        &server,
        &[&rate[..], &["dump"]].concat(),
    ));
    assert!(began.elapsed().as_secs_f64() > 1.9);
    let began = std::time::Instant::now();
    done(&go(
        "dump",
        &folder,
        &server,
        &[&rate[..], &["--to", "again"]].concat(),
    ));
    assert!(began.elapsed().as_secs_f64() > 1.9);
    assert_eq!(in_dump(&folder, "again").len(), 2100);
    let wrong = run(SENKO, &folder, &["dump", "--rate", "5"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("is not a rate of a byte a second or more"));
}

/// A signal ends a restore that waits for its input, with what was done.
#[test]
fn a_signal_prints_what_was_restored() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let many: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
    let many: Vec<(&str, usize)> = many.iter().map(|key| (&key[..], 1000)).collect();
    let bytes = write_dump(&folder, "dump", &many);
    let mut child = Command::new(SENKO)
        .args(["restore", "-s", &format!("127.0.0.1:{}", server.port)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes[..600_000]).unwrap();
    crate::process::wait_for(|| (items(&server) > 100).then_some(()));
    hears_signals(&child);
    signal(child.id(), "INT");
    let ended = child.wait_with_output().unwrap();
    drop(input);
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    // What was sent last may have had no answer in time.
    let stored: u64 = text(&ended.stdout)
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let found = items(&server);
    assert!(
        stored > 0 && stored <= found && found <= stored + 64,
        "{stored} {found}"
    );
}

/// TLS and passwords are given as to `senko load`.
#[test]
fn servers_with_tls_and_passwords_are_dumped_and_restored() {
    if !have("openssl") {
        return;
    }
    let folder = certificates();
    std::fs::write(folder.join("users"), "bob:secret7\n").unwrap();
    std::fs::write(folder.join("password"), "secret7\n").unwrap();
    let options = [&DRAM[..], &CERTIFICATE, &["--auth-file", "users"]].concat();
    let server = Running::serve(&folder, &options);
    let tls = ["--tls", "--tls-ca", "ca.pem"];
    let user = ["--user", "bob", "--password-file", "password"];
    let all = [&tls[..], &user].concat();
    let items = [("a", 10), ("b", 300_000), ("c d", 0)];
    write_dump(&folder, "dump", &items);
    let out = done(&go(
        "restore",
        &folder,
        &server,
        &[&all[..], &["dump"]].concat(),
    ));
    assert!(out.starts_with("3 items stored"), "{out}");
    done(&go(
        "dump",
        &folder,
        &server,
        &[&all[..], &["--to", "again"]].concat(),
    ));
    assert_eq!(in_dump(&folder, "again"), in_dump(&folder, "dump"));
    let wants = "it wants a user (--user, --password-file)";
    undone(
        &go(
            "dump",
            &folder,
            &server,
            &[&tls[..], &["--to", "new"]].concat(),
        ),
        wants,
    );
    let out = go("restore", &folder, &server, &[&tls[..], &["dump"]].concat());
    assert!(undone(&out, wants).is_empty());
    let args = [&tls[..], &["--user", "bob", "--password", "x", "dump"]].concat();
    undone(
        &go("restore", &folder, &server, &args),
        "refuses the user bob",
    );
    let args = ["--timeout", "1s", "--to", "new"];
    let plain = go("dump", &folder, &server, &args);
    assert_eq!(plain.status.code(), Some(1));
    assert!(!folder.join("new").exists());
}
