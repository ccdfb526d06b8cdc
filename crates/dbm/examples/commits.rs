// SPDX-License-Identifier: Apache-2.0
//! Synced commits of one and of a hundred records, compared with the floor: durable 4 KiB writes
//! over written zeros in a plain loop. They take turns, so that both run under the same conditions
//! of the device.
//!
//! `cargo run --release -p senko_dbm --example commits -- FOLDER`

use std::path::{Path, PathBuf};
use std::time::Instant;

use senko_dbm::{Database, Durability, Options};
use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, Purpose, Tag};

const ROUNDS: usize = 5;
const WRITES: u64 = 3000;

/// A file whose pages were written before.
fn floor(path: &Path, pages: u64) -> Result<FlashFile, Box<dyn std::error::Error>> {
    let options = FileOptions {
        bytes: pages * 4096,
        ..FileOptions::default()
    };
    let (file, zeros) = (FlashFile::open(path, &options)?, AlignedBuf::new(1));
    for page in 0..pages {
        file.write(page, &zeros, Tag::dbm(Purpose::Log))?;
    }
    file.flush(Tag::dbm(Purpose::Log))?;
    Ok(file)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("which folder?")?);
    let (plain, data) = (folder.join("floor"), folder.join("commits.db"));
    let floor = floor(&plain, WRITES)?;
    let db = Database::open(&data, Options::default())?;
    let table = db.create_table("t")?;
    let mut key = 0u32;
    for round in 0..ROUNDS {
        let mut page = AlignedBuf::new(1);
        page.fill(round as u8 + 1);
        let started = Instant::now();
        for nth in 0..WRITES {
            floor.write_durable(nth, &page, Tag::dbm(Purpose::Log))?;
        }
        let best = WRITES as f64 / started.elapsed().as_secs_f64();
        print!("floor {best:.0}/s");
        for records in [1u32, 100] {
            let started = Instant::now();
            for _ in 0..WRITES {
                let mut tx = db.begin();
                for _ in 0..records {
                    tx.put(&table, &key.to_be_bytes(), &[7; 8])?;
                    key += 1;
                }
                tx.commit(Durability::Synced)?;
            }
            let rate = WRITES as f64 / started.elapsed().as_secs_f64();
            print!(
                ", {records} records a commit {rate:.0}/s ({:.2})",
                rate / best
            );
        }
        let started = Instant::now();
        for _ in 0..100_000 {
            let mut tx = db.begin();
            tx.put(&table, &key.to_be_bytes(), &[7; 8])?;
            key += 1;
            tx.commit(Durability::None)?;
        }
        let each = started.elapsed().as_nanos() / 100_000;
        println!(", unsynced {each} ns a commit");
    }
    Ok(())
}
