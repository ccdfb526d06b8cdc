// SPDX-License-Identifier: Apache-2.0
//! `senko plan` as a buyer of a machine meets it: long lives, small sums, wrong options and traces.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::process::{SENKO, Scratch, has, refused, run, signal, start};

fn plan(folder: &Scratch, args: &str) -> String {
    let output = run(SENKO, folder, &format!("plan --items 20k {args}"));
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A cache that holds all items had a life of 8219178082.2 years, in JSON and in text.
#[test]
fn lives_beyond_a_drive_are_no_numbers() {
    let folder = Scratch::new();
    let line: Value = serde_json::from_str(&plan(&folder, "--json")).unwrap();
    let all = line["sizes"].as_array().unwrap().last().unwrap();
    assert_eq!(all["written_bytes_a_day"], 0.0);
    assert!(all["years"].is_null(), "{all}");
    assert_eq!(all["years_missing"], "nothing is written");
    let line: Value = serde_json::from_str(&plan(&folder, "--rate 1/day --json")).unwrap();
    assert!(line["plan"]["years"].is_null(), "{line}");
    assert_eq!(line["plan"]["years_missing"], "more than 100 years");
    let text = plan(&folder, "--rate 1/day");
    assert!(
        text.contains("more than 100 years") && !text.contains("at 0 requests"),
        "{text}"
    );
    let line: Value = serde_json::from_str(&plan(&folder, "--json")).unwrap();
    assert!(line["plan"]["years"].as_f64().unwrap() > 0.0, "{line}");
    assert!(line["plan"]["years_missing"].is_null(), "{line}");
}

/// A life of hours was told as 0.0 days, a price of a tenth of a cent as 0.00, and a drive for
/// five years was smaller than the flash that the plan asks for.
#[test]
fn small_figures_are_told() {
    let folder = Scratch::new();
    let text = plan(&folder, "");
    assert!(
        !text.contains(" 0.0 days") && text.contains(" hours"),
        "{text}"
    );
    has(&text, "price  below 0.01");
    let slow = plan(&folder, "--rate 1/h --json");
    let line: Value = serde_json::from_str(&slow).unwrap();
    assert_eq!(
        line["five_years_drive_bytes"], line["plan"]["flash_bytes"],
        "{line}"
    );
}

/// The text had bytes a day to the cells beside a rating by the host's, and neither was named.
#[test]
fn writes_of_a_day_are_those_of_the_rating() {
    let folder = Scratch::new();
    let args = "--write-amplification 2 --json";
    let line: Value = serde_json::from_str(&plan(&folder, args)).unwrap();
    let (plan_of, at) = (&line["plan"], |value: &Value| value.as_f64().unwrap());
    let (host, cells) = (
        at(&plan_of["host_bytes_a_day"]),
        at(&plan_of["written_bytes_a_day"]),
    );
    assert!((cells / host - 2.0).abs() < 1e-9, "{line}");
    let rated = at(&line["five_years_host_bytes"]);
    assert!((rated / (host * 365.0 * 5.0) - 1.0).abs() < 1e-9, "{line}");
    // The price was that of flash which lasts for hours.
    let (drive, price) = (
        at(&line["five_years_drive_bytes"]),
        at(&line["five_years_price"]),
    );
    let dram = at(&line["dram_bytes"]);
    assert!(
        (price - (dram * 4.0 + drive * 0.1) / 1e9).abs() < 1e-9,
        "{line}"
    );
    assert!(price > at(&plan_of["price"]), "{line}");
    let text = plan(&folder, &args[..2]);
    has(&text, "with the drive for 5 years");
    has(&text, " to its cells) at 10000 requests a second");
}

/// A trace of blocks was refused with "it does not have the three fields key,op,size".
#[test]
fn a_trace_of_blocks_is_told_apart() {
    let folder = Scratch::new();
    let args = "ssd trace gen uniform:count=100 web.csv";
    let made = run(SENKO, &folder, &format!("{args} --to msr"));
    assert!(made.status.success(), "{made:?}");
    let output = run(SENKO, &folder, "plan web.csv");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "senko: web.csv is a trace of blocks (msr), for senko ssd run; a plan needs one of keys, \
         such as lines of key,op,size\n"
    );
    assert_eq!(output.status.code(), Some(1));
    std::fs::write(folder.join("keys.csv"), "a,get,1\nb\n").unwrap();
    let output = run(SENKO, &folder, "plan keys.csv");
    let told = String::from_utf8(output.stderr).unwrap();
    has(&told, "three fields key,op,size");
}

/// Prices of 1e300 were printed with 300 digits, and factors of 1e300 as "inf G PB".
#[test]
fn senseless_values_are_refused() {
    let folder = Scratch::new();
    for option in [
        "--rate",
        "--dram-price",
        "--flash-price",
        "--index-bits",
        "--cycles",
        "--write-amplification",
    ] {
        for value in ["1e300", "1e-300", "0", "nonsense"] {
            let args = format!("plan --items 20k {option} {value}");
            let output = run(SENKO, &folder, &args);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
            assert!(
                told.contains(option) && told.len() < 400,
                "{args:?}: {told}"
            );
        }
    }
    for (args, told) in [
        ("--zipf 1e300", "it must be from 0 to 5"),
        ("--bytes 1t", "more than a cache can hold"),
    ] {
        let output = run(SENKO, &folder, &format!("plan --items 1g {args}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(told),
            "{args:?}: {text}"
        );
        assert!(text.len() < 400, "{text}");
    }
    let told = refused(SENKO, &folder, "plan");
    assert!(
        told.contains("--items") && told.contains("--ratios"),
        "{told}"
    );
}

/// The plan for a hundred million items had the hits of half a million, and an option that a trace
/// or `--ratios` does not read was taken without a word.
#[test]
fn the_number_of_items_counts_and_idle_options_are_refused() {
    let folder = Scratch::new();
    // By Che's approximation 0.466 and 0.636 for a 64th of the items, each in a chunk of 1,136
    // bytes.
    for (items, share, each) in [("20k", "46.6%", 20e3 / 64.0), ("4m", "63.6%", 4e6 / 64.0)] {
        let args = format!("plan --items {items} --policy lru --json --hit {share}");
        let output = run(SENKO, &folder, &format!("{args} --dram-hit {share}"));
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        let [dram, index] = ["dram_bytes", "index_bytes"].map(|key| line[key].as_f64().unwrap());
        let held = (dram - index) / 1136.0;
        assert!((held / each - 1.0).abs() < 0.15, "{items}: {held}, {line}");
        // The index takes whole pages. It was counted as 9 bytes for each item, 3 kB of 312.
        assert!(index > 65536.0 && index > held * 9.2, "{items}: {line}");
    }
    for args in [
        "keys.csv --zipf 0.5",
        "--ratios --hit 90%",
        "--ratios --rate 5k",
        "--ratios --cycles 5000",
    ] {
        let output = run(SENKO, &folder, &format!("plan {args}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains("cannot be used with"), "{args:?}: {told}");
    }
}

/// The reason stood twice: "incomplete frame: incomplete frame".
#[test]
fn a_trace_that_is_cut_short_is_told_once() {
    let folder = Scratch::new();
    // The head of a gzip file, and of a zstd one.
    let gzip: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b];
    let zstd: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58];
    for (name, bytes) in [("a.gz", gzip), ("a.zst", zstd)] {
        std::fs::write(folder.join(name), bytes).unwrap();
        let told = refused(SENKO, &folder, &format!("plan {name}"));
        let why = told.trim().rsplit(": ").next().unwrap_or("").to_owned();
        assert!(
            told.contains(name) && told.contains("cannot be read"),
            "{told}"
        );
        assert_eq!(told.matches(&why).count(), 1, "{told}");
    }
}

/// More hits in DRAM than hits in all were lowered without a word.
#[test]
fn dram_finds_no_more_than_the_cache() {
    let folder = Scratch::new();
    let args = "plan --items 20k --hit 40% --dram-hit 60%";
    let told = refused(SENKO, &folder, args);
    has(&told, "--dram-hit 60% is more than the 40% of --hit");
    // Without the option there is no more than what is asked for.
    plan(&folder, "--hit 40%");
}

/// The JSON of a plan for a trace; an error is the refusal's sentence.
fn planned(trace: &str, args: &str) -> Result<Value, String> {
    let folder = Scratch::new();
    std::fs::write(folder.join("keys"), trace).unwrap();
    let output = run(SENKO, &folder, &format!("plan keys --json {args}"));
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// A set after each miss counted as a hit, so 50 % were planned where nothing can hit. Deletes were
/// left out, a share that exists exactly was refused, a cache with room for all found nothing of
/// three objects, and the keys 007 and 7 were one.
#[test]
fn traces_are_read_as_a_cache_meets_them() {
    let lru = "--hit 50% --policy lru";
    let fills: String = (0..100)
        .map(|n| format!("k{n},get,100\nk{n},set,100\n"))
        .collect();
    let told = planned(&fills, lru).unwrap_err();
    has(&told, "with room for all it is 0.00 %");
    let deleted: String = (0..200)
        .map(|n| format!("k{0},get,100\nk{0},delete,\n", n % 10))
        .collect();
    let told = planned(&deleted, lru).unwrap_err();
    has(&told, "with room for all it is 0.00 %");
    let exact: String = (0..45)
        .map(|n| format!("{n}\n"))
        .chain((0..55).map(|_| "44\n".to_owned()))
        .collect();
    let found = planned(&exact, "--hit 55% --policy lru").unwrap();
    assert_eq!(found["plan"]["hit_ratio"], 0.55);
    let three = "a,get,100\nb,get,100\nc,get,100\n".repeat(10);
    assert_eq!(planned(&three, "--hit 90%").unwrap()["items"], 3.0);
    let names = "007,get,9\n7,get,9\n0007,get,9\n0,get,9\n00,get,9\n".repeat(9);
    assert_eq!(planned(&names, lru).unwrap()["items"], 5.0);
    let told = planned("a,set,1\nb,set,1\n", lru).unwrap_err();
    has(&told, "holds no gets");
}

/// Each store counted as written. What a look-aside cache writes is each of its fills once, and an
/// overwrite once more; but what is stored again while it is in DRAM is never written.
#[test]
fn what_is_stored_again_in_dram_is_not_written() {
    let twice: String = (0..4000)
        .map(|n| format!("k{0},get,1000\nk{0},set,1000\n", n % 2000))
        .collect();
    let day = "--hit 50% --rate 8000/day";
    let written = |args: &str| {
        let line = planned(&twice, &format!("{day} {args}")).unwrap();
        line["plan"]["host_bytes_a_day"].as_f64().unwrap()
    };
    // Four records of 1,038 bytes do not fit into a page.
    let each = written("--dram-hit 0") / 4000.0;
    assert!((each / (4096.0 / 3.0) - 1.0).abs() < 0.4, "{each}");
    let at_once: String = (0..4000)
        .map(|n| format!("k{0},get,1000\nk{0},set,1000\n", n / 20))
        .chain((0..200).map(|n| format!("k{n},get,1000\n")))
        .collect();
    let args = "--hit 95% --dram-hit 90% --rate 8200/day";
    let line = planned(&at_once, args).unwrap();
    let often = line["plan"]["host_bytes_a_day"].as_f64().unwrap() / 4000.0;
    assert!(often < 0.1 * each, "{often} and {each}");
}

/// An item of 100 bytes was planned at 100 bytes of flash, of which the server took 158, and
/// thirty million of 2,100 bytes at 63 GB, when a page held one of them and they took 123. DRAM
/// that finds everything was bought again as flash.
#[test]
fn flash_is_what_the_server_takes() {
    let folder = Scratch::new();
    let all = "--zipf 0 --hit 100% --dram-hit 10% --json";
    let items = [
        ("100", 118.0 / 0.97),
        ("2100", 2155.0 / 0.97),
        ("9000", 9055.0 / 0.97),
    ];
    for (bytes, each) in items {
        let line = plan(&folder, &format!("{all} --bytes {bytes}"));
        let line: Value = serde_json::from_str(&line).unwrap();
        let flash = line["plan"]["flash_bytes"].as_f64().unwrap() / 20_000.0;
        // DRAM holds a tenth of the items, and the log keeps two regions free.
        assert!((flash / each - 1.0).abs() < 0.2, "{bytes}: {flash}");
    }
    let text = plan(&folder, "--hit 30%");
    has(&text, "flash  none: DRAM alone finds them");
    let line: Value = serde_json::from_str(&plan(&folder, "--hit 30% --json")).unwrap();
    assert_eq!(
        (&line["plan"]["flash_bytes"], &line["dram_alone"]),
        (&0.0.into(), &true.into())
    );
    // Beside each figure stands what it is for as many hits more and fewer as the plan may be off.
    let line: Value = serde_json::from_str(&plan(&folder, "--json")).unwrap();
    for (figure, within) in [
        ("flash_bytes", "flash_bytes_within"),
        ("host_bytes_a_day", "host_bytes_a_day_within"),
        ("price", "price_within"),
    ] {
        let value = line["plan"][figure].as_f64().unwrap();
        let [less, more] = [0, 1].map(|at| line[within][at].as_f64().unwrap());
        assert!(less < value && value < more, "{line}");
    }
    let text = plan(&folder, "");
    has(
        &text,
        "error  a filled server's hits are within 2 points of 100, and its writes within 5 %",
    );
    let [less, more] = [0, 1].map(|at| line["dram_bytes_within"][at].as_f64().unwrap());
    let dram = line["dram_bytes"].as_f64().unwrap();
    assert!(less < dram && dram < more, "{line}");
    assert!(!text.contains("cliff"), "{text}");
    // A loop that is a little larger than the cache finds nearly nothing of it.
    let looped: String = (0..60_000)
        .map(|n| format!("k{},get,1000\n", n % 3000))
        .collect();
    let line = planned(&looped, "--hit 90% --dram-hit 10%").unwrap();
    let smaller = line["hit_ratio_with_5_percent_less"].as_f64().unwrap();
    assert!(smaller < 0.85, "{line}");
}

/// A signal ended it without a word, and so a `scan` or `dump` to stdout.
#[test]
fn an_interrupted_command_says_so() {
    let folder = Scratch::new();
    let trace = folder.path().join("keys.csv");
    let made = Command::new("mkfifo").arg(&trace).status().unwrap();
    assert!(made.success());
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let child = start(&folder, "plan keys.csv");
        // Opened when the command has opened it to read.
        let writer = std::fs::OpenOptions::new()
            .write(true)
            .open(&trace)
            .unwrap();
        signal(child.id(), name);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), Some(number));
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(
            told.contains("interrupted") && told.lines().count() == 1,
            "{told}"
        );
        drop(writer);
    }
}

/// The plan of an engine has the years of its drive; options of a cache are refused, and the other
/// way round.
#[test]
fn an_engine_has_a_plan_too() {
    let folder = Scratch::new();
    for engine in ["store", "dbm"] {
        let args = format!("--engine {engine} --bytes 100 --rate 1k --zipf 0");
        let line: Value = serde_json::from_str(&plan(&folder, &format!("{args} --json"))).unwrap();
        let at = |name: &str| line[name].as_f64().unwrap();
        assert_eq!((at("records"), at("records_counted")), (20e3, 20e3));
        let put = 100.0 * 1000.0 * 86_400.0;
        assert!((at("put_bytes_a_day") / put - 1.0).abs() < 1e-9, "{line}");
        let host = at("written_over_put") * put;
        assert!((at("host_bytes_a_day") / host - 1.0).abs() < 1e-9, "{line}");
        assert!((at("file_bytes") / (at("file_over_records") * 2e6) - 1.0).abs() < 1e-9);
        let years = at("drive_bytes") * 3000.0 / at("written_bytes_a_day") / 365.0;
        assert!((at("years") / years - 1.0).abs() < 1e-9, "{line}");
        assert_eq!(at("drive_bytes"), at("file_bytes"));
        // A drive ten thousand times as large lives as much longer.
        let text = plan(&folder, &format!("{args} --drive 20g"));
        has(&text, "for a drive of 21.5 GB at 3000 cycles a block");
        has(&text, "counted with 20000 records");
    }
    for (args, why) in [
        ("--engine dbm --hit 50%", "--hit is for a cache"),
        ("--engine store --policy lru", "--policy is for a cache"),
        ("--batch 10", "--batch is for --engine store or dbm"),
        (
            "--engine cache --drive 1t",
            "--drive is for --engine store or dbm",
        ),
        ("--engine store --cache 1g", "--cache is for --engine dbm"),
        (
            "--engine dbm --drive 100k",
            "is too small for the file, which has ",
        ),
        (
            "--engine dbm --bytes 7",
            "with an engine an item has 8 to 1048576 bytes",
        ),
        ("--engine lsm", "no engine \"lsm\": use cache, store or dbm"),
        ("--engine dbm --batch 0", "it must be at least 1"),
    ] {
        let output = run(SENKO, &folder, &format!("plan --items 20k {args}"));
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{args}"
        );
        has(&String::from_utf8_lossy(&output.stderr), why);
    }
}
