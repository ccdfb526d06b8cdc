// SPDX-License-Identifier: Apache-2.0
//! The rules of every reader: damage is counted and named, times never go back, empty requests are
//! dropped, an incomplete stream reports where it ends, and a summary reports all of it.

use std::io::Write as _;

use senko_ssd::Op::{Read, Write};
use senko_ssd::trace::{Compression, TraceError};

use crate::util::*;

#[test]
fn damaged_lines_are_counted_and_the_first_are_named() {
    let mut text = String::from("0,100,512,R,0.0\n# a comment\n\n0,100,abc,R,1.0\n");
    text.push_str("0,1,512,X,2.0\n0,1,512\n\u{0}\u{1b}[2J\n0,18446744073709551615,512,R,3\n");
    text.push_str("0,36028797018963967,1024,R,3\n0,1,99999999999,W,3\n");
    text.push_str(&"x\n".repeat(100));
    text.push_str("0,101,512,W,4.0");
    let (requests, reader) = whole(text, "spc");
    let counts = reader.counts();
    assert_eq!(requests.len(), 2);
    assert_eq!((counts.headings, counts.damaged), (2, 107));
    assert_eq!(counts.items, 111);
    let named: Vec<(u64, &str)> = counts
        .first_damaged
        .iter()
        .map(|damage| (damage.number, damage.why))
        .collect();
    assert_eq!(
        named[..7],
        [
            (4, "the size is not a number"),
            (5, "the opcode is neither R nor W"),
            (6, "the opcode is neither R nor W"),
            (7, "the ASU is not a number"),
            (8, "the address is beyond 2^64"),
            (9, "the request ends beyond 2^64 bytes"),
            (10, "the request is longer than 4 GiB"),
        ]
    );
    assert_eq!(named.len(), 8, "the others are only counted");
    assert_eq!(counts.first_damaged[0].text, "0,100,abc,R,1.0");
    // Nothing of the trace reaches a terminal as it is.
    assert_eq!(counts.first_damaged[3].text, "\\0\\u{1b}[2J");
}

#[test]
fn empty_requests_are_dropped() {
    let (requests, reader) = whole("0,5,0,R,1.0\n0,5,1,R,2.0\n", "spc");
    assert_eq!(requests, [request(0, 0, Read, 2560, 1)]);
    assert_eq!(reader.counts().zero_sized, 1);
}

#[test]
fn times_never_go_back() {
    let text = "0,0,1,R,5.0\n0,0,1,R,7.0\n0,0,1,R,4.0\n0,0,1,R,-1\n0,0,1,R,8.0\n";
    let (requests, reader) = whole(text, "spc");
    let seconds: Vec<u64> = requests.iter().map(|r| r.time / 1_000_000_000).collect();
    assert_eq!(seconds, [0, 2, 2, 2, 3]);
    assert_eq!(reader.counts().backwards, 2);
    // Below 0 from the start.
    let (requests, reader) = whole("0,0,1,R,-2.0\n0,0,1,R,-1.0\n0,0,1,R,1.0\n", "spc");
    let seconds: Vec<u64> = requests.iter().map(|r| r.time / 1_000_000_000).collect();
    assert_eq!(seconds, [0, 0, 1]);
    assert_eq!(reader.counts().backwards, 2);
}

#[test]
fn a_line_without_an_end() {
    let mut text = b"0,1,512,R,0\n".to_vec();
    text.extend(std::iter::repeat_n(b'9', 1 << 20));
    text.extend(b"\n0,1,512,W,1\n");
    let (requests, reader) = whole(text, "spc");
    assert_eq!(requests.len(), 2);
    assert_eq!(reader.counts().first_damaged[0].number, 2);
    assert_eq!(
        reader.counts().first_damaged[0].why,
        "the line is longer than 64 KiB"
    );
}

/// A trace of some thousand requests, and the same compressed.
fn compressed() -> (Vec<u8>, Vec<u8>) {
    let mut text = Vec::new();
    for n in 0..20_000u64 {
        let lba = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        writeln!(text, "{},{lba},{},W,{}.5", n % 3, 512 + n % 5 * 512, n).expect("memory");
    }
    let archive = zstd::encode_all(&text[..], 1).expect("memory");
    (text, archive)
}

#[test]
fn compressed_traces_are_the_same() {
    let (text, archive) = compressed();
    let (plain, reader) = whole(text, "auto");
    assert_eq!(reader.compression(), Compression::None);
    assert_eq!(plain.len(), 20_000);
    let bytes = archive.len() as u64;
    let (requests, reader) = whole(archive, "auto");
    assert_eq!(reader.compression(), Compression::Zstd);
    assert_eq!(reader.input_bytes(), bytes);
    assert!(requests == plain, "other requests");
}

#[test]
fn a_truncated_archive_ends_in_an_error_that_says_where() {
    let (text, archive) = compressed();
    let (plain, _) = whole(text, "auto");
    for cut in [archive.len() * 9 / 10, archive.len() - 1] {
        let mut reader = reader(&archive[..cut], "spc").expect("the head is there");
        let mut requests = Vec::new();
        let error = loop {
            match reader.next() {
                Some(Ok(request)) => requests.push(request),
                Some(Err(error)) => break error,
                None => panic!("cut at {cut} of {}: no error", archive.len()),
            }
        };
        assert!(reader.next().is_none(), "an error is the last");
        assert!(plain.starts_with(&requests), "only what was whole");
        assert_eq!(reader.counts().damaged, 0, "the half line is none");
        let TraceError::Broken { after, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(after, requests.len() as u64);
    }
}

#[test]
fn a_truncated_binary_trace_ends_in_an_error() {
    let mut record = [0u8; 32];
    record[5] = 2;
    record[12] = 0x2a;
    record[15] = 1;
    let mut bytes = record.repeat(3);
    bytes.truncate(90);
    let mut reader = reader(bytes, "auto").expect("VSCSI");
    assert!(matches!(reader.next(), Some(Ok(_))));
    assert!(matches!(reader.next(), Some(Ok(_))));
    let error = reader.next().expect("an error").expect_err("an error");
    assert_eq!(
        error.to_string(),
        "the trace ends inside record 3: 26 of its 32 bytes are there"
    );
    assert!(reader.next().is_none());
}

#[test]
fn a_truncated_archive_of_our_own_format_says_where_too() {
    let written = |time: fn(u64, u64) -> u64| {
        let mut writer = TraceWriter::new(Vec::new(), WriteFormat::Senko);
        for n in 0..20_000u64 {
            let page = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let write = request(time(n, page), 0, Write, page * 4096, 4096);
            writer.write(&write).expect("memory");
        }
        writer.finish().expect("memory").0
    };
    // Times go back here and there, which the format forbids: the first such record ends the trace.
    let back = reader(written(|_, page| page), "auto").expect("ours");
    let error = back.into_iter().find_map(Result::err);
    assert!(error.is_some_and(|error| error.to_string().contains("its time is before")));
    let archive = zstd::encode_all(&written(|n, _| n)[..], 1).expect("memory");
    let mut reader = reader(&archive[..archive.len() / 2], "auto").expect("ours");
    let given = (&mut reader).take_while(Result::is_ok).count();
    assert!(given > 0);
    assert_eq!(reader.counts().requests, given as u64);
}

#[test]
fn what_is_no_trace_is_told_so() {
    let why = |bytes: &[u8]| reader(bytes, "auto").err().expect("no trace").to_string();
    assert!(why(b"").contains("it is empty"));
    assert!(why(b"\n\n# nothing\n").contains("blank lines"));
    assert!(why(b"Dear diary,\ntoday I saw\n").contains("its first line is \"Dear diary,\""));
    assert!(why(b"PK\x03\x04xxxxxxxx").contains("a zip archive, which has to be unpacked"));
    assert!(why(&[1; 500]).contains("it is binary"));
    assert!(why(b"\xff\xfeT\0i\0m\0e\0").contains("UTF-16"));
    assert_eq!(whole(&b"\xef\xbb\xbf0,1,512,R,0\n"[..], "auto").0.len(), 1);
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    assert!(why(&tar).contains("a tar archive"));
    assert!(why(b"Dear diary").contains("known are spc, msr, etw"));
    // An archive that is damaged from its start is not an unknown format.
    assert!(why(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).contains("breaks off"));
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let why = |text: &str| {
        text.parse::<TraceSpec>()
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(why("spd").contains("\"spd\" is not a trace format"));
    has(&why("spc:unit=ms"), "no option unit");
    has(&why("msr:page=1"), "msr has no options");
    assert!(why("columns:unit=hours").contains("\"hours\" is not a unit of time"));
    assert!(why("columns:write=2").contains("0 or 1"));
    assert!(why("columns:write=1,read=1").contains("both"));
    has(&why("columns:columns=tda"), "lack s");
    assert!(why("columns:columns=tdaasf").contains("twice"));
    assert!(why("columns:sector=0").contains("not a number of bytes"));
    assert!(why("blkparse:event=Z").contains("not an event"));
    assert!(why("lis:op=trim").contains("a read or a write"));
    // With `auto` it is reported when the format is known.
    let error = reader("0,1,512,R,0\n", "auto:event=Q")
        .err()
        .expect("refused");
    assert!(error.to_string().contains("no option event"), "{error}");
    assert!(reader("0,1,512,R,0\n", "auto:sector=1024").is_ok());
}

#[test]
fn a_summary_tells_all() {
    let text =
        "0,0,4096,R,0.0\n1,16,8192,w,1.0\n1,16,100,W,0.5\n0,1,0,R,2\nrubbish\n0,0,512,R,4.0\n";
    let mut reader = reader(text, "auto").expect("SPC");
    let summary = Summary::of(&mut reader).expect("it is whole");
    assert_eq!((summary.mix.reads, summary.mix.writes), (2, 2));
    assert_eq!(
        (summary.mix.read_bytes, summary.mix.written_bytes),
        (4608, 8292)
    );
    assert_eq!(summary.mix.write_share(), Some(0.5));
    assert_eq!(summary.footprint_pages, 3);
    assert!(summary.footprint_exact);
    assert_eq!(summary.devices.len(), 2);
    assert_eq!(summary.range(), Some((0, 16_384)));
    assert_eq!(summary.duration_ns, 4_000_000_000);
    let shown = summary.to_string();
    for part in [
        "format      spc, not compressed",
        "requests    4; 50.0 % writes",
        "            2 reads, 2 writes, 0 trims, 0 flushes",
        "bytes       4.61 kB read, 8.29 kB written",
        "footprint   3 pages of 4096 B (12.29 kB)",
        "devices     2: 0 (2, 4.10 kB), 1 (2, 16.38 kB)",
        "duration    4.000000 s, 1.0 requests/s",
        "left out    1 damaged, 1 of no bytes",
        "damaged     5: the ASU is not a number: \"rubbish\"",
        "warning     1 of 6 lines are damaged and left out",
        "warning     1 of 4 times are not in order",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn a_trace_in_memory_is_never_held_whole() {
    // An endless source: the reader must give requests without waiting for its end.
    struct Endless;
    impl std::io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let line = b"0,1,512,W,1.5\n";
            let count = into.len() / line.len() * line.len();
            for chunk in into[..count].chunks_mut(line.len()) {
                chunk.copy_from_slice(line);
            }
            if count == 0 {
                into[0] = b'\n';
            }
            Ok(count.max(1))
        }
    }
    let reader = senko_ssd::trace::Reader::new(Endless, &TraceSpec::default()).expect("SPC");
    let writes = reader
        .take(300_000)
        .filter(|r| r.as_ref().is_ok_and(|r| r.op == Write));
    assert_eq!(writes.count(), 300_000);
}
