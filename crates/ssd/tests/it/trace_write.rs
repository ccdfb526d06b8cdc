// SPDX-License-Identifier: Apache-2.0
//! Written traces are read back, except for facts that the format can't represent.

use proptest::prelude::*;
use senko_ssd::Op::{Flush, Read, Trim, Write};
use senko_ssd::trace::Written;

use crate::util::*;

fn written(requests: &[Request], format: &str) -> (Vec<u8>, Written) {
    let format: WriteFormat = format.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut writer = TraceWriter::new(Vec::new(), format);
    for request in requests {
        writer.write(request).expect("memory");
    }
    writer.finish().expect("memory")
}

#[test]
fn what_the_text_looks_like() {
    let requests = [
        request(0, 2, Write, 5120, 3000),
        request(1_500_000, 0, Read, 0, 4096),
        request(2_000_000, 0, Flush, 0, 0),
        request(3_000_000, 0, Trim, 4096, 4096),
    ];
    let text = |format| String::from_utf8(written(&requests, format).0).expect("text");
    assert_eq!(
        text("spc"),
        "2,10,3000,W,0.000000000\n0,0,4096,R,0.001500000\n"
    );
    assert_eq!(
        text("msr"),
        "116444736000000000,host0,2,Write,5120,3000,0\n116444736000015000,host0,0,Read,0,4096,0\n"
    );
    assert_eq!(text("columns"), "0 2 10 6 0\n1500000 0 0 8 1\n");
    assert_eq!(
        text("disksim:write=1"),
        "0.000000 2 10 6 1\n1.500000 0 0 8 0\n"
    );
    assert_eq!(
        text("fio"),
        "fio version 3 iolog\n0 device2 add\n0 device2 open\n0 device2 write 5120 3000\n\
         1500 device0 add\n1500 device0 open\n1500 device0 read 0 4096\n\
         2000 device0 sync 0 0\n3000 device0 trim 4096 4096\n\
         3000 device0 close\n3000 device2 close\n"
    );
    let (_, counts) = written(&requests, "columns:unit=us");
    assert_eq!(
        counts,
        Written {
            requests: 2,
            left_out: 2,
            widened: 1,
            cut_times: 0,
            renumbered: 0
        }
    );
    let (bytes, counts) = written(&requests, "senko");
    assert_eq!(bytes.len(), 32 + 4 * 24);
    assert_eq!((counts.requests, counts.widened), (4, 1));
    let (back, _) = whole(bytes, "auto");
    // 3000 bytes from 5120 on lie in page 1.
    assert_eq!(back[0], request(0, 2, Write, 4096, 4096));
    assert_eq!(back[2].op, Flush);
}

#[test]
fn what_cannot_be_written_is_refused() {
    for format in ["etw", "lis", "auto", "columns:columns=tdasf", "spc:unit=s"] {
        assert!(format.parse::<WriteFormat>().is_err(), "{format}");
    }
    // Formats that can only be read were named, too.
    let told = "nope".parse::<WriteFormat>().unwrap_err().to_string();
    let known =
        "\"nope\" can't be written; spc, msr, columns (disksim, mqsim, ssdsim), fio and senko can";
    assert!(told.ends_with(known), "{told}");
    let mut writer = TraceWriter::new(Vec::new(), WriteFormat::Msr);
    assert!(writer.write(&request(u64::MAX, 0, Read, 0, 4096)).is_err());
}

/// Requests whose times and addresses every format can say; the first comes at 0, as it does in a
/// reader's.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let op = prop_oneof![Just(Read), Just(Write), Just(Trim), Just(Flush)];
    let one = (0u64..1 << 30, 0u32..300, op, 0u64..1 << 30, 1u64..1 << 18);
    prop::collection::vec(one, 1..200).prop_map(|list| {
        let mut time = 0;
        list.into_iter()
            .enumerate()
            .map(|(at, (gap, device, op, page, pages))| {
                time += if at == 0 { 0 } else { gap * 1000 };
                let (offset, bytes) = match op {
                    Flush => (0, 0),
                    _ => (page * 4096, pages * 4096),
                };
                request(time, device, op, offset, bytes)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(requests in any_requests()) {
        for format in ["spc", "msr", "columns:unit=ns", "columns:unit=us,write=1", "disksim", "columns:unit=s,sector=4096,read=0", "fio", "senko"] {
            let (bytes, counts) = written(&requests, format);
            let says_all = matches!(format, "fio" | "senko");
            let mut kept: Vec<Request> = requests
                .iter()
                .copied()
                .filter(|request| says_all || matches!(request.op, Op::Read | Op::Write))
                .collect();
            prop_assert_eq!(counts.requests, kept.len() as u64);
            prop_assert_eq!(counts.left_out as usize, requests.len() - kept.len());
            prop_assert_eq!((counts.widened, counts.cut_times), (0, 0));
            if kept.is_empty() {
                continue;
            }
            let first = kept[0].time;
            let mut files = Vec::new();
            for request in &mut kept {
                request.time -= first;
                if format == "fio" {
                    // Files are numbered as they come.
                    let at = files.iter().position(|&file| file == request.device);
                    request.device = at.unwrap_or_else(|| {
                        files.push(request.device);
                        files.len() - 1
                    }) as u32;
                }
            }
            let (back, reader) = whole(bytes, format);
            prop_assert_eq!(back, kept, "{}", format);
            prop_assert_eq!(reader.counts().damaged, 0);
        }
    }
}

/// When a trace of several disks was converted, all requests used to go to disk 0. Numbers that do
/// not fit into Senko's own format (FIU's and blkparse's begin at 2^20) get free ones.
#[test]
fn devices_keep_their_numbers() {
    let devices = [3, 0, 65_535, 8 << 20 | 16, 65_534, 8 << 20, 3];
    let requests: Vec<Request> = devices
        .iter()
        .zip(0..)
        .map(|(&device, time)| request(time, device, Write, 4096, 4096))
        .collect();
    let fold = Fold::default();
    let mut folder = Folder::new(&fold, u64::MAX).expect("no fold");
    let mut folded = Vec::new();
    for request in &requests {
        let given = folder.fold(*request, |piece| folded.push(piece));
        given.expect("nothing is beyond the end");
    }
    assert_eq!(folded, requests);
    for (format, expected) in [
        ("spc", devices),
        ("columns", devices),
        // The first large number takes the highest free one, the next ones those below.
        ("senko", [3, 0, 65_535, 65_534, 65_533, 65_532, 3]),
    ] {
        let (bytes, counts) = written(&folded, format);
        let (back, _) = whole(
            bytes,
            if format == "columns" {
                "columns"
            } else {
                "auto"
            },
        );
        let numbers: Vec<u32> = back.iter().map(|request| request.device).collect();
        assert_eq!(numbers, expected, "{format}");
        assert_eq!(counts.renumbered, if format == "senko" { 3 } else { 0 });
    }
}
