// SPDX-License-Identifier: Apache-2.0
//! The cleaner moves live pages, so that whole segments become free.
//!
//! Card: the cleaner takes segments by cost and benefit (Rosenblum and Ousterhout, SOSP 1991). The
//! benefit is the freed space times the segment's age; the cost is the bytes read and written. It
//! writes their live pages again, each segment's with one write. A page that changed since the
//! checkpoint is not moved: the next checkpoint writes its current state. Such a page counts twice,
//! because the checkpoint that empties its unit would write it anyway (DIRTY-3). The segments
//! become free with the next checkpoint (`space.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, PAGE_SIZE, Purpose, Tag, le};

use crate::core::Core;
use crate::disk::entry::{HEAD, Head, Kind, place_of};
use crate::disk::log::Label;
use crate::disk::maps::Maps;
use crate::disk::space::{SEGMENT, Segment};
use crate::error::DbmError;
use crate::pages::mapping::Version;
use crate::upkeep::shrink::spare_segments;
use crate::upkeep::sink::{Sink, begin_images, open_segments};

/// The least segments that one round may clean.
const ROUND: usize = 16;

/// Moves live pages away from the end of the device, so that the end can be cut off. Returns
/// their number. Of the spare pages, `idle` may be given back.
pub(crate) fn clean_end(core: &Core, maps: &Maps, idle: u64) -> Result<u64, DbmError> {
    let open = open_segments(core);
    let unused = spare_segments(core, idle) + core.space.holes() as u32;
    if core.space.least_cut().is_none_or(|least| unused < least) {
        return Ok(0);
    }
    begin_images(core);
    let segments = core.space.segments();
    let step = core.room.step(&core.space) as u64;
    let most = core.room.claim(&core.space, step);
    let (mut left, from) = (most, segments.saturating_sub(unused).max(1));
    let mut moved = Copies::new();
    for number in (from..segments).rev() {
        let used = u64::from(core.space.segment(number).used());
        if used == 0 || open.contains(&number) {
            continue;
        }
        let Some(rest) = left.checked_sub(used) else {
            break;
        };
        left = rest;
        clean_segment(core, number, maps, &mut moved)
            .inspect_err(|error| core.latch.close(error))?;
    }
    put_copies(core, moved)?;
    core.room.unclaim(left);
    Ok(most - left)
}

/// Segments that may be cleaned, each with the pages that it costs: fewer than `most`.
fn victims(core: &Core, most: u32, cost: impl Fn(&Segment) -> u32) -> Vec<(u32, u32)> {
    let open = open_segments(core);
    let cost = |number| (number, cost(core.space.segment(number)));
    (1..core.space.segments())
        .filter(|number| !open.contains(number) && core.space.can_be_emptied(*number))
        .map(cost)
        .filter(|(_, cost)| (1..most).contains(cost))
        .collect()
}

/// Moves the live pages of the erase units with the largest benefit: as many as a checkpoint
/// writes.
pub(crate) fn clean(core: &Core, maps: &Maps) -> Result<(), DbmError> {
    let step = core.room.step(&core.space) as u64;
    let room = core
        .room
        .claim(&core.space, step.max(ROUND as u64 * SEGMENT));
    let now = core.log.lock().position().sequence;
    let open = open_segments(core);
    // On a full device, few units have only pages or only a part of the log.
    let unit = match core.space.is_full() {
        true => SEGMENT,
        false => core.space.unit(),
    };
    let in_unit = (unit / SEGMENT) as u32;
    let mut victims: Vec<(u64, u32, u64)> = Vec::new();
    for first in (0..core.space.segments()).step_by(in_unit as usize) {
        let numbers = first.max(1)..(first + in_unit).min(core.space.segments());
        let is_fixed = |n: u32| open.contains(&n) || !core.space.can_be_emptied(n);
        if numbers.clone().any(is_fixed) {
            continue;
        }
        let (mut cost, mut used, mut stamp) = (0, 0, 0);
        for segment in numbers.map(|number| core.space.segment(number)) {
            cost += u64::from(segment.cost());
            used += u64::from(segment.used());
            stamp = stamp.max(segment.stamp.load(Ordering::Acquire));
        }
        if (1..unit * 7 / 8).contains(&cost) {
            let pays = now.saturating_sub(stamp) * (unit - cost) / (unit + cost);
            victims.push((pays, first, used));
        }
    }
    victims.sort_unstable_by_key(|victim| std::cmp::Reverse(*victim));
    let (mut moved, mut chosen) = (0, Vec::new());
    for (_, first, used) in victims {
        moved += used;
        if moved > room {
            break;
        }
        let numbers = first.max(1)..(first + in_unit).min(core.space.segments());
        let used = |number| (number, core.space.segment(number).used());
        chosen.extend(numbers.map(used).filter(|(_, used)| *used > 0));
    }
    clean_segments(core, &chosen, room, maps).map(drop)
}

/// Moves the live pages of the segments with the fewest, if that frees a segment. Returns how
/// many segments were emptied. Only the room for a checkpoint and for admitted commits stays free;
/// what the cleaner took of the rest is due until that checkpoint.
pub(crate) fn clean_greedily(core: &Core, maps: &Maps) -> Result<usize, DbmError> {
    let room = core.room.claim_for_cleaner(&core.space);
    let mut victims = victims(core, SEGMENT as u32, Segment::used);
    victims.sort_unstable_by_key(|(_, used)| *used);
    let moved: Vec<u64> = victims
        .iter()
        .scan(0, |moved, (_, used)| {
            *moved += u64::from(*used);
            Some(*moved)
        })
        .take_while(|moved| *moved <= room)
        .collect();
    // A round of more segments than needed would only write more.
    let gains = |nth: usize, moved: u64| (nth as u64 + 1) * SEGMENT >= moved + SEGMENT;
    let enough = moved
        .iter()
        .enumerate()
        .position(|(nth, moved)| nth + 1 >= ROUND && gains(nth, *moved));
    let last = moved
        .iter()
        .enumerate()
        .rposition(|(nth, moved)| gains(nth, *moved));
    let last = enough.or(last);
    let taken = last.map_or(0, |last| moved[last]);
    core.room.unclaim(room - taken);
    let Some(last) = last else {
        return Ok(0);
    };
    clean_segments(core, &victims[..=last], taken, maps)
}

/// Moves the live pages of segments while there is room. Returns the number of segments.
fn clean_segments(
    core: &Core,
    victims: &[(u32, u32)],
    room: u64,
    maps: &Maps,
) -> Result<usize, DbmError> {
    begin_images(core);
    let (mut moved, mut segments, mut copies) = (0, 0, Copies::new());
    for (number, used) in victims {
        moved += u64::from(*used);
        if moved > room {
            break;
        }
        clean_segment(core, *number, maps, &mut copies)
            .inspect_err(|error| core.latch.close(error))?;
        segments += 1;
    }
    put_copies(core, copies)?;
    Ok(segments)
}

/// Pages of trees that were appended again, each with its new place.
type Copies = Vec<(u32, Arc<Version>, u64)>;

fn clean_segment(
    core: &Core,
    number: u32,
    maps: &Maps,
    copies: &mut Copies,
) -> Result<(), DbmError> {
    let first = u64::from(number) * SEGMENT;
    let mut pages = AlignedBuf::new(SEGMENT as usize);
    core.device
        .read(first, &mut pages, Tag::dbm(Purpose::Reclaim))
        .map_err(DbmError::io("reading a segment to clean it"))?;
    for (nth, page) in pages.chunks(PAGE_SIZE).enumerate() {
        let Some(head) = Head::read(page) else {
            continue;
        };
        let place = place_of(first + nth as u64, head.crc);
        let id = le::u32_at(page, HEAD);
        match head.kind {
            Kind::Node => {
                if let Some(version) = version_of(core, id, place) {
                    let to = append_again(&mut Sink::of(core, true)?, &head, page)?;
                    copies.push((id, version, to));
                }
                let is_named = maps.node(id) == place;
                let newest = core.pages.newest(id);
                if is_named && newest.is_some_and(|version| version.place() == 0) {
                    let mut writer = core.writer.lock();
                    writer.changed.page(id, true);
                    core.room.set_changed(writer.changed.counts());
                }
            }
            Kind::Blob => move_blob(core, id, place, &head, page)?,
            Kind::Map => {
                // The next checkpoint writes that part of the table again.
                let (nodes, blobs) = maps.chunks_at(place);
                core.writer.lock().changed.chunks(nodes, blobs);
            }
            Kind::Changes | Kind::Checkpoint => {}
        }
    }
    Ok(())
}

/// The version of a page that is at a place.
fn version_of(core: &Core, id: u32, place: u64) -> Option<Arc<Version>> {
    let mut at = core.pages.newest(id);
    while let Some(version) = at {
        if version.place() == place {
            return Some(version);
        }
        at = version.older();
    }
    None
}

/// Writes the copies, all with few writes, and sets their places.
fn put_copies(core: &Core, copies: Copies) -> Result<(), DbmError> {
    let written = core.images.lock().write_out();
    written.inspect_err(|error| core.latch.close(error))?;
    for (id, version, place) in copies {
        version.set_place(place);
        core.writer.lock().changed.place(id);
    }
    Ok(())
}

fn append_again(sink: &mut Sink<'_>, head: &Head, page: &[u8]) -> Result<u64, DbmError> {
    let label = Label::alone(head.kind, head.commit);
    let used = usize::from(head.used);
    sink.append(label, |body| {
        body[..used].copy_from_slice(&page[HEAD..HEAD + used]);
        used
    })
}

fn move_blob(core: &Core, id: u32, place: u64, head: &Head, page: &[u8]) -> Result<(), DbmError> {
    if core.pages.blob_place(id) != place {
        return Ok(());
    }
    // A moved part is a separate entry, so that replay does not take it for a part of a commit's
    // group.
    // Of two places of a part of a value, the one with the later entry counts.
    let mut sink = Sink::of(core, false)?;
    let to = append_again(&mut sink, head, page)?;
    sink.write_out()?;
    drop(sink);
    let mut writer = core.writer.lock();
    if core.pages.move_blob(id, place, to) {
        writer.changed.blobs(id, 1);
    }
    Ok(())
}
