// SPDX-License-Identifier: Apache-2.0
//! Chapter 4.2's experiments with small sizes: only figures from the drives' own clocks or from
//! counts.

use senko_lab::Outcome;
use senko_lab::experiments::{thesis_btree, thesis_hash_table, thesis_isam};
use senko_lab::rig::scratch::Scratch;
use senko_lab::thesis::bed::{Beds, STICK, Simulated, X25M};

fn measured(drives: &[Simulated], measure: impl Fn(&Beds<'_>, &mut Outcome)) -> Outcome {
    let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
    let beds = Beds {
        scratch: &scratch,
        progress: &(),
        drives,
        seed: 1,
    };
    let mut outcome = Outcome::new();
    measure(&beds, &mut outcome);
    outcome
}

/// Table 7's order: ISAM writes the least, in order; the tree writes the most. A get is one read,
/// and the other two need no DRAM.
#[test]
fn the_three_structures_stand_as_in_table_7() {
    let outcome = measured(&[X25M], |beds, outcome| {
        thesis_isam::measure(beds, (200, 600), outcome).unwrap();
    });
    let bars = outcome.bars();
    let written = |name: &str| bars[&format!("written_over_payload_{name}")];
    assert!(written("isam_1m") < 1.05 && written("hash_table") > 3.9);
    assert!(written("btree") > written("hash_table"));
    let put = |name: &str| bars[&format!("put_us_{name}_x25m")];
    assert!(put("isam_1m") < put("isam_4k") && put("isam_4k") < put("hash_table"));
    assert!(put("hash_table") < put("btree"));
    assert_eq!(bars["reads_per_get_isam_1m"], 1.0);
    assert!(bars["reads_per_get_btree"] > 1.5);
    // 12 bytes of 1008, in a table that is a quarter empty.
    assert!((bars["isam_dram_percent"] - 1.2 / 0.75).abs() < 0.02);
    assert_eq!(outcome.tables[0].rows.len(), 8);
}

/// The page-mapped drive has no stall, the one with log blocks merges.
#[test]
fn puts_into_a_tree_stall_on_log_blocks_alone() {
    let outcome = measured(&[X25M, STICK], |beds, outcome| {
        thesis_btree::measure(beds, 800, outcome).unwrap();
    });
    let bars = outcome.bars();
    assert_eq!(bars["stalls_x25m"], 0.0);
    assert!(bars["longest_ms_usb_stick"] > 10.0 * bars["longest_ms_x25m"]);
    let figure = &outcome.tables[1];
    assert_eq!(figure.columns.len(), 4);
    assert_eq!(figure.rows.last().unwrap()[0], "800");
}

/// Figure 31's shape, from counts that do not depend on speed; the rule stops far after the
/// thesis's 74 %.
#[test]
fn puts_into_a_table_go_as_theory_says() {
    let outcome = measured(&[X25M], |beds, outcome| {
        thesis_hash_table::measure(beds, (400, 8000), outcome).unwrap();
    });
    let bars = outcome.bars();
    let over = bars["slots_over_theory_at_two_thirds_x25m"];
    assert!((0.7..1.4).contains(&over), "{over}");
    assert!(bars["time_at_two_thirds_over_empty_x25m"] < 2.0);
    let stop = bars.get("stop_fill_percent_x25m");
    assert!(stop.is_none_or(|stop| *stop > 90.0), "{stop:?}");
    assert!(outcome.missing().contains_key("stop_fill_percent_file"));
}
