// SPDX-License-Identifier: Apache-2.0
//! One grammar: `4000000`, `4m` and `4e6` are the same number wherever a number is requested.

use std::time::Duration;

use senko_workload::units::{
    byte_rate, count, nearest, number, rate, share, size, time, time_above_zero,
};

/// `senko store bench --keys 4m` was in a help text, but used to be refused, as was `count=200k` of
/// a generator.
#[test]
fn counts() {
    for (text, wanted) in [
        ("0", 0),
        ("007", 7),
        ("4000000", 4_000_000),
        ("4m", 4_000_000),
        ("4M", 4_000_000),
        ("4e6", 4_000_000),
        ("4E+6", 4_000_000),
        ("40e5", 4_000_000),
        ("40000e-1", 4_000),
        ("200k", 200_000),
        ("200 k", 200_000),
        ("1.5m", 1_500_000),
        (".5k", 500),
        ("1.", 1),
        ("2g", 2_000_000_000),
        ("3t", 3_000_000_000_000),
        ("1e3k", 1_000_000),
        ("1.000000", 1),
        ("0e999999", 0),
        ("9007199254740993", 9_007_199_254_740_993),
        ("18446744073709551615", u64::MAX),
        ("0.000000000000000001e18", 1),
    ] {
        assert_eq!(count::<u64>(text), Ok(wanted), "{text}");
    }
    for text in [
        "", " ", "k", "-1", "+1", "1.5", "1e-1", "0x10", "1..2k", "1.2.3", "4x", "4kb", "4e", "e6",
        "1_000", "4mm", "inf", "nan", "1,000", "١",
    ] {
        let error = count::<u64>(text).expect_err(text).to_string();
        assert!(error.contains("is not a whole number"), "{text}: {error}");
    }
    for text in [
        "18446744073709551616",
        "99999999999999999999999",
        "1e20",
        "1e99999",
        "99999999t",
    ] {
        let error = count::<u64>(text).expect_err(text).to_string();
        assert!(error.contains("too large"), "{text}: {error}");
    }
    assert_eq!(count::<u32>("4294967295"), Ok(u32::MAX));
    assert!(
        count::<u32>("5g")
            .expect_err("2^32")
            .to_string()
            .contains("4294967295")
    );
    assert_eq!(count::<u8>("255"), Ok(255));
    assert!(count::<u8>("256").is_err());
    assert_eq!(count::<usize>("64k"), Ok(64_000));
}

#[test]
fn sizes() {
    for (text, wanted) in [
        ("256m", 256 << 20),
        ("1.5G", 3 << 29),
        ("4GiB", 4 << 30),
        ("4 kb", 4096),
        ("64b", 64),
        ("4096", 4096),
        ("4e6", 4_000_000),
        ("1e3k", 1_024_000),
        ("2T", 2 << 40),
        ("0.3k", 307),
        ("4611686018427387903", (1 << 62) - 1),
    ] {
        assert_eq!(size(text, 1), Ok(wanted), "{text}");
    }
    assert_eq!(size("64", 1 << 20), Ok(64 << 20));
    assert_eq!(size("64b", 1 << 20), Ok(64));
    for text in [
        "", "m", "12q", "-1", "1 2", "0x10", "1..2m", "1k/s", "2^10", "e4",
    ] {
        assert!(
            size(text, 1)
                .expect_err(text)
                .to_string()
                .contains("is not a size"),
            "{text}"
        );
    }
    for text in ["99999999999999t", "1e400g", "4611686018427387904", "1e30"] {
        assert!(
            size(text, 1)
                .expect_err(text)
                .to_string()
                .contains("too large"),
            "{text}"
        );
    }
}

#[test]
fn times() {
    let second = Duration::from_secs(1);
    for (text, millis) in [
        ("10", 10_000),
        ("1.5", 1_500),
        ("250ms", 250),
        ("2000us", 2),
        ("1e6ns", 1),
        ("90s", 90_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("2h", 7_200_000),
        ("1D", 86_400_000),
        ("0", 0),
        ("1.5h", 5_400_000),
    ] {
        assert_eq!(
            time(text, second),
            Ok(Duration::from_millis(millis)),
            "{text}"
        );
    }
    assert_eq!(
        time("20", Duration::from_micros(1)),
        Ok(Duration::from_micros(20))
    );
    for text in ["", "s", "-1", "5y", "1w", "1 2", "1e400", "400000d"] {
        assert!(time(text, second).is_err(), "{text}");
    }
    assert!(time_above_zero("0").is_err() && time_above_zero("0.0000000001").is_err());
    assert_eq!(time_above_zero("3"), Ok(Duration::from_secs(3)));
}

#[test]
fn rates_and_shares() {
    for (text, wanted) in [
        ("50000", 50_000.0),
        ("50k", 50_000.0),
        ("5e4/s", 50_000.0),
        ("3m/min", 50_000.0),
        ("0.5", 0.5),
        ("36/h", 0.01),
        ("86400/day", 1.0),
    ] {
        assert_eq!(rate(text), Ok(wanted), "{text}");
    }
    for text in ["", "0", "-1", "x", "5/", "5/w", "1e999", "/s"] {
        assert!(rate(text).is_err(), "{text}");
    }
    assert_eq!(byte_rate("20m/s"), Ok((20 << 20, Some(1))));
    assert_eq!(byte_rate("100G/Day"), Ok((100 << 30, Some(86_400))));
    assert_eq!(byte_rate("20m"), Ok((20 << 20, None)));
    for text in ["20m/fortnight", "/s", "x/s", "20m/", "1/2/s"] {
        assert!(byte_rate(text).is_err(), "{text}");
    }
    assert_eq!(share("0.9"), share("90%"));
    assert_eq!(share("1"), Ok(1.0));
    for text in ["1.1", "101%", "-0.1", "x", "90"] {
        assert!(share(text).is_err(), "{text}");
    }
    assert_eq!(number("0.99"), Ok(0.99));
    assert_eq!(number("1e-3"), Ok(0.001));
    for text in ["", "nan", "inf", "-1", "1k", "1e999"] {
        assert!(number(text).is_err(), "{text}");
    }
}

#[test]
fn the_nearest_word() {
    let known = ["memory", "max-item-size", "flash", "port"];
    for (word, wanted) in [
        ("memroy", Some("memory")),
        ("Memory", Some("memory")),
        ("max_item_size", Some("max-item-size")),
        ("flahs", Some("flash")),
        ("prot", Some("port")),
        ("zzz", None),
        ("", None),
    ] {
        assert_eq!(nearest(word, known), wanted, "{word}");
    }
}
