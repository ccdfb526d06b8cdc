// SPDX-License-Identifier: Apache-2.0
//! A program that keeps the results of slow calls on flash for a while: values with a time to live,
//! used by any number of threads.
//!
//!     cargo run -p senko_store --example cache_of_results

use std::time::Duration;

use senko_store::{Durability, Options, Store, StoreError, WriteOptions};

/// Stands in for a call that takes long.
fn slow(question: u64) -> String {
    (1..=question).product::<u64>().to_string()
}

/// The answer from the store, or a new one that is kept for an hour.
fn answer(store: &Store, question: u64) -> Result<String, StoreError> {
    let key = format!("factorial/{question}");
    if let Some(kept) = store.get(key.as_bytes())? {
        return Ok(String::from_utf8_lossy(&kept).into_owned());
    }
    let made = slow(question);
    let options = WriteOptions {
        ttl: Some(Duration::from_secs(3600)),
        // Results lost in a crash are computed again, so nothing waits for the device.
        durability: Durability::None,
        ..WriteOptions::default()
    };
    store.put_with(key.as_bytes(), made.as_bytes(), options)?;
    Ok(made)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("senko-example-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let options = Options {
        block_bytes: 1 << 20,
        max_bytes: Some(64 << 20),
        ..Options::default()
    };
    let store = Store::open(folder.join("results.kv"), options)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (1..=20).try_for_each(|n| answer(&store, n).map(|_| ()))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    assert_eq!(answer(&store, 20)?, "2432902008176640000");
    let stats = store.stats();
    println!("{} of {} answers were kept", stats.hits, stats.gets);
    store.close()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
