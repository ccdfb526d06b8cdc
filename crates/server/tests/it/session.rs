// SPDX-License-Identifier: Apache-2.0
//! Answers of commands: exact bytes, in both tiers, in order. `transcript` has memcached's answers,
//! for input split in any way.

mod flash; // the same for items that are only on flash
mod turns; // the work of one turn of a connection

use crate::rig::{Rig, RigSettings, START};

fn drop_in(rig_settings: RigSettings) -> RigSettings {
    let mut rig_settings = rig_settings;
    rig_settings.settings.drop_in = true;
    rig_settings
}

/// A rig with memory for large items.
fn wide_rig(shards: usize) -> Rig {
    Rig::new(&drop_in(RigSettings {
        shards,
        memory: 32 << 20,
        ..RigSettings::default()
    }))
}

fn flash_rig() -> RigSettings {
    drop_in(RigSettings {
        memory: 6 << 20,
        flash_pages: 16 << 10,
        ..RigSettings::default()
    })
}

pub fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let mut b = vec![0x80, opcode];
    b.extend((key.len() as u16).to_be_bytes());
    b.extend([extras.len() as u8, 0, 0, 0]);
    b.extend(((key.len() + extras.len() + value.len()) as u32).to_be_bytes());
    b.extend(7u32.to_be_bytes());
    b.extend(cas.to_be_bytes());
    b.extend_from_slice(extras);
    b.extend_from_slice(key);
    b.extend_from_slice(value);
    b
}

/// Opcode, status and text of each reply in a binary answer.
pub fn replies(mut answer: &[u8]) -> Vec<(u8, u16, String)> {
    let mut list = Vec::new();
    while !answer.is_empty() {
        let body = u32::from_be_bytes(answer[8..12].try_into().unwrap()) as usize;
        assert_eq!(answer[0], 0x81);
        list.push((
            answer[1],
            u16::from_be_bytes([answer[6], answer[7]]),
            String::from_utf8_lossy(&answer[24..24 + body]).into_owned(),
        ));
        answer = &answer[24 + body..];
    }
    list
}

#[test]
fn too_large_values_are_skipped_and_take_the_old_value_along() {
    for shards in [1, 3] {
        let mut rig = wide_rig(shards);
        let id = rig.connect();
        let big = "x".repeat(2_000_000);
        rig.ask(id, b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
        rig.expect(
            id,
            format!("set a 0 0 2000000\r\n{big}\r\nget a\r\n"),
            "SERVER_ERROR object too large for cache\r\nEND\r\n",
        );
        rig.expect(
            id,
            format!("add b 0 0 2000000 noreply\r\n{big}\r\nget b\r\n"),
            "VALUE b 0 1\r\nx\r\nEND\r\n",
        );
        rig.expect(
            id,
            format!("ms b 2000000 q\r\n{big}\r\nmg b v\r\nmn\r\n"),
            "SERVER_ERROR object too large for cache\r\nEN\r\nMN\r\n",
        );
        let half = "y".repeat(600_000);
        rig.expect(
            id,
            format!("set h 0 0 600000\r\n{half}\r\nappend h 0 0 600000\r\n{half}\r\nmg h s\r\n"),
            "STORED\r\nNOT_STORED\r\nHD s600000\r\n",
        );
        let answer = rig.ask(id, b"get h\r\n");
        assert_eq!(
            answer.len(),
            "VALUE h 0 600000\r\n\r\nEND\r\n".len() + 600_000
        );
        assert!(
            answer.starts_with(b"VALUE h 0 600000\r\nyyy") && answer.ends_with(b"yyy\r\nEND\r\n")
        );
    }
}

#[test]
fn long_lines() {
    let mut rig = Rig::new(&drop_in(RigSettings::default()));
    let id = rig.connect();
    rig.ask(id, b"set a 0 0 1\r\nx\r\n");
    // No line end in sight, and not a `get`.
    rig.expect(id, [b'x'; 3000], "");
    assert!(rig.closed(id));
    // A `get` may have any number of keys: they are answered as they arrive.
    let id = rig.connect();
    let mut answer = Vec::new();
    rig.send(id, b"get ");
    for _ in 0..20_000 {
        rig.send(id, b"a b ");
        answer.extend(rig.answers(id));
    }
    answer.extend(rig.ask(id, b"\r\nversion\r\n"));
    let expected = "VALUE a 0 1\r\nx\r\n".repeat(20_000) + "END\r\nVERSION 1.6.45\r\n";
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    // Keys of 250 bytes are valid, one of 251 makes the line invalid.
    let (good, bad) = ("k".repeat(250), "k".repeat(251));
    rig.expect(id, format!("get {good}\r\n"), "END\r\n");
    rig.expect(
        id,
        format!("get a {bad} a\r\nget a\r\n"),
        "CLIENT_ERROR bad command line format\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    for command in [
        "delete {}",
        "incr {} 1",
        "touch {} 1",
        "mg {} v",
        "md {}",
        "me {}",
    ] {
        let line = command.replace("{}", &bad);
        assert_eq!(
            rig.ask(id, format!("{line}\r\n")),
            b"CLIENT_ERROR bad command line format\r\n",
            "{command}"
        );
    }
    // Too many spaces before an endless `get`.
    let line = " ".repeat(101) + "get " + &"a ".repeat(1500);
    rig.ask(id, line.as_bytes());
    assert!(rig.closed(id));
}

#[test]
fn time_passes() {
    let mut rig = Rig::new(&drop_in(flash_rig()));
    let id = rig.connect();
    rig.ask(id, b"set r 0 10 1\r\nx\r\n");
    rig.ask(id, format!("set abs 0 {} 1\r\nx\r\n", START + 20));
    rig.ask(id, format!("set past 0 {} 1\r\nx\r\n", START - 100));
    rig.expect(id, b"get past\r\n", "END\r\n");
    rig.press(id, &[b"r", b"abs"], 1);
    rig.expect(id, b"mg r t\r\nmg abs t\r\n", "HD t10\r\nHD t20\r\n");
    rig.advance(9);
    rig.expect(id, b"mg r t\r\n", "HD t1\r\n");
    rig.advance(1);
    rig.expect(id, b"get r\r\nmg abs t\r\n", "END\r\nHD t10\r\n");
    rig.expect(
        id,
        b"set f 0 0 1\r\nx\r\nflush_all 5\r\nget f\r\n",
        "STORED\r\nOK\r\nVALUE f 0 1\r\nx\r\nEND\r\n",
    );
    rig.advance(4);
    rig.expect(id, b"get f\r\n", "VALUE f 0 1\r\nx\r\nEND\r\n");
    rig.advance(1);
    rig.expect(id, b"get f\r\nget abs\r\n", "END\r\nEND\r\n");
    rig.expect(
        id,
        b"set f 0 0 1\r\nx\r\nget f\r\n",
        "STORED\r\nVALUE f 0 1\r\nx\r\nEND\r\n",
    );
    // A due delayed flush is not replaced by another.
    rig.ask(id, b"set f 0 0 1\r\nx\r\nflush_all 5\r\n");
    rig.advance(6);
    rig.expect(id, b"flush_all 100\r\nget f\r\n", "OK\r\nEND\r\n");
    // An immediate flush replaces a pending one.
    rig.ask(id, b"flush_all 5\r\nflush_all\r\nset f 0 0 1\r\nx\r\n");
    rig.advance(10);
    rig.expect(id, b"get f\r\n", "VALUE f 0 1\r\nx\r\nEND\r\n");
}

/// An acknowledged flush holds on every shard, for every connection; everything sent before it is
/// gone.
#[test]
fn flush_all_reaches_every_shard() {
    let mut rig = wide_rig(4);
    let (a, b) = (rig.connect_to(0), rig.connect_to(3));
    let mut sets = String::new();
    let mut keys = String::from("get");
    for n in 0..100 {
        sets += &format!("set k{n} 0 0 1 noreply\r\nx\r\n");
        keys += &format!(" k{n}");
    }
    keys += "\r\n";
    rig.expect(a, sets.as_bytes(), "");
    assert_eq!(
        rig.ask(b, keys.as_bytes()).len(),
        "END\r\n".len()
            + (0..100)
                .map(|n| format!("VALUE k{n} 0 1\r\nx\r\n").len())
                .sum::<usize>()
    );
    // Everything in one piece: the flush waits for the sets before it.
    rig.expect(
        a,
        (sets.clone() + "flush_all\r\n" + &keys).as_bytes(),
        "OK\r\nEND\r\n",
    );
    rig.expect(b, keys.as_bytes(), "END\r\n");
}

#[test]
fn items_are_listed_across_shards() {
    for shards in [1, 3] {
        let mut rig = wide_rig(shards);
        let id = rig.connect();
        let mut expected = Vec::new();
        for n in 0..500 {
            rig.ask(id, format!("set key,{n} 0 0 3\r\nabc\r\n"));
            expected.push(format!("key=key%2C{n}"));
        }
        let answer = text_of(rig.ask(id, b"lru_crawler metadump all\r\n"));
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!((lines[0], lines.last()), ("OK", Some(&"END")));
        let mut found: Vec<String> = lines[1..lines.len() - 1]
            .iter()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert!(
            lines[1].contains(" exp=-1 ") && lines[1].contains(&format!(" la={START} ")),
            "{}",
            lines[1]
        );
        let sizes = text_of(rig.ask(id, b"stats sizes\r\n"));
        let count: u64 = sizes
            .lines()
            .filter_map(|line| line.split(' ').nth(2))
            .map(|n| n.parse::<u64>().unwrap())
            .sum();
        assert_eq!(count, 500);
        let class: &str = lines[1]
            .split("cls=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let dump = text_of(rig.ask(id, format!("stats cachedump {class} 7\r\n")));
        assert_eq!(dump.lines().count(), 8);
        assert!(
            dump.starts_with("ITEM key,") && dump.contains(" [3 b; 0 s]\r\n"),
            "{dump}"
        );
        rig.expect(id, b"version\r\n", "VERSION 1.6.45\r\n");
    }
}

/// A key of the meta protocol's base64 may contain line ends. Written as it is, it used to forge
/// lines of other items, and the end of the answer.
#[test]
fn keys_with_line_ends_forge_no_lines() {
    // "p\r\nEND:\r\nITEM forged"
    let key = "cA0KRU5EOg0KSVRFTSBmb3JnZWQ=";
    for shards in [1, 3] {
        let mut rig = Rig::new(&drop_in(RigSettings {
            shards,
            ..RigSettings::default()
        }));
        let id = rig.connect();
        rig.ask(id, b"stats detail on\r\n");
        let stored = rig.ask(id, format!("ms {key} 1 b\r\nx\r\n"));
        assert_eq!(stored, b"HD\r\n");
        rig.ask(id, b"set p:%41 0 0 1\r\nx\r\n");
        let dump = text_of(rig.ask(id, b"stats detail dump\r\n"));
        assert_eq!(
            dump,
            "PREFIX p get 0 hit 0 set 1 del 0\r\n\
             PREFIX p%0D%0AEND get 0 hit 0 set 1 del 0\r\nEND\r\n"
        );
        let mut lines = Vec::new();
        for class in 1..64 {
            let dump = text_of(rig.ask(id, format!("stats cachedump {class} 0\r\n")));
            lines.extend(
                dump.lines()
                    .filter(|line| *line != "END")
                    .map(str::to_owned),
            );
        }
        lines.sort_unstable();
        // A key that is valid in the classic protocol is written as memcached writes it.
        assert_eq!(
            lines,
            [
                "ITEM p%0D%0AEND%3A%0D%0AITEM%20forged [1 b; 0 s]",
                "ITEM p:%41 [1 b; 0 s]"
            ]
        );
    }
}

fn text_of(answer: Vec<u8>) -> String {
    String::from_utf8(answer).unwrap()
}

/// It made the item's CAS 0.
#[test]
fn a_chosen_cas_of_zero_is_a_new_one() {
    let mut rig = Rig::new(&RigSettings::default());
    let id = rig.connect();
    let answer = text_of(rig.ask(id, b"ms k 1 E0 c\r\ny\r\n"));
    assert!(
        answer.starts_with("HD c") && answer != "HD c0\r\n",
        "{answer}"
    );
}

/// `me` used to show the seconds that an item has left as if they had passed.
#[test]
fn me_tells_the_seconds_that_are_left() {
    let mut rig = Rig::new(&drop_in(RigSettings::default()));
    let id = rig.connect();
    rig.ask(id, b"set k 0 100 1\r\nx\r\n");
    for (passed, left) in [(0, 100), (30, 70), (69, 1)] {
        rig.advance(passed);
        let answer = text_of(rig.ask(id, b"me k\r\n"));
        assert!(answer.contains(&format!(" exp={left} ")), "{answer}");
    }
    rig.advance(1);
    rig.expect(id, b"me k\r\n", "EN\r\n");
}

/// memcached's exporter for Prometheus reads these for each class, and reported a server without
/// them as down.
#[test]
fn each_class_counts_its_commands() {
    for shards in [1, 3] {
        let mut rig = Rig::new(&drop_in(RigSettings {
            shards,
            ..RigSettings::default()
        }));
        let id = rig.connect();
        let long = "l".repeat(5000);
        let commands = format!(
            "set a 0 0 1\r\n1\r\nset b 0 0 5000\r\n{long}\r\nget a b nope\r\nincr a 1\r\ndecr a 1\r\n\
             touch a 0\r\ngat 0 b\r\nmg b v\r\ncas b 0 0 1 1000000\r\nx\r\nms a 1\r\n7\r\nmd a\r\ndelete b\r\n"
        );
        rig.ask(id, commands.as_bytes());
        let slabs = |rig: &mut Rig| text_of(rig.ask(id, b"stats slabs\r\n"));
        let answer = slabs(&mut rig);
        let values = |name: &str| -> Vec<u64> {
            let end = format!(":{name}");
            let lines = answer.lines().filter_map(|line| {
                let (stat, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
                stat.ends_with(&end).then(|| value.parse().unwrap())
            });
            lines.collect()
        };
        let all = text_of(rig.ask(id, b"stats\r\n"));
        for (name, counts) in [
            ("get_hits", [1, 2]),
            ("cmd_set", [3, 1]),
            ("delete_hits", [1, 1]),
            ("incr_hits", [1, 0]),
            ("decr_hits", [1, 0]),
            ("cas_hits", [0, 0]),
            ("cas_badval", [0, 1]),
            ("touch_hits", [1, 1]),
        ] {
            // The class of the small items, and that of the large one.
            assert_eq!(values(name), counts, "{name} in {answer}");
            let sum: u64 = counts.iter().sum();
            assert!(
                all.contains(&format!("STAT {name} {sum}\r\n")),
                "{name} in {all}"
            );
        }
        rig.ask(id, b"stats reset\r\n");
        assert!(slabs(&mut rig).contains(":cmd_set 0\r\n"));
    }
}

#[test]
fn statistics_count() {
    let mut rig = Rig::new(&drop_in(RigSettings::default()));
    let id = rig.connect();
    rig.ask(id, b"set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\ndecr z 1\r\ntouch a 0\r\ndelete q\r\ncas a 0 0 1 1\r\nx\r\ngat 0 a\r\nme a\r\n");
    let text = text_of(rig.ask(id, b"stats\r\n"));
    for (name, value) in [
        ("cmd_get", 2),
        ("get_hits", 1),
        ("get_misses", 1),
        ("cmd_set", 2),
        ("incr_hits", 1),
        ("decr_misses", 1),
        ("cmd_touch", 2),
        ("touch_hits", 2),
        ("delete_misses", 1),
        ("cas_badval", 1),
        ("cmd_meta", 1),
        ("curr_items", 1),
    ] {
        assert!(
            text.contains(&format!("STAT {name} {value}\r\n")),
            "{name} {value} in {text}"
        );
    }
    assert!(text.ends_with("END\r\n"));
    for section in ["settings", "items", "slabs", "conns"] {
        let text = text_of(rig.ask(id, format!("stats {section}\r\n")));
        assert!(text.ends_with("END\r\n"), "{section}: {text}");
        assert!(
            text.lines()
                .all(|line| line == "END" || line.starts_with("STAT ")),
            "{section}: {text}"
        );
    }
    rig.expect(id, b"stats reset\r\n", "RESET\r\n");
    let text = text_of(rig.ask(id, b"stats\r\n"));
    assert!(
        text.contains("STAT cmd_get 0\r\n") && text.contains("STAT curr_items 1\r\n"),
        "{text}"
    );
}

/// With several workers, `stats` counts the commands sent before it, whichever worker executed
/// them.
#[test]
fn statistics_of_all_shards_are_up_to_date() {
    let mut rig = wide_rig(4);
    let id = rig.connect_to(2);
    let mut commands = String::new();
    for n in 0..100 {
        commands += &format!("set k{n} 0 0 1 noreply\r\nx\r\nget k{n}\r\n");
    }
    let text = text_of(rig.ask(id, (commands + "stats\r\n").as_bytes()));
    for line in [
        "STAT curr_items 100\r\n",
        "STAT cmd_set 100\r\n",
        "STAT get_hits 100\r\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let binary = rig.connect_to(1);
    let answer = replies(&rig.ask(binary, packet(0x10, b"", &[], b"", 0)));
    assert!(
        answer.iter().any(|(_, _, body)| body == "curr_items100"),
        "{answer:?}"
    );
    let text = text_of(rig.ask(id, b"stats reset\r\nstats\r\nstats items\r\n"));
    assert!(
        text.contains("STAT cmd_set 0\r\n") && text.contains("STAT curr_items 100\r\n"),
        "{text}"
    );
}

/// Clients that vanish at any point leave nothing behind: memory, pins and frames are given back.
#[test]
fn vanished_clients_leave_nothing() {
    let value = "v".repeat(100_000);
    let script = format!(
        "set a 0 0 100000\r\n{value}\r\nget a a a\r\nset b 0 0 5\r\nhello\r\nappend b 0 0 3\r\nabc\r\nget b k1 k2 k3\r\nincr k4 1\r\ngat 0 k5\r\n"
    );
    let mut rig = Rig::new(&RigSettings {
        shards: 2,
        ..flash_rig()
    });
    let main = rig.connect();
    for n in 0..10 {
        rig.ask(main, format!("set k{n} 0 0 1\r\n1\r\n"));
    }
    rig.press(main, &[b"k1", b"k2", b"k3", b"k4", b"k5"], 1);
    for cut in (0..script.len())
        .step_by(997)
        .chain(script.len() - 150..script.len())
    {
        for happens in [0, 1, 3] {
            let id = rig.connect();
            rig.send(id, &script.as_bytes()[..cut]);
            for _ in 0..happens {
                rig.happen();
            }
            rig.vanish(id);
        }
    }
    rig.settle();
    for node in &rig.nodes {
        assert_eq!(node.queue.frames().usage().1, 0, "frames are back");
    }
    assert_eq!(
        rig.ask(main, b"delete a\r\nset a 0 0 1\r\nx\r\nget a\r\n")
            .split_off(9),
        b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    );
}

#[test]
fn a_dialect_can_be_forced() {
    use senko_server::settings::Dialect;
    let mut rig_settings = drop_in(RigSettings::default());
    rig_settings.settings.only_protocol = Some(Dialect::Ascii);
    let mut rig = Rig::new(&rig_settings);
    let id = rig.connect();
    rig.expect(id, b"\x80\x80\r\n", "ERROR\r\n");
    rig_settings.settings.only_protocol = Some(Dialect::Binary);
    let mut rig = Rig::new(&rig_settings);
    let id = rig.connect();
    rig.expect(id, b"version\r\n", "");
    assert!(rig.closed(id));
}
