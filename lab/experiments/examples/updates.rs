// SPDX-License-Identifier: Apache-2.0
//! Synced commits of a hundred random updates, compared with the floor, and the space that the
//! files take.
//!
//! `cargo run --release -p senko_lab --example updates -- FOLDER KEYS COMMITS`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use senko_dbm::{Database, Durability, Options, keys};
use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, Purpose, Tag};

const ROUNDS: u64 = 5;

fn percentiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)];
    format!(
        "p50 {:?}, p99 {:?}, p99.99 {:?}",
        at(0.5),
        at(0.99),
        at(0.9999)
    )
}

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
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("which folder?")?);
    let records: u32 = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let commits: u64 = args.next().map_or(Ok(1000), |text| text.parse())?;
    let floor = floor(&folder.join("floor"), 1024)?;
    let data = folder.join("updates.db");
    let db = Database::open(&data, Options::default())?;
    let table = db.create_table("t")?;
    let started = Instant::now();
    db.bulk_load(
        &table,
        (0..records).map(|key| (key.to_be_bytes(), [7; 8])),
        Durability::Synced,
    )?;
    println!("loaded in {:?}", started.elapsed());
    let mut random = 1u64;
    for round in 0..ROUNDS {
        let mut page = AlignedBuf::new(1);
        page.fill(round as u8 + 1);
        let mut floors = Vec::new();
        for nth in 0..commits {
            let started = Instant::now();
            floor.write_durable(nth % 1000, &page, Tag::dbm(Purpose::Log))?;
            floors.push(started.elapsed());
        }
        let mut ours = Vec::new();
        for _ in 0..commits {
            let started = Instant::now();
            let mut tx = db.begin();
            for _ in 0..100 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = ((random >> 33) % u64::from(records)) as u32;
                tx.put(&table, &key.to_be_bytes(), &keys::from_u64(random))?;
            }
            tx.commit(Durability::Synced)?;
            ours.push(started.elapsed());
        }
        let (all, least): (Duration, Duration) = (ours.iter().sum(), floors.iter().sum());
        let stats = db.stats();
        let live = f64::from(records) * 12.0;
        println!(
            "{:.0}/s, {:.2} of the floor; floor {}; commits {}; files {:.2} of live, free {}, checkpoint {}",
            commits as f64 / all.as_secs_f64(),
            least.as_secs_f64() / all.as_secs_f64(),
            percentiles(&mut floors),
            percentiles(&mut ours),
            stats.file_bytes as f64 / live,
            stats.free_bytes,
            stats.checkpoint,
        );
    }
    Ok(())
}
