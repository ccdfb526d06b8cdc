// SPDX-License-Identifier: Apache-2.0
//! Both maps against the entries that went into them: members, absent keys, damaged bytes, sizes at
//! the edges.

use proptest::prelude::*;

use super::bloom_map::{Column, Filter};
use super::*;
use crate::Hasher;
use crate::fuzzing_tests::{corpus, run_seeds};
use crate::hash::mix;

fn entries(count: u32, blocks: u32, seed: u8, shard: Option<u8>) -> Vec<MapEntry> {
    let hasher = Hasher::new([seed; 16]);
    (0..count)
        .map(|number| {
            let mut key = hasher.hash(&number.to_le_bytes());
            if let Some(shard) = shard {
                key.order = key.order >> 8 | u64::from(shard) << 56;
            }
            let block = (mix(u64::from(number)) % u64::from(blocks)) as u32;
            MapEntry { key, block }
        })
        .collect()
}

fn absent(count: u32, seed: u8, shard: Option<u8>) -> Vec<KeyHash> {
    let more = entries(count, 1, seed ^ 0x80, shard);
    more.into_iter().map(|entry| entry.key).collect()
}

fn options(kind: IndexKind, blocks: u32, fingerprint_bits: f32) -> MapOptions {
    MapOptions {
        kind,
        blocks,
        fingerprint_bits,
    }
}

/// Encodes and decodes the map, so that every test covers that too.
fn made(entries: &[MapEntry], options: &MapOptions) -> ShardMap {
    let map = build(entries, options);
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    let again = decode(&bytes).unwrap();
    let mut same = Vec::new();
    again.encode(&mut same);
    assert_eq!(bytes, same);
    again
}

fn candidates(map: &ShardMap, key: KeyHash) -> Vec<u32> {
    let mut out = Candidates::new();
    map.prefetch(key);
    map.candidates(key, &mut out);
    out.to_vec()
}

fn check_members(map: &ShardMap, entries: &[MapEntry]) {
    for entry in entries {
        let found = candidates(map, entry.key);
        if map.exact_for_members() {
            assert_eq!(found, [entry.block], "{entry:?}");
        } else {
            assert!(found.contains(&entry.block), "{entry:?} in {found:?}");
            assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        }
    }
}

/// The average number of candidates of an absent key.
fn false_rate(map: &ShardMap, keys: &[KeyHash]) -> f64 {
    let found: usize = keys.iter().map(|key| candidates(map, *key).len()).sum();
    found as f64 / keys.len() as f64
}

#[test]
fn static_maps_of_every_small_size() {
    for count in (0..140).chain([255, 256, 300, 511, 1023, 1024, 1025, 1026, 1100, 2000, 5000]) {
        for (blocks, bits) in [(1, 0.0), (1, 8.0), (3, 7.5), (256, 8.0), (1000, 6.3)] {
            let entries = entries(count, blocks, 3, Some(9));
            let map = made(&entries, &options(IndexKind::Static, blocks, bits));
            check_members(&map, &entries);
        }
    }
}

#[test]
fn an_empty_map_has_no_candidates() {
    for kind in [IndexKind::Static, IndexKind::BloomMap] {
        let map = made(&[], &options(kind, 5, 0.0));
        assert_eq!(false_rate(&map, &absent(1000, 1, None)), 0.0);
    }
}

#[test]
fn values_of_32_bits_and_more_are_cut() {
    let entries = entries(3000, 1 << 20, 5, None);
    for bits in [11.5, 12.0, 100.0, f32::INFINITY, f32::NAN, -3.0] {
        let map = made(&entries, &options(IndexKind::Static, 1 << 20, bits));
        check_members(&map, &entries);
    }
}

/// `n` absent keys with probability `p` each: within six standard deviations. So this fails by
/// chance once in 10^8 seeds.
fn assert_near(rate: f64, p: f64, keys: usize) {
    let deviation = (p * (1.0 - p).max(0.0) / keys as f64).sqrt();
    assert!(
        (rate - p).abs() <= 6.0 * deviation,
        "{rate} where {p} was expected, deviation {deviation}"
    );
}

#[test]
fn absent_keys_of_a_static_map_have_few_candidates() {
    let keys = absent(200_000, 2, Some(1));
    for (count, blocks, bits) in [
        (20_000, 256, 8.0),
        (20_000, 200, 6.0),
        (300, 16, 5.0),
        (70_000, 1024, 4.0),
    ] {
        let map = made(
            &entries(count, blocks, 2, Some(1)),
            &options(IndexKind::Static, blocks, bits),
        );
        let valid = f64::from(blocks) / f64::from(blocks.next_power_of_two());
        assert_near(
            false_rate(&map, &keys),
            2f64.powf(-f64::from(bits)) * valid,
            keys.len(),
        );
    }
}

#[test]
fn half_a_bit_halves_the_candidates_of_half_the_keys() {
    let keys = absent(200_000, 2, None);
    let map = made(
        &entries(100_000, 256, 2, None),
        &options(IndexKind::Static, 256, 5.5),
    );
    let rate = false_rate(&map, &keys) * 32.0;
    assert!((rate - 0.75).abs() < 0.06, "{rate}");
}

#[test]
fn static_maps_waste_little() {
    for (count, most) in [
        (64, 1.25),
        (100, 1.2),
        (300, 1.12),
        (1000, 1.05),
        (2000, 1.04),
        (10_000, 1.015),
        // Mapped in whole pages.
        (65_536, 1.035),
    ] {
        let map = build(
            &entries(count, 256, 1, Some(0)),
            &options(IndexKind::Static, 256, 8.0),
        );
        let share = (map.bytes() - size_of::<ShardMap>()) as f64 / (2.0 * f64::from(count));
        assert!(share < most, "{count} keys: {share}");
    }
}

#[test]
fn hashes_that_are_no_hashes_are_mapped_too() {
    // In the first layer all of these keys begin at one place.
    let equal_orders = (0..5000).map(|n| KeyHash {
        order: 77,
        check: n,
    });
    let near_orders = (0..5000u32).map(|n| KeyHash {
        order: u64::from(n),
        check: 0,
    });
    for keys in [equal_orders.collect::<Vec<_>>(), near_orders.collect()] {
        let entries: Vec<MapEntry> = keys
            .iter()
            .map(|key| MapEntry {
                key: *key,
                block: (key.order as u32 ^ key.check) % 7,
            })
            .collect();
        check_members(
            &made(&entries, &options(IndexKind::Static, 7, 8.0)),
            &entries,
        );
    }
}

#[test]
fn order_is_faster_and_changes_no_answer() {
    let mut entries = entries(30_000, 100, 8, Some(200));
    let options = options(IndexKind::Static, 100, 8.0);
    let unsorted = made(&entries, &options);
    check_members(&unsorted, &entries);
    entries.sort_by_key(|entry| entry.key);
    check_members(&made(&entries, &options), &entries);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the keys of a map are unique")]
fn a_key_in_two_blocks_is_a_mistake() {
    let mut entries = entries(2000, 2, 1, None);
    let twice = MapEntry {
        key: entries[5].key,
        block: 1 - entries[5].block,
    };
    entries.push(twice);
    build(&entries, &options(IndexKind::Static, 2, 8.0));
}

#[test]
fn many_keys_at_once() {
    let entries = entries(1000, 40, 4, None);
    let keys: Vec<KeyHash> = entries.iter().map(|entry| entry.key).collect();
    for kind in [IndexKind::Static, IndexKind::BloomMap] {
        let map = made(&entries, &options(kind, 40, 8.0));
        let mut all = vec![Candidates::new(); keys.len()];
        map.candidates_of(&keys, &mut all);
        for (key, found) in keys.iter().zip(&all) {
            assert_eq!(found.to_vec(), candidates(&map, *key));
        }
    }
}

#[test]
fn candidates_beyond_the_inline_ones() {
    let mut out = Candidates::new();
    for round in 0..2 {
        for number in 0..20 {
            assert_eq!(
                out.to_vec(),
                (0..number).collect::<Vec<_>>(),
                "round {round}"
            );
            out.push(number);
        }
        out.clear();
        assert!(out.is_empty());
    }
}

#[test]
fn the_thesis_rate_of_false_candidates() {
    // 0.046 % a block, by equation 2.
    let (blocks, each) = (64, 1000);
    let entries: Vec<MapEntry> = entries(blocks * each, 1, 6, None)
        .into_iter()
        .enumerate()
        .map(|(at, entry)| MapEntry {
            key: entry.key,
            block: at as u32 / each,
        })
        .collect();
    let map = made(&entries, &options(IndexKind::BloomMap, blocks, 0.0));
    check_members(&map, &entries);
    let keys = absent(100_000, 6, None);
    let p = (1.0 - (-11.0f64 / 16.0).exp()).powi(11);
    assert_near(
        false_rate(&map, &keys) / f64::from(blocks),
        p,
        keys.len() * blocks as usize,
    );
}

#[test]
fn columns_are_the_same_as_single_insertions() {
    for blocks in [1u32, 7, 8, 9, 64, 65, 100, 513, 600] {
        let filter = Filter {
            positions: 200,
            hashes: 3,
        };
        let keys = entries(blocks * 10, blocks, 7, None);
        let mut single = BloomMap::new(filter, blocks);
        let mut columns = vec![Column::new(filter); blocks as usize];
        for entry in &keys {
            single.insert(entry.key, entry.block);
            columns[entry.block as usize].insert(entry.key);
        }
        let mut growing = BloomMap::new(filter, 0);
        for (at, some) in columns.chunks(5).enumerate() {
            assert_eq!(growing.push_blocks(some), at as u32 * 5);
        }
        for key in absent(300, 7, None)
            .into_iter()
            .chain(keys.iter().map(|entry| entry.key))
        {
            let both = [&single, &growing].map(|map| map.newest_first(key).collect::<Vec<_>>());
            assert_eq!(both[0], both[1]);
        }
    }
}

/// Rows of several pieces, whole and in part, for one key at a time and for many, where the next
/// key's rows are prefetched.
#[test]
fn wide_rows() {
    for blocks in [2047u32, 2048, 2049, 8192, 8200, 9000, 20_000] {
        let filter = Filter {
            positions: 90,
            hashes: 3,
        };
        let keys = entries(blocks * 6, blocks, 7, None);
        let mut map = BloomMap::new(filter, blocks);
        let mut model = vec![Column::new(filter); blocks as usize];
        for entry in &keys {
            map.insert(entry.key, entry.block);
            model[entry.block as usize].insert(entry.key);
        }
        let asked = absent(20, 7, None);
        let mut all = vec![Candidates::new(); asked.len()];
        map.candidates_of(&asked, &mut all);
        for (key, found) in asked.iter().zip(&all) {
            let positions = filter.positions_of(*key);
            let has = |block: &u32| {
                let words = model[*block as usize].words();
                let one = |p: &u32| words[*p as usize / 64] >> (p % 64) & 1 == 1;
                positions.all().iter().all(one)
            };
            let expected: Vec<u32> = (0..blocks).rev().filter(has).collect();
            assert_eq!(found.to_vec(), expected, "{blocks} blocks");
            assert_eq!(map.newest_first(*key).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn damaged_maps() {
    for (kind, count, blocks) in [
        (IndexKind::Static, 50, 3),
        (IndexKind::Static, 3000, 300),
        (IndexKind::BloomMap, 50, 3),
        (IndexKind::BloomMap, 300, 300),
    ] {
        let mut bytes = Vec::new();
        build(
            &entries(count, blocks, 1, None),
            &options(kind, blocks, 5.5),
        )
        .encode(&mut bytes);
        for cut in 0..bytes.len().min(400) {
            assert!(decode(&bytes[..cut]).is_err(), "cut to {cut} bytes");
        }
        let mut long = bytes.clone();
        long.extend_from_slice(&[0; 8]);
        assert!(decode(&long).is_err());
        for at in 0..bytes.len().min(64) {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                fuzzing::map(&wrong);
            }
        }
    }
}

/// The seeds of the fuzz target, each with each of its first bytes changed. With
/// `SENKO_WRITE_CORPUS` set they are written first.
#[test]
fn fuzz_seeds() {
    let folder = corpus("store_map");
    if std::env::var_os("SENKO_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, kind, count, blocks, bits) in [
            ("empty", IndexKind::Static, 0, 4, 8.0),
            ("one_key", IndexKind::Static, 1, 1, 8.0),
            ("one_layer", IndexKind::Static, 70, 3, 2.5),
            ("two_layers", IndexKind::Static, 1100, 2, 0.0),
            ("bloom", IndexKind::BloomMap, 20, 3, 0.0),
            ("bloom_wide", IndexKind::BloomMap, 70, 70, 0.0),
        ] {
            let mut bytes = Vec::new();
            build(
                &entries(count, blocks, 1, None),
                &options(kind, blocks, bits),
            )
            .encode(&mut bytes);
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    let near = |len: usize| (0..len.min(300)).collect();
    run_seeds("store_map", near, fuzzing::map);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_map_or_a_harmless_one(
        kind in 0u8..4,
        head in proptest::collection::vec(any::<u8>(), 0..40),
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        fuzzing::map(&[&[kind][..], &head, &body].concat());
    }

    #[test]
    fn random_maps_are_exact(
        count in 0u32..4000,
        blocks in 1u32..3000,
        bits in 0f32..14.0,
        seed in 0u8..100,
        bloom in any::<bool>(),
    ) {
        let entries = entries(count, blocks, seed, None);
        let kind = if bloom { IndexKind::BloomMap } else { IndexKind::Static };
        check_members(&made(&entries, &options(kind, blocks, bits)), &entries);
    }
}
