// SPDX-License-Identifier: Apache-2.0
//! Formats with one request in each line and each fact in its own column. A [`Layout`] describes a
//! format, and one parser reads all of them.

use super::fields::{self, MICROSECOND, SECOND, Stamp};
use super::format::Options;
use super::parser::{LineParser, Parsed, read_or_write, want};
use super::vscsi;
use crate::Op;

/// What a column holds.
enum Column {
    Time,
    Device,
    /// The operation; the function finds none for an event that is no request.
    Op(fn(&[u8]) -> Option<Option<Op>>),
    /// The address, in units of the layout.
    Address,
    /// Bytes from the address on.
    Within,
    Size,
    /// A number that is not used.
    Number,
    /// Anything; not used.
    Any,
}

use Column::{Address, Any, Device, Number, Size, Time, Within};

pub(super) struct Layout {
    /// Whether only commas separate columns; otherwise spaces do in a line without commas.
    commas: bool,
    /// The first column of the heading.
    heading: &'static [u8],
    /// Nanoseconds of a unit of time, unless option `unit` says otherwise.
    time_ns: u64,
    /// Bytes of a unit of addresses, unless option `sector` or `block` says otherwise.
    unit: u64,
    /// Whether sizes have the same unit; otherwise they are bytes.
    sizes_in_units: bool,
    /// The columns in their order, each with the reason for damage.
    columns: &'static [(Column, &'static str)],
}

/// The commonest values.
const USUAL: Layout = Layout {
    commas: true,
    heading: b"",
    time_ns: SECOND,
    unit: 512,
    sizes_in_units: false,
    columns: &[],
};

fn by_letter(field: &[u8]) -> Option<Option<Op>> {
    read_or_write(field).map(Some)
}

/// SPC traces: Financial and WebSearch of the UMass trace repository.
///
/// Source: "SPC Trace File Format Specification", revision 1.0.1, Storage Performance Council,
/// 2002. `ASU,LBA,bytes,opcode,seconds[,more]`: the ASU (application-specific unit) is the device,
/// LBAs count 512 B blocks (option `sector`), and seconds are decimal. Sizes of 0 and of no
/// multiple of 512 both occur. Deviation: further fields are ignored, as the specification
/// requires; so are spaces around fields.
pub(super) static SPC: Layout = Layout {
    columns: &[
        (Device, "the ASU is not a number"),
        (Address, "the LBA is not a number"),
        (Size, "the size is not a number"),
        (Column::Op(by_letter), "the opcode is neither R nor W"),
        (Time, "the time is not a number"),
    ],
    ..USUAL
};

/// Alibaba Cloud's block traces.
///
/// Source: the README of Alibaba's `block-traces` repository (Li et al., "An In-Depth Analysis of
/// Cloud Block Storage Workloads in Large-Scale Production", IISWC 2020).
/// `device_id,opcode,offset,length,timestamp`: offset and length are bytes, the timestamp is
/// microseconds since 1970. Deviation: none.
pub(super) static ALIBABA: Layout = Layout {
    heading: b"device_id",
    time_ns: MICROSECOND,
    unit: 1,
    columns: &[
        (Device, "the device is not a number"),
        (Column::Op(by_letter), "the opcode is neither R nor W"),
        (Address, "the offset is not a number"),
        (Size, "the length is not a number"),
        (Time, "the timestamp is not a number"),
    ],
    ..USUAL
};

/// The VDI traces of SYSTOR '17.
///
/// Source: the SNIA IOTTA set 4964 (Lee et al., "Understanding Storage Traffic Characteristics on
/// Enterprise Virtual Desktop Infrastructure", SYSTOR 2017).
/// `Timestamp,Response,IOType,LUN,Offset,Size`: decimal seconds since 1970, the response time
/// (empty at times), `R` or `W`, the number of the volume, and bytes. Deviation: none.
pub(super) static SYSTOR: Layout = Layout {
    heading: b"timestamp",
    unit: 1,
    columns: &[
        (Time, "the timestamp is not a number"),
        (Any, ""),
        (Column::Op(by_letter), "the type is neither R nor W"),
        (Device, "the LUN is not a number"),
        (Address, "the offset is not a number"),
        (Size, "the size is not a number"),
    ],
    ..USUAL
};

/// Tencent's traces of cloud block storage.
///
/// Source: the README of the SNIA IOTTA set 27917 (Zhang et al., "OSCA: An Online-Model Based Cache
/// Allocation Scheme in Cloud Block Storage Systems", USENIX ATC 2020).
/// `Timestamp,Offset,Size,IOType,VolumeID`: whole seconds since 1970 (option `unit`), 512 B sectors
/// (option `sector`), 0 reads and 1 writes. Deviation: requests of the same second come at once,
/// since the format has no finer times.
pub(super) static TENCENT: Layout = Layout {
    heading: b"timestamp",
    sizes_in_units: true,
    columns: &[
        (Time, "the timestamp is not a number"),
        (Address, "the offset is not a number"),
        (Size, "the size is not a number"),
        (
            Column::Op(|field| match field {
                b"0" => Some(Some(Op::Read)),
                b"1" => Some(Some(Op::Write)),
                _ => None,
            }),
            "the I/O type is neither 0 nor 1",
        ),
        (Device, "the volume is not a number"),
    ],
    ..USUAL
};

/// CloudPhysics traces as text.
///
/// Source: the traces of Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015,
/// in the form that libCacheSim's users distribute. `version,time,op,size,lbn`: the version of the
/// binary format, whole seconds (option `unit`), the SCSI command in hexadecimal as in `vscsi.rs`,
/// bytes, and 512 B blocks (option `sector`). Deviation: requests of the same second come at once,
/// since the format has no finer times; the binary format has.
pub(super) static CLOUDPHYSICS: Layout = Layout {
    heading: b"version",
    columns: &[
        (Number, "the version is not a number"),
        (Time, "the time is not a number"),
        (
            Column::Op(|field| fields::hex(field).map(vscsi::operation)),
            "the SCSI command is not a hexadecimal number",
        ),
        (Size, "the size is not a number"),
        (Address, "the block is not a number"),
    ],
    ..USUAL
};

/// Traces of Meta's Tectonic file system.
///
/// Source: the traces of Wong et al., "Baleen: ML Admission & Prefetching for Flash Caches", FAST
/// 2024, and its simulator's list of operations. A comment with the columns' names, then
/// `block_id io_offset io_size op_time op_name` and three to five more columns, which differ by
/// year and are not used. A block has up to 8 MiB (option `block`), offset and size are bytes
/// within it, times are decimal seconds since 1970, and the operations 1, 2 and 5 get (read), 3, 4
/// and 6 put (write), by kind of data. A block's address is its number times the bytes of a block.
/// Deviation: a request that leaves its block, as the last one of a larger block would, is damaged.
pub(super) static TECTONIC: Layout = Layout {
    commas: false,
    heading: b"block_id",
    unit: 8 << 20,
    columns: &[
        (Address, "the block is not a number"),
        (Within, "the offset is not a number"),
        (Size, "the size is not a number"),
        (Time, "the time is not a number"),
        (
            Column::Op(|field| match field {
                b"1" | b"2" | b"5" => Some(Some(Op::Read)),
                b"3" | b"4" | b"6" => Some(Some(Op::Write)),
                _ => None,
            }),
            "the operation is not one of 1 to 6",
        ),
    ],
    ..USUAL
};

pub(super) struct Rows {
    layout: &'static Layout,
    time_ns: u64,
    unit: u64,
}

impl Rows {
    pub(super) fn new(layout: &'static Layout, options: &Options) -> Rows {
        let unit = options.sector.or(options.block);
        Rows {
            layout,
            time_ns: options
                .unit
                .map_or(layout.time_ns, |unit| unit.nanoseconds()),
            unit: unit.unwrap_or(layout.unit),
        }
    }
}

impl LineParser for Rows {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let Layout {
            commas, heading, ..
        } = *self.layout;
        let mut fields = fields::split(line, commas || line.contains(&b',')).peekable();
        let first = fields.peek().copied().unwrap_or_default();
        if !heading.is_empty() && first.eq_ignore_ascii_case(heading) {
            return Parsed::Heading;
        }
        let (mut time, mut device, mut op) = (Stamp::at(0), 0, None);
        let (mut address, mut within, mut size) = (0u64, None, 0u64);
        for (column, why) in self.layout.columns {
            let field = fields.next().unwrap_or_default();
            let read = match column {
                Time => fields::time(field, self.time_ns).map(|found| time = found),
                Device => fields::uint32(field).map(|found| device = found),
                Column::Op(of) => of(field).map(|found| op = found),
                Address => fields::uint(field).map(|found| address = found),
                Within => fields::uint(field).map(|found| within = Some(found)),
                Size => fields::uint(field).map(|found| size = found),
                Number => fields::uint(field).map(drop),
                Any => Some(()),
            };
            if read.is_none() {
                return Parsed::Damaged(why);
            }
        }
        let Some(op) = op else { return Parsed::Other };
        let leaves = |within: u64| within.checked_add(size).is_none_or(|end| end > self.unit);
        if within.is_some_and(leaves) {
            return Parsed::Damaged("the request leaves its block (tectonic:block=...)");
        }
        let start = address.checked_mul(self.unit);
        let offset = start.and_then(|start| start.checked_add(within.unwrap_or(0)));
        let offset = want!(offset, "the address is beyond 2^64");
        if self.layout.sizes_in_units {
            size = want!(size.checked_mul(self.unit), "the size is beyond 2^64");
        }
        Parsed::request(time, device, op, offset, size)
    }
}
