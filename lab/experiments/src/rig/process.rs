// SPDX-License-Identifier: Apache-2.0
//! The kernel's counts of a process: its memory, and its bytes read from and written to devices.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

/// Bytes that a process caused to be read from and written to devices; reads from a cache do not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    pub read: u64,
    pub written: u64,
}

/// Memory of the machine that is available now, in bytes; `None` if the kernel does not report it.
pub fn available_memory() -> Option<u64> {
    kernel_bytes("/proc/meminfo", "MemAvailable")
}

/// A size in a file of lines `name: number kB`, in bytes.
pub fn kernel_bytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.strip_prefix(':')?.trim().strip_suffix(" kB")?;
    number.parse::<u64>().ok().map(|kib| kib << 10)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))
}

/// Lets other processes run before the threads of `pid`, and before those that they will start.
pub fn step_back(pid: u32) -> Result<()> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = entry?.file_name().to_string_lossy().parse()?;
        super::sys::goes_last(thread)?;
    }
    Ok(())
}

pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let text = read(&path)?;
    parse_memory(&text).with_context(|| format!("{path} has an unknown form"))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line[name.len()..]
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    };
    Some(Memory {
        resident: kib("VmRSS:")? << 10,
        peak: kib("VmHWM:")? << 10,
    })
}

/// Bytes that process `pid` has read and written so far.
pub fn io(pid: u32) -> Result<Io> {
    let path = format!("/proc/{pid}/io");
    let text = read(&path)?;
    parse_io(&text).with_context(|| format!("{path} has an unknown form"))
}

fn parse_io(text: &str) -> Option<Io> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(Io {
        read: value("read_bytes:")?,
        written: value("write_bytes:")?,
    })
}

/// Bytes that process `pid` passed to write calls, whether or not they reached a device.
pub fn write_calls(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    let bytes = line.and_then(|number| number.trim().parse().ok());
    bytes.with_context(|| format!("{path} has an unknown form"))
}

/// The files in `folder` that process `pid` has mapped, each once.
pub fn mapped(pid: u32, folder: &Path) -> Result<Vec<PathBuf>> {
    let path = format!("/proc/{pid}/maps");
    let text = read(&path)?;
    Ok(parse_mapped(&text, folder))
}

fn parse_mapped(maps: &str, folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .filter(|file| file.starts_with(folder))
        .collect();
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let status = "Name:\tsenko\nVmPeak:\t  9 kB\nVmHWM:\t    1024 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(
            parse_memory(status),
            Some(Memory {
                resident: 512 << 10,
                peak: 1 << 20
            })
        );
        assert_eq!(parse_memory("Name: kthreadd\n"), None);
        let io =
            "rchar: 5\nwchar: 6\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        assert_eq!(
            parse_io(io),
            Some(Io {
                read: 4096,
                written: 8192
            })
        );
        assert_eq!(parse_io("rchar: 5\n"), None);
    }

    #[test]
    fn mapped_files() {
        let maps = "55d0-55d1 r--p 0000 fe:00 12 /usr/bin/senko\n\
                    7f00-7f01 rw-s 0000 00:18 2 /dev/shm/senko-1/0.items\n\
                    7f01-7f02 rw-s 1000 00:18 2 /dev/shm/senko-1/0.items\n\
                    7f02-7f03 rw-p 0000 00:00 0\n7ffd-7ffe rw-p 0000 00:00 0 [stack]\n";
        assert_eq!(
            parse_mapped(maps, Path::new("/dev/shm")),
            [PathBuf::from("/dev/shm/senko-1/0.items")]
        );
        assert!(
            !mapped(std::process::id(), Path::new("/"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn this_process_has_memory() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
        assert!(super::memory(u32::MAX).is_err());
    }
}
