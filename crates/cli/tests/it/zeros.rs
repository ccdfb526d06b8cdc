// SPDX-License-Identifier: Apache-2.0
//! 0 as the value of a number option: refused with one sentence where it makes no sense.

mod table; // the meaning of 0 for each option

use crate::process::{SENKO, Scratch, refused, run};
use table::{ZEROS, Zero};

#[test]
fn a_senseless_zero_is_refused_and_leaves_nothing_behind() {
    let folder = Scratch::new();
    for (command, option, zero) in ZEROS {
        let Zero::Refused(args) = zero else { continue };
        let place = format!("{command} --{option} 0");
        let told = refused(SENKO, &folder, format!("{args} --{option} 0"));
        assert!(!told.contains("cannot connect"), "{place}: {told}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
}

/// `store put --compaction-rate 0` used to limit compaction to a byte a second,
/// `dbm range --limit 0` printed nothing, `store put --log-size 0` was refused and left a new store
/// behind, and `ssd lifetime --cycles 0` reported a life of 0 years.
#[test]
fn zeros_that_were_taken_are_refused() {
    let folder = Scratch::new();
    for (args, told) in rows! {
        "store put new.kv k v --compaction-rate 0", "not a rate of a byte a second or more";
        "store put new.kv k v --compaction-rate 1/day", "not a rate of a byte a second or more";
        "store put new.kv k v --log-size 0", "it must be at least 1 byte";
        "store scan new.kv --limit 0",
            "it must be at least 1; without the option there is no limit";
        "dbm range new.db --limit 0", "it must be at least 1; without the option there is no limit";
        "ssd lifetime seq:count=10,rate=5 --cycles 0", "it must be at least 1";
        "ssd run seq:count=10 --stripe 0", "it must be at least 1 byte";
        "ssd compare seq:count=10 --jobs 0", "it must be at least 1";
        "ssd run seq:count=10 --speed 0", "it must be more than 0";
        "load --requests 0", "it must be at least 1";
        "load --threads 0", "it must be at least 1";
        "load --gather 0:50", "1 turns it off";
        "plan --items 10k --hit 0", "needs no cache";
        "ssd transfer --lanes 0", "it must be at least 1";
    } {
        let output = run(SENKO, &folder, args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(
            text.contains(told) && output.stdout.is_empty(),
            "{args:?}: {text}"
        );
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{args:?}: {left:?}");
    }
}
