// SPDX-License-Identifier: Apache-2.0
//! Commands on items that are only on flash: the answers are the same, and come from flash.

use senko_cache::{HashSeed, Key};

use super::{flash_rig, packet};
use crate::rig::{Rig, RigSettings};

/// Rigs with an item that is only on flash, and a node to ask: its own shard has the item, or it
/// reads the other shard's flash, in vain or not.
fn rigs() -> [(RigSettings, usize); 3] {
    let of_other = |fails| RigSettings {
        shards: 2,
        parks: 100,
        fails,
        ..flash_rig()
    };
    let other = 1 - Key::new(b"k", HashSeed::default()).shard(2);
    [
        (flash_rig(), 0),
        (of_other(0), other),
        (of_other(100), other),
    ]
}

#[test]
fn commands_on_flash_items() {
    let big = "B".repeat(40_000);
    let got = format!("VALUE k 7 40000\r\n{big}\r\nEND\r\n");
    let got_by_meta = format!("VA 40000 f7 t-1\r\n{big}\r\n");
    let cases: &[(&str, &str, &str)] = &rows! {
        "x", "get k\r\n", "VALUE k 7 1\r\nx\r\nEND\r\n";
        "x", "get k nope k\r\n", "VALUE k 7 1\r\nx\r\nVALUE k 7 1\r\nx\r\nEND\r\n";
        "", "get k\r\nmg k v s\r\n", "VALUE k 7 0\r\n\r\nEND\r\nVA 0 s0\r\n\r\n";
        &big, "get k\r\n", &got;
        &big, "mg k v f t\r\n", &got_by_meta;
        "x", "mg k v f t s k O9\r\n", "VA 1 f7 t-1 s1 kk O9\r\nx\r\n";
        "x", "mg k f u\r\n", "HD f7\r\n";
        "x", "mg k h\r\nmg k h\r\n", "HD h0\r\nHD h1\r\n";
        "x", "mg k v u\r\nmg k v u\r\nmg k h u\r\n", "VA 1\r\nx\r\nVA 1\r\nx\r\nHD h0\r\n";
        "x", "mg k T30 t\r\nmg k t\r\n", "HD t30\r\nHD t30\r\n";
        "x", "delete k\r\nget k\r\n", "DELETED\r\nEND\r\n";
        "x", "md k\r\nmg k\r\n", "HD\r\nEN\r\n";
        "x", "md k C99999\r\nmd k C0\r\nmg k v\r\n", "EX\r\nEX\r\nVA 1\r\nx\r\n";
        "x", "md k I T30\r\nmg k v t\r\nmg k v\r\n", "HD\r\nVA 1 t30 X W\r\nx\r\nVA 1 Z X\r\nx\r\n";
        "x", "md k x F3\r\nmg k v f\r\n", "HD\r\nVA 0 f3\r\n\r\n";
        "x", "add k 0 0 1\r\ny\r\nget k\r\n", "NOT_STORED\r\nVALUE k 7 1\r\nx\r\nEND\r\n";
        "x", "replace k 0 0 1\r\ny\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n";
        "x", "set k 0 0 1\r\ny\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n";
        "x", "append k 0 0 1\r\ny\r\nget k\r\n", "STORED\r\nVALUE k 7 2\r\nxy\r\nEND\r\n";
        "x", "prepend k 0 0 1\r\ny\r\nget k\r\n", "STORED\r\nVALUE k 7 2\r\nyx\r\nEND\r\n";
        &big, "append k 0 0 1\r\ny\r\nmg k s\r\n", "STORED\r\nHD s40001\r\n";
        "x", "cas k 0 0 1 99999\r\ny\r\nget k\r\n", "EXISTS\r\nVALUE k 7 1\r\nx\r\nEND\r\n";
        "41", "incr k 1\r\nget k\r\n", "42\r\nVALUE k 7 2\r\n42\r\nEND\r\n";
        "10", "decr k 1\r\nget k\r\n", "9\r\nVALUE k 7 2\r\n9 \r\nEND\r\n";
        "10", "ma k D5 v\r\n", "VA 2\r\n15\r\n";
        "x", "incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        "x", "touch k 30\r\nmg k t\r\n", "TOUCHED\r\nHD t30\r\n";
        "x", "gat 30 k\r\nmg k t\r\n", "VALUE k 7 1\r\nx\r\nEND\r\nHD t30\r\n";
        "x", "mg k N30 v\r\n", "VA 1\r\nx\r\n";
        "x", "mg k R30 v\r\n", "VA 1\r\nx\r\n";
        "x", "flush_all\r\nget k\r\n", "OK\r\nEND\r\n";
        // Later commands see the effect of earlier ones, even if those wait.
        "x", "get k\r\nset k 0 0 1\r\ny\r\nget k\r\n",
            "VALUE k 7 1\r\nx\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n";
        "x", "get k\r\ndelete k\r\nget k\r\n", "VALUE k 7 1\r\nx\r\nEND\r\nDELETED\r\nEND\r\n";
        "x", "get k\r\nflush_all\r\nget k\r\nversion\r\n",
            "VALUE k 7 1\r\nx\r\nEND\r\nOK\r\nEND\r\nVERSION 1.6.45\r\n";
        "1", "incr k 1\r\nincr k 1\r\nincr k 1 noreply\r\nget k\r\n",
            "2\r\n3\r\nVALUE k 7 1\r\n4\r\nEND\r\n";
    };
    for (rig_settings, node) in rigs() {
        commands_answer(&rig_settings, node, cases);
    }
}

/// Commands, the value of `k`, and the answers.
fn commands_answer(rig_settings: &RigSettings, node: usize, cases: &[(&str, &str, &str)]) {
    let (mut waited, mut afar) = (0, 0);
    for &(value, input, expected) in cases {
        let mut rig = Rig::new(rig_settings);
        let id = rig.connect_to(node);
        let store = format!("set k 7 0 {}\r\n{value}\r\n", value.len());
        rig.expect(id, store.as_bytes(), "STORED\r\n");
        rig.press(id, &[b"k"], value.len());
        rig.send(id, input.as_bytes());
        waited += usize::from(!rig.idle(id));
        rig.settle();
        let answer = String::from_utf8(rig.answers(id)).expect("text");
        assert_eq!(answer, expected, "{input:?}");
        afar += rig.read_afar();
    }
    let reads = rig_settings.shards > 1 && rig_settings.fails == 0;
    assert_eq!(afar >= 12, reads, "{afar} reads of the other shard's flash");
    // Only `set` and `flush_all` do not wait; nearly all others must have been answered from flash.
    assert!(
        waited + 4 >= cases.len(),
        "only {waited} of {} waited for flash",
        cases.len()
    );
}

/// The binary protocol, on an item that is only on flash.
#[test]
fn binary_commands_on_flash_items() {
    for (rig_settings, node) in rigs() {
        binary_commands_answer(&rig_settings, node);
    }
}

fn binary_commands_answer(rig_settings: &RigSettings, node: usize) {
    let mut rig = Rig::new(rig_settings);
    let text = rig.connect_to(node);
    rig.expect(text, b"set k 7 0 2\r\n40\r\n", "STORED\r\n");
    rig.press(text, &[b"k"], 2);
    let id = rig.connect_to(node);
    let get = packet(0x0c, b"k", &[], b"", 0);
    let answer = rig.ask(id, &get);
    assert_eq!(&answer[..8], &[0x81, 0x0c, 0, 1, 4, 0, 0, 0]);
    assert_eq!(&answer[24..], b"\0\0\0\x07k40");
    let incr: Vec<u8> = [2u64.to_be_bytes(), 0u64.to_be_bytes()]
        .concat()
        .into_iter()
        .chain([0; 4])
        .collect();
    let answer = rig.ask(id, packet(0x05, b"k", &incr, b"", 0));
    assert_eq!(&answer[24..], &42u64.to_be_bytes());
    let answer = rig.ask(id, packet(0x0e, b"k", &[], b"!", 0));
    assert_eq!(answer[6..8], [0, 0]);
    let answer = rig.ask(id, packet(0x1d, b"k", &5u32.to_be_bytes(), b"", 0));
    assert_eq!(&answer[24..], b"\0\0\0\x0742!");
    rig.advance(6);
    let answer = rig.ask(id, packet(0x00, b"k", &[], b"", 0));
    assert_eq!(answer[6..8], [0, 1]);
}

/// Two connections look up a key on flash and find it gone. The first to create it succeeds, and
/// the other sees its item.
#[test]
fn what_is_created_while_another_looks_is_there() {
    type Sent = (&'static [u8], &'static [u8]);
    let cases: [(Sent, Sent, &[u8]); 4] = [
        (
            (b"add k 0 0 1\r\na\r\n", b"STORED\r\n"),
            (b"add k 0 0 1\r\nb\r\n", b"NOT_STORED\r\n"),
            b"VALUE k 0 1\r\na\r\nEND\r\n",
        ),
        (
            (b"mg k s N30\r\n", b"HD s0 W\r\n"),
            (b"mg k s N30\r\n", b"HD s0 Z\r\n"),
            b"VALUE k 0 0\r\n\r\nEND\r\n",
        ),
        (
            (b"ma k N0 J5 v\r\n", b"VA 1\r\n5\r\n"),
            (b"ma k N0 J5 v\r\n", b"VA 1\r\n6\r\n"),
            b"VALUE k 0 1\r\n6\r\nEND\r\n",
        ),
        (
            // A set reads nothing, so it is executed first.
            (b"set k 0 0 1\r\ns\r\n", b"STORED\r\n"),
            (b"add k 0 0 1\r\nb\r\n", b"NOT_STORED\r\n"),
            b"VALUE k 0 1\r\ns\r\nEND\r\n",
        ),
    ];
    for ((one, first), (other, second), left) in cases {
        let mut rig = Rig::new(&flash_rig());
        let id = rig.connect();
        rig.expect(id, b"set k 0 5 1\r\nx\r\n", "STORED\r\n");
        rig.press(id, &[b"k"], 1);
        rig.advance(6);
        let (a, b) = (rig.connect(), rig.connect());
        let set = one.starts_with(b"set");
        if set {
            rig.send(b, other);
            assert!(!rig.idle(b), "it was to wait for flash");
        }
        rig.send(a, one);
        if !set {
            rig.send(b, other);
            assert!(!rig.idle(a) && !rig.idle(b), "both were to wait for flash");
        }
        rig.settle();
        // Reads end in any order.
        let mut answers = [rig.answers(a), rig.answers(b)];
        if !set && answers[0] != first {
            answers.reverse();
        }
        let texts = answers.map(|answer| String::from_utf8(answer).expect("text"));
        let wanted = [first, second].map(|answer| String::from_utf8_lossy(answer));
        assert_eq!(texts, wanted);
        let value = rig.ask(id, b"get k\r\n");
        let held = value == left || (!set && value == other_value(left));
        assert!(held, "{}", String::from_utf8_lossy(&value));
    }
}

/// The value that the other of two `add`s would have stored.
fn other_value(left: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(left);
    text.replace("\r\na\r\n", "\r\nb\r\n").into_bytes()
}

/// Walks over all items used to omit those on flash: with a tenth of a cache in DRAM,
/// `lru_crawler metadump` listed a tenth.
#[test]
fn walks_list_items_on_flash() {
    for shards in [1, 3] {
        let mut rig = Rig::new(&RigSettings {
            shards,
            ..flash_rig()
        });
        let id = rig.connect();
        let key = |n: usize| format!("k:{n:04}");
        // All small items have one size class, whether they have an expiry and flags or not.
        let value = |n: usize| "v".repeat(if n.is_multiple_of(10) { 20_000 } else { 980 });
        for n in 0..60 {
            let (value, expiry) = (value(n), if n % 3 == 0 { 50 } else { 0 });
            let set = format!("set {} {n} {expiry} {}\r\n{value}\r\n", key(n), value.len());
            rig.expect(id, set.as_bytes(), "STORED\r\n");
        }
        let all: Vec<String> = (0..60).map(key).collect();
        let listed = |rig: &mut Rig, command: &str| {
            let answer = rig.ask(id, format!("{command}\r\n"));
            let text = String::from_utf8(answer).unwrap();
            let lines = text.strip_suffix("END\r\n").expect("it has an end");
            let lines = lines.strip_prefix("OK\r\n").unwrap_or(lines);
            // The class of an item depends on the classes that have memory.
            let without_class = |line: &str| match line.split_once(" cls=") {
                Some((before, rest)) => format!("{before} {}", rest.split_once(' ').unwrap().1),
                None => line.to_owned(),
            };
            let mut lines: Vec<String> = lines.lines().map(without_class).collect();
            lines.sort();
            lines
        };
        let in_dram = listed(&mut rig, "lru_crawler metadump all");
        assert_eq!(in_dram.len(), 60);
        let cachedump = |rig: &mut Rig| -> Vec<String> {
            let classes = 1..64;
            let lines =
                classes.flat_map(|class| listed(rig, &format!("stats cachedump {class} 0")));
            let mut ours: Vec<String> = lines.filter(|line| line.starts_with("ITEM k:")).collect();
            ours.sort();
            ours
        };
        let items = cachedump(&mut rig);
        assert_eq!(items.len(), 60);
        let keys: Vec<&[u8]> = all.iter().map(|key| key.as_bytes()).collect();
        let (large, small): (Vec<_>, Vec<_>) = (0..60).partition(|n| n % 10 == 0);
        for (some, len) in [(large, 20_000), (small, 980)] {
            let some: Vec<&[u8]> = some.into_iter().map(|n: usize| keys[n]).collect();
            rig.press(id, &some, len);
        }
        let on_flash = keys.iter().filter(|key| rig.on_flash(key)).count();
        assert_eq!(on_flash, 60);
        let ours = |lines: Vec<String>| -> Vec<String> {
            let ours = lines
                .into_iter()
                .filter(|line| line.starts_with("key=k%3A"));
            ours.collect()
        };
        // Everything reported about an item is the same, and so is its place.
        let on_flash = ours(listed(&mut rig, "lru_crawler metadump all"));
        let same: Vec<String> = in_dram
            .iter()
            .map(|line| format!("{line}tier=flash "))
            .collect();
        assert_eq!(on_flash, same);
        let in_dram = listed(&mut rig, "lru_crawler metadump dram");
        assert!(!in_dram.is_empty() && ours(in_dram).is_empty());
        // This one stops at 2 MiB, which other stored items may take.
        let shown = cachedump(&mut rig);
        assert!(!shown.is_empty() && shown.iter().all(|line| items.contains(line)));
        let by_class: usize = (1..64)
            .map(|class| ours(listed(&mut rig, &format!("lru_crawler metadump {class}"))).len())
            .sum();
        assert_eq!(by_class, 60);
        // Listing an item is not an access: nothing was promoted.
        assert!(keys.iter().all(|key| rig.on_flash(key)));
        // Deleted, replaced, expired and flushed items are not listed.
        rig.ask(id, b"delete k:0001\r\nset k:0002 0 0 1\r\nx\r\n");
        rig.advance(60);
        let left = ours(listed(&mut rig, "lru_crawler metadump all"));
        let expected: Vec<String> = (2..60).filter(|n| n % 3 != 0).map(key).collect();
        let names: Vec<String> = left
            .iter()
            .map(|line| line.split(' ').next().unwrap()["key=k%3A".len()..].to_owned())
            .collect();
        let expected: Vec<String> = expected.iter().map(|key| key[2..].to_owned()).collect();
        assert_eq!(names, expected);
        rig.ask(id, b"flush_all\r\n");
        rig.advance(2);
        assert_eq!(listed(&mut rig, "lru_crawler metadump all").len(), 0);
        // A client that leaves in the middle of a walk leaves nothing behind.
        for n in 0..60 {
            let set = format!("set {} 0 0 980\r\n{}\r\n", key(n), value(1));
            rig.ask(id, set.as_bytes());
        }
        rig.press(id, &keys, 980);
        let other = rig.connect();
        rig.send(other, b"lru_crawler metadump all\r\n");
        rig.vanish(other);
        rig.settle();
        assert_eq!(ours(listed(&mut rig, "lru_crawler metadump all")).len(), 60);
    }
}

/// A device that does not answer a read of another shard's flash: the command is handed over after
/// a second. Two seconds later that shard takes the device out of use, and the key is missed. The
/// late answer of the device is of no use, but its frame comes back.
#[test]
fn a_stalled_read_of_another_shard_is_handed_over() {
    let [_, (rig_settings, node), _] = rigs();
    let mut rig = Rig::new(&rig_settings);
    let id = rig.connect_to(node);
    rig.expect(id, b"set k 7 0 1\r\nx\r\n", "STORED\r\n");
    rig.press(id, &[b"k"], 1);
    rig.settle();
    let device = rig.nodes[node].queue.devices()[0].clone();
    device.set_stalled(true);
    rig.send(id, b"get k\r\n");
    let at_device = |rig: &Rig| [node, 1 - node].map(|n| rig.nodes[n].queue.pending());
    let others = at_device(&rig)[1];
    assert_eq!(at_device(&rig), [1, others], "it reads by itself");
    rig.pass(1000);
    while rig.happen() {}
    assert_eq!(at_device(&rig), [1, others], "a second is not too long");
    rig.pass(100);
    while rig.happen() {}
    assert_eq!(at_device(&rig), [1, others + 1], "it was handed over");
    // No further read begins before the frame is back.
    let second = rig.connect_to(node);
    rig.send(second, b"get k\r\n");
    while rig.happen() {}
    assert_eq!(at_device(&rig)[0], 1);
    rig.pass(2001);
    while rig.happen() {}
    for id in [id, second] {
        assert_eq!(rig.answers(id), b"END\r\n");
    }
    device.set_stalled(false);
    rig.settle();
    for node in &rig.nodes {
        assert_eq!(node.queue.frames().usage().1, 0, "frames are back");
    }
    assert_eq!(rig.read_afar(), 0);
}

/// A get takes effect at its look-up: what other connections change while the record is read comes
/// after it, even if it is answered first. The next get sees it.
#[test]
fn a_get_of_another_shards_flash_takes_effect_at_its_look_up() {
    for change in ["flush_all\r\n", "delete k\r\n", "set k 0 0 1\r\ny\r\n"] {
        let [_, (rig_settings, node), _] = rigs();
        let mut rig = Rig::new(&rig_settings);
        let id = rig.connect_to(node);
        rig.expect(id, b"set k 7 0 1\r\nx\r\n", "STORED\r\n");
        rig.press(id, &[b"k"], 1);
        let device = rig.nodes[node].queue.devices()[0].clone();
        let other = rig.connect_to(1 - node);
        device.set_stalled(true);
        rig.send(id, b"get k\r\n");
        rig.send(other, change.as_bytes());
        while rig.happen() {}
        // A delete has to read whether the key is there.
        let reads = change.starts_with("delete");
        assert_eq!(rig.answers(other).is_empty(), reads, "{change}");
        device.set_stalled(false);
        rig.settle();
        assert_eq!(rig.answers(id), b"VALUE k 7 1\r\nx\r\nEND\r\n", "{change}");
        let after = match change.starts_with("set") {
            true => &b"VALUE k 0 1\r\ny\r\nEND\r\n"[..],
            false => b"END\r\n",
        };
        assert_eq!(rig.ask(id, b"get k\r\n"), after, "{change}");
    }
}

/// A get whose read of another shard's flash failed was handed over at once. If a value was on its
/// way to that shard, the get became a part of the value.
#[test]
fn a_get_is_not_handed_over_into_a_value() {
    let [_, _, (rig_settings, node)] = rigs();
    let mut rig = Rig::new(&rig_settings);
    let id = rig.connect_to(node);
    rig.expect(id, b"set k 7 0 1\r\nx\r\n", "STORED\r\n");
    rig.press(id, &[b"k"], 1);
    let shard_of = |key: &str| Key::new(key.as_bytes(), HashSeed::default()).shard(2);
    let names = (0..).map(|n| format!("other{n}"));
    let other = names.into_iter().find(|key| shard_of(key) == 1 - node);
    let other = other.unwrap();
    rig.send(id, b"get k\r\n");
    rig.send(id, format!("set {other} 0 0 20\r\n0123456789").as_bytes());
    while rig.happen() {}
    assert_eq!(rig.answers(id), b"", "the get waits for the value");
    rig.send(id, format!("0123456789\r\nget {other}\r\n").as_bytes());
    rig.settle();
    let answer = String::from_utf8(rig.answers(id)).unwrap();
    let stored = format!("STORED\r\nVALUE {other} 0 20\r\n01234567890123456789\r\nEND\r\n");
    assert_eq!(answer, format!("VALUE k 7 1\r\nx\r\nEND\r\n{stored}"));
}
