// SPDX-License-Identifier: Apache-2.0
//! Engines under test: the process with an engine, driven as in an experiment, with correct engines
//! and faulty ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use senko_lab::kv::protocol::{Answer, Request};
use senko_lab::kv::rehearsal::{self, rehearse};
use senko_lab::kv::{
    Amount, Durability, Engine, Fill, ItemShape, Maker, Tuning, Work, Worked, child,
};
use serde_json::{Map, Value};

/// A map in memory, which can be made faulty.
#[derive(Clone, Default)]
struct Toy {
    map: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
    puts: Arc<AtomicU64>,
    /// From this number of puts on it forgets them.
    forgets_after: Option<u64>,
    /// Every value comes back with its last byte changed.
    damages: bool,
}

impl Engine for Toy {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let n = self.puts.fetch_add(1, Ordering::Relaxed);
        if self.forgets_after.is_none_or(|most| n < most) {
            self.map
                .lock()
                .unwrap()
                .insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }
    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        pairs
            .iter()
            .try_for_each(|(key, value)| self.put(key, value))
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let map = self.map.lock().unwrap();
        let Some(found) = map.get(key) else {
            return Ok(false);
        };
        value.extend_from_slice(found);
        if self.damages {
            *value.last_mut().unwrap() ^= 1;
        }
        Ok(true)
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn facts(&self) -> Result<Map<String, Value>> {
        let mut facts = Map::new();
        facts.insert("puts".into(), self.puts.load(Ordering::Relaxed).into());
        Ok(facts)
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Maker for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn describe(&self, _: &Tuning) -> String {
        "a map".to_owned()
    }
    fn open(&self, _: &Path, _: &Tuning) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.clone()))
    }
}

const SHAPE: ItemShape = ItemShape { value_bytes: 64 };

fn tuning() -> Tuning {
    Tuning {
        memory: 64 << 20,
        cache: 1 << 20,
        keys: 1000,
        value_bytes: SHAPE.value_bytes,
        durability: Durability::Kill,
        read_only: false,
        space_ratio: 1.3,
        block_bytes: 1 << 20,
        bloom: false,
    }
}

fn open(engine: &str, folder: &Path) -> Request {
    Request::Open {
        engine: engine.to_owned(),
        folder: folder.to_owned(),
        tuning: tuning(),
        first: None,
    }
}

fn answers(maker: &dyn Maker, requests: &[Request]) -> Vec<Answer> {
    rehearsal::answers(maker, requests).unwrap()
}

fn worked(answer: &Answer) -> &Worked {
    rehearsal::worked(answer).unwrap()
}

fn fill(threads: usize, batch: usize) -> Request {
    Request::Fill(Fill {
        from: 0,
        to: 1000,
        shape: SHAPE,
        version: 0,
        ascending: false,
        batch,
        threads,
        seed: 5,
    })
}

fn work(gets: f64, missing: f64, depth: usize, threads: usize) -> Request {
    Request::Work(Work {
        gets,
        missing,
        depth,
        threads,
        ..Work::gets(1000, SHAPE, Amount::Ops(5000), 9)
    })
}

#[test]
fn a_right_engine_passes() {
    rehearse(&Toy::default(), Path::new("/nowhere"), Durability::Kill).unwrap();
}

#[test]
fn our_store_passes() {
    for durability in [Durability::Lazy, Durability::Kill] {
        let folder = std::env::temp_dir().join(format!("senko-kv-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let passed = rehearse(senko_lab::kv::ours()[0], &folder, durability);
        std::fs::remove_dir_all(&folder).unwrap();
        passed.unwrap();
    }
}

#[test]
fn work_is_counted() {
    let toy = Toy::default();
    let requests = [
        open("toy", Path::new("/nowhere")),
        fill(3, 7),
        work(1.0, 0.0, 64, 2),
        work(0.0, 0.0, 1, 1),
        Request::Work(Work {
            rate: Some(50_000.0),
            threads: 2,
            ..Work::puts(1000, SHAPE, Amount::Ops(500), 3, 1)
        }),
        Request::Work(Work {
            threads: 3,
            ..Work::gets(1000, SHAPE, Amount::Seconds(0.01), 1)
        }),
    ];
    let all = answers(&toy, &requests);
    let (gets, puts, paced) = (worked(&all[2]), worked(&all[3]), worked(&all[4]));
    assert_eq!((gets.gets, gets.found, gets.puts), (5000, 5000, 0));
    assert_eq!(gets.get.count, 5000, "each get is timed");
    assert_eq!(
        (puts.puts, puts.put.count, puts.put_due.count),
        (5000, 5000, 0)
    );
    assert_eq!((paced.puts, paced.put_due.count), (500, 500));
    assert!(paced.put_due.max_us >= paced.put.max_us / 2.0 && paced.seconds >= 490.0 / 50_000.0);
    assert!(worked(&all[5]).gets > 0 && worked(&all[5]).seconds >= 0.01);
}

fn failure(answer: &Answer) -> &str {
    match answer {
        Answer::Failed(why) => why,
        other => panic!("that should have failed: {other:?}"),
    }
}

#[test]
fn a_wrong_engine_is_seen() {
    let folder = Path::new("/nowhere");
    let forgets = Toy {
        forgets_after: Some(990),
        ..Toy::default()
    };
    let requests = [open("toy", folder), fill(1, 1), work(1.0, 0.0, 1, 1)];
    let all = answers(&forgets, &requests);
    assert!(failure(&all[2]).contains("is not there"), "{:?}", all[2]);
    let damages = Toy {
        damages: true,
        ..Toy::default()
    };
    for depth in [1, 64] {
        let requests = [open("toy", folder), fill(1, 1), work(1.0, 0.0, depth, 1)];
        let all = answers(&damages, &requests);
        assert!(failure(&all[2]).contains("wrong from byte"), "{:?}", all[2]);
    }
}

#[test]
fn requests_out_of_turn_are_refused() {
    let toy = Toy::default();
    let folder = Path::new("/nowhere");
    let requests = [
        Request::Settle,
        open("other", folder),
        open("toy", folder),
        open("toy", folder),
        Request::Close,
        Request::Close,
    ];
    let all = answers(&toy, &requests);
    assert!(failure(&all[0]).contains("no engine is open"));
    assert!(failure(&all[1]).contains("it has: toy"));
    assert!(failure(&all[3]).contains("open already"));
    assert!(matches!(all[4], Answer::Done(_)));
    assert!(failure(&all[5]).contains("no engine is open"));
    let mut out = Vec::new();
    let error = child::serve(&[&toy], &mut "nonsense\n".as_bytes(), &mut out).unwrap_err();
    assert!(format!("{error:#}").contains("nonsense"), "{error:#}");
}

/// If a reported put is lost after a kill, or comes back older, the experiment ends with an error.
#[test]
fn what_a_killed_writer_said_is_checked() {
    let (keys, most) = (100, 1024);
    let toy = Toy::default();
    let mut said = Vec::new();
    child::write_on(&toy, keys, SHAPE, most, &mut |reached| {
        said.push(reached);
        Ok(())
    })
    .unwrap();
    assert_eq!(said, [256, 512, 768, 1024]);
    let shown = child::check_reached(&toy, keys, SHAPE, most, 1000).unwrap();
    assert_eq!(
        shown.found, keys,
        "no further back than a version of each key"
    );
    // Put 1024 was key 23 with version 11; a writer that reported one version more is not believed.
    let error = child::check_reached(&toy, keys, SHAPE, most + 1, 1000).unwrap_err();
    assert!(error.to_string().contains("has version 10"), "{error:#}");
    toy.map.lock().unwrap().pop_first();
    let error = child::check_reached(&toy, keys, SHAPE, most, 1000).unwrap_err();
    assert!(error.to_string().contains("is lost"), "{error:#}");
}
