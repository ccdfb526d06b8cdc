// SPDX-License-Identifier: Apache-2.0
//! The list of experiments. A new one is a file here and a line in [`ALL`].

use crate::Experiment;

pub mod dram_policy; // the default eviction policy of the DRAM tier
pub mod serve_flash_get; // flash GETs, the device's limit and extstore (paper B, figures 7 to 9)
pub mod serve_dram_flash_ratio; // less and less DRAM (paper E, figure 4)
pub mod serve_memory; // DRAM per flash item, the memory cap, reads per command
pub mod serve_endurance; // bytes written to flash, and the hits that they bring
pub mod serve_peers; // models of Kangaroo and of a cache like Nemo beside the cache itself
pub mod serve_tails; // the tail of GETs while flash is written and reclaimed
pub mod serve_cores; // one worker compared with two
pub mod serve_restart; // how soon a server is back after its process ended, and with what
pub mod serve_drives; // one, two and four flash files (paper B, figures 7 and 8)
pub mod serve_arithmetic; // arithmetic and appending on both tiers
pub mod serve_tls; // TLS compared with memcached's, and with no TLS
pub mod serve_watch; // histograms, hot keys and scrapes, compared with none of them
pub mod serve_objects; // large values: rates, first byte, DRAM beside them
pub mod serve_overload; // a steady load beside a misbehaving crowd
pub mod serve_online; // a server that is filled from another while both serve
pub mod transfer_predict; // two and four drives of that engine, predicted from one
pub mod endurance_table1; // an LRU buffer before BAST (paper C, table 1)
pub mod ftl_costs; // small maps, stale pages, log blocks (paper A, chapter 2)
pub mod device_verdict; // how simulated drives map pages (paper A, section 4.1)
pub mod plan_accuracy; // the hit ratios of senko plan, compared with the simulated policy
pub mod endurance_fig2_3; // requests over time (paper C, figures 2 and 3)
pub mod ftl_table2; // the size of mapping tables: the thesis's table 2
pub mod ssd_closed_form; // the simulator's write amplification against closed forms
pub mod ssd_speed; // how fast the simulator is, and what memory it takes
pub mod endurance_loads; // loads of the endurance experiments
pub mod endurance_policies; // every write buffer under every translation layer and load
pub mod endurance_adaptive; // the adaptive write buffer against the best fixed one
pub mod engine_wear; // the writes of each engine, and the lifetime of a drive under it
pub mod thesis_blocks; // unsorted and sorted blocks: the thesis's figures 45 to 48
pub mod thesis_improved; // its improved blocks: figures 51 to 53
pub mod thesis_counts; // blocks and pages searched (figures 46, 47, 52, 53)
pub mod thesis_system; // young blocks that become sorted (sections 7.2.2 and 10.2)
pub mod thesis_isam; // its basic structures: table 7
pub mod thesis_btree; // puts into an in-place B+tree: figures 28 and 29
pub mod thesis_hash_table; // puts into a hash table on the device: figure 31
pub mod store_memory; // the store's DRAM per key
pub mod store_gets; // the store's gets, compared with the device's own reads and RocksDB's gets
pub mod store_writes; // the store's writes for each byte put, and the longest waits of puts
pub mod store_open; // how long a store takes to open, after a kill and after a close
pub mod store_rivals; // the store against RocksDB, LMDB and fjall
pub mod thesis_index; // a key's block in DRAM (paper A, figures 35, 41 to 44)
pub mod thesis_misses; // blocks that are read needlessly (paper A, figure 37)
pub mod dbm_floor; // the ways of a durable write: the floor under every commit
pub mod dbm_paper; // the DBM against others, as in paper D's figure 2
pub mod dbm_ndbm; // the same through the interface of ndbm, with transactions
pub mod dbm_threads; // commits of many threads
pub mod dbm_mixes; // YCSB and TPC-C's new-order
pub mod dbm_random; // random updates while the cleaner works
pub mod dbm_large; // gets of a database that is larger than its cache
pub mod dbm_small; // small databases, and databases that are open for a moment
pub mod dbm_appendpages; // a table against path copying (paper D, section 2.1)
pub mod dbm_occ; // optimistic transactions against record locks (paper D, section 2.3)
pub mod python_dbm; // the DBM from Python against dbm.gnu and SQLite
pub mod python_ssd; // a run of the simulator from Python against the command
pub mod python_sweep; // a sweep on two processes against one

pub static ALL: &[&Experiment] = &[
    &dram_policy::EXPERIMENT,
    &serve_flash_get::EXPERIMENT,
    &serve_dram_flash_ratio::EXPERIMENT,
    &serve_memory::EXPERIMENT,
    &serve_endurance::EXPERIMENT,
    &serve_peers::EXPERIMENT,
    &serve_tails::EXPERIMENT,
    &serve_cores::EXPERIMENT,
    &serve_restart::EXPERIMENT,
    &serve_drives::EXPERIMENT,
    &serve_arithmetic::EXPERIMENT,
    &serve_tls::EXPERIMENT,
    &serve_watch::EXPERIMENT,
    &serve_objects::EXPERIMENT,
    &serve_overload::EXPERIMENT,
    &serve_online::EXPERIMENT,
    &transfer_predict::EXPERIMENT,
    &endurance_table1::EXPERIMENT,
    &endurance_fig2_3::EXPERIMENT,
    &endurance_policies::EXPERIMENT,
    &endurance_adaptive::EXPERIMENT,
    &engine_wear::EXPERIMENT,
    &ftl_table2::EXPERIMENT,
    &ftl_costs::EXPERIMENT,
    &device_verdict::EXPERIMENT,
    &plan_accuracy::EXPERIMENT,
    &ssd_closed_form::EXPERIMENT,
    &ssd_speed::EXPERIMENT,
    &thesis_isam::EXPERIMENT,
    &thesis_btree::EXPERIMENT,
    &thesis_hash_table::EXPERIMENT,
    &thesis_blocks::EXPERIMENT,
    &thesis_improved::EXPERIMENT,
    &thesis_counts::EXPERIMENT,
    &thesis_system::EXPERIMENT,
    &store_memory::EXPERIMENT,
    &store_gets::EXPERIMENT,
    &store_writes::EXPERIMENT,
    &store_open::EXPERIMENT,
    &store_rivals::EXPERIMENT,
    &thesis_index::EXPERIMENT,
    &thesis_misses::EXPERIMENT,
    &dbm_floor::EXPERIMENT,
    &dbm_paper::EXPERIMENT,
    &dbm_ndbm::EXPERIMENT,
    &dbm_threads::EXPERIMENT,
    &dbm_mixes::EXPERIMENT,
    &dbm_random::EXPERIMENT,
    &dbm_large::EXPERIMENT,
    &dbm_small::EXPERIMENT,
    &dbm_appendpages::EXPERIMENT,
    &dbm_occ::EXPERIMENT,
    &python_dbm::EXPERIMENT,
    &python_ssd::EXPERIMENT,
    &python_sweep::EXPERIMENT,
];
