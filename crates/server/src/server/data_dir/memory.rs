// SPDX-License-Identifier: Apache-2.0
//! The place of a data directory's shared memory: a folder with a random name that only its user
//! can read. [`super::DataDir`] makes, uses and removes it.
//!
//! Every user can see the names in `/dev/shm` and can make files there. If a name were reused,
//! another user could take it between a stop and the next start, and that start would fail. So the
//! name is a random number that the superblock keeps. If the name is taken, another number is
//! drawn.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use senko_cache::{ServerWords, Superblock};
use senko_io::{FlashFile, SharedFile};

use super::{fail, random};
use crate::server::ServerError;

/// How many names are drawn before a start gives up. A user who guesses one of them has guessed 64
/// bits.
const MOST_DRAWN: usize = 16;

/// The prefix of the folders' names.
const PREFIX: &str = "senko-";

/// The folder with this number, whether it exists or not.
fn folder(shm: &Path, number: u64) -> PathBuf {
    shm.join(format!("{PREFIX}{number:016x}"))
}

/// A file of a shard's memory.
pub(super) fn of_shard(shm: &Path, number: u64, shard: usize, part: &str) -> PathBuf {
    folder(shm, number).join(format!("{shard}.{part}"))
}

/// The file of the server's words.
pub(super) fn of_server(shm: &Path, number: u64) -> PathBuf {
    folder(shm, number).join("server")
}

/// Makes the folder of a superblock. If a new number is drawn, `written` writes it to the
/// superblock first, so that every folder is known.
pub(super) fn make(
    shm: &Path,
    block: &mut Superblock,
    mut written: impl FnMut(&mut Superblock) -> Result<(), ServerError>,
) -> Result<(), ServerError> {
    for _ in 0..MOST_DRAWN {
        if block.memory == 0 {
            block.memory = random() | 1;
            written(block)?;
        }
        if SharedFile::make_folder(&folder(shm, block.memory))? {
            return Ok(());
        }
        block.memory = 0;
    }
    Err(fail(format!(
        "every folder that was to be made in {} is somebody else's",
        shm.display()
    )))
}

/// Writes a superblock, as [`make`] needs it.
pub(super) fn write_to(
    device: &FlashFile,
) -> impl FnMut(&mut Superblock) -> Result<(), ServerError> {
    move |block| {
        block
            .write(device)
            .map_err(|e| fail(format!("{} {e}", device.path().display())))
    }
}

/// The server's words, if the folder exists and has them.
pub(super) fn open_server(shm: &Path, number: u64) -> Result<Option<SharedFile>, ServerError> {
    if number == 0 || !SharedFile::has_folder(&folder(shm, number)) {
        return Ok(None);
    }
    Ok(SharedFile::open(&of_server(shm, number))?)
}

/// Whether a server with this folder is running. It would have another copy of the directory, since
/// this one is locked.
pub(super) fn in_use(shm: &Path, number: u64) -> Result<bool, ServerError> {
    let there = open_server(shm, number)?;
    Ok(there.is_some_and(|file| file.lock().is_err()))
}

/// Bytes that the shards' files take.
pub(super) fn bytes(shm: &Path, number: u64) -> u64 {
    let blocks = files(shm, number);
    let blocks = blocks
        .iter()
        .filter_map(|f| Some(f.metadata().ok()?.blocks()));
    blocks.sum::<u64>() * 512
}

fn files(shm: &Path, number: u64) -> Vec<PathBuf> {
    let folder = folder(shm, number);
    if number == 0 || !SharedFile::has_folder(&folder) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes the folder. The server's words go first, because the rest is useless without them.
pub(super) fn remove(shm: &Path, number: u64) {
    let all = files(shm, number);
    if number == 0 || !SharedFile::has_folder(&folder(shm, number)) {
        return;
    }
    let _ = SharedFile::remove(&of_server(shm, number));
    for file in all {
        let _ = SharedFile::remove(&file);
    }
    let _ = std::fs::remove_dir(folder(shm, number));
}

/// The folder of the directory with this number, for when its superblock is lost; 0 if there is
/// none.
pub(super) fn find(shm: &Path, id: u64) -> u64 {
    let entries = std::fs::read_dir(shm).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let name = entry.file_name();
        u64::from_str_radix(name.to_str()?.strip_prefix(PREFIX)?, 16).ok()
    });
    let is_its = |&number: &u64| {
        let file = open_server(shm, number).ok().flatten();
        file.is_some_and(|file| ServerWords::kept(file, id).is_ok_and(|words| words.is_some()))
    };
    numbers.filter(|_| id != 0).find(is_its).unwrap_or(0)
}
