// SPDX-License-Identifier: Apache-2.0
//! Clients that store, delete and read the keys of one server, and count stale reads exactly.
//!
//! Card. Idea: each key has one writer, so its changes have an order, and each change is a version
//! of the key, a deletion too. The answer to a change proves that older versions are gone: that is
//! the key's floor from then on. A reader takes the floor before it sends its `get`. A value with
//! an older version is stale. Every client reads the keys of all, and half of its reads are of keys
//! that it has just changed. No clock is compared, and a miss is never wrong.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use senko_workload::key::MAX_KEY_LEN;
use senko_workload::{KeySpace, Rng, ValueLen, check_value_version, fill_value};

use crate::rig::Items;
use crate::rig::wire::Client;

/// The version of the items that the load generator stores.
const FIRST: u32 = 1;
/// Commands of a client under way.
const BATCH: usize = 32;
/// Of a hundred commands, the sets and the deletes. The rest are gets.
const SETS: u64 = 5;
const DELETES: u64 = 5;
/// Keys that a client has changed last, of which it reads.
const RECENT: usize = 256;

#[derive(Debug)]
struct Versions {
    /// The newest version that was sent.
    sent: AtomicU32,
    /// The newest version that was acknowledged; 0: none yet.
    floor: AtomicU32,
}

/// The keys of a server, and what was acknowledged of each.
#[derive(Debug)]
pub struct Ledger {
    keys: Box<[Versions]>,
    space: KeySpace,
    /// All versions of a key have one length, as the load generator stores them.
    value: ValueLen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub hits: u64,
    pub sets: u64,
    pub deletes: u64,
    /// Deletes that found their key.
    pub deleted: u64,
    /// Sets that the server did not take, whose values may be read or not.
    pub refused: u64,
    /// Values older than what was acknowledged before the read was sent.
    pub stale: u64,
    /// Values that nobody has stored under their key.
    pub wrong: u64,
    /// The first of those, in words.
    pub first: Option<String>,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.deleted += other.deleted;
        self.refused += other.refused;
        self.stale += other.stale;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }

    fn fault(&mut self, what: impl FnOnce() -> String) {
        self.first.get_or_insert_with(what);
    }
}

/// A command whose answer is to come.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// With the floor at the time when it was sent.
    Get(u64, u32),
    /// With the version that it makes.
    Set(u64, u32),
    Delete(u64, u32),
}

impl Ledger {
    /// Of a server that has nothing, and gets the items of the load generator from another one.
    pub fn new(items: &Items) -> Result<Ledger> {
        let key = || Versions {
            sent: AtomicU32::new(FIRST),
            floor: AtomicU32::new(0),
        };
        Ok(Ledger {
            keys: (0..items.keys).map(|_| key()).collect(),
            space: KeySpace::new(items.prefix, items.key, items.keys - 1)?,
            value: items.value,
        })
    }

    /// The version of a change that is about to be sent by the key's writer.
    fn change(&self, key: u64) -> u32 {
        self.keys[key as usize].sent.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn acknowledged(&self, key: u64, version: u32) {
        self.keys[key as usize]
            .floor
            .fetch_max(version, Ordering::AcqRel);
    }

    fn floor(&self, key: u64) -> u32 {
        self.keys[key as usize].floor.load(Ordering::Acquire)
    }

    /// Judges a value that a read has found.
    fn judge(&self, key: u64, floor: u32, flags: u32, value: &[u8], counts: &mut Counts) {
        let newest = self.keys[key as usize].sent.load(Ordering::Acquire);
        let whole = value.len() == self.value.len_of(key, 0)
            && check_value_version(value, key, flags..=flags).is_ok();
        if !whole || !(FIRST..=newest).contains(&flags) {
            counts.wrong += 1;
            let len = value.len();
            counts.fault(|| format!("key {key}: {len} bytes that are not version {flags}"));
        } else if flags < floor {
            counts.stale += 1;
            counts.fault(|| format!("key {key}: version {flags} after {floor} was acknowledged"));
        }
    }

    pub fn sweep(&self, client: &mut Client) -> Result<Counts> {
        let mut counts = Counts::default();
        let keys: Vec<u64> = (0..self.keys.len() as u64).collect();
        for some in keys.chunks(BATCH) {
            let gets = some.iter().map(|key| Asked::Get(*key, self.floor(*key)));
            self.ask(client, &gets.collect::<Vec<_>>(), &mut counts)?;
        }
        Ok(counts)
    }

    /// Stores, deletes and reads until `over`, as writer `own` of `writers`.
    pub fn work(
        &self,
        client: &mut Client,
        (own, writers): (u64, u64),
        mut rng: Rng,
        over: &AtomicBool,
    ) -> Result<Counts> {
        let keys = self.keys.len() as u64;
        let mut counts = Counts::default();
        let mut recent = vec![own; RECENT];
        let mut at = 0;
        let mut batch = Vec::new();
        while !over.load(Ordering::Relaxed) {
            batch.clear();
            for _ in 0..BATCH {
                let kind = rng.below(100);
                if kind >= SETS + DELETES {
                    let key = match rng.chance(50) {
                        true => recent[rng.below(RECENT as u64) as usize],
                        false => rng.below(keys),
                    };
                    batch.push(Asked::Get(key, self.floor(key)));
                    continue;
                }
                let key = rng.below(keys / writers) * writers + own;
                recent[at % RECENT] = key;
                at += 1;
                let version = self.change(key);
                batch.push(match kind < SETS {
                    true => Asked::Set(key, version),
                    false => Asked::Delete(key, version),
                });
            }
            self.ask(client, &batch, &mut counts)?;
        }
        Ok(counts)
    }

    /// Sends some commands, and takes their answers.
    fn ask(&self, client: &mut Client, batch: &[Asked], counts: &mut Counts) -> Result<()> {
        let mut text = Vec::new();
        let mut room = [0; MAX_KEY_LEN];
        for asked in batch {
            let (Asked::Get(key, _) | Asked::Set(key, _) | Asked::Delete(key, _)) = *asked;
            let word: &[u8] = match asked {
                Asked::Get(..) => b"get ",
                Asked::Set(..) => b"set ",
                Asked::Delete(..) => b"delete ",
            };
            text.extend_from_slice(word);
            text.extend_from_slice(self.space.write(key, &mut room));
            if let Asked::Set(_, version) = *asked {
                let len = self.value.len_of(key, 0);
                text.extend_from_slice(format!(" {version} 0 {len}\r\n").as_bytes());
                let from = text.len();
                text.resize(from + len, 0);
                fill_value(&mut text[from..], key, version);
            }
            text.extend_from_slice(b"\r\n");
        }
        client.send(&text)?;
        for asked in batch {
            match *asked {
                Asked::Get(key, floor) => self.got(client, key, floor, counts)?,
                Asked::Set(key, version) => {
                    counts.sets += 1;
                    match &*client.line()? {
                        "STORED" => self.acknowledged(key, version),
                        line if line.starts_with("SERVER_ERROR") => counts.refused += 1,
                        line => bail!("the server answered \"{line}\" to a set"),
                    }
                }
                Asked::Delete(key, version) => {
                    counts.deletes += 1;
                    match &*client.line()? {
                        "DELETED" => counts.deleted += 1,
                        "NOT_FOUND" => {}
                        line => bail!("the server answered \"{line}\" to a delete"),
                    }
                    self.acknowledged(key, version);
                }
            }
        }
        Ok(())
    }

    fn got(&self, client: &mut Client, key: u64, floor: u32, counts: &mut Counts) -> Result<()> {
        counts.reads += 1;
        let line = client.line()?;
        if line == "END" {
            return Ok(());
        }
        counts.hits += 1;
        let mut words = line.split(' ').skip(2);
        let mut number = || words.next()?.parse::<u32>().ok();
        let (Some(flags), Some(len)) = (number(), number()) else {
            bail!("the server answered \"{line}\" to a get");
        };
        let value = client.value(len as usize)?;
        self.judge(key, floor, flags, &value, counts);
        match &*client.line().context("after a value")? {
            "END" => Ok(()),
            line => bail!("the server answered \"{line}\" after a value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use std::collections::HashMap;

    /// A server that answers `set` and `delete` well. If it is `bad`, it keeps the first value of
    /// each key, as one would that takes a peer's value after a change.
    fn server(bad: bool) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut out = stream.try_clone().unwrap();
            let mut input = BufReader::new(stream);
            let mut items: HashMap<String, (String, Vec<u8>)> = HashMap::new();
            let mut line = String::new();
            while input.read_line(&mut line).unwrap_or(0) > 0 {
                let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                line.clear();
                let key = words[1].clone();
                let answer = match &*words[0] {
                    "set" => {
                        let mut value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                        input.read_exact(&mut value).unwrap();
                        let item = (words[2].clone(), value);
                        match bad {
                            true => drop(items.entry(key).or_insert(item)),
                            false => drop(items.insert(key, item)),
                        }
                        b"STORED\r\n".to_vec()
                    }
                    "delete" if bad => b"DELETED\r\n".to_vec(),
                    "delete" => match items.remove(&key) {
                        Some(_) => b"DELETED\r\n".to_vec(),
                        None => b"NOT_FOUND\r\n".to_vec(),
                    },
                    _ => match items.get(&key) {
                        None => b"END\r\n".to_vec(),
                        Some((flags, value)) => {
                            let len = value.len() - 2;
                            let head = format!("VALUE {key} {flags} {len}\r\n");
                            [head.as_bytes(), value, b"END\r\n"].concat()
                        }
                    },
                };
                if out.write_all(&answer).is_err() {
                    break;
                }
            }
        });
        address
    }

    /// Works for some batches.
    fn counts(bad: bool) -> Counts {
        let ledger = Ledger::new(&Items::fixed(300, 16, 40)).unwrap();
        let mut client = Client::connect(server(bad)).unwrap();
        let over = AtomicBool::new(false);
        let mut counts = thread::scope(|scope| {
            let working = scope.spawn(|| {
                let rng = Rng::new(7);
                ledger.work(&mut client, (0, 1), rng, &over).unwrap()
            });
            // Every key has changed a few times, whatever the speed.
            let changed = || {
                ledger
                    .keys
                    .iter()
                    .map(|key| key.sent.load(Ordering::Relaxed))
            };
            while changed().min() < Some(FIRST + 4) && !working.is_finished() {
                thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
            working.join().unwrap()
        });
        counts.add(ledger.sweep(&mut client).unwrap());
        counts
    }

    #[test]
    fn old_values_are_counted_and_others_are_not() {
        let good = counts(false);
        assert!(good.hits > 300 && good.deleted > 300, "{good:?}");
        assert_eq!(
            (good.stale, good.wrong, good.refused),
            (0, 0, 0),
            "{good:?}"
        );
        let bad = counts(true);
        assert!(bad.stale > 100, "the sweep alone reads as many: {bad:?}");
        assert_eq!(bad.wrong, 0, "{bad:?}");
    }

    #[test]
    fn bytes_of_another_version_are_wrong() {
        let ledger = Ledger::new(&Items::fixed(10, 16, 40)).unwrap();
        let version = ledger.change(3);
        let mut value = vec![0; 40];
        fill_value(&mut value, 3, FIRST);
        let judged = |floor, flags, value: &[u8]| {
            let mut counts = Counts::default();
            ledger.judge(3, floor, flags, value, &mut counts);
            (counts.stale, counts.wrong)
        };
        assert_eq!(judged(0, FIRST, &value), (0, 0));
        assert_eq!(judged(version, FIRST, &value), (1, 0));
        assert_eq!(
            judged(0, version, &value),
            (0, 1),
            "flags of another version"
        );
        assert_eq!(judged(0, FIRST, &value[1..]), (0, 1));
        fill_value(&mut value, 3, version + 1);
        assert_eq!(judged(0, version + 1, &value), (0, 1), "nobody has sent it");
    }
}
