// SPDX-License-Identifier: Apache-2.0
//! Histories of transactions that append to lists, and a search for the cycles that
//! serializability forbids.
//!
//! Card: Elle (Kingsbury and Alvaro 2020) on Adya's dependency graphs (1999). A list that was read
//! shows the order in which its elements were appended, so the versions of a key are known.
//! Transaction A comes before B in four cases. B's element follows A's (ww); B read A's element
//! last (wr); B's element follows the list that A read (rw); or A had ended before B began (rt). A
//! cycle is an anomaly, named by its edges. The `adya` crate gives a second opinion.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use senko_dbm::{Database, DbmError, Durability};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::support::{number, quiet, seed};

#[derive(Clone, Debug)]
enum Mop {
    Append(u64, u64),
    Read(u64, Vec<u64>),
}
use Mop::{Append, Read};

#[derive(Clone, Debug)]
struct Txn {
    /// The thread that executed it.
    process: u64,
    began: u64,
    ended: u64,
    committed: bool,
    mops: Vec<Mop>,
}

const WW: u8 = 1;
const WR: u8 = 2;
const RW: u8 = 4;
const RT: u8 = 8;

/// The name of the anomaly in a history, and the transactions that show it.
fn anomaly(history: &[Txn]) -> Option<(&'static str, Vec<usize>)> {
    // The transaction that appended an element, and whether it was its last append to the key.
    let mut writer: HashMap<(u64, u64), (usize, bool)> = HashMap::new();
    for (nth, txn) in history.iter().enumerate() {
        let mut seen = HashSet::new();
        for mop in txn.mops.iter().rev() {
            if let Append(key, element) = mop {
                let known = writer.insert((*key, *element), (nth, seen.insert(*key)));
                assert!(known.is_none(), "elements of a key are unique");
            }
        }
    }
    // The longest list of a key that was read is the order of its versions.
    let mut order: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let committed = || history.iter().enumerate().filter(|(_, txn)| txn.committed);
    for (nth, txn) in committed() {
        let mut own: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut read: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for mop in &txn.mops {
            match mop {
                Append(key, element) => own.entry(*key).or_default().push(*element),
                Read(key, list) => {
                    let mine = own.get(key).map_or(&[][..], Vec::as_slice);
                    let Some(others) = list.strip_suffix(mine) else {
                        return Some(("internal", vec![nth]));
                    };
                    if *read.entry(*key).or_insert(others.to_vec()) != others {
                        return Some(("internal", vec![nth]));
                    }
                    for element in others {
                        match writer.get(&(*key, *element)) {
                            Some((of, _)) if history[*of].committed => {}
                            Some((of, _)) => return Some(("G1a", vec![*of, nth])),
                            None => return Some(("garbage", vec![nth])),
                        }
                    }
                    if let Some(last) = others.last()
                        && let (of, false) = writer[&(*key, *last)]
                        && of != nth
                    {
                        return Some(("G1b", vec![of, nth]));
                    }
                    let longest = order.entry(*key).or_default();
                    let shared = longest.len().min(list.len());
                    if longest[..shared] != list[..shared] {
                        return Some(("incompatible-order", vec![nth]));
                    }
                    if list.len() > longest.len() {
                        longest.clone_from(list);
                    }
                }
            }
        }
    }
    let mut edges: HashMap<(usize, usize), u8> = HashMap::new();
    let mut edge = |from: usize, to: usize, kind: u8| {
        if from != to {
            *edges.entry((from, to)).or_default() |= kind;
        }
    };
    for (key, list) in &order {
        for pair in list.windows(2) {
            let of = |element: u64| writer[&(*key, element)].0;
            edge(of(pair[0]), of(pair[1]), WW);
        }
    }
    for (nth, txn) in committed() {
        for mop in &txn.mops {
            let Read(key, list) = mop else { continue };
            let theirs = |element: &&u64| writer[&(*key, **element)].0 != nth;
            let seen = list.iter().rev().find(theirs);
            if let Some(element) = seen {
                edge(writer[&(*key, *element)].0, nth, WR);
            }
            let behind = &order.get(key).map_or(&[][..], Vec::as_slice)[list.len()..];
            if let Some(element) = behind.iter().find(theirs) {
                edge(nth, writer[&(*key, *element)].0, RW);
            }
        }
    }
    // Each process waits for the end of its transaction. So the newest ended transaction of every
    // process determines all of the relevant real-time order.
    let mut by_begin: Vec<usize> = committed().map(|(nth, _)| nth).collect();
    let mut by_end = by_begin.clone();
    by_begin.sort_by_key(|nth| history[*nth].began);
    by_end.sort_by_key(|nth| history[*nth].ended);
    let mut ended = by_end.into_iter().peekable();
    let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
    for nth in by_begin {
        while let Some(before) = ended.next_if(|e| history[*e].ended < history[nth].began) {
            newest.insert(history[before].process, before);
        }
        for before in newest.values() {
            edge(*before, nth, RT);
        }
    }
    let mut next: Vec<Vec<(usize, u8)>> = vec![Vec::new(); history.len()];
    for ((from, to), kinds) in edges {
        next[from].push((to, kinds));
    }
    for (name, kinds, once) in [
        ("G0", WW, 0),
        ("G1c", WW | WR, 0),
        ("G-single", WW | WR, RW),
        ("G2-item", WW | WR | RW, 0),
        ("G0-realtime", WW | RT, 0),
        ("G1c-realtime", WW | WR | RT, 0),
        ("G-single-realtime", WW | WR | RT, RW),
        ("G2-item-realtime", WW | WR | RW | RT, 0),
    ] {
        if let Some(cycle) = cycle(&next, kinds, once) {
            return Some((name, cycle));
        }
    }
    None
}

/// A cycle over edges of `kinds`; with `once`, over one additional edge of that kind.
fn cycle(next: &[Vec<(usize, u8)>], kinds: u8, once: u8) -> Option<Vec<usize>> {
    // Transactions that Kahn's algorithm does not remove lie on cycles or between them.
    let mut into = vec![0usize; next.len()];
    let allowed = |edge: u8| edge & (kinds | once) != 0;
    for (to, _) in next.iter().flatten().filter(|(_, edge)| allowed(*edge)) {
        into[*to] += 1;
    }
    let mut free: Vec<usize> = (0..next.len()).filter(|nth| into[*nth] == 0).collect();
    let mut left: HashSet<usize> = (0..next.len()).collect();
    while let Some(nth) = free.pop() {
        left.remove(&nth);
        for (to, _) in next[nth].iter().filter(|(_, edge)| allowed(*edge)) {
            into[*to] -= 1;
            if into[*to] == 0 {
                free.push(*to);
            }
        }
    }
    let mut starts: Vec<usize> = left.iter().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let first = if once != 0 { once } else { kinds };
        // Breadth-first, so that the cycle is short.
        let mut from: HashMap<usize, usize> = HashMap::new();
        let step = |at: usize, kinds: u8| {
            let left = &left;
            next[at]
                .iter()
                .filter(move |(to, edge)| edge & kinds != 0 && left.contains(to))
                .map(|(to, _)| *to)
        };
        let mut queue = std::collections::VecDeque::new();
        for to in step(start, first) {
            from.entry(to).or_insert(start);
            queue.push_back(to);
        }
        while let Some(at) = queue.pop_front() {
            if at == start {
                let (mut cycle, mut at) = (vec![start], from[&start]);
                while at != start {
                    cycle.push(at);
                    at = from[&at];
                }
                cycle.reverse();
                return Some(cycle);
            }
            for to in step(at, kinds) {
                if let std::collections::hash_map::Entry::Vacant(entry) = from.entry(to) {
                    entry.insert(at);
                    queue.push_back(to);
                }
            }
        }
    }
    None
}

/// The other checker's verdict: the names of what it found.
fn second_opinion(history: &[Txn]) -> Vec<String> {
    let value = |txn: &Txn, done: bool| {
        let mops = txn.mops.iter().map(|mop| match mop {
            Append(key, element) => format!("[\"append\",\"{key}\",{element}]"),
            Read(key, list) if done => format!("[\"r\",\"{key}\",{list:?}]"),
            Read(key, _) => format!("[\"r\",\"{key}\",null]"),
        });
        mops.collect::<Vec<_>>().join(",")
    };
    let mut events: Vec<(u64, String)> = Vec::new();
    for txn in history {
        let mut event = |at: u64, kind: &str, done: bool| {
            let (process, value) = (txn.process, value(txn, done));
            let line =
                format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":[{value}]}}\n");
            events.push((at, line));
        };
        event(txn.began, "invoke", false);
        match txn.committed {
            true => event(txn.ended, "ok", true),
            false => event(txn.ended, "fail", false),
        }
    }
    events.sort();
    let text: String = events.into_iter().map(|(_, line)| line).collect();
    let history = adya::History::from_json(&text).unwrap();
    let options = adya::Opts {
        models: vec!["strict-serializable".into()],
        ..adya::Opts::default()
    };
    let report = adya::check(&history, adya::Workload::ListAppend, &options);
    let bad = report.valid != adya::Valid::True;
    assert_eq!(bad, !report.anomaly_types.is_empty());
    report
        .anomaly_types
        .iter()
        .map(|name| name.to_string())
        .collect()
}

/// Transactions that all overlap.
fn overlapping(mops: &[&[Mop]]) -> Vec<Txn> {
    let txn = |(nth, mops): (usize, &&[Mop])| Txn {
        process: nth as u64,
        began: nth as u64,
        ended: (mops.len() + nth) as u64 + 1000,
        committed: true,
        mops: mops.to_vec(),
    };
    mops.iter().enumerate().map(txn).collect()
}

/// Histories that are known to be bad, by the name of their anomaly; both checkers find it.
#[test]
fn both_checkers_find_what_is_wrong() {
    let r = |key: u64, list: &[u64]| Read(key, list.to_vec());
    let a = |key: u64, element: u64| Append(key, element);
    let bad: Vec<(&str, Vec<Txn>)> = vec![
        (
            "G0",
            overlapping(&[
                &[a(1, 1), a(2, 1)],
                &[a(1, 2), a(2, 2)],
                &[r(1, &[1, 2]), r(2, &[2, 1])],
            ]),
        ),
        ("G1a", {
            let mut history = overlapping(&[&[a(1, 1)], &[r(1, &[1])]]);
            history[0].committed = false;
            history
        }),
        ("G1b", overlapping(&[&[a(1, 1), a(1, 2)], &[r(1, &[1])]])),
        (
            "G1c",
            overlapping(&[&[a(1, 1), r(2, &[1])], &[a(2, 1), r(1, &[1])]]),
        ),
        (
            "G-single",
            overlapping(&[&[a(1, 1), a(2, 1)], &[r(1, &[1]), r(2, &[])], &[r(2, &[1])]]),
        ),
        // A lost update: both appended to the list that both had read.
        (
            "G-single",
            overlapping(&[
                &[r(1, &[]), a(1, 1)],
                &[r(1, &[]), a(1, 2)],
                &[r(1, &[1, 2])],
            ]),
        ),
        // Write skew.
        (
            "G2-item",
            overlapping(&[
                &[r(1, &[]), a(2, 1)],
                &[r(2, &[]), a(1, 1)],
                &[r(1, &[1]), r(2, &[1])],
            ]),
        ),
        ("internal", overlapping(&[&[a(1, 1), r(1, &[])]])),
        (
            "incompatible-order",
            overlapping(&[&[a(1, 1)], &[a(1, 2)], &[r(1, &[1, 2])], &[r(1, &[2, 1])]]),
        ),
        // A read that misses a commit that had ended before it began.
        ("G-single-realtime", {
            let mut history = overlapping(&[&[a(1, 1)], &[r(1, &[])], &[r(1, &[1])]]);
            (history[0].began, history[0].ended) = (1, 2);
            (history[1].began, history[1].ended) = (3, 4);
            history
        }),
    ];
    for (name, history) in bad {
        let found = anomaly(&history);
        assert_eq!(
            found.as_ref().map(|(name, _)| *name),
            Some(name),
            "{found:?}"
        );
        let second = second_opinion(&history);
        // The other checker says where an item was read, in other parts of the name.
        let short = |name: &str| name.replace("-item", "");
        let known = second.iter().any(|found| short(found) == short(name));
        assert!(known, "{name}: {second:?}");
    }
    let good = overlapping(&[
        &[a(1, 1), r(1, &[1])],
        &[r(1, &[1]), a(1, 2), r(2, &[])],
        &[r(1, &[1, 2]), a(2, 1)],
        &[r(2, &[1])],
    ]);
    assert_eq!(anomaly(&good), None);
    assert_eq!(second_opinion(&good), [""; 0]);
}

fn run(seed: u64, transactions: u64, tracked: bool) -> Vec<Txn> {
    let db = Database::open_device(FaultyDevice::new(60_000, seed), quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let (clock, element) = (AtomicU64::new(0), AtomicU64::new(1));
    // Few keys are used at a time, and lists stay short.
    let key_of = |rng: &mut Rng| {
        let now = element.load(Ordering::Relaxed) / 60;
        now * 4 + rng.below(8)
    };
    let list_of = |value: Option<Vec<u8>>| -> Vec<u64> {
        let value = value.unwrap_or_default();
        let words = value.chunks(8);
        words
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    };
    let one = |rng: &mut Rng, process: u64| {
        let began = clock.fetch_add(1, Ordering::SeqCst);
        let mut tx = db.begin();
        let mut mops = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let key = key_of(rng);
            let name = key.to_be_bytes();
            let value = match tracked {
                true => tx.get(&table, &name).unwrap(),
                false => tx.get_untracked(&table, &name).unwrap(),
            };
            let mut list = list_of(value);
            if rng.below(2) == 0 {
                mops.push(Read(key, list));
            } else {
                let new = element.fetch_add(1, Ordering::Relaxed);
                list.push(new);
                let bytes: Vec<u8> = list.iter().flat_map(|e| e.to_le_bytes()).collect();
                tx.put(&table, &name, &bytes).unwrap();
                mops.push(Append(key, new));
            }
            std::thread::yield_now();
        }
        let committed = match tx.commit(Durability::None) {
            Ok(()) => true,
            Err(DbmError::Conflict) => false,
            Err(error) => panic!("{error}"),
        };
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        Txn {
            process,
            began,
            ended,
            committed,
            mops,
        }
    };
    let mut history: Vec<Txn> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..8)
            .map(|process| {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed + process);
                    let all = (0..transactions / 8).map(|_| one(&mut rng, process));
                    all.collect::<Vec<Txn>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    // All lists are read once more at the end, so that the order of every append is known.
    let now = db.snapshot();
    let mops = now.cursor(&table, ..).unwrap().map(|record| {
        let (key, value) = record.unwrap();
        Read(
            u64::from_be_bytes(key.try_into().unwrap()),
            list_of(Some(value)),
        )
    });
    history.push(Txn {
        process: 8,
        began: clock.fetch_add(1, Ordering::SeqCst),
        ended: clock.fetch_add(1, Ordering::SeqCst),
        committed: true,
        mops: mops.collect(),
    });
    history
}

/// Eight threads append and read under contention. Neither checker finds a cycle, nor an order that
/// contradicts real time. `SENKO_DBM_HISTORY` sets the number of transactions.
#[test]
fn no_history_has_an_anomaly() {
    let seed = seed("cycles");
    let transactions = number("SENKO_DBM_HISTORY", 20_000);
    let history = run(seed, transactions, true);
    let committed = history.iter().filter(|txn| txn.committed).count();
    println!("{committed} of {} transactions committed", history.len());
    assert!(committed < history.len(), "nobody conflicted");
    let found = anomaly(&history);
    assert!(found.is_none(), "{found:?}");
    assert_eq!(second_opinion(&history), [""; 0]);
}

/// The same with reads that are not validated, which promise less: the checkers detect it.
#[test]
fn unvalidated_reads_show_anomalies() {
    let seed = seed("unvalidated");
    for round in 0..50 {
        let history = run(seed + round, 4000, false);
        let found = anomaly(&history);
        let second = second_opinion(&history);
        assert_eq!(found.is_some(), !second.is_empty(), "{found:?}, {second:?}");
        if found.is_some() {
            return;
        }
    }
    panic!("no anomaly in fifty histories");
}
