// SPDX-License-Identifier: Apache-2.0
//! Shared by the tests of crashes, faults and damage: a device that calls back, the expected
//! contents of the store, and folders.

pub mod hooked; // a device in memory that calls back after each write and flush
pub mod model; // the writes, and whether a store has a prefix of them
pub mod watched; // a device in memory whose calls a test watches

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use senko_io::{AlignedBuf, Device, Purpose, Tag};
use senko_store::{Clock, Durability, Options, Store, WriteOptions};

/// Small blocks and logs, and no threads.
pub fn small() -> Options {
    Options {
        block_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

/// A clock that moves by `step` microseconds whenever it is read.
pub fn ticking(step: u64) -> Clock {
    moved(&Arc::new(AtomicU64::new(1_700_000_000_000_000)), step)
}

/// The same, on a time that the test may move too.
pub fn moved(time: &Arc<AtomicU64>, step: u64) -> Clock {
    let time = Arc::clone(time);
    Clock::Own(Arc::new(move || time.fetch_add(step, Ordering::Relaxed)))
}

pub fn open(device: &Arc<impl Device + 'static>, options: Options) -> Store {
    Store::open_device(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

/// Gives an empty, closed store a secret: the order of keys in its blocks is drawn otherwise.
/// Changes each copy of the superblock (`docs/formats/store.md`).
pub fn set_secret(device: &dyn Device, secret: u64) {
    let tag = Tag::store(Purpose::Meta);
    for page in [0, 4, 8, 12] {
        let mut copy = AlignedBuf::new(1);
        device.read(page, &mut copy, tag).unwrap();
        if &copy[..7] != b"SENKOKV" {
            continue;
        }
        copy[24..40].copy_from_slice(&u128::from(secret).to_le_bytes());
        copy[12..16].fill(0);
        let crc = crc32c::crc32c(&copy);
        copy[12..16].copy_from_slice(&crc.to_le_bytes());
        device.write(page, &copy, tag).unwrap();
    }
    device.flush(tag).unwrap();
}

pub fn waiting(durability: Durability) -> WriteOptions {
    WriteOptions {
        durability,
        ..WriteOptions::default()
    }
}

/// Fails if `work` has not returned after ten minutes, since it hangs then.
pub fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match wait.recv_timeout(Duration::from_secs(600)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a result was sent"),
        },
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

/// A folder of a test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("senko-store-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir_all(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
