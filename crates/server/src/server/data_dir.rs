// SPDX-License-Identifier: Apache-2.0
//! The data directory: the state that a server restores, and the files that it leaves.
//!
//! ```text
//! DataDir::open ----> restore (each worker) ----> begin --> ...serves... --> finish (clean)  or  killed
//!  lock, superblock,  shared memory, or the      labels, superblock:        devices flushed,
//!  labels: is this    files of a clean stop      no longer clean            superblock: clean
//!  ours?
//! ```
//!
//! Always holds: the clean mark is cleared durably before the first command. It is set only after
//! every shard has saved everything and the devices were flushed. It says whether a `flush_all`
//! came too late for a shard. While the mark is set, the files are valid and shared memory is not.
//! While it is cleared, shared memory is valid and the files are not (RESTART-6).

mod absence; // whether a start comes too late after the previous server
mod checks; // whether settings, directory and flash files belong together
mod memory; // where shared memory lies
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use senko_cache::{
    DeviceLabel, HashSeed, Restore, RestoreFrom, SavedCounts, ServerWords, Shard, SharedFiles,
    Superblock, SuperblockError,
};
use senko_io::{
    Device, FileOptions, FlashFile, PAGE_SIZE, Purpose, SharedFile, Snapshot, SnapshotReader, Tag,
};

use super::ServerError;
use crate::settings::Settings;
use crate::shared::lock;
use checks::{check_block, check_labels, check_whole};
pub use checks::{check_unlabelled, label_as_free, reinit_option};

/// CAS values reserved at a time: at ten million a second, they last more than an hour.
const RESERVE: u64 = 1 << 36;
const PARTS: [&str; 4] = ["state", "index", SORTED, "items"];
const SORTED: &str = "sorted";

#[derive(Debug)]
pub struct DataDir {
    dir: PathBuf,
    shared_memory: PathBuf,
    device: FlashFile,
    files: Vec<Arc<FlashFile>>,
    block: Mutex<Superblock>,
    words: Arc<ServerWords>,
    /// The folder in shared memory of the cache that this one replaces (`--reinit`), until then.
    replaced: Mutex<Option<u64>>,
    /// Whether this start got as far as [`DataDir::begin`].
    begun: AtomicBool,
    /// The state to restore shards from.
    from: From,
    /// New CAS values are greater than this.
    cas_base: u64,
    cas_seen: AtomicU64,
    /// The last Unix second of the previous server; 0: there was none.
    last_second: u32,
    keep_dram: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Nothing(Option<String>),
    /// The files of the stop with this number.
    Files(u64),
    Memory,
}

/// The files that a worker wrote at a clean stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How many `flush_all` its shard had applied.
    pub flushes: u64,
    /// The greatest CAS value that it gave out.
    pub cas: u64,
    /// Why the items of DRAM were not saved, although they should have been.
    pub items_unsaved: Option<String>,
    /// Items on flash in the saved index, without those that were saved from DRAM.
    pub flash_items: u64,
    /// Items of DRAM that were saved.
    pub dram_items: u64,
}

fn fail(text: String) -> ServerError {
    ServerError(text)
}

/// A number that no other directory and no earlier start has.
pub(super) fn random() -> u64 {
    // The standard library seeds the keys of a hash map from the system's random numbers.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// The seed of key hashes if there is no data directory.
pub(super) fn hash_seed(settings: &Settings) -> HashSeed {
    match settings.draw_hash_seed {
        true => HashSeed(random()),
        false => settings.hash_seed,
    }
}

/// A number greater than any CAS value given out so far, for when a damaged superblock has lost
/// that number. It assumes fewer than 16 million CAS values for each second since 1970.
fn uniques_of_today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs() << 24
}

/// Makes the folder of a data directory if it is missing.
///
/// # Errors
/// One sentence with the path.
pub fn make_folder(dir: &Path) -> Result<(), ServerError> {
    let dir_text = dir.display();
    senko_io::refuse_file_in_dev(dir).map_err(|e| fail(e.to_string()))?;
    std::fs::create_dir_all(dir).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => fail(format!(
            "{dir_text} is not a folder, and cannot be the data directory"
        )),
        _ => fail(format!("cannot make the data folder {dir_text}: {e}")),
    })
}

impl DataDir {
    /// Opens a data directory ([`make_folder`]) for these flash files.
    ///
    /// # Errors
    /// One sentence: the directory is in use, not writable, or does not match the settings.
    pub fn open(
        dir: &Path,
        settings: &Settings,
        files: &[Arc<FlashFile>],
    ) -> Result<DataDir, ServerError> {
        let path = dir.join("super.senko");
        let options = FileOptions {
            bytes: Superblock::PAGES * PAGE_SIZE as u64,
            private: true,
            ..FileOptions::default()
        };
        let device = FlashFile::open(&path, &options)?;
        let found = Superblock::read(&device);
        let shm = &settings.shared_memory;
        let mut replaced = None;
        let (block, from, words) = match found {
            // No start reached the point of serving, so nothing is stored and no setting is fixed.
            Ok(block) if !settings.reinit && block.opened == 0 => {
                check_unlabelled(files, Some(block.id), settings)?;
                begin_anew(&device, shm, settings, files, Some(block))?
            }
            Ok(mut block) if !settings.reinit => {
                check_block(dir, &block, settings, files)?;
                check_labels(dir, &block, files)?;
                check_whole(dir, &block, files)?;
                let (from, words) = origin(&device, settings, &mut block)?;
                (block, from, words)
            }
            Err(SuperblockError::Blank) if !settings.reinit => {
                check_unlabelled(files, Some(0), settings)?;
                begin_anew(&device, shm, settings, files, None)?
            }
            Err(error) if !settings.reinit => {
                return Err(fail(format!(
                    "{} {error}; --reinit starts over with an empty cache",
                    path.display()
                )));
            }
            found => {
                let before = match found {
                    Ok(block) => Some(block),
                    Err(SuperblockError::Blank) if labelled(files) == 0 => None,
                    // The superblock is lost, or the files belong to another directory, whose
                    // memory this one must not remove.
                    Err(SuperblockError::Blank) => Some(Superblock {
                        cas_reserved: uniques_of_today(),
                        ..Superblock::default()
                    }),
                    Err(_) => Some(Superblock {
                        memory: memory::find(shm, labelled(files)),
                        opened: 1,
                        cas_reserved: uniques_of_today(),
                        ..Superblock::default()
                    }),
                };
                match before {
                    Some(before) if before.opened != 0 => {
                        replaced = Some(before.memory);
                        let mut block = anew(settings, files, &before, random() | 1);
                        // Nothing is written before this start serves.
                        let words = new_words(shm, &mut block, |_| Ok(()))?;
                        (block, From::Nothing(None), words)
                    }
                    before => begin_anew(&device, shm, settings, files, before)?,
                }
            }
        };
        Ok(DataDir {
            dir: dir.to_owned(),
            shared_memory: shm.clone(),
            device,
            files: files.to_vec(),
            cas_base: block.cas_reserved,
            cas_seen: AtomicU64::new(block.cas_reserved),
            last_second: (block.last_second as u32).max(words.second()),
            block: Mutex::new(block),
            words: Arc::new(words),
            from,
            keep_dram: settings.keep_dram,
            replaced: Mutex::new(replaced),
            begun: AtomicBool::new(false),
        })
    }

    fn block(&self) -> MutexGuard<'_, Superblock> {
        lock(&self.block)
    }

    pub fn shards(&self) -> usize {
        self.block().shards as usize
    }

    /// Bytes of a region with which flash was written; `None` for a new directory.
    pub fn region(&self) -> Option<usize> {
        Some(self.block().region as usize).filter(|&region| region != 0)
    }

    /// Whether shared memory has room for `bytes` bytes of new shards.
    ///
    /// # Errors
    /// One sentence if the memory is missing. A server that ran out of memory later would evict far
    /// more than it should.
    pub fn check_room(&self, bytes: u64) -> Result<(), ServerError> {
        if self.from == From::Memory {
            return Ok(());
        }
        // The replaced files are removed before the first command is served.
        let gone = lock(&self.replaced).map_or(0, |of| memory::bytes(&self.shared_memory, of));
        let free = SharedFile::free_bytes(&self.shared_memory)? + gone;
        if free >= bytes {
            return Ok(());
        }
        Err(fail(format!(
            "{} has {} MiB free, and with --data-dir the {} MiB of items and index lie there: make it larger, or give a smaller --memory",
            self.shared_memory.display(),
            free >> 20,
            bytes >> 20
        )))
    }

    pub fn words(&self) -> &Arc<ServerWords> {
        &self.words
    }

    /// The earliest Unix second from which the clock starts.
    pub fn second(&self) -> u32 {
        (self.block().last_second as u32).max(self.words.second())
    }

    /// Why the start ended too late after the previous server, although it began early enough.
    pub fn too_late(&self, settings: &Settings) -> Option<String> {
        match self.from {
            From::Nothing(_) => None,
            From::Files(_) | From::Memory => absence::too_long(settings, self.last_second),
        }
    }

    pub fn hash_seed(&self) -> HashSeed {
        self.block().hash_seed
    }

    /// CAS values begin above this.
    pub fn cas_base(&self) -> u64 {
        self.cas_base
    }

    /// The state from which shard `n` is restored.
    pub fn restore(&self, n: usize) -> Result<Restore<'static>, String> {
        let block = self.block();
        let path = |part: &str| memory::of_shard(&self.shared_memory, block.memory, n, part);
        let mut origin = match &self.from {
            From::Nothing(why) => RestoreFrom::Empty(why.clone()),
            From::Memory => RestoreFrom::Kept,
            From::Files(_) => self.saved(n, block.items_saved)?,
        };
        let mut files = Vec::new();
        if matches!(origin, RestoreFrom::Kept) {
            for part in PARTS {
                let there = SharedFile::open(&path(part));
                files.extend(there.map_err(|e| e.to_string())?);
                // An earlier senko sorted nothing, and left three parts.
                if files.len() == 2 && part == SORTED {
                    files.push(SharedFile::create(&path(part)).map_err(|e| e.to_string())?);
                }
            }
            if files.len() < PARTS.len() {
                files.clear();
                origin = RestoreFrom::Empty(Some("its shared memory is gone".to_owned()));
            }
        }
        if files.is_empty() {
            for part in PARTS {
                files.push(SharedFile::create(&path(part)).map_err(|e| e.to_string())?);
            }
        }
        let [state, index, sorted, items] = <[SharedFile; 4]>::try_from(files)
            .map_err(|_| "a shard has four parts of memory".to_owned())?;
        Ok(Restore {
            id: block.id,
            opened: block.opened + 1,
            stop: block.clean,
            files: SharedFiles {
                state,
                index,
                sorted,
                items,
            },
            origin,
            // The files are older than the number that `origin` gives the words.
            flushes: match self.from {
                From::Files(_) => 0,
                From::Nothing(_) | From::Memory => self.words.flushes(),
            },
        })
    }

    /// The files of a clean stop, with items of DRAM or without. A file that can't be read is an
    /// error, because a start would remove it.
    fn saved(&self, n: usize, with_items: bool) -> Result<RestoreFrom<'static>, String> {
        let open = |path: &Path| {
            SnapshotReader::open(path)
                .map_err(|error| format!("{error}; make it readable, or start over with --reinit"))
        };
        let gone = |path: &Path| format!("{} is gone", path.display());
        let (index, items) = (self.index_path(n), self.items_path(n));
        let Some(from) = open(&index)? else {
            return Ok(RestoreFrom::Empty(Some(gone(&index))));
        };
        let saved_items = open(&items)?.filter(|_| with_items);
        if with_items && saved_items.is_none() {
            // Without its items in DRAM, a shard still has the items on flash.
            tracing::warn!("{}: the items of DRAM are not restored", gone(&items));
        }
        Ok(RestoreFrom::Saved {
            index: Box::new(from),
            items: saved_items.map(|i| Box::new(i) as Box<dyn std::io::Read>),
        })
    }

    fn index_path(&self, n: usize) -> PathBuf {
        self.dir.join(format!("index-{n}.senko"))
    }

    fn items_path(&self, n: usize) -> PathBuf {
        self.dir.join(format!("items-{n}.senko"))
    }

    /// All shards exist, and none has taken a command yet. From now on only shared memory is valid.
    ///
    /// # Errors
    /// If the directory or a label can't be written.
    pub fn begin(&self, region: usize) -> Result<(), ServerError> {
        let mut block = self.block();
        let replaced = lock(&self.replaced).filter(|&number| number != 0);
        let replaced_runs =
            replaced.is_some_and(|of| memory::in_use(&self.shared_memory, of).unwrap_or(true));
        // Written before the labels. So a directory without this number, with labels of the next
        // start, is known to be an older copy.
        block.opening = block.opened + 1;
        self.write(&mut block)?;
        self.words.set_opened(block.opening);
        // From here on, nothing restores from it.
        *lock(&self.replaced) = None;
        if let Some(number) = replaced
            && !replaced_runs
        {
            memory::remove(&self.shared_memory, number);
        }
        for (number, file) in self.files.iter().enumerate() {
            let label = DeviceLabel {
                id: block.id,
                number: number as u32,
                pages: file.pages(),
                opened: block.opening,
            };
            label
                .write(&**file)
                .map_err(|e| fail(format!("the label of {} {e}", file.path().display())))?;
        }
        block.opened = block.opening;
        (block.clean, block.items_saved) = (0, false);
        block.region = region as u64;
        block.cas_reserved = self.cas_base + RESERVE;
        self.write(&mut block)?;
        self.begun.store(true, Ordering::Relaxed);
        self.remove_saved();
        Ok(())
    }

    /// Removes the files of stops, including those of stops with more shards.
    fn remove_saved(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let Some(name) = name.to_str() else { continue };
            let part = name.strip_suffix(".new").unwrap_or(name);
            let number = ["index-", "items-"]
                .iter()
                .find_map(|kind| part.strip_prefix(kind)?.strip_suffix(".senko"));
            if number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
                let _ = Snapshot::remove(&self.dir.join(part));
            }
        }
    }

    fn write(&self, block: &mut Superblock) -> Result<(), ServerError> {
        block
            .write(&self.device)
            .map_err(|e| fail(format!("{} {e}", self.device.path().display())))
    }

    /// Notes that a shard has given out CAS values up to `cas`.
    pub fn note_cas(&self, cas: u64) {
        self.cas_seen.fetch_max(cas, Ordering::Relaxed);
    }

    /// Reserves more CAS values when half of the reserved ones were given out. It is called about
    /// once a second, from a thread that may wait.
    ///
    /// # Errors
    /// If the superblock can't be written. The next call tries again; half of the reservation is
    /// still left then.
    pub fn keep(&self) -> Result<(), ServerError> {
        let mut block = self.block();
        if self.cas_seen.load(Ordering::Relaxed) + RESERVE / 2 < block.cas_reserved {
            return Ok(());
        }
        let before = block.cas_reserved;
        block.cas_reserved += RESERVE;
        self.write(&mut block)
            .inspect_err(|_| block.cas_reserved = before)
    }

    /// Saves a closed shard; called on the shard's thread.
    ///
    /// # Errors
    /// One sentence; shared memory is still valid then.
    pub fn save(&self, n: usize, shard: &mut Shard) -> Result<Stopped, String> {
        let stop = self.block().opened;
        let items = match self.keep_dram {
            true => write_whole(&self.items_path(n), |out| shard.save_items(out, stop)),
            false => Ok(SavedCounts::default()),
        };
        // Flash is saved even if there is no room for the items in DRAM.
        let saved = *items.as_ref().unwrap_or(&SavedCounts::default());
        let write = |out: &mut Snapshot| shard.save(out, stop, saved);
        let flash_items = write_whole(&self.index_path(n), write).map_err(|why| {
            // Without the index the file of items is useless. The next start removes files that
            // can't be removed now.
            let _ = Snapshot::remove(&self.items_path(n));
            let rest = match self.device.is_removed() {
                true => "super.senko is gone too, so all items are lost, and the next start needs --reinit",
                false => "the next start restores the items on flash from shared memory, unless the machine reboots first",
            };
            format!("{why}; {rest}")
        })?;
        Ok(Stopped {
            flushes: shard.flushes(),
            cas: shard.cas(),
            // As the next start will count them: a saved item comes back to DRAM.
            flash_items: flash_items.saturating_sub(saved.on_flash),
            dram_items: saved.items,
            items_unsaved: items.err(),
        })
    }

    /// Ends a clean stop after every shard was saved. A `flush_all` may have become due, or another
    /// worker may have acknowledged one, after a shard was saved. The next start applies such a
    /// flush; `flushes` is the number of the last one.
    ///
    /// # Errors
    /// One sentence. Shared memory is still valid then. If only items of DRAM could not be saved,
    /// the files are valid.
    pub fn finish(&self, stopped: &[Stopped], flushes: u64) -> Result<(), ServerError> {
        let mut block = self.block();
        for file in &self.files {
            file.flush(Tag::cache(Purpose::Meta))
                .map_err(|e| fail(format!("cannot flush {}: {e}", file.path().display())))?;
        }
        let cas = stopped.iter().map(|s| s.cas).max().unwrap_or(0);
        block.cas_reserved = cas.max(self.cas_base) + 1;
        block.last_second = u64::from(self.words.second()).max(block.last_second);
        block.flush_due = u64::from(self.words.flush_due());
        block.flush_missed = stopped.iter().any(|s| s.flushes != flushes);
        block.items_saved = self.keep_dram;
        block.clean = block.opened;
        self.write(&mut block)?;
        memory::remove(&self.shared_memory, block.memory);
        match stopped.iter().find_map(|s| s.items_unsaved.as_ref()) {
            Some(why) => Err(fail(format!(
                "{why}; the items on flash were saved, those only in DRAM are lost"
            ))),
            None => Ok(()),
        }
    }
}

impl Drop for DataDir {
    /// Removes shared memory that no start can use. Either this start made it and never served, or
    /// the superblock was removed.
    fn drop(&mut self) {
        let unused = !self.begun.load(Ordering::Relaxed) && self.from != From::Memory;
        if unused || self.device.is_removed() {
            memory::remove(&self.shared_memory, self.block().memory);
        }
    }
}

/// A folder that a start made. It is removed with this value, unless something lies in it.
#[derive(Debug)]
pub struct NewFolder(PathBuf);

impl Drop for NewFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl NewFolder {
    /// As [`make_folder`]; `None`: it was there before.
    pub fn make(dir: &Path) -> Result<Option<NewFolder>, ServerError> {
        let new = !dir.exists();
        make_folder(dir)?;
        Ok(new.then(|| NewFolder(dir.to_owned())))
    }
}

/// Writes a file of a clean stop, and returns the number of items in it. After a failure the file
/// does not exist.
fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut Snapshot) -> std::io::Result<T>,
) -> Result<T, String> {
    let mut out = Snapshot::create(path).map_err(|e| e.to_string())?;
    let items = write(&mut out).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    out.finish().map_err(|e| e.to_string())?;
    Ok(items)
}

/// The superblock of an empty cache. The old superblock says which CAS values are used up.
fn anew(settings: &Settings, files: &[Arc<FlashFile>], before: &Superblock, id: u64) -> Superblock {
    Superblock {
        sequence: before.sequence,
        id,
        shards: settings.shards.unwrap_or(settings.threads) as u32,
        cas_reserved: before.cas_reserved,
        // A new seed each time, so that knowledge of the previous one is useless.
        hash_seed: hash_seed(settings),
        devices: files.iter().map(|f| f.pages()).collect(),
        ..Superblock::default()
    }
}

/// The number on the label of a flash file; 0 if none has one.
fn labelled(files: &[Arc<FlashFile>]) -> u64 {
    files
        .iter()
        .find_map(|file| DeviceLabel::read(&**file).ok())
        .map_or(0, |label| label.id)
}

/// Whether a directory holds nothing yet, because no start reached the point of serving.
fn begin_anew(
    device: &FlashFile,
    shm: &Path,
    settings: &Settings,
    files: &[Arc<FlashFile>],
    before: Option<Superblock>,
) -> Result<(Superblock, From, ServerWords), ServerError> {
    let before = before.unwrap_or_default();
    let mut block = anew(settings, files, &before, random() | 1);
    if before.id != 0 && !memory::in_use(shm, before.memory)? {
        memory::remove(shm, before.memory);
        // A start may have left labels with this number.
        block.id = before.id;
        block.memory = before.memory;
    }
    let mut written = memory::write_to(device);
    if block.memory != 0 {
        written(&mut block)?;
    }
    let words = new_words(shm, &mut block, written)?;
    Ok((block, From::Nothing(None), words))
}

fn new_words(
    shm: &Path,
    block: &mut Superblock,
    written: impl FnMut(&mut Superblock) -> Result<(), ServerError>,
) -> Result<ServerWords, ServerError> {
    memory::make(shm, block, written)?;
    let file = SharedFile::create(&memory::of_server(shm, block.memory))?;
    file.lock()?;
    let words = ServerWords::new(file, block.id)?;
    words.set_opened(block.opened);
    Ok(words)
}

/// Decides whether files or shared memory are valid (RESTART-6).
fn origin(
    device: &FlashFile,
    settings: &Settings,
    block: &mut Superblock,
) -> Result<(From, ServerWords), ServerError> {
    let shm = &settings.shared_memory;
    // A copy of the directory has the same number. The memory belongs to the copy whose server
    // runs.
    let there = memory::open_server(shm, block.memory)?;
    if let Some(file) = &there {
        file.lock()?;
    }
    let mut due = match block.clean {
        0 => 0,
        _ => block.flush_due as u32,
    };
    let from = match there {
        _ if block.clean != 0 => match absence::too_long(settings, block.last_second as u32) {
            None => From::Files(block.clean),
            late => From::Nothing(late),
        },
        Some(file) => match ServerWords::kept(file, block.id)? {
            // As of a label (`check_labels`). Flash does not have what this memory names.
            Some(words) if ![block.opened, block.opening].contains(&words.opened()) => {
                unclean("its shared memory is of another start: the directory is an older copy")
            }
            Some(words) => {
                block.last_second = block.last_second.max(u64::from(words.second()));
                let late = absence::too_long(settings, block.last_second as u32);
                if late.is_none() {
                    return Ok((From::Memory, words));
                }
                // A planned flush also applies to items that are stored from now on.
                due = words.flush_due();
                From::Nothing(late)
            }
            None => unclean("its shared memory is damaged"),
        },
        None => unclean("its shared memory is gone (did the machine reboot?)"),
    };
    memory::remove(shm, block.memory);
    let words = new_words(shm, block, memory::write_to(device))?;
    words.set_flush_due(due);
    if matches!(from, From::Files(_)) {
        words.set_flushes(u64::from(block.flush_missed));
    }
    Ok((from, words))
}

fn unclean(why: &str) -> From {
    From::Nothing(Some(format!(
        "the server was not stopped cleanly, and {why}"
    )))
}
