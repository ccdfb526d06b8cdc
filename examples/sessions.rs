// SPDX-License-Identifier: Apache-2.0
//! Keeps sessions that end by themselves, counts visits, and writes several keys at once.
//!
//!     cargo run -p senko_store --example sessions -- sessions.kv

use std::path::Path;
use std::time::Duration;

use senko_store::{Batch, Options, Store, StoreError, WriteOptions};

pub fn run(path: &Path) -> Result<Vec<String>, StoreError> {
    let store = Store::open(path, Options::default())?;
    let hour = WriteOptions {
        ttl: Some(Duration::from_secs(3600)),
        ..WriteOptions::default()
    };
    store.put_with(b"session:7", b"ann", hour)?;
    // Both are there after a power failure, or neither is.
    let mut batch = Batch::new();
    batch.put(b"user:ann", b"Ann").put(b"user:ben", b"Ben");
    store.write(&batch, WriteOptions::synced())?;
    for _ in 0..3 {
        store.update(b"visits", |old| {
            let visits: u64 = old.map_or(0, |v| String::from_utf8_lossy(v).parse().unwrap_or(0));
            Some((visits + 1).to_string().into_bytes())
        })?;
    }
    let mut lines = Vec::new();
    for key in ["session:7", "user:ben", "visits", "absent"] {
        let value = store.get(key.as_bytes())?;
        let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
        lines.push(format!("{key}: {}", value.as_deref().unwrap_or("none")));
    }
    store.backup(path.with_extension("backup"), |_done| true)?;
    store.close()?;
    Ok(lines)
}

fn main() -> Result<(), StoreError> {
    let path = std::env::args_os().nth(1).unwrap_or("sessions.kv".into());
    run(Path::new(&path))?
        .iter()
        .for_each(|line| println!("{line}"));
    Ok(())
}
