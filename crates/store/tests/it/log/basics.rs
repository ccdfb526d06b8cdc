// SPDX-License-Identifier: Apache-2.0
//! One property at a time.

use senko_io::{Op, PAGE_SIZE};
use senko_store::StoreError;
use senko_store::element::Element;
use senko_store::log::{
    AppendError, Durability, LABEL, Log, LogFind, MAX_ELEMENT, PAYLOAD, read_label,
};

use super::{append, commit, commit_all, create, device, get, hash, put, read_pages, replay};

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|n| (n.wrapping_mul(seed * 2 + 1) >> 3) as u8)
        .collect()
}

#[test]
fn versions_are_found_before_and_after_they_are_written() {
    let (device, extent) = device(64, 1);
    let log = create(&device, extent);
    for time in 1..=200u64 {
        let key = [b'k', (time % 7) as u8];
        put(&log, &key, &bytes(300, time), time);
    }
    let check = |log: &Log| {
        for time in 1..=200u64 {
            let key = [b'k', (time % 7) as u8];
            for at in [time, time + 6] {
                assert_eq!(get(log, &key, at), Some(Some(bytes(300, time))), "at {at}");
            }
            if time <= 7 {
                assert_eq!(get(log, &key, time - 1), None);
            }
        }
        assert_eq!(get(log, b"absent", u64::MAX), None);
        assert_eq!(
            (log.elements(), log.min_time(), log.last_time()),
            (200, 1, 200)
        );
    };
    check(&log);
    commit_all(&log, Durability::Synced);
    check(&log);
    assert_eq!(device.unflushed(), 0);
    let again = replay(&device, extent);
    check(&again);
    assert_eq!(again.bytes_used(), log.bytes_used());
}

#[test]
fn a_look_up_reads_exactly_the_pages_of_its_element() {
    let (device, extent) = device(512, 2);
    let log = create(&device, extent);
    // From the label on: the first fills page 0 up to its last 8 bytes, the second straddles.
    put(&log, b"a", &bytes(PAYLOAD - LABEL - 8 - 11, 1), 1);
    put(&log, b"b", &bytes(20, 2), 2);
    put(&log, b"c", &bytes(512 << 10, 3), 3);
    commit_all(&log, Durability::Buffered);
    let pages = |key: &[u8]| match log.lookup(hash(key), key, 9).expect("no damage") {
        LogFind::Read(read) => (read.page() - extent.first, read.pages()),
        other => panic!("not a read: {other:?}"),
    };
    assert_eq!(pages(b"a"), (0, 1));
    assert_eq!(pages(b"b"), (0, 2));
    let (first, count) = pages(b"c");
    assert_eq!(first, 1);
    assert_eq!(count, 129);
    for (key, value) in [(b"a", 4021), (b"b", 20), (b"c", 512 << 10)] {
        let found = get(&log, key, 9).flatten().expect("it is there");
        assert_eq!(found.len(), value);
    }
}

#[test]
fn an_element_half_written_is_joined_from_both_halves() {
    let (device, extent) = device(512, 3);
    let log = create(&device, extent);
    let value = bytes(200 << 10, 5);
    put(&log, b"one", &value, 1);
    put(&log, b"two", &value, 2);
    // 400 KiB: the first chunk is full, the second not.
    assert_eq!(log.unwritten_chunks(), 1);
    log.write_behind().expect("a sound device");
    assert_eq!(log.unwritten_chunks(), 0);
    let LogFind::Read(read) = log.lookup(hash(b"two"), b"two", 9).expect("no damage") else {
        panic!("half of it is on the device");
    };
    assert!(read.pages() < 51);
    // The other half is written before the read ends.
    commit_all(&log, Durability::Synced);
    let buf = read_pages(&device, read.page(), read.pages());
    let LogFind::Found(found) = read.finish(&log, b"two", &buf).expect("no damage") else {
        panic!("it is whole");
    };
    assert_eq!(found.into_value(), value);
}

#[test]
fn a_full_log_refuses_and_keeps_what_it_has() {
    let (device, extent) = device(16, 4);
    let log = create(&device, extent);
    let mut time = 0;
    loop {
        time += 1;
        let batch = [(vec![1, time as u8], Some(bytes(1000, time)))];
        match append(&log, &batch, time) {
            Ok(_) => {}
            Err(AppendError::Full) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let put = Log::limit(16) / 1012;
    assert_eq!(time, put + 1);
    assert_eq!(log.elements(), put);
    commit_all(&log, Durability::Synced);
    let again = replay(&device, extent);
    assert_eq!(again.elements(), put);
    assert_eq!(get(&again, &[1, 1], 1000), Some(Some(bytes(1000, 1))));
    assert_eq!(again.capacity(), 16 * PAGE_SIZE as u64);
}

#[test]
fn a_whole_log_in_one_batch() {
    let (device, extent) = device(2048, 5);
    let log = create(&device, extent);
    let mut left = Log::limit(2048);
    let mut batch = Vec::new();
    for nth in 0u32.. {
        let key = nth.to_le_bytes().to_vec();
        let header = 1 + 1 + 7 + 4;
        if left < header + 3 + 300_000 {
            break;
        }
        left -= header + 3 + 300_000;
        batch.push((key, Some(bytes(300_000, u64::from(nth)))));
    }
    // The remaining free space, to the byte; and one byte more.
    let last = |len| (vec![0xff; 4], Some(bytes(len, 1)));
    batch.push(last(left as usize - 15));
    assert!(matches!(append(&log, &batch, 1), Err(AppendError::Full)));
    assert_eq!((log.elements(), log.bytes_used()), (0, 0));
    batch.pop();
    batch.push(last(left as usize - 16));
    let ticket = append(&log, &batch, 1).expect("it fits to the byte");
    commit(&log, ticket, Durability::Synced);
    let again = replay(&device, extent);
    for (key, value) in &batch {
        assert_eq!(get(&again, key, 1), Some(value.clone()));
    }
}

#[test]
fn sorted_gives_all_versions_in_a_block_s_order() {
    let (device, extent) = device(64, 6);
    let log = create(&device, extent);
    for time in 1..=300u64 {
        put(&log, &[time as u8 % 50, 9], &bytes(100, time), time);
        if time == 200 {
            commit_all(&log, Durability::Buffered);
        }
    }
    let sorted = log.sorted().expect("no damage");
    let all: Vec<_> = sorted.iter().collect();
    assert_eq!(all.len(), 300);
    for pair in all.windows(2) {
        let rank = |(hash, element): &(_, senko_store::element::Element<'_>)| {
            (*hash, element.key.to_vec(), u64::MAX - element.time)
        };
        assert!(rank(&pair[0]) < rank(&pair[1]));
    }
    for (key, element) in &all {
        assert_eq!(*key, hash(element.key));
        assert_eq!(element.value, bytes(100, element.time));
    }
}

#[test]
fn after_a_failed_write_nothing_is_taken_and_all_is_found() {
    let (device, extent) = device(64, 7);
    let log = create(&device, extent);
    put(&log, b"a", b"1", 1);
    commit_all(&log, Durability::Synced);
    device.fail_nth(Op::Write, 1, 5);
    put(&log, b"b", b"2", 2);
    let failed = log.commit(log.end(), Durability::Buffered);
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    let latched = log.commit(log.end(), Durability::Synced);
    assert!(
        matches!(latched, Err(StoreError::ReadOnly(_))),
        "{latched:?}"
    );
    let refused = append(&log, &[(b"c".to_vec(), None)], 3);
    assert!(
        matches!(refused, Err(AppendError::Store(StoreError::ReadOnly(_)))),
        "{refused:?}"
    );
    assert_eq!(get(&log, b"a", 9), Some(Some(b"1".to_vec())));
    assert_eq!(get(&log, b"b", 9), Some(Some(b"2".to_vec())));
    assert_eq!(log.sorted().expect("no damage").iter().len(), 2);
}

/// The tables of docs/formats/store-log.md, byte by byte.
#[test]
fn pages_lie_on_flash_as_the_document_says() {
    let (device, extent) = device(64, 8);
    let log = create(&device, extent);
    for (time, page) in [(5u64, 0), (6, 1)] {
        let ticket = put(&log, b"key", &[9; 3], time);
        commit(&log, ticket, Durability::Synced);
        assert_eq!(log.bytes_used(), (page + 1) * PAGE_SIZE as u64);
    }
    let bytes = read_pages(&device, extent.first, 2);
    let (zero, one) = bytes.split_at(PAGE_SIZE);
    let crc = |number: u32, rest: &[u8]| {
        let place = [&7u64.to_le_bytes()[..], &number.to_le_bytes()].concat();
        crc32c::crc32c_append(crc32c::crc32c(&place), rest).to_le_bytes()
    };
    assert_eq!(zero[..4], crc(0, &zero[4..]));
    assert_eq!(zero[4..8], crc(u32::MAX, &[]));
    assert_eq!(one[..4], crc(1, &one[4..]));
    assert_eq!(one[4..8], zero[..4]);
    let element_bytes = 1 + 1 + 1 + 7 + 3 + 3;
    let header = |life: u16, behind: u16, begin: u16| {
        [life, behind, begin + element_bytes, begin]
            .map(u16::to_le_bytes)
            .concat()
    };
    assert_eq!(zero[8..16], header(0, 0, 56));
    assert_eq!(one[8..16], header(0, 0, 16));
    assert_eq!(&zero[16..24], b"SENKOLOG");
    assert_eq!(zero[24..28], 1u32.to_le_bytes());
    assert_eq!(zero[28..32], 4096u32.to_le_bytes());
    assert_eq!(zero[32..40], 7u64.to_le_bytes());
    assert_eq!(zero[40..48], extent.first.to_le_bytes());
    assert_eq!(zero[48..52], extent.pages.to_le_bytes());
    assert_eq!(zero[52..56], [0; 4]);
    let element = |time: u8| [0, 3, 3, time, 0, 0, 0, 0, 0, 0, b'k', b'e', b'y', 9, 9, 9];
    assert_eq!(zero[56..72], element(5));
    assert_eq!(one[16..32], element(6));
    assert!(zero[72..].iter().chain(&one[32..]).all(|byte| *byte == 0));
    assert_eq!(read_label(zero), Some((7, extent)));
    assert_eq!(read_label(one), None);
    // Another life.
    let again = replay(&device, extent);
    let ticket = put(&again, b"key", &[9; 3], 7);
    commit(&again, ticket, Durability::Buffered);
    let two = read_pages(&device, extent.first + 2, 1);
    assert_eq!(two[8..16], header(1, 1, 16));
    assert_eq!(two[4..8], one[..4]);
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let (device, extent) = device(64, 9);
    let log = create(&device, extent);
    let shared = hash(b"whatever");
    let one = |key: &'static [u8], time: u64| {
        let element = Element {
            flags: 0,
            key,
            value: key,
            time,
            expiry: 0,
        };
        log.append(&[(shared, element)]).expect("room")
    };
    let keys: [&[u8]; 3] = [b"first", b"second", b"third"];
    for (key, time) in keys.into_iter().zip(1..) {
        let ticket = one(key, time);
        if time == 2 {
            commit(&log, ticket, Durability::Buffered);
        }
    }
    let find = |key: &[u8], at| {
        let found = log.get(shared, key, at).expect("no damage");
        found.map(|element| element.element().time)
    };
    let check = || {
        for (key, time) in keys.into_iter().zip(1..) {
            assert_eq!(find(key, 9), Some(time));
            assert_eq!(find(key, time - 1), None);
        }
        assert_eq!(find(b"fourth", 9), None);
    };
    check();
    commit_all(&log, Durability::Buffered);
    check();
    // The oldest of three costs three reads, each of its own page only.
    let mut reads = 0;
    let mut find = log.lookup(shared, b"first", 9).expect("no damage");
    while let LogFind::Read(read) = find {
        reads += 1;
        let buf = read_pages(&device, read.page(), read.pages());
        find = read.finish(&log, b"first", &buf).expect("no damage");
    }
    assert_eq!(reads, 3);
    assert!(matches!(find, LogFind::Found(_)));
}

#[test]
fn times_may_lie_far_apart() {
    let (device, extent) = device(64, 10);
    let log = create(&device, extent);
    // Steps from one microsecond to thirty years, up to the largest age that a page can store, and
    // beyond.
    let mut times = vec![1u64];
    for power in 0..50 {
        times.push(times[times.len() - 1] + (1 << power));
    }
    times.push((1 << 56) - 1);
    for time in &times {
        put(&log, b"key", &time.to_le_bytes(), *time);
    }
    let check = |log: &Log| {
        for time in &times {
            let value = Some(time.to_le_bytes().to_vec());
            assert_eq!(get(log, b"key", *time), Some(value));
        }
    };
    check(&log);
    commit_all(&log, Durability::Synced);
    check(&log);
    check(&replay(&device, extent));
    let late = append(&log, &[(b"key".to_vec(), None)], 1 << 56);
    assert!(matches!(
        late,
        Err(AppendError::Store(StoreError::Invalid(_)))
    ));
}

#[test]
fn what_cannot_be_stored_is_refused_and_leaves_no_trace() {
    let (device, extent) = device(1024, 11);
    let log = create(&device, extent);
    put(&log, b"key", b"1", 5);
    let refused = |batch: &[(Vec<u8>, Option<Vec<u8>>)], time| {
        let result = append(&log, batch, time);
        assert!(
            matches!(result, Err(AppendError::Store(StoreError::Invalid(_)))),
            "{result:?}"
        );
    };
    refused(&[(b"key".to_vec(), None)], 5);
    refused(&[(b"key".to_vec(), None)], 4);
    refused(&[(vec![], None)], 6);
    refused(&[(vec![1; 65_537], None)], 6);
    let good = (b"good".to_vec(), Some(vec![1]));
    refused(&[good.clone(), (vec![], None)], 6);
    let long = (b"long".to_vec(), Some(vec![1; MAX_ELEMENT]));
    refused(&[good, long], 6);
    assert_eq!((log.elements(), log.last_time()), (1, 5));
    let longest = vec![1; MAX_ELEMENT - 1 - 2 - 3 - 7 - 3];
    put(&log, b"max", &longest, 6);
    assert_eq!(get(&log, b"max", 6), Some(Some(longest.clone())));
    commit_all(&log, Durability::Buffered);
    assert_eq!(get(&log, b"max", 6), Some(Some(longest)));
    let empty = log.append(&[]).expect("nothing to refuse");
    assert_eq!(empty, log.end());
}
