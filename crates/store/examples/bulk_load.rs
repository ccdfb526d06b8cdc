// SPDX-License-Identifier: Apache-2.0
//! Loads many keys in batches, compacts once, and reads them back with many reads under way at a
//! time.
//!
//!     cargo run --release -p senko_store --example bulk_load

use senko_store::{Batch, Durability, Options, Store, WriteOptions};

const KEYS: u32 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("senko-example-bulk-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let options = Options {
        block_bytes: 4 << 20,
        ..Options::default()
    };
    let store = Store::open(folder.join("bulk.kv"), options)?;

    let loading = WriteOptions {
        durability: Durability::None,
        ..WriteOptions::default()
    };
    let mut batch = Batch::new();
    for key in 0..KEYS {
        batch.put(&key.to_be_bytes(), format!("value {key}").as_bytes());
        if batch.len() == 1000 {
            store.write(&batch, loading)?;
            batch.clear();
        }
    }
    store.write(&batch, loading)?;
    // One sync for all of them, and one map for all blocks.
    store.sync()?;
    store.compact()?;

    let names: Vec<[u8; 4]> = (0..KEYS).step_by(7).map(u32::to_be_bytes).collect();
    for some in names.chunks(256) {
        let asked: Vec<&[u8]> = some.iter().map(|name| &name[..]).collect();
        for (name, value) in some.iter().zip(store.multi_get(&asked)) {
            let expected = format!("value {}", u32::from_be_bytes(*name));
            assert_eq!(value?.as_deref(), Some(expected.as_bytes()));
        }
    }
    let stats = store.stats();
    let dram = stats.map_dram_bytes + stats.page_index_dram_bytes;
    println!(
        "{} keys, {:.2} bytes of DRAM a key",
        stats.live_elements,
        dram as f64 / stats.live_elements.max(1) as f64
    );
    store.close()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
