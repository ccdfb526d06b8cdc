// SPDX-License-Identifier: Apache-2.0
//! The block device of a file, and the kernel's counts of its operations (`/proc/diskstats`).
//!
//! The counts include all processes: an experiment compares them with the server's own, and reports
//! a difference.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its name in `/proc/diskstats`.
    pub name: String,
    /// The manufacturer's name for it; virtual devices have none.
    pub model: Option<String>,
    pub bytes: u64,
    /// Whether it reports to be a rotating disk; virtual devices often do.
    pub rotational: Option<bool>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
}

/// A device's counters since the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
}

senko_io::counters! {
    DiskCounts: reads read_bytes writes written_bytes
}

/// Major and minor number of a device, from `st_dev`, as glibc extracts them.
fn split(dev: u64) -> (u64, u64) {
    let major = (dev >> 8 & 0xfff) | (dev >> 32 & !0xfff);
    let minor = (dev & 0xff) | (dev >> 12 & !0xff);
    (major, minor)
}

/// The source of the mount whose device is `major:minor`, for file systems that are not on a single
/// block device by number.
fn mount_source(mountinfo: &str, device: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (left.split(' ').nth(2)? == device).then(|| right.split(' ').nth(1).map(str::to_owned))?
    })
}

impl BlockDevice {
    /// The device that `path` lies on.
    pub fn of(path: &Path) -> Result<BlockDevice, String> {
        let metadata = fs::metadata(path)
            .map_err(|error| format!("{} cannot be found: {error}", path.display()))?;
        let (major, minor) = split(metadata.st_dev());
        let numbers = format!("{major}:{minor}");
        let none = || {
            format!(
                "{} lies on no block device with statistics of its own",
                path.display()
            )
        };
        let mut folder = fs::canonicalize(format!("/sys/dev/block/{numbers}"));
        if folder.is_err() {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let source = mount_source(&mounts, &numbers).ok_or_else(none)?;
            let real = fs::canonicalize(source).map_err(|_| none())?;
            let name = real.file_name().ok_or_else(none)?;
            folder = fs::canonicalize(Path::new("/sys/class/block").join(name));
        }
        let folder = folder.map_err(|_| none())?;
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(none)?
            .to_owned();
        // Model and queue of a partition are those of its disk.
        let disk = if folder.join("partition").exists() {
            folder.parent().unwrap_or(&folder)
        } else {
            &folder
        };
        let read = |file: &str| {
            let text = fs::read_to_string(disk.join(file)).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let sectors = fs::read_to_string(folder.join("size"))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        let device = BlockDevice {
            name,
            model: read("device/model").or_else(|| read("serial")),
            bytes: sectors.unwrap_or(0) * 512,
            rotational: read("queue/rotational").map(|text| text == "1"),
            scheduler: read("queue/scheduler").map(|text| chosen(&text)),
        };
        device.counts()?;
        Ok(device)
    }

    pub fn counts(&self) -> Result<DiskCounts, String> {
        let text = fs::read_to_string("/proc/diskstats")
            .map_err(|error| format!("/proc/diskstats cannot be read: {error}"))?;
        parse_counts(&text, &self.name)
            .ok_or_else(|| format!("/proc/diskstats does not know {}", self.name))
    }

    /// As in a result line.
    pub fn describe(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("name".into(), json!(self.name));
        map.insert("model".into(), json!(self.model));
        map.insert("bytes".into(), json!(self.bytes));
        map.insert("rotational".into(), json!(self.rotational));
        map.insert("scheduler".into(), json!(self.scheduler));
        map
    }
}

/// `[mq-deadline]` among `none [mq-deadline] kyber`.
fn chosen(schedulers: &str) -> String {
    schedulers
        .split_whitespace()
        .find_map(|name| name.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(schedulers)
        .to_owned()
}

fn parse_counts(diskstats: &str, name: &str) -> Option<DiskCounts> {
    diskstats.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(2);
        if fields.next()? != name {
            return None;
        }
        let numbers: Vec<u64> = fields
            .take(7)
            .map_while(|field| field.parse().ok())
            .collect();
        // Fields: reads, merged, sectors, ms, writes, merged, sectors.
        let [reads, _, read_sectors, _, writes, _, write_sectors] = numbers.try_into().ok()?;
        Some(DiskCounts {
            reads,
            read_bytes: read_sectors * 512,
            writes,
            written_bytes: write_sectors * 512,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKSTATS: &str = "   7       0 loop0 102 0 816 7 39 0 0 100 0 152 332 60 0 4800 124 39 99\n \
        254       0 vda 135281541 21584098 2026876074 99099498 5586849 867330 1053824328 1010876 0 1721520 100370967 349723 88 1 2 3 4\n \
        254       1 vda1 5 6\n";

    #[test]
    fn diskstats_are_read_by_name() {
        let counts = parse_counts(DISKSTATS, "vda").unwrap();
        assert_eq!(counts.reads, 135_281_541);
        assert_eq!(counts.read_bytes, 2_026_876_074 * 512);
        assert_eq!(counts.writes, 5_586_849);
        assert_eq!(counts.written_bytes, 1_053_824_328 * 512);
        assert_eq!(parse_counts(DISKSTATS, "vd"), None);
        assert_eq!(
            parse_counts(DISKSTATS, "vda1"),
            None,
            "a short line is not a line"
        );
        let later = DiskCounts {
            reads: counts.reads + 3,
            ..counts
        };
        assert_eq!(later.since(&counts).reads, 3);
    }

    #[test]
    fn device_numbers() {
        assert_eq!(split(0xfe00), (254, 0));
        assert_eq!(
            split(0x0010_3503),
            (0x35, 0x103),
            "minors have twenty bits, in two parts"
        );
    }

    #[test]
    fn mounts_and_schedulers() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n30 27 0:42 /a /b rw shared:1 - btrfs /dev/sdb2 rw\n";
        assert_eq!(mount_source(mounts, "0:42").as_deref(), Some("/dev/sdb2"));
        assert_eq!(mount_source(mounts, "0:43"), None);
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }
}
