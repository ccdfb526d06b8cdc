// SPDX-License-Identifier: Apache-2.0
//! `senko serve` from start to its end.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::process::{Running, SENKO, Scratch, ask, has, have, refused, signal, wait_for};

#[test]
fn with_no_arguments_but_a_port_it_makes_its_flash_file_and_says_so() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "-p 0");
    let path = server.start["flash"][0]["path"].as_str().unwrap();
    assert_eq!(path, "senko-data/flash.senko");
    assert_eq!(
        server.start["listen"][0],
        format!("127.0.0.1:{}", server.port)
    );
    assert!(folder.join(path).exists());
    let mut client = server.connect();
    assert_eq!(
        ask(&mut client, "set a 5 0 3\r\nabc\r\n", "\n"),
        "STORED\r\n"
    );
    assert_eq!(
        ask(&mut client, "get a\r\n", "END\r\n"),
        "VALUE a 5 3\r\nabc\r\nEND\r\n"
    );
    let banner = server.stderr(&folder);
    for word in [
        "ready",
        "127.0.0.1:",
        "senko-data/flash.senko",
        "with value and header to 64 MiB",
    ] {
        assert!(banner.contains(word), "{word} is not in\n{banner}");
    }
    let (status, rest) = server.stop();
    assert!(status.success());
    let stop: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(
        (&stop["event"], &stop["clean"]),
        (&"stop".into(), &true.into())
    );
    assert!(stop["seconds"].is_number(), "{stop}");
}

/// The number of shards belongs to a data directory, that of threads to a start.
#[test]
fn the_start_line_tells_shards_that_are_not_as_many_as_threads() {
    let folder = Scratch::new();
    let counts = [
        ("3", "running    3 threads on "),
        ("2", "running    2 threads with 3 shards on "),
    ];
    for (threads, line) in counts {
        let args = "-p 0 -m 64m --no-flash --keep-dram";
        let more = format!("--data-dir data -t {threads}");
        let server = Running::serve(&folder, format!("{args} {more}"));
        assert_eq!(server.start["threads"].to_string(), threads);
        assert_eq!(server.start["shards"], 3);
        let banner = server.stderr(&folder);
        has(&banner, line);
        assert!(server.stop().0.success());
    }
}

#[test]
fn a_second_server_may_not_take_the_same_flash_file() {
    let folder = Scratch::new();
    let first = Running::serve(&folder, "-p 0 --flash f:64m");
    let error = refused(SENKO, &folder, "serve -p 0 --flash f:64m");
    assert!(
        error.contains('f') && error.contains(&first.child.id().to_string()),
        "{error}"
    );
    let port = first.port.to_string();
    let error = refused(SENKO, &folder, format!("serve -p {port} --no-flash"));
    has(&error, &port);
    // The remedy was missing.
    let remedy = format!("--port or --listen name another, and `ss -ltnp sport = :{port}` shows");
    has(&error, &remedy);
    let admin = format!("127.0.0.1:{port}");
    let args = format!("serve -p 0 --no-flash --admin {admin}");
    let error = refused(SENKO, &folder, args);
    has(&error, "--admin names another");
}

/// A password file and a private key of mode 644 were accepted without a word.
#[test]
fn secrets_that_others_may_read_are_told() {
    let folder = Scratch::new();
    let set = |name: &str, mode| {
        let rights = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), rights).unwrap();
    };
    std::fs::write(folder.join("users"), "bob:secret7\n").unwrap();
    set("", 0o755);
    let options = "-p 0 --no-flash -m 64 --auth-file users";
    let told = "every user of this machine can read the password file users: chmod o= users";
    for (mode, warned) in [(0o644, true), (0o640, false)] {
        set("users", mode);
        let server = Running::serve(&folder, &options);
        let banner = server.stderr(&folder);
        assert_eq!(banner.contains(told), warned, "{mode:o}: {banner}");
        assert!(server.stop().0.success());
    }
}

/// Options that broke each other's promise used to be accepted silently. The table in the documents
/// says which combinations are refused and which cause a warning; this test checks all of it.
#[test]
fn options_together_are_refused_or_warned_about_as_documented() {
    let path = "../../docs/cache/options-together.md";
    let text = std::fs::read_to_string(path).unwrap();
    let mut kinds = [0; 3];
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (options, start, message) = (cells[1].trim_matches('`'), cells[2], cells[3]);
        let folder = Scratch::new();
        let args = format!("{options} -p 0");
        if start == "refused" {
            let said = refused(SENKO, &folder, format!("serve {args}"));
            assert!(said.contains(message), "{line}\n{said}");
            kinds[0] += 1;
            continue;
        }
        let server = Running::serve(&folder, &args);
        let said = server.stderr(&folder);
        let warnings = said.lines().filter(|line| line.starts_with("warning: "));
        let warnings: Vec<&str> = warnings.collect();
        match start {
            "warned" => {
                assert_eq!(warnings.len(), 1, "{line}\n{said}");
                assert!(warnings[0].contains(message), "{line}\n{said}");
                kinds[1] += 1;
            }
            "works" => {
                assert!(warnings.is_empty(), "{line}\n{said}");
                kinds[2] += 1;
            }
            other => panic!("{line}: what is {other}?"),
        }
        assert!(server.stop().0.success(), "{line}");
    }
    assert!(kinds.iter().all(|&count| count > 5), "{kinds:?}");
}

/// `-u nobody` with a file that only root can open used to report "Permission denied" without
/// naming the user.
#[test]
fn a_file_that_the_user_may_not_open_is_told_with_the_user() {
    if crate::process::user_args().is_empty() {
        println!("skipped: only root can run a server as somebody else");
        return;
    }
    let folder = Scratch::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let flash = format!("{}:64m", folder.join("f").display());
    let args = format!("serve -p 0 -u nobody --flash {flash}");
    let said = refused(SENKO, &folder, args);
    assert!(said.contains("nobody") && said.contains("/f"), "{said}");
}

/// The recording of a killed server used to be at its final name, as if it were complete.
#[test]
fn a_recording_has_its_name_when_it_is_whole() {
    let folder = Scratch::new();
    for ends_well in [false, true] {
        let args = "-p 0 --flash f:64m --trace t";
        let mut server = Running::serve(&folder, &args);
        assert!(!folder.join("t").exists() && folder.join("t.part").exists());
        if ends_well {
            assert!(server.stop().0.success());
        } else {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
        }
        assert_eq!(folder.join("t").exists(), ends_well);
        // The next start overwrites the partial file of a killed server.
        assert_eq!(folder.join("t.part").exists(), !ends_well);
    }
}

/// `--trace photo.jpg` used to replace the photograph when the server stopped, and
/// `--trace /dev/full` the device. `FILE.part` was removed, whatever it was.
#[test]
fn a_recording_takes_the_place_of_recordings_only() {
    let folder = Scratch::new();
    let flash = "serve -p 0 --flash f:64m --trace";
    for name in ["t", "t.part"] {
        std::fs::write(folder.join(name), "precious").unwrap();
        let said = refused(SENKO, &folder, format!("{flash} t"));
        let words = format!("{name} is another program's file");
        has(&said, &words);
        let left = std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(left, "precious");
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status();
    assert!(made.unwrap().success());
    let bench = "store bench b.kv -n 1 --trace";
    for command in [flash, bench] {
        for (name, what) in [("pipe", "not a regular file"), (".", "not a regular file")] {
            let said = refused(SENKO, &folder, format!("{command} {name}"));
            has(&said, what);
        }
    }
    assert!(!folder.join("pipe.part").exists() && !folder.join("b.kv").exists());
}

/// `cache_memlimit 64` used to fail in a server that was started with `-m 64m`: a lowered limit
/// could not be raised again. Lowered and raised again, the server holds as many items as before.
#[test]
fn memory_goes_down_and_up_again() {
    let folder = Scratch::new();
    for threads in ["1", "3"] {
        let args = format!("-p 0 --no-flash -m 64m -t {threads}");
        let server = Running::serve(&folder, &args);
        let mut client = server.connect();
        let stat = |client: &mut std::net::TcpStream, name: &str| -> u64 {
            let stats = ask(client, "stats\r\n", "END\r\n");
            let start = format!("STAT {name} ");
            let mut lines = stats.lines();
            let value = lines.find_map(|line| line.strip_prefix(&start)).unwrap();
            value.parse().unwrap()
        };
        let mut key = 0;
        let mut fill = |client: &mut std::net::TcpStream| {
            for _ in 0..1500 {
                key += 1;
                let set = format!("set k{key} 0 0 50000\r\n{}\r\n", "v".repeat(50_000));
                assert_eq!(ask(client, &set, "\n"), "STORED\r\n");
            }
            stat(client, "curr_items")
        };
        let limit = stat(&mut client, "limit_maxbytes");
        let before = fill(&mut client);
        assert_eq!(ask(&mut client, "cache_memlimit 16\r\n", "\n"), "OK\r\n");
        assert_eq!(stat(&mut client, "limit_maxbytes"), 16 << 20);
        // The other threads learn of it a little later.
        while fill(&mut client) > before * 2 / 3 {}
        let more = ask(&mut client, "cache_memlimit 65\r\n", "\n");
        assert!(more.starts_with("MEMLIMIT_ADJUST_FAILED"), "{more}");
        assert_eq!(ask(&mut client, "cache_memlimit 64\r\n", "\n"), "OK\r\n");
        assert_eq!(stat(&mut client, "limit_maxbytes"), limit);
        while fill(&mut client) < before * 9 / 10 {}
        assert!(server.stop().0.success());
    }
}

#[test]
fn a_unix_socket_alone() {
    let folder = Scratch::new();
    let server = Running::serve(&folder, "--no-flash -s sock -a 700");
    assert!(server.start["listen"].as_array().unwrap().is_empty());
    let path = folder.join("sock");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"version\r\nquit\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("VERSION "), "{text}");
    let (status, _) = server.stop();
    assert!(status.success() && !path.exists());
}

#[test]
fn options_from_a_file() {
    let folder = Scratch::new();
    let toml = "port = 0\nmemory = '64m'\nthreads = 2\nflash = ['a:64m', 'b:64m']\nmax-item-size = '2m'\npidfile = 'pid'\n";
    std::fs::write(folder.join("c.toml"), toml).unwrap();
    let server = Running::serve(&folder, "--config c.toml -t 1 --io posix");
    assert_eq!(server.start["threads"], 1);
    assert_eq!(server.start["io"], "posix");
    assert_eq!(server.start["memory"], 64 << 20);
    assert_eq!(server.start["max_item"], 2 << 20);
    assert_eq!(server.start["flash"].as_array().unwrap().len(), 2);
    let pid = std::fs::read_to_string(folder.join("pid")).unwrap();
    assert_eq!(pid.trim(), server.child.id().to_string());
    let (status, _) = server.stop();
    assert!(status.success() && !folder.join("pid").exists());
}

/// `timeout`, and supervisors that signal a group, send two stop signals within milliseconds. The
/// second one used to end the server before it had saved the items of DRAM, without a line.
#[test]
fn two_signals_at_once_are_one_request_to_stop() {
    let folder = Scratch::new();
    let args = "-p 0 -m 64 --flash f:64m --data-dir d --keep-dram";
    let mut server = Running::serve(&folder, &args);
    signal(server.child.id(), "HUP");
    let mut client = server.connect();
    for n in 0..1000 {
        let set = format!("set k{n} 0 0 4\r\nabcd\r\n");
        assert_eq!(ask(&mut client, &set, "\n"), "STORED\r\n");
    }
    signal(server.child.id(), "TERM");
    for _ in 0..3 {
        // It may have ended by itself before.
        let _ = Command::new("kill")
            .args(["-TERM", &server.child.id().to_string()])
            .status();
    }
    let status = wait_for(|| server.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    let server = Running::serve(&folder, &args);
    let mut client = server.connect();
    let got = ask(&mut client, "get k0 k999\r\n", "END\r\n");
    assert_eq!(got.matches("VALUE").count(), 2, "{got}");
    assert_eq!(server.start["warm"]["dram_items"], 1000);
}

/// A flipped byte of the saved items costs all items behind it. The log said "1 parts of the saved
/// files were damaged", and not that 500 of 1000 items were lost.
#[test]
fn a_start_says_how_many_saved_items_it_lost() {
    let folder = Scratch::new();
    let args = "-t 1 -p 0 -m 64 --flash f:64m --data-dir d --keep-dram";
    let fill = |server: &Running| {
        let mut client = server.connect();
        for n in 0..1000 {
            let set = format!("set k{n} 0 0 4\r\nabcd\r\n");
            assert_eq!(ask(&mut client, &set, "\n"), "STORED\r\n");
        }
    };
    let items = folder.join("d/items-0.senko");
    let server = Running::serve(&folder, args);
    fill(&server);
    assert!(server.stop().0.success());
    let mut bytes = std::fs::read(&items).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&items, &bytes).unwrap();
    let server = Running::serve(&folder, args);
    let warm = &server.start["warm"];
    let lost = warm["lost"].as_u64().unwrap();
    assert_eq!(warm["dram_items"].as_u64().unwrap() + lost, 1000, "{warm}");
    assert!((400..600).contains(&lost), "{warm}");
    let said = server.stderr(&folder);
    has(&said, "the saved files are damaged in 1 place");
    has(&said, &format!("lost {lost} items of DRAM, which"));
    // The whole file is gone.
    fill(&server);
    assert!(server.stop().0.success());
    std::fs::remove_file(&items).unwrap();
    let server = Running::serve(&folder, args);
    assert_eq!(server.start["warm"]["lost"], 1000);
    has(&server.stderr(&folder), "lost 1000 items of DRAM, which");
}

/// The directory and its flash file are put back as they were at an earlier start, as by a snapshot
/// of their volume, and shared memory is not. The start used to say that all items were back.
#[test]
fn memory_of_a_later_start_is_not_taken() {
    let folder = Scratch::new();
    let args = "-t 1 -p 0 -m 64 --flash f:64m --data-dir d";
    let copied = |from: &str, to: &str| {
        for name in ["f", "d/super.senko"] {
            let name = |place: &str| folder.join(&format!("{place}{name}"));
            std::fs::copy(name(from), name(to)).unwrap();
        }
    };
    std::fs::create_dir_all(folder.join("old/d")).unwrap();
    for n in 0..3 {
        let mut server = Running::serve(&folder, args);
        // What was in DRAM alone is found, and does not outlive a kill.
        let warm = &server.start["warm"];
        assert_eq!(warm["dropped"], u64::from(n > 0), "{warm}");
        assert!(warm["why_empty"].is_null(), "{warm}");
        let mut client = server.connect();
        let set = format!("set k{n} 0 0 4\r\nabcd\r\n");
        assert_eq!(ask(&mut client, &set, "\n"), "STORED\r\n");
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        if n == 1 {
            copied("", "old/");
        }
    }
    copied("old/", "");
    let server = Running::serve(&folder, args);
    assert_eq!(server.start["warm"]["dropped"], 0);
    let why = server.start["warm"]["why_empty"].as_str().unwrap();
    has(why, "the directory is an older copy");
    has(&server.stderr(&folder), why);
}

/// A second signal used to end the server without a word and with the code of a failed start, and
/// left its pid file and its Unix socket behind.
#[test]
fn a_stop_that_is_cut_short_says_so() {
    let folder = Scratch::new();
    let args = "-p 0 --no-flash -s sock -P pid";
    let mut server = Running::serve(&folder, &args);
    // The stop waits for this client, which reads none of its answers.
    let mut client = server.connect();
    let value = "v".repeat(1_000_000);
    let set = format!("set k 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(ask(&mut client, &set, "\n"), "STORED\r\n");
    client.write_all(&b"get k\r\n".repeat(100)).unwrap();
    let status = wait_for(|| {
        let _ = Command::new("kill")
            .args(["-TERM", &server.child.id().to_string()])
            .status();
        server.child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(128 + 15));
    let said = server.stderr(&folder);
    has(&said, "the stop was cut short by SIGTERM");
    assert!(!folder.join("pid").exists() && !folder.join("sock").exists());
    let rest = server.rest();
    let stop: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(stop["clean"], false, "{rest}");
}

/// A start that failed used to remove the pid file of another server, and so did the end of a
/// server after another one had written its number there.
#[test]
fn a_pid_file_names_the_server_that_runs() {
    let folder = Scratch::new();
    let read = || std::fs::read_to_string(folder.join("pid")).unwrap();
    let number = |server: &Running| format!("{}\n", server.child.id());
    let first = Running::serve(&folder, "-p 0 --no-flash -P pid");
    assert_eq!(read(), number(&first));
    let other = "serve -p 0 --flash /no/such/folder/f:64m -P pid";
    refused(SENKO, &folder, &other);
    assert_eq!(read(), number(&first));
    let second = Running::serve(&folder, "-p 0 --no-flash -P pid");
    assert_eq!(read(), number(&second));
    assert!(first.stop().0.success());
    assert_eq!(read(), number(&second));
    assert!(second.stop().0.success());
    assert!(!folder.join("pid").exists());
}

/// The start's lines named the addresses alone, although one may ask for a password and another
/// not.
#[test]
fn the_start_tells_the_terms_of_each_listener() {
    let folder = Scratch::new();
    std::fs::write(folder.join("users"), "a:b\n").unwrap();
    let listen = "127.0.0.1:0,noauth:proto[ascii]:127.0.0.2:0";
    let args = format!("--no-flash -l {listen} -Y users");
    let server = Running::serve(&folder, &args);
    let doors = &server.start["doors"];
    assert_eq!(
        (&doors[0]["password"], &doors[1]["password"]),
        (&true.into(), &false.into())
    );
    assert_eq!(
        (&doors[0]["tls"], &doors[1]["protocol"]),
        (&false.into(), &"ascii".into())
    );
    let said = server.stderr(&folder);
    let line = said
        .lines()
        .find(|line| line.contains("listening"))
        .unwrap();
    assert!(
        line.contains(" (password), 127.0.0.2:") && line.ends_with(" (ascii only)"),
        "{line}"
    );
}

/// A core dump has requests, answers, passwords and keys of TLS. So none is written unless it is
/// asked for.
#[test]
fn no_core_is_dumped_unless_asked_for() {
    let folder = Scratch::new();
    for (args, wanted) in [
        ("-p 0 --no-flash", false),
        ("-p 0 --no-flash --core-dumps", true),
    ] {
        let server = Running::serve(&folder, args);
        let limits =
            std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        let numbers: Vec<&str> = line.split_whitespace().skip(4).take(2).collect();
        match wanted {
            false => assert_eq!(numbers[0], "0", "{line}"),
            true => assert_eq!(numbers[0], numbers[1], "{line}"),
        }
    }
}

/// `verbosity 1` was answered with OK, and `stats settings` had the 1, but the log stayed as it
/// was.
#[test]
fn the_verbosity_command_changes_the_log() {
    for format in ["text", "json"] {
        let folder = Scratch::new();
        let server = Running::serve(&folder, format!("-p 0 --no-flash --log-format {format}"));
        let mut client = server.connect();
        let mut set = |level: u32| {
            assert_eq!(
                ask(&mut client, &format!("verbosity {level}\r\n"), "\n"),
                "OK\r\n"
            );
            let shown = ask(&mut client, "stats settings\r\n", "END\r\n");
            has(&shown, &format!("STAT verbosity {level}\r\n"));
        };
        set(1);
        signal(server.child.id(), "HUP");
        wait_for(|| server.stderr(&folder).contains("SIGHUP: ").then_some(()));
        set(0);
        assert!(server.stop().0.success());
        let said = std::fs::read_to_string(folder.join("stderr")).unwrap();
        assert!(!said.contains("SIGTERM: "), "{said}");
    }
}

#[test]
fn the_shutdown_command_ends_it_when_allowed() {
    let folder = Scratch::new();
    let mut server = Running::serve(&folder, "-p 0 --no-flash -A");
    server.connect().write_all(b"shutdown\r\n").unwrap();
    let status = wait_for(|| server.child.try_wait().unwrap());
    assert!(status.success());
}

#[test]
fn memccapable() {
    if !have("memccapable") {
        return;
    }
    for (io, threads) in [("auto", "1"), ("posix", "3")] {
        let folder = Scratch::new();
        let server = Running::serve(
            &folder,
            &format!("-p 0 --flash f:64m -m 128 --io {io} -t {threads}"),
        );
        // The name of a failure and its mark go to different streams.
        let done = Command::new("sh")
            .args([
                "-c",
                "exec memccapable \"$@\" 2>&1",
                "sh",
                "-h",
                "127.0.0.1",
                "-p",
                &server.port.to_string(),
                "-t",
                "300",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        let failed: Vec<&str> = text
            .lines()
            .filter_map(|line| Some(line.strip_suffix("[FAIL]")?.trim_end()))
            .collect();
        // The tool expects `delete k 10` to be refused. memcached 1.6.45 ignores the 10 too.
        assert_eq!(
            failed,
            ["ascii delete", "ascii delete noreply"],
            "{io} {threads}: {text}"
        );
        let passed = text.matches("[pass]").count();
        assert!(passed >= 50, "{io} {threads}: {text}");
    }
}
