// SPDX-License-Identifier: Apache-2.0
//! redb: a B+ tree in Rust, copied on write, behind the line protocol of the experiments on
//! commits.
//!
//! Called by `main` for `senko-rivals commits`. The protocol is that of the lab's C programs for
//! other engines (`lab/experiments/src/commits/rival.c`), as far as redb needs it.
//!
//! Its commits are durable (`Immediate`) even if no sync is required. That is on tmpfs, where a
//! flush costs only a system call. Its other setting would lose commits when the process is killed.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use redb::{Database, ReadableDatabase, TableDefinition};
use senko_lab::commits::{VALUE_BYTES, belongs, key, value};
use senko_workload::Rng;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Bytes of its cache: the same for all contenders.
const CACHE: usize = 64 << 20;
/// Records of a commit of a fill.
const FILL: u64 = 1000;

/// Answers the lines of `asked` until they end. A failure is the last answer.
pub fn serve(folder: &Path, asked: impl BufRead, mut said: impl Write) -> Result<()> {
    if let Err(error) = answer_all(folder, asked, &mut said) {
        writeln!(said, "error redb: {error:#}")?;
    }
    Ok(said.flush()?)
}

fn answer_all(folder: &Path, asked: impl BufRead, said: &mut impl Write) -> Result<()> {
    let database = Database::builder()
        .set_cache_size(CACHE)
        .create(folder.join("db"))?;
    let mut engine = Engine {
        database,
        value_bytes: VALUE_BYTES,
        next: 0,
        changes: 0,
    };
    writeln!(said, "ready redb 4")?;
    said.flush()?;
    for line in asked.lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| -> Result<u64> {
            let word = words.get(at).context("a number is missing")?;
            Ok(word.parse()?)
        };
        match words.first() {
            Some(&"run") => {
                ensure!(number(3)? == 1, "one thread commits");
                let start = Instant::now();
                let times = engine.run(number(1)?, number(2)?, number(4)?, number(5)?)?;
                writeln!(said, "ran {:.9}", start.elapsed().as_secs_f64())?;
                for time in times {
                    said.write_all(&time.to_le_bytes())?;
                }
            }
            Some(&"value") => {
                engine.value_bytes = number(1)? as usize;
                ensure!(
                    engine.value_bytes.is_multiple_of(VALUE_BYTES),
                    "no whole words"
                );
                writeln!(said, "sized")?;
            }
            Some(&"fill") => {
                engine.fill(number(1)?)?;
                writeln!(said, "filled")?;
            }
            Some(&"check") => {
                engine.check(number(1)?)?;
                writeln!(said, "checked")?;
            }
            _ => bail!("{line:?} is not known"),
        }
        said.flush()?;
    }
    Ok(())
}

struct Engine {
    database: Database,
    /// A value is its word so many times that it has these bytes.
    value_bytes: usize,
    next: u64,
    changes: u64,
}

impl Engine {
    /// Puts the keys below `keys`, ascending.
    fn fill(&mut self, keys: u64) -> Result<()> {
        while self.next < keys {
            self.run(1, FILL.min(keys - self.next), 0, 1)?;
        }
        Ok(())
    }

    /// Nanoseconds of each commit; `keys` is 0 for ascending ones.
    fn run(&mut self, commits: u64, records: u64, keys: u64, seed: u64) -> Result<Vec<u64>> {
        self.changes += 1;
        let mut rng = Rng::new(seed.wrapping_mul(1000).wrapping_add(self.changes));
        let mut times = Vec::new();
        for _ in 0..commits {
            let since = Instant::now();
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(RECORDS)?;
                for _ in 0..records {
                    let number = if keys == 0 {
                        self.next += 1;
                        self.next - 1
                    } else {
                        rng.below(keys)
                    };
                    let words = self.value_bytes / VALUE_BYTES;
                    let stored = value(number, self.changes).repeat(words);
                    table.insert(&key(number)[..], &stored[..])?;
                }
            }
            transaction.commit()?;
            times.push(since.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    fn check(&self, keys: u64) -> Result<()> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(RECORDS)?;
        for number in 0..keys {
            let found = table.get(&key(number)[..])?;
            let found = found.with_context(|| format!("the record {number} is gone"))?;
            let mut words = found.value().chunks(VALUE_BYTES);
            let its_own = words.all(|word| belongs(number, word));
            let whole = found.value().len() == self.value_bytes;
            ensure!(its_own && whole, "the record {number} is another's");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_commits_what_it_says() {
        let name = format!("senko-rival-redb-commits-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let asked = "run 3 10 1 0 1\ncheck 30\nrun 2 5 1 30 1\ncheck 30\n\
                     value 1000\nfill 2500\nrun 1 30000 1 30 1\ncheck 30\ncheck 2501\n";
        let mut said = Vec::new();
        let served = super::serve(&folder, asked.as_bytes(), &mut said);
        std::fs::remove_dir_all(&folder).unwrap();
        served.unwrap();
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("ready redb 4\nran "), "{said}");
        assert_eq!(said.matches("checked\n").count(), 2, "{said}");
        assert!(
            said.ends_with("error redb: the record 2500 is gone\n"),
            "{said}"
        );
    }
}
