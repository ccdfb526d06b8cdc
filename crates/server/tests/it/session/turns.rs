// SPDX-License-Identifier: Apache-2.0
//! The work of one turn of a connection: it is limited in requests, keys, bytes or parts, which are
//! counted, not timed.

use senko_server::context::Window;
use senko_server::session::{FeedState, Wait};
use senko_server::settings::Settings;

use super::{drop_in, flash_rig, wide_rig};
use crate::rig::{Rig, RigSettings};

/// Answers that grow with items, connections or prefixes used to be made at once: nine hundred
/// connections with `stats conns` unread took more memory than the server had. And one connection's
/// walks over all items, or `stats`, blocked the others for seconds.
#[test]
fn a_heavy_command_takes_one_turn_and_answers_in_parts() {
    let settings = Settings {
        prefix_delimiter: Some(b':'),
        ..drop_in(RigSettings::default()).settings
    };
    let mut rig = Rig::new(&RigSettings {
        memory: 32 << 20,
        settings,
        ..RigSettings::default()
    });
    let id = rig.connect();
    let items = 20_000;
    for n in 0..items {
        let key = format!("{n:05}:{}", "k".repeat(200));
        rig.ask(id, format!("set {key} 0 0 1\r\nx\r\n"));
    }
    for n in 0..5000 {
        let entry = senko_server::shared::ConnEntry::new(
            format!("tcp:127.0.0.1:{n}"),
            "tcp:127.0.0.1:11211".to_owned(),
            0,
        );
        rig.shared.register(n, entry.into());
    }
    let first = rig.connect();
    for command in [
        "stats sizes",
        "stats cachedump 1 0",
        "stats cachedump 5 0",
        "stats conns",
        "stats detail dump",
        "stats",
        "stats items",
        "stats slabs",
        "stats settings",
        "lru_crawler metadump all",
        "lru_crawler metadump 3",
        "lru_crawler metadump 40",
    ] {
        let id = rig.connect();
        let line = format!("{command}\r\n");
        let many = line.repeat(100);
        let turns = |rig: &Rig| rig.nodes[0].stats.heavy_turns;
        let before = turns(&rig);
        // Without a turn for heavy work nothing is done.
        let (taken, state, queued) = rig.one_turn(id, many.as_bytes(), Window::One, 0);
        assert_eq!((taken, queued), (0, 0), "{command}");
        assert_eq!(state, FeedState::Blocked(Wait::Heavy), "{command}");
        // With one, one command or one part of it is done.
        let (taken, _, queued) = rig.one_turn(id, many.as_bytes(), Window::Wide, 1);
        assert!(
            taken <= line.len() && queued <= 64 << 10,
            "{command}: {taken}, {queued}"
        );
        assert_eq!(turns(&rig), before + 1, "{command}");
        // However many turns there are: once something is unsent and memory is scarce, no further
        // part is made.
        let id = rig.connect();
        let (_, _, queued) = rig.one_turn(id, many.as_bytes(), Window::One, usize::MAX);
        assert!(queued <= 64 << 10, "{command}: {queued} bytes");
    }
    // These were interrupted.
    for left in first..=rig.connect() {
        rig.vanish(left);
    }
    let id = rig.connect();
    // And the parts together are complete.
    let dump = rig.ask(id, b"lru_crawler metadump all\r\n");
    assert_eq!(dump.iter().filter(|&&b| b == b'\n').count(), items + 2);
    let conns = rig.ask(id, b"stats conns\r\n");
    assert_eq!(conns.iter().filter(|&&b| b == b'\n').count(), 4 * 5000 + 1);
    let prefixes = rig.ask(id, b"stats detail dump\r\n");
    assert_eq!(prefixes.iter().filter(|&&b| b == b'\n').count(), 10_000 + 1);
    let sizes = String::from_utf8(rig.ask(id, b"stats sizes\r\n")).unwrap();
    let counts = sizes
        .lines()
        .filter_map(|line| line.split(' ').nth(2)?.parse::<usize>().ok());
    assert_eq!(counts.sum::<usize>(), items);
}

/// One `get` of 7,000 keys used to count as one request, and others waited for all of its look-ups.
#[test]
fn each_key_of_a_get_counts_against_the_turn() {
    let mut rig = Rig::new(&drop_in(RigSettings::default()));
    for command in ["get", "gets", "gat 0", "gats 0"] {
        let id = rig.connect();
        let line = format!("{command}{}\r\n", " key".repeat(2000));
        let (taken, state, _) = rig.one_turn(id, line.as_bytes(), Window::Wide, 0);
        let most = command.len() + 20 * " key".len();
        assert!(
            taken > 0 && taken <= most,
            "{command}: {taken} bytes of a line"
        );
        assert_eq!(state, FeedState::Blocked(Wait::Turn), "{command}");
    }
}

/// Twenty appends to a large value used to be one turn, which copied that value twenty times.
#[test]
fn bytes_that_are_joined_count_against_the_turn() {
    let mut rig = wide_rig(1);
    let id = rig.connect();
    let large = "x".repeat(900_000);
    for (command, len) in [("append", 30), ("prepend", 31)] {
        rig.ask(id, format!("set k 0 0 900000\r\n{large}\r\n"));
        let one = format!("{command} k 0 0 1\r\ny\r\n");
        let (taken, state, _) = rig.one_turn(id, one.repeat(20).as_bytes(), Window::Wide, 0);
        assert!(
            taken <= 2 * one.len(),
            "{command} ran {} times, of {len}",
            taken / one.len()
        );
        assert_eq!(state, FeedState::Blocked(Wait::Turn), "{command}");
    }
}

/// Answers up to 32 KiB used to be copied however little memory there was: nine hundred connections
/// with one such answer each took more than the server had.
#[test]
fn where_memory_is_scarce_an_answer_copies_little() {
    let mut rig = wide_rig(1);
    let id = rig.connect();
    let value = "x".repeat(32_000);
    rig.ask(id, format!("set k 0 0 32000\r\n{value}\r\n"));
    for remote in [false, true] {
        for command in [
            "get k", "gets k", "gat 0 k", "gats 0 k", "mg k v", "mg k v t",
        ] {
            for (window, most) in [(Window::Small, 4096), (Window::One, 1024)] {
                let id = match remote {
                    true => rig.connect_for_another(0),
                    false => rig.connect(),
                };
                let line = format!("{command}\r\n");
                let (taken, _, queued) = rig.one_turn(id, line.as_bytes(), window, 0);
                assert_eq!(taken, line.len(), "{command}");
                assert!(queued > value.len(), "{command}: {queued}");
                let owned = rig.owned(id);
                assert!(
                    owned <= most,
                    "{command}, {window:?}: {owned} bytes are copies"
                );
            }
        }
    }
}

/// An answer read from flash for another worker's connection used to be copied in full, one for
/// each connection, however much memory such copies took together.
#[test]
fn no_read_begins_whose_copy_has_no_room() {
    let mut rig = Rig::new(&flash_rig());
    let id = rig.connect();
    let value = "x".repeat(20_000);
    for key in ["k", "l"] {
        rig.ask(id, format!("set {key} 0 0 20000\r\n{value}\r\n"));
    }
    rig.press(id, &[b"k", b"l"], 20_000);
    let frame = 5 * 4096;
    let command = "get k";
    let line = format!("{command}\r\n");
    // A connection of this worker sends the frame itself.
    let own = rig.connect();
    rig.no_copies = true;
    rig.one_turn(own, line.as_bytes(), Window::Wide, 0);
    assert_eq!(rig.parked(own), (line.matches('k').count(), 0), "{command}");
    // Commands that need no read are executed.
    let other = rig.connect_for_another(0);
    let (_, state, _) = rig.one_turn(other, b"mg none\r\nget none\r\n", Window::Wide, 0);
    assert_eq!(state, FeedState::NeedMore, "{command}");
    // Its command waits, and all after it, without a read.
    let other = rig.connect_for_another(0);
    let (_, state, _) = rig.one_turn(other, line.as_bytes(), Window::Wide, 0);
    assert_eq!(state, FeedState::Blocked(Wait::Memory), "{command}");
    assert_eq!(rig.parked(other), (1, 0), "{command}");
    let (_, state, _) = rig.one_turn(other, b"get l\r\n", Window::Wide, 0);
    assert_eq!(state, FeedState::Blocked(Wait::Memory), "{command}");
    // Once the others' copies have been sent, it continues, and its own copy counts before the read
    // ends.
    rig.no_copies = false;
    rig.one_turn(other, b"", Window::Wide, 0);
    assert_eq!(rig.parked(other), (1, frame), "{command}");
    rig.settle();
    assert_eq!(rig.parked(other), (0, 0), "{command}");
}

/// Answers that are sent in place once pinned every item, so sets were refused, and a reader that
/// was not slow was closed. Now they wait while half of the items' memory is pinned (PIN-1).
#[test]
fn answers_in_place_leave_half_of_the_memory_to_stores() {
    let mut rig = Rig::new(&RigSettings {
        memory: 32 << 20,
        settings: Settings {
            max_item: 4 << 20,
            ..Settings::default()
        },
        ..RigSettings::default()
    });
    let (client, len) = (rig.connect(), 2 << 20);
    let set = |key: usize| {
        let value = "x".repeat(len);
        format!("set k{key} 0 0 {len}\r\n{value}\r\n")
    };
    let items = rig.nodes[0].shard.items_memory();
    let mut readers = Vec::new();
    // Each reader lends another item, and some lend one twice.
    for n in 0..30 {
        rig.expect(client, set(n), "STORED\r\n");
        let reader = rig.connect();
        let line = format!("get k{n}\r\n");
        let (_, state, unsent) = rig.one_turn(reader, line.as_bytes(), Window::Wide, 0);
        assert_eq!(
            unsent == 0,
            state == FeedState::Blocked(Wait::Memory),
            "{n}"
        );
        readers.push((reader, n, unsent > 0));
    }
    let lent = readers.iter().filter(|reader| reader.2).count();
    assert!(
        lent * len <= items / 2 && (lent + 2) * len > items / 2,
        "{lent}"
    );
    // An item that is pinned anyway costs no more.
    let again = rig.connect();
    let (_, _, unsent) = rig.one_turn(again, b"get k0\r\n", Window::Wide, 0);
    assert!(unsent > len);
    rig.vanish(again);
    // An answer waits for a while only.
    let overdue = readers[29].0;
    rig.pass(499);
    assert_eq!(rig.one_turn(overdue, b"", Window::Wide, 0).2, 0);
    rig.pass(1);
    assert!(rig.one_turn(overdue, b"", Window::Wide, 0).2 > len);
    // All the others get theirs, or a miss if it was evicted meanwhile, as readers go on.
    for (reader, n, _) in readers {
        rig.settle();
        rig.send(reader, b"mn\r\n");
        rig.settle();
        let answer = rig.answers(reader);
        let hit = answer.starts_with(format!("VALUE k{n} 0 {len}\r\n").as_bytes());
        assert!(answer.ends_with(b"END\r\nMN\r\n"), "{n}");
        assert_eq!(answer.len() > len, hit, "{n}");
    }
}
