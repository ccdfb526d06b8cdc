// SPDX-License-Identifier: Apache-2.0
//! `senko-lab` from outside, and the machinery of its experiments against a real server, with small
//! sizes; speed is not judged.

use senko_lab::kv::plan::{self, Home, Plan};
use senko_lab::kv::protocol::Request;
use senko_lab::kv::{Amount, Durability, OURS};
use senko_lab::rig::cleanup::is_alive;
use senko_lab::rig::wire::Client;
use senko_lab::rig::{Bench, Items, Load, traffic};
use senko_lab::{Options, Outcome};
use senko_workload::KeySpace;

use crate::process::{Running, Scratch, command, options, refused, run};

#[test]
fn experiments_are_listed() {
    let folder = Scratch::new();
    let output = run(&folder, &["list", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].to_string())
        .collect();
    assert!(names.contains(&"\"serve-flash-get\"".to_owned()), "{text}");
    assert!(names.len() >= 7, "{text}");
    // Lines of 250 letters were broken inside words by a terminal of 80 columns.
    let text = String::from_utf8(run(&folder, &["list"]).stdout).unwrap();
    let wide = text.lines().find(|line| line.chars().count() > 80);
    assert!(
        wide.is_none() && text.contains("serve-flash-get"),
        "{wide:?}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let folder = Scratch::new();
    let text = refused(
        &folder,
        &["run", "serve-cores", "--scratch", "/no/such/folder"],
    );
    // On a machine with one core the reason is another.
    assert!(
        text.contains("--scratch") || text.contains("core"),
        "{text}"
    );
}

/// Experiments that measured nothing used to end with 0.
#[test]
fn an_experiment_without_a_figure_is_not_0() {
    let folder = Scratch::new();
    let args = ["run", "endurance-table1", "--quick", "--traces", "none"];
    let output = run(&folder, &args);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let last = told.lines().last().unwrap();
    assert!(last.contains("no figure of endurance-table1"), "{told}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        out.contains("missing ") && out.contains("RESULT {"),
        "{out}"
    );
}

/// Ctrl-C used to leave 21 MB in the scratch folder, and no measured figure was printed. Each
/// experiment is stopped when its first step is reported.
#[test]
fn ctrl_c_prints_the_figures_and_leaves_nothing() {
    // An experiment in memory, one with its own files, and one with servers.
    for (name, scale) in [
        ("ssd-closed-form", None),
        ("thesis-blocks", Some("--quick")),
        ("serve-memory", Some("--quick")),
    ] {
        let folder = Scratch::new();
        let mut args = vec!["run", name, "--json", "--scratch", "."];
        args.extend(scale.into_iter().chain(["--results", "/dev/null"]));
        let mut run = Running::start(&folder, &args);
        if !run.until(|said| said.contains("[1/")) {
            eprintln!("skipped {name}: {}", run.said);
            continue;
        }
        assert!(run.said.contains(" %, about "), "{}", run.said);
        let (code, out, said) = run.stop("INT");
        assert_eq!(code, Some(130), "{name}: {said}");
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["experiment"], name);
        assert_eq!(line["stopped"], true, "{line}");
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{name} left {left:?}");
    }
}

/// An hour's run that was stopped after nine of its ten rounds used to print no figure, because
/// figures were computed only at its end.
#[test]
fn a_stopped_run_has_the_figures_of_its_whole_rounds() {
    let folder = Scratch::new();
    let args = ["run", "dbm-random", "--quick", "--json", "--scratch", "."];
    let results = ["--results", "/dev/null"];
    let mut run = Running::start(&folder, &[&args[..], &results].concat());
    if !run.until(|said| said.contains(": round 2: ")) {
        eprintln!("skipped: {}", run.said);
        return;
    }
    let (_, out, _) = run.stop("INT");
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(line["stopped"], true, "{line}");
    assert!(line["bars"]["space_over_live"].as_f64().unwrap() > 0.0);
}

fn bench(options: &Options) -> Option<Bench<'_>> {
    let opened = Bench::open(options);
    let opened = opened.inspect_err(|error| eprintln!("skipped: {error:#}"));
    opened.ok()
}

#[test]
fn a_window_counts_what_the_server_did() {
    let Some(options) = options() else { return };
    let Some(bench) = bench(&options) else { return };
    let items = Items::fixed(30_000, 16, 1000);
    let path = bench.scratch.path("test.flash");
    let server = bench.on_flash("test", 32 << 20, 128 << 20);
    let server = server.start(&bench.scratch).unwrap();
    let filled = traffic::fill_fast(&bench, &server, &items).unwrap();
    assert_eq!(filled.step.counts.stored, items.keys);

    // A disk that is busy with other work may have been taken out of use for a moment. Items that
    // it did not take in time may have been dropped.
    let disturbed = || {
        let stats = server.stats().unwrap();
        stats["flash_device_outages"] + stats["flash_drops_busy"] > 0.0
    };
    let before = disturbed();
    let window =
        traffic::measure_requests(&bench, &server, &items, &Load::gets(8), 20_000).unwrap();
    assert_eq!(window.step.counts.requests, 20_000);
    let flash = window.flash_hits();
    if !before && !disturbed() {
        assert_eq!(window.found(), 1.0);
        assert!(flash > 5_000.0, "{flash} hits came from flash");
    }
    assert!(window.server_us() > 0.0 && window.load_us() > 0.0);
    if let Some(io) = window.io {
        // Each is a read of one page, and nothing else is read. All of it reached the device, or a
        // cache below the kernel's count.
        let pages = io.read as f64 / 4096.0;
        assert!(pages >= flash * 0.99, "{pages} pages for {flash} hits");
    }

    let keys = KeySpace::new(items.prefix, items.key, items.keys).unwrap();
    let mut client = Client::connect(server.address).unwrap();
    let deleted = client
        .for_keys("delete", "", "DELETED", &keys, 0..1000)
        .unwrap();
    assert_eq!(deleted, 1000);
    server.reset_stats().unwrap();
    assert_eq!(server.stats().unwrap()["cmd_get"], 0.0);

    let pid = server.pid();
    assert!(is_alive(pid));
    drop(server);
    assert!(!is_alive(pid) && !path.exists());
    let folder = bench.scratch.folder().to_owned();
    drop(bench);
    assert!(!folder.exists());
}

/// A store in its own process, driven over pipes; the puts that it reported survive a kill.
#[test]
fn a_worker_is_driven_and_killed() {
    let Some(options) = options() else { return };
    let Some(bench) = bench(&options) else { return };
    let mut plan = Plan::new(&bench, &mut Outcome::new(), 20_000, 200, 2.0)
        .unwrap()
        .durable(Durability::Kill);
    plan.tuning.block_bytes = 1 << 20;
    let home = Home::new(&bench, "store");
    let (mut session, opened) = plan::start(&bench, OURS, &home, &plan, None).unwrap();
    assert!(opened.file.is_some() && opened.deep_from_one_thread);
    let mut fill = plan.fill(0, plan.keys(), 1);
    fill.batch = 50;
    let filled = session.fill_and_settle(&fill).unwrap();
    assert_eq!(filled.worked.puts, plan.keys());
    let mut gets = plan.gets(0.0, 2);
    gets.amount = Amount::Ops(5000);
    let step = session.work(&plan::at_depth(&opened, gets)).unwrap();
    assert_eq!((step.worked.gets, step.worked.found), (5000, 5000));
    assert!(step.memory.resident > 0 && home.bytes() > plan.tuning.live_bytes());
    let (keys, shape) = (plan.keys(), plan.shape);
    let pid = session.pid();
    let writes = Request::WriteUntilKilled { keys, shape };
    let reached = session
        .write_and_kill(&writes, |reached| reached >= 3000)
        .unwrap();
    assert!(reached >= 3000 && !is_alive(pid));
    let (mut session, opened) = plan::start(&bench, OURS, &home, &plan, Some(0)).unwrap();
    assert!(opened.first_get_seconds.is_some());
    let check = Request::CheckReached {
        keys,
        shape,
        reached,
        back: reached,
    };
    assert_eq!(
        session.check(&check).unwrap().worked.found,
        reached.min(keys)
    );
    session.close().unwrap();
}

/// Options that do nothing without another one, 0 minutes, and a loop of links as the results: the
/// last used to be "there are no results".
#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let folder = Scratch::new();
    std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
    for (args, reason) in [
        (&["run", "--all", "--minutes", "0"][..], "leaves no time"),
        (
            &["report", "--results", "loop"],
            "Too many levels of symbolic links",
        ),
    ] {
        let told = refused(&folder, args);
        assert!(told.contains(reason), "{args:?}: {told}");
    }
    let output = run(&folder, &["run", "dbm-floor", "--minutes", "5"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// `report --results F --output F` wrote the page over the results, under any name of the file.
#[test]
fn a_page_does_not_take_the_place_of_its_results() {
    let folder = Scratch::new();
    let path = folder.join("results");
    let record = "{\"experiment\":\"ftl-table2\",\"bars\":{\"page_mib\":126.6},\"tables\":[],\
                  \"missing\":{},\"time\":1700000000}\n";
    std::fs::write(&path, record).unwrap();
    std::fs::hard_link(&path, folder.join("results.second")).unwrap();
    std::os::unix::fs::symlink("results", folder.join("results.link")).unwrap();
    for output in ["./results", "./results.second", "./results.link"] {
        for args in [
            ["report", "--results", "results", "--output", output],
            ["report", "--results", output, "--output", "results"],
        ] {
            let told = refused(&folder, &args);
            assert!(told.contains("would overwrite it"), "{args:?}: {told}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), record, "{args:?}");
        }
    }
}

/// A reader that leaves ends a command quietly, and a full disk behind stdout is an error.
#[test]
fn results_that_nobody_takes_are_noticed() {
    let folder = Scratch::new();
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let gone = command(&folder, &["list"]).stdout(write).output().unwrap();
    assert_eq!(gone.status.code(), Some(141), "{gone:?}");
    assert!(gone.stderr.is_empty(), "{gone:?}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let full = command(&folder, &["list"]).stdout(full.unwrap()).output();
    let full = full.unwrap();
    let told = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write to stdout"), "{told}");
}

/// The README showed lines of a run as they had been once.
#[test]
fn the_readme_shows_what_a_run_prints() {
    let readme = std::fs::read_to_string("../../README.md").unwrap();
    let (_, shown) = readme.split_once("$ senko-lab run ftl-table2\n").unwrap();
    let lines: Vec<&str> = shown
        .lines()
        .map_while(|l| l.strip_prefix("    "))
        .collect();
    assert!(lines.len() > 3, "{lines:?}");
    let output = run(&Scratch::new(), &["run", "ftl-table2"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in lines.into_iter().filter(|line| *line != "...") {
        assert!(printed.lines().any(|it| it == line), "{line}\n{printed}");
    }
}
