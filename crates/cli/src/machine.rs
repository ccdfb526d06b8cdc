// SPDX-License-Identifier: Apache-2.0
//! The machine's memory and cores. Read once at start, for the defaults.

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sane() {
        assert!((32 << 20..=1 << 30).contains(&default_memory()));
        assert!(cores() >= 1);
    }
}
