// SPDX-License-Identifier: Apache-2.0
//! Values: every damaged byte is detected, and the damage is named.

use senko_workload::value::SELF_CHECKED_LEN;
use senko_workload::{Mismatch, Rng, ValueLen, check_value, check_value_version, fill_value};

fn value(len: usize, key_id: u64, version: u32) -> Vec<u8> {
    let mut value = vec![0xEE; len];
    fill_value(&mut value, key_id, version);
    value
}

#[test]
fn right_values_pass_at_every_length() {
    for len in (0..400).chain([4095, 4096, 4097, 100_000]) {
        for (key_id, version) in [
            (0, 0),
            (1, 0),
            (77, 3),
            (u64::MAX, u32::MAX),
            (1 << 40, 1 << 31),
        ] {
            let value = value(len, key_id, version);
            if len >= SELF_CHECKED_LEN {
                assert_eq!(check_value(&value, key_id), Ok(version), "{len}");
            } else {
                assert_eq!(
                    check_value(&value, key_id),
                    Err(Mismatch::TooShort { key_id, len })
                );
            }
            assert_eq!(
                check_value_version(&value, key_id, version..=version),
                Ok(version),
                "{len}"
            );
            let newest = version.saturating_add(3);
            let found =
                check_value_version(&value, key_id, version.saturating_sub(3)..=newest).unwrap();
            // The empty value fits every version, so the newest is reported.
            assert_eq!(found, if len == 0 { newest } else { version }, "{len}");
        }
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    for len in (1..100).chain([4096]) {
        let right = value(len, 42, 7);
        let step = if len > 100 { 13 } else { 1 };
        for bit in (0..len * 8).step_by(step) {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let result = check_value_version(&wrong, 42, 7..=7);
            assert!(result.is_err(), "{len} bytes, bit {bit}");
            if let Err(Mismatch::Body { offset, .. }) = result {
                assert_eq!(offset, bit / 8);
            } else {
                assert!(bit / 8 < 16, "{len} bytes, bit {bit}: {result:?}");
            }
        }
    }
}

#[test]
fn torn_cut_shifted_and_swapped_values_are_seen() {
    let mut rng = Rng::new(11);
    for round in 0..2000 {
        let len = 16 + rng.below(20_000) as usize;
        let (key_id, version) = (rng.below(1000), rng.below(1000) as u32);
        let new = value(len, key_id, version + 1);
        let old = value(len, key_id, version);
        let cut = 1 + rng.below(len as u64 - 1) as usize;
        let torn: Vec<u8> = new[..cut].iter().chain(&old[cut..]).copied().collect();
        assert!(
            check_value(&torn, key_id).is_err(),
            "round {round}: torn at {cut} of {len}"
        );
        assert!(
            check_value(&new[..cut], key_id).is_err(),
            "round {round}: cut at {cut} of {len}"
        );
        assert!(check_value(&new[1..], key_id).is_err(), "round {round}");
        let mut longer = new.clone();
        longer.push(0);
        assert!(check_value(&longer, key_id).is_err(), "round {round}");
        if len >= 12_288 {
            let mut swapped = new.clone();
            let (front, back) = swapped.split_at_mut(8192);
            front[4096..].swap_with_slice(&mut back[..4096]);
            let found = check_value(&swapped, key_id);
            // A byte or two may be equal by chance.
            assert!(
                matches!(
                    found,
                    Err(Mismatch::Body {
                        offset: 4096..4104,
                        ..
                    })
                ),
                "round {round}: {found:?}"
            );
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let other = value(100, 5, 9);
    assert_eq!(
        check_value(&other, 6),
        Err(Mismatch::WrongKey {
            expected: 6,
            found: 5,
            version: 9
        })
    );
    assert_eq!(
        check_value_version(&other, 5, 10..=12),
        Err(Mismatch::WrongVersion {
            key_id: 5,
            found: 9,
            oldest: 10,
            newest: 12
        })
    );
    assert_eq!(
        check_value(&[0; 100], 5),
        Err(Mismatch::Head {
            key_id: 5,
            len: 100
        })
    );
    assert_eq!(
        check_value(&[0; 4096], 0),
        Err(Mismatch::Head {
            key_id: 0,
            len: 4096
        })
    );
    let short = value(4, 5, 9);
    assert_eq!(
        check_value_version(&short, 5, 10..=12),
        Err(Mismatch::Short {
            key_id: 5,
            len: 4,
            oldest: 10,
            newest: 12
        })
    );
    assert!(
        check_value(&[0; 100], 5)
            .unwrap_err()
            .to_string()
            .contains("damaged head")
    );
}

#[test]
fn short_values_tell_near_versions_apart() {
    for len in 1..SELF_CHECKED_LEN {
        let mut strangers = 0;
        for key_id in 0..300u64 {
            for version in [0, 1, 100, 255, 256, 70_000, u32::MAX - 300] {
                let right = value(len, key_id, version);
                for range in [0, 1, 10, 200] {
                    let found = check_value_version(
                        &right,
                        key_id,
                        version.saturating_sub(range)..=version + range,
                    );
                    if len > 1 || range <= 100 {
                        assert_eq!(found, Ok(version), "{len} bytes, range {range}");
                    }
                }
                assert!(check_value_version(&right, key_id, version + 1..=version + 50).is_err());
                assert!(
                    check_value_version(&right, key_id, version + 2..=version + 1).is_err(),
                    "an empty range fits nothing"
                );
                strangers +=
                    u64::from(check_value_version(&right, key_id + 1, version..=version).is_ok());
            }
        }
        // By chance a byte of another key fits once in 256.
        let expected = 2100.0 / 256f64.powi(len as i32);
        assert!(
            (strangers as f64) < 4.0 * expected + 6.0,
            "{len} bytes: {strangers} values of other keys passed"
        );
    }
}

#[test]
fn value_lengths_follow_their_setting() {
    assert_eq!("1000".parse::<ValueLen>().unwrap(), ValueLen::Fixed(1000));
    assert_eq!(
        "1-4".parse::<ValueLen>().unwrap(),
        ValueLen::Uniform { min: 1, max: 4 }
    );
    assert_eq!(
        "etc".parse::<ValueLen>().unwrap(),
        ValueLen::Etc {
            cap: ValueLen::ETC_CAP
        }
    );
    for text in ["1000", "1-4", "etc:500"] {
        assert_eq!(text.parse::<ValueLen>().unwrap().to_string(), text);
    }
    for text in ["", "x", "4-1", "-1", "1-", "etc:", "etc:x", "99999999999"] {
        assert!(text.parse::<ValueLen>().is_err(), "{text}");
    }
    let uniform = ValueLen::Uniform { min: 10, max: 13 };
    let mut counts = [0; 4];
    for key_id in 0..40_000 {
        assert_eq!(uniform.len_of(key_id, 2), uniform.len_of(key_id, 2));
        counts[uniform.len_of(key_id, 2) - 10] += 1;
    }
    assert!(
        counts.iter().all(|count| (9_500..10_500).contains(count)),
        "{counts:?}"
    );
    assert_eq!((uniform.longest(), ValueLen::Fixed(3).longest()), (13, 3));
}
