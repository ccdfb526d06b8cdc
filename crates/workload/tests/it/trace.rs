// SPDX-License-Identifier: Apache-2.0
//! Trace readers on hand-made samples and, where present, on the real traces.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use senko_workload::trace::{Format, Record, TraceError, TraceOp, TraceReader};
use senko_workload::{Compression, Rng, decompress};

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

fn get(key: u64, size: Option<u64>) -> Record {
    let op = TraceOp::Get;
    Record { key, size, op }
}

fn read_all(bytes: &[u8]) -> (Format, Vec<Record>) {
    let reader = TraceReader::open(bytes).unwrap();
    let format = reader.format();
    (format, reader.collect::<Result<_, _>>().unwrap())
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
    let (_, records) = read_all(b"007,get,1\n7,get,1\n0007,get,1\n0,get,1\n00,get,1\n");
    let mut keys: Vec<u64> = records.iter().map(|record| record.key).collect();
    assert_eq!((keys[1], keys[3]), (7, 0));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

#[test]
fn arc_lines_are_expanded() {
    let expected = [10, 11, 12, 7, 9].map(|key| get(key, None));
    let records = read_all(b"10 3 0 0\n\n7 1 0 1\n 5 0 0 2 \r\n9 1 0 3");
    assert_eq!(records, (Format::Arc, expected.to_vec()));
}

#[test]
fn lirs_lines_and_marks() {
    let expected = [5, 6, 5].map(|key| get(key, None));
    let records = read_all(b"*\n5\n6\n*\n5\n");
    assert_eq!(records, (Format::Lirs, expected.to_vec()));
}

#[test]
fn oracle_general_records() {
    let bytes = oracle(&[
        (100, 7, 512, 3),
        (100, 8, 0, -1),
        (103, u64::MAX, 4096, i64::MAX),
        (104, 7, 512, -1),
    ]);
    let expected = [(7, 512), (u64::MAX, 4096), (7, 512)];
    let expected = expected.map(|(key, size)| get(key, Some(size)));
    assert_eq!(
        read_all(&zstd(&bytes)),
        (Format::OracleGeneral, expected.to_vec())
    );
}

#[test]
fn csv_with_and_without_heading() {
    let (format, records) =
        read_all(b"\nkey,op,size\n5,get,\n user:1 , SET , 100\n5,delete,\nuser:1,get,100\n");
    assert_eq!((format, records.len()), (Format::Csv, 4));
    assert_eq!(
        (records[0], records[1].op, records[1].size),
        (get(5, None), TraceOp::Set, Some(100))
    );
    assert_eq!((records[2].key, records[2].op), (5, TraceOp::Delete));
    assert_eq!(records[1].key, records[3].key);
    let (_, records) = read_all(b"18446744073709551615999,get,1\n");
    assert_eq!(records.len(), 1, "a number beyond 64 bits is a name");
}

/// A tape archive ends in zeros, which gzip ignores and a reader took for damage. Members one after
/// the other are one file, as with `cat`; anything else behind a member is an error.
#[test]
fn every_compression_is_undone_to_its_end() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let kinds: [(Compression, Compress); 5] = [
        (Compression::None, <[u8]>::to_vec),
        (Compression::Gzip, gzip),
        (Compression::Xz, xz),
        (Compression::Zstd, zstd),
        (Compression::Bzip2, bzip2),
    ];
    let text = b"10 3 0 0\n7 1 0 1\n".repeat(3000);
    let undo = |bytes: &[u8]| -> io::Result<(Compression, Vec<u8>)> {
        let (compression, mut input) = decompress(bytes)?;
        let mut whole = Vec::new();
        input.read_to_end(&mut whole)?;
        Ok((compression, whole))
    };
    for (kind, compress) in kinds {
        let archive = compress(&text);
        assert_eq!(undo(&archive).unwrap(), (kind, text.clone()));
        if kind == Compression::None {
            continue;
        }
        for zeros in [0, 1, 512, 300_000] {
            let padded = [&archive[..], &vec![0; zeros]].concat();
            assert_eq!(undo(&padded).unwrap().1, text, "{kind}, {zeros} zeros");
            let two = [padded, archive.clone()].concat();
            let twice = text.repeat(2);
            assert_eq!(undo(&two).unwrap().1, twice, "{kind}, {zeros} zeros");
        }
        let more = [&archive[..], b"\0\0rubbish"].concat();
        assert!(undo(&more).is_err(), "{kind}");
        for cut in [archive.len() / 2, archive.len() * 9 / 10, archive.len() - 1] {
            assert!(undo(&archive[..cut]).is_err(), "{kind}, cut at {cut}");
        }
    }
}

#[test]
fn bad_content_is_an_error_that_says_where() {
    for (bytes, good, sentence) in rows! {
        &b"1 1 0 0\n2 x 0 0\n"[..], 1,
            "line 2 of the arc trace is bad: the count \"x\" is not a number of 64 bits";
        b"1 1 0 0\n\n2 1 0\n", 1,
            "line 3 of the arc trace is bad: it has fewer than the four fields of a .lis line";
        b"1 1 0 0 \n2 1 0 0 0\n", 1,
            "line 2 of the arc trace is bad: it has more than the four fields of a .lis line";
        b"18446744073709551615 2 0 0\n", 0,
            "line 1 of the arc trace is bad: 2 blocks from 18446744073709551615 on pass the end of 64 bits";
        // 20 bytes stood for three billion references, and took all memory.
        b"0 3000000000 0 0\n", 0,
            "line 1 of the arc trace is bad: it asks for 3000000000 blocks at once, and 16777216 are the most";
        b"1\n-2\n", 1,
            "line 2 of the lirs trace is bad: the block number \"-2\" is not a number of 64 bits";
        b"1,get,1\n2,fly,1\n", 1,
            "line 2 of the csv trace is bad: the op \"fly\" is not get, set or delete";
        b"1,get,1\n2,get\n", 1,
            "line 2 of the csv trace is bad: it does not have the three fields key,op,size";
        b"1,get,1\n2,get,x\n", 1,
            "line 2 of the csv trace is bad: the size \"x\" is not a number of 64 bits";
        b"1,get,1\n\"2\",get,1\n", 1, "line 2 of the csv trace is bad: its key is empty or quoted";
        b"", 0,
            "the trace is in no known format (it is empty); known are arc, lirs, oracle-general and csv";
        b"\n\n", 0,
            "the trace is in no known format (it starts with blank lines only); known are arc, lirs, oracle-general and csv";
        b"hello\tworld\n", 0,
            "the trace is in no known format (its first line is \"hello\\tworld\"); known are arc, lirs, oracle-general and csv";
    } {
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
    for (name, format, requests, objects) in [
        ("ARC_OLTP.lis.zst", Format::Arc, 914_145, Some(186_880)),
        ("ARC_P3.lis.zst", Format::Arc, 3_912_296, None),
        (
            "caffeine_lirs_loop.trace.gz",
            Format::Lirs,
            505_500,
            Some(1_011),
        ),
        (
            "caffeine_lirs_sprite.trace.gz",
            Format::Lirs,
            133_996,
            Some(7_075),
        ),
        (
            "cloudphysics_114k.oracleGeneral",
            Format::OracleGeneral,
            113_872,
            None,
        ),
    ] {
        let Some(file) = real(name) else { return };
        let mut reader = TraceReader::open(file).unwrap();
        assert_eq!(reader.format(), format, "{name}");
        let mut keys = HashSet::new();
        let mut count = 0;
        for record in reader.by_ref() {
            keys.insert(record.unwrap().key);
            count += 1;
        }
        assert_eq!(count, requests, "{name}");
        if let Some(objects) = objects {
            assert_eq!(keys.len(), objects, "{name}");
        }
    }
}
