// SPDX-License-Identifier: Apache-2.0
//! Stores a large value that goes to flash as it arrives: before its first byte, and after its
//! last.

use senko_io::{PAGE_SIZE, Queue};

use crate::config::ShardConfig;
use crate::flash::Flash;
use crate::flash::log::{Log, NoPlace};
use crate::flash::upload::Begin;
use crate::index::Slot;
use crate::key::Key;
use crate::record::{self, Header, MAX_PREFIX};
use crate::shard::Shard;
use crate::types::{AllocError, Body, Draft, Progress, UploadId};

/// A new item whose value goes to flash as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct NewUpload {
    pub flags: u32,
    pub expiry: u32,
    /// Bytes of the value.
    pub len: usize,
    /// The CAS value, if the client gives it.
    pub cas: Option<u64>,
    /// Whether the key was given in base64.
    pub binary_key: bool,
    /// Whether it waits for buffers, and does not go to DRAM.
    pub waits: bool,
}

impl Shard {
    /// Whether values of this length go to flash as they arrive, if there is room.
    pub fn uploads(&self, len: usize) -> bool {
        len > self.config.upload_over.max(record::PIECE)
            && Flash::may_upload(buffer_bytes(&self.config))
    }

    /// Begins to store a value for which [`Shard::uploads`] holds. It takes no memory for items.
    /// `None`: it must go to DRAM, since flash does not admit it, or has no room for an item of
    /// this size.
    ///
    /// # Errors
    /// [`AllocError::Busy`]: flash has no room now.
    pub fn upload<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        new: &NewUpload,
    ) -> Result<Option<Draft>, AllocError> {
        let Ok(len) = u32::try_from(new.len) else {
            return Err(AllocError::TooLarge);
        };
        let cas = new.cas.unwrap_or_else(|| self.next_cas());
        let mut header = Header::new(key.bytes.len() as u8, len, new.flags, new.expiry, cas);
        header.set_marks(false, false, false, new.binary_key);
        header.access = record::coarse_access(self.now);
        if header.dram_len() > self.config.max_item {
            return Err(AllocError::TooLarge);
        }
        let bytes = header.flash_len();
        let pages = bytes.div_ceil(PAGE_SIZE) as u64;
        let Some(n) = self.flash.choose_log() else {
            return Ok(None);
        };
        // As other records, an upload waits for a device for a second at most.
        let refused = self.flash.admitter_mut().refuses(bytes, false).is_some();
        if refused || self.flash.device_stalls(n) || pages > self.flash.log(n).most_ahead() {
            return Ok(None);
        }
        if !self.flash.uploads_free() {
            return match self.fits_dram(header.dram_len()) && !new.waits {
                true => Ok(None),
                false => Err(AllocError::Busy),
            };
        }
        let position = match self.flash.log_mut(n).take_ahead(pages) {
            Ok(position) => position,
            Err(NoPlace::Space) if !self.flash.space_stalls(n) => {
                self.reclaim(queue, n);
                return Err(AllocError::Busy);
            }
            Err(NoPlace::Buffers) if !self.flash.buffers_stall(n) => {
                return Err(AllocError::Busy);
            }
            Err(_) => return Ok(None),
        };
        if self.flash.admitter_mut().admit(bytes, false).is_err() {
            self.flash.log_mut(n).give_back(position, pages);
            return Ok(None);
        }
        self.grow_index(queue, key.hash);
        let mut prefix = [0; MAX_PREFIX];
        let end = record::write_prefix(&mut prefix, &header, key.bytes);
        let begin = Begin {
            log: n,
            position,
            header,
            text: &prefix[header.head_len()..end],
        };
        let id = self.flash.begin_upload(begin).expect("there are buffers");
        Ok(Some(Draft(Body::Upload(id))))
    }

    /// How far the value of a draft is, all bytes of which have come.
    pub fn progress(&mut self, draft: &Draft) -> Progress {
        let Body::Upload(id) = draft.0 else {
            return Progress::Here;
        };
        let upload = self.flash.upload(id);
        let (n, position) = upload.place();
        let log = self.flash.log(n);
        if log.is_invalid_for_good(position) && !log.is_unwritten(position) {
            Progress::Flushed
        } else if upload.has_failed() || log.is_invalid(position) {
            Progress::Failed
        } else if upload.is_written() {
            Progress::Here
        } else if self.flash.device_stalls(n) {
            self.flash.fail_upload(id);
            Progress::Failed
        } else {
            Progress::Writing
        }
    }

    /// Makes a complete draft the key's item, wherever its value is ([`Shard::link`],
    /// [`Shard::progress`]). Returns its CAS value.
    pub fn store(&mut self, draft: Draft, key: &Key<'_>, cas: Option<u64>) -> u64 {
        match draft.0 {
            Body::Upload(id) => self.link_upload(id, key),
            Body::Item(_) => {
                let item = self.link(draft, cas);
                self.meta(item).cas
            }
        }
    }

    /// Drops a draft.
    pub fn abort(&mut self, draft: Draft) {
        match draft.0 {
            Body::Upload(id) => self.abort_upload(id),
            Body::Item(filling) => self.abort_item(filling.item),
        }
    }

    /// Makes a complete upload the key's item. Returns its CAS value.
    fn link_upload(&mut self, id: UploadId, key: &Key<'_>) -> u64 {
        let upload = self.flash.upload(id);
        debug_assert!(upload.is_written(), "UPLOAD-1");
        let (header, (n, position)) = (*upload.header(), upload.place());
        let pages = header.flash_len().div_ceil(PAGE_SIZE);
        let place = self.flash.log(n).place_of(position);
        let slot = self
            .index
            .flash_slot(key.hash, place, pages, header.expiry, self.now);
        self.replace_by_flash(key, slot);
        self.flash.log_mut(n).uploaded(header.flash_len());
        self.flash.end_upload(id);
        self.stats.uploads += 1;
        self.stats.total_items += 1;
        self.stats.upload_bytes += header.flash_len() as u64;
        self.stats.admitted_bytes += header.flash_len() as u64;
        header.cas
    }

    /// Stores the slot of a new item on flash. The key's old item goes, and so does another slot on
    /// flash with its tag (INDEX-1).
    fn replace_by_flash(&mut self, key: &Key<'_>, slot: Slot) {
        let own = self.index.find(key.hash, |slot| {
            slot.is_dram() && self.dram.arena().item_key(self.index.handle(slot)) == key.bytes
        });
        let Some((pos, old)) = own else {
            self.stats.flash_overwrites += self.index.remove_narrow(key.hash);
            match self.index.find(key.hash, Slot::is_flash) {
                Some((pos, _)) => {
                    self.index.set(pos, slot);
                    self.stats.flash_overwrites += 1;
                }
                None => self.enter(key.hash, slot),
            }
            return;
        };
        // One word changes, so at every instant the key has the old slot or the new one
        // (RESTART-1).
        self.index.set(pos, slot);
        self.dram.release(self.index.handle(old));
        let other = self.index.find(key.hash, |s| s.is_flash() && s != slot);
        if let Some((pos, _)) = other {
            self.index.remove(pos);
            self.stats.tag_drops += 1;
        }
    }

    /// Gives up an upload.
    fn abort_upload(&mut self, id: UploadId) {
        self.stats.uploads_failed += 1;
        let unsent = self.flash.upload(id).unsent();
        self.flash.admitter_mut().give_back(unsent);
        self.flash.end_upload(id);
    }
}

/// Bytes of the buffers of uploads.
pub(super) fn buffer_bytes(config: &ShardConfig) -> usize {
    match config.no_evict || config.flash.is_empty() {
        true => 0,
        false => config.upload_bytes,
    }
}

/// Whether the largest item can be uploaded, and so may be larger than DRAM.
pub(super) fn takes_largest(config: &ShardConfig, logs: &[Log]) -> bool {
    let pages = (config.max_item + config.max_item / 1024).div_ceil(PAGE_SIZE) as u64 + 2;
    Flash::may_upload(buffer_bytes(config)) && logs.iter().all(|log| pages <= log.most_ahead())
}
