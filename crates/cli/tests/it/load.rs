// SPDX-License-Identifier: Apache-2.0
//! `senko load` from outside: its exit codes, and its output when a run ends early.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use crate::process::{Running, SENKO, Scratch, Words, ask, has, senko, signal, text, undone};

fn load(folder: &Scratch, server: &Running, args: &str) -> Output {
    senko(
        "load",
        folder,
        format!("-s 127.0.0.1:{} {args}", server.port),
    )
}

/// Runs that did not do all of their work used to end with 0: a rate far beyond the server's, sets
/// of which all or most failed.
#[test]
fn work_that_was_not_done_is_not_0() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "-p 0 --no-flash -I 2k -m 64");
    let go = |args: &str| load(&folder, &server, args);

    let done = go("--load -k 1000 --value-size 100 --read-back --verify");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    has(&out, "verified      1000 values, 0 wrong");
    has(&out, "p99.99 ");

    let written = "-n 500 -k 1k --value-size 100 --histograms h";
    assert!(go(written).status.success());
    let written = std::fs::read_to_string(folder.join("h/mix-get.hgrm")).unwrap();
    has(&written, "1/(1-Percentile)");
    has(&written, "#[Max ");

    let rate = "--rate 10m -n 20000 -c 2 --gaps even";
    let out = undone(&go(rate), "the rate was not reached");
    has(&out, "not reached: ");

    // Values of 100 to 4,000 bytes; the server refuses those from about 2,000 on.
    let some = "--load -k 1000 --value-size 100-4000";
    let out = undone(
        &go(some),
        "requests of the load failed, most of them: SERVER_ERROR",
    );
    has(&out, "too large");
    let allowed = go(&format!("{some} --max-failed 90%"));
    assert_eq!(allowed.status.code(), Some(0), "{}", text(&allowed.stderr));
    let none = "--load -k 100 --value-size 4k --max-failed 1";
    undone(&go(none), "no request of the load succeeded");

    let found = "--read-back -k 2000 --expect-found 0.9 --json";
    let out = undone(&go(found), "of the keys read were found");
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["reads"], 2000);
    assert_eq!(go("--nonsense").status.code(), Some(2));
}

/// When a server was killed under load, the run used to end with 0, or without results.
#[test]
fn a_server_that_dies_is_not_0() {
    let folder = Scratch::new();
    let mut server = Running::serve(&folder, "-p 0 --no-flash -m 64");
    let (mut child, mut out) = started(&server, "-d 1h --timeout 2s");
    let mut seen = String::new();
    out.read_line(&mut seen).unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    out.read_to_string(&mut seen).unwrap();
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{told}");
    assert!(
        told.contains("is gone") && told.lines().count() == 1,
        "{told}"
    );
    let last = last_line(&seen);
    assert_eq!(last["type"], "step");
    assert!(last["requests"].as_u64().unwrap() > 0, "{last}");
    assert!(
        last["broken"].as_str().unwrap().contains("is gone"),
        "{last}"
    );
    let never = senko("load", &folder, "-s 127.0.0.1:1 -n 1");
    undone(&never, "cannot connect to 127.0.0.1:1");
}

/// Ctrl-C and SIGTERM used to discard the results of a run.
#[test]
fn a_signal_prints_what_there_is() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "-p 0 --no-flash -m 64");
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (mut child, mut out) = started(&server, "--warm-up 1ms -d 1h");
        let mut seen = String::new();
        out.read_line(&mut seen).unwrap();
        signal(child.id(), name);
        out.read_to_string(&mut seen).unwrap();
        let mut told = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{told}");
        has(&told, "interrupted");
        let last = last_line(&seen);
        assert_eq!(
            (&last["type"], &last["stopped"]),
            (&"step".into(), &true.into())
        );
        assert!(last["requests"].as_u64().unwrap() > 0, "{last}");
        assert!(last["seconds"].as_f64().unwrap() < 3600.0, "{last}");
    }
}

fn started(
    server: &Running,
    args: &str,
) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(SENKO)
        .args(format!("load --json --series -s 127.0.0.1:{} {args}", server.port).words())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn last_line(text: &str) -> serde_json::Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The last line of `--json` of each step.
fn steps(output: &Output) -> Vec<serde_json::Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// `incr`, `decr`, `append` and `prepend` on both tiers of this server, in every dialect: no change
/// is lost, made twice or made in part, also of items that went to flash and came back.
#[test]
fn changes_are_right_on_both_tiers() {
    let folder = Scratch::new();
    let flash = "-p 0 -m 64 --flash flash:256m";
    let dram = "-p 0 -m 64 --no-flash";
    for (name, args) in [("dram", dram), ("flash", flash)] {
        let server = Running::serve(&folder, args);
        for dialect in ["classic", "meta", "binary"] {
            let options = format!(
                "--protocol {dialect} --prefix {dialect}- --load -n 30000 --read-back -k 20000 --value-size 0-4000 \
                 --vary-size -c 8 -t 2 -P 4 --dist uniform --set-on-miss --verify --json \
                 --mix set=0.1,incr=0.2,decr=0.1,append=0.2,prepend=0.1"
            );
            let output = load(&folder, &server, &options);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{name} {dialect}: {told}");
            let lines = steps(&output);
            assert_eq!(lines.len(), 3, "{name} {dialect}");
            let mix = &lines[1];
            let sum = |key: &str| mix[key].as_u64().unwrap();
            assert_eq!((sum("wrong"), sum("failed")), (0, 0), "{mix}");
            assert_eq!(sum("changed") + sum("absent"), sum("changes"), "{mix}");
            assert!(sum("changed") > 3000, "{mix}");
            assert_eq!(mix["change_us"]["count"], sum("changes"), "{mix}");
            assert_eq!(mix["settings"]["changes"]["incr"], 0.2, "{mix}");
        }
        if name == "flash" {
            let stats = ask(&mut server.connect(), "stats\r\n", "END\r\n");
            let line = stats.lines().find(|line| line.contains(" flash_items "));
            let flash: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(flash > 1000, "{flash} items went to flash");
        }
    }
}

/// A process that did not load the keys checks them too, and someone else's value is a fault.
#[test]
fn another_process_checks_what_changes_left() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "-p 0 -m 64 --no-flash");
    let own = "-k 300 --key-size shortest --value-size 100 --mix incr=0.4,append=0.4 --verify";
    let go = |more: &str| load(&folder, &server, &format!("{own} {more}"));
    for more in [
        "--load",
        "-n 3000",
        "-n 3000 --read-back",
        "--read-back --expect-found 1",
    ] {
        let output = go(more);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{more}: {}",
            text(&output.stderr)
        );
    }
    // Keys are alternately counters and texts.
    let mut stream = server.connect();
    for (request, answer, fault) in rows! {
        "set key0 1 0 3\r\nabc\r\n", "STORED", "wrong: key key0";
        "set key0 1 0 10\r\n2500000000\r\n", "STORED", "torn: key key0";
        "append key1 0 0 3\r\nabc\r\n", "STORED", "torn: key key1";
    } {
        assert_eq!(ask(&mut stream, request, "\r\n").trim_end(), answer);
        undone(&go("--read-back"), fault);
        // The value is restored, so that the next fault is the only one.
        assert_eq!(go("--load").status.code(), Some(0));
    }
}

/// A mix that is impossible or makes no sense is refused with one sentence.
#[test]
fn bad_mixes_are_refused() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "-p 0 -m 64 --no-flash");
    let go = |args: &str| load(&folder, &server, args);
    undone(&go("--mix incr=0.5 --noreply"), "leave noreply out");
    undone(&go("--mix append=0.5 --value-size 1m"), "no room to append");
    undone(&go("--mix incr=0.5,append=0.5 -k 1"), "2 classes of keys");
}

/// A server with passwords could not be measured: `senko load` had no user, and its refusal named
/// no way out.
#[test]
fn connections_log_in() {
    let folder = Scratch::new();
    std::fs::write(folder.join("users"), "bob:secret7\n").unwrap();
    std::fs::write(folder.join("password"), "secret7\n").unwrap();
    std::fs::write(folder.join("wrong"), "secret8\n").unwrap();
    let options = "-p 0 --no-flash -m 64 --auth-file users";
    let server = Running::serve(&folder, &options);
    let few = "-k 100 -n 200 -c 4 --timeout 30s";
    let go = |args: &str| load(&folder, &server, &format!("{few} {args}"));
    undone(&go(""), "the server wants a user (--user, --password-file)");
    for protocol in ["classic", "meta"] {
        let user = format!("--protocol {protocol} --user bob");
        for secret in ["--password-file password", "--password secret7"] {
            let done = go(&format!("{user} {secret} --load --read-back"));
            assert!(done.status.success(), "{}", text(&done.stderr));
        }
        let wrong = go(&format!("{user} --password-file wrong"));
        assert!(undone(&wrong, "refuses the user bob").is_empty());
    }
    for (args, told) in [
        ("--user bob", "--password"),
        ("--password x", "--user"),
        ("--user bob --password-file none", "cannot read none"),
    ] {
        let refused = go(args);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(told), "{said}");
    }
    let blank = ["-s", "127.0.0.1:1", "--user", "b b", "--password", "x"];
    let refused = senko("load", &folder, blank);
    assert!(text(&refused.stderr).contains("no space"), "{refused:?}");
}
