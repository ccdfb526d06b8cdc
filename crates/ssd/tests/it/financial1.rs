// SPDX-License-Identifier: Apache-2.0
//! The first 10,000 requests of Financial1 on BAST, without and with a 2 MiB page LRU, compared
//! with the counts of another implementation. It is a model of about forty lines without devices,
//! times and spare areas: it tracks only the log block of each page, and the erases of its merges.
//! Every data block was full before; sizes in whole pages; addresses modulo 1 GiB, the ASU dropped.

use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::profile::Profile;
use senko_ssd::source::Workload;
use senko_ssd::spec::Spec;
use senko_ssd::trace::{Fold, Range, TraceSpec};

use crate::util::real;

/// Log blocks, victim, and erases without the buffer, with it, and with it once it is drained.
const COUNTED: &[(u32, &str, [u64; 3])] = &[
    (8, "lru", [5599, 1332, 1688]),
    (16, "lru", [3936, 911, 1179]),
    (32, "lru", [1297, 521, 691]),
    (8, "round-robin", [5892, 1433, 1809]),
    (16, "round-robin", [4210, 1017, 1308]),
    (32, "round-robin", [1790, 637, 832]),
];

/// Page writes of the trace, and those that hit.
const WRITES: u64 = 12_406;
const HIT_PERCENT: &str = "57.8";

#[test]
fn bast_erases_what_another_implementation_counted() {
    let Some(path) = real("block/Financial1_first10k.spc") else {
        return;
    };
    let workload = Workload {
        fold: Fold {
            range: Range::Modulo,
            ..Fold::default()
        },
        ..Workload::named(&path.to_string_lossy(), &TraceSpec::default()).unwrap()
    };
    let profile = Profile::find("paper-1gb").unwrap();
    for (log_blocks, victim, counted) in COUNTED {
        let ftl = Spec::plain("bast")
            .with("log-blocks", log_blocks)
            .with("victim", victim);
        let run = |buffer: &str| {
            let parts = Parts {
                ftl: Some(ftl.clone()),
                buffer: Some(Spec::plain(buffer)),
                untimed: true,
                check: true,
                ..Parts::default()
            };
            let mut drive = Drive::new(&profile, &parts).unwrap();
            drive.precondition(1.0).unwrap();
            let requests = workload.requests(drive.capacity_bytes()).unwrap();
            let report = drive.run(requests, Load::Closed { depth: 1 }).unwrap();
            assert_eq!(report.pages.host_writes, WRITES);
            let before = drive.devices()[0].nand().counts().all_erases();
            drive.devices_mut()[0].flush(0);
            let drained = drive.devices()[0].nand().counts().all_erases() - before;
            let hits = report.write_hit_ratio().unwrap() * 100.0;
            (report.flash.all_erases(), drained, format!("{hits:.1}"))
        };
        let (without, nothing, _) = run("none");
        let (with, drained, hits) = run("lru");
        assert_eq!(nothing, 0);
        assert_eq!(hits, HIT_PERCENT);
        assert_eq!(
            [without, with, with + drained],
            *counted,
            "{ftl}: without the buffer, with it, drained"
        );
    }
}
