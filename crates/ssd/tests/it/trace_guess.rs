// SPDX-License-Identifier: Apache-2.0
//! The guessed format of a trace, warnings about a doubtful guess, and figures that should make a
//! user check it.

use std::fmt::Write as _;

use senko_ssd::Op::{Read, Trim, Write};

use crate::util::*;

fn guessed(text: &str) -> (Format, Option<String>) {
    let reader = reader(text, "auto").unwrap_or_else(|error| panic!("{error}\n{text}"));
    (reader.format(), reader.doubt().map(str::to_owned))
}

fn warnings(text: &str, spec: &str) -> String {
    let mut reader = reader(text, spec).expect("a trace");
    let summary = Summary::of(&mut reader).expect("it is whole");
    summary.warnings.join("\n")
}

/// Lines made of the number of each.
fn lines(count: u64, line: impl Fn(u64) -> String) -> String {
    (0..count).fold(String::new(), |mut text, at| {
        let _ = writeln!(text, "{}", line(at));
        text
    })
}

/// Tencent's lines used to be read as CloudPhysics' text, which also has five columns of numbers: a
/// size of 8 sectors became the SCSI command READ (6).
#[test]
fn tencent() {
    let text =
        "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1063\n1538323201,1904,1,1,5\n";
    assert_eq!(guessed(text), (Format::Tencent, None));
    let (requests, _) = whole(text, "auto");
    let expected = [
        request(0, 1063, Read, 12_910_952 * 512, 65_536),
        request(0, 1063, Write, 6_338_688 * 512, 4096),
        request(1_000_000_000, 5, Write, 1904 * 512, 512),
    ];
    assert_eq!(requests, expected);
    let headed = format!("Timestamp,Offset,Size,IOType,VolumeID\n{text}");
    let (again, reader) = whole(headed, "auto");
    assert_eq!((again, reader.counts().headings), (requests, 1));
    let eights = lines(40, |at| {
        format!("{},{},8,{},7", 1_538_323_200 + at, at * 64, at % 2)
    });
    assert_eq!(guessed(&eights), (Format::Tencent, None));
}

/// Meta's traces used to be in no known format.
#[test]
fn tectonic() {
    let text = "# block_id io_offset io_size op_time op_name user_namespace user_name rs_shard_id op_count host_name\n\
                3 1048576 131072 1570730400.5 1 2 7 0 1 12\n\
                0 0 8388608 1570730401 4 2 7 0 1 12\n\
                1 8257536 131072 1570730401.25 5 2 7 0 1 12\n";
    assert_eq!(guessed(text), (Format::Tectonic, None));
    let (requests, _) = whole(text, "auto");
    let expected = [
        request(0, 0, Read, 3 * 8_388_608 + 1_048_576, 131_072),
        request(500_000_000, 0, Write, 0, 8_388_608),
        request(750_000_000, 0, Read, 8_388_608 + 8_257_536, 131_072),
    ];
    assert_eq!(requests, expected);
    let (_, reader) = whole("0 1 8388608 5.0 1 0 0 0\n", "tectonic");
    assert_eq!(reader.counts().damaged, 1, "it leaves its block");
    let (requests, _) = whole("2 1 4096 5.0 3 0 0 0\n", "tectonic:block=16m");
    let expected = [request(0, 0, Write, (32 << 20) + 1, 4096)];
    assert_eq!(requests, expected);
}

/// Five columns with commas between them, as spreadsheets write them, used to be in no known
/// format.
#[test]
fn five_columns_with_commas() {
    let text = "time, device, address, sectors, flag\n0.5,1,2048,8,0\n1.5, 0, 16,16, 1\n";
    let (requests, reader) = whole(text, "auto");
    assert_eq!(reader.format(), Format::Columns);
    let expected = [
        request(0, 1, Write, 2048 * 512, 4096),
        request(1_000_000, 0, Read, 16 * 512, 8192),
    ];
    assert_eq!(requests, expected);
    for spec in [
        "columns:columns=atsf,unit=s",
        "columns:columns=a,t,s,f,unit=s",
    ] {
        let (requests, _) = whole("16,2,8,0\n24,4,8,1\n", spec);
        assert_eq!(
            requests,
            [
                request(0, 0, Write, 8192, 4096),
                request(2_000_000_000, 0, Read, 12_288, 4096),
            ],
            "{spec}"
        );
    }
}

/// Any table of numbers with five columns used to be accepted as a trace, without a note.
#[test]
fn a_guess_needs_plausible_requests() {
    let refused = |text: &str| reader(text, "auto").err().expect(text).to_string();
    // Times that fall.
    let text = lines(40, |at| {
        format!("{} 0 {} 8 {}", 1000 - at * 7, at * 8, at % 2)
    });
    let why = refused(&text);
    has(&why, "it reads as columns, but times do not rise");
    has(&why, "--format columns");
    // Requests of gigabytes.
    let text = lines(40, |at| format!("{at} 0 {} 8000000 {}", at * 8, at % 2));
    assert!(refused(&text).contains("larger than a request"));
    // Operations of one kind, by number: it is possible, and reported.
    let text = lines(40, |at| format!("{at}00000 0 {} 8 1", at * 8));
    let (format, doubt) = guessed(&text);
    assert_eq!(format, Format::Columns);
    let doubt = doubt.expect("a doubt");
    has(&doubt, "one kind of operation");
    has(&doubt, "say --format");
    assert!(warnings(&text, "auto").contains("one kind of operation"));
    assert_eq!(
        warnings(&text, "columns"),
        "",
        "what is said is not guessed"
    );
    // Names of operations are enough even for sizes of a few bytes.
    let (format, doubt) = guessed("0,1,7,R,0\n0,2,7,W,1\n");
    assert_eq!(format, Format::Spc);
    assert!(doubt.is_some_and(|doubt| doubt.contains("sizes")));
    // A trace with all signs has no doubt.
    let text = lines(40, |at| format!("{at} 0 {} 8 {}", at * 8, at % 2));
    assert_eq!(guessed(&text), (Format::Columns, None));
    assert_eq!(guessed("0,1,512,R,0\n0,2,512,W,1\n"), (Format::Spc, None));
}

/// With 0 and 1 as numbers of volumes Tencent's lines can as well be five columns.
#[test]
fn a_tie_is_told() {
    let text = lines(40, |at| {
        let unix = 1_538_323_200 + at;
        format!("{unix},{},{},{},{}", at * 8, 8 + at, at % 2, at % 2)
    });
    let (_, doubt) = guessed(&text);
    let doubt = doubt.expect("a doubt");
    has(&doubt, "would do as well; say --format");
}

#[test]
fn units_that_can_be_wrong_are_warned_about() {
    // Whole seconds.
    let text = lines(40, |at| format!("0,{at},512,W,{}", at / 4));
    let told = warnings(&text, "spc");
    has(
        &told,
        "all times are whole seconds, with 4.0 requests at once",
    );
    let text = lines(40, |at| format!("0,{at},512,W,{}.5", at / 4));
    let text = format!("0,0,512,W,0\n{text}");
    assert_eq!(warnings(&text, "spc"), "");
    // Not in order.
    let text = lines(40, |at| format!("0,{at},512,W,{}.25", at ^ 1));
    let told = warnings(&text, "spc");
    has(&told, "20 of 40 times are not in order");
    // Microseconds that are read as milliseconds: an hour is 41 days, a day is years.
    let text = lines(40, |at| {
        format!("{} 0 {} 8 {}", at * 2_215_384_615, at * 8, at % 2)
    });
    let told = warnings(&text, "columns:unit=ms");
    has(&told, "the trace lasts 2.7 years");
    has(&told, "columns:unit=...");
    assert!(!warnings(&text, "columns:unit=us").contains("years"));
    // Sizes in bytes, read as sectors.
    let text = lines(40, |at| format!("{at}000 0 {} 4096 {}", at * 4096, at % 2));
    let told = warnings(&text, "columns");
    has(&told, "they may be bytes where sectors were read");
    assert!(!warnings(&text, "columns:sector=1").contains("sectors were read"));
    // And the other way round.
    let text = lines(40, |at| format!("0,{at},8,W,{at}.5"));
    assert!(warnings(&text, "spc").contains("they may be sectors where bytes were read"));
    // Numbers in place of times.
    let text = lines(40, |at| format!("{at} 0 {} 8 {}", at * 8, at % 2));
    assert!(warnings(&text, "columns").contains("more than any host sends"));
}

/// A zone append used not to count as a write, and the reset of a zone counted as a read, since its
/// letters contain an R.
#[test]
fn zoned_operations_of_blkparse() {
    let event = |at: u64, rest: &str| format!("259,0 0 {at} {at}.000000000 7 Q {rest}\n");
    let text = [
        event(1, "ZA 524288 + 8 [fio]"),
        event(2, "ZAS 524296 + 16 [fio]"),
        event(3, "ZR 0 + 524288 [fio]"),
        event(4, "ZR 524288 + 0 [fio]"),
        event(5, "ZRA 0 + 0 [fio]"),
        event(6, "ZF 524288 + 0 [fio]"),
        event(7, "ZO 0 + 0 [fio]"),
        event(8, "FZA 1048576 + 8 [fio]"),
        event(9, "ZR 1048576 [fio]"),
        event(10, "RA 8 + 8 [fio]"),
    ]
    .concat();
    let device = 259 << 20;
    let second = |at: u64| (at - 1) * 1_000_000_000;
    let plain = [
        request(second(1), device, Write, 524_288 * 512, 4096),
        request(second(2), device, Write, 524_296 * 512, 8192),
        request(second(3), device, Trim, 0, 524_288 * 512),
        request(second(8), device, Write, 1_048_576 * 512, 4096),
        request(second(10), device, Read, 4096, 4096),
    ];
    let (requests, reader) = whole(text.as_str(), "auto");
    assert_eq!(requests, plain);
    assert_eq!(
        (reader.counts().other_events, reader.counts().damaged),
        (5, 0)
    );
    // With the size of a zone a reset that names only its start is a trim of the zone.
    let (requests, reader) = whole(text, "blkparse:zone=256m");
    assert_eq!(requests.len(), 7);
    assert_eq!(
        requests[3],
        request(second(4), device, Trim, 524_288 * 512, 256 << 20)
    );
    assert_eq!(reader.counts().other_events, 3);
}

/// `senko ssd run --format spc` of a trace in another format used to simulate nothing, and ended
/// without an error.
#[test]
fn a_format_that_does_not_fit_is_refused() {
    let check = |text: &str, spec: &str| {
        let mut reader: Reader = reader(text, spec).expect("it opens");
        for request in &mut reader {
            request.expect("nothing breaks off");
        }
        reader.check("a.csv").err().unwrap_or_default()
    };
    let text = lines(9, |at| format!("{at} 0 {} 8 0", at * 8));
    let why = check(&text, "spc");
    has(
        &why,
        "a.csv, read as spc, has no request: 9 lines are damaged",
    );
    has(&why, "line 1: the ASU is not a number");
    has(&why, "what --format says");
    let half = lines(9, |at| {
        if at < 4 {
            format!("0,{at},512,W,{at}")
        } else {
            "x".to_owned()
        }
    });
    let why = check(&half, "spc");
    has(&why, "makes no sense: 5 of 9 lines are damaged");
    assert_eq!(check("0,1,512,W,0\nx\n", "spc"), "");
    assert!(check("0,1,0,W,0\n", "spc").contains("none asks for bytes"));
    assert!(check("# nothing\n", "spc").contains("no request"));
}
