// SPDX-License-Identifier: Apache-2.0
//! The traces of Florida International University (homes, mail, web servers; cheetah).
//!
//! Source: the README of the SNIA IOTTA set 390 (Koller and Rangaswami, "I/O Deduplication", FAST
//! 2010). Each line has one request: `ts pid process lba sectors R|W major minor md5`.
//!
//! | field | unit |
//! |---|---|
//! | ts | nanoseconds |
//! | lba, sectors | 512 B (option `sector`) |
//! | R or W | the operation |
//! | major, minor | the block device; the request's device is `major << 20 | minor`, as Linux numbers it |
//! | pid, process, md5 | not used; the digest may be missing |
//!
//! Deviation: a process name may hold spaces: the fields after it are found from the R or W.

use super::fields::{self, Stamp};
use super::parser::{LineParser, Parsed, read_or_write, want};

const MAX_WORDS: usize = 24;

pub(super) struct Fiu {
    pub sector: u64,
}

impl LineParser for Fiu {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut words = [&[][..]; MAX_WORDS];
        let mut count = 0;
        for word in fields::words(line).take(MAX_WORDS) {
            words[count] = word;
            count += 1;
        }
        let words = &words[..count];
        let Some((at, op)) = (5..count).find_map(|at| {
            let op = read_or_write(words[at])?;
            // A process may be called R; the real R has numbers around it.
            fields::uint(words[at - 1]).map(|_| (at, op))
        }) else {
            return Parsed::Damaged("there is no R or W after the address and the size");
        };
        let ns = want!(fields::uint(words[0]), "the time is not a number");
        let lba = want!(fields::uint(words[at - 2]), "the address is not a number");
        let size = want!(fields::uint(words[at - 1]), "the size is not a number");
        let number = |at: usize| fields::uint32(words.get(at).copied().unwrap_or_default());
        let major = want!(
            number(at + 1).filter(|&major| major < 1 << 12),
            "the major number is not a number below 4096"
        );
        let minor = want!(
            number(at + 2).filter(|&minor| minor < 1 << 20),
            "the minor number is not a number below 2^20"
        );
        let offset = want!(lba.checked_mul(self.sector), "the address is beyond 2^64");
        let bytes = want!(size.checked_mul(self.sector), "the size is beyond 2^64");
        Parsed::request(Stamp::at(ns), major << 20 | minor, op, offset, bytes)
    }
}
