// SPDX-License-Identifier: Apache-2.0
//! Keys: limits, uniqueness, reading back.

use std::collections::HashSet;

use senko_workload::key::{MAX_KEY_LEN, MAX_PREFIX_LEN};
use senko_workload::{KeyShape, KeySpace, Rng, etc};

#[test]
fn keys_are_unique_legal_and_readable() {
    for shape in [
        KeyShape::Fixed(12),
        KeyShape::Fixed(250),
        KeyShape::Etc,
        KeyShape::Shortest,
    ] {
        for prefix in ["", "user", "k9"] {
            let space = KeySpace::new(prefix, shape, 99_999_999).unwrap();
            let mut seen = HashSet::new();
            let mut rng = Rng::new(5);
            let some = (0..3000).chain((0..3000).map(|_| 10_000 + rng.below(99_990_000)));
            for key_id in some {
                let mut buffer = [0; MAX_KEY_LEN];
                let key = space.write(key_id, &mut buffer);
                assert_eq!(key.len(), space.key_len(key_id));
                assert!((1..=250).contains(&key.len()));
                assert!(key.iter().all(u8::is_ascii_graphic));
                assert!(key.starts_with(prefix.as_bytes()));
                assert_eq!(space.parse(key), Some(key_id));
                seen.insert(key.to_vec());
                let mut appended = b"get ".to_vec();
                space.append(key_id, &mut appended);
                assert_eq!(&appended[4..], key);
                match shape {
                    KeyShape::Fixed(len) => assert_eq!(key.len(), len),
                    KeyShape::Shortest => assert_eq!(key, format!("{prefix}{key_id}").as_bytes()),
                    KeyShape::Etc => assert!(key.len() >= etc::key_len(key_id)),
                }
            }
            // The drawn numbers may repeat; the first 3000 keys may not, nor may any two different
            // ones.
            assert!(seen.len() > 5900, "{} different keys", seen.len());
        }
    }
}

#[test]
fn parse_takes_exact_keys_only() {
    let space = KeySpace::new("p", KeyShape::Fixed(20), 1 << 40).unwrap();
    let mut buffer = [0; MAX_KEY_LEN];
    let key = space.write(123_456, &mut buffer).to_vec();
    assert_eq!(space.parse(&key), Some(123_456));
    for at in 0..key.len() {
        let mut other = key.clone();
        other[at] ^= 1;
        assert_ne!(space.parse(&other), Some(123_456), "byte {at}");
    }
    for bad in [
        &key[..19],
        b"",
        b"p",
        b"q123456",
        b"p99999999999999999999999999",
        b"p0001",
    ] {
        assert_eq!(space.parse(bad), None);
    }
    let huge = KeySpace::new("p", KeyShape::Shortest, u64::MAX).unwrap();
    let key = huge.write(u64::MAX, &mut buffer);
    assert_eq!(huge.parse(key), Some(u64::MAX));
}

#[test]
fn impossible_key_spaces_are_refused() {
    let long = "p".repeat(MAX_PREFIX_LEN + 1);
    for (prefix, shape, largest) in [
        (long.as_str(), KeyShape::Shortest, 1),
        ("a b", KeyShape::Etc, 1),
        ("a\n", KeyShape::Etc, 1),
        ("", KeyShape::Fixed(0), 1),
        ("", KeyShape::Fixed(251), 1),
        ("user", KeyShape::Fixed(8), 100_000),
    ] {
        assert!(
            KeySpace::new(prefix, shape, largest).is_err(),
            "{prefix:?} {shape} {largest}"
        );
    }
    let longest = "p".repeat(MAX_PREFIX_LEN);
    let space = KeySpace::new(&longest, KeyShape::Etc, u64::MAX).unwrap();
    assert_eq!(space.key_len(u64::MAX), MAX_KEY_LEN);
    for text in ["12", "etc", "shortest"] {
        assert_eq!(text.parse::<KeyShape>().unwrap().to_string(), text);
    }
    assert!("x".parse::<KeyShape>().is_err());
}
