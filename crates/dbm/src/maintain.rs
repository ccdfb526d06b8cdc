// SPDX-License-Identifier: Apache-2.0
//! What goes on beside commits: checkpoints when the log is long, segments cleaned when dead pages
//! hold too many, the file made longer ahead of need.
//!
//! The cleaner takes the segments with the fewest live pages, and writes these again at the end of
//! the log. A segment comes
//! free with the next checkpoint (`space.rs`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use senko_io::{AlignedBuf, PAGE_SIZE, Purpose, Tag};

use crate::DbmError;
use crate::apply::CHUNK;
use crate::core::{Core, MapPlaces};
use crate::entry::{HEAD, Head, Kind};
use crate::log::Label;
use crate::space::SEGMENT;

/// Segments that one round cleans at most.
const ROUND: usize = 16;
/// The cleaner leaves a database alone whose device has no more segments.
const SMALL: u32 = 32;

impl Core {
    /// Whether there is work; asked after each commit.
    pub fn is_due(&self, log_pages: u64) -> bool {
        let budget = self.options.cache_bytes / PAGE_SIZE;
        let log_limit = (self.options.log_bytes / PAGE_SIZE as u64)
            .max(self.space.live.load(Ordering::Relaxed) / 4);
        log_pages > log_limit
            || self.dirty.load(Ordering::Relaxed) > budget / 2
            || self.should_clean()
    }

    /// Live pages are less than two thirds of what is in use, and little is free.
    fn should_clean(&self) -> bool {
        let segments = self.space.segments();
        let used = u64::from(segments).saturating_sub(self.space.free() as u64) * SEGMENT;
        let live = self.space.live.load(Ordering::Relaxed);
        let few_free = (self.space.free() as u32) < segments / 4;
        segments > SMALL && few_free && live * 3 < used * 2
    }

    /// Does the work that is due.
    pub fn maintain(self: &Arc<Core>) -> Result<(), DbmError> {
        let mut maps = self.maintenance.lock();
        if self.is_due(self.log.lock().written) {
            self.checkpoint_held(&mut maps)?;
            if self.should_clean() {
                self.clean(&mut maps)?;
                self.checkpoint_held(&mut maps)?;
            }
        }
        // Growth ahead of need; who needs it now does it itself.
        let segments = self.space.segments();
        if segments > 3 && self.space.free() < 4 {
            match self.grow(1) {
                Err(DbmError::NoSpace(_)) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Frees what can be freed on a device that cannot grow.
    pub fn make_room(self: &Arc<Core>) -> Result<(), DbmError> {
        let mut maps = self.maintenance.lock();
        self.checkpoint_held(&mut maps)?;
        self.clean(&mut maps)?;
        self.checkpoint_held(&mut maps)
    }

    /// Moves the live pages of the segments that have fewest.
    fn clean(self: &Arc<Core>, maps: &mut MapPlaces) -> Result<(), DbmError> {
        let room = self.space.free().saturating_sub(2);
        let open = self.log.lock().open_segments();
        let mut victims: Vec<(u32, u32)> = (1..self.space.segments())
            .filter(|number| !open.contains(number))
            .map(|number| {
                let live = self.space.segment(number).live.load(Ordering::Acquire);
                (live, number)
            })
            .filter(|(live, _)| (1..SEGMENT as u32 * 3 / 4).contains(live))
            .collect();
        victims.sort_unstable();
        let mut moved = 0;
        for (live, number) in victims.into_iter().take(ROUND) {
            moved += live as usize;
            if moved > room * SEGMENT as usize {
                break;
            }
            self.clean_segment(number, maps)
                .inspect_err(|error| self.latch(error))?;
        }
        Ok(())
    }

    fn clean_segment(&self, number: u32, maps: &MapPlaces) -> Result<(), DbmError> {
        let first = u64::from(number) * SEGMENT;
        let mut pages = AlignedBuf::new(SEGMENT as usize);
        self.device
            .read(first, &mut pages, Tag::dbm(Purpose::Reclaim))
            .map_err(DbmError::io("reading a segment to clean it"))?;
        for (nth, page) in pages.chunks(PAGE_SIZE).enumerate() {
            let place = first + nth as u64;
            let Some(head) = Head::read(page) else {
                continue;
            };
            let id = u32::from_le_bytes(page[HEAD..HEAD + 4].try_into().expect("4 bytes"));
            match head.kind {
                Kind::Node => self.move_node(id, place, &head, page)?,
                Kind::Blob => self.move_blob(id, place, &head, page)?,
                Kind::Map => {
                    // The next checkpoint writes that part of the table again.
                    let mut writer = self.writer.lock();
                    if let Some(chunk) = maps.nodes.iter().position(|at| *at == place) {
                        writer.changed.insert(chunk as u32);
                    }
                    if let Some(chunk) = maps.blobs.iter().position(|at| *at == place) {
                        writer.changed_blobs.insert(chunk as u32);
                    }
                }
                Kind::Changes | Kind::Checkpoint => {}
            }
        }
        Ok(())
    }

    fn write_again(&self, head: &Head, page: &[u8]) -> Result<u64, DbmError> {
        let mut log = self.log.lock();
        self.check()?;
        let label = Label {
            kind: head.kind,
            commit: head.commit,
            left: 0,
            first: true,
        };
        let used = usize::from(head.used);
        let place = log.append(label, |body| {
            body[..used].copy_from_slice(&page[HEAD..HEAD + used]);
            used
        })?;
        log.write_out()?;
        Ok(place)
    }

    fn move_node(&self, id: u32, place: u64, head: &Head, page: &[u8]) -> Result<(), DbmError> {
        let mut at = self.nodes.get(id).and_then(|word| word.load_full());
        while let Some(version) = at {
            if version.place() == place {
                let to = self.write_again(head, page)?;
                version.set_place(to);
                self.writer.lock().changed.insert(id / CHUNK);
                return Ok(());
            }
            at = version.older.load_full();
        }
        Ok(())
    }

    fn move_blob(&self, id: u32, place: u64, head: &Head, page: &[u8]) -> Result<(), DbmError> {
        let word = self.blobs.at(id);
        if word.load(Ordering::Acquire) != place {
            return Ok(());
        }
        // A moved part is an entry of its own, which replay must not take for a part of a commit's
        // group.
        let to = self.write_again(head, page)?;
        let mut writer = self.writer.lock();
        let swapped = word.compare_exchange(place, to, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_ok() {
            self.space.hold(to);
            self.space.release(place);
            writer.changed_blobs.insert(id / CHUNK);
        }
        Ok(())
    }

    /// Asks the thread to make durable what was committed; without one, who waits does it.
    pub fn ask_for_sync(&self) {
        if self.options.threads > 0 {
            self.wake.lock().sync = true;
            self.woken.notify_one();
        }
    }

    /// Tells the thread that there is work, or does it.
    pub fn nudge(self: &Arc<Core>) {
        if self.options.threads == 0 {
            // A failure latches, and the next commit tells it.
            let _ = self.maintain();
            return;
        }
        let mut wake = self.wake.lock();
        wake.due = true;
        self.woken.notify_one();
    }
}

/// The thread that maintains a database, until it is told to end.
pub(crate) struct Keeper {
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Keeper {
    pub fn start(core: &Arc<Core>) -> Result<Keeper, DbmError> {
        if core.options.threads == 0 {
            let thread = Mutex::new(None);
            return Ok(Keeper { thread });
        }
        let weak = Arc::downgrade(core);
        let thread = std::thread::Builder::new()
            .name("senko-dbm".to_owned())
            .spawn(move || keep(&weak))
            .map_err(|error| DbmError::Open(Arc::new(error)))?;
        Ok(Keeper {
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn end(&self, core: &Core) {
        core.wake.lock().end = true;
        core.woken.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn keep(weak: &Weak<Core>) {
    while let Some(core) = weak.upgrade() {
        let (sync, due) = {
            let mut wake = core.wake.lock();
            while !wake.due && !wake.sync && !wake.end {
                core.woken.wait(&mut wake);
            }
            if wake.end {
                return;
            }
            // Both are taken: commits that go on asking for a flush must not put maintenance off.
            (
                std::mem::take(&mut wake.sync),
                std::mem::take(&mut wake.due),
            )
        };
        // A failure latches, and the next commit tells it.
        if sync {
            let commit = core.registry.lock().visible.commit;
            let _ = core.write_until(commit);
        }
        if due {
            let _ = core.maintain();
        }
    }
}
