// SPDX-License-Identifier: Apache-2.0
//! Every example of README, of the documents and of the help texts runs.
//!
//! Each runs in a shell, in a folder that has the files that examples name, small and made up. Two
//! tables change examples: [`SMALLER`] makes their work small, and [`NOT_RUN`] names those that
//! only a special machine can run. The binary's own tests parse all of them unchanged.

pub mod collect; // finds them

use std::collections::BTreeSet;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use collect::{Block, documents, of_document, of_help};

use crate::process::{PATIENT, Running, SENKO, Scratch, have, signal, wait_for};

/// Replacements, in this order: paths, sizes, counts and times.
const SMALLER: &[(&str, &str)] = &[
    // The tests need no privileges, and have enough cores.
    ("sudo ", ""),
    ("taskset -c 0 ", ""),
    ("taskset -c 1 ", ""),
    // Paths lie in the example's folder, flash is small.
    ("/mnt/nvme/cache:100g", "cache:64m"),
    ("/tmp/a.flash:8g", "a.flash:64m"),
    ("/dev/nvme1n1 saved.kv", "old.kv other.kv"),
    ("/dev/nvme1n1", "device"),
    ("/var/lib/senko", "lib"),
    ("/run/", ""),
    ("/mnt/nvme/", ""),
    ("/backup/", ""),
    // Servers listen on loopback, on a free port.
    ("-l 0.0.0.0", "-l 127.0.0.1"),
    ("-p 11211", "-p 0"),
    ("-p 22122", "-p 0"),
    ("-c 10000", "-c 100"),
    ("--memory 1g", "--memory 64m"),
    // Loads are small and short, and go to the test's server.
    ("-s 127.0.0.1:22122 ", ""),
    ("-s 127.0.0.1:11211", "-s 127.0.0.1:$PORT"),
    ("-s 127.0.0.1:11213", "-s 127.0.0.1:$PORT"),
    ("--keys 1000000", "--keys 2000"),
    ("--keys 4000000", "--keys 20000"),
    ("--keys 4m", "--keys 20k"),
    ("--keys 100000", "--keys 5000"),
    ("-k 1900000", "-k 2000"),
    ("-k 15000000", "-k 2000"),
    ("-n 100000", "-n 500"),
    ("--last-bytes 1g", "--last-bytes 100k"),
    ("--bytes 2g", "--bytes 200k"),
    ("--items 100m", "--items 50k"),
    ("test.bin --size 1g", "test.bin --size 16m"),
    ("--duration 30", "--duration 300ms"),
    ("--duration 60", "--duration 300ms"),
    ("-d 60", "-d 300ms"),
    ("-d 1 ", "-d 300ms "),
    ("--rate 50000", "--rate 200"),
    ("PID", "$SERVER"),
    (
        "--transactions 10000 --records 100",
        "--transactions 100 --records 10",
    ),
];

/// Options added to commands that begin like this, unless they already have them.
const ADDED: &[(&str, &str, &str)] = &[
    ("senko serve", "-p ", "-p 0"),
    ("senko serve", "-m |--memory ", "-m 64"),
    ("senko load", "-s ", "-s 127.0.0.1:$PORT"),
    ("senko store bench", "--keys ", "--keys 5000"),
    ("senko store bench", "-n ", "-n 500"),
];

/// The examples that do not run here, identified by a part of their text, and why.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "plan keys.trace.gz",
        "it needs a trace that is not part of the tree",
    ),
    ("device /dev/sdX", "it overwrites a raw device"),
    (
        "web.csv",
        "they need each other, and run where outputs are compared",
    ),
];

/// The examples that may correctly end with 1 here: nothing was there at that time, the one before
/// still runs, or this server has no flash.
const MAY_SAY_NO: &[&str] = &[
    "get data.kv colour --at",
    " fill 127.0.0.1:11211",
    " fill stop",
    " set flash-write-budget",
];

/// Other programs that examples call.
const PROGRAMS: &[&str] = &["zcat", "gzip", "date", "jq", "openssl"];

/// How long an example may take: far longer than any does.
const LIMIT: Duration = Duration::from_secs(600);

/// So many blocks of examples run at the same time.
const AT_ONCE: usize = 6;

fn all_examples() -> Vec<Block> {
    let mut blocks: Vec<Block> = documents()
        .iter()
        .flat_map(|(name, text)| of_document(name, text))
        .collect();
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let text = help(&command);
        let name = format!("senko {}", command.join(" "));
        blocks.extend(of_help(name.trim_end(), &text));
        let list = text
            .split_once("\nCommands:\n")
            .map_or("", |(_, list)| list);
        let lines = list.lines().take_while(|line| !line.is_empty());
        // A description that goes on is indented by more.
        let names = lines.filter_map(|line| line.strip_prefix("  "));
        for below in names.filter_map(|line| line.split(' ').next()) {
            if !below.is_empty() && below != "help" {
                commands.push([command.clone(), vec![below.to_owned()]].concat());
            }
        }
    }
    blocks
}

fn help(command: &[String]) -> String {
    let output = Command::new(SENKO)
        .args(command)
        .arg("--help")
        .env("COLUMNS", "1000")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "senko {command:?} --help");
    String::from_utf8(output.stdout).unwrap()
}

/// The files that examples name.
fn furnish(folder: &Scratch) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    std::os::unix::fs::symlink(SENKO, folder.join("senko")).unwrap();
    let spc: String = (0..2000_u64)
        .map(|n| {
            let (disk, sector, second) = (n % 3, n * 7919 % 100_000 * 8, n as f64 / 100.0);
            let operation = if n % 4 == 0 { 'R' } else { 'W' };
            format!("{disk},{sector},4096,{operation},{second:.6}\n")
        })
        .collect();
    let msr: String = (0..1000_u64)
        .map(|n| {
            let (time, offset) = (
                128_166_372_003_061_629 + n * 10_000,
                n * 104_729 % 100_000 * 4096,
            );
            format!("{time},host,0,Write,{offset},4096,1331\n")
        })
        .collect();
    for name in ["Financial1.spc", "b.spc"] {
        write(name, spc.as_bytes());
    }
    write("a.csv", msr.as_bytes());
    write(
        "rows.jsonl",
        b"{\"key\":\"colour\",\"value\":\"green\"}\n{\"key\":\"shape\",\"value\":\"round\"}\n",
    );
    write("rows.csv", b"key,value\ncolour,green\nshape,round\n");
    write("users", b"shop:correct horse\n");
    let dump = std::fs::File::create(folder.join("old.dump")).unwrap();
    let dump = senko_load::transfer::Writer::new(dump, 0).unwrap();
    dump.finish(0).unwrap();
    write("cat.jpg", &[0xff, 0xd8, 0x00, 0x0a]);
    write(
        "senko.toml",
        b"memory = \"64m\"\nflash = [\"a:64m\", \"b:64m\"]\n",
    );
    std::fs::File::create(folder.join("device"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    // Files that examples of one document need and those of another make.
    let made = "gzip -k Financial1.spc && gzip rows.csv && senko store put data.kv colour green && senko store put data.kv shape round \
                && senko dbm put data.db colour green && senko store put data.kv picture --from cat.jpg && senko store put old.kv colour blue \
                && senko ssd trace gen uniform:count=2k cache.trace --to senko \
                && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
                   -keyout server.key -out server.pem";
    let output = shell(folder, made, 0, 0);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn command(folder: &Scratch, text: &str, port: u16, pid: u32) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .args(["-c", text])
        .env("XDG_STATE_HOME", folder.join("state"))
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("PORT", port.to_string())
        .env("SERVER", pid.to_string())
        .env(PATIENT.0, PATIENT.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn shell(folder: &Scratch, text: &str, port: u16, pid: u32) -> Output {
    ended(command(folder, text, port, pid).spawn().unwrap(), text)
}

/// Waits for the end of an example, within its limit.
fn ended(mut child: Child, text: &str) -> Output {
    // Read in another thread, so that a full pipe blocks nobody.
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut out));
        let err = scope.spawn(move || read(&mut err));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > LIMIT {
                child.kill().unwrap();
                panic!("{text} took longer than {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Output {
            status,
            stdout: out.join().unwrap(),
            stderr: err.join().unwrap(),
        }
    })
}

/// The command with small inputs.
fn smaller(example: &str) -> String {
    let mut text = format!("{} ", example.trim_end().trim_end_matches(" &"));
    for (long, short) in SMALLER {
        text = text.replace(long, short);
    }
    for (start, option, added) in ADDED {
        let said = option
            .split('|')
            .any(|name| text.contains(&format!(" {name}")));
        if text.starts_with(start) && !said && !text.contains("--help") {
            text = text.replacen(start, &format!("{start} {added}"), 1);
        }
    }
    text.trim_end().to_owned()
}

/// A server runs until it is told to stop, and must then end without an error.
fn serve(folder: &Scratch, text: &str) -> Result<(), String> {
    let mut child = command(folder, &format!("exec {text} --json"), 0, 0)
        .stdout(std::fs::File::create(folder.join("out")).unwrap())
        .stderr(std::fs::File::create(folder.join("err")).unwrap())
        .spawn()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let status = wait_for(|| {
        let ended = child.try_wait().unwrap();
        (ended.is_some() || read("out").contains("\"event\":\"start\"")).then_some(ended)
    });
    if status.is_none() {
        signal(child.id(), "TERM");
    }
    match (status, wait_for(|| child.try_wait().unwrap())) {
        (None, status) if status.success() => Ok(()),
        _ => Err(read("err")),
    }
}

fn run_example(folder: &Scratch, server: &Running, example: &str) -> Result<(), String> {
    let text = smaller(example);
    if text.starts_with("senko serve") && !text.contains("--help") {
        return serve(folder, &text).map_err(|why| format!("{text}\n    {why}"));
    }
    let output = shell(folder, &text, server.port, server.child.id());
    let told = String::from_utf8_lossy(&output.stderr);
    let no = output.status.code() == Some(1) && MAY_SAY_NO.iter().any(|what| text.contains(what));
    match output.status.success() || no {
        true => Ok(()),
        false => Err(format!("{text}\n    {:?}: {told}", output.status)),
    }
}

/// Four examples used to fail: `store bench --keys 4m`, `ssd lifetime zipf:...`,
/// `ssd compare ... count=200k` and `lifetime ... --precondition 90`.
#[test]
fn every_example_runs() {
    if !PROGRAMS.iter().all(|program| have(program)) {
        return;
    }
    let blocks = all_examples();
    let all: usize = blocks.iter().map(|block| block.commands.len()).sum();
    assert!(all > 80, "{all} examples are too few: are all found?");
    let unused: BTreeSet<&str> = NOT_RUN.iter().map(|(what, _)| *what).collect();
    let (unused, failed) = (Mutex::new(unused), Mutex::new(Vec::new()));
    let furnished = Scratch::new();
    furnish(&furnished);
    let run_block = |block: &Block| {
        let folder = Scratch::new();
        let copy = format!("cp -a {}/. .", furnished.path().display());
        assert!(shell(&folder, &copy, 0, 0).status.success());
        let memory = ["-p", "0", "--no-flash", "-m", "64", "--ctl", "senko.ctl"];
        let server = Running::serve(&folder, &memory);
        for example in &block.commands {
            if let Some((what, _)) = NOT_RUN.iter().find(|(what, _)| example.contains(what)) {
                unused.lock().unwrap().remove(what);
            } else if let Err(why) = run_example(&folder, &server, example) {
                let why = format!("{}: {why}", block.place);
                failed.lock().unwrap().push(why);
            }
        }
    };
    // Most examples wait for a time that they measure: several blocks at once.
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_block(block);
                }
            });
        }
    });
    let (unused, failed) = (unused.into_inner().unwrap(), failed.into_inner().unwrap());
    assert!(
        failed.is_empty(),
        "{} of {all}:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert!(
        unused.is_empty(),
        "no example has these any more: {unused:?}"
    );
}

/// Blocks of a document's code in which every command is senko's, or edits a file for it, and ends
/// by itself: pairs of a command and the lines that the document shows below it.
fn shown_outputs(document: &str) -> Vec<Vec<(String, Vec<String>)>> {
    let mut blocks = Vec::new();
    let mut block: Vec<(String, Vec<String>)> = Vec::new();
    for line in document.lines().chain([""]) {
        match line.strip_prefix("    ") {
            Some(code) => match code.strip_prefix("$ ") {
                Some(command) => block.push((command.to_owned(), Vec::new())),
                None if code != "..." => {
                    if let Some((_, lines)) = block.last_mut() {
                        lines.push(code.to_owned());
                    }
                }
                None => {}
            },
            None => blocks.extend(Some(std::mem::take(&mut block)).filter(|b| !b.is_empty())),
        }
    }
    blocks.retain(|block| {
        let ours = |text: &str| text.starts_with("senko ") || text.starts_with("sed ");
        let ends = |text: &str| ours(text) && !text.starts_with("senko serve");
        block.iter().all(|(text, _)| ends(text))
    });
    blocks
}

/// The README showed lines of `senko ssd run` as they had been once.
#[test]
fn the_readme_shows_what_commands_print() {
    print_as_shown("../../README.md", 6);
}

#[test]
fn the_guide_to_buying_a_drive_shows_what_commands_print() {
    print_as_shown("../../docs/ssd/buying.md", 18);
}

/// Runs the commands of a document in their order, and finds at least so many lines in what they
/// print.
fn print_as_shown(document: &str, least: usize) {
    let document = std::fs::read_to_string(document).unwrap();
    let blocks = shown_outputs(&document);
    let folder = Scratch::new();
    std::os::unix::fs::symlink(SENKO, folder.join("senko")).unwrap();
    std::fs::write(
        folder.join("rows.jsonl"),
        "{\"key\":\"a\",\"value\":\"1\"}\n",
    )
    .unwrap();
    let mut compared = 0;
    for (text, lines) in blocks.iter().flatten() {
        let output = shell(&folder, text, 0, 0);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {told}");
        let printed = String::from_utf8_lossy(&output.stdout);
        for line in lines {
            assert!(
                printed.lines().any(|it| it == line),
                "{text} does not print {line:?}, but\n{printed}"
            );
            compared += 1;
        }
    }
    assert!(
        compared >= least,
        "{compared} lines were found in {blocks:?}"
    );
}
