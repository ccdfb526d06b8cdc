// SPDX-License-Identifier: Apache-2.0
//! Old versions: the earlier values of a key, the times of its changes, and a snapshot that does
//! not change while writes continue.
//!
//!     cargo run -p senko_store --example time_travel

use senko_store::{Batch, Options, Store, WriteOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("senko-example-time-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let options = Options {
        keep_versions: 5,
        block_bytes: 1 << 20,
        ..Options::default()
    };
    let store = Store::open(folder.join("accounts.kv"), options)?;

    let first = store.put(b"anna", b"100")?;
    store.put(b"ben", b"20")?;
    let before = store.snapshot()?;

    // Both change at the same time, or, after a crash, neither.
    let mut batch = Batch::new();
    batch.put(b"anna", b"70").put(b"ben", b"50");
    let transfer = store.write(&batch, WriteOptions::synced())?;
    store.delete(b"ben")?;

    assert_eq!(store.get_at(b"anna", first)?.as_deref(), Some(&b"100"[..]));
    assert_eq!(store.get_at(b"ben", transfer)?.as_deref(), Some(&b"50"[..]));
    assert_eq!(store.get(b"ben")?, None);
    assert_eq!(before.get(b"ben")?.as_deref(), Some(&b"20"[..]));
    for version in store.history(b"ben")? {
        let value = version.value.as_deref().map(String::from_utf8_lossy);
        println!(
            "{}: {}",
            version.time,
            value.as_deref().unwrap_or("deleted")
        );
    }

    drop(before);
    store.close()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
