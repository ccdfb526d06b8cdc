// SPDX-License-Identifier: Apache-2.0
//! YCSB's six mixes, and TPC-C's new-order, on the DBM and on other engines.
//!
//! Question: what do gets, puts and scans in turn cost, where one transaction has several of them?
//! Expected shape: a B+tree reads like LMDB, and commits like an LSM tree, since a commit is an
//! entry of a log and not the pages that it changed. Scans read leaves in order.
//!
//! YCSB (Cooper et al., SoCC 2010): records of 1,000 bytes, each operation a transaction. A: half
//! gets, half puts. B: 95 % gets. C: gets alone. D: 95 % gets of what is new, 5 % new records. E:
//! 95 % scans of 1 to 100 records, 5 % new ones. F: half gets, half get and put of the same record.
//! Keys by Zipf's law (0.99), in D by the age of the record. Deviation: new records have the next
//! number and not its hash, since keys are numbers for all engines.
//!
//! TPC-C's new-order (clause 2.4): warehouse, district and customer are read, and the district's
//! next number is put; for each of 5 to 15 lines the item and its stock are read, stock and line
//! are put; then the order and its entry in the queue of new orders. Deviations: one terminal
//! without keying times, all lines from the own warehouse, no rollbacks, records of the sizes of
//! the specification without their fields.
//!
//! Commits are left to the system (`Buffered`, and what each rival has for that). One thread. All
//! records are in DRAM: the rivals have the page cache, and the DBM, which reads past it, a cache
//! of its own that holds them.

use anyhow::Result;
use senko_dbm::Options as DbmOptions;
use senko_workload::{KeyChooser, Popularity, Rng};

use crate::commits::ours::OURS;
use crate::commits::rival::{LEVELDB, LMDB, ROCKSDB, SQLITE};
use crate::commits::script::{MOST_BYTES, What, uneven};
use crate::commits::{Ran, Script, Turns};
use crate::rig::scratch::Scratch;
use crate::rig::{Bench, Rounds, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-mixes",
    paper: Paper::Design,
    source: "YCSB A to F and TPC-C's new-order; beyond paper D",
    text: "gets, puts and scans in turn, and transactions of several of them",
    sentences: &[],
    bars: &[
        Bar::more("ycsb_worst_over_rocksdb", 1.0, 1.5),
        Bar::more("new_order_over_rocksdb", 1.0, 1.5),
    ],
    run: Measure::Uncapped(run),
};

/// YCSB's mixes, in the order that its authors ask for: those that add records come last.
const MIXES: [&str; 6] = ["a", "b", "c", "f", "d", "e"];
/// Records of a scan at most.
const SCANNED: u64 = 100;

#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub records: u32,
    pub operations: u64,
    pub warehouses: u32,
    /// New orders in a round.
    pub orders: u64,
    pub rounds: u64,
    /// Bytes of the DBM's cache: all records fit, as they fit the page cache for the others.
    pub cache: usize,
}

const QUICK: Sizes = Sizes {
    records: 100_000,
    operations: 50_000,
    warehouses: 1,
    orders: 10_000,
    rounds: 3,
    cache: 256 << 20,
};
const FULL: Sizes = Sizes {
    records: 1_000_000,
    operations: 200_000,
    warehouses: 4,
    orders: 50_000,
    rounds: 9,
    cache: 3 << 30,
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    bench.scratch.need(bench.scaled(4, 40) << 30)?;
    let sizes = bench.scaled(QUICK, FULL);
    let steps = Steps::new(progress, (2 + sizes.rounds * (MIXES.len() as u64 + 1)) * 5);
    measure(&bench.scratch, &steps, sizes, outcome)
}

/// Records so far, and the script of the next round of a mix.
struct Ycsb {
    records: u32,
    rng: Rng,
}

impl Ycsb {
    fn script(&mut self, mix: &str, operations: u64) -> Result<Script> {
        let law = match mix {
            "d" => Popularity::Latest { s: 0.99 },
            _ => Popularity::Zipf {
                s: 0.99,
                scrambled: true,
            },
        };
        let mut keys = KeyChooser::new(&law, u64::from(self.records))?;
        let gets = match mix {
            "a" | "f" => 50,
            "c" => 100,
            _ => 95,
        };
        let mut script = Script::default();
        for _ in 0..operations {
            let key = keys.next_key(&mut self.rng) as u32;
            let is_get = self.rng.below(100) < gets;
            match (mix, is_get) {
                ("e", true) => {
                    let most = 1 + self.rng.below(SCANNED);
                    script.add(What::Scan, key, most as usize);
                }
                (_, true) => script.get(key),
                ("d" | "e", false) => {
                    script.put(self.records, MOST_BYTES);
                    self.records += 1;
                    keys.grow(u64::from(self.records))?;
                }
                ("f", false) => {
                    script.get(key);
                    script.put(key, MOST_BYTES);
                }
                _ => script.put(key, MOST_BYTES),
            }
            script.end();
        }
        Ok(script)
    }
}

/// Tables of TPC-C that new-order uses: their number, and bytes of a record.
mod table {
    pub const WAREHOUSE: (u32, usize) = (0, 89);
    pub const DISTRICT: (u32, usize) = (1, 95);
    pub const CUSTOMER: (u32, usize) = (2, 655);
    pub const ITEM: (u32, usize) = (3, 82);
    pub const STOCK: (u32, usize) = (4, 306);
    pub const ORDER: (u32, usize) = (5, 24);
    pub const NEW_ORDER: (u32, usize) = (6, 8);
    pub const LINE: (u32, usize) = (7, 54);
}

const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 3000;
const ITEMS: u32 = 100_000;
/// Lines of an order are numbered in so many.
const LINES: u32 = 16;

/// A record's key: the table in the upper four bits.
fn of((table, _): (u32, usize), number: u32) -> u32 {
    table << 28 | number
}

struct Tpcc {
    warehouses: u32,
    orders: u32,
    rng: Rng,
}

impl Tpcc {
    fn fill(&self) -> Script {
        let districts = self.warehouses * DISTRICTS;
        let tables = [
            (table::WAREHOUSE, self.warehouses),
            (table::DISTRICT, districts),
            (table::CUSTOMER, districts * CUSTOMERS),
            (table::ITEM, ITEMS),
            (table::STOCK, self.warehouses * ITEMS),
        ];
        let rows = |(table, rows): ((u32, usize), u32)| {
            (0..rows).map(move |number| (of(table, number), table.1))
        };
        Script::fill(tables.into_iter().flat_map(rows))
    }

    fn script(&mut self, orders: u64) -> Script {
        let mut script = Script::default();
        let rng = &mut self.rng;
        for _ in 0..orders {
            let warehouse = rng.below(u64::from(self.warehouses)) as u32;
            let district = warehouse * DISTRICTS + rng.below(u64::from(DISTRICTS)) as u32;
            let customer = uneven(rng, 1023, 1, u64::from(CUSTOMERS)) as u32 - 1;
            script.get(of(table::WAREHOUSE, warehouse));
            script.get(of(table::DISTRICT, district));
            script.put(of(table::DISTRICT, district), table::DISTRICT.1);
            script.get(of(table::CUSTOMER, district * CUSTOMERS + customer));
            for line in 0..5 + rng.below(11) as u32 {
                let item = uneven(rng, 8191, 1, u64::from(ITEMS)) as u32 - 1;
                let stock = of(table::STOCK, warehouse * ITEMS + item);
                script.get(of(table::ITEM, item));
                script.get(stock);
                script.put(stock, table::STOCK.1);
                script.put(of(table::LINE, self.orders * LINES + line), table::LINE.1);
            }
            script.put(of(table::ORDER, self.orders), table::ORDER.1);
            script.put(of(table::NEW_ORDER, self.orders), table::NEW_ORDER.1);
            script.end();
            self.orders += 1;
        }
        script
    }
}

/// Contenders with the records of a fill.
fn filled(
    scratch: &Scratch,
    folder: &str,
    fill: &Script,
    cache_bytes: usize,
    steps: &Steps<'_>,
    outcome: &mut Outcome,
) -> Turns {
    let mut turns = Turns::new(scratch, folder, false);
    let options = DbmOptions {
        cache_bytes,
        ..DbmOptions::default()
    };
    turns.add_ours(options, 0);
    for kind in RIVALS {
        let sizes = [("VALUE", MOST_BYTES as u64)];
        let home = turns.home().join(kind.name);
        let started = kind.start_with(turns.programs(), &home, false, &sizes);
        turns.add_other(kind.name, started, kind.settings, outcome);
    }
    turns.script(fill, steps, "filling");
    turns.forget();
    turns
}

const RIVALS: [crate::commits::rival::Kind; 4] = [ROCKSDB, LEVELDB, LMDB, SQLITE];

fn rivals() -> impl Iterator<Item = &'static str> {
    RIVALS.iter().map(|kind| kind.name)
}

/// All mixes. The test calls it with few records.
pub fn measure(
    scratch: &Scratch,
    steps: &Steps<'_>,
    sizes: Sizes,
    outcome: &mut Outcome,
) -> Result<()> {
    outcome.setting("records", sizes.records);
    outcome.setting("operations_a_round", sizes.operations);
    outcome.setting("warehouses", sizes.warehouses);
    outcome.setting("orders_a_round", sizes.orders);
    outcome.setting("rounds", sizes.rounds);
    outcome.setting("dbm_cache_bytes", sizes.cache);
    let mut table = Table::titled("Transactions, one thread, left to the system");
    let mut ycsb = Ycsb {
        records: sizes.records,
        rng: Rng::new(1),
    };
    let fill = Script::fill((0..sizes.records).map(|key| (key, MOST_BYTES)));
    let mut turns = filled(scratch, "ycsb", &fill, sizes.cache, steps, outcome);
    let mut worst: Rounds = Ok(Vec::new());
    for mix in MIXES {
        turns.forget();
        for round in 1..=sizes.rounds {
            let script = ycsb.script(mix, sizes.operations)?;
            turns.script(&script, steps, &format!("YCSB {mix}, round {round}"));
        }
        turns.rows(&format!("YCSB {mix}"), 1, &mut table);
        turns.put_over(&format!("ycsb_{mix}"), OURS, rivals(), outcome);
        worst = smaller(worst, turns.over(OURS, ROCKSDB.name, Ran::rate));
    }
    outcome.put("ycsb_worst_over_rocksdb", worst);
    drop(turns);

    let mut tpcc = Tpcc {
        warehouses: sizes.warehouses,
        orders: 0,
        rng: Rng::new(2),
    };
    let mut turns = filled(scratch, "tpcc", &tpcc.fill(), sizes.cache, steps, outcome);
    for round in 1..=sizes.rounds {
        let script = tpcc.script(sizes.orders);
        turns.script(&script, steps, &format!("new-order, round {round}"));
    }
    turns.rows("new-order", 1, &mut table);
    turns.put_over("new_order", OURS, rivals(), outcome);
    outcome.tables.push(table);
    Ok(())
}

/// The rounds with the lower median.
fn smaller(one: Rounds, other: Rounds) -> Rounds {
    let (one, other) = (one?, other?);
    let median = |rounds: &[f64]| crate::rig::median(rounds.to_vec());
    match (median(&one), median(&other)) {
        (Some(a), Some(b)) if a <= b => Ok(one),
        _ => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mix has the shares of YCSB, and new records follow on each other.
    #[test]
    fn mixes_have_their_shares() {
        let mut ycsb = Ycsb {
            records: 1000,
            rng: Rng::new(1),
        };
        for (mix, gets, puts, scans) in [
            ("a", 5000, 5000, 0),
            ("b", 9500, 500, 0),
            ("c", 10_000, 0, 0),
            ("d", 9500, 500, 0),
            ("e", 0, 500, 9500),
            ("f", 10_000, 5000, 0),
        ] {
            let before = ycsb.records;
            let script = ycsb.script(mix, 10_000).expect("a law of these keys");
            assert_eq!(script.transactions(), 10_000);
            assert_eq!(script.each_transaction().count(), 10_000);
            for (what, wanted) in [(What::Get, gets), (What::Put, puts), (What::Scan, scans)] {
                let all = script.operations().iter();
                let seen = all.filter(|operation| operation.what == what).count();
                assert!(seen.abs_diff(wanted) < 200, "{mix}: {seen} of {what:?}");
            }
            let added = script.operations().iter().filter(|o| o.key >= before);
            let puts = added.clone().filter(|o| o.what == What::Put).count() as u32;
            assert_eq!(ycsb.records - before, puts, "{mix}");
            assert!(added.clone().all(|o| o.key < ycsb.records), "{mix}");
        }
    }

    /// An order reads and puts what the specification says, and no two orders share a line.
    #[test]
    fn orders_are_those_of_the_specification() {
        let mut tpcc = Tpcc {
            warehouses: 2,
            orders: 0,
            rng: Rng::new(1),
        };
        let fill = tpcc.fill();
        assert_eq!(fill.operations().len(), 2 + 20 + 60_000 + 100_000 + 200_000);
        let there: std::collections::HashSet<u32> =
            fill.operations().iter().map(|o| o.key).collect();
        let script = tpcc.script(300);
        let mut lines = std::collections::HashSet::new();
        for order in script.each_transaction() {
            let of_lines = order.iter().filter(|o| o.key >> 28 == table::LINE.0);
            let count = of_lines.clone().count();
            assert!((5..=15).contains(&count), "{count}");
            assert_eq!(order.len(), 4 + 4 * count + 2);
            assert!(of_lines.into_iter().all(|o| lines.insert(o.key)));
            let mut gets = order.iter().filter(|o| o.what == What::Get);
            assert!(gets.all(|o| there.contains(&o.key)));
        }
    }
}
