// SPDX-License-Identifier: Apache-2.0
//! The admin listener of a running server: its metrics, their documentation, and misbehaving
//! clients, which must not harm others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use senko_server::settings::{Admission, AdmissionRule, BackendChoice, Budget, TlsMode};

use crate::serve::client::{PATIENCE, Place};
use crate::tls::client::Authority;

/// A server that has every metric.
pub(crate) fn watched(io: BackendChoice, threads: usize) -> Place {
    Place::start(io, threads).restart(|settings| {
        settings.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.rated_writes = Some(1 << 50);
        settings.admission = Admission {
            rule: AdmissionRule::All,
            budget: Some(Budget {
                bytes_per_second: 1 << 30,
                burst: 1 << 40,
            }),
        };
        let folder = settings.flash[0].path.with_file_name("data");
        settings.data_dir = Some(folder);
        settings.reinit = true;
    })
}

pub(crate) fn admin(place: &Place) -> SocketAddr {
    place.server().report().admin.unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    body.to_owned()
}

/// Each sample by its name and labels.
pub(crate) fn samples(address: SocketAddr) -> BTreeMap<String, f64> {
    let text = get(address, "/metrics");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Waits until a sample has this value: workers publish about ten times a second.
fn wait_for(address: SocketAddr, name: &str, wanted: f64) -> BTreeMap<String, f64> {
    let start = Instant::now();
    loop {
        let all = samples(address);
        if all.get(name) == Some(&wanted) {
            return all;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{name} is {:?}, not {wanted}",
            all.get(name)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn count(command: &str, tier: &str) -> String {
    format!("senko_request_duration_seconds_count{{command=\"{command}\",tier=\"{tier}\"}}")
}

#[test]
fn requests_are_counted_by_command_and_tier() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let place = watched(io, 1);
        let address = admin(&place);
        let mut client = place.connect();
        client.store("a", b"1");
        for _ in 0..7 {
            client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
        }
        client.ask("get b c\r\n", "END\r\n");
        client.ask("touch a 0\r\n", "TOUCHED\r\n");
        client.ask("incr a 1\r\n", "2\r\n");
        client.ask("delete b\r\n", "NOT_FOUND\r\n");
        let all = wait_for(address, &count("delete", "dram"), 1.0);
        for (command, tier, wanted) in [
            ("get", "dram", 7.0),
            ("get", "none", 2.0),
            ("get", "flash", 0.0),
            ("set", "dram", 1.0),
            ("touch", "dram", 1.0),
            ("arithmetic", "dram", 1.0),
        ] {
            assert_eq!(all[&count(command, tier)], wanted, "{command} {tier}");
        }
        assert_eq!(
            all["senko_commands_total{command=\"get\",result=\"hit\"}"],
            7.0
        );
        assert_eq!(all["senko_gets_total{tier=\"dram\"}"], 7.0);
        let sum = all["senko_request_duration_seconds_sum{command=\"get\",tier=\"dram\"}"];
        assert!(sum > 0.0 && sum < PATIENCE.as_secs_f64(), "{sum}");
    }
}

#[test]
fn gets_from_flash_and_device_operations_are_timed() {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        let place = watched(io, 1);
        let address = admin(&place);
        let mut client = place.connect();
        let value = vec![b'v'; 4000];
        for n in 0..30_000 {
            client.store(&format!("k{n}"), &value);
        }
        for n in 0..200 {
            client.text(&format!("get k{n}\r\n"), "END\r\n");
        }
        let from_flash = client.stat("flash_hits");
        assert!(from_flash > 0);
        // A worker publishes all its counters at once.
        let all = wait_for(address, "senko_flash_hits_total", from_flash as f64);
        let waited = all[&count("get", "flash")];
        let buffered = all["senko_flash_buffer_hits_total"];
        assert!(
            waited >= from_flash as f64 - buffered && waited <= 200.0,
            "{waited} waited, {from_flash} from flash, {buffered} of write buffers"
        );
        for op in ["read", "write"] {
            let counts: Vec<f64> = all
                .iter()
                .filter(|(name, _)| {
                    name.starts_with("senko_device_duration_seconds_count")
                        && name.ends_with(&format!("op=\"{op}\"}}"))
                })
                .map(|(_, value)| *value)
                .collect();
            assert_eq!(counts.len(), 1);
            // Some may be in flight.
            let submitted: f64 = all
                .iter()
                .filter(|(name, _)| {
                    name.starts_with(&format!("senko_device_operations_total{{op=\"{op}\""))
                })
                .map(|(_, value)| *value)
                .sum();
            assert!(
                counts[0] > 0.0 && counts[0] <= submitted,
                "{counts:?} of {submitted}"
            );
        }
        assert!(all["senko_flash_projected_life_years"] > 0.0);
        assert!(all["senko_flash_write_budget_used_ratio"] > 0.0);
    }
}

#[test]
fn buckets_only_grow_and_end_at_the_count() {
    let place = watched(BackendChoice::Auto, 2);
    let address = admin(&place);
    let mut client = place.connect();
    for n in 0..500 {
        client.store(&format!("k{n}"), b"1");
    }
    wait_for(address, "senko_sets_total", 500.0);
    let text = get(address, "/metrics");
    let mut before: Option<(String, f64)> = None;
    for line in text.lines().filter(|line| line.contains("_bucket{")) {
        let (series, rest) = line.split_once(",le=\"").unwrap();
        let (end, value) = rest.split_once("\"} ").unwrap();
        let value: f64 = value.parse().unwrap();
        if let Some((_, less)) = before.filter(|(name, _)| name == series) {
            assert!(value >= less, "{line}");
        }
        before = (end != "+Inf").then(|| (series.to_owned(), value));
        if end == "+Inf" {
            let count = format!("{}}} {value}", series.replace("_bucket", "_count"));
            assert!(text.contains(&count), "{count}");
        }
    }
}

/// The kind of each metric, by name.
fn families(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

#[test]
fn each_metric_is_documented_and_each_documented_metric_exists() {
    // With a certificate there are metrics of TLS.
    let authority = Authority::new();
    let place = watched(BackendChoice::Auto, 1).restart(|settings| {
        settings.tls = Some(authority.settings());
        settings.tls_modes = vec![(settings.listen[0], TlsMode::Off)];
    });
    let mut client = place.connect();
    let value = vec![b'v'; 4000];
    for n in 0..20_000 {
        client.store(&format!("k{n}"), &value);
    }
    let start = Instant::now();
    let there = loop {
        let there = families(&get(admin(&place), "/metrics"));
        if there.contains_key("senko_flash_projected_life_years") {
            break there;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    let page = include_str!("../../../../docs/cache/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<(String, String)> = rows
        .filter(|row| row.starts_with("senko_"))
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            let kind = rest.split('|').nth(1).unwrap().trim();
            (name.to_owned(), kind.to_owned())
        })
        .collect();
    let there: BTreeSet<(String, String)> = there.into_iter().collect();
    assert_eq!(there, documented);
}

/// The alert rules and the dashboard name only existing metrics.
#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let page = include_str!("../../../../docs/cache/metrics.md");
    let known: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| row.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let rules = include_str!("../../../../contrib/prometheus/senko.rules.yml");
    let dashboard = include_str!("../../../../contrib/grafana/senko.json");
    let mut named = BTreeSet::new();
    for text in [rules, dashboard] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("senko_")).collect();
        assert!(metrics.len() > 5);
        named.extend(
            metrics
                .into_iter()
                .map(|word| word.trim_end_matches("_bucket")),
        );
    }
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Runs promtool; false where it is not installed.
fn promtool(words: &[&str], input: &str) -> bool {
    let tool = Command::new("promtool")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = match tool {
        Ok(tool) => tool,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "promtool: {error}");
            println!("skipped: promtool is not installed");
            return false;
        }
    };
    // A file may be named instead, which the tool then does not read.
    let _ = tool.stdin.take().unwrap().write_all(input.as_bytes());
    let done = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.is_empty(), "{said}");
    true
}

#[test]
fn promtool_checks_the_rules() {
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../contrib/prometheus/senko.rules.yml"
    );
    promtool(&["check", "rules", rules], "");
}

/// Prometheus's own tool has no complaint.
#[test]
fn promtool_checks_the_metrics() {
    let place = watched(BackendChoice::Auto, 2);
    let mut client = place.connect();
    client.store("a", b"1");
    let text = get(admin(&place), "/metrics");
    promtool(&["check", "metrics"], &text);
}

/// Keys that clients choose are listed, and shown as text.
#[test]
fn hot_keys_and_prefixes_are_told() {
    let place = watched(BackendChoice::Auto, 2).restart(|settings| {
        settings.hot_keys = Some(1);
        settings.prefix_delimiter = Some(b':');
    });
    let mut client = place.connect();
    let value = "v".repeat(4000);
    for n in 0..30_000 {
        client.store(&format!("<b>:{n}"), value.as_bytes());
    }
    for n in 0..100 {
        client.text(&format!("get <b>:{n}\r\n"), "END\r\n");
        client.text("get <b>:29999\r\n", "END\r\n");
    }
    let start = Instant::now();
    let listed = loop {
        let listed = client.text("stats hotkeys\r\n", "END\r\n");
        if listed.starts_with("STAT <b>:29999 100\r\n") {
            break listed;
        }
        assert!(start.elapsed() < PATIENCE, "{listed}");
    };
    assert_eq!(listed.lines().count(), 21);
    let told = client.text("stats detail flash\r\n", "END\r\n");
    let words: Vec<&str> = told.lines().next().unwrap().split(' ').collect();
    assert_eq!((words[1], words[3]), ("<b>", "200"));
    let from_flash: u64 = words[7].parse().unwrap();
    assert!(from_flash > 0 && from_flash <= 100, "{told}");
    let page = get(admin(&place), "/");
    assert!(page.contains("<td>&lt;b&gt;:29999</td><td>100</td>"));
    assert!(page.contains("<td>&lt;b&gt;</td><td>200</td>") && !page.contains("<b>"));
    // Off unless requested.
    let place = place.restart(|settings| settings.hot_keys = None);
    place.connect().ask(
        "stats hotkeys\r\n",
        "CLIENT_ERROR hot keys are not sampled: start with --hot-keys\r\n",
    );
}

/// The page is self-contained: it loads nothing, and runs no script.
#[test]
fn the_page_shows_what_the_metrics_count() {
    let place = watched(BackendChoice::Auto, 1);
    let address = admin(&place);
    let mut client = place.connect();
    client.store("a", b"1");
    for _ in 0..300 {
        client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
    client.ask("get b\r\n", "END\r\n");
    wait_for(address, "senko_gets_total{tier=\"none\"}", 1.0);
    let page = get(address, "/");
    for wanted in [
        "<h1>Senko <span class=\"state serving\">serving</span></h1>",
        "DRAM</td><td>99.7 %</td>",
        "nowhere: misses</td><td>0.3 %</td>",
        "in use</span>",
        "cold: ",
        "of the budget of",
    ] {
        assert!(page.contains(wanted), "{wanted} is not in {page}");
    }
    for word in [
        "<script", "http://", "https://", "src=", "href=", "url(", "@import",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    // Large values stand apart, once there are some.
    assert!(!page.contains("Large values"));
    client.store("large", &[b'x'; 100 << 10]);
    client.get("large", &[b'x'; 100 << 10]);
    let all = wait_for(address, "senko_stream_bytes_total", f64::from(100 << 10));
    assert_eq!(all["senko_streams_total"], 1.0);
    let [large, admitted] =
        ["upload", "admitted"].map(|w| all[&format!("senko_flash_{w}_bytes_total")]);
    assert!(large > f64::from(100 << 10) && large == admitted);
    let page = get(address, "/");
    let wanted = "<td>sent</td><td>1</td><td>100 KiB</td><td>1</td><td>100 KiB</td>";
    assert!(page.contains(wanted), "{page}");
}

#[test]
fn watchers_are_told() {
    let place = watched(BackendChoice::Auto, 1);
    let address = admin(&place);
    assert!(!get(address, "/").contains("watchers"));
    let mut watcher = place.connect();
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    let mut client = place.connect();
    client.ask("get nothing\r\n", "END\r\n");
    let line = watcher.text("", "\n");
    let all = wait_for(address, "senko_watcher_sent_bytes_total", line.len() as f64);
    assert_eq!(all["senko_watchers"], 1.0);
    assert_eq!(all["senko_watcher_lines_total"], 1.0);
    assert_eq!(all["senko_watcher_lines_dropped_total"], 0.0);
    let page = get(address, "/");
    let wanted = "1 of 20 watchers; 1 line made since the start, 0 dropped";
    assert!(page.contains(wanted), "{page}");
    drop(watcher);
    wait_for(address, "senko_watchers", 0.0);
}

/// Enough half requests, or scrapers that never read, used to take all connections of the listener.
#[test]
fn others_are_answered_beside_scrapers_that_hang() {
    let place = watched(BackendChoice::Auto, 1);
    let address = admin(&place);
    let mut hanging = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = match n % 3 {
            0 => "GET /metr",
            1 => "",
            // Sends a request, and never reads.
            _ => "GET /metrics HTTP/1.0\r\n\r\n",
        };
        // The listener may have closed this one already, to make room.
        let _ = stream.write_all(request.as_bytes());
        hanging.push(stream);
        if n % 10 == 0 {
            assert_eq!(get(address, "/healthz"), "serving\n");
        }
    }
    assert!(get(address, "/metrics").contains("senko_threads 1"));
    place.connect().store("a", b"1");
    // Hanging clients hold only a limited number of the process's descriptors: the oldest were
    // closed.
    let mut closed = 0;
    for stream in &mut hanging[..80] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // The end of the stream or a reset, but no endless wait.
        match stream.read_to_end(&mut rest) {
            Ok(_) => closed += 1,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                closed += 1;
            }
        }
    }
    assert_eq!(closed, 80);
}

/// Request headers are limited too.
#[test]
fn long_heads_and_other_methods_are_refused() {
    let place = watched(BackendChoice::Auto, 1);
    let address = admin(&place);
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(8180)), "431"),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}
