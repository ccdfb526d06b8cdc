// SPDX-License-Identifier: Apache-2.0
//! Called by the name memcached.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::process::{
    Running, Scratch, Words, ask, connect, has, port_in, refused, run, signal, user_args, wait_for,
};

#[test]
fn what_scripts_look_for() {
    let folder = Scratch::new();
    let output = run(folder.memcached(), &folder, "-V");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace();
    assert_eq!(words.next(), Some("memcached"));
    assert!(words.next().unwrap().starts_with("1.6."));
    let output = run(folder.memcached(), &folder, "-h");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.starts_with("memcached 1.6."),
        "{text}"
    );
    for word in [
        "ext_path",
        "unix-socket",
        "--memory-limit",
        "--enable-sasl",
        "--enable-ssl",
        "MEMCACHED_PORT_FILENAME",
    ] {
        assert!(text.contains(word), "{word}");
    }
    // memcached's own test harness relies on these words.
    assert!(!text.contains("proxy_config"));
}

#[test]
fn refusals_have_memcacheds_exit_codes() {
    let folder = Scratch::new();
    // An unknown option, and a number that must not be 0, used to end with 64, too.
    for (args, code) in [
        ("-S", 64),
        ("-Y file", 64),
        ("-Z", 64),
        ("--enable-ssl", 64),
        ("-U 11211", 64),
        ("-Q", 1),
        ("-o nonsense", 1),
        ("-t 0", 1),
        ("-c 0", 1),
        ("-R 0", 1),
        ("-p 0", 64),
        ("-o ssl_key=x", 64),
    ] {
        let sentence = refused(folder.memcached(), &folder, args);
        assert!(!sentence.is_empty());
        assert_eq!(
            run(folder.memcached(), &folder, args).status.code(),
            Some(code),
            "{args:?}"
        );
    }
    if !user_args().is_empty() {
        assert!(
            refused(folder.memcached(), &folder, "-p -1")
                .contains("can't run as root without the -u switch")
        );
        let output = run(folder.memcached(), &folder, "-p -1 -u no-such-user");
        assert_eq!(output.status.code(), Some(67));
    }
}

#[test]
fn a_service_files_command_line_serves() {
    let folder = Scratch::new();
    let args = "-p -1 -U 0 -m64 -c 256 -t2 -l 127.0.0.1 -P pid -f1.1 -o modern,hashpower=20 -vC";
    let server = Running::memcached(&folder, &args);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "set k 0 0 1\r\nx\r\n", "\n"), "STORED\r\n");
    assert!(ask(&mut client, "get k\r\n", "END\r\n").contains("\r\nx\r\n"));
    let stats = ask(&mut client, "stats settings\r\n", "END\r\n");
    assert!(
        stats.contains("STAT maxconns 256\r\n") && stats.contains("STAT cas_enabled no\r\n"),
        "{stats}"
    );
    let warnings = server.stderr(&folder);
    let warning: Vec<&str> = warnings
        .lines()
        .filter(|l| l.starts_with("warning:"))
        .collect();
    assert_eq!(warning.len(), 1, "{warnings}");
    assert!(warning[0].contains("-f") && warning[0].contains("hashpower"));
    wait_for(|| std::fs::read_to_string(folder.join("pid")).ok());
    let (status, _) = server.stop();
    assert!(status.success());
    assert!(!folder.join("senko-data").exists() && !folder.join("pid").exists());
}

#[test]
fn the_background() {
    let folder = Scratch::new();
    let (pid, ports) = (folder.join("pid"), folder.join("ports"));
    let output = std::process::Command::new(folder.memcached())
        .args(user_args())
        .args("-d -p -1 -l 127.0.0.1 -P pid -o ext_path=flash:64m".words())
        .env("MEMCACHED_PORT_FILENAME", &ports)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // The server was ready when the command returned.
    let pid_text = std::fs::read_to_string(&pid).unwrap();
    let port = port_in(&std::fs::read_to_string(&ports).unwrap());
    assert_eq!(ask(&mut connect(port), "mn\r\n", "\n"), "MN\r\n");
    signal(pid_text.trim().parse().unwrap(), "TERM");
    wait_for(|| (!pid.exists()).then_some(()));

    // A failure in the background is reported, also in the exit code.
    let error = refused(
        folder.memcached(),
        &folder,
        [user_args(), &"-d -p -1 -o ext_path=no/folder/f:64m".words()].concat(),
    );
    has(&error, "no/folder/f");
}

#[test]
fn a_unix_socket_turns_tcp_off() {
    let folder = Scratch::new();
    let server = Running::memcached(&folder, "-s sock -p 11211 -a 0755");
    assert_eq!(server.port, 0);
    let mut client = wait_for(|| UnixStream::connect(folder.join("sock")).ok());
    client
        .write_all(b"set a 0 0 1\r\nb\r\nget a\r\nquit\r\n")
        .unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn flash_from_a_file() {
    let folder = Scratch::new();
    std::fs::write(
        folder.join("c.toml"),
        "flash = 'flash:64m'\nmemory = '64m'\nthreads = 1\n",
    )
    .unwrap();
    let server = Running::memcached(&folder, "-p -1 -l 127.0.0.1 -o senko_config=c.toml -vv");
    // The ports are known before the flash file is opened.
    assert_eq!(ask(&mut server.connect(), "mn\r\n", "\n"), "MN\r\n");
    assert!(folder.join("flash").exists());
}
