// SPDX-License-Identifier: Apache-2.0
//! `senko ssd` with traces that do not fit their drive.

use super::{ssd, stderr, stdout, value};
use crate::process::{Scratch, has};

/// The default profile, called 512 GB, refused a trace of 9 GB and named no way that fits it; a
/// comparison took one drive; and a life of a workload without writes asked for more rounds.
#[test]
fn traces_that_do_not_fit_are_shown_a_way() {
    let folder = Scratch::new();
    let far = "0,17500000,4096,W,0.1\n0,0,4096,R,0.2\n";
    std::fs::write(folder.join("far.spc"), far).unwrap();
    let out = ssd(&folder, "run far.spc");
    let told = stderr(&out);
    for way in ["modulo", "compact:extent=64k", "(scale)"] {
        assert!(!out.status.success() && told.contains(way), "{told}");
    }
    let out = ssd(&folder, "run far.spc --scale 32 --wa");
    assert!(out.status.success(), "{}", stderr(&out));
    let out = ssd(&folder, "run far.spc --scale 4294967295");
    has(&stderr(&out), "scale 4294967295: ");
    let drives = "--profile paper-1gb --profile hy27-4gb";
    let out = ssd(
        &folder,
        format!("compare uniform:count=200 --plot p.svg {drives}"),
    );
    let text = stdout(&out);
    assert!(
        text.contains("  paper-1gb  ") && text.contains("  hy27-4gb  "),
        "{text}"
    );
    let picture = std::fs::read_to_string(folder.join("p.svg")).unwrap();
    has(&picture, "bytes programmed for each byte");
    let out = ssd(&folder, format!("run uniform:count=200 {drives}"));
    has(&stderr(&out), "one --profile");
    let reads = "uniform:count=500,writes=0,rate=100";
    let life = format!("lifetime {reads} --precondition 100 --profile paper-1gb");
    let out = ssd(&folder, life);
    has(&stderr(&out), "writes nothing");
}

/// Rates and percentiles of a trace that a fold had cut into pieces were those of the pieces, and
/// nothing said so.
#[test]
fn pieces_of_a_fold_are_told() {
    let folder = Scratch::new();
    let trace: String = (0..200)
        .map(|n| format!("0,{},65536,W,{}\n", 8 + n * 128, n + 1))
        .collect();
    std::fs::write(folder.join("cut.spc"), trace).unwrap();
    let args = "run cut.spc --fold compact:extent=64k --profile paper-1gb";
    let text = stdout(&ssd(&folder, args));
    let note = "The fold split the 200 requests into";
    // Extents side by side are joined again, so a request is cut only where they are not.
    let shuffled: String = (0..200)
        .map(|n| format!("0,{},65536,W,{}\n", 64 + n * 7919 % 200 * 128, n + 1))
        .collect();
    std::fs::write(folder.join("cut.spc"), shuffled).unwrap();
    let cut = stdout(&ssd(&folder, args));
    assert!(!text.contains(note) && cut.contains(note), "{text}\n{cut}");
    let json = stdout(&ssd(&folder, format!("{args} --json")));
    let notes = value(&json, "/notes").to_string();
    has(&notes, note);
}
