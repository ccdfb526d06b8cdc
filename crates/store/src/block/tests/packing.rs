// SPDX-License-Identifier: Apache-2.0
//! How pages are filled: the pages that a look-up reads, the space left empty, and that a block
//! never outgrows its extent.

use proptest::prelude::*;

use super::*;

/// Elements of one size with the hashes of numbers, in a part of the hash range.
fn equal(count: usize, value_len: usize, shift: u32) -> Vec<Owned> {
    let mut elements: Vec<Owned> = (0..count as u64)
        .map(|nth| Owned {
            hash: KeyHash {
                order: (mix(nth + 1) >> shift) + (u64::from(shift) << 59),
                check: nth as u32,
            },
            flags: 0,
            key: nth.to_le_bytes().to_vec(),
            value: vec![nth as u8; value_len],
            time: 5,
            expiry: 0,
        })
        .collect();
    elements.sort_by_key(|one| one.hash);
    elements
}

/// The share of look-ups that read more than `pages` pages, and the bytes of data pages over those
/// of elements.
fn look_ups(elements: &[Owned], page_bytes: usize, pages: u32) -> (f64, f64, Built) {
    let built = build(elements, page_bytes, 77);
    let page = (page_bytes / PAGE_SIZE) as u32;
    let mut more = 0;
    for one in elements {
        let run = built.block.find(one.hash);
        assert!(run.pages > 0);
        more += usize::from(run.pages > pages * page);
    }
    let bytes: usize = elements.iter().map(|one| one.element().encoded_len()).sum();
    let written = built.record.data_pages as usize * page_bytes;
    (
        more as f64 / elements.len() as f64,
        written as f64 / bytes as f64,
        built,
    )
}

#[test]
fn one_page_a_look_up() {
    for (count, value_len, page_bytes, shift) in [
        (40_000, 1000, 4096, 0),
        (40_000, 1000, 4096, 3),
        (40_000, 1000, 32_768, 0),
        (60_000, 100, 4096, 0),
        (60_000, 100, 4096, 5),
        (60_000, 0, 32_768, 1),
        (9_000, 3000, 4096, 0),
    ] {
        let elements = equal(count, value_len, shift);
        let (more, waste, built) = look_ups(&elements, page_bytes, 1);
        let index = built.block.page_index();
        let bits = index.heap_bytes() as f64 * 8.0 / f64::from(index.pages());
        let dram = built.block.bytes_in_dram() as f64 / count as f64;
        let written = built.record.extent.pages as usize * PAGE_SIZE;
        println!(
            "{value_len} bytes in {page_bytes}, range 2^-{shift}: {:.4} % read more, pages over elements {waste:.4}, all over elements {:.4}, \
             {bits:.2} bits a page, {dram:.3} bytes an element",
            100.0 * more,
            written as f64 / count as f64 / elements[0].element().encoded_len() as f64,
        );
        assert!(more < 0.001, "{more} of the look-ups read more than a page");
        assert!(bits < 10.0 || index.pages() < 1000, "{bits} bits a page");
        // The overhead is space at the end of a page that fits no other element, one moved element
        // in some thirty pages, and the last page.
        let len = elements[0].element().encoded_len();
        let ideal = page_bytes as f64 / ((page_bytes - 16) / len * len) as f64;
        let last = page_bytes as f64 / (count * len) as f64;
        assert!(
            waste < ideal * 1.014 + last,
            "{waste} times the elements are written"
        );
        assert!(
            written as u64
                <= bytes_expected(
                    count as u64,
                    (elements[0].element().encoded_len() * count) as u64,
                    page_bytes
                )
        );
    }
}

/// Values of 4 KiB take a little more than a page each, not two.
#[test]
fn long_elements_lie_close() {
    let elements = equal(3000, 4096, 0);
    let (more, waste, built) = look_ups(&elements, 4096, 2);
    assert!(waste < 1.03, "{waste} times the elements are written");
    assert!(
        more < 0.02,
        "{more} of the look-ups read more than two pages"
    );
    let written = u64::from(built.record.extent.pages) * PAGE_SIZE as u64;
    assert!(written <= bytes_expected(3000, 3000 * (4096 + 19), 4096));
}

#[test]
fn very_long_elements() {
    let mut elements = equal(12, 40, 0);
    for (nth, one) in elements.iter_mut().enumerate() {
        one.value =
            vec![nth as u8; [40, 600_000, 1 << 20, 0, 4096 - 16 - 19, 4096 - 16 - 18][nth % 6]];
        if nth % 5 == 4 {
            one.key = vec![b'k'; 65_536];
        }
    }
    for page_bytes in [4096, 32_768] {
        let built = build(&elements, page_bytes, 5);
        for one in &elements {
            assert_eq!(
                look_up(&built, one.hash, &one.key, 5).unwrap().as_ref(),
                Some(one)
            );
        }
    }
}

/// A block that is full says so, keeps what it has, and can be finished.
#[test]
fn full() {
    for page_bytes in [4096, 16_384] {
        for (seed, hashes) in [(3, Hashes::Real), (4, Hashes::Crowded)] {
            let made = make(seed, 2000, hashes, 3 * page_bytes);
            for pages in [16, 32, 48, 176] {
                let extent = Extent::new(16, pages);
                let device = FaultyDevice::new(4096, seed);
                let mut writer =
                    BlockWriter::new(&*device, extent, seed, page_bytes, TAG, u64::MAX);
                let mut push = |nth: usize| {
                    let one = &made.elements[nth];
                    writer.push(one.hash, &one.element()).unwrap()
                };
                let taken = (0..).find(|&nth| !push(nth)).unwrap();
                // The block stays full for this element; a shorter one may still fit.
                assert!(!push(taken));
                assert_eq!(writer.elements(), taken as u64);
                let (record, block) = writer.finish().unwrap();
                assert_eq!(record.extent, extent, "nearly all of the extent is in use");
                let prefix = Made {
                    elements: made.elements[..taken].to_vec(),
                    hasher: made.hasher.clone(),
                    hashes,
                };
                check(
                    &Built {
                        device,
                        record,
                        block,
                    },
                    &prefix,
                );
            }
        }
    }
}

#[test]
fn a_bound_below_the_extent() {
    let elements = equal(500, 1000, 0);
    let device = FaultyDevice::new(512, 1);
    let extent = Extent::new(0, 512);
    let mut writer = BlockWriter::new(&*device, extent, 1, 4096, TAG, 100 * 4096);
    let taken = elements
        .iter()
        .take_while(|one| writer.push(one.hash, &one.element()).unwrap())
        .count();
    let (record, _) = writer.finish().unwrap();
    assert!(record.data_pages + record.head_pages <= 100 && taken > 300);
    assert_eq!(record.extent.pages, 112);
}

#[test]
fn order_is_asked_for() {
    let elements = equal(3, 10, 0);
    let device = FaultyDevice::new(512, 1);
    let extent = Extent::new(0, 512);
    let mut writer = BlockWriter::new(&*device, extent, 1, 4096, TAG, u64::MAX);
    let push = |writer: &mut BlockWriter<'_>, one: &Owned| writer.push(one.hash, &one.element());
    assert!(push(&mut writer, &elements[1]).unwrap());
    for wrong in [0, 1] {
        let error = push(&mut writer, &elements[wrong]).unwrap_err();
        assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    }
    let mut older = elements[1].clone();
    older.time -= 1;
    assert!(push(&mut writer, &older).unwrap());
    let mut nameless = elements[2].clone();
    nameless.key.clear();
    assert!(push(&mut writer, &nameless).is_err());
    let mut nowhere = elements[2].clone();
    (nowhere.flags, nowhere.value) = (LARGE, vec![0; 24]);
    assert!(push(&mut writer, &nowhere).is_err());
    let mut last = elements[2].clone();
    last.flags = crate::element::MORE;
    assert!(push(&mut writer, &last).unwrap());
    let (record, block) = writer.finish().unwrap();
    assert_eq!(record.elements, 3);
    let built = Built {
        device,
        record,
        block,
    };
    let found = look_up(&built, last.hash, &last.key, 5).unwrap().unwrap();
    assert_eq!(found.flags, 0, "MORE is of the log");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    /// The lengths and hashes that leave the most space unused.
    #[test]
    fn bytes_needed_suffice(
        lengths in prop::collection::vec((0usize..9, 0usize..3, 0u8..8), 1..80),
        same in 0u8..8,
        page_bytes in prop_oneof![Just(4096usize), Just(8192)],
    ) {
        let payload = page_bytes - 16;
        let mut order = 1u64 << 40;
        let mut elements = Vec::new();
        for (nth, (kind, less, gap)) in lengths.into_iter().enumerate() {
            let len = [20, payload / 2 + 2, payload / 2, payload, payload + 3, 2 * payload, payload / 3, 100, payload - 20][kind] - less;
            order += if gap < same { u64::from(gap > 2) } else { mix(nth as u64) >> 12 };
            elements.push(Owned {
                hash: KeyHash { order, check: nth as u32 },
                flags: 0,
                key: vec![nth as u8],
                value: vec![nth as u8; len.saturating_sub(12)],
                time: 1,
                expiry: 0,
            });
        }
        let built = build(&elements, page_bytes, 9);
        for one in &elements {
            let found = look_up(&built, one.hash, &one.key, 1).unwrap();
            prop_assert_eq!(found.as_ref(), Some(one));
        }
    }
}

/// In the last page of a long element's run, the next long element begins and continues after the
/// run. A look-up once took that one for a version of the first, because the buffer still held the
/// first one's bytes. Compaction would have dropped the first as overwritten.
#[test]
fn the_next_long_element_is_not_a_version() {
    let hasher = Hasher::new([9; 16]);
    let mut elements: Vec<Owned> = (0..40u64)
        .map(|nth| Owned {
            hash: hasher.hash(&nth.to_le_bytes()),
            flags: 0,
            key: nth.to_le_bytes().to_vec(),
            value: vec![nth as u8; 6000],
            time: 0,
            expiry: 0,
        })
        .collect();
    elements.sort_by_key(|one| one.hash);
    for (nth, one) in elements.iter_mut().enumerate() {
        one.time = 10 + nth as u64;
    }
    let built = build(&elements, 4096, 3);
    for one in &elements {
        let run = built.block.find(one.hash);
        let bytes = read(&*built.device, run);
        let newest = built.block.newest_of_hash(run, &bytes, one.hash, &hasher);
        assert_eq!(newest.unwrap(), Some(one.time));
    }
}
