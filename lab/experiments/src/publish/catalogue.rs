// SPDX-License-Identifier: Apache-2.0
//! The report's additions to results: the paper, the bars with must and goal, published values.
//!
//! Bars say whether the shape of a paper's claim holds here: what must hold is the direction, and
//! the goal is the paper's own figure or near it. Times of the paper's machine are no bars.

/// A paper, or the project's own questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// The thesis on data structures of stores.
    A,
    /// The cache server with a direct transfer engine.
    B,
    /// The architecture of caches for endurance.
    C,
    /// The DBMS for flash.
    D,
    /// The memory extension cache server.
    E,
    /// Questions of this project's design.
    Design,
}

impl Paper {
    /// All, in the report's order.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::Design];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::A => "Paper A: data structures of key-value stores on SSDs (thesis, 2012)",
            Self::B => "Paper B: an SSD cache server with a direct transfer engine (2015)",
            Self::C => "Paper C: a cache architecture that raises the endurance of SSDs",
            Self::D => "Paper D: a DBMS for flash",
            Self::E => "Paper E: a memory extension cache server",
            Self::Design => "Questions of this project's design",
        }
    }

    /// Its name in the summary.
    pub fn short(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::Design => "design",
        }
    }
}

/// A figure that is compared with two numbers.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Its key in the results.
    pub key: &'static str,
    /// Whether less is better.
    pub less: bool,
    /// The value that it must reach.
    pub must: f64,
    /// The value that it should reach.
    pub goal: f64,
}

/// How a figure compares with its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The goal is reached.
    Goal,
    /// It reaches the minimum.
    Must,
    /// It does not.
    Not,
}

impl Standing {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Goal => "goal reached",
            Self::Must => "held",
            Self::Not => "not held",
        }
    }
}

impl Bar {
    /// Compares a measured value.
    pub fn held(&self, value: f64) -> Standing {
        let reaches = |bar: f64| {
            if self.less {
                value <= bar
            } else {
                value >= bar
            }
        };
        match (reaches(self.goal), reaches(self.must)) {
            (true, _) => Standing::Goal,
            (_, true) => Standing::Must,
            _ => Standing::Not,
        }
    }
}

/// An experiment in the report.
pub struct Entry {
    /// Its name.
    pub experiment: &'static str,
    /// The section of the report.
    pub paper: Paper,
    /// Its bars.
    pub bars: &'static [Bar],
    /// Published values, by key.
    pub published: &'static [(&'static str, f64)],
}

const fn more(key: &'static str, must: f64, goal: f64) -> Bar {
    let less = false;
    Bar {
        key,
        less,
        must,
        goal,
    }
}

const fn less(key: &'static str, must: f64, goal: f64) -> Bar {
    let less = true;
    Bar {
        key,
        less,
        must,
        goal,
    }
}

const fn entry(
    experiment: &'static str,
    paper: Paper,
    bars: &'static [Bar],
    published: &'static [(&'static str, f64)],
) -> Entry {
    Entry {
        experiment,
        paper,
        bars,
        published,
    }
}

/// The facts of an experiment.
pub fn find(experiment: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.experiment == experiment)
}

/// Every experiment.
pub static ALL: &[Entry] = &[
    entry(
        "ftl-table2",
        Paper::A,
        &[
            less("page_mib", 126.7, 126.65),
            less("block_mib", 1.55, 1.515),
        ],
        &[("page_mib", 126.6), ("block_mib", 1.5)],
    ),
    entry(
        "ftl-costs",
        Paper::A,
        &[
            less("dftl_map_mib_32gb", 50.0, 49.0),
            less("pages_written_with_trim_50", 2.0, 1.25),
            more("longest_over_usual_log_blocks_random", 10.0, 100.0),
            less("longest_over_usual_pages_random", 3.0, 1.5),
        ],
        &[("dftl_map_mib_32gb", 49.0)],
    ),
    entry("device-verdict", Paper::A, &[more("right", 1.0, 1.0)], &[]),
    entry(
        "thesis-index",
        Paper::A,
        &[
            more("uniform_over_sequential", 110.0, 200.0),
            more("latest_over_sequential", 11.8, 20.0),
            more("rows_over_memory_bandwidth", 0.5, 0.8),
            more("better_map_speedup", 1.5, 3.0),
            less("better_map_false_over_bfm", 0.10, 0.04),
        ],
        &[
            ("uniform_over_sequential", 110.6),
            ("zipf_over_sequential", 112.1),
            ("latest_over_sequential", 11.8),
            ("figure35_ms_1000m_256", 100.0),
            ("equation3_elements", 354.0),
        ],
    ),
    entry(
        "thesis-misses",
        Paper::A,
        &[
            less("distance_from_equation4_8bits", 0.01, 0.005),
            less("distance_from_equation4_16bits", 0.01, 0.005),
        ],
        &[],
    ),
    entry(
        "thesis-blocks",
        Paper::A,
        &[
            more("unsorted16_pages_256mb_over_16mb", 1.02, 1.1),
            less("sorted_scattered_pages_256mb_over_16mb", 0.98, 0.9),
        ],
        &[],
    ),
    entry(
        "thesis-improved",
        Paper::A,
        &[
            less("hash16_pages_256mb_over_16mb", 0.98, 0.9),
            less("sorted_head_pages_256mb_over_16mb", 0.98, 0.9),
            less("reads_per_get_hash16_256mb", 4.5, 1.5),
            less("reads_per_get_sorted_head_256mb", 4.5, 2.5),
        ],
        &[],
    ),
    entry(
        "thesis-counts",
        Paper::A,
        &[
            more("unsorted16_pages_256mb_over_16mb", 1.02, 1.1),
            less("sorted_scattered_pages_256mb_over_16mb", 1.0, 0.98),
            less("hash16_pages_256mb_over_16mb", 1.0, 0.99),
        ],
        &[],
    ),
    entry(
        "thesis-system",
        Paper::A,
        &[
            less("after_over_before_time", 0.8, 0.53),
            less("early_over_short_young_pages", 0.95, 0.8),
        ],
        &[
            ("mean_us_before_256mb", 1500.0),
            ("mean_us_after_256mb", 800.0),
        ],
    ),
    entry(
        "thesis-isam",
        Paper::A,
        &[
            less("reads_per_get_isam_1m", 1.02, 1.0),
            less("isam_dram_percent", 2.0, 1.2),
            less("written_over_payload_isam_1m", 1.05, 1.02),
        ],
        &[("isam_dram_percent", 1.2), ("reads_per_get_isam_1m", 1.0)],
    ),
    entry(
        "thesis-btree",
        Paper::A,
        &[
            more("longest_ms_x25m_full", 100.0, 500.0),
            more("stalls_x25m_full", 10.0, 100.0),
        ],
        &[
            ("usual_ms_x25m_full", 20.0),
            ("longest_ms_x25m_full", 600.0),
        ],
    ),
    entry(
        "thesis-hash-table",
        Paper::A,
        &[
            less("slots_over_theory_at_two_thirds_x25m", 1.1, 1.05),
            more("time_at_two_thirds_over_empty_x25m", 1.1, 1.2),
            less("stop_fill_percent_x25m", 80.0, 74.0),
        ],
        &[("stop_fill_percent_x25m", 74.0)],
    ),
    entry(
        "thesis-ratios",
        Paper::A,
        &[
            less("flat_from_paper", 10.1, 10.01),
            more("machine_ratio_paper", 37.4, 37.49),
            more("index_ratio_1024_paper", 515.0, 515.9),
        ],
        &[
            ("flat_from_paper", 10.0),
            ("machine_ratio_paper", 37.5),
            ("index_ratio_1024_paper", 516.0),
        ],
    ),
    entry(
        "store-memory",
        Paper::A,
        &[
            less("dram_bytes_per_key_1000", 2.5, 2.0),
            less("dram_bytes_per_key_100", 2.2, 1.9),
        ],
        &[],
    ),
    entry(
        "store-gets",
        Paper::A,
        &[
            less("reads_per_hit", 1.05, 1.01),
            less("reads_per_miss", 0.05, 0.005),
            more("gets_over_device", 0.85, 0.95),
            more("gets_over_rocksdb", 1.15, 1.3),
        ],
        &[],
    ),
    entry(
        "store-writes",
        Paper::A,
        &[less("wa_load", 2.3, 2.1), less("wa_overwrite", 5.0, 4.0)],
        &[],
    ),
    entry(
        "transfer-fig7-9",
        Paper::B,
        &[
            less("qps_error_percent", 8.0, 4.0),
            less("latency_error_percent", 15.0, 8.0),
            less("deviation_4_over_1", 0.8, 0.45),
        ],
        &[
            ("qps_1", 45_000.0),
            ("qps_2", 60_000.0),
            ("qps_4", 65_000.0),
            ("latency_us_1", 467.0),
            ("latency_us_2", 477.0),
            ("latency_us_4", 502.0),
            ("deviation_us_1", 85.0),
            ("deviation_us_2", 35.6),
            ("deviation_us_4", 38.0),
            ("deviation_2_over_1", 0.419),
            ("deviation_4_over_1", 0.447),
        ],
    ),
    entry(
        "transfer-predict",
        Paper::B,
        &[
            less("qps_error_percent", 8.0, 4.0),
            less("latency_error_percent", 15.0, 8.0),
        ],
        &[
            ("qps_2", 60_000.0),
            ("qps_4", 65_000.0),
            ("latency_us_2", 477.0),
            ("latency_us_4", 502.0),
            ("deviation_us_2", 35.6),
            ("deviation_us_4", 38.0),
        ],
    ),
    entry(
        "serve-drives",
        Paper::B,
        &[
            more("answers_4_over_1", 0.85, 0.95),
            less("latency_4_over_1", 1.2, 1.05),
        ],
        &[
            ("answers_2_over_1", 1.333),
            ("answers_4_over_1", 1.444),
            ("latency_2_over_1", 1.021),
            ("latency_4_over_1", 1.075),
            ("deviation_us_1", 85.0),
            ("deviation_us_2", 35.6),
            ("deviation_us_4", 38.0),
            ("deviation_2_over_1", 0.419),
            ("deviation_4_over_1", 0.447),
        ],
    ),
    entry(
        "serve-arithmetic",
        Paper::B,
        &[
            less("reads_per_incr_flash", 1.05, 1.01),
            less("reads_per_append_flash", 1.05, 1.01),
            less("wrong_answers_flash", 0.0, 0.0),
            less("wrong_answers_dram", 0.0, 0.0),
        ],
        &[],
    ),
    entry(
        "serve-flash-get",
        Paper::B,
        &[
            more("get_over_fio", 0.85, 0.97),
            more("get_over_extstore", 2.0, 2.3),
            more("get4096_over_extstore", 1.4, 1.6),
            less("latency1_over_floor", 1.25, 1.10),
            less("dram_cpu_over_memcached", 1.0, 0.75),
        ],
        &[("get_over_fio", 0.92)],
    ),
    entry(
        "endurance-table1",
        Paper::C,
        &[
            more("hit_percent", 50.0, 65.3),
            more("erase_reduction_percent", 50.0, 66.5),
            more("write_speedup", 2.0, 3.0),
        ],
        &[
            ("hit_percent", 65.3),
            ("erase_reduction_percent", 66.5),
            ("write_speedup", 3.0),
            ("msn_storage_cfs_hit_percent", 77.8),
            ("msn_storage_cfs_erase_reduction_percent", 80.6),
            ("msn_storage_cfs_write_speedup", 4.7),
        ],
    ),
    entry(
        "endurance-fig2-3",
        Paper::C,
        &[
            more("fig2_written_again_percent", 50.0, 70.0),
            less("fig2_sequential_percent", 10.0, 5.0),
            less("fig3_written_again_percent", 5.0, 1.0),
        ],
        &[],
    ),
    entry(
        "endurance-policies",
        Paper::C,
        &[less("fab_over_lru_erases_log_blocks", 1.0, 0.8)],
        &[],
    ),
    entry(
        "endurance-adaptive",
        Paper::C,
        &[less("erases_over_best_fixed", 1.03, 1.00)],
        &[],
    ),
    entry(
        "dbm-paper",
        Paper::D,
        &[
            more("synced1_over_floor", 0.85, 0.97),
            more("synced1_over_leveldb", 1.3, 1.5),
            more("synced100_over_leveldb", 1.5, 1.9),
            more("tmpfs1_over_leveldb", 1.0, 1.56),
            more("tmpfs100_over_lmdb", 0.5, 1.0),
            less("log_bytes_per_commit_100", 8192.0, 4096.0),
        ],
        &[
            ("synced1_over_leveldb", 1.56),
            ("synced100_over_leveldb", 1.36),
        ],
    ),
    entry(
        "dbm-appendpages",
        Paper::D,
        &[less("page_writes_per_update", 1.05, 1.0)],
        &[],
    ),
    entry(
        "dbm-occ",
        Paper::D,
        &[
            more("optimistic_over_locks_middle", 1.0, 1.1),
            more("optimistic_over_locks_severe", 1.0, 1.5),
        ],
        &[],
    ),
    entry(
        "dbm-random",
        Paper::D,
        &[
            more("random100_over_leveldb", 1.0, 1.5),
            less("space_over_live", 1.6, 1.3),
            less("p9999_commit_over_floor", 5.0, 2.0),
        ],
        &[],
    ),
    entry(
        "serve-dram-flash-ratio",
        Paper::E,
        &[
            more("etc_1to10_over_dram", 0.86, 1.00),
            more("etc_1to10_over_extstore", 1.4, 1.7),
            more("etc_1to10_over_swap", 8.0, 12.0),
        ],
        &[("etc_1to10_over_dram", 0.86), ("etc_1to10_over_swap", 1.8)],
    ),
    entry(
        "serve-memory",
        Paper::E,
        &[
            less("index_bytes_per_item", 11.0, 9.0),
            less("reads_per_flash_hit", 1.02, 1.005),
            less("reads_per_miss_or_overwrite", 0.001, 0.0005),
            less("reads_per_delete_or_touch", 1.02, 1.005),
            less("rss_over_cap", 1.05, 1.03),
        ],
        &[("key_dram_freed_percent", 87.5)],
    ),
    entry("dram-policy", Paper::Design, &[], &[]),
    entry(
        "plan-accuracy",
        Paper::Design,
        &[less("hit_ratio_error", 0.02, 0.01)],
        &[],
    ),
    entry(
        "serve-endurance",
        Paper::Design,
        &[
            less("host_wa_fifo", 1.05, 1.02),
            less("host_wa_reinsert", 1.3, 1.2),
            more("page_fill", 0.95, 0.98),
        ],
        &[],
    ),
    entry(
        "serve-tails",
        Paper::Design,
        &[less("p999_mixed_over_readonly", 3.0, 2.0)],
        &[],
    ),
    entry(
        "serve-cores",
        Paper::Design,
        &[
            less("cpu_per_get_t2_over_t1", 1.25, 1.1),
            less("flash_cpu_per_get_t2_over_t1", 1.25, 1.1),
        ],
        &[],
    ),
    entry("serve-restart", Paper::Design, &[], &[]),
    entry(
        "endurance-loop",
        Paper::Design,
        &[more("engines", 6.0, 6.0)],
        &[],
    ),
    entry(
        "serve-tls",
        Paper::Design,
        &[
            less("tls_cpu_over_memcached", 1.0, 0.8),
            more("flash_tls_over_plain", 0.6, 0.75),
        ],
        &[],
    ),
    entry(
        "serve-watch",
        Paper::Design,
        &[less("get_cpu_over_unwatched", 1.03, 1.01)],
        &[],
    ),
    entry(
        "serve-overload",
        Paper::Design,
        &[
            less("p99_over_calm", 3.0, 1.5),
            less("rss_over_cap", 1.05, 1.0),
        ],
        &[],
    ),
    entry(
        "ssd-closed-form",
        Paper::Design,
        &[less("wa_error_percent", 1.5, 0.5)],
        &[],
    ),
    entry(
        "ssd-speed",
        Paper::Design,
        &[
            more("wa_writes_per_s_1gb", 20e6, 50e6),
            more("latency_requests_per_s", 1e6, 2e6),
        ],
        &[],
    ),
    entry(
        "store-open",
        Paper::Design,
        &[
            less("open_after_kill_s", 5.0, 2.0),
            less("open_clean_s", 1.0, 0.3),
        ],
        &[],
    ),
    entry("store-rivals", Paper::Design, &[], &[]),
    entry("dbm-floor", Paper::Design, &[], &[]),
    entry(
        "dbm-threads",
        Paper::Design,
        &[more("threads8_over_rocksdb", 1.2, 2.0)],
        &[],
    ),
    entry(
        "dbm-large",
        Paper::Design,
        &[
            less("reads_per_get", 1.1, 1.02),
            more("gets_over_lmdb", 0.95, 1.0),
            more("gets16_over_lmdb", 1.0, 1.5),
        ],
        &[],
    ),
    entry(
        "dbm-small",
        Paper::Design,
        &[
            less("empty_bytes", 262_144.0, 65_536.0),
            less("open_fetch_close_ms", 10.0, 3.0),
        ],
        &[],
    ),
    entry(
        "python-dbm",
        Paper::Design,
        &[
            more("set_over_gnu", 1.0, 2.0),
            more("get_over_gnu", 1.0, 2.0),
            more("iterate_over_gnu", 1.0, 3.0),
            more("shelve_over_sqlite3", 1.5, 3.0),
        ],
        &[],
    ),
    entry(
        "python-ssd",
        Paper::Design,
        &[less("overhead", 1.05, 1.02)],
        &[],
    ),
    entry(
        "python-sweep",
        Paper::Design,
        &[more("speedup2", 1.7, 1.9)],
        &[],
    ),
];
