// SPDX-License-Identifier: Apache-2.0
//! `senko-lab report`: the page in a browser, and `senko-lab run --all` from outside.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{Scratch, command, refused, run, signal};

/// Debian's name of the browser.
const BROWSER: &str = "chromium";

/// A page after the browser has run it, and the lines of its console.
fn browse(page: &Path, width: u32, folder: &Scratch) -> Option<(String, String)> {
    let profile = folder.join("browser");
    let output = Command::new(BROWSER)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        // Any network request fails, and the console reports it.
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},900"))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "{BROWSER}: {error}");
            eprintln!(
                "skipped: {BROWSER} can't be started ({error}); cargo xtask setup installs it"
            );
            return None;
        }
    };
    let told = String::from_utf8_lossy(&output.stderr);
    let console = told.lines().filter(|line| line.contains("CONSOLE"));
    let console: Vec<&str> = console.collect();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("</html>"), "the browser said: {told}");
    Some((page, console.join("\n")))
}

/// Appended to a copy of the page, without the policy that forbids scripts: counts the visible
/// elements.
const LOOK: &str = "<pre id=\"seen\"></pre><script>\
const all=[...document.querySelectorAll('figure svg')];\
const good=all.filter(svg=>{const box=svg.getBoundingClientRect();\
return box.width>300&&box.height>50&&svg.querySelectorAll('rect[class^=b],circle,path.sk-l,path.sk-p').length>0\
&&getComputedStyle(svg.querySelector('text')).fill!==getComputedStyle(svg.querySelector('.sk-bg')).fill});\
document.getElementById('seen').textContent='SEEN '+all.length+' '+good.length+' '+\
(document.documentElement.scrollWidth<=window.innerWidth)+' END'</script>";

#[test]
fn the_page_is_whole_in_a_browser() {
    let folder = Scratch::new();
    for name in ["ftl-table2", "transfer-predict", "thesis-misses"] {
        let args = ["run", name, "--quick", "--results", "results.jsonl"];
        let output = run(&folder, &args);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("RESULT {"));
    }
    let args = [
        "report",
        "--results",
        "results.jsonl",
        "--output",
        "page.html",
        "--json",
    ];
    let output = run(&folder, &args);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&line["experiments"], &line["runs"]),
        (&3.into(), &3.into()),
        "{line}"
    );
    let figures = line["figures_in_report"].as_u64().unwrap();
    assert!(figures >= 10, "{line}");

    let page = folder.join("page.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("default-src 'none'") && !text.contains("<script"));
    assert!(
        text.contains("senko-lab run store-gets --quick"),
        "a gap says how to fill it"
    );
    // Paper B's standard deviations stand beside ours, with a verdict.
    assert!(text.contains("85.0 us to 35.6") && text.contains("deviation 2 over 1 0."));
    assert!(text.contains(">contradicted<") && text.contains("not decided: not run"));
    let Some((_, console)) = browse(&page, 1200, &folder) else {
        return;
    };
    assert_eq!(console, "");
    let policy = text.find("<meta http-equiv").unwrap();
    let end = policy + text[policy..].find('\n').unwrap();
    let looked = format!("{}{}", &text[..policy], &text[end..])
        .replace("</body>", &format!("{LOOK}</body>"));
    let copy = folder.join("looked.html");
    std::fs::write(&copy, looked).unwrap();
    for width in [1200, 500] {
        let (seen, console) = browse(&copy, width, &folder).unwrap();
        assert_eq!(console, "");
        let wanted = format!("SEEN {figures} {figures} true END");
        assert!(
            seen.contains(&wanted),
            "{width}: {:?}",
            seen.split("SEEN").nth(1)
        );
    }
}

#[test]
fn without_results_the_report_says_how_to_get_them() {
    let folder = Scratch::new();
    let text = refused(&folder, &["report", "--results", "none.jsonl"]);
    assert!(text.contains("senko-lab run --all --quick"), "{text}");
    assert!(!folder.join("senko-lab.html").exists());
}

/// The page of a file of damage was made, without a single result.
#[test]
fn a_file_without_results_is_no_report() {
    let folder = Scratch::new();
    for text in ["", "{broken\n\n[1]\n"] {
        std::fs::write(folder.join("r.jsonl"), text).unwrap();
        let args = ["report", "--results", "r.jsonl", "--output", "page.html"];
        let output = run(&folder, &args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("there are no results in r.jsonl"), "{told}");
        assert!(!folder.join("page.html").exists());
    }
}

/// A run of an hour ended with the message that its results cannot be written.
#[test]
fn results_that_cannot_be_written_are_told_before_the_run() {
    let folder = Scratch::new();
    for args in [
        &["run", "ftl-table2", "--quick", "--results", "."][..],
        &["run", "--all", "--quick", "--results", "."],
    ] {
        let output = run(&folder, args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(
            told.trim(),
            "senko-lab: cannot append the results to .: Is a directory (os error 21)"
        );
    }
}

/// The message was a list of 52 names.
#[test]
fn a_wrong_name_leads_to_the_right_one() {
    let folder = Scratch::new();
    let told = refused(&folder, &["run", "ftl-tabel2"]);
    assert!(told.contains("is ftl-table2 meant?"), "{told}");
    assert!(!told.contains("store-open"), "{told}");
}

/// An experiment that cannot run is a gap in the results, with its reason.
#[test]
fn what_cannot_run_leaves_its_reason() {
    let folder = Scratch::new();
    let args = [
        "run",
        "store-open",
        "--scratch",
        "/no/such/folder",
        "--results",
        "results.jsonl",
    ];
    let output = run(&folder, &args);
    assert_eq!(output.status.code(), Some(1));
    let line = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!(line["experiment"], "store-open");
    assert!(
        line["missing"]["everything"]
            .as_str()
            .unwrap()
            .contains("--scratch"),
        "{line}"
    );
}

/// If it is stopped in the middle of all experiments, only results are left.
#[test]
fn all_experiments_are_stopped_together() {
    let folder = Scratch::new();
    let mut child = command(&folder, &[])
        .args([
            "run",
            "--all",
            "--quick",
            "--scratch",
            ".",
            "--results",
            "results.jsonl",
        ])
        .args(["--traces", "none"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    // Until the second experiment is at its first step, or could not begin and the third is named.
    let reached = |said: &str| {
        let mut lines = said.lines().skip_while(|line| !line.starts_with("[2/"));
        lines.next().is_some() && lines.any(|line| line.contains(" s [") || line.starts_with("[3/"))
    };
    while !reached(&said) {
        assert!(told.read_line(&mut said).unwrap() > 0, "{said}");
    }
    signal(child.id(), "TERM");
    told.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{said}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("dram-policy"), "{out}");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["results.jsonl"], "{said}");
}
