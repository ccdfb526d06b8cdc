// SPDX-License-Identifier: Apache-2.0
//! Help, version, and one clear sentence for each kind of bad input.

use crate::process::{SENKO, Scratch, Words, refused, run};

fn stdout(folder: &Scratch, args: impl Words) -> String {
    let output = run(SENKO, folder, &args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn version() {
    let folder = Scratch::new();
    // The commit follows the version, if the build knew it, so that a bug report names what was
    // run.
    let text = stdout(&folder, "--version");
    assert_eq!(stdout(&folder, "version"), text);
    let wanted = format!("senko {}", env!("CARGO_PKG_VERSION"));
    let commit = text.trim_end().strip_prefix(&wanted).unwrap();
    let hash = commit
        .strip_prefix(" (")
        .and_then(|rest| rest.strip_suffix(')'));
    let known =
        hash.is_some_and(|hash| hash.len() >= 12 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    assert!(commit.is_empty() || known, "{text}");
}

#[test]
fn help_has_examples() {
    let folder = Scratch::new();
    let top = stdout(&folder, "--help");
    for word in ["serve", "load", "version", "Examples:", "memcached"] {
        assert!(top.contains(word), "{word} is not in\n{top}");
    }
    for command in ["serve", "load"] {
        let text = stdout(&folder, &format!("{command} --help"));
        assert!(
            text.contains("Examples:") && text.contains(&format!("senko {command}")),
            "{text}"
        );
    }
    // Options of a command stood under the heading of a part that they have nothing to do with.
    for command in ["load", "dump", "restore", "ctl fill"] {
        let text = stdout(&folder, &format!("{command} --help"));
        let (_, part) = text.split_once("\nTLS:\n").unwrap();
        let part = part.split_once("\n\n").map_or(part, |(part, _)| part);
        let options = part.lines().filter(|line| line.trim().starts_with('-'));
        for option in options {
            assert!(option.trim().starts_with("--tls"), "{command}: {option}");
        }
    }
    let serve = stdout(&folder, "serve --help");
    for option in [
        "--port",
        "--listen",
        "--unix-socket",
        "--unix-mask",
        "--memory",
        "--connections",
        "--threads",
        "--max-item-size",
        "--flash",
        "--data-dir",
        "--no-flash",
        "--region",
        "--policy",
        "--admission",
        "--flash-write-budget",
        "--promote-after",
        "--no-reinsert",
        "--sort-small",
        "--io",
        "--trace",
        "--discard",
        "--idle-timeout",
        "--config",
        "--json",
        "--user",
        "--pidfile",
        "--daemon",
    ] {
        assert!(serve.contains(option), "{option} is not in the help");
    }
}

#[test]
fn bad_values_are_refused_in_one_sentence() {
    let folder = Scratch::new();
    let serve = |args| refused(SENKO, &folder, format!("serve -p 0 --no-flash {args}"));
    assert!(serve("-m 0").contains("--memory 0"));
    assert!(serve("-m 1").contains("too small"));
    assert!(serve("-t 0").contains("greater than 0"));
    assert!(serve("-t 1000").contains("at most 256"));
    assert!(serve("-I 512").contains("1k to 1g"));
    assert!(serve("-U 11211").contains("UDP"));
    assert!(serve("--region 1000").contains("region"));
    assert!(serve("--flash x:1g").contains("contradict"));
    assert!(serve("-l no.such.host.invalid").contains("no.such.host.invalid"));
    assert!(serve("--config missing.toml").contains("missing.toml"));
    assert!(serve("-c 4000000000").contains("hard limit"));
    assert!(serve("--trace t").contains("--trace"));
    assert!(serve("--flash-rated-writes 0").contains("no write at all"));
    std::fs::write(folder.join("bad.toml"), "memroy = 1\n").unwrap();
    assert!(serve("--config bad.toml").contains("memroy"));
}

#[test]
fn bad_flash_is_refused_in_one_sentence() {
    let folder = Scratch::new();
    let serve = |args| refused(SENKO, &folder, format!("serve -p 0 {args}"));
    assert!(serve("--flash no/such/folder/f:64m").contains("no/such/folder/f"));
    assert!(serve("--flash f:16k").contains("too small"));
    assert!(serve("--flash f:32m --region 64m").contains("regions"));
    assert!(serve("--flash f:64m --flash f:64m").contains("twice"));
    assert!(
        serve("--flash f:900000t").contains('f'),
        "no disk has that much"
    );
    std::fs::write(folder.join("file"), "").unwrap();
    assert!(serve("--data-dir file/below").contains("file/below"));
    assert!(serve("--data-dir file").contains("file is not a folder"));
    assert!(serve("--flash missing").contains("--flash missing:4g"));
    assert!(!folder.join("missing").exists());
}

#[test]
fn unknown_words_are_refused() {
    let folder = Scratch::new();
    for args in [
        "serve --nonsense",
        "nonsense",
        "serve --policy mru",
        "serve -m lots",
    ] {
        let output = run(SENKO, &folder, args);
        assert!(!output.status.success() && output.stdout.is_empty());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("error: "), "{text}");
    }
    assert!(
        !folder.join("senko-data").exists(),
        "nothing is made before the arguments are understood"
    );
}

/// A report with `4 MiB` in one line and `12 MB/s` in the next makes its reader convert. Each
/// command's output uses one system of units.
#[test]
fn sizes_of_one_output_are_of_one_system() {
    let folder = Scratch::new();
    let rows: String = (0..3000)
        .map(|row| format!("{{\"key\":\"{row}\",\"value\":\"{}\"}}\n", "v".repeat(1000)))
        .collect();
    std::fs::write(folder.join("rows"), rows).unwrap();
    let mut with_units = 0;
    for args in [
        "store load a.kv rows",
        "store stats a.kv",
        "store compact a.kv --shrink",
        "store verify a.kv",
        "store backup a.kv b.kv",
        "store repair a.kv c.kv",
        "store bench d.kv --keys 2k -n 2k",
        "dbm load a.db rows",
        "dbm stats a.db",
        "dbm backup a.db b.db",
        "dbm bench c.db --transactions 10",
        "ssd run zipf:rate=2000,count=2k,pages=10k",
        "ssd lifetime zipf:rate=2000,count=2k,pages=10k --profile paper-1gb",
        "ssd compare zipf:rate=2000,count=2k,pages=10k",
        "ssd parts",
    ] {
        let output = run(SENKO, &folder, args);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let said = said.concat();
        assert!(output.status.success(), "{args:?}: {said}");
        let words = said.split(|letter: char| !letter.is_ascii_alphabetic());
        let [mut binary, mut decimal] = [0, 0];
        for word in words {
            binary += u32::from(["KiB", "MiB", "GiB", "TiB"].contains(&word));
            decimal += u32::from(["kB", "KB", "MB", "GB", "TB"].contains(&word));
        }
        assert!(binary == 0 || decimal == 0, "{args:?}: {said}");
        with_units += u32::from(binary + decimal > 0);
    }
    assert!(with_units > 6, "{with_units}: are units found?");
}

/// Options that do nothing without another one used to be accepted without effect. If a third
/// option excludes the other one, clap does not notice that it is missing. And 0 answers were
/// simulated as one.
#[test]
fn what_would_have_no_effect_is_refused() {
    let folder = crate::process::Scratch::new();
    for (args, what) in [
        ("plan --items 1m --paper", "--paper"),
        ("plan --items 1m --machine-dram 1g", "--machine-dram"),
        ("plan --items 1m --machine-flash 1g", "--machine-flash"),
        ("ssd transfer --answers 0", "--answers"),
        ("ssd transfer --clients 0", "--clients"),
        ("ssd transfer --rate 1000 --burst 0", "--burst"),
        ("ssd transfer --burst 2", "--rate"),
        ("ssd transfer --clients 2 --burst 2", "--burst"),
        ("ssd transfer --think-us 2", "--clients"),
        ("ssd transfer --rate 1000 --think-us 2", "--think-us"),
    ] {
        let output = run(SENKO, &folder, args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{args:?}: {text}"
        );
        assert!(text.contains(what), "{args:?}: {text}");
    }
}

fn names(folder: &Scratch) -> Vec<String> {
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A server that was refused left an empty `senko-data`, or the draft of its pid file. Pictures and
/// histograms were refused only after the run whose results they were to show.
#[test]
fn what_is_refused_makes_no_files_and_does_no_work() {
    let folder = Scratch::new();
    std::fs::create_dir(folder.join("d")).unwrap();
    std::fs::write(folder.join("text"), "hello\n").unwrap();
    for (args, why) in rows! {
        "serve -p 0 -m 1", "--memory 1m is too small";
        "serve -p 0 -m 1.5KiB", "--memory 1536 is too small";
        "serve -p 0 --flash f:1m", "f is too small: beside its label of 1 MiB it has 0 bytes";
        "serve -p 0 -s d", "cannot listen on d";
        "serve -p 0 --no-flash -P d", "pid file";
        "load -s 127.0.0.1:1 --histograms text", "cannot make the folder text";
        "load -t 100000", "64 connections for 100000 threads";
        "device sim:x25-m --svg d", "d: it is a folder";
        "device sim:x25-m --svg no/x.svg", "there is no folder no";
        "ssd compare seq:count=10 --plot no/x.svg", "there is no folder no";
    } {
        let output = run(SENKO, &folder, args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(why), "{args:?}: {said}");
        assert_eq!(names(&folder), ["d", "text"], "{args:?}");
    }
    assert_eq!(std::fs::read(folder.join("text")).unwrap(), b"hello\n");
}

/// These sentences had a reason of the standard library, named nothing, or gave the reason twice.
#[test]
fn refusals_name_the_value_once() {
    let folder = Scratch::new();
    std::fs::create_dir(folder.join("d")).unwrap();
    for (args, sentence) in rows! {
        "serve --no-flash -l 127.0.0.1:99999",
            "senko: \"99999\" in the address \"127.0.0.1:99999\" is not a port, 0 to 65535";
        "serve -p 0 --no-flash -I 1", "senko: the largest item size (-I) is 1k to 1g, not 1";
        "plan d", "senko: d is a folder, and no trace";
        "ssd run seq:count=10 --profile d", "senko: d: Is a directory (os error 21)";
    } {
        assert_eq!(refused(SENKO, &folder, args), sentence, "{args:?}");
    }
    for (args, words) in [
        (&["device", ""][..], "a value is required for '<TARGET>'"),
        (&["load", "-s", ""], "an empty name is no server"),
    ] {
        let output = run(SENKO, &folder, args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}
