// SPDX-License-Identifier: Apache-2.0
//! The rules of every write buffer (BUFFER-1 to BUFFER-3) against a plain model, and the adaptive
//! one's promises beyond them.

use std::collections::HashSet;

use senko_ssd::buffer::{Leave, Outgoing, Surroundings};

use crate::util::*;

const SPECS: [&str; 13] = [
    "lru:touch-reads=true",
    "lru:fill-reads=true",
    "cflru:window=0.1",
    "cflru:window=1",
    "bplru:compensation=false,padding=false",
    "lb-clock:padding=true,sequential=false",
    "pud-lru:runs=false,memory=0.5,threshold=0.3",
    "pud-lru:memory=0,threshold=4,padding=true",
    "rent:power=0",
    "rent:power=16,padding=true",
    "rent:power=16,gaps=true",
    "rent:power=1,uses=1",
    "seldom",
];

fn specs() -> Vec<Spec> {
    let plain = buffer::ALL.iter().map(|entry| Spec::plain(entry.name));
    plain
        .chain(SPECS.iter().map(|text| text.parse().unwrap()))
        .collect()
}

/// Removes the pages that left from the set of dirty pages.
fn apply(dirty: &mut HashSet<u32>, out: &mut Outgoing, pages: u32, what: &str) {
    for (page, how) in out.pages.drain(..) {
        assert!(page < pages, "{what}: page {page} is beyond the drive");
        match how {
            Leave::Dirty => assert!(
                dirty.remove(&page),
                "BUFFER-2, {what}: {page} was not dirty"
            ),
            Leave::Pad => assert!(
                !dirty.contains(&page),
                "BUFFER-2, {what}: {page} is a dirty pad"
            ),
        }
    }
}

fn random(spec: &Spec, seed: u64) {
    let mut rng = Rng::new(seed);
    let capacity = if spec.name() == "none" {
        0
    } else {
        1 + rng.below(70) as usize
    };
    let pages_per_block = [1, 3, 4, 16, 64, 100][rng.below(6) as usize];
    // Sometimes the last block is incomplete.
    let pages = 40 * pages_per_block + rng.below(u64::from(pages_per_block)) as u32;
    // Only the adaptive buffer looks at the layer.
    let layer = ["page", "bast", "fast", "superblock", "block"][rng.below(5) as usize];
    let around = Surroundings {
        capacity,
        pages_per_block,
        logical_pages: pages,
        ftl: layer.parse().unwrap(),
    };
    let what =
        format!("{spec} over {layer}, of {capacity}, {pages_per_block} pages a block, seed {seed}");
    let (mut buffer, _) = buffer::build(spec, &around).unwrap();
    let mut dirty: HashSet<u32> = HashSet::new();
    let mut out = Outgoing::default();
    let mut run = 0;
    for step in 0..4000 {
        run = if rng.below(6) == 0 {
            rng.below(u64::from(pages)) as u32
        } else {
            (run + 1) % pages
        };
        let page = if rng.below(3) > 0 {
            run
        } else {
            rng.below(u64::from(pages / 8 + 1)) as u32
        };
        match rng.below(100) {
            0..65 => {
                let hit = buffer.write(page, &mut out);
                assert_eq!(hit, dirty.contains(&page), "{what}, step {step}: hit");
                // The new page is added after the others left for it, unless the buffer holds
                // nothing at all.
                if capacity == 0 {
                    dirty.insert(page);
                }
                apply(&mut dirty, &mut out, pages, &what);
                if capacity > 0 {
                    dirty.insert(page);
                }
            }
            65..88 => {
                if !buffer.read(page) {
                    assert!(!dirty.contains(&page), "BUFFER-1, {what}: {page} is lost");
                    buffer.read_from_flash(page, &mut out);
                    apply(&mut dirty, &mut out, pages, &what);
                }
            }
            88..99 => {
                buffer.trim(page);
                dirty.remove(&page);
                assert!(!buffer.contains(page), "{what}: {page} is trimmed");
            }
            _ => {
                buffer.drain(&mut out);
                apply(&mut dirty, &mut out, pages, &what);
                assert!(dirty.is_empty(), "{what}: {dirty:?} stayed");
            }
        }
        assert!(buffer.len() <= capacity, "BUFFER-3, {what}, step {step}");
        assert!(dirty.len() <= buffer.len(), "BUFFER-1, {what}, step {step}");
    }
    for page in 0..pages {
        assert!(
            buffer.contains(page) || !dirty.contains(&page),
            "BUFFER-1, {what}"
        );
    }
}

#[test]
fn buffers_keep_what_they_must_and_no_more() {
    for spec in specs() {
        let seeds = if spec.name() == "adaptive" { 20 } else { 40 };
        for seed in 0..seeds {
            random(&spec, seed);
        }
    }
}

/// A load whose phases suit different policies: scattered hot pages, sequential runs, random ones.
fn phases(seed: u64, pages: u32) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let mut load = Vec::new();
    for phase in 0..6 {
        match phase % 3 {
            0 => load.extend((0..8000).map(|_| rng.below(96) as u32 * 37 % pages)),
            1 => {
                let start = rng.below(u64::from(pages)) as u32;
                load.extend((0..8000).map(|page| (start + page) % pages));
            }
            _ => load.extend((0..8000).map(|_| rng.below(u64::from(pages)) as u32)),
        }
    }
    load
}

/// Logical pages of the drives here.
const LOGICAL: u32 = 128 * 32;

fn erases(layer: &str, buffer: &str, load: &[u32]) -> (u64, u64) {
    let parts = Parts {
        buffer: Some(buffer.parse().unwrap()),
        buffer_pages: Some(128),
        untimed: true,
        ..with_layer(layer)
    };
    let profile = small(176, 32, LOGICAL.into());
    let mut device = Device::new(&profile, &parts).unwrap();
    for page in load {
        device.write(*page, true, 0, 0);
    }
    device.flush(0);
    device.assert_conservation();
    (
        device.nand().counts().all_erases(),
        device.buffer().table_bytes(),
    )
}

#[test]
fn the_adaptive_buffer_follows_the_phases() {
    for seed in 0..4 {
        let load = phases(seed, LOGICAL);
        for layer in ["bast", "fast", "page"] {
            let fixed = ["lru", "fab", "bplru", "lb-clock", "pud-lru"];
            let fixed = fixed.map(|buffer| erases(layer, buffer, &load).0);
            let best = *fixed.iter().min().unwrap();
            let (adaptive, _) = erases(layer, "adaptive", &load);
            assert!(
                adaptive as f64 <= 1.05 * best as f64,
                "{layer}, seed {seed}: {adaptive} erases, and the best of {fixed:?} has {best}"
            );
        }
    }
}

#[test]
fn the_adaptive_buffer_is_deterministic_and_its_memory_constant() {
    let load = phases(9, LOGICAL);
    let (once, bytes) = erases("bast", "adaptive", &load);
    assert_eq!(erases("bast", "adaptive", &load), (once, bytes));
    assert_eq!(erases("bast", "adaptive", &load[..100]).1, bytes);
}

#[test]
fn copies_of_the_layer_do_not_grow_with_buffer_and_drive() {
    let table_bytes = |layer: &str, capacity: usize, logical_pages: u32| {
        let around = Surroundings {
            capacity,
            pages_per_block: 128,
            logical_pages,
            ftl: layer.parse().unwrap(),
        };
        let (adaptive, _) = buffer::build(&Spec::plain("adaptive"), &around).unwrap();
        // Beyond a bit for each page of the drive.
        adaptive.table_bytes() - u64::from(logical_pages) / 8
    };
    for entry in ftl::ALL {
        let paper = table_bytes(entry.name, 512, 262_144);
        assert!(paper < 6 << 20, "{}: {paper} bytes", entry.name);
        // The memory for page numbers grows with the buffer, by little compared with the pages'
        // contents.
        let large = table_bytes(entry.name, 16 * 512, 16 * 262_144);
        let contents = 16 * 512 * 4096;
        assert!(
            large < paper + contents / 8,
            "{}: {large} bytes, {paper} at a sixteenth",
            entry.name
        );
    }
}
