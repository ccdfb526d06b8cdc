// SPDX-License-Identifier: Apache-2.0
//! Figures and tables of the papers that no experiment could measure: drawings, machines, and what
//! the papers quote. All other sentences stand beside the experiment that judges them.

use crate::claim::{Paper, Sentence, untested};

const DRAWING: &str = "a drawing of how it works; there is nothing to measure";
const MACHINE: &str = "the machine that the paper measured on; each result here has its own";
const QUOTED: &str = "figures of others that the paper quotes";
const ARITHMETIC: &str =
    "arithmetic on the thesis's premises; a test of senko plan holds its digits";

/// All, by paper and section.
pub static UNMEASURED: &[(Paper, &[Sentence])] = &[
    (
        Paper::A,
        &[
            untested(
                "section 2.1, figures 1 to 4, 6 and 7",
                "cells, strings and arrays of NAND flash, writing and erasing",
                &["crates/ssd/src/nand.rs"],
                DRAWING,
            ),
            untested(
                "section 3.2, figure 13",
                "memcached's slabs; 173 us at 200,000 requests a second at Facebook",
                &["crates/cache/src/arena.rs"],
                QUOTED,
            ),
            untested(
                "section 3.3, figures 14 to 16",
                "hBase and its files; 15 ms a read in YCSB",
                &["crates/workload/src/mix.rs"],
                QUOTED,
            ),
            untested(
                "section 3.4",
                "FlashStore's 6 bytes of DRAM an element, SkimpyStash's about 1, DynamoDB's some milliseconds",
                &["lab/thesis/src/hash_index.rs", "lab/thesis/src/filters.rs"],
                QUOTED,
            ),
            untested(
                "section 4.2.3, figure 30",
                "the hash table",
                &["lab/thesis/src/linear.rs"],
                DRAWING,
            ),
            untested(
                "section 5.3, figure 33",
                "hBase's filters at the ends of its files",
                &["lab/thesis/src/filters.rs"],
                DRAWING,
            ),
            untested(
                "section 6.1, figure 38",
                "the Bloom Filter Map",
                &["lab/thesis/src/bloom.rs"],
                DRAWING,
            ),
            untested(
                "sections 2.1.3, 8.2 and 8.3, figures 5 and 49, table 10",
                "flash is cheap from ten times as much as DRAM on; a machine holds 37.5 times as much",
                &["crates/plan/src/ratios.rs", "crates/cli/src/plan.rs"],
                ARITHMETIC,
            ),
            untested(
                "section 8.4, table 11",
                "an index of 16 bits allows 516 times the flash with elements of 1 KB",
                &["crates/plan/src/ratios.rs"],
                ARITHMETIC,
            ),
            untested(
                "section 11.2",
                "updates with timestamps, and dropping old versions when blocks are sorted, are left for later",
                &["crates/store/src/write.rs"],
                "future work of the thesis, without a figure; the store has both",
            ),
        ],
    ),
    (
        Paper::B,
        &[
            untested(
                "section 2.1, figures 1 and 2, table 1",
                "where a cache server stands, and the commands",
                &["crates/server/src/protocol/classic.rs"],
                "a drawing and a list; every command is held by transcripts of memcached's answers",
            ),
            untested(
                "section 4.1, figure 6, table 3",
                "the machines that were measured",
                &["lab/experiments/src/rig/bench.rs"],
                MACHINE,
            ),
        ],
    ),
    (
        Paper::D,
        &[untested(
            "section 3, table 1",
            "the machine and the three storages",
            &["lab/experiments/src/commits.rs"],
            MACHINE,
        )],
    ),
];
