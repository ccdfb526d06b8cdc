// SPDX-License-Identifier: Apache-2.0
//! The check that every read returns the latest version.
//!
//! There is no data in the simulator. A version of a page is identified by the sequence number of
//! its program, which copies within the flash keep ([`Nand::sequence`]). The shadow follows a
//! drive. For each logical page it knows whether the buffer must hold it, and its last program, and
//! compares these with the drive. Tests run with it. Users can too; it takes about 10 bytes for
//! each logical page and 8 for each physical page.

use crate::buffer::Leave;
use crate::ftl::Ftl;
use crate::geometry::{Lpn, Ppn};
use crate::nand::Nand;

/// The expected state of every page. Each method panics if the drive is wrong, with the page and
/// the expected state.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Pages that the host wrote and that have not left the buffer since.
    dirty: Vec<bool>,
    /// Sequence number of each page's last program, 0 if there is none or the page was trimmed.
    programmed: Vec<u64>,
    /// Trimmed pages that were not written since: a power cut may bring them back.
    trimmed: Vec<bool>,
}

impl Shadow {
    pub fn new(logical_pages: u32) -> Self {
        let pages = logical_pages as usize;
        Self {
            dirty: vec![false; pages],
            programmed: vec![0; pages],
            trimmed: vec![false; pages],
        }
    }

    pub fn host_writes(&mut self, lpn: Lpn) {
        self.dirty[lpn as usize] = true;
    }

    pub fn host_trims(&mut self, lpn: Lpn) {
        self.dirty[lpn as usize] = false;
        self.programmed[lpn as usize] = 0;
        self.trimmed[lpn as usize] = true;
    }

    /// A page leaves the buffer to make room for `incoming`, which the host is writing.
    pub fn leaves(&mut self, lpn: Lpn, how: Leave, incoming: Option<Lpn>) {
        let dirty = &mut self.dirty[lpn as usize];
        match how {
            Leave::Dirty => {
                assert!(*dirty, "BUFFER-2: page {lpn} leaves as dirty and is not");
                *dirty = false;
            }
            // The incoming page is not held yet: its block may be completed with the flash's old
            // contents of it.
            Leave::Pad => assert!(
                !*dirty || incoming == Some(lpn),
                "BUFFER-2: page {lpn} is a pad and is dirty"
            ),
        }
    }

    /// The translation layer was asked to write a page; `before` is the flash's last sequence
    /// number for the host until then. If the power went before that, nothing was written.
    pub fn programmed(&mut self, lpn: Lpn, nand: &Nand, before: u64) {
        let now = nand.last_host_sequence();
        if now != before {
            self.programmed[lpn as usize] = now;
            self.trimmed[lpn as usize] = false;
        } else {
            assert!(nand.is_off(), "FTL-2: page {lpn} was not written");
        }
    }

    /// The buffer says whether it has a page that the host reads.
    pub fn buffer_read(&self, lpn: Lpn, hit: bool) {
        assert!(
            hit || !self.dirty[lpn as usize],
            "BUFFER-1: page {lpn} was written and is not in the buffer"
        );
    }

    /// The translation layer found a page, or none.
    pub fn flash_read(&self, lpn: Lpn, found: Option<Ppn>, nand: &Nand) {
        let sequence = found.map_or(0, |page| {
            assert_eq!(
                nand.lpn(page),
                lpn,
                "FTL-1: page {lpn} was read from {page}"
            );
            nand.sequence(page)
        });
        assert_eq!(
            sequence, self.programmed[lpn as usize],
            "FTL-1: page {lpn} was read from {found:?}, another version than its last"
        );
    }

    /// No page is dirty after a flush.
    pub fn flushed(&self) {
        let held = self.dirty.iter().position(|dirty| *dirty);
        assert_eq!(
            held, None,
            "a page stayed in the buffer in spite of a flush"
        );
    }

    /// Takes over the layer's state after a power cut; the buffer's contents are lost.
    pub fn recovered(&mut self, ftl: &dyn Ftl, nand: &Nand) {
        self.dirty.fill(false);
        for lpn in 0..self.dirty.len() as Lpn {
            let found = ftl.locate(lpn);
            let expected = self.programmed[lpn as usize];
            let sequence = found.map_or(0, |page| {
                assert_eq!(nand.lpn(page), lpn, "FTL-4: page {lpn} was found at {page}");
                nand.sequence(page)
            });
            if !self.trimmed[lpn as usize] {
                assert_eq!(sequence, expected, "FTL-4: page {lpn}, found at {found:?}");
            }
            self.programmed[lpn as usize] = sequence;
            self.trimmed[lpn as usize] = false;
        }
    }
}
