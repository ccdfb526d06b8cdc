// SPDX-License-Identifier: Apache-2.0
//! Folding addresses: the effect and the refusals of each way, and that no byte is lost.

use std::collections::HashMap;

use proptest::prelude::*;
use senko_ssd::Op::{Read, Trim, Write};

use crate::util::*;

fn folder(text: &str, capacity: u64) -> Folder {
    let fold: Fold = text.parse().unwrap_or_else(|error| panic!("{error}"));
    Folder::new(&fold, capacity).unwrap_or_else(|error| panic!("{error}"))
}

fn fold(folder: &mut Folder, request: Request) -> Result<Vec<(u64, u64)>, String> {
    let mut pieces = Vec::new();
    let folded = folder.fold(request, |piece| {
        // An ignored device keeps its number; a device with its own place on the drive no longer
        // has one.
        assert!([0, request.device].contains(&piece.device));
        pieces.push((piece.offset, piece.bytes));
    });
    folded.map(|()| pieces).map_err(|error| error.to_string())
}

/// A request at time 0: device, operation, offset, bytes.
type Asked = (u32, Op, u64, u64);

fn ask(folder: &mut Folder, (device, op, offset, bytes): Asked) -> Result<Vec<(u64, u64)>, String> {
    fold(folder, request(0, device, op, offset, bytes))
}

#[track_caller]
fn lands(folder: &mut Folder, asked: Asked, pieces: &[(u64, u64)]) {
    assert_eq!(ask(folder, asked).as_deref(), Ok(pieces));
}

/// Why a request is refused.
#[track_caller]
fn why(folder: &mut Folder, asked: Asked) -> String {
    ask(folder, asked).expect_err("it is refused")
}

#[test]
fn without_folding_a_request_beyond_the_end_is_named() {
    let mut none = folder("none", 10_000);
    lands(&mut none, (3, Write, 9000, 1000), &[(9000, 1000)]);
    let text = why(&mut none, (3, Write, 9000, 1001));
    has(&text, "request 2 is for 1001 bytes at 9000, ");
    has(&text, "ends at byte 10001 of the drive, which has 10000");
}

#[test]
fn modulo_goes_on_at_the_start() {
    let mut modulo = folder("modulo", 10_000);
    lands(&mut modulo, (3, Write, 25_000, 100), &[(5000, 100)]);
    lands(
        &mut modulo,
        (3, Read, 19_000, 3000),
        &[(9000, 1000), (0, 2000)],
    );
    let text = why(&mut modulo, (3, Read, 0, 10_001));
    let told = "request 3 is for 10001 bytes, more than the drive has, which are 10000";
    assert_eq!(text, told);
    // A trim of everything is cut.
    lands(
        &mut modulo,
        (0, Trim, 4000, 1 << 50),
        &[(4000, 6000), (0, 4000)],
    );
}

/// Twenty-four units of Financial1 used to be folded modulo the drive, without a note that they
/// overwrite each other.
#[test]
fn overlapping_devices_are_seen() {
    const CAPACITY: u64 = 1000;
    for (text, ranges, overlap) in [
        ("modulo", vec![(0, 400), (400, 1000)], false),
        ("modulo", vec![(0, 400), (399, 1000)], true),
        // 1900 to 2100 lies at 900 to 1000 and 0 to 100.
        ("modulo", vec![(1900, 2100), (100, 900)], false),
        ("modulo", vec![(1900, 2100), (99, 900)], true),
        ("modulo", vec![(1900, 2100), (500, 901)], true),
        ("modulo", vec![(1000, 2000)], false),
        ("modulo", vec![(1000, 2000), (17, 18)], true),
        ("none", vec![(0, 10), (5, 15)], true),
        ("none", vec![(0, 10), (10, 15), (20, 20)], false),
        ("compact:extent=512", vec![(0, 10), (0, 10)], false),
        ("modulo:devices=0*500+1*500", vec![(0, 10), (0, 10)], false),
    ] {
        let fold: Fold = text.parse().expect("a fold");
        assert_eq!(
            fold.overlaps(ranges.clone(), CAPACITY),
            overlap,
            "{text} {ranges:?}"
        );
    }
}

#[test]
fn devices_side_by_side() {
    let mut none = folder("none:devices=5*4k+0*1k", 8192);
    lands(&mut none, (5, Read, 96, 4000), &[(96, 4000)]);
    lands(&mut none, (0, Read, 96, 100), &[(4192, 100)]);
    let text = why(&mut none, (0, Read, 1000, 25));
    let end = "its device's part of the drive, which has 1024";
    has(&text, end);
    let text = why(&mut none, (1, Read, 0, 1));
    let told = "request 4 is for device 1, which has no part of the drive";
    assert_eq!(text, told);
    // Each is folded for itself.
    let mut each = folder("modulo:devices=5*4k+0*1k", 8192);
    lands(
        &mut each,
        (0, Read, 2048 + 1000, 48),
        &[(5096, 24), (4096, 24)],
    );
}

#[test]
fn compact_numbers_extents_by_first_touch() {
    let mut compact = folder("compact:extent=1k", 4096);
    // 900,000 lies in extent 878, at 928; the request crosses into extent 879, which comes next:
    // one piece.
    lands(&mut compact, (0, Write, 900_000, 100), &[(928, 100)]);
    lands(&mut compact, (1, Write, 900_000, 10), &[(2048 + 928, 10)]);
    // Device 0's neighbour before comes fourth, so the request is two pieces.
    lands(
        &mut compact,
        (0, Read, 877 * 1024, 2048),
        &[(3072, 1024), (0, 1024)],
    );
    // Pages that are not touched need not be trimmed.
    lands(
        &mut compact,
        (0, Trim, 0, 1 << 40),
        &[(3072, 1024), (0, 1024), (1024, 1024)],
    );
    let text = why(&mut compact, (0, Read, 0, 1));
    has(&text, "request 5, at 0, touches a new extent of 1024 bytes");
}

#[test]
fn impossible_folds_are_refused() {
    let why = |text: &str, capacity| {
        let fold: Fold = text.parse().unwrap_or_else(|error| panic!("{error}"));
        Folder::new(&fold, capacity)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(why("modulo", 0).contains("0 bytes"));
    assert!(why("compact:extent=1m", 4096).contains("extents of 1048576"));
    assert!(why("none:devices=0*8k", 4096).contains("8192 bytes together"));
    assert!(why("none:devices=0*1k+0*1k", 4096).contains("two sizes"));
    for text in [
        "fold",
        "modulo:extent=1k",
        "none:devices=1",
        "compact:devices=0*1k",
    ] {
        assert!(text.parse::<Fold>().is_err(), "{text}");
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![Just(Read), Just(Write), Just(Trim)];
    (0u32..4, op, 0u64..1 << 40, 1u64..200_000)
        .prop_map(|(device, op, offset, bytes)| request(0, device, op, offset, bytes))
}

proptest! {
    /// One byte always goes to one place. With compact, different bytes also go to different
    /// places, among those that were touched.
    #[test]
    fn a_byte_has_one_place(requests in prop::collection::vec(any_request(), 1..60)) {
        const CAPACITY: u64 = 64 << 20;
        for text in ["modulo", "compact:extent=64k"] {
            let mut folder = folder(text, CAPACITY);
            // By pages of 4 KiB of the trace: where they went.
            let mut places: HashMap<(u32, u64), u64> = HashMap::new();
            for &request in &requests {
                let Ok(pieces) = fold(&mut folder, request) else { break };
                let total: u64 = pieces.iter().map(|piece| piece.1).sum();
                prop_assert!(request.op == Op::Trim || total == request.bytes);
                for &(offset, bytes) in &pieces {
                    prop_assert!(offset + bytes <= CAPACITY);
                }
                if request.op == Op::Trim {
                    continue;
                }
                let mut at = request.offset;
                for (offset, bytes) in pieces {
                    for byte in [0, bytes - 1] {
                        let base = (offset + byte).wrapping_sub((at + byte) % 4096);
                        let key = (if text == "modulo" { 0 } else { request.device }, (at + byte) / 4096);
                        prop_assert_eq!(*places.entry(key).or_insert(base), base);
                    }
                    at += bytes;
                }
            }
        }
    }
}

/// A request of 2^60 bytes from a program kept the summary busy for hours: it counted its pages one
/// chunk after the other. Trace files had a bound, requests in memory had none.
#[test]
fn given_requests_are_no_longer_than_those_of_traces() {
    let write = |bytes, offset| Request::new(Op::Write, offset, bytes);
    for (request, why) in [
        (write(1 << 60, 0), "at most 4294967296"),
        (write(4096, u64::MAX - 4095), "ends beyond 2^64"),
    ] {
        let told = Workload::given(vec![write(4096, 0), request]);
        let told = told.expect_err("it is too long").to_string();
        assert!(told.contains("request 1") && told.contains(why), "{told}");
    }
    let trim = Request::new(Op::Trim, 0, 1 << 60);
    let workload = Workload::given(vec![trim, write(1 << 32, 0)]).expect("they are possible");
    let summary = workload.summary().expect("a summary");
    assert_eq!(summary.mix.requests(), 2);
}
