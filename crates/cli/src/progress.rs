// SPDX-License-Identifier: Apache-2.0
//! The time that is left, for the lines on stderr that say how far a command is.

use std::time::Duration;

/// The time that is left when `share` of the work, 0 to 1, took `past`: `40 s left`, `3 min left`. Empty
/// while nothing is known.
pub fn time_left(past: Duration, share: f64) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let seconds = past.as_secs_f64() * (1.0 - share.min(1.0)) / share;
    match seconds.round() as u64 {
        s @ 0..120 => format!("{s} s left"),
        s @ 120..7200 => format!("{} min left", s / 60),
        s @ 7200..172_800 => format!("{} h left", s / 3600),
        s => format!("{} days left", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_has_a_unit_that_fits() {
        let left = |seconds, share| time_left(Duration::from_secs(seconds), share);
        assert_eq!(left(10, 0.25), "30 s left");
        assert_eq!(left(10, 1.0), "0 s left");
        assert_eq!(left(10, 1.1), "0 s left");
        assert_eq!(left(10, 0.0), "");
        assert_eq!(left(60, 0.1), "9 min left");
        assert_eq!(left(3600, 0.1), "9 h left");
        assert_eq!(left(86_400, 0.01), "99 days left");
    }
}
