// SPDX-License-Identifier: Apache-2.0
//! A cap on the memory of a server: a group of the kernel's memory controller, version 1 or 2.
//!
//! The cap includes the page cache of the files that the server reads. Without a cap, the machine's
//! free memory would cache the flash file, and a measurement of flash would measure DRAM. A cap
//! needs root.
//!
//! Version 1 groups are made below the group of this process. Version 2 groups are made below the
//! root, because a group with processes may have no controlled children.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cleanup::{self, Guard, PREFIX, Undo};
use super::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`.
    V2,
}

/// A group with a limit; it is removed with its owner, after its processes have ended.
#[derive(Debug)]
pub struct MemoryCap {
    folder: PathBuf,
    version: Version,
    bytes: u64,
    relief: Option<Relief>,
    _guard: Guard,
}

/// A thread that keeps a heavily swapping group from stalling.
///
/// Now and then the kernel finds no page to reclaim in such a group, though there is free swap:
/// every page was touched a moment ago. Then it kills a process, or, if told not to, lets the group
/// wait for memory that is never freed. The thread notices this and raises the limit by [`LIFT`],
/// again and again, until the group makes progress and the kernel finds pages to reclaim. Then it
/// restores the limit.
#[derive(Debug)]
struct Relief {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The step by which the limit of a stalled group is raised.
const LIFT: u64 = 128 << 10;
/// How long a group may take to swap out the memory above its limit.
const SWAP_OUT: Duration = Duration::from_secs(120);
/// The interval at which groups are checked.
const LOOK: Duration = Duration::from_millis(2);

/// Where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    parent: PathBuf,
    version: Version,
}

/// The memory controller's mount among `/proc/self/mountinfo`, and the folder under it for new
/// groups, from `/proc/self/cgroup`.
fn find(mountinfo: &str, own: &str) -> Option<Place> {
    let mounts: Vec<(&str, &str, &str, &str)> = mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            // Fields: root in the file system, mount point, type, options of the file system.
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
    pub fn new(bytes: u64, may_swap: bool) -> Result<MemoryCap> {
        ensure!(sys::is_root(), "capping memory by cgroup needs root");
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let place = find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
            .context("no cgroup file system with the memory controller is mounted")?;
        Self::make(place, bytes, may_swap)
    }

    fn make(place: Place, bytes: u64, may_swap: bool) -> Result<MemoryCap> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        for left in cleanup::leftovers(&place.parent) {
            drop(fs::remove_dir(left));
        }
        let folder = place
            .parent
            .join(format!("{PREFIX}{}-{number}", std::process::id()));
        if place.version == Version::V2 {
            // Refused if someone else has already set it and we may not change it; the check for
            // the missing file below detects that.
            drop(fs::write(
                place.parent.join("cgroup.subtree_control"),
                "+memory",
            ));
        }
        fs::create_dir(&folder)
            .with_context(|| format!("the group {} cannot be made", folder.display()))?;
        let mut cap = MemoryCap {
            relief: None,
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
        if !may_swap {
            // Version 1 counts memory and swap together, version 2 swap alone.
            let most = if cap.version == Version::V1 { bytes } else { 0 };
            if cap.set(swap, most).is_err() && cap.version == Version::V1 {
                cap.set("memory.swappiness", 0)?;
            }
        }
        if may_swap {
            cap.keep_moving()?;
        }
        Ok(cap)
    }

    /// Makes heavy swapping lead to waiting, not to a kill.
    fn keep_moving(&mut self) -> Result<()> {
        if self.version == Version::V2 {
            // Above `high` the kernel makes processes wait while it swaps. The limit `max`, at
            // which it kills, is higher.
            self.set("memory.high", self.bytes)?;
            return self.set("memory.max", self.bytes + self.bytes / 4);
        }
        if self.set("memory.oom_control", 1).is_err() {
            return Ok(());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (folder, bytes, stopped) = (self.folder.clone(), self.bytes, Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("lab-relief".into())
            .spawn(move || {
                let limit = folder.join("memory.limit_in_bytes");
                let mut lifted = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let state = fs::read_to_string(folder.join("memory.oom_control"));
                    let stands =
                        state.is_ok_and(|state| stat_field(&state, "under_oom") == Some(1));
                    if stands {
                        // Only a raised limit wakes the waiting processes.
                        lifted += LIFT;
                        drop(fs::write(&limit, (bytes + lifted).to_string()));
                    } else if lifted > 0 && fs::write(&limit, bytes.to_string()).is_ok() {
                        // It fails while too little memory can be reclaimed, and is tried again.
                        lifted = 0;
                    }
                    thread::sleep(LOOK);
                }
            })
            .context("a thread cannot be started")?;
        self.relief = Some(Relief { stop, thread });
        Ok(())
    }

    /// Calls `filling` without the limit and then sets it again. The memory above it is swapped out
    /// at once, while a group that fills at its limit waits for every page.
    pub fn fill_first<T>(&self, filling: impl FnOnce() -> T) -> Result<T> {
        let (limits, none): (&[(&str, u64)], _) = match self.version {
            Version::V1 => (&[("memory.limit_in_bytes", self.bytes)], "-1"),
            Version::V2 => (
                &[
                    ("memory.high", self.bytes),
                    ("memory.max", self.bytes + self.bytes / 4),
                ],
                "max",
            ),
        };
        for (file, _) in limits {
            self.set(file, none)?;
        }
        let filled = filling();
        for (file, bytes) in limits {
            // Refused while the kernel can reclaim too little; the next attempt continues from
            // there.
            let end = Instant::now() + SWAP_OUT;
            while let Err(why) = self.set(file, bytes) {
                if Instant::now() > end {
                    return Err(why);
                }
                thread::sleep(LOOK);
            }
        }
        Ok(filled)
    }

    fn set(&self, file: &str, value: impl Display) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value.to_string())
            .with_context(|| format!("{} cannot be set", path.display()))
    }

    fn get(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// The file into which a process writes itself to become a member.
    pub fn members(&self) -> Result<File> {
        let path = self.folder.join("cgroup.procs");
        let file = OpenOptions::new().write(true).open(&path);
        file.with_context(|| format!("{} cannot be opened", path.display()))
    }

    /// The peak memory use, page cache included, if the kernel reports it.
    pub fn peak(&self) -> Option<u64> {
        self.get(match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        })
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        if let Some(Relief { stop, thread }) = self.relief.take() {
            stop.store(true, Ordering::Relaxed);
            // The thread only reads and writes the group's files; a panic in it would change
            // nothing.
            drop(thread.join());
        }
    }
}

/// A line `name value` of a group's file.
fn stat_field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
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
        // In a container the mount shows a part of the tree, while the path is that in the whole
        // tree.
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
                eprintln!("skipped: {why:#}");
                return;
            }
        };
        assert!(cap.members().is_ok());
        drop(
            MemoryCap::new(64 << 20, true)
                .expect("a group that may swap is as possible as one that may not"),
        );
        let folder = cap.folder.clone();
        assert!(folder.is_dir());
        drop(cap);
        assert!(!folder.exists());
    }
}
