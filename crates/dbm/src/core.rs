// SPDX-License-Identifier: Apache-2.0
//! The parts of an open database. Each part owns its state; what works on several of them gets them
//! from here.
//!
//! Locks, in the order in which they are taken: `maps`, `images`, `log`, `writer`, the registry of
//! `readers`. Readers take only the last, for a moment at their beginning and end.

mod flush;
mod group; // which thread writes the next group
mod latch; // why writing has ended
mod signal; // what the maintenance thread is asked to do

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::Device;

use crate::commit::Node;
use crate::core::flush::write_group;
use crate::core::group::Group;
use crate::core::latch::Latch;
use crate::core::signal::Signal;
use crate::disk::images::Images;
use crate::disk::log::Log;
use crate::disk::maps::Maps;
use crate::disk::space::Space;
use crate::error::DbmError;
use crate::options::Options;
use crate::pages::Pages;
use crate::records::changes::Change;
use crate::sync::Mutex;
use crate::upkeep::idle::Idle;
use crate::writer::progress::Progress;
use crate::writer::readers::{Open, Readers};
use crate::writer::room::Room;
use crate::writer::{Parts, Writer};

pub(crate) struct Core {
    pub device: Arc<dyn Device>,
    pub options: Options,
    pub latch: Latch,
    pub space: Arc<Space>,
    pub pages: Pages,
    pub readers: Readers,
    pub room: Room,
    pub progress: Progress,
    pub writer: Mutex<Writer>,
    pub log: Mutex<Log>,
    /// The threads that wait for durable commits.
    pub group: Group,
    /// The segments for pages that checkpoints and the cleaner write.
    pub images: Mutex<Images>,
    /// Held by the thread that maintains the database.
    pub maps: Mutex<Maps>,
    /// Free space that commits did not need.
    pub idle: Idle,
    pub signal: Signal,
}

/// A registered reader: the versions that it sees stay.
pub(crate) struct Seen {
    pub core: Arc<Core>,
    open: Arc<Open>,
    is_closed: bool,
}

impl Deref for Seen {
    type Target = Open;
    fn deref(&self) -> &Open {
        &self.open
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !self.is_closed {
            self.core.readers.leave(&self.open);
        }
    }
}

impl Seen {
    /// Closes a transaction's snapshot. Returns the newest node in it, if it has not expired.
    pub fn close(&mut self) -> Option<Arc<Node>> {
        self.is_closed = true;
        self.core.readers.leave(&self.open)
    }
}

impl Core {
    /// The parts of a database as of the commit that the writer has applied.
    pub fn new(
        device: Arc<dyn Device>,
        options: Options,
        space: Arc<Space>,
        pages: Pages,
        writer: Writer,
        (log, images): (Log, Images),
        maps: Maps,
    ) -> Core {
        let (room, numbers) = (Room::new(&options), writer.numbers());
        room.set_trees((0, 0), numbers.node as usize, numbers.map_parts());
        room.set_records(&writer.visible().catalogue);
        Core {
            device,
            room,
            options,
            latch: Latch::new(),
            space,
            pages,
            readers: Readers::new(writer.visible()),
            progress: Progress::new(writer.applied()),
            writer: Mutex::new(writer),
            log: Mutex::new(log),
            group: Group::default(),
            images: Mutex::new(images),
            maps: Mutex::new(maps),
            idle: Idle::default(),
            signal: Signal::default(),
        }
    }

    /// What the writer changes besides itself.
    pub fn parts(&self) -> Parts<'_> {
        Parts {
            pages: &self.pages,
            readers: &self.readers,
            progress: &self.progress,
            room: &self.room,
        }
    }

    /// Registers a reader of the newest commit; one that `changes` holds the list of commits after
    /// its snapshot.
    pub fn see(self: &Arc<Core>, changes: bool) -> Seen {
        let live = self.space.live.load(Ordering::Relaxed);
        Seen {
            core: Arc::clone(self),
            open: self.readers.enter(changes, live),
            is_closed: false,
        }
    }

    /// Applies the commits of the list, until `until` is applied. With `tail`, returns whether
    /// `until` is in the tail then.
    pub fn apply_until(&self, until: u64, tail: bool) -> Result<bool, DbmError> {
        let mut writer = self.writer.lock();
        while writer.applied() < until {
            self.latch.check()?;
            let applied = writer.apply(self.parts());
            applied.inspect_err(|error| self.latch.close(error))?;
        }
        let is_in_tail = || self.progress.tailed() >= until;
        if tail && !is_in_tail() {
            writer.backlog.fill_tail(&self.progress);
        }
        // Another thread may have taken it for the log but not written it yet.
        let is_in_tail = tail && is_in_tail();
        let ended = writer.take_ended();
        drop(writer);
        drop(ended);
        Ok(is_in_tail)
    }

    /// Applies changes from a log to the trees, as one batch.
    pub fn replay(&self, commit: u64, changes: &[Change<'_>]) -> Result<(), DbmError> {
        self.writer.lock().replay(self.parts(), commit, changes)
    }

    /// Returns when a commit is durable.
    pub fn write_until(&self, commit: u64) -> Result<(), DbmError> {
        let is_done = || self.progress.durable() >= commit;
        self.group.wait(is_done, || {
            let mut log = self.log.lock();
            // A checkpoint may have made it durable.
            if is_done() {
                return Ok(());
            }
            self.write_pending(&mut log, true)
        })
    }

    /// Writes pending commits, and latches if that fails.
    pub fn write_pending(&self, log: &mut Log, sync: bool) -> Result<(), DbmError> {
        self.latch.check()?;
        let pending = {
            let backlog = &mut self.writer.lock().backlog;
            self.room.set_writing(backlog.all_bytes());
            self.room.set_unlogged(0);
            backlog.take(&self.progress)
        };
        let parts = (&self.pages, &self.progress);
        let written = write_group(log, pending, sync, parts, &self.writer);
        self.room.set_writing(0);
        written.inspect_err(|error| self.latch.close(error))
    }

    /// Writes a commit to the log, and begins a half of the tail, so that the next commits find
    /// room.
    pub fn write_past_tail(&self, commit: u64) -> Result<(), DbmError> {
        let mut log = self.log.lock();
        if self.progress.written() >= commit {
            return Ok(());
        }
        self.write_pending(&mut log, false)?;
        let backlog = &mut self.writer.lock().backlog;
        backlog.ask_for_tail(&*self.device);
        backlog.turn_tail(log.position());
        Ok(())
    }
}
