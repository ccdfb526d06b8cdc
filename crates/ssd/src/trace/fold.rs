// SPDX-License-Identifier: Apache-2.0
//! Folds a trace's addresses into the capacity of a drive: several devices, and addresses beyond
//! the end. It folds only on request, since every way of folding changes the meaning of a trace.
//!
//! | devices | |
//! |---|---|
//! | `ignore` | all devices share the drive's addresses, so that they overlap. The number stays with the request |
//! | `concatenate` | each device has a part of the drive, in the order of the list, of the size that is given |
//!
//! | addresses | |
//! |---|---|
//! | `none` | a request beyond the capacity (or its device's part) is an error that names it |
//! | `modulo` | the address modulo the capacity (or its device's part: each device is folded for
//! itself); a request across the end continues at the start |
//! | `compact` | extents are numbered in the order in which they are first touched, so that a sparse trace fits a drive of its footprint. Neighbours within an extent stay neighbours, extents need not. A trim does not touch; what it trims of untouched extents is dropped |
//!
//! Always holds: a folded request lies within the capacity, and has device 0 unless devices are
//! ignored; all bytes of a request are in its pieces, once and in order. A read or write longer
//! than its target is an error; a trim is cut to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::str::FromStr;

use crate::spec::{Spec, rows};
use crate::{Error, Op, Request};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// They share the drive's addresses.
    #[default]
    Ignore,
    /// Each has its own part of the drive: number and bytes.
    Concatenate(Vec<(u32, u64)>),
}

/// How addresses beyond the end are folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// They are errors.
    #[default]
    None,
    /// They start again at 0.
    Modulo,
    /// Extents of this many bytes are renumbered by first touch.
    Compact(u64),
}

/// Default bytes of an extent: large enough to keep blocks of flash together.
pub const DEFAULT_EXTENT: u64 = 1 << 20;

/// Smaller extents than a sector only cost memory.
const LEAST_EXTENT: u64 = 512;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    pub devices: Devices,
    /// Addresses beyond the end.
    pub range: Range,
}

impl Fold {
    /// Whether devices with the address ranges `ranges` overlap when they are folded into
    /// `capacity` bytes. Then a write to one overwrites another's data.
    pub fn overlaps(&self, ranges: impl IntoIterator<Item = (u64, u64)>, capacity: u64) -> bool {
        if self.devices != Devices::Ignore || matches!(self.range, Range::Compact(_)) {
            return false;
        }
        // Each device's addresses, as one or two stretches of the drive.
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (first, end) in ranges {
            if end <= first {
                continue;
            }
            if self.range == Range::None || end <= capacity {
                taken.push((first, end));
            } else if end - first >= capacity {
                taken.push((0, capacity));
            } else {
                let (first, end) = (first % capacity, (end - 1) % capacity + 1);
                if first < end {
                    taken.push((first, end));
                } else {
                    taken.extend([(first, capacity), (0, end)]);
                }
            }
        }
        taken.sort_unstable();
        taken.windows(2).any(|pair| pair[1].0 < pair[0].1)
    }
}

/// The ways to fold, for users: name, description, options.
pub const WAYS: [(&str, &str, &[&str]); 3] = rows! {
    "none",
        "a request beyond the drive's end is an error; devices overlap unless devices=0*1g+1*500m gives each a part of the drive",
        &["devices"];
    "modulo",
        "addresses beyond the drive's end begin again at 0; devices overlap unless devices=0*1g+1*500m gives each a part of the drive",
        &["devices"];
    "compact",
        "extents (1m each) lie in the order of their first use, so that a trace fits a drive of its footprint; devices stay apart",
        &["extent"];
};

#[derive(Clone, Copy)]
struct Part {
    base: u64,
    bytes: u64,
    what: &'static str,
}

/// Folds one request after the other.
pub struct Folder {
    parts: Option<HashMap<u32, Part>>,
    range: Range,
    capacity: u64,
    /// Maps device and extent to the extent on the drive.
    extents: HashMap<(u32, u64), u64>,
    /// The number of the request that is folded, and that of the next one.
    number: u64,
    next: u64,
}

const DRIVE: &str = "the drive";
const DEVICE: &str = "its device's part of the drive";

impl Folder {
    /// A folder into `capacity` bytes.
    ///
    /// # Errors
    /// If the capacity is 0, or the parts are larger than it. If a part is named twice or empty. If
    /// an extent is smaller than a sector or larger than the drive. If parts are combined with
    /// compact.
    pub fn new(fold: &Fold, capacity: u64) -> Result<Folder, Error> {
        if capacity == 0 {
            return Err(Error::Spec("a drive of 0 bytes holds no trace".to_owned()));
        }
        if let Range::Compact(extent) = fold.range
            && !(LEAST_EXTENT..=capacity).contains(&extent)
        {
            return Err(Error::Spec(format!(
                "extents of {extent} bytes are not within {LEAST_EXTENT} and the {capacity} of the drive"
            )));
        }
        let parts = match &fold.devices {
            Devices::Ignore => None,
            Devices::Concatenate(_) if matches!(fold.range, Range::Compact(_)) => {
                return Err(Error::Spec(
                    "compact keeps devices apart by itself, so it takes no sizes of devices"
                        .to_owned(),
                ));
            }
            Devices::Concatenate(list) => Some(parts(list, capacity)?),
        };
        Ok(Folder {
            parts,
            range: fold.range,
            capacity,
            extents: HashMap::new(),
            number: 1,
            next: 1,
        })
    }

    /// Counts the requests from `first` on, for errors. Those of a trace are counted from 1.
    #[must_use]
    pub fn counting_from(mut self, first: u64) -> Folder {
        self.next = first;
        self
    }

    /// Folds a request; passes each piece to `each`.
    ///
    /// # Errors
    /// If it can't be folded in the chosen way. Earlier pieces may have been passed already.
    #[inline]
    pub fn fold(&mut self, request: Request, mut each: impl FnMut(Request)) -> Result<(), Error> {
        self.number = self.next;
        self.next += 1;
        if request.op == Op::Flush {
            each(Request {
                device: self.device(&request),
                ..request
            });
            return Ok(());
        }
        let part = self.part(&request)?;
        match self.range {
            Range::None => {
                let end = request.offset.saturating_add(request.bytes);
                if end > part.bytes {
                    return Err(refuse(
                        self.number,
                        format!(
                            " is for {} bytes at {}, and ends at byte {end} of {}, which has {}: fold addresses with modulo or compact (compact:extent=64k, if they are scattered), or take a larger drive or a larger part of it (scale)",
                            request.bytes, request.offset, part.what, part.bytes
                        ),
                    ));
                }
                each(Request {
                    device: self.device(&request),
                    offset: part.base + request.offset,
                    ..request
                });
                Ok(())
            }
            Range::Modulo => self.modulo(request, part, &mut each),
            Range::Compact(extent) => self.compact(request, extent, &mut each),
        }
    }

    fn device(&self, request: &Request) -> u32 {
        let ignored = self.parts.is_none() && !matches!(self.range, Range::Compact(_));
        if ignored { request.device } else { 0 }
    }

    fn part(&self, request: &Request) -> Result<Part, Error> {
        let Some(parts) = &self.parts else {
            return Ok(Part {
                base: 0,
                bytes: self.capacity,
                what: DRIVE,
            });
        };
        parts.get(&request.device).copied().ok_or_else(|| {
            refuse(
                self.number,
                format!(
                    " is for device {}, which has no part of the drive",
                    request.device
                ),
            )
        })
    }

    fn modulo(
        &self,
        request: Request,
        part: Part,
        each: &mut dyn FnMut(Request),
    ) -> Result<(), Error> {
        let mut bytes = request.bytes;
        if bytes > part.bytes {
            if request.op != Op::Trim {
                return Err(refuse(
                    self.number,
                    format!(
                        " is for {bytes} bytes, more than {} has, which are {}",
                        part.what, part.bytes
                    ),
                ));
            }
            bytes = part.bytes;
        }
        let start = request.offset % part.bytes;
        let first = bytes.min(part.bytes - start);
        let piece = |offset, bytes| Request {
            device: self.device(&request),
            offset: part.base + offset,
            bytes,
            ..request
        };
        each(piece(start, first));
        if bytes > first {
            each(piece(0, bytes - first));
        }
        Ok(())
    }

    fn compact(
        &mut self,
        request: Request,
        extent: u64,
        each: &mut dyn FnMut(Request),
    ) -> Result<(), Error> {
        if request.op == Op::Trim {
            self.compact_trim(request, extent, each);
            return Ok(());
        }
        let mut offset = request.offset;
        let end = request.offset.saturating_add(request.bytes);
        // Adjacent extents become one piece.
        let mut piece: Option<Request> = None;
        while offset < end {
            let number = offset / extent;
            let within = offset % extent;
            let bytes = (extent - within).min(end - offset);
            let next = self.extents.len() as u64;
            let place = match self.extents.entry((request.device, number)) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) if next < self.capacity / extent => *free.insert(next),
                Entry::Vacant(_) => {
                    return Err(refuse(
                        self.number,
                        format!(
                            ", at {}, touches a new extent of {extent} bytes, and all {} bytes of the drive are taken: take smaller extents (compact:extent=64k), modulo, or a larger drive or a larger part of it (scale)",
                            request.offset, self.capacity
                        ),
                    ));
                }
            };
            let start = place * extent + within;
            match &mut piece {
                Some(open) if open.offset + open.bytes == start => open.bytes += bytes,
                _ => {
                    let done = piece.replace(Request {
                        device: 0,
                        offset: start,
                        bytes,
                        ..request
                    });
                    if let Some(done) = done {
                        each(done);
                    }
                }
            }
            offset += bytes;
        }
        if let Some(last) = piece {
            each(last);
        }
        Ok(())
    }

    /// Trims the touched extents. It walks over the trim's extents or over the touched ones,
    /// whichever are fewer.
    fn compact_trim(&self, request: Request, extent: u64, each: &mut dyn FnMut(Request)) {
        let end = request.offset.saturating_add(request.bytes);
        if request.bytes == 0 {
            return;
        }
        let (first, last) = (request.offset / extent, (end - 1) / extent);
        let mut give = |number: u64, place: u64| {
            let from = request.offset.max(number * extent);
            let to = end.min((number * extent).saturating_add(extent));
            each(Request {
                device: 0,
                offset: place * extent + (from - number * extent),
                bytes: to - from,
                ..request
            });
        };
        if last - first < self.extents.len() as u64 {
            for number in first..=last {
                if let Some(&place) = self.extents.get(&(request.device, number)) {
                    give(number, place);
                }
            }
        } else {
            // In the order of addresses, so that every run is the same.
            let mut touched: Vec<(u64, u64)> = self
                .extents
                .iter()
                .filter(|&(&(device, number), _)| {
                    device == request.device && (first..=last).contains(&number)
                })
                .map(|(&(_, number), &place)| (number, place))
                .collect();
            touched.sort_unstable();
            for (number, place) in touched {
                give(number, place);
            }
        }
    }
}

fn refuse(number: u64, why: String) -> Error {
    Error::Request(format!("request {number}{why}"))
}

fn parts(list: &[(u32, u64)], capacity: u64) -> Result<HashMap<u32, Part>, Error> {
    let mut parts = HashMap::new();
    let mut base = 0u64;
    for &(device, bytes) in list {
        let part = Part {
            base,
            bytes,
            what: DEVICE,
        };
        if bytes == 0 {
            return Err(Error::Spec(format!("device {device} is given 0 bytes")));
        }
        if parts.insert(device, part).is_some() {
            return Err(Error::Spec(format!("device {device} is given two sizes")));
        }
        base = base.saturating_add(bytes);
    }
    if base > capacity {
        return Err(Error::Spec(format!(
            "the devices have {base} bytes together, and the drive has {capacity}"
        )));
    }
    Ok(parts)
}

/// `none`, `modulo` or `compact`, with the options `devices=0*1g+1*500m` and, for `compact`,
/// `extent=256k`.
impl FromStr for Fold {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fold, Error> {
        let mut spec: Spec = text.parse()?;
        let name = spec.name().to_owned();
        let range = match name.as_str() {
            "none" => Range::None,
            "modulo" => Range::Modulo,
            "compact" => {
                let extent = spec.take_optional::<String>("extent")?;
                Range::Compact(match extent {
                    Some(text) => crate::spec::bytes(&text)?,
                    None => DEFAULT_EXTENT,
                })
            }
            _ => {
                return Err(Error::Spec(format!(
                    "\"{name}\" is not a way to fold addresses: none, modulo or compact"
                )));
            }
        };
        let list = if name == "compact" {
            None
        } else {
            spec.take_optional::<String>("devices")?
        };
        let devices = match list.as_deref() {
            None | Some("ignore") => Devices::Ignore,
            Some(list) => {
                Devices::Concatenate(list.split('+').map(device_of).collect::<Result<_, _>>()?)
            }
        };
        let known: &[&str] = if name == "compact" {
            &["extent"]
        } else {
            &["devices"]
        };
        spec.finish(known)?;
        Ok(Fold { devices, range })
    }
}

/// `3*1g`: device 3 has a GiB.
fn device_of(text: &str) -> Result<(u32, u64), Error> {
    let wrong = || {
        Error::Spec(format!(
            "\"{text}\" is not a device with its size, such as 3*1g"
        ))
    };
    let (device, bytes) = text.split_once('*').ok_or_else(wrong)?;
    let device = device.parse().map_err(|_| wrong())?;
    Ok((device, crate::spec::bytes(bytes)?))
}
