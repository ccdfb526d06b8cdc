// SPDX-License-Identifier: Apache-2.0
//! `senko ctl` from outside: what it says, and what the server does.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};

use crate::process::{
    Running, SENKO, Scratch, ask, connect, have, refused, run, start, text, undone, wait_for,
};

const DRAM: [&str; 7] = ["-p", "0", "--no-flash", "-m", "64", "--ctl", "ctl"];

pub fn ctl(folder: &Scratch, args: &[&str]) -> Output {
    run(SENKO, folder, &[&["ctl", "--socket", "ctl"], args].concat())
}

/// It ended with 0 and said nothing on stderr; returns its stdout.
fn done(output: &Output) -> String {
    let told = text(&output.stderr);
    assert_eq!((output.status.code(), &told[..]), (Some(0), ""));
    text(&output.stdout)
}

pub fn status(folder: &Scratch) -> serde_json::Value {
    let out = done(&ctl(folder, &["status", "--json"]));
    serde_json::from_str(&out).unwrap()
}

/// `senko ctl drain` while it waits.
fn draining(folder: &Scratch, within: &str) -> Child {
    start(folder, format!("ctl --socket ctl drain --within {within}"))
}

/// Waits until the server drains and turns newcomers away. A newcomer that comes before that would
/// be one of the clients that the drain waits for.
fn turned_away(server: &Running, folder: &Scratch) {
    wait_for(|| (status(folder)["state"] == "draining").then_some(()));
    wait_for(|| {
        let mut stream = connect(server.port);
        // It may be closed before the request has come.
        let sent = stream.write_all(b"mn\r\n");
        let mut answer = [0; 4];
        let read = stream.read(&mut answer);
        (sent.is_err() || !matches!(read, Ok(1..))).then_some(())
    });
}

/// The server ended by itself, as after SIGTERM.
fn ended(server: &mut Running) {
    let status = wait_for(|| server.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_server_says_its_state_and_changes_options() {
    let folder = Scratch::new();
    let flash = ["-p", "0", "-m", "64", "--flash", "flash:64m", "-t", "2"];
    let more = ["--ctl", "ctl", "--flash-write-budget", "10m/s"];
    let server = Running::serve(&folder, &[&flash[..], &more].concat());
    let mode = folder.join("ctl").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = server.connect();
    ask(&mut stream, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    ask(&mut stream, "get a b\r\n", "END\r\n");
    // Workers publish what they count about ten times a second.
    let now = wait_for(|| Some(status(&folder)).filter(|now| now["gets"] == 2));
    assert_eq!(
        (&now["state"], &now["get-hits"]),
        (&"serving".into(), &1.into())
    );
    assert_eq!(
        (&now["connections"], &now["threads"]),
        (&1.into(), &2.into())
    );
    assert_eq!(now["pid"], server.child.id());
    assert_eq!(now["memory"], 64 << 20);
    assert_eq!(now["flash-write-budget"], 10 << 20);
    assert_eq!(now["flash-device"], serde_json::json!(["up flash"]));
    let table = done(&ctl(&folder, &["status"]));
    assert!(
        table
            .lines()
            .any(|line| line.split_whitespace().eq(["state", "serving"])),
        "{table}"
    );

    let set = |option: &str, value: &str| ctl(&folder, &["set", option, value]);
    assert_eq!(done(&set("verbosity", "2")), "verbosity is 2; it was 0\n");
    let settings = ask(&mut stream, "stats settings\r\n", "END\r\n");
    assert!(settings.contains("STAT verbosity 2\r\n"), "{settings}");
    let wanted = now["item-memory"].as_u64().unwrap() / 2;
    let out = done(&set("item-memory", &wanted.to_string()));
    assert!(
        out.starts_with(&format!("items in DRAM have {wanted} bytes")),
        "{out}"
    );
    let near = |bytes: u64| bytes.abs_diff(wanted) < 1 << 20;
    wait_for(|| near(status(&folder)["item-memory"].as_u64().unwrap()).then_some(()));
    undone(
        &set("item-memory", "1t"),
        "bytes in this server, not 1099511627776",
    );
    undone(&set("item-memory", "much"), "item-memory: ");
    undone(&set("verbosity", "4"), "verbosity is 0 to 3, not 4");
    undone(
        &set("verbosity", "x1"),
        "verbosity takes a whole number, not x1",
    );
    let wrong = set("threads", "4");
    assert_eq!(wrong.status.code(), Some(2));
    let told = text(&wrong.stderr);
    assert!(
        told.contains("item-memory") && told.contains("promote-after"),
        "{told}"
    );
    // Who asks the socket in other words is told, too.
    let mut socket = UnixStream::connect(folder.join("ctl")).unwrap();
    socket.write_all(b"set threads 4\n").unwrap();
    let mut told = String::new();
    socket.read_to_string(&mut told).unwrap();
    assert!(
        told.starts_with("no threads does not change while the server runs: verbosity, "),
        "{told}"
    );
    undone(&set("verbosity", "1 2"), "VALUE is one word");
    assert_eq!(status(&folder)["verbosity"], 2);
    let (status, _) = server.stop();
    assert!(status.success() && !folder.join("ctl").exists());
}

/// `top` counts what happens in each interval, and draws it again where stdout is a terminal.
#[test]
fn a_server_is_watched() {
    let folder = Scratch::new();
    let flash = [
        "-p",
        "0",
        "-m",
        "64",
        "--flash",
        "flash:64m",
        "--hot-keys",
        "1",
    ];
    let server = Running::serve(&folder, &[&flash[..], &["--ctl", "ctl"]].concat());
    let mut stream = server.connect();
    ask(&mut stream, "set hot\x1b[1m 0 0 1\r\nx\r\n", "STORED\r\n");
    let top = |more: &[&str]| ctl(&folder, &[&["top"], more].concat());
    undone(
        &top(&["--count", "1"]),
        "stdout is no terminal: --json prints a line",
    );
    let lines = done(&top(&["--count", "3", "--json", "--interval", "10ms"]));
    assert_eq!(lines.lines().count(), 3);
    // Until a line has seen gets: workers publish their counts ten times a second.
    let line = wait_for(|| {
        for _ in 0..9 {
            ask(&mut stream, "get hot\x1b[1m\r\n", "END\r\n");
        }
        ask(&mut stream, "get none\r\n", "END\r\n");
        let line = done(&top(&["--count", "1", "--json", "--interval", "300ms"]));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["hit-ratio"].is_number().then_some(line)
    });
    let (seconds, now) = (line["seconds"].as_f64().unwrap(), &line["now"]);
    assert!(seconds >= 0.3, "{line}");
    // Whole rounds of ten gets were seen, since a worker publishes after them, or one in parts.
    let gets = line["a-second"]["gets"].as_f64().unwrap() * seconds;
    assert!(gets > 0.5, "{line}");
    let ratio = line["hit-ratio"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&ratio), "{line}");
    assert_eq!(now["flash-device"], serde_json::json!(["up flash"]));
    // A key must not write to the terminal.
    let hottest = now["hot-key"][0].as_str().unwrap();
    assert!(hottest.ends_with(" hot%1B%5B1m"), "{line}");

    if !have("script") {
        return;
    }
    let command = format!("{SENKO} ctl --socket ctl top --interval 10ms --count 3");
    let shown = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder.join(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let screen = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{screen}");
    let pictures: Vec<&str> = screen.split("\x1b[H\x1b[2J").collect();
    assert_eq!(pictures.len(), 4, "{screen:?}");
    for picture in &pictures[1..] {
        for row in [
            "gets ",
            "DRAM ",
            "flash ",
            "drive ",
            "lookups  hottest keys",
        ] {
            assert!(picture.contains(&format!("\n{row}")), "{picture}");
        }
        assert!(
            picture.contains("hot%1B%5B1m") && !picture.contains('\x1b'),
            "{picture}"
        );
        assert!(
            picture.lines().all(|line| line.trim_end().len() <= 80),
            "{picture}"
        );
    }
}

/// The tier of flash follows what is set: the workers do what `status` says is in force.
#[test]
fn how_items_go_to_flash_changes_while_a_server_runs() {
    let folder = Scratch::new();
    let flash = ["-p", "0", "-m", "64", "--flash", "flash:512m", "-t", "2"];
    let more = ["--ctl", "ctl", "--promote-after", "3"];
    let server = Running::serve(&folder, &[&flash[..], &more].concat());
    let set = |option: &str, value: &str| ctl(&folder, &["set", option, value]);
    let count = |name: &str| status(&folder)[name].as_u64().unwrap();
    let now = status(&folder);
    assert_eq!(
        (
            &now["flash-write-budget"],
            &now["admission"],
            &now["promote-after"]
        ),
        (&"none".into(), &"all".into(), &3.into())
    );
    let mut stream = server.connect();
    let mut key = 0;
    let mut store = |mebibytes: usize| {
        for _ in 0..mebibytes * 16 {
            let request = format!("set {key} 0 0 60000 noreply\r\n{:60000}\r\n", "");
            stream.write_all(request.as_bytes()).unwrap();
            key += 1;
        }
        ask(&mut stream, "mn\r\n", "MN\r\n");
    };
    wait_for(|| {
        store(4);
        (count("flash-written-bytes") > 32 << 20).then_some(())
    });

    // One hit on flash of a key suffices from now on; before, none of these keys had a second one.
    let mut reader = server.connect();
    let mut read = |key: usize| {
        ask(&mut reader, &format!("get {key}\r\n"), "END\r\n");
        let stats = ask(&mut reader, "stats\r\n", "END\r\n");
        let row = stats
            .lines()
            .find_map(|row| row.strip_prefix("STAT flash_promotions "));
        row.unwrap().parse::<u64>().unwrap()
    };
    assert!((0..50).all(|key| read(key) == 0));
    assert_eq!(
        done(&set("promote-after", "1")),
        "promote-after is 1; it was 3\n"
    );
    assert_eq!(status(&folder)["promote-after"], 1);
    let mut next = 50..;
    wait_for(|| (read(next.next().unwrap() % 200) > 0).then_some(()));

    let out = done(&set("flash-write-budget", "1/s"));
    assert_eq!(out, "flash-write-budget is 1 bytes a second; it was none\n");
    assert_eq!(status(&folder)["flash-write-budget"], 1);
    let settings = ask(&mut server.connect(), "stats settings\r\n", "END\r\n");
    assert!(settings.contains("STAT senko_flash_write_budget 1\r\n"));
    // What may be written in a burst comes first.
    wait_for(|| {
        store(4);
        (count("flash-drops-budget") > 0).then_some(())
    });
    let written = count("flash-written-bytes");
    let out = done(&set("flash-write-budget", "none"));
    assert_eq!(out, "flash-write-budget is none; it was 1 bytes a second\n");
    // More than two bursts.
    wait_for(|| {
        store(4);
        (count("flash-written-bytes") > written + (80 << 20)).then_some(())
    });

    assert_eq!(
        done(&set("admission", "fetched")),
        "admission is fetched; it was all\n"
    );
    assert_eq!(status(&folder)["admission"], "fetched");
    wait_for(|| {
        store(4);
        let stats = ask(&mut server.connect(), "stats\r\n", "END\r\n");
        (!stats.contains("STAT flash_drops_rule 0\r\n")).then_some(())
    });

    undone(
        &set("promote-after", "4"),
        "promote-after is 1 to 3 hits, not 4",
    );
    undone(
        &set("flash-write-budget", "0/s"),
        "is less than a byte a second",
    );
    undone(&set("flash-write-budget", "20m"), "is not a write budget");
    undone(
        &set("admission", "random:101"),
        "admission is all, fetched, random:P with P from 1 to 100, or bytes:SIZE, not random:101",
    );
    undone(&set("admission", "bytes:0"), "is not an admission rule");
    assert_eq!(
        done(&set("admission", "bytes:64k")),
        "admission is bytes:65536; it was fetched\n"
    );
    assert_eq!(status(&folder)["admission"], "bytes:65536");
    done(&set("admission", "fetched"));
    let now = status(&folder);
    assert_eq!(
        (&now["flash-write-budget"], &now["admission"]),
        (&"none".into(), &"fetched".into())
    );
    drop(server);

    let folder = Scratch::new();
    let _server = Running::serve(&folder, &DRAM);
    let undone_here = ctl(&folder, &["set", "promote-after", "2"]);
    undone(
        &undone_here,
        "promote-after has no effect in this server: it has no flash",
    );
}

/// A drain turns newcomers away, serves the others until they leave, and stops the server as
/// SIGTERM does: a cache in a data directory comes back.
#[test]
fn a_drain_waits_for_clients_and_stops_the_server() {
    let folder = Scratch::new();
    let kept = [
        "--data-dir",
        "data",
        "--keep-dram",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut server = Running::serve(&folder, &[&DRAM[..], &kept].concat());
    let mut stream = server.connect();
    ask(&mut stream, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let child = draining(&folder, "1h");
    turned_away(&server, &folder);
    assert_eq!(
        ask(&mut stream, "get a\r\n", "END\r\n"),
        "VALUE a 0 1\r\nx\r\nEND\r\n"
    );
    assert_eq!(status(&folder)["state"], "draining");
    let admin = server.start["admin"].as_str().unwrap();
    let mut health = std::net::TcpStream::connect(admin).unwrap();
    health
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    health.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("draining\n"),
        "{answer}"
    );
    undone(&ctl(&folder, &["drain"]), "the server drains already");
    assert!(server.child.try_wait().unwrap().is_none());
    drop(stream);
    let output = child.wait_with_output().unwrap();
    let out = done(&output);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert_eq!(
        lines[0],
        "no connection is accepted any more; 1 connection may end within 3600 s"
    );
    assert!(
        lines[1].starts_with("no connection is open after "),
        "{out}"
    );
    assert!(lines[1].ends_with("; the server stops"), "{out}");
    // The command ends when the server has: what it kept is there.
    let ended_before = server.child.try_wait().unwrap();
    ended(&mut server);
    assert!(ended_before.is_some() || folder.join("data").exists());
    assert!(!folder.join("ctl").exists());
    let again = Running::serve(&folder, &[&DRAM[..], &kept].concat());
    let found = ask(&mut again.connect(), "get a\r\n", "END\r\n");
    assert_eq!(found, "VALUE a 0 1\r\nx\r\nEND\r\n");
}

/// A client that does not leave is closed when the time is over; and a drain goes on if whoever
/// asked for it is killed.
#[test]
fn a_drain_ends_in_time() {
    let folder = Scratch::new();
    let mut server = Running::serve(&folder, &DRAM);
    let mut stream = server.connect();
    ask(&mut stream, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let out = done(&ctl(&folder, &["drain", "--within", "1s"]));
    assert!(out.contains("1 connection did not end within "), "{out}");
    assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
    ended(&mut server);

    let mut server = Running::serve(&folder, &DRAM);
    let stream = server.connect();
    let mut child = draining(&folder, "1h");
    turned_away(&server, &folder);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stream);
    ended(&mut server);
    // And a server without clients ends at once, with JSON.
    let mut server = Running::serve(&folder, &DRAM);
    let out = done(&ctl(&folder, &["--json", "drain"]));
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["request"], "drain 30");
    ended(&mut server);
}

/// A server that is killed in a drain did not do what it was asked for.
#[test]
fn a_drain_of_a_server_that_dies_is_not_done() {
    let folder = Scratch::new();
    let mut server = Running::serve(&folder, &DRAM);
    let _stream = server.connect();
    let child = draining(&folder, "1h");
    turned_away(&server, &folder);
    server.child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let words = ["the server ended before it had done", "does not answer"];
    let told = text(&output.stderr);
    assert!(words.iter().any(|word| told.contains(word)), "{told}");
    assert_eq!(output.status.code(), Some(1));
    // The socket that it left is taken by the next server, and by no second one.
    server.child.wait().unwrap();
    assert!(folder.join("ctl").exists());
    let server = Running::serve(&folder, &DRAM);
    assert_eq!(status(&folder)["pid"], server.child.id());
    let told = refused(SENKO, &folder, &[&["serve"], &DRAM[..]].concat());
    assert!(told.contains("cannot listen on ctl"), "{told}");
    assert_eq!(status(&folder)["pid"], server.child.id());
}

#[test]
fn what_is_no_ctl_socket_is_told() {
    let folder = Scratch::new();
    let told = refused(SENKO, &folder, &["ctl", "status"]);
    assert!(
        told.contains("Name the socket that it was given by --ctl"),
        "{told}"
    );
    undone(
        &ctl(&folder, &["status"]),
        "cannot connect to ctl: No such file",
    );
    std::fs::write(folder.join("ctl"), "mine").unwrap();
    undone(
        &ctl(&folder, &["status"]),
        "cannot connect to ctl: Connection refused",
    );
    let told = refused(SENKO, &folder, &[&["serve"], &DRAM[..]].concat());
    assert!(
        told.contains("a file that is not a socket is in the way"),
        "{told}"
    );
    assert_eq!(std::fs::read(folder.join("ctl")).unwrap(), b"mine");
    std::fs::remove_file(folder.join("ctl")).unwrap();
    let _server = Running::serve(&folder, &["-s", "ctl", "--no-flash", "-m", "64"]);
    undone(
        &ctl(&folder, &["drain", "--within", "5s"]),
        "this is no server's ctl socket: ERROR",
    );
    let code = ctl(&folder, &["drain", "--within", "0"]).status.code();
    assert_eq!(code, Some(2));
}

/// Clients that say nothing, half a line or too much keep nobody from asking.
#[test]
fn idle_clients_make_room() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, &DRAM);
    let clients: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut client = UnixStream::connect(folder.join("ctl")).unwrap();
            // The oldest ones are closed as others come.
            let _ = client.write_all(b"stat");
            client
        })
        .collect();
    assert_eq!(status(&folder)["pid"], server.child.id());
    drop(clients);
    for request in [
        "x".repeat(10_000),
        "status now\n".to_owned(),
        "\n".to_owned(),
    ] {
        let mut client = UnixStream::connect(folder.join("ctl")).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("no "), "{request}: {answer}");
    }
    assert_eq!(status(&folder)["state"], "serving");
}
