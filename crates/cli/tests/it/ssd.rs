// SPDX-License-Identifier: Apache-2.0
//! `senko ssd` from outside: its output, its refusals, pipes, Ctrl-C.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use crate::process::{
    SENKO, Scratch, Words, has, hears_signals, refused, run, senko, signal, start,
};

mod fit; // traces that do not fit their drive

fn ssd(folder: &Scratch, args: impl Words) -> Output {
    senko("ssd", folder, args)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One value of a line of JSON, as text.
fn value(json: &str, pointer: &str) -> serde_json::Value {
    let all: serde_json::Value = serde_json::from_str(json).unwrap();
    all.pointer(pointer)
        .unwrap_or_else(|| panic!("no {pointer} in {json}"))
        .clone()
}

/// The names of a value's fields, at every depth; devices have numbers for names.
fn fields(value: &serde_json::Value, names: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields_of) => {
            for (name, below) in fields_of {
                if name.parse::<u64>().is_err() {
                    names.insert(name.clone());
                }
                fields(below, names);
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|below| fields(below, names)),
        _ => {}
    }
}

/// A written profile is one for every command that takes a profile, and begins with what it was
/// fitted to. One that is unlike its template is told of.
#[test]
fn a_measured_drive_is_simulated() {
    let folder = Scratch::new();
    let args = "device sim:x25-m --write-profile mine.toml";
    let output = run(SENKO, &folder, args);
    assert!(output.status.success(), "{output:?}");
    assert!(!stdout(&output).contains("is off: "), "{output:?}");
    let text = std::fs::read_to_string(folder.join("mine.toml")).unwrap();
    assert!(
        text.starts_with("# Fitted to a measurement of sim:x25-m, from the profile nvme-512gb.")
    );
    let args = "run uniform:count=2k --profile mine.toml --json";
    let output = ssd(&folder, format!("{args} --fold modulo"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(value(&stdout(&output), "/profile"), "fitted");

    let args = "device sim:paper-1gb --write-profile other.toml";
    let output = run(SENKO, &folder, args);
    // The note named no figure, and no way out for a drive that was busy.
    let told = stdout(&output);
    let note = told
        .lines()
        .find(|line| line.contains("The profile is off: "));
    let note = note.unwrap_or_else(|| panic!("{told}"));
    for words in [
        "of 4 ",
        "in the profile and",
        "measured (",
        "when it is idle",
    ] {
        assert!(note.contains(words), "{words}: {note}");
    }
    let text = std::fs::read_to_string(folder.join("other.toml")).unwrap();
    assert!(text.contains("# The profile is off: ") && text.contains("writes with many"));
    let args = "device sim:x25-m --write-profile no.toml --like no";
    let output = run(SENKO, &folder, args);
    assert!(!output.status.success() && !folder.join("no.toml").exists());
    assert!(
        stderr(&output).contains("there is no profile"),
        "{output:?}"
    );
}

/// Programs had to guess what the fields of results mean.
#[test]
fn the_page_of_results_has_every_field() {
    let folder = Scratch::new();
    let page = std::fs::read_to_string("../../docs/ssd/results.md").unwrap();
    let run = "run uniform:count=2k --precondition steady --fold modulo --scale 512";
    let json = stdout(&ssd(&folder, format!("{run} --json")));
    let mut names = std::collections::BTreeSet::new();
    fields(&serde_json::from_str(&json).unwrap(), &mut names);
    assert!(names.len() > 80, "{names:?}");
    let csv = stdout(&ssd(&folder, format!("{run} --csv")));
    names.extend(csv.lines().next().unwrap().split(',').map(str::to_owned));
    names.retain(|name| !page.contains(&format!("`{name}`")));
    assert!(names.is_empty(), "not described: {names:?}");
}

/// Two disks of a trace, and lines that cannot be used.
const TWO_DISKS: &str = "0,8,4096,W,0.25\n1,8,4096,W,1.25\n0,16,4096,R,2.25\n1,24,512,W,3.25\n";

/// Examples of README and help that used to fail: `count=200k`, a generator larger than the drive,
/// a drive that erased nothing.
#[test]
fn examples_run() {
    let folder = Scratch::new();
    std::fs::write(folder.join("a.spc"), TWO_DISKS).unwrap();
    let compare = "compare a.spc uniform:count=20k,pages=2k --fold modulo --ftl page";
    let out = ssd(&folder, &compare);
    assert!(out.status.success(), "{}", stderr(&out));
    // A head, each workload and its row, the layer's options, one note for both, and one for the
    // trace's read of a new drive.
    assert_eq!(stdout(&out).lines().count(), 8, "{}", stdout(&out));
    assert!(stdout(&out).contains("100.0 % asked for pages that nobody had written"));
    assert!(stdout(&out).contains("note: 2 of 2 runs: The run erased nothing"));
    let zipf = "zipf:writes=0.5,rate=1000,count=100k,pages=200k";
    let drive = "--profile paper-1gb --ftl page";
    let life = format!("lifetime {zipf} --precondition 99 {drive}");
    let out = ssd(&folder, &life);
    assert!(out.status.success(), "{}", stderr(&out));
    let rows = ["average wear", "most worn block", "TBW", "DWPD"];
    for row in rows {
        let text = stdout(&out);
        let mut lines = text.lines();
        let line = lines.find(|line| line.trim_start().starts_with(row));
        assert!(
            line.is_some_and(|line| line.contains("; ")),
            "{row}\n{}",
            stdout(&out)
        );
    }
    // The same summary as in `run`.
    has(&stderr(&out), "requests    100000; ");
}

/// The output of a run: rates, bytes as the host wrote them, the overlap of devices.
#[test]
fn a_run_prints_rates_and_warnings() {
    let folder = Scratch::new();
    std::fs::write(folder.join("a.spc"), TWO_DISKS).unwrap();
    let out = ssd(&folder, "run a.spc --fold modulo --ftl page");
    assert!(out.status.success(), "{}", stderr(&out));
    for part in ["IOPS", "MB/s read", "8.70 kB written in 3 pages"] {
        assert!(stdout(&out).contains(part), "{part}\n{}", stdout(&out));
    }
    has(&stderr(&out), "the 2 devices of the trace overlap");
    let apart = ssd(&folder, "run a.spc --fold compact --ftl page --json");
    assert!(!stderr(&apart).contains("overlap"));
    let json = stdout(&apart);
    assert_eq!(value(&json, "/derived/host_bytes_written"), 8704);
    assert_eq!(value(&json, "/derived/keeps_up"), true);
    assert_eq!(value(&json, "/trace/warnings"), serde_json::json!([]));
    // A drive that does 5,000 writes a second, with four times as many requested.
    let drive = "--profile paper-1gb --ftl page";
    let behind = format!("run uniform:rate=20k,count=5k {drive}");
    let out = ssd(&folder, &behind);
    has(&stdout(&out), "The drive can't keep up");
    assert!(!stdout(&out).contains("p99"), "{}", stdout(&out));
}

/// A run on a new drive used to look as good as one on a drive in use, and no note distinguished
/// them.
#[test]
fn a_run_says_what_its_figures_are_worth() {
    let folder = Scratch::new();
    let load = "uniform:count=20k,pages=262144";
    let new = format!("run {load} --ftl page --wa --profile paper-1gb");
    let out = ssd(&folder, &new);
    has(&stdout(&out), "note: The run erased nothing");
    let json = stdout(&ssd(&folder, format!("{new} --json")));
    assert_eq!(value(&json, "/notes").as_array().unwrap().len(), 1);
    assert_eq!(value(&json, "/derived/steady"), serde_json::Value::Null);
    let csv = ssd(&folder, format!("{new} --csv"));
    has(&stderr(&csv), "The run erased nothing");
    let used = format!("{new} --precondition random:1x --json");
    let json = stdout(&ssd(&folder, &used));
    assert_eq!(value(&json, "/report/preparation/way"), "random:1x");
    assert_eq!(
        value(&json, "/report/preparation/pages_written"),
        2 * 262_144
    );
    assert!(value(&json, "/derived/erases").as_u64().unwrap() > 0);
}

/// The text is made from the same figures, whether from a stored result or from the run itself.
#[test]
fn a_result_is_explained() {
    let folder = Scratch::new();
    let load = "uniform:count=20k,pages=262144,rate=100,writes=0.7";
    let drive = "--profile paper-1gb --precondition random:1x";
    for (layer, parts) in rows! {
        "page", ["Collection freed", "valid pages that collection moved"];
        "bast:log-blocks=16", ["Log blocks were merged", "merges of log blocks"];
        "dftl:cmt-bytes=4k", ["The map lies on the flash", "for the map"];
    } {
        let run = format!("{load} {drive} --ftl {layer} --limit 2k");
        let json = ssd(&folder, format!("run --json {run}"));
        std::fs::write(folder.join("result.json"), &json.stdout).unwrap();
        let read = stdout(&ssd(&folder, "explain result.json"));
        let ran = stdout(&ssd(&folder, format!("explain {run}")));
        assert_eq!(read, ran, "{layer}");
        assert!((7..=12).contains(&read.lines().count()), "{read}");
        let json = stdout(&json);
        let written = value(&json, "/report/pages/host_writes");
        let all = value(&json, "/report/flash/programs");
        let all = all.as_object().unwrap().values();
        let all: u64 = all.map(|count| count.as_u64().unwrap()).sum();
        let host = format!("in {written} pages");
        let flash = format!("The flash programmed {all} pages");
        for part in [&*host, &flash, "random:1x", "limit", parts[0], parts[1]] {
            assert!(read.contains(part), "{part}\n{read}");
        }
    }
    let reads = "uniform:count=2k,pages=1000,writes=0";
    let deep = "--profile x25-m --precondition 1 --closed 32";
    let read = stdout(&ssd(&folder, format!("explain {reads} {deep}")));
    has(&read, "The link to the host limits the drive");
    std::fs::write(folder.join("other.json"), "{\"report\": 3}\n").unwrap();
    let out = ssd(&folder, "explain other.json");
    assert_eq!(out.status.code(), Some(1));
    has(
        &stderr(&out),
        "other.json is not a result of `senko ssd run --json`",
    );
}

/// Rates come first. The columns of a comparison stay aligned and fit a terminal under long names,
/// and its picture has a bar for each run.
#[test]
fn a_comparison_is_aligned_and_drawn() {
    let folder = Scratch::new();
    let loads = [
        "uniform:count=500,pages=9000,rate=10",
        "hotcold:count=123456,pages=65536,writes=0.75,rate=1000",
    ];
    let parts = "--ftl page --ftl bast:log-blocks=9 --profile paper-1gb";
    let args = format!("compare {} {parts} --plot all.svg", loads.join(" "));
    let out = ssd(&folder, &args);
    assert!(out.status.success(), "{}", stderr(&out));
    let text = stdout(&out);
    let (mut of, rows): (Vec<&str>, Vec<&str>) = text
        .lines()
        .take(7)
        .partition(|line| !line.starts_with(' '));
    of.retain(|line| !line.is_empty());
    assert_eq!(of, loads, "{text}");
    let wide = rows[0].chars().count();
    assert!(wide <= 80, "{text}");
    assert!(
        rows.iter().all(|line| line.chars().count() == wide),
        "{text}"
    );
    let buffer = rows[0].find("buffer").unwrap();
    assert!(
        rows[1..]
            .iter()
            .all(|line| &line[buffer - 1..buffer] == " "),
        "{text}"
    );
    let svg = std::fs::read_to_string(folder.join("all.svg")).unwrap();
    for part in [
        "write amplification",
        "response time",
        "bast:log-blocks=9,",
        "p99",
    ] {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
    let run = stdout(&ssd(
        &folder,
        format!("run {} --profile paper-1gb", loads[0]),
    ));
    let line = |what: &str| run.lines().position(|line| line.starts_with(what)).unwrap();
    assert!(line("pace") < line("response times") && line("response times") < line("host"));
}

/// The column of layers was 60 letters wide, for options that no two rows had different, and each
/// run had a note of its own.
#[test]
fn a_comparison_has_short_names_and_few_notes() {
    let folder = Scratch::new();
    let loads = "zipf:count=20k uniform:count=20k";
    let parts = "--ftl page --ftl bast --ftl fast --buffer none";
    let profile = "--profile paper-1gb";
    let out = ssd(&folder, &format!("compare {loads} {parts} {profile}"));
    let text = stdout(&out);
    assert!(text.lines().next().unwrap().len() <= 80, "{text}");
    has(&text, "\nbast: bast:log-blocks=16,victim=lru\n");
    let notes: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("note: "))
        .collect();
    assert_eq!(notes.len(), 2, "{text}");
    assert!(
        notes[1].contains("4 of 6 runs: Write amplification never got steady. "),
        "{text}"
    );
    // Two layers of one name keep their options.
    let parts = "--ftl bast:log-blocks=9 --ftl bast";
    let args = format!("compare uniform:count=500 {parts} {profile}");
    let text = stdout(&ssd(&folder, &args));
    has(&text, "  bast:log-blocks=9,victim=lru  ");
    has(&text, "  bast:log-blocks=16,victim=lru  ");
}

/// Each of these ended the process: there was no memory for as much.
#[test]
fn drives_beyond_all_measure_are_refused() {
    let folder = Scratch::new();
    let profile = include_str!("../../../ssd/profiles/nvme-512gb.toml");
    let queues = profile
        .lines()
        .map(|line| match line.starts_with("queues") {
            true => "queues = 4294967295",
            false => line,
        });
    let queues: Vec<&str> = queues.collect();
    std::fs::write(folder.join("queues.toml"), queues.join("\n")).unwrap();
    for (args, told) in [
        ("--drives 1000000", "at most 256 can be simulated"),
        (
            "--buffer lru --buffer-size 1e18",
            "a write buffer of 1000000000000000000 bytes is larger than its drive",
        ),
        ("--profile queues.toml", "must be at most 65536"),
    ] {
        let args = format!("ssd run uniform:count=20 {args}");
        let text = refused(SENKO, &folder, &args);
        has(&text, told);
    }
}

/// Each of these ended the process, by a panic or for want of memory: one took 24 GB first.
#[test]
fn engines_beyond_all_measure_are_refused() {
    let folder = Scratch::new();
    for (args, told) in rows! {
        "--drives 4294967295", "at most 65536 channels";
        "--channels 4294967295", "at most 65536 channels";
        "--clients 4294967295", "at most 16777216";
        "--channel-us 1e300", "channel_ns is 1e303";
        "--serial-us 1e300", "serial_ns is 1e303";
        "--think-us 1e300 --clients 4", "think_ns is 1e303";
        "--rate 1/day --drives 1", "more than 500 years";
        "--rate 1e18 --drives 1 --answers 1t", "they come faster than the engine answers";
    } {
        let out = ssd(&folder, format!("transfer {args}"));
        let text = stderr(&out);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
        let last = text.lines().last().unwrap_or("");
        assert!(
            last.starts_with("senko: ") && last.contains(told),
            "{args:?}: {text}"
        );
    }
    // Far beyond what the engine answers, and bounded all the same.
    for args in ["--rate 1e12", "--rate 10 --burst 4294967295"] {
        let args = format!("transfer --drives 1 --answers 1k {args}");
        let out = ssd(&folder, &args);
        assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    }
}

/// A picture that could not be written took the figures of the whole run with it.
#[test]
fn figures_are_printed_before_their_picture_fails() {
    let folder = Scratch::new();
    for args in [
        // A folder that takes no files is found out only by writing.
        "ssd run uniform:count=2k --plot-erases /proc/p",
        "ssd compare uniform:count=2k --plot /proc/p",
        "device sim:usb-stick --size 16m --svg /proc/p",
    ] {
        let out = run(SENKO, &folder, args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        has(&stderr(&out), "cannot write /proc/p");
        assert!(!stdout(&out).is_empty(), "{args:?}");
    }
}

/// Of two traces, the message did not say which is damaged.
#[test]
fn a_damaged_trace_is_named() {
    let folder = Scratch::new();
    // The head of a zstd file.
    std::fs::write(folder.join("cut.zst"), [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58]).unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    for name in ["cut.zst", "empty"] {
        for args in [
            &format!("compare uniform:count=20 {name}"),
            &format!("lifetime {name}"),
        ] {
            let out = ssd(&folder, args);
            let text = stderr(&out);
            let last = text.lines().last().unwrap_or("");
            assert!(
                last.starts_with(&format!("senko: {name}: the trace ")),
                "{text}"
            );
            assert_eq!(out.status.code(), Some(1), "{text}");
        }
    }
}

/// A third of a trace was left out of a conversion, an explanation or a table, without a word.
#[test]
fn damaged_lines_are_told_by_every_command() {
    let folder = Scratch::new();
    let line = |n: u32| match n % 3 {
        0 => "rubbish\n".to_owned(),
        _ => format!("0,{n},4096,W,{n}.0\n"),
    };
    let text: String = (1..=30).map(line).collect();
    std::fs::write(folder.join("a.spc"), text).unwrap();
    let told = "10 of 30 lines are damaged and left out";
    for args in [
        "trace convert a.spc b.csv --to msr",
        "trace convert a.spc c.csv --to msr --json",
        "trace info a.spc --json",
        "trace plot a.spc --output a.svg",
        "explain a.spc --profile paper-1gb --wa",
        "run a.spc --profile paper-1gb --wa --csv",
        "run a.spc --profile paper-1gb --wa --json",
        "compare a.spc --profile paper-1gb --wa",
    ] {
        let out = ssd(&folder, args);
        assert!(out.status.success(), "{args}: {}", stderr(&out));
        has(&stderr(&out), told);
    }
    has(&stdout(&ssd(&folder, "trace info a.spc")), told);
}

/// A drive under a slow load lived for thousands of years.
#[test]
fn a_life_beyond_a_drive_is_no_number() {
    let folder = Scratch::new();
    let load = "uniform:count=4k,rate=0.001";
    let profile = "--profile paper-1gb --precondition random:0.2x";
    for command in ["lifetime", "explain"] {
        let text = stdout(&ssd(&folder, format!("{command} {load} {profile}")));
        has(&text, "more than 100 years");
    }
}

/// The default profile was a drive of 2012. It is a part of a larger one, and a life says so.
#[test]
fn the_default_is_a_drive_of_today() {
    let folder = Scratch::new();
    let load = "uniform:count=4k,rate=2000";
    let json = stdout(&ssd(&folder, format!("run {load} --json")));
    assert_eq!(value(&json, "/profile"), "nvme-512gb");
    assert_eq!(value(&json, "/report/user_bytes"), 8_001_720_320_u64);
    let text = stdout(&ssd(&folder, format!("run {load}")));
    assert!(text.starts_with("nvme-512gb (one part in 64 of its capacity), layer page"));
    let life = format!("lifetime {load} --precondition random:0.2x");
    let out = ssd(&folder, &life);
    has(&stdout(&out), "which is 64 times what is simulated");
    let json = stdout(&ssd(&folder, format!("{life} --json")));
    let at = |name: &str| value(&json, &format!("/lifetime/{name}")).as_f64().unwrap();
    assert_eq!(at("scale"), 64.0);
    let years = at("host_bytes") / at("bytes_a_day") / 365.25;
    assert!((years / at("years") - 1.0).abs() < 1e-9, "{json}");
}

/// A run with nothing to do is not a success.
#[test]
fn a_trace_that_is_none_is_an_error() {
    let folder = Scratch::new();
    std::fs::write(folder.join("a.spc"), TWO_DISKS).unwrap();
    std::fs::write(folder.join("empty.spc"), "0,8,0,W,0.0\n").unwrap();
    for (args, told) in rows! {
        "run a.spc --format msr", "read as msr, has no request";
        "trace info a.spc --format=msr", "read as msr, has no request";
        "lifetime empty.spc --ftl page", "has no request";
        "compare empty.spc --ftl page", "has no request";
        "trace convert empty.spc new.spc", "has no request";
    } {
        let out = ssd(&folder, &args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(stderr(&out).contains(told), "{args:?}: {}", stderr(&out));
        assert_eq!(stdout(&out), "", "{args:?}");
    }
    assert!(!folder.join("new.spc").exists());
    assert!(!folder.join("new.spc.part").exists());
}

/// A mistyped layer used to be refused only after the trace was read and all other runs of a
/// comparison were done, and their results were lost.
#[test]
fn a_wrong_part_is_refused_before_the_trace_is_read() {
    let folder = Scratch::new();
    std::fs::write(folder.join("empty.spc"), "0,8,0,W,0.0\n").unwrap();
    for (args, told) in rows! {
        "run empty.spc --ftl pgae", "there is no translation layer \"pgae\"";
        "compare empty.spc --ftl page --ftl pgae", "there is no translation layer \"pgae\"";
        "compare empty.spc --buffer lru --buffer lur", "there is no write buffer \"lur\"";
    } {
        let out = ssd(&folder, args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(stderr(&out).contains(told), "{args:?}: {}", stderr(&out));
    }
}

/// For a loop of links the error used to be "There is no file", although the file exists and can't
/// be opened.
#[test]
fn a_file_that_cannot_be_opened_is_told_as_that() {
    let folder = Scratch::new();
    std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
    let seq = "seq:count=1k";
    for args in [
        "ssd run loop",
        &format!("ssd run {seq} --profile loop"),
        "ssd explain loop",
    ] {
        let out = run(SENKO, &folder, args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        let said = stderr(&out);
        has(&said, "Too many levels of symbolic links");
        let told_missing = said.contains("there is no file") || said.contains("there are no");
        assert!(!told_missing, "{said}");
    }
}

/// `senko ssd run <(zcat ...)` used to find nothing after its first pass.
#[test]
fn a_trace_comes_through_a_pipe() {
    let folder = Scratch::new();
    for name in ["-", "/dev/stdin"] {
        let mut child = Command::new(SENKO)
            .args(format!("ssd run {name} --fold compact --ftl page --json").words())
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(TWO_DISKS.as_bytes())
            .unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{name}: {}", stderr(&out));
        assert_eq!(value(&stdout(&out), "/report/all/count"), 4, "{name}");
    }
}

/// A trace of two disks used to be converted to a trace of one.
#[test]
fn convert_keeps_disks() {
    let folder = Scratch::new();
    std::fs::write(folder.join("a.spc"), TWO_DISKS).unwrap();
    let out = ssd(&folder, "trace convert a.spc b.spc --to spc");
    assert!(out.status.success(), "{}", stderr(&out));
    let text = std::fs::read_to_string(folder.join("b.spc")).unwrap();
    let disks: String = text.lines().map(|line| &line[..1]).collect();
    assert_eq!(disks, "0101");
    // An existing file is not overwritten.
    let again = ssd(&folder, "trace convert a.spc b.spc --to spc");
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.join("b.spc")).unwrap(), text);
}

/// Ctrl-C used to discard the counts of a run. The process is stopped after it has printed the
/// workload's summary, so it is running.
#[test]
fn ctrl_c_prints_what_there_is() {
    let folder = Scratch::new();
    // The second round alone would take hours.
    let load = "ssd run uniform:count=1k --ftl page --rounds 4000000000";
    let mut child = start(&folder, load);
    let mut said = String::new();
    let mut told = child.stderr.take().unwrap();
    let mut byte = [0];
    while !said.contains("left out") {
        assert_eq!(told.read(&mut byte).unwrap(), 1, "{said}");
        said.push(char::from(byte[0]));
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(format!("-INT {pid}").words())
            .status()
            .unwrap()
            .success()
    );
    told.read_to_string(&mut said).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    has(&said, "stopped: what follows is of ");
    has(&stdout(&out), "write amplification");
}

/// Ctrl-C during the reading of a trace used to discard everything read so far.
#[test]
fn ctrl_c_tells_what_was_read_of_a_trace() {
    let folder = Scratch::new();
    // Reading it all would take hours.
    let child = start(&folder, "ssd trace info uniform:count=4000000000000");
    hears_signals(&child);
    signal(child.id(), "INT");
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", stderr(&out));
    let text = stdout(&out);
    assert!(
        text.contains("requests") && text.contains("left out"),
        "{text}"
    );
}

/// `senko ssd transfer` used to print nothing until its end, and Ctrl-C discarded the results of
/// finished drives.
#[test]
fn ctrl_c_prints_the_rows_of_the_transfer_engine() {
    let folder = Scratch::new();
    let line = "ssd transfer --json --drives 1 --drives 2 --answers 4000000000000";
    let mut child = start(&folder, line);
    hears_signals(&child);
    signal(child.id(), "INT");
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    has(&said, "stopped: the last row");
    assert_eq!(stdout(&out).lines().count(), 1, "{}", stdout(&out));
    assert_eq!(value(&stdout(&out), "/model/drives"), 1);
}

/// A comparison of drives had no life of any of them.
#[test]
fn a_comparison_has_the_fields_of_a_run() {
    let folder = Scratch::new();
    let load = "uniform:count=60k,pages=250k --profile paper-1gb --ftl page --precondition 100";
    let json = |command: &str| stdout(&ssd(&folder, format!("{command} {load} --json")));
    let (run, compared) = (json("run"), json("compare"));
    for name in ["/trace", "/stopped", "/lifetime", "/derived", "/profile"] {
        assert_eq!(value(&run, name), value(&compared, name), "{name}");
    }
    assert!(value(&run, "/lifetime/years").as_f64().unwrap() > 0.0);
}

/// A comparison writes out what the buffer holds at the end, and a run does so with `--drain`. The
/// flush for that was counted as a request, so the mean and the longest response were other ones.
#[test]
fn draining_counts_on_the_flash_and_is_no_request() {
    let folder = Scratch::new();
    let load = "zipf:count=2k,pages=20k --profile paper-1gb";
    let with = "--buffer lru --ftl page --json";
    let json = |command: &str, more: &str| {
        let out = ssd(&folder, format!("{command} {load} {with} {more}"));
        assert!(out.status.success(), "{}", stderr(&out));
        stdout(&out)
    };
    let (run, drained, compared) = (json("run", ""), json("run", "--drain"), json("compare", ""));
    for name in ["/report/all", "/report/writes", "/report/others"] {
        assert_eq!(value(&run, name), value(&drained, name), "{name}");
        assert_eq!(value(&run, name), value(&compared, name), "{name}");
    }
    assert_eq!(value(&run, "/report/all/count"), 2000);
    for name in ["/derived/write_amplification", "/report/seconds"] {
        assert_eq!(value(&drained, name), value(&compared, name), "{name}");
        let at = |json: &str| value(json, name).as_f64().unwrap();
        assert!(at(&run) < at(&drained), "{name}");
    }
    // Without times too, everything written leaves the buffer.
    let counted = json("run", "--drain --wa");
    for name in ["/report/pages", "/report/flash/programs"] {
        assert_eq!(value(&counted, name), value(&drained, name), "{name}");
    }
}

/// `--closed` beside `--wa` and others had no effect, without a word. The picture of response times
/// was empty.
#[test]
fn options_without_effect_are_told() {
    let folder = Scratch::new();
    for (args, told) in rows! {
        "--wa --closed 3", "--closed has no effect";
        "--wa --speed 3", "--speed has no effect";
        "--closed 3 --speed 3", "--speed has no effect beside --closed";
        "--stripe 8k", "--stripe has no effect with one drive";
        "--wa --plot-responses r.svg", "--plot-responses draws nothing";
    } {
        let small = "run uniform:count=10 --profile paper-1gb --csv";
        let out = ssd(&folder, format!("{small} {args}"));
        assert!(out.status.success(), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(told), "{args:?}: {}", stderr(&out));
    }
    let both = "--drives 2 --stripe 8k --speed 2";
    let out = ssd(&folder, &format!("run uniform:count=10 --csv {both}"));
    assert!(!stderr(&out).contains("no effect"), "{}", stderr(&out));
}
