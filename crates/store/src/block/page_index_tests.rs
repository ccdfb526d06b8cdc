// SPDX-License-Identifier: Apache-2.0
//! The page index against the list of pages that it was built from.

use proptest::prelude::*;

use super::*;
use crate::hash::mix;

fn note(first: u64, last: u64) -> PageNote {
    PageNote {
        first,
        last,
        rest_only: false,
        tail: false,
    }
}

/// Pages in which elements of a hash's cell lie, by the definition.
fn must_hold(notes: &[PageNote], order: u64) -> Option<(u32, u32)> {
    let mut pages = (0..notes.len()).filter(|page| {
        let note = &notes[*page];
        !note.rest_only && note.first <= order && order <= note.last
    });
    let first = pages.next()?;
    let mut last = pages.next_back().unwrap_or(first);
    // The page's last element continues in the next pages if they have a tail.
    while notes[last].last == order && notes.get(last + 1).is_some_and(|next| next.tail) {
        last += 1;
        if !notes[last].rest_only {
            break;
        }
    }
    Some((first as u32, last as u32))
}

fn check(notes: &[PageNote]) -> PageIndex {
    let index = PageIndex::build(notes);
    assert_eq!(index.pages() as usize, notes.len());
    for page in notes {
        for order in [
            page.first,
            page.last,
            page.first + (page.last - page.first) / 2,
        ] {
            let found = index.find(order);
            assert!(found.first < found.end && found.end <= index.pages());
            if let Some((first, last)) = must_hold(notes, order) {
                assert!(
                    found.first <= first && last < found.end,
                    "{order:x}: {found:?}"
                );
            }
        }
    }
    let mut bytes = Vec::new();
    index.encode(&mut bytes);
    assert_eq!(bytes.len(), index.encoded_len());
    assert!(bytes.len() as u64 <= PageIndex::encoded_bound(notes.len() as u64));
    assert_eq!(PageIndex::decode(&bytes).as_ref(), Ok(&index));
    index
}

/// Pages of `per_page` elements with random hashes in `range`, of which the last was moved or not.
fn random_pages(
    pages: usize,
    per_page: usize,
    range: std::ops::RangeInclusive<u64>,
    seed: u64,
) -> Vec<PageNote> {
    let width = range.end() - range.start();
    let mut orders: Vec<u64> = (0..pages * per_page)
        .map(|nth| {
            range.start() + ((u128::from(mix(seed ^ nth as u64)) * u128::from(width)) >> 64) as u64
        })
        .collect();
    orders.sort_unstable();
    orders
        .chunks(per_page)
        .map(|page| note(page[0], page[per_page - 2]))
        .collect()
}

#[test]
fn bits_a_page() {
    for (pages, range) in [
        (16_384, 0..=u64::MAX),
        (16_384, 1 << 61..=3 << 60),
        (300, 0..=u64::MAX),
    ] {
        let notes = random_pages(pages, 4, range, 7);
        let index = check(&notes);
        let bits = index.heap_bytes() as f64 * 8.0 / pages as f64;
        println!("{pages} pages: {bits:.2} bits a page");
        assert!(
            bits < if pages < 4096 { 13.0 } else { 9.5 },
            "{bits} bits a page"
        );
    }
}

#[test]
fn few_pages() {
    let none = PageIndex::build(&[]);
    assert_eq!(none.find(5), Pages { first: 0, end: 0 });
    let mut bytes = Vec::new();
    none.encode(&mut bytes);
    assert_eq!(PageIndex::decode(&bytes), Ok(none));
    check(&[note(0, u64::MAX)]);
    check(&[note(5, 5), note(5, 5), note(5, 5)]);
    check(&[note(0, 0), note(u64::MAX, u64::MAX)]);
    check(&[note(0, 0), note(1, 1), note(2, u64::MAX)]);
    let index = check(&[note(1 << 40, 1 << 41), note(1 << 42, 1 << 43)]);
    assert_eq!(index.find(3 << 40), Pages { first: 0, end: 1 });
    assert_eq!(index.find(u64::MAX), Pages { first: 1, end: 2 });
    assert_eq!(index.find(5), Pages { first: 0, end: 0 });
}

#[test]
fn an_element_over_pages() {
    let rest = |order: u64| PageNote {
        rest_only: true,
        tail: true,
        ..note(order, order)
    };
    let notes = [
        note(1 << 50, 2 << 50),
        note(5 << 50, 5 << 50),
        rest(5 << 50),
        PageNote {
            tail: true,
            ..note(7 << 50, 9 << 50)
        },
        note(11 << 50, 12 << 50),
    ];
    let index = check(&notes);
    assert_eq!(index.find(2 << 50), Pages { first: 0, end: 1 });
    assert_eq!(index.find(5 << 50), Pages { first: 1, end: 4 });
    assert_eq!(index.find(8 << 50), Pages { first: 3, end: 4 });
    assert_eq!(index.find(11 << 50), Pages { first: 4, end: 5 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn any_pages(
        steps in prop::collection::vec((0u32..64, 0u32..64, 0u8..12), 1..300),
        start in any::<u64>(),
    ) {
        let mut at = start;
        let mut notes: Vec<PageNote> = Vec::new();
        for (gap, width, kind) in steps {
            let step = |log: u32| if log == 0 { 0 } else { mix(u64::from(log) ^ at) >> log };
            let first = at.saturating_add(step(gap));
            let last = first.saturating_add(step(width));
            let before = notes.last().copied();
            match (kind, before) {
                (0, Some(before)) => notes.push(PageNote {
                    rest_only: true,
                    tail: true,
                    ..note(before.last, before.last)
                }),
                (1, Some(_)) => notes.push(PageNote { tail: true, ..note(first, last) }),
                _ => notes.push(note(first, last)),
            }
            at = notes.last().unwrap().last;
        }
        check(&notes);
    }

    #[test]
    fn any_bytes(
        seed in any::<u64>(),
        pages in 1usize..200,
        changes in prop::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        orders in prop::collection::vec(any::<u64>(), 20),
    ) {
        let mut bytes = Vec::new();
        PageIndex::build(&random_pages(pages, 3, 0..=u64::MAX, seed)).encode(&mut bytes);
        for (at, to) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = to;
        }
        if let Ok(index) = PageIndex::decode(&bytes) {
            for order in orders {
                let found = index.find(order);
                prop_assert!(found.first <= found.end && found.end <= index.pages());
            }
            let mut again = Vec::new();
            index.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
