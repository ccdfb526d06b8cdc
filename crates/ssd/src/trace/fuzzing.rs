// SPDX-License-Identifier: Apache-2.0
//! The entry of the traces' fuzz target, shared with the tests that replay its corpus.

use std::io::Cursor;

use super::{Folder, Format, Reader, Summary, TraceSpec, TraceWriter, WriteFormat};
use crate::{Op, Request};

/// Bytes of the drive that requests are folded into.
const CAPACITY: u64 = 1 << 30;

/// Reads `data` as a trace. The first byte chooses the format: recognised, or a given one.
///
/// # Panics
/// If a rule of the reader, of folding or of writing is broken.
pub fn any_trace(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let format = Format::all().nth(usize::from(first) % 16);
    let spec = format.map_or_else(TraceSpec::default, TraceSpec::of);
    let Ok(mut reader) = Reader::new(Cursor::new(data.to_vec()), &spec) else {
        return;
    };
    let folder = |way: &str| {
        let fold = way.parse().expect("a way to fold");
        Folder::new(&fold, CAPACITY).expect("the fold is sound")
    };
    let (mut modulo, mut compact) = (folder("modulo"), folder("compact"));
    let mut writer = TraceWriter::new(std::io::sink(), WriteFormat::Fio);
    let (mut summary, mut given, mut now) = (Summary::default(), 0u64, 0);
    for request in &mut reader {
        let Ok(request) = request else { break };
        check(&request, &mut now);
        given += 1;
        summary.add(&request);
        for folder in [&mut modulo, &mut compact] {
            let mut bytes = 0;
            let folded = folder.fold(request, |piece| {
                assert!(
                    piece.offset + piece.bytes <= CAPACITY,
                    "{request:?} became {piece:?}"
                );
                bytes += piece.bytes;
            });
            if folded.is_ok() && request.op != Op::Trim {
                assert_eq!(bytes, request.bytes, "{request:?} lost bytes");
            }
        }
        writer.write(&request).expect("a sink takes everything");
    }
    assert!(reader.next().is_none(), "nothing comes after the end");
    summary.finish(&reader);
    let counts = reader.counts();
    assert_eq!(counts.requests, given);
    let parts = counts.requests + counts.zero_sized + counts.damaged;
    assert_eq!(counts.items, parts + counts.other_events + counts.headings);
    assert_eq!(summary.mix.requests(), given);
    assert!(!summary.to_string().is_empty());
}

/// The rules TRACE-2 and TRACE-3, and that every request ends below 2^64.
fn check(request: &Request, now: &mut u64) {
    assert!(request.time >= *now, "{request:?} is before {now}");
    *now = request.time;
    assert!(request.offset.checked_add(request.bytes).is_some());
    assert_eq!(request.bytes == 0, request.op == Op::Flush, "{request:?}");
}
