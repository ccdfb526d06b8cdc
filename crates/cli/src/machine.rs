// SPDX-License-Identifier: Apache-2.0
//! The machine's memory, free space and cores. Read once at start, for the defaults.

use std::io;
use std::path::Path;

/// Default memory cap: 1 GiB, but at most a quarter of the memory of the machine (or the
/// container).
pub fn default_memory() -> u64 {
    let quarter = usable_memory().map_or(u64::MAX, |bytes| bytes / 4);
    (1 << 30).min(quarter & !((1 << 20) - 1)).max(32 << 20)
}

/// Memory of the machine, or of the container if that has less.
pub fn usable_memory() -> Option<u64> {
    [physical_memory(), container_memory()]
        .into_iter()
        .flatten()
        .min()
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn physical_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

fn container_memory() -> Option<u64> {
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .filter_map(|path| std::fs::read_to_string(path).ok())
    .filter_map(|text| text.trim().parse().ok())
    .min()
}

/// Bytes that an ordinary user may still write to the file system of `path`.
#[allow(unsafe_code)]
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is NUL-terminated and the answer is writable memory of the right type; both
    // outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the struct (which was zeroed before).
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sane() {
        assert!((32 << 20..=1 << 30).contains(&default_memory()));
        assert!(cores() >= 1);
        assert!(free_bytes(Path::new("/")).is_ok());
        assert!(free_bytes(Path::new("/no/such/folder")).is_err());
    }
}
