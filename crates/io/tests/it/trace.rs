// SPDX-License-Identifier: Apache-2.0
//! The trace: recorded operations are read back, and no other input makes the reader panic.

use std::sync::Arc;

use senko_io::trace::{HEADER_BYTES, RECORD_BYTES, Record, Recorder, TraceError, TraceReader};
use senko_io::{
    AlignedBuf, Device, Engine, FileOptions, FlashFile, Op, PAGE_SIZE, Purpose, Queue, Tag,
};
use senko_workload::Rng;

use crate::support::{Folder, config, event_loop, on_both, poll_until, seed};

fn tag(engine: Engine, purpose: Purpose) -> Tag {
    Tag { engine, purpose }
}

fn read(path: &std::path::Path) -> Vec<Record> {
    TraceReader::open(path)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn the_layout_is_as_documented() {
    let record = Record {
        time_ns: 0x0102_0304_0506_0708,
        device: 0x1112,
        tag: tag(Engine::Dbm, Purpose::Log),
        op: Op::Flush,
        page: 0x00_0102_0304_0506,
        count: 0x2122_2324,
    };
    let bytes = record.encode();
    assert_eq!(bytes.len(), RECORD_BYTES);
    assert_eq!(bytes[0..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[8..16], [6, 5, 4, 3, 2, 1, 0, 0]);
    assert_eq!(bytes[16..20], [0x24, 0x23, 0x22, 0x21]);
    assert_eq!(bytes[20..22], [0x12, 0x11]);
    assert_eq!(bytes[22], 0x33, "engine 3 above, flush 3 below");
    assert_eq!(bytes[23], 7);
    assert_eq!(Record::decode(&bytes), Ok(record));
}

#[test]
fn threads_record_and_time_never_goes_back() {
    let folder = Folder::new();
    let path = folder.file("trace");
    let recorder = Arc::new(Recorder::create(&path).unwrap());
    let threads: Vec<_> = (0..4u16)
        .map(|device| {
            let recorder = Arc::clone(&recorder);
            std::thread::spawn(move || {
                for page in 0..10_000 {
                    recorder.record(
                        device,
                        tag(Engine::Store, Purpose::Admit),
                        Op::Write,
                        page,
                        3,
                    );
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(recorder.records(), 40_000);
    recorder.record(
        9,
        tag(Engine::Lab, Purpose::Meta),
        Op::Discard,
        7,
        (1 << 32) + 5,
    );
    recorder.flush().unwrap();
    let records = read(&path);
    assert_eq!(records.len(), 40_002);
    let mut next = [0; 4];
    for record in &records[..40_000] {
        assert_eq!((record.op, record.count), (Op::Write, 3));
        assert_eq!(record.page, next[record.device as usize]);
        next[record.device as usize] += 1;
    }
    let [first, second] = records[40_000..] else {
        panic!()
    };
    assert_eq!((first.page, first.count), (7, u32::MAX));
    assert_eq!((second.page, second.count), (7 + u64::from(u32::MAX), 6));
}

/// Both interfaces and both backends record the same.
#[test]
fn devices_are_recorded() {
    on_both(|backend| {
        let folder = Folder::new();
        let path = folder.file("trace");
        let recorder = Arc::new(Recorder::create(&path).unwrap());
        let options = FileOptions {
            bytes: 1 << 20,
            discard: true,
            recorder: Some((Arc::clone(&recorder), 3)),
            ..FileOptions::default()
        };
        let file = Arc::new(FlashFile::open(&folder.file("flash"), &options).unwrap());
        let (log, lookup) = (tag(Engine::Dbm, Purpose::Log), Tag::cache(Purpose::Lookup));
        let mut page = AlignedBuf::new(2);
        file.write(5, &page, log).unwrap();
        file.flush(log).unwrap();
        file.read(6, &mut page[..PAGE_SIZE], log).unwrap();
        file.discard(8, 16, log).unwrap();
        let mut io = event_loop(&config(backend));
        let device = io.attach(file);
        let frame = io.frame(2).unwrap();
        io.read(device, 9, 2, frame, lookup, 0);
        io.write(device, 5, Arc::new(page), 1, 1, lookup, 0);
        io.flush(device, lookup, 0);
        io.discard(device, 8, 16, lookup, 0);
        poll_until(&mut io, |events| events.len() == 4);
        drop(io);
        drop(options);
        drop(recorder);
        let got: Vec<_> = read(&path)
            .iter()
            .map(|r| (r.device, r.tag, r.op, r.page, r.count))
            .collect();
        let expected = [
            (3, log, Op::Write, 5, 2),
            (3, log, Op::Flush, 0, 0),
            (3, log, Op::Read, 6, 1),
            (3, log, Op::Discard, 8, 16),
            (3, lookup, Op::Read, 9, 2),
            (3, lookup, Op::Write, 5, 1),
            (3, lookup, Op::Flush, 0, 0),
            (3, lookup, Op::Discard, 8, 16),
        ];
        assert_eq!(got, expected);
    });
}

fn sample(records: u64) -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.file("trace");
    let recorder = Recorder::create(&path).unwrap();
    for page in 0..records {
        recorder.record(0, Tag::cache(Purpose::Lookup), Op::Read, page, 1);
    }
    drop(recorder);
    std::fs::read(&path).unwrap()
}

#[test]
fn every_cut_is_told() {
    let bytes = sample(3);
    assert_eq!(bytes.len(), HEADER_BYTES + 3 * RECORD_BYTES);
    for cut in 0..bytes.len() {
        let reader = match TraceReader::new(&bytes[..cut]) {
            Ok(reader) => reader,
            Err(TraceError::NoHeader { got }) => {
                assert!(cut < HEADER_BYTES && got == cut);
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let items: Vec<_> = reader.collect();
        let (whole, rest) = (
            (cut - HEADER_BYTES) / RECORD_BYTES,
            (cut - HEADER_BYTES) % RECORD_BYTES,
        );
        assert!(items[..whole].iter().all(Result::is_ok));
        match &items[whole..] {
            [] => assert_eq!(rest, 0),
            [Err(TraceError::Truncated { record, got })] => {
                assert_eq!((*record, *got), (whole as u64, rest));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn foreign_and_damaged_files_are_told() {
    let error = |bytes: &[u8]| match TraceReader::new(bytes) {
        Ok(reader) => reader.filter_map(Result::err).next().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    let good = sample(2);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(
        error(b"PK\x03\x04 something else that is long enough"),
        "not a senko trace: it does not begin with SENKOTRC"
    );
    assert_eq!(
        error(&with(8, 2)),
        "trace version 2; this program reads version 1"
    );
    assert_eq!(
        error(&with(12, 32)),
        "damaged trace header: record size is 32, must be 24"
    );
    let record = HEADER_BYTES + RECORD_BYTES;
    assert_eq!(
        error(&with(record + 22, 0x15)),
        "damaged trace: record 1: unknown operation"
    );
    assert_eq!(
        error(&with(record + 22, 0xf1)),
        "damaged trace: record 1: unknown engine"
    );
    assert_eq!(
        error(&with(record + 23, 0)),
        "damaged trace: record 1: unknown purpose"
    );
    assert_eq!(
        error(&with(record + 15, 0xff)),
        "damaged trace: record 1: page number out of range"
    );
    assert_eq!(
        error(&with(HEADER_BYTES + 7, 0x7f)),
        "damaged trace: record 1: its time is before its predecessor's"
    );
    assert!(TraceReader::open(std::path::Path::new("/nonexistent")).is_err());
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(seed("random_bytes_never_panic"));
    let good = sample(20);
    for _ in 0..5000 {
        let mut bytes = good.clone();
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        if let Ok(reader) = TraceReader::new(&bytes[..]) {
            assert!(reader.count() <= 21);
        }
    }
}

/// A full disk stops the recording, not the program.
#[test]
fn a_full_disk_is_told_by_flush() {
    let path = std::path::Path::new("/dev/full");
    assert!(
        Recorder::create(path)
            .unwrap_err()
            .to_string()
            .contains("/dev/full")
    );
}
