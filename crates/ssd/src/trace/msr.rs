// SPDX-License-Identifier: Apache-2.0
//! MSR Cambridge traces.
//!
//! Source: the README of the SNIA IOTTA set 388 (Narayanan, Donnelly and Rowstron, "Write
//! Off-Loading", FAST 2008). Each line has one request:
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! | field | unit |
//! |---|---|
//! | Timestamp | Windows FILETIME: 100 ns since 1601 |
//! | DiskNumber | number of the host's disk |
//! | Type | `Read` or `Write` |
//! | Offset, Size | bytes |
//! | ResponseTime | 100 ns; not used |
//!
//! Deviation: if a file has several hosts, the device is the disk's number plus 65,536 for each
//! earlier host, so that disks of different hosts stay separate.

use super::fields::{self, Stamp};
use super::parser::{LineParser, Parsed, read_or_write, want};

const TICK: u64 = 100;
/// Most hosts that are distinguished.
const MAX_HOSTS: usize = 1 << 12;
const MAX_DISKS: u64 = 1 << 16;

#[derive(Default)]
pub(super) struct Msr {
    hosts: Vec<Box<[u8]>>,
    last: usize,
}

impl Msr {
    fn host(&mut self, name: &[u8]) -> Option<usize> {
        if self
            .hosts
            .get(self.last)
            .is_some_and(|host| **host == *name)
        {
            return Some(self.last);
        }
        self.last = match self.hosts.iter().position(|host| **host == *name) {
            Some(at) => at,
            None if self.hosts.len() < MAX_HOSTS => {
                self.hosts.push(name.into());
                self.hosts.len() - 1
            }
            None => return None,
        };
        Some(self.last)
    }
}

impl LineParser for Msr {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"timestamp") {
            return Parsed::Heading;
        }
        let ticks = want!(fields::uint(first), "the timestamp is not a number");
        let name = next();
        let disk = want!(
            fields::uint(next()).filter(|&disk| disk < MAX_DISKS),
            "the disk number is not a number below 65,536"
        );
        let op = want!(read_or_write(next()), "the type is neither Read nor Write");
        let offset = want!(fields::uint(next()), "the offset is not a number");
        let bytes = want!(fields::uint(next()), "the size is not a number");
        let ns = want!(ticks.checked_mul(TICK), "the time is beyond 2^64 ns");
        let host = want!(self.host(name), "there are more than 4,096 hosts");
        let device = (host as u32) << 16 | disk as u32;
        Parsed::request(Stamp::at(ns), device, op, offset, bytes)
    }
}
