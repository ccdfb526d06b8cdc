// SPDX-License-Identifier: Apache-2.0
//! The list of a memcached's keys, in a file without a name: as it comes, or the latest access
//! first. Written and read by [`super::dump`].
//!
//! The list may be larger than memory. So it is sorted in one more pass over the file. A table of
//! the seconds of access, counted while the list comes ([`Ages`]), says where in a second file each
//! part of the list begins. Within a part the order stays.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows of the table, and parts that it is divided into.
const ROWS: usize = 4096;
const PARTS: u64 = 64;
/// Bytes of a part that are gathered before they are written: a mebibyte for all.
const GATHERED: usize = 16 << 10;

/// A list that comes.
pub(super) struct Spool {
    file: BufWriter<File>,
    ages: Ages,
}

impl Spool {
    pub fn new() -> io::Result<Spool> {
        Ok(Spool {
            file: BufWriter::new(nameless_file()?),
            ages: Ages {
                step: 1,
                rows: BTreeMap::new(),
            },
        })
    }

    /// Appends a line, which has no line end.
    pub fn push(&mut self, line: &[u8]) -> io::Result<()> {
        self.ages.add(accessed(line), line.len() as u64 + 1);
        self.file.write_all(line)?;
        self.file.write_all(b"\n")
    }

    /// The lines as they came.
    pub fn into_order_of_arrival(self) -> io::Result<BufReader<File>> {
        let mut file = self.file.into_inner().map_err(io::Error::from)?;
        file.rewind()?;
        Ok(BufReader::new(file))
    }

    /// The lines in parts, those of the latest accesses first.
    pub fn latest_first(self) -> io::Result<BufReader<File>> {
        let mut parts = self.ages.parts();
        let mut lines = self.into_order_of_arrival()?;
        let mut sorted = nameless_file()?;
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let accessed = accessed(&line);
            let at = parts.partition_point(|part| part.from > accessed);
            parts[at].push(&line, &sorted)?;
            line.clear();
        }
        for part in &mut parts {
            part.flush(&sorted)?;
        }
        sorted.rewind()?;
        Ok(BufReader::new(sorted))
    }
}

/// The second of a line's last access. A line without one counts as a late one.
fn accessed(line: &[u8]) -> u32 {
    let fields = line.trim_ascii_end().split(|byte| *byte == b' ');
    let mut found = fields.filter_map(|field| field.strip_prefix(b"la="));
    let text = found.next().and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
}

/// Bytes of lines by the seconds of access, in a bounded number of rows.
struct Ages {
    /// Seconds of a row.
    step: u32,
    rows: BTreeMap<u32, u64>,
}

impl Ages {
    fn add(&mut self, accessed: u32, bytes: u64) {
        *self.rows.entry(accessed / self.step).or_default() += bytes;
        while self.rows.len() > ROWS {
            self.step *= 2;
            for (row, bytes) in std::mem::take(&mut self.rows) {
                *self.rows.entry(row / 2).or_default() += bytes;
            }
        }
    }

    /// Parts of about the same size, the latest one first. The last one takes everything.
    fn parts(&self) -> Vec<Part> {
        let share = self.rows.values().sum::<u64>() / PARTS;
        let mut parts = Vec::new();
        let (mut begins, mut bytes) = (0, 0);
        for (row, more) in self.rows.iter().rev() {
            bytes += more;
            if bytes >= share {
                parts.push(Part::new(row * self.step, begins));
                (begins, bytes) = (begins + bytes, 0);
            }
        }
        parts.push(Part::new(0, begins));
        parts
    }
}

/// A part of the sorted list.
struct Part {
    /// The first second of access that belongs to it.
    from: u32,
    /// Where in the file its next bytes go.
    at: u64,
    gathered: Vec<u8>,
}

impl Part {
    fn new(from: u32, at: u64) -> Part {
        Part {
            from,
            at,
            gathered: Vec::new(),
        }
    }

    fn push(&mut self, line: &[u8], to: &File) -> io::Result<()> {
        self.gathered.extend_from_slice(line);
        match self.gathered.len() {
            0..GATHERED => Ok(()),
            _ => self.flush(to),
        }
    }

    fn flush(&mut self, to: &File) -> io::Result<()> {
        to.write_all_at(&self.gathered, self.at)?;
        self.at += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

/// A file that goes with this process.
fn nameless_file() -> std::io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("senko-dump-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut how = OpenOptions::new();
    let file = how
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The seconds of access of what was listed with these, as the list gives them back.
    fn sorted(seconds: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut spool = Spool::new().unwrap();
        for (number, second) in seconds.enumerate() {
            let line = format!("key={number} exp=-1 la={second} cas=1 size=60");
            spool.push(line.as_bytes()).unwrap();
        }
        let lines = spool.latest_first().unwrap().lines();
        lines
            .map(|line| accessed(line.unwrap().as_bytes()))
            .collect()
    }

    #[test]
    fn seconds_that_are_few_are_sorted() {
        let seconds = || (0..50_000_u32).map(|n| 1_700_000_000 + n * 7919 % 50);
        let mut expected: Vec<u32> = seconds().collect();
        expected.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(sorted(seconds()), expected);
        assert_eq!(sorted([].into_iter()), []);
        assert_eq!(sorted([0, u32::MAX, 5].into_iter()), [u32::MAX, 5, 0]);
    }

    /// With more seconds than rows, each line comes once, and at most a part too late.
    #[test]
    fn seconds_of_a_day_are_sorted_in_parts() {
        const LINES: u32 = 100_000;
        let seconds = || (0..LINES).map(|n| 1_700_000_000 + n * 7919 % LINES);
        let found = sorted(seconds());
        let mut all = found.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(1_700_000_000..1_700_000_000 + LINES));
        let late = 2 * LINES as usize / PARTS as usize;
        for (at, second) in found.iter().enumerate() {
            let place = (1_700_000_000 + LINES - 1 - second) as usize;
            assert!(place.abs_diff(at) <= late, "{second} at {at}");
        }
    }

    #[test]
    fn the_order_stays_for_who_wants_it() {
        let mut spool = Spool::new().unwrap();
        for second in [3, 9, 1] {
            spool.push(format!("la={second}").as_bytes()).unwrap();
        }
        let lines: Vec<String> = spool
            .into_order_of_arrival()
            .unwrap()
            .lines()
            .map(Result::unwrap)
            .collect();
        assert_eq!(lines, ["la=3", "la=9", "la=1"]);
        assert_eq!(accessed(b"key=a exp=-1"), u32::MAX);
    }
}
