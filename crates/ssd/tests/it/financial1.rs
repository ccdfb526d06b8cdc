// SPDX-License-Identifier: Apache-2.0
//! The first 10,000 requests of Financial1 on BAST, without and with a 2 MiB page LRU, compared
//! with the counts of another implementation. It is a model of about forty lines without devices,
//! times and spare areas: it tracks only the log block of each page, and the erases of its merges.
//! The drive was full before, or new; sizes in whole pages; addresses modulo 1 GiB, the ASU
//! dropped.

use crate::util::*;

/// The layer's options, the share of the drive that was written before, and erases without the
/// buffer, with it, and with it once it is drained.
const COUNTED: &[(&str, f64, [u64; 3])] = &[
    ("log-blocks=8,victim=lru", 1.0, [5599, 1332, 1688]),
    ("log-blocks=16,victim=lru", 1.0, [3936, 911, 1179]),
    ("log-blocks=32,victim=lru", 1.0, [1297, 521, 691]),
    ("log-blocks=8,victim=round-robin", 1.0, [5892, 1433, 1809]),
    ("log-blocks=16,victim=round-robin", 1.0, [4210, 1017, 1308]),
    ("log-blocks=32,victim=round-robin", 1.0, [1790, 637, 832]),
    // The log blocks of a full drive belong to its last blocks, so the lowest one is always new.
    (
        "log-blocks=100,victim=lowest,rules=flashsim",
        1.0,
        [10142, 2477, 3061],
    ),
    (
        "log-blocks=100,victim=lowest,rules=flashsim",
        0.0,
        [240, 43, 96],
    ),
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
        fold: "modulo".parse().unwrap(),
        ..Workload::named(&path.to_string_lossy(), &TraceSpec::default()).unwrap()
    };
    let profile = Profile::find("paper-1gb").unwrap();
    for (options, fill, counted) in COUNTED {
        let ftl: Spec = format!("bast:{options}").parse().unwrap();
        let run = |buffer: &str| {
            let parts = Parts {
                ftl: Some(ftl.clone()),
                buffer: Some(Spec::plain(buffer)),
                untimed: true,
                check: true,
                ..Parts::default()
            };
            let mut drive = Drive::new(&profile, &parts).unwrap();
            drive.precondition(*fill).unwrap();
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
