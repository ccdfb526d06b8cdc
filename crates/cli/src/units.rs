// SPDX-License-Identifier: Apache-2.0
//! Sizes, rates and the other small values that options and the TOML file share. Each has a type
//! that is parsed by [`FromStr`], so both refuse the same values with the same messages.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use senko_io::counted;
use senko_server::settings::{
    AdmissionRule, BackendChoice, Budget, Dialect, FlashSpec, PolicyKind, TlsVerify,
};
use senko_workload::{SpecError, units};

/// Writes bytes in readable form: `256m`, `4g`, `1.5g`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    for (unit, name) in UNITS {
        if bytes >= unit {
            let whole = bytes as f64 / unit as f64;
            return if bytes.is_multiple_of(unit) {
                format!("{} {name}", bytes / unit)
            } else {
                format!("{whole:.1} {name}")
            };
        }
    }
    counted(bytes, "byte")
}

/// A size in bytes, which are also what a plain number means.
pub fn size_of(text: &str) -> Result<u64, String> {
    units::size(text, 1).map_err(|error| error.to_string())
}

/// A whole number in a range.
pub fn within<T>(text: &str, least: T, most: T) -> Result<T, String>
where
    T: TryFrom<u64> + PartialOrd + fmt::Display,
{
    let number: T = units::count(text).map_err(|error| error.to_string())?;
    if (&least..=&most).contains(&&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not in the range {least} to {most}"))
    }
}

/// A whole number that must not be 0, because there would be nothing to do.
pub fn at_least_one<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    match units::count::<u64>(text) {
        Ok(0) => Err("it must be at least 1".to_owned()),
        _ => units::count(text).map_err(|error| error.to_string()),
    }
}

/// The most items to print or take. 0 means none to some programs and all to others, so it is
/// refused.
pub fn limit(text: &str) -> Result<u64, String> {
    let hint = |error| format!("{error}; without the option there is no limit");
    match units::count::<u64>(text) {
        Ok(0) => at_least_one(text).map_err(hint),
        _ => at_least_one(text),
    }
}

/// A factor that is not 0.
pub fn factor(text: &str) -> Result<f64, String> {
    match units::number(text) {
        Ok(0.0) => Err("it must be more than 0".to_owned()),
        factor => factor.map_err(|error| error.to_string()),
    }
}

/// A size that is not 0.
pub fn some_bytes(text: &str) -> Result<Bytes, String> {
    match units::size(text, 1) {
        Ok(0) => Err("it must be at least 1 byte".to_owned()),
        size => size.map(Bytes).map_err(|error| error.to_string()),
    }
}

/// A time in whole seconds, for a protocol or a setting without fractions; 0 is allowed.
pub fn whole_seconds(text: &str) -> Result<u32, String> {
    let time = units::time(text, Duration::from_secs(1)).map_err(|error| error.to_string())?;
    match u32::try_from(time.as_secs()) {
        Ok(seconds) if time.subsec_nanos() == 0 => Ok(seconds),
        Ok(_) => Err(format!("\"{text}\" is not a time of whole seconds")),
        Err(_) => Err(format!("\"{text}\" is too long a time")),
    }
}

/// A time in microseconds, which are also what a plain number means.
pub fn microseconds(text: &str) -> Result<f64, String> {
    if let Ok(number) = units::number(text) {
        return Ok(number);
    }
    let time = units::time(text, Duration::from_micros(1)).map_err(|error| error.to_string())?;
    Ok(time.as_nanos() as f64 / 1e3)
}

/// [`some_bytes`] as text, for a value that is parsed again when it is used.
pub fn some_bytes_text(text: &str) -> Result<String, String> {
    some_bytes(text).map(|_| text.to_owned())
}

/// A size that is parsed again when it is used. It is checked with the other options, before
/// anything is read.
pub fn size_text(text: &str) -> Result<String, SpecError> {
    units::size(text, 1).map(|_| text.to_owned())
}

/// Bytes; a plain number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Bytes, SpecError> {
        units::size(text, 1).map(Bytes)
    }
}

/// Bytes; a plain number is megabytes, as memcached's `-m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Megabytes(pub u64);

impl FromStr for Megabytes {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Megabytes, SpecError> {
        units::size(text, 1 << 20).map(Megabytes)
    }
}

/// A flash file: `PATH:SIZE`, or `PATH` alone for a block device or an existing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash(pub FlashSpec);

impl FromStr for Flash {
    type Err = String;
    fn from_str(text: &str) -> Result<Flash, String> {
        let (path, bytes) = match text.rsplit_once(':') {
            Some((path, size)) if !size.contains('/') => {
                let bytes = units::size(size, 1).map_err(|e| format!("in \"{text}\": {e}"))?;
                if bytes == 0 {
                    return Err(format!("in \"{text}\": the size is 0"));
                }
                (path, bytes)
            }
            _ => (text, 0),
        };
        if path.is_empty() {
            return Err(format!(
                "\"{text}\" names no path; write PATH:SIZE, such as /var/cache/senko.flash:4g"
            ));
        }
        Ok(Flash(FlashSpec {
            path: PathBuf::from(path),
            bytes,
        }))
    }
}

/// A write budget: `100g/day`, `20m/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBudget(pub Budget);

impl FromStr for WriteBudget {
    type Err = String;
    fn from_str(text: &str) -> Result<WriteBudget, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a write budget; write bytes per second or day, such as 20m/s or 100g/day"
            )
        };
        let Ok((bytes, Some(seconds))) = units::byte_rate(text) else {
            return Err(wrong());
        };
        let bytes_per_second = bytes / seconds;
        if bytes_per_second == 0 {
            return Err(format!(
                "the write budget \"{text}\" is less than a byte a second; to write nothing at all use --no-flash"
            ));
        }
        // A budget per day may be spent in bursts of minutes, a budget per second in bursts of
        // seconds. A region has to fit.
        let burst = bytes_per_second
            .saturating_mul(10)
            .max(bytes / 288)
            .max(32 << 20);
        Ok(WriteBudget(Budget {
            bytes_per_second,
            burst,
        }))
    }
}

/// Bytes a second: `32m/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(pub u64);

impl FromStr for ByteRate {
    type Err = String;
    fn from_str(text: &str) -> Result<ByteRate, String> {
        match units::byte_rate(text) {
            Ok((bytes, Some(seconds))) if bytes / seconds > 0 => Ok(ByteRate(bytes / seconds)),
            _ => Err(format!(
                "\"{text}\" is not a rate of a byte a second or more; write bytes and a time, such as 32m/s"
            )),
        }
    }
}

/// `--admission`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub AdmissionRule);

impl FromStr for Rule {
    type Err = String;
    fn from_str(text: &str) -> Result<Rule, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not an admission rule; it is one of all, fetched, random:P (P in percent, 1 to 100), bytes:SIZE"
            )
        };
        match text {
            "all" => Ok(Rule(AdmissionRule::All)),
            "fetched" => Ok(Rule(AdmissionRule::Fetched)),
            _ if text.starts_with("bytes:") => match text["bytes:".len()..].parse() {
                Ok(Bytes(most)) if most > 0 => Ok(Rule(AdmissionRule::Bytes(most))),
                _ => Err(wrong()),
            },
            _ => {
                let percent = text.strip_prefix("random:").ok_or_else(wrong)?;
                match units::count::<u8>(percent.trim_end_matches('%')) {
                    Ok(p @ 1..=100) => Ok(Rule(AdmissionRule::Random(p))),
                    _ => Err(wrong()),
                }
            }
        }
    }
}

/// Makes a type whose values are a fixed list of words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $($word:literal => $value:expr),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name($value)),)+
                    _ => Err(format!(concat!("\"{}\" is no ", $what, "; it is one of {}"), text, [$($word),+].join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if self.0 == $value { return f.write_str($word); })+
                Ok(())
            }
        }
            };
}

words!(
    /// `--policy`.
    Policy(PolicyKind), "eviction policy", "s3-fifo" => PolicyKind::S3Fifo, "lru" => PolicyKind::Lru
);
words!(
    /// `--io`.
    Io(BackendChoice), "I/O backend",
    "auto" => BackendChoice::Auto, "uring" => BackendChoice::Uring, "posix" => BackendChoice::Posix
);
words!(
    /// `-B`.
    Protocol(Option<Dialect>), "protocol",
    "auto" => None, "ascii" => Some(Dialect::Ascii), "binary" => Some(Dialect::Binary)
);

words!(
    /// `--tls-verify-mode`, by memcached's numbers too.
    Verify(TlsVerify), "way to verify clients",
    "none" => TlsVerify::None, "request" => TlsVerify::Request, "require" => TlsVerify::Require,
    "once" => TlsVerify::Once, "0" => TlsVerify::None, "1" => TlsVerify::Request,
    "2" => TlsVerify::Require, "3" => TlsVerify::Once
);
words!(
    /// `--tls-min-version`: whether only 1.3 is accepted.
    TlsVersion(bool), "version of TLS", "1.2" => false, "1.3" => true
);

/// An access mask in octal digits (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octal(pub u32);

impl FromStr for Octal {
    type Err = String;
    fn from_str(text: &str) -> Result<Octal, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mask) if mask <= 0o777 => Ok(Octal(mask)),
            _ => Err(format!(
                "\"{text}\" is not an access mask; write three octal digits, such as 700"
            )),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(units::size("256m", 1), Ok(256 << 20));
        assert_eq!(units::size("1.5G", 1), Ok(3 << 29));
        assert_eq!(units::size("4GiB", 1), Ok(4 << 30));
        assert_eq!(units::size("64", 1 << 20), Ok(64 << 20));
        assert_eq!(units::size("64b", 1 << 20), Ok(64));
        assert_eq!(units::size("2T", 1), Ok(2 << 40));
        for bad in [
            "",
            "m",
            "12q",
            "-1",
            "1 2",
            "99999999999999t",
            "1e400g",
            "0x10",
            "1..2m",
        ] {
            assert!(units::size(bad, 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_sizes() {
        assert_eq!(show_size(4 << 30), "4 GiB");
        assert_eq!(show_size(3 << 29), "1.5 GiB");
        assert_eq!(show_size(100), "100 bytes");
    }

    #[test]
    fn flash_specs() {
        let Flash(f) = "/a/b:4g".parse().unwrap();
        assert_eq!((f.path.to_str().unwrap(), f.bytes), ("/a/b", 4 << 30));
        let Flash(f) = "/dev/disk/by-id/x:1/y".parse().unwrap();
        assert_eq!(
            (f.path.to_str().unwrap(), f.bytes),
            ("/dev/disk/by-id/x:1/y", 0)
        );
        assert!(":4g".parse::<Flash>().is_err());
        assert!("/a:".parse::<Flash>().is_err());
        assert!("/a:0".parse::<Flash>().is_err());
        assert!("/a:4x".parse::<Flash>().is_err());
    }

    #[test]
    fn budgets() {
        let WriteBudget(b) = "20m/s".parse().unwrap();
        assert_eq!(b.bytes_per_second, 20 << 20);
        let WriteBudget(b) = "100g/day".parse().unwrap();
        assert_eq!(b.bytes_per_second, (100 << 30) / 86_400);
        for bad in ["20m", "20m/fortnight", "/s", "1/day", "x/s"] {
            assert!(bad.parse::<WriteBudget>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rules_and_words() {
        assert_eq!(
            "random:25".parse::<Rule>().unwrap().0,
            AdmissionRule::Random(25)
        );
        assert_eq!(
            "bytes:64k".parse::<Rule>().unwrap().0,
            AdmissionRule::Bytes(64 << 10)
        );
        for wrong in ["bytes:0", "bytes:", "bytes:x", "bytes"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
        assert!("random:0".parse::<Rule>().is_err());
        assert!("random:101".parse::<Rule>().is_err());
        assert_eq!("s3-fifo".parse::<Policy>().unwrap().0, PolicyKind::S3Fifo);
        assert!(
            "mru"
                .parse::<Policy>()
                .unwrap_err()
                .contains("s3-fifo, lru")
        );
        assert_eq!("755".parse::<Octal>().unwrap().0, 0o755);
        assert!("789".parse::<Octal>().is_err());
    }
}
