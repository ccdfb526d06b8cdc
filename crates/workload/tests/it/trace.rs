// SPDX-License-Identifier: Apache-2.0
//! Trace readers on hand-made samples and, where present, on the real traces.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use senko_workload::Rng;
use senko_workload::trace::{
    Compression, Dropped, Format, Record, TimeUnit, TraceError, TraceOp, TraceReader,
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn oracle(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
    records
        .iter()
        .flat_map(|(time, key, size, next)| {
            [
                &time.to_le_bytes()[..],
                &key.to_le_bytes(),
                &size.to_le_bytes(),
                &next.to_le_bytes(),
            ]
            .concat()
        })
        .collect()
}

fn get(time: u64, key: u64, size: Option<u64>) -> Record {
    Record {
        time,
        key,
        size,
        op: TraceOp::Get,
    }
}

fn read_all(bytes: &[u8]) -> (Format, Vec<Record>, Dropped) {
    let mut reader = TraceReader::open(bytes).unwrap();
    let records = reader.by_ref().collect::<Result<_, _>>().unwrap();
    (reader.format(), records, reader.dropped())
}

/// The error of a bad trace, and the number of records before it.
fn read_error(bytes: &[u8]) -> (usize, String) {
    let mut reader = match TraceReader::open(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, error.to_string()),
    };
    let mut good = 0;
    let error = loop {
        match reader.next().expect("the trace should end with an error") {
            Ok(_) => good += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(reader.next().is_none(), "nothing comes after an error");
    (good, error)
}

/// Names of digits were read as numbers, so the keys 007, 7 and 0007 were one.
#[test]
fn names_that_begin_with_0_are_names() {
    let (_, records, _) = read_all(b"007,get,1\n7,get,1\n0007,get,1\n0,get,1\n00,get,1\n");
    let mut keys: Vec<u64> = records.iter().map(|record| record.key).collect();
    assert_eq!((keys[1], keys[3]), (7, 0));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

#[test]
fn arc_lines_are_expanded() {
    let text = b"10 3 0 0\n\n7 1 0 1\n 5 0 0 2 \r\n9 1 0 3";
    let expected = [
        get(0, 10, None),
        get(1, 11, None),
        get(2, 12, None),
        get(3, 7, None),
        get(4, 9, None),
    ];
    let left_out = Dropped {
        blank_lines: 1,
        empty_requests: 1,
        ..Dropped::default()
    };
    for (bytes, compression) in [
        (text.to_vec(), Compression::None),
        (gzip(text), Compression::Gzip),
        (zstd(text), Compression::Zstd),
        (xz(text), Compression::Xz),
        (bzip2(text), Compression::Bzip2),
        ([gzip(text), vec![0; 700]].concat(), Compression::Gzip),
        (
            [gzip(&text[..9]), gzip(&text[9..])].concat(),
            Compression::Gzip,
        ),
        (
            [zstd(&text[..9]), zstd(&text[9..])].concat(),
            Compression::Zstd,
        ),
    ] {
        let reader = TraceReader::open(bytes.as_slice()).unwrap();
        assert_eq!(
            (reader.compression(), reader.time_unit()),
            (compression, TimeUnit::Index)
        );
        assert_eq!(read_all(&bytes), (Format::Arc, expected.to_vec(), left_out));
    }
}

#[test]
fn lirs_lines_and_marks() {
    let (format, records, dropped) = read_all(b"*\n5\n6\n*\n5\n");
    assert_eq!(format, Format::Lirs);
    assert_eq!(records, [get(0, 5, None), get(1, 6, None), get(2, 5, None)]);
    assert_eq!(
        dropped,
        Dropped {
            phase_marks: 2,
            ..Dropped::default()
        }
    );
    assert_eq!(dropped.total(), 2);
    assert_eq!(
        dropped.to_string(),
        "0 blank lines, 2 phase marks, 0 empty requests, 0 headings"
    );
}

#[test]
fn oracle_general_records() {
    let bytes = oracle(&[
        (100, 7, 512, 3),
        (100, 8, 0, -1),
        (103, u64::MAX, 4096, i64::MAX),
        (104, 7, 512, -1),
    ]);
    let expected = [
        get(100, 7, Some(512)),
        get(103, u64::MAX, Some(4096)),
        get(104, 7, Some(512)),
    ];
    for bytes in [bytes.clone(), zstd(&bytes), gzip(&bytes)] {
        assert_eq!(
            read_all(&bytes),
            (
                Format::OracleGeneral,
                expected.to_vec(),
                Dropped {
                    empty_requests: 1,
                    ..Dropped::default()
                }
            )
        );
        assert_eq!(
            TraceReader::open(bytes.as_slice()).unwrap().time_unit(),
            TimeUnit::Seconds
        );
    }
}

#[test]
fn csv_with_and_without_heading() {
    let (format, records, dropped) =
        read_all(b"\nkey,op,size\n5,get,\n user:1 , SET , 100\n5,delete,\nuser:1,get,100\n");
    assert_eq!(format, Format::Csv);
    assert_eq!(
        (records[0], records[1].op, records[1].size),
        (get(0, 5, None), TraceOp::Set, Some(100))
    );
    assert_eq!((records[2].key, records[2].op), (5, TraceOp::Delete));
    assert_eq!(records[1].key, records[3].key);
    assert_eq!(
        dropped,
        Dropped {
            blank_lines: 1,
            headings: 1,
            ..Dropped::default()
        }
    );
    let (_, records, _) = read_all(b"18446744073709551615999,get,1\n");
    assert_eq!(records.len(), 1, "a number beyond 64 bits is a name");
}

#[test]
fn bad_content_is_an_error_that_says_where() {
    for (bytes, good, sentence) in [
        (
            &b"1 1 0 0\n2 x 0 0\n"[..],
            1,
            "line 2 of the arc trace is bad: the count \"x\" is not a number of 64 bits",
        ),
        (
            b"1 1 0 0\n\n2 1 0\n",
            1,
            "line 3 of the arc trace is bad: it has fewer than the four fields of a .lis line",
        ),
        (
            b"1 1 0 0 \n2 1 0 0 0\n",
            1,
            "line 2 of the arc trace is bad: it has more than the four fields of a .lis line",
        ),
        (
            b"18446744073709551615 2 0 0\n",
            0,
            "line 1 of the arc trace is bad: 2 blocks from 18446744073709551615 on pass the end of 64 bits",
        ),
        // 20 bytes stood for three billion references, and took all memory.
        (
            b"0 3000000000 0 0\n",
            0,
            "line 1 of the arc trace is bad: it asks for 3000000000 blocks at once, and 16777216 are the most",
        ),
        (
            b"1\n-2\n",
            1,
            "line 2 of the lirs trace is bad: the block number \"-2\" is not a number of 64 bits",
        ),
        (
            b"1,get,1\n2,fly,1\n",
            1,
            "line 2 of the csv trace is bad: the op \"fly\" is not get, set or delete",
        ),
        (
            b"1,get,1\n2,get\n",
            1,
            "line 2 of the csv trace is bad: it does not have the three fields key,op,size",
        ),
        (
            b"1,get,1\n2,get,x\n",
            1,
            "line 2 of the csv trace is bad: the size \"x\" is not a number of 64 bits",
        ),
        (
            b"1,get,1\n\"2\",get,1\n",
            1,
            "line 2 of the csv trace is bad: its key is empty or quoted",
        ),
        (
            b"",
            0,
            "the trace is in no known format (it is empty); known are arc, lirs, oracle-general and csv",
        ),
        (
            b"\n\n",
            0,
            "the trace is in no known format (it starts with blank lines only); known are arc, lirs, oracle-general and csv",
        ),
        (
            b"hello\tworld\n",
            0,
            "the trace is in no known format (its first line is \"hello\\tworld\"); known are arc, lirs, oracle-general and csv",
        ),
    ] {
        assert_eq!(read_error(bytes), (good, sentence.to_string()));
    }
    let mut cut = oracle(&[(1, 2, 3, -1), (1, 2, 3, -1)]);
    cut.truncate(31);
    assert_eq!(
        read_error(&cut),
        (
            1,
            "record 2 of the oracle-general trace is bad: it is cut short, 7 of 24 bytes"
                .to_string()
        )
    );
    let late = [oracle(&vec![(1, 2, 3, -1); 1000]), oracle(&[(1, 2, 3, -9)])].concat();
    assert_eq!(read_error(&late), (1000, "record 1001 of the oracle-general trace is bad: its next access -9 is not a record number".to_string()));
    assert!(
        read_error(&oracle(&[(9, 1, 1, -1), (8, 1, 1, -1)]))
            .1
            .contains("sane times")
    );
    let long = [b"1\n".to_vec(), vec![b'1'; 5000]].concat();
    assert_eq!(
        read_error(&long),
        (
            1,
            "line 2 of the lirs trace is bad: it is longer than 4096 bytes".to_string()
        )
    );
}

#[test]
fn damaged_compression_and_failing_readers_are_errors() {
    let mut rng = Rng::new(9);
    let text: Vec<u8> = (0..200_000)
        .flat_map(|_| format!("{}\n", rng.below(10_007)).into_bytes())
        .collect();
    for whole in [gzip(&text), zstd(&text)] {
        let (good, sentence) = read_error(&whole[..whole.len() / 2]);
        assert!(
            good > 1000
                && sentence.starts_with(&format!("the trace cannot be read after line {good}: ")),
            "{good} {sentence}"
        );
        assert!(!read_error(&whole[..6]).1.is_empty());
    }
    struct Failing(usize);
    impl Read for Failing {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("the disk is gone"))?;
            out[..2].copy_from_slice(b"1\n");
            Ok(2)
        }
    }
    let mut reader = TraceReader::open(Failing(20_000)).unwrap();
    let error = reader.find_map(Result::err).unwrap();
    assert!(
        matches!(
            error,
            TraceError::Read {
                unit: "line",
                after: 20_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(TraceReader::open(Failing(0)).is_err());
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut rng = Rng::new(3);
    let samples = [
        b"1 1 0 0\n2 2 0 0\n".to_vec(),
        b"1\n*\n2\n".to_vec(),
        b"k,get,1\n".to_vec(),
        oracle(&[(1, 2, 3, -1); 3]),
    ];
    for round in 0..20_000 {
        let mut bytes = samples[round % samples.len()].clone();
        if round % 3 == 0 {
            bytes = if round % 2 == 0 {
                gzip(&bytes)
            } else {
                zstd(&bytes)
            };
        }
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        if let Ok(reader) = TraceReader::open(bytes.as_slice()) {
            // A damaged count may ask for 2^60 references: they are produced one by one, so a bound
            // on taking suffices.
            let _ = reader.take(1000).count();
        }
    }
}

fn real(name: &str) -> Option<File> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../../shared/traces/kv",
        name,
    ]
    .iter()
    .collect();
    let file = File::open(path).ok();
    if file.is_none() {
        eprintln!("skipped: no ../shared/traces");
    }
    file
}

#[test]
fn real_traces_have_their_published_counts() {
    for (name, format, compression, requests, objects) in [
        (
            "ARC_OLTP.lis.zst",
            Format::Arc,
            Compression::Zstd,
            914_145,
            Some(186_880),
        ),
        (
            "ARC_P3.lis.zst",
            Format::Arc,
            Compression::Zstd,
            3_912_296,
            None,
        ),
        (
            "caffeine_lirs_loop.trace.gz",
            Format::Lirs,
            Compression::Gzip,
            505_500,
            Some(1_011),
        ),
        (
            "caffeine_lirs_sprite.trace.gz",
            Format::Lirs,
            Compression::Gzip,
            133_996,
            Some(7_075),
        ),
        (
            "cloudphysics_114k.oracleGeneral",
            Format::OracleGeneral,
            Compression::None,
            113_872,
            None,
        ),
    ] {
        let Some(file) = real(name) else { return };
        let mut reader = TraceReader::open(file).unwrap();
        assert_eq!(
            (reader.format(), reader.compression()),
            (format, compression),
            "{name}"
        );
        let mut keys = HashSet::new();
        let mut count = 0;
        for record in reader.by_ref() {
            keys.insert(record.unwrap().key);
            count += 1;
        }
        assert_eq!(count, requests, "{name}");
        assert_eq!(reader.dropped(), Dropped::default(), "{name}");
        if let Some(objects) = objects {
            assert_eq!(keys.len(), objects, "{name}");
        }
    }
}
