// SPDX-License-Identifier: Apache-2.0
//! A hand-made sample of each format: recognised by its content, and each field where and in the
//! unit that it should be.

use senko_io::trace::{MAGIC, Record};
use senko_io::{Engine, Op as DeviceOp, Purpose, Tag};
use senko_ssd::Op::{Flush, Read, Trim, Write};

use crate::util::*;

const S: u64 = 1_000_000_000;

/// Reads a sample of this format whole, without being told the format.
#[track_caller]
fn sample(text: impl Into<Vec<u8>>, format: Format, expected: &[Request]) -> Reader {
    let (requests, reader) = whole(text, "auto");
    assert_eq!(reader.format(), format);
    assert_eq!(requests, expected);
    reader
}

#[test]
fn spc() {
    let text = "0,100,512,R,0.000000\n\
        2, 8, 3000, w, 1.5 , further, fields\n\
        2,8,4096,W,2.25\n";
    let expected = [
        request(0, 0, Read, 51_200, 512),
        request(S * 3 / 2, 2, Write, 4096, 3000),
        request(S * 9 / 4, 2, Write, 4096, 4096),
    ];
    sample(text, Format::Spc, &expected);
    let (requests, _) = whole(text, "spc:sector=4096");
    assert_eq!(requests[1].offset, 8 * 4096);
}

#[test]
fn msr() {
    let text = "128166372003061629,usr,0,Read,7014609920,24576,41286\r\n\
        128166372016382155,usr,1,Write,1317441536,8192,1963\r\n\
        128166372026382245,web,1,Write,2436440064,4096,1835\r\n";
    let expected = [
        request(0, 0, Read, 7_014_609_920, 24_576),
        request(1_332_052_600, 1, Write, 1_317_441_536, 8192),
        // Another host's disk 1 is another device.
        request(2_332_061_600, 65_537, Write, 2_436_440_064, 4096),
    ];
    sample(text, Format::Msr, &expected);
    let with_heading =
        format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{text}");
    let (same, reader) = whole(with_heading, "auto");
    assert_eq!(same, expected);
    assert_eq!(reader.counts().headings, 1);
}

const ETW: &str = "\
BeginHeader
       TraceStart, TimeStamp, Version
         DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,  IrpPtr,  ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, FileName
        DiskWrite,  TimeStamp,     Process Name ( PID),   ThreadID,  IrpPtr,  ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, FileName
        DiskFlush,  TimeStamp,     Process Name ( PID),   ThreadID,  IrpPtr,  ElapsedTime,  DiskNum, IrpFlags
     DiskReadInit,  TimeStamp,     Process Name ( PID),   ThreadID,  IrpPtr
EndHeader
     DiskReadInit,        900,            sqlservr (1234),       77, 0xfa01
         DiskRead,       1000,            sqlservr (1234),       77, 0xfa01, 0x0000100000, 0x00002000,         100,        3, 0x060043,          90, \"C:\\data,1.mdf\"
        DiskWrite,       1500,              System (   4),        8, 0xfa02, 0x10,         0x00000200,          50,        1, 0x060a00,          40, \"D:\\log.ldf\"
        DiskFlush,       1600,              System (   4),        8, 0xfa03,          10,        1, 0x0
";

#[test]
fn etw() {
    let expected = [
        request(0, 3, Read, 1 << 20, 8192),
        request(500_000, 1, Write, 16, 512),
        request(600_000, 1, Flush, 0, 0),
    ];
    let reader = sample(ETW, Format::Etw, &expected);
    assert_eq!(reader.counts().other_events, 1);
    assert_eq!(reader.counts().headings, 7);
    assert_eq!(reader.counts().damaged, 0);
}

#[test]
fn etw_columns_are_found_by_name() {
    let text = "BeginHeader\n\
        DiskRead, DiskNum, IOSize, New, ByteOffset, TimeStamp\n\
        EndHeader\n\
        DiskRead, 7, 0x1000, whatever, 0xABC000, 20\n\
        DiskRead, 7, 0x1000, whatever, 0xABC000, 30\n";
    let (requests, _) = whole(text, "auto");
    assert_eq!(requests[0], request(0, 7, Read, 0xabc000, 4096));
    assert_eq!(requests[1].time, 10_000);
}

#[test]
fn five_columns_say_what_was_guessed() {
    let expected = [
        request(0, 0, Read, 32_768, 4096),
        request(1000, 3, Write, 65_536, 8192),
    ];
    let text = "1000 0 64 8 1\n2000 3 128 16 0\n";
    let reader = sample(text, Format::Columns, &expected);
    assert_eq!(
        reader.notes(),
        [
            "times taken as ns: 2000000 requests/s at the head of the trace (columns:unit=...)",
            "flag 0 taken as a write: 50.0 % writes at the head of the trace (columns:write=...)",
        ]
    );
    // Times with a decimal point are DiskSim's milliseconds; tabs do as well.
    let (requests, reader) = whole("0.5\t0\t64\t8\t1\n2.125\t3\t128\t16\t0\n", "auto");
    assert_eq!(requests[1].time, 1_625_000);
    assert!(reader.notes()[0].starts_with("times taken as ms"));
}

#[test]
fn five_columns_as_said() {
    let text = "5 0 64 8 1\n7 3 128 16 0\n";
    let (requests, reader) = whole(text, "columns:unit=us,sector=4096,write=1");
    let expected = [
        request(0, 0, Write, 64 * 4096, 8 * 4096),
        request(2000, 3, Read, 128 * 4096, 16 * 4096),
    ];
    assert_eq!(requests, expected);
    assert!(reader.notes().is_empty(), "{:?}", reader.notes());
    assert_eq!(whole(text, "ssdsim:read=0").0[0].op, Write);
    assert_eq!(whole(text, "disksim").0[1].time, 2_000_000);
    assert_eq!(whole(text, "mqsim").0[1].time, 2);
    // Another order, a column that means nothing, none for the device.
    let (requests, _) = whole(
        "W 64 x 8 1.5\nR 0 y 1 2.5\n",
        "columns:columns=fa-st,unit=s",
    );
    let expected = [
        request(0, 0, Write, 32_768, 4096),
        request(S, 0, Read, 0, 512),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn five_columns_with_the_flag_elsewhere() {
    let (requests, reader) = whole("10 1 2 64 8\n20 0 2 72 8\n30 1 2 80 16\n", "auto");
    assert_eq!(requests[0], request(0, 2, Read, 32_768, 4096));
    assert_eq!(requests[1].op, Write);
    assert!(reader.notes()[0].contains("tfdas"), "{:?}", reader.notes());
}

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  P   N [kjournald]
  8,0    3        4     0.000010000   697  Q   R 1000 + 16 [cat]
  8,0    3        5     0.000011000   697  U   N [cat] 2
  8,0    3        6     0.000020000   697  D   W 223490 + 24 [kjournald]
  8,17   1        7     0.000030000   700  Q  DS 4096 + 2048 [fstrim]
  8,0    1        8     0.000040000   700  Q FWS [jbd2/sda1-8]
  8,0    1        9     0.000050000   700  Q FWFS 64 + 8 [jbd2/sda1-8]
  8,0    1       10     0.000060000     0  m   N cfq1 slice expired
  8,0    1       11     0.000070000     0  C   W 223490 + 24 [0]
CPU3 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,       12KiB

Throughput (R/W): 0KiB/s / 0KiB/s
";

#[test]
fn blkparse() {
    let (requests, reader) = whole(BLKPARSE, "auto");
    assert_eq!(reader.format(), Format::Blkparse);
    let sda = 8 << 20;
    let expected = [
        request(0, sda, Write, 223_490 * 512, 4096),
        request(10_000, sda, Read, 512_000, 8192),
        request(30_000, sda | 17, Trim, 4096 * 512, 1 << 20),
        request(40_000, sda, Flush, 0, 0),
        request(50_000, sda, Write, 32_768, 4096),
    ];
    assert_eq!(requests, expected);
    assert_eq!(
        reader.notes(),
        ["requests are counted at the event Q; it also has D, C (blkparse:event=...)"]
    );
    assert_eq!(reader.counts().other_events, 6);
    assert_eq!(reader.counts().headings, 4);
    let (requests, reader) = whole(BLKPARSE, "blkparse:event=D");
    let expected = [request(0, sda, Write, 223_490 * 512, 12_288)];
    assert_eq!(requests, expected);
    assert!(reader.notes().is_empty());
    // Without an event Q, what there is.
    let no_queue = BLKPARSE.replace("  Q ", "  X ");
    let (requests, reader) = whole(no_queue, "auto");
    assert_eq!(requests.len(), 1);
    assert!(
        reader.notes()[0].contains("event D"),
        "{:?}",
        reader.notes()
    );
}

/// Lines of nonsense counted as headings, so a trace with few requests among them was read without
/// a word.
#[test]
fn blkparse_tells_nonsense_from_totals() {
    let totals = " Read depth:             1        \t Write depth:             1\n \
        IO unplugs:             4        \t Timer unplugs:           0\n\n\
        Total (sda):\nEvents (sda): 34 entries\nSkips: 0 forward (0 -   0.0%)\n\
        kjournald (697)\nWeb Content (700, ...)\nInput file sda.blktrace.0 added\n";
    let (_, reader) = whole(format!("{BLKPARSE}{totals}"), "blkparse");
    assert_eq!((reader.counts().headings, reader.counts().damaged), (13, 0));
    let text = format!("{BLKPARSE}what is this\nCP 12\nsda: x (y)\n");
    let (requests, reader) = whole(text.as_str(), "blkparse");
    assert_eq!((requests.len(), reader.counts().damaged), (5, 3));
    let first = &reader.counts().first_damaged[0];
    assert_eq!((first.number, first.text.as_str()), (16, "what is this"));
    let (_, reader) = whole("no\nrequest\n", "blkparse");
    let told = reader.check("x").unwrap_err();
    has(&told, "2 lines are damaged");
}

#[test]
fn fio_2() {
    let text = "fio version 2 iolog\n\
        /dev/sdb add\n/dev/sdb open\n/tmp/x add\n\
        /dev/sdb read 4096 512\n/tmp/x write 0 100\n/dev/sdb trim 0 1048576\n\
        /dev/sdb sync 0 0\n/dev/sdb datasync 0 0\n/dev/sdb close\n";
    let expected = [
        request(0, 0, Read, 4096, 512),
        request(0, 1, Write, 0, 100),
        request(0, 0, Trim, 0, 1 << 20),
        request(0, 0, Flush, 0, 0),
        request(0, 0, Flush, 0, 0),
    ];
    let reader = sample(text, Format::Fio, &expected);
    assert!(!reader.timed(), "version 2 has no times");
    assert_eq!(reader.counts().other_events, 4);
}

#[test]
fn fio_2_waits() {
    let text = "fio version 2 iolog\nf read 0 512\nf wait 100 0\nf read 0 512\nf wait 50 0\nf write 0 512\n";
    let (requests, reader) = whole(text, "auto");
    let times: Vec<u64> = requests.iter().map(|request| request.time).collect();
    assert_eq!(times, [0, 100_000, 150_000]);
    assert!(reader.timed());
}

#[test]
fn fio_3() {
    let text = "fio version 3 iolog\n12 a add\n15 a open\n20 a write 8192 4096\n31 b read 0 512\n40 a sync 8192 4096\n50 a close\n";
    let (requests, reader) = whole(text, "auto");
    let expected = [
        request(0, 0, Write, 8192, 4096),
        request(11_000, 1, Read, 0, 512),
        request(20_000, 0, Flush, 0, 0),
    ];
    assert_eq!(requests, expected);
    assert!(reader.timed());
    let unread = crate::util::reader(text, "auto").expect("a log");
    assert!(unread.timed());
}

/// A VSCSI record of version 1 or 2.
fn vscsi(version: u16, command: u16, bytes: u32, block: u64, us: u64) -> Vec<u8> {
    let kind = [command.to_le_bytes(), (version << 8).to_le_bytes()].concat();
    let number = 9u32.to_le_bytes();
    let head = [number, bytes.to_le_bytes(), 1u32.to_le_bytes()].concat();
    let tail = [block.to_le_bytes(), us.to_le_bytes()].concat();
    match version {
        1 => [head, kind, tail].concat(),
        _ => [kind, head, tail, 333u64.to_le_bytes().to_vec()].concat(),
    }
}

#[test]
fn vscsi_1_and_2() {
    for version in [1, 2] {
        let records = [
            vscsi(version, 0x2a, 4096, 100, 5_000_000),
            vscsi(version, 0x28, 512, 7, 5_000_250),
            vscsi(version, 0x00, 0, 0, 5_000_300),
            vscsi(version, 0x35, 0, 0, 5_000_400),
            vscsi(version, 0x8a, 8192, 1 << 33, 5_001_000),
        ];
        let (requests, reader) = whole(records.concat(), "auto");
        assert_eq!(reader.format(), Format::Vscsi);
        let expected = [
            request(0, 0, Write, 51_200, 4096),
            request(250_000, 0, Read, 3584, 512),
            request(400_000, 0, Flush, 0, 0),
            request(1_000_000, 0, Write, 1 << 42, 8192),
        ];
        assert_eq!(requests, expected);
        assert_eq!(reader.counts().other_events, 1);
        assert_eq!(reader.unit(), "record");
    }
}

#[test]
fn cloudphysics() {
    let text = "version,time,op,size,lbn\n1,500,2a,512,100\n1,502,28,1024,7\n1,502,12,36,0\n";
    let expected = [
        request(0, 0, Write, 51_200, 512),
        request(2 * S, 0, Read, 3584, 1024),
    ];
    let reader = sample(text, Format::CloudPhysics, &expected);
    assert_eq!(reader.counts().other_events, 1);
}

#[test]
fn fiu() {
    let text = "1000 12 nfsd 508 8 W 6 0 88b93b628d84082186026d9da044f173\n\
        2500 13 R worker 2 16 16 R 8 1 57db00a2a67ca70d33789a784d37729d\n\
        2600 13 pdflush 8 8 R 8 1\n";
    let expected = [
        request(0, 6 << 20, Write, 508 * 512, 4096),
        // The process is called `R worker 2`.
        request(1500, 8 << 20 | 1, Read, 8192, 8192),
        request(1600, 8 << 20 | 1, Read, 4096, 4096),
    ];
    sample(text, Format::Fiu, &expected);
}

#[test]
fn alibaba() {
    let text = "0,R,126703644672,4096,1577808000000626\n7,W,8126857216,40960,1577808000001000\n";
    let expected = [
        request(0, 0, Read, 126_703_644_672, 4096),
        request(374_000, 7, Write, 8_126_857_216, 40_960),
    ];
    sample(text, Format::Alibaba, &expected);
}

#[test]
fn systor() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n\
        1455592151.014382000,0.000123000,W,3,7746375680,4096\n\
        1455592151.514382000,,R,0,512,512\n";
    let expected = [
        request(0, 3, Write, 7_746_375_680, 4096),
        request(S / 2, 0, Read, 512, 512),
    ];
    sample(text, Format::Systor, &expected);
}

#[test]
fn lis() {
    let text = "10 1 0 0\n500 64 0 1\n3 0 0 2\n";
    let expected = [
        request(0, 0, Read, 40_960, 4096),
        request(0, 0, Read, 500 * 4096, 64 * 4096),
    ];
    let reader = sample(text, Format::Lis, &expected);
    assert_eq!(reader.counts().zero_sized, 1);
    assert!(!reader.timed());
    let (requests, _) = whole(text, "lis:op=write,page=512");
    assert_eq!(requests[0], request(0, 0, Write, 5120, 512));
}

#[test]
fn senko() {
    let record = |time_ns, op, page, count| Record {
        time_ns,
        device: 2,
        tag: Tag {
            engine: Engine::Store,
            purpose: Purpose::Reclaim,
        },
        op,
        page,
        count,
    };
    let mut bytes = MAGIC.to_vec();
    for word in [1u32, 24, 4096, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0u64.to_le_bytes());
    for record in [
        record(70, DeviceOp::Write, 3, 2),
        record(90, DeviceOp::Flush, 0, 0),
        record(95, DeviceOp::Discard, 1, 1),
    ] {
        bytes.extend(record.encode());
    }
    let expected = [
        request(0, 2, Write, 12_288, 8192),
        request(20, 2, Flush, 0, 0),
        request(25, 2, Trim, 4096, 4096),
    ];
    sample(bytes.clone(), Format::Senko, &expected);
    let (requests, _) = whole(bytes, "senko:streams=purpose");
    assert_eq!(requests[0].stream, Purpose::Reclaim as u16);
}
