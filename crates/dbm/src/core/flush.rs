// SPDX-License-Identifier: Apache-2.0
//! Brings applied commits to the device: one group, one write, one flush.
//!
//! One of the waiting threads writes all pending commits, and the others find their commits done
//! (`group.rs`). So the commits that arrive during a flush form the next group.
//!
//! FLUSH-1: after a failed write or flush the caller latches the database, and nothing is tried
//! again.

use crate::disk::entry::{BODY, Kind};
use crate::disk::log::{GroupHead, Label, Log, append_bytes};
use crate::error::DbmError;
use crate::pages::Pages;
use crate::records::blob::Blob;
use crate::sync::Mutex;
use crate::writer::Writer;
use crate::writer::backlog::Pending;
use crate::writer::progress::Progress;

/// Writes a group to the log, and notes how far the commits came.
pub(crate) fn write_group(
    log: &mut Log,
    mut pending: Pending,
    sync: bool,
    (pages, progress): (&Pages, &Progress),
    writer: &Mutex<Writer>,
) -> Result<(), DbmError> {
    let mut places = Vec::new();
    if !pending.bytes.is_empty() {
        let head = GroupHead {
            durable: log.durable,
            database: log.database,
        };
        head.encode(&mut pending.bytes);
        let parts: usize = pending
            .blobs
            .iter()
            .map(|(blob, _)| blob.parts() as usize)
            .sum();
        let entries = parts + pending.bytes.len().div_ceil(BODY);
        for (blob, value) in &pending.blobs {
            for (id, part) in blob.numbers().zip(value.chunks(Blob::PART)) {
                let label = Label {
                    kind: Kind::Blob,
                    commit: pending.commit,
                    left: (entries - 1 - places.len()) as u32,
                    first: places.is_empty(),
                };
                let place = log.append(label, |body| blob.fill(body, id, part))?;
                places.push((id, place));
            }
        }
        let first = places.is_empty();
        append_bytes(log, Kind::Changes, pending.commit, first, &pending.bytes)?;
    }
    if sync {
        log.sync()?;
    } else {
        log.write_out()?;
    }
    if !places.is_empty() {
        let mut writer = writer.lock();
        for &(id, place) in &places {
            pages.place_blob(id, place);
            writer.changed.blobs(id, 1);
        }
    }
    if !pending.blobs.is_empty() {
        pages.drop_unwritten(&pending.blobs);
    }
    progress.write(pending.commit);
    if sync {
        progress.flush();
    }
    Ok(())
}
