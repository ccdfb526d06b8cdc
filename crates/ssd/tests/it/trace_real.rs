// SPDX-License-Identifier: Apache-2.0
//! The real traces outside the project, read completely: as many requests and writes as their
//! README says, nothing damaged.

use crate::util::*;

fn summary(name: &str, spec: &str) -> Option<Summary> {
    let path = real(name)?;
    let spec: TraceSpec = spec.parse().expect("a specification");
    let mut reader = Reader::open(&path, &spec).unwrap_or_else(|error| panic!("{name}: {error}"));
    let summary = Summary::of(&mut reader).unwrap_or_else(|error| panic!("{name}: {error}"));
    println!("{name}\n{summary}");
    Some(summary)
}

/// File, format, requests, writes, distinct pages of 4 KiB.
const BLOCK: [(&str, Format, u64, u64, u64); 13] = rows! {
    "Financial1_first10k.spc", Format::Spc, 10_000, 5923, 7322;
    "Financial1_first949_raw.spc", Format::Spc, 949, 766, 491;
    "WebSearch1_24k.disksim_ns", Format::Columns, 24_783, 4, 93_029;
    "MSN-FS_150k.disksim_ms", Format::Columns, 149_999, 19_516, 538_027;
    "MS-TPCC_7k.disksim_ns", Format::Columns, 6999, 2618, 20_470;
    "MSR-Cambridge_hm_0_1000.csv", Format::Msr, 1000, 492, 0;
    "MSR-Cambridge_hm_1_5000.disksim_ns", Format::Columns, 5000, 3904, 5186;
    "MSR-Cambridge_writes_33k.disksim_ns", Format::Columns, 33_304, 33_304, 86_181;
    "cloudphysics_114k.vscsi", Format::Vscsi, 113_872, 66_898, 0;
    "cloudphysics_114k.csv", Format::CloudPhysics, 113_872, 66_898, 0;
    "YCSB-A-RocksDB_writes_87k.disksim_ns", Format::Columns, 87_487, 87_487, 483_465;
    "FIU_cheetah_10k.fiu", Format::Fiu, 9997, 1101, 0;
    "fio_v2.iolog", Format::Fio, 9441, 9441, 0;
};

#[test]
fn block_traces_are_as_their_readme_says() {
    for (name, format, requests, writes, pages) in BLOCK {
        let Some(summary) = summary(&format!("block/{name}"), "auto") else {
            return;
        };
        assert_eq!(summary.format, Some(format), "{name}");
        assert_eq!(summary.mix.requests(), requests, "{name}");
        assert_eq!(summary.mix.writes, writes, "{name}");
        assert_eq!(summary.counts.damaged, 0, "{name}");
        assert_eq!(summary.counts.zero_sized, 0, "{name}");
        assert!(summary.footprint_exact, "{name}");
        if pages > 0 {
            assert_eq!(summary.footprint_pages, pages, "{name}");
        }
    }
}

#[test]
fn the_two_forms_of_one_trace_agree() {
    let (Some(binary), Some(text)) = (
        summary("block/cloudphysics_114k.vscsi", "auto"),
        summary("block/cloudphysics_114k.csv", "auto"),
    ) else {
        return;
    };
    assert_eq!(binary.mix, text.mix);
    assert_eq!(binary.footprint_pages, text.footprint_pages);
    assert_eq!(binary.duration_ns / 1_000_000_000, 7200);
    assert_eq!(text.duration_ns / 1_000_000_000, 7200);
}

#[test]
fn blkparse_counts_a_request_once() {
    for (spec, requests) in [
        ("auto", 9888),
        ("blkparse:event=D", 9887),
        ("blkparse:event=C", 9887),
    ] {
        let Some(summary) = summary("block/YCSB_ext4.blkparse", spec) else {
            return;
        };
        assert_eq!(summary.format, Some(Format::Blkparse));
        assert_eq!(summary.mix.requests(), requests, "{spec}");
        assert_eq!(summary.mix.reads, 9039, "{spec}");
        assert_eq!(summary.counts.damaged, 0, "{spec}");
    }
}

#[test]
fn durations() {
    for (name, seconds) in [
        ("MSN-FS_150k.disksim_ms", 143),
        ("Financial1_first10k.spc", 259),
    ] {
        if let Some(summary) = summary(&format!("block/{name}"), "auto") {
            assert_eq!(summary.duration_ns / 1_000_000_000, seconds, "{name}");
        }
    }
}

#[test]
fn page_references() {
    for (name, references) in [("ARC_OLTP.lis.zst", 914_145), ("ARC_P3.lis.zst", 3_912_296)] {
        let Some(summary) = summary(&format!("kv/{name}"), "auto:op=write") else {
            return;
        };
        assert_eq!(summary.format, Some(Format::Lis));
        assert_eq!(summary.mix.written_bytes / 4096, references, "{name}");
        assert_eq!(summary.mix.reads, 0);
        assert!(!summary.timed);
    }
}
