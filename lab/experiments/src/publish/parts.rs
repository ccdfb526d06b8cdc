// SPDX-License-Identifier: Apache-2.0
//! From the papers to the code: every figure, table and equation, and each claim with a number.
//!
//! A row names the files and the experiment, or says why no experiment measures it. A test counts
//! the numbered figures, tables and equations of each paper, and fails when one has no row.

use crate::claim::Paper;

/// A part of a paper, the files that implement it, and the experiment that measures it, or why
/// there is none.
pub struct Part {
    /// The paper.
    pub paper: Paper,
    /// Section, figure, table or equation.
    pub part: &'static str,
    /// A description.
    pub what: &'static str,
    /// Files from the project's root.
    pub files: &'static [&'static str],
    /// The experiment's name, or the reason why there is none, which begins with a word and a
    /// colon.
    pub measured: &'static str,
}

const fn part(
    paper: Paper,
    part: &'static str,
    what: &'static str,
    files: &'static [&'static str],
    measured: &'static str,
) -> Part {
    Part {
        paper,
        part,
        what,
        files,
        measured,
    }
}

/// The reason for a drawing.
const DRAWING: &str = "none: a drawing of how it works; there is nothing to measure";
/// The reason for the paper's machine.
const MACHINE: &str = "none: the machine that the paper measured on; each result here has its own";
/// The reason for results that a paper quotes.
const QUOTED: &str = "none: figures of others that the paper quotes";

/// All, by paper and section.
pub static PARTS: &[Part] = &[
    part(
        Paper::A,
        "section 1.1, chapter 11",
        "the whole: a map 11.8 times as fast, gets in 800 us on a drive that reads in 65 us",
        &["lab/thesis/src/lib.rs"],
        "thesis-system",
    ),
    part(
        Paper::A,
        "section 2.1, figures 1 to 4, 6 and 7",
        "cells, strings and arrays of NAND flash, writing and erasing",
        &["crates/ssd/src/nand.rs"],
        DRAWING,
    ),
    part(
        Paper::A,
        "section 2.1.3, figure 5",
        "areas of cells, two ninths of DRAM's for three bits: the price ratio of chapter 8",
        &["crates/plan/src/ratios.rs"],
        "thesis-ratios",
    ),
    part(
        Paper::A,
        "section 2.1.4, table 1",
        "a chip's pages, blocks and times: the profile hy27-4gb, held by a test",
        &[
            "crates/ssd/src/profile.rs",
            "crates/ssd/tests/it/chapter2.rs",
        ],
        "device-verdict",
    ),
    part(
        Paper::A,
        "section 2.2.2, table 2",
        "sizes of mapping tables",
        &["lab/experiments/src/experiments/ftl_table2.rs"],
        "ftl-table2",
    ),
    part(
        Paper::A,
        "section 2.2.3, figures 8 to 10",
        "log blocks: switches for writes in order, merges for random ones, again and again",
        &["crates/ssd/src/ftl/bast.rs", "crates/ssd/src/ftl/logs.rs"],
        "ftl-costs",
    ),
    part(
        Paper::A,
        "section 2.2.4, figures 11 and 12",
        "mapping by pages, and collection with TRIM and without",
        &["crates/ssd/src/ftl/page.rs"],
        "ftl-costs",
    ),
    part(
        Paper::A,
        "section 2.2.5",
        "DFTL: a map of 49 MB for 32 GB, of which 1 to 4 MB in RAM are enough",
        &["crates/ssd/src/ftl/dftl.rs", "crates/ssd/src/ftl/cmt.rs"],
        "ftl-costs",
    ),
    part(
        Paper::A,
        "section 2.2.4, collection",
        "what collection writes, against closed forms",
        &["crates/ssd/src/ftl/page/victims.rs"],
        "ssd-closed-form",
    ),
    part(
        Paper::A,
        "section 3.2, figure 13",
        "memcached's slabs; 173 us at 200,000 requests a second at Facebook",
        &["crates/cache/src/arena.rs"],
        QUOTED,
    ),
    part(
        Paper::A,
        "section 3.3, figures 14 to 16",
        "hBase and its files; 15 ms a read in YCSB",
        &["crates/workload/src/mix.rs"],
        QUOTED,
    ),
    part(
        Paper::A,
        "section 3.4.1",
        "FlashStore: 6 bytes an element in DRAM",
        &["lab/thesis/src/hash_index.rs"],
        "thesis-index",
    ),
    part(
        Paper::A,
        "section 3.4.2",
        "SkimpyStash: about a byte an element in DRAM",
        &["lab/thesis/src/filters.rs"],
        "thesis-index",
    ),
    part(
        Paper::A,
        "section 3.4.3",
        "DynamoDB: some milliseconds",
        &["crates/store/src/lib.rs"],
        QUOTED,
    ),
    part(
        Paper::A,
        "section 4.1.1, tables 3 and 4",
        "a drive's rated figures: the profile x25-m, held by a test",
        &[
            "crates/ssd/src/profile.rs",
            "crates/ssd/tests/it/thesis_drives.rs",
        ],
        "device-verdict",
    ),
    part(
        Paper::A,
        "sections 4.1.2 and 4.1.3, figures 17 to 22",
        "a drive that maps pages, measured: times by size, and 2,048 single writes",
        &["crates/plan/src/device.rs", "crates/cli/src/device.rs"],
        "device-verdict",
    ),
    part(
        Paper::A,
        "section 4.1.4, figures 23 to 25",
        "a USB stick: random writes a hundred times as slow, stalls again and again; the profile usb-stick, held by a test",
        &[
            "crates/plan/src/device.rs",
            "crates/ssd/tests/it/thesis_drives.rs",
        ],
        "device-verdict",
    ),
    part(
        Paper::A,
        "section 4.2.1, figure 26; section 4.2.4, table 7",
        "ISAM, and the three basic structures compared",
        &["lab/thesis/src/isam.rs"],
        "thesis-isam",
    ),
    part(
        Paper::A,
        "section 4.2.2, figures 27 to 29, table 5",
        "an in-place B+tree, put by put",
        &["lab/thesis/src/btree.rs"],
        "thesis-btree",
    ),
    part(
        Paper::A,
        "section 4.2.3, figures 30 and 31, table 6",
        "a hash table on the drive, by its fill",
        &["lab/thesis/src/linear.rs"],
        "thesis-hash-table",
    ),
    part(
        Paper::A,
        "sections 5.1 and 5.2, figure 32, equations 1 and 2",
        "filters: the best number of hash functions, and the rate of false positives",
        &[
            "crates/store/src/index/bloom_map.rs",
            "lab/thesis/src/bloom.rs",
        ],
        "thesis-misses",
    ),
    part(
        Paper::A,
        "section 5.3, figure 33",
        "hBase's filters at the ends of its files, searched one after the other",
        &["lab/thesis/src/filters.rs"],
        "thesis-index",
    ),
    part(
        Paper::A,
        "section 5.4.1, figures 34 and 35, equation 3",
        "filters searched one after the other; all of a filter is read up to 354 elements",
        &["lab/experiments/src/experiments/thesis_index.rs"],
        "thesis-index",
    ),
    part(
        Paper::A,
        "section 5.4.2, figures 36 and 37, equations 4 and 5",
        "blocks read in vain",
        &["lab/experiments/src/experiments/thesis_misses.rs"],
        "thesis-misses",
    ),
    part(
        Paper::A,
        "section 6.1, figure 38; section 7.1, figures 41 to 44, table 8",
        "the Bloom Filter Map",
        &["lab/thesis/src/bloom.rs", "crates/store/src/index.rs"],
        "thesis-index",
    ),
    part(
        Paper::A,
        "section 6.2, figures 39 and 40",
        "young blocks that become sorted ones, and what lies in a page",
        &["lab/thesis/src/system.rs", "lab/thesis/src/page.rs"],
        "thesis-system",
    ),
    part(
        Paper::A,
        "section 7.2, figures 45 to 48, table 9",
        "unsorted and sorted blocks",
        &["lab/thesis/src/unsorted.rs", "lab/thesis/src/sorted.rs"],
        "thesis-blocks",
    ),
    part(
        Paper::A,
        "sections 7.2.3 and 10.3, figures 46, 47, 52 and 53, counts",
        "blocks and pages searched, with as many elements as the paper had",
        &["lab/experiments/src/experiments/thesis_counts.rs"],
        "thesis-counts",
    ),
    part(
        Paper::A,
        "section 7.2.3.3, figure 48",
        "a page searched takes 1.1 to 1.4 ms, its read 177 us",
        &["lab/experiments/src/thesis.rs"],
        "thesis-blocks",
    ),
    part(
        Paper::A,
        "sections 8.2 and 8.3, figure 49, table 10",
        "prices, and what a system can hold",
        &["crates/plan/src/ratios.rs", "crates/cli/src/plan.rs"],
        "thesis-ratios",
    ),
    part(
        Paper::A,
        "section 8.4, table 11",
        "flash for each byte of DRAM, by the size of elements",
        &["crates/plan/src/ratios.rs"],
        "thesis-ratios",
    ),
    part(
        Paper::A,
        "section 8.4, DRAM",
        "DRAM for each key of the store",
        &["crates/store/src/index.rs"],
        "store-memory",
    ),
    part(
        Paper::A,
        "sections 7.2.2 and 10.2",
        "the combined structure as a system: 1.5 ms and 800 us",
        &["lab/thesis/src/system.rs"],
        "thesis-system",
    ),
    part(
        Paper::A,
        "section 9.2, figure 50",
        "hash-table blocks: a third of the elements overflows, none at two thirds full",
        &["lab/thesis/src/hashed.rs"],
        "thesis-improved",
    ),
    part(
        Paper::A,
        "sections 9.3 and 9.4, chapter 10, figures 51 to 53",
        "improved blocks: a page, or two, and 400 us a page",
        &["lab/thesis/src/hashed.rs", "lab/thesis/src/sorted.rs"],
        "thesis-improved",
    ),
    part(
        Paper::A,
        "section 9.4, reads",
        "reads and time of a get, as a system",
        &["crates/store/src/get.rs"],
        "store-gets",
    ),
    part(
        Paper::A,
        "sections 6.2 and 11.2, updates",
        "elements written twice, and updates",
        &["crates/store/src/write.rs"],
        "store-writes",
    ),
    part(
        Paper::B,
        "section 2.1, figures 1 and 2, table 1",
        "where a cache server stands, and the commands",
        &["crates/server/src/protocol/classic.rs"],
        "none: a drawing and a list; every command is held by transcripts of memcached's answers",
    ),
    part(
        Paper::B,
        "section 2.2",
        "100,000 commands a second, each within 1 to 2 ms",
        &["crates/server/src/worker.rs"],
        "serve-flash-get",
    ),
    part(
        Paper::B,
        "sections 3.1 and 3.2, figures 3 and 4, table 2",
        "the engine in an FPGA, and its size in logic",
        &["crates/ssd/src/transfer.rs"],
        "none: hardware that nobody has here; its queues are a model, in transfer-fig7-9",
    ),
    part(
        Paper::B,
        "section 3.3, figure 5",
        "answers lie on flash as they are sent, at multiples of the device's read",
        &["crates/cache/src/record.rs"],
        "serve-flash-get",
    ),
    part(
        Paper::B,
        "section 3.4",
        "commands: a get is one read; a deletion and a failed addition are none",
        &["crates/cache/src/shard/fetch.rs"],
        "serve-memory",
    ),
    part(
        Paper::B,
        "sections 3.4 and 6",
        "arithmetic and appending: a read and a write",
        &["crates/server/src/commands/change.rs"],
        "serve-arithmetic",
    ),
    part(
        Paper::B,
        "section 4.1, figure 6, table 3",
        "the machines that were measured",
        &["lab/experiments/src/rig/bench.rs"],
        MACHINE,
    ),
    part(
        Paper::B,
        "section 4.2, figures 7 and 8",
        "answers a second and response times with 1, 2 and 4 drives: the engine's model",
        &["crates/ssd/src/transfer.rs"],
        "transfer-fig7-9",
    ),
    part(
        Paper::B,
        "section 4.2, figures 7 and 8, a server",
        "the same with 1, 2 and 4 flash files under a server, and standard deviations of 85, 35.6 and 38 us",
        &["crates/server/src/server/flash.rs"],
        "serve-drives",
    ),
    part(
        Paper::B,
        "section 4.2, figure 9",
        "response time by rate, beside a cache in DRAM",
        &["crates/server/src/worker.rs"],
        "serve-flash-get",
    ),
    part(
        Paper::B,
        "section 5.1",
        "one drive gives 92 % of its 49,000 reads a second",
        &["crates/server/src/worker.rs"],
        "serve-flash-get",
    ),
    part(
        Paper::B,
        "sections 5.1 and 5.2, figures 10 and 11",
        "what limits one, two and four drives: the queues, predicted from one drive",
        &["lab/experiments/src/experiments/transfer_predict.rs"],
        "transfer-predict",
    ),
    part(
        Paper::B,
        "section 6",
        "values smaller than a page, and sets among the gets",
        &["crates/cache/src/record.rs"],
        "serve-flash-get",
    ),
    part(
        Paper::C,
        "section 2, figure 1",
        "a buffer, a translation layer, flash",
        &["crates/ssd/src/device.rs"],
        DRAWING,
    ),
    part(
        Paper::C,
        "section 3.1, table 1",
        "an LRU buffer before BAST",
        &["crates/ssd/src/ftl/bast.rs", "crates/ssd/src/buffer/lru.rs"],
        "endurance-table1",
    ),
    part(
        Paper::C,
        "section 3.2, figures 2 and 3",
        "requests over time",
        &["crates/ssd/src/plot.rs"],
        "endurance-fig2-3",
    ),
    part(
        Paper::C,
        "section 2, BPLRU and PUD-LRU",
        "write buffers compared",
        &["crates/ssd/src/buffer.rs"],
        "endurance-policies",
    ),
    part(
        Paper::C,
        "sections 3.3 and 4",
        "a policy that follows the load",
        &["crates/ssd/src/buffer/adaptive.rs"],
        "endurance-adaptive",
    ),
    part(
        Paper::D,
        "section 1",
        "five times as fast as others, and no bound by the processor",
        &["crates/dbm/src/commit.rs"],
        "dbm-paper",
    ),
    part(
        Paper::D,
        "section 2.1, figure 1",
        "append pages under a translation table",
        &["crates/dbm/src/pages/mapping.rs"],
        "dbm-appendpages",
    ),
    part(
        Paper::D,
        "section 2.1",
        "cleaning",
        &["crates/dbm/src/upkeep/cleaner.rs"],
        "dbm-random",
    ),
    part(
        Paper::D,
        "section 2.2",
        "one log for all, 40 bytes of each 4 KB for what is not a page",
        &["crates/dbm/src/disk/log.rs"],
        "dbm-paper",
    ),
    part(
        Paper::D,
        "section 2.3",
        "optimistic transactions",
        &["crates/dbm/src/db/transaction.rs"],
        "dbm-occ",
    ),
    part(
        Paper::D,
        "section 3, table 1",
        "the machine and the three storages that were measured",
        &["lab/experiments/src/commits.rs"],
        MACHINE,
    ),
    part(
        Paper::D,
        "section 3, figure 2",
        "small transactions against others: 56 % and 36 % faster than LevelDB",
        &["crates/dbm/src/disk/log.rs"],
        "dbm-paper",
    ),
    part(
        Paper::E,
        "section 2, figure 1",
        "memcached's hash table, and why swap is slow",
        &["lab/experiments/src/rig/swap.rs"],
        "serve-dram-flash-ratio",
    ),
    part(
        Paper::E,
        "section 3.1, figure 2",
        "what lies in DRAM, what on flash",
        &["crates/cache/src/shard/demote.rs"],
        "serve-dram-flash-ratio",
    ),
    part(
        Paper::E,
        "section 3.2, figure 3",
        "the index in DRAM, keys on flash: one read a get, 87.5 % of the keys' DRAM freed",
        &["crates/cache/src/index.rs"],
        "serve-memory",
    ),
    part(
        Paper::E,
        "section 3.2",
        "keys that look alike: H_y's width, and reads in vain",
        &["crates/cache/src/index.rs", "docs/cache/sizing.md"],
        "serve-memory",
    ),
    part(
        Paper::E,
        "section 4, figure 4",
        "hits by the share of DRAM: 1.8 times swap at 1:10, 14 % below DRAM",
        &["crates/cache/src/shard/demote.rs"],
        "serve-dram-flash-ratio",
    ),
];
