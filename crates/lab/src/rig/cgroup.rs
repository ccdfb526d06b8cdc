// SPDX-License-Identifier: Apache-2.0
//! A cap on the memory of a server: a group of the kernel's memory controller, version 1 or 2.
//!
//! The cap covers the page cache of the files that the server reads, which is the point: without it the machine's free
//! memory would hold the flash file, and a measurement of flash would measure DRAM. It needs root.
//!
//! Version 1 groups are made below the group of this process; version 2 groups below the root, because a group that holds
//! processes may have no controlled children.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::cleanup::{self, Guard, Undo};
use super::sys;

/// What a group's name begins with; the number of the process that made it follows.
const PREFIX: &str = "senko-lab-";

/// The version of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`.
    V2,
}

/// A group with a limit; it goes away with its owner, after the processes in it.
#[derive(Debug)]
pub struct MemoryCap {
    folder: PathBuf,
    version: Version,
    bytes: u64,
    _guard: Guard,
}

/// Where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    parent: PathBuf,
    version: Version,
}

/// The memory controller's mount among `/proc/self/mountinfo`, and the folder under it for new groups, from `/proc/self/cgroup`.
fn find(mountinfo: &str, own: &str) -> Option<Place> {
    let mounts: Vec<(&str, &str, &str, &str)> = mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            // root in the file system, mount point, type, options of the file system
            Some((
                *left.get(3)?,
                *left.get(4)?,
                *right.first()?,
                *right.get(2)?,
            ))
        })
        .collect();
    let v1 = mounts.iter().find(|(_, _, kind, options)| {
        *kind == "cgroup" && options.split(',').any(|option| option == "memory")
    });
    if let Some((root, point, _, _)) = v1 {
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            parts
                .next()?
                .split(',')
                .any(|controller| controller == "memory")
                .then(|| parts.next())?
        });
        let inside = path
            .and_then(|path| Path::new(path).strip_prefix(root).ok())
            .unwrap_or(Path::new(""));
        return Some(Place {
            parent: Path::new(point).join(inside),
            version: Version::V1,
        });
    }
    let (_, point, _, _) = mounts.iter().find(|(_, _, kind, _)| *kind == "cgroup2")?;
    Some(Place {
        parent: PathBuf::from(point),
        version: Version::V2,
    })
}

impl MemoryCap {
    /// Makes a group that may use `bytes` of memory, and swap only with `may_swap`.
    ///
    /// # Errors
    /// One sentence that says why a cap is impossible here.
    pub fn new(bytes: u64, may_swap: bool) -> Result<MemoryCap, String> {
        if !sys::is_root() {
            return Err("capping memory by cgroup needs root".to_owned());
        }
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let place = find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
            .ok_or("no cgroup file system with the memory controller is mounted")?;
        Self::make(place, bytes, may_swap)
    }

    fn make(place: Place, bytes: u64, may_swap: bool) -> Result<MemoryCap, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        sweep(&place.parent);
        let folder = place
            .parent
            .join(format!("{PREFIX}{}-{number}", std::process::id()));
        if place.version == Version::V2 {
            // Refused where it is set already by someone who does not let us; the missing file below tells.
            drop(fs::write(
                place.parent.join("cgroup.subtree_control"),
                "+memory",
            ));
        }
        fs::create_dir(&folder)
            .map_err(|error| format!("the group {} cannot be made: {error}", folder.display()))?;
        let cap = MemoryCap {
            _guard: cleanup::later(Undo::RemoveGroup(folder.clone())),
            folder,
            version: place.version,
            bytes,
        };
        let (limit, swap) = match cap.version {
            Version::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            Version::V2 => ("memory.max", "memory.swap.max"),
        };
        cap.set(limit, bytes)?;
        if cap.version == Version::V1 {
            // Who swaps hard is killed else for a moment without progress; like this it waits. Not every kernel offers it.
            drop(cap.set("memory.oom_control", 1));
        }
        if !may_swap {
            // Version 1 counts memory and swap together, version 2 swap alone.
            let most = if cap.version == Version::V1 { bytes } else { 0 };
            if cap.set(swap, most).is_err() && cap.version == Version::V1 {
                cap.set("memory.swappiness", 0)?;
            }
        }
        Ok(cap)
    }

    fn set(&self, file: &str, value: u64) -> Result<(), String> {
        let path = self.folder.join(file);
        fs::write(&path, value.to_string())
            .map_err(|error| format!("{} cannot be set: {error}", path.display()))
    }

    fn get(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// The file that a process writes itself into to be a member.
    ///
    /// # Errors
    /// One sentence, if it cannot be opened.
    pub fn members(&self) -> Result<File, String> {
        let path = self.folder.join("cgroup.procs");
        let file = OpenOptions::new().write(true).open(&path);
        file.map_err(|error| format!("{} cannot be opened: {error}", path.display()))
    }

    /// The limit, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most memory that was ever in use, page cache included, where the kernel says so.
    pub fn peak(&self) -> Option<u64> {
        self.get(match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        })
    }

    /// Bytes of page cache that the group holds now.
    pub fn page_cache(&self) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "cache",
            Version::V2 => "file",
        };
        stat_field(
            &fs::read_to_string(self.folder.join("memory.stat")).ok()?,
            name,
        )
    }
}

/// Removes the groups that runs which were killed have left.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| {
            let number = name.strip_prefix(PREFIX)?.split('-').next()?;
            number.parse::<u32>().ok()
        });
        if pid.is_some_and(|pid| !cleanup::is_alive(pid)) {
            drop(fs::remove_dir(entry.path()));
        }
    }
}

/// A line `name value` of `memory.stat`.
fn stat_field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn version_one_is_found_below_this_process() {
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "9:name=systemd:/\n4:memory:/user/one\n1:cpu,cpuacct:/\n0::/x\n";
        let place = find(mounts, own).unwrap();
        assert_eq!(place.parent, Path::new("/sys/fs/cgroup/memory/user/one"));
        assert_eq!(place.version, Version::V1);
        // In a container the mount shows a part of the tree, and the path is the whole tree's.
        let inner = mounts.replace("0:32 / ", "0:32 /user ");
        assert_eq!(
            find(&inner, own).unwrap().parent,
            Path::new("/sys/fs/cgroup/memory/one")
        );
    }

    #[test]
    fn version_two_is_found_at_its_root() {
        let mounts =
            "35 31 0:32 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let place = find(mounts, "0::/user.slice\n").unwrap();
        assert_eq!(
            (place.parent.as_path(), place.version),
            (Path::new("/sys/fs/cgroup"), Version::V2)
        );
        assert_eq!(find("27 1 254:0 / / rw - ext4 /dev/vda rw\n", ""), None);
    }

    #[test]
    fn stat_fields() {
        let stat = "cache 8192\nrss 4096\ntotal_cache 9\n";
        assert_eq!(stat_field(stat, "cache"), Some(8192));
        assert_eq!(stat_field(stat, "file"), None);
    }

    #[test]
    fn a_group_caps_and_goes_away() {
        let cap = match MemoryCap::new(64 << 20, false) {
            Ok(cap) => cap,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        assert_eq!(cap.bytes(), 64 << 20);
        assert!(cap.members().is_ok() && cap.page_cache().is_some());
        let folder = cap.folder.clone();
        assert!(folder.is_dir());
        drop(cap);
        assert!(!folder.exists());
    }
}
