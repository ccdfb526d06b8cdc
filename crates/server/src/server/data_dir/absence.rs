// SPDX-License-Identifier: Apache-2.0
//! `--max-absence`: a start that comes too long after the previous server begins empty.
//!
//! Clients and proxies that drop a node send its keys to other nodes. The keys are changed and
//! deleted there, and the absent node does not know. If it came back warm, it would answer with
//! outdated values. So the operator sets the longest absence that is harmless.
//!
//! A server stores its latest second before it answers anything by it (RESTART-9). If the system's
//! clock is behind that second, the length of the absence is unknown, and the start is empty too.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::settings::Settings;

/// Why a start now comes too late after `last`, the last Unix second of the previous server; 0:
/// there was none.
pub(super) fn too_long(settings: &Settings, last: u32) -> Option<String> {
    let now = match &settings.clock {
        Some(clock) => clock.load(std::sync::atomic::Ordering::Acquire) / 1000,
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    judge(settings.max_absence?, u64::from(last), now)
}

fn judge(most: u32, last: u64, now: u64) -> Option<String> {
    if last == 0 {
        return None;
    }
    if now + 1 < last {
        return Some(format!(
            "the system's clock is {} s behind the last second of the previous server, so nobody knows how long \
             it was away (--max-absence)",
            last - now
        ));
    }
    // Both are whole seconds, so the absence may have been a second longer.
    let away = now.saturating_sub(last) + 1;
    (away > u64::from(most))
        .then(|| format!("the server was away for {away} s, and --max-absence allows {most} s"))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn an_absence_is_never_taken_for_a_shorter_one() {
        assert_eq!(judge(30, 1000, 1029), None);
        assert!(judge(30, 1000, 1030).is_some_and(|why| why.contains("away for 31 s")));
        // The clock was set back. One second may be rounding; otherwise the length is unknown.
        assert_eq!(judge(30, 1000, 999), None);
        assert!(judge(30, 1000, 998).is_some_and(|why| why.contains("2 s behind")));
        // No command was ever answered.
        assert_eq!(judge(30, 0, 1029), None);
    }
}
