// SPDX-License-Identifier: Apache-2.0
//! The sizes and offsets that `docs/formats/store.md` names, in the bytes of a block.

use super::frame::{HEAD_HEADER, HEAD_PAYLOAD};
use super::head::META_HEADER;
use super::*;

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn quarter(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn element(nth: u64, flags: u8, value: Vec<u8>) -> Owned {
    Owned {
        hash: KeyHash {
            order: nth << 60,
            check: 0x1111_1111,
        },
        flags,
        key: vec![nth as u8; 8],
        value,
        time: 1000 + nth,
        expiry: 0,
    }
}

#[test]
fn a_block() {
    let id = 0x0102_0304_0506_0708;
    let reference = ExtentRef {
        extent: Extent::new(3, 16),
        bytes: 9,
        crc: 5,
    };
    let elements = [
        element(1, 0, vec![0x11; 3000]),
        // 11 bytes of header, 8 of key: 6,019 in all, which begin in a page of their own and end at
        // byte 1,955 of the next.
        element(2, 0, vec![0x22; 6000]),
        element(3, LARGE, reference.encode().to_vec()),
        element(15, TOMBSTONE, Vec::new()),
    ];
    let built = build(&elements, 4096, id);
    let record = built.record;
    assert_eq!(
        (record.data_pages, record.head_pages, record.meta_pages),
        (3, 2, 1)
    );
    assert_eq!(record.extent.pages, 16);
    assert_eq!(
        (record.elements, record.tombstones, record.large),
        (4, 1, 1)
    );
    assert_eq!(record.key_value_bytes, 4 * 8 + 3000 + 6000 + 9);
    assert_eq!((record.min_time, record.max_time), (1001, 1015));
    let seed = crc32c::crc32c(&id.to_le_bytes());
    let page = |nth: u32| {
        let bytes = read_page(&*built.device, record.extent.first + u64::from(nth));
        assert_eq!(half(&bytes, 0), crc32c::crc32c_append(seed, &bytes[4..]));
        assert_eq!(half(&bytes, 4), 0x0506_0708);
        bytes
    };
    for (nth, count, first) in [(0, 1, 16), (1, 1, 16), (2, 2, 1955)] {
        let bytes = page(nth);
        assert_eq!(
            (half(&bytes, 8), quarter(&bytes, 12), quarter(&bytes, 14)),
            (nth, count, first)
        );
    }
    let first = page(0);
    assert_eq!(first[16..20], [0, 8, 0xb8, 0x17]);
    assert_eq!(first[20..27], [0xe9, 3, 0, 0, 0, 0, 0]);
    assert_eq!(first[27..35], [1; 8]);
    assert!(first[35..3035].iter().all(|byte| *byte == 0x11));
    assert!(first[3035..].iter().all(|byte| *byte == 0));
    let third = page(2);
    assert!(third[16..1955].iter().all(|byte| *byte == 0x22));
    assert_eq!(third[1955], LARGE);

    let head = page(3);
    assert_eq!((half(&head, 8), &head[12..16]), (0, b"HEAD".as_slice()));
    let meta = &head[16..];
    assert_eq!(meta.len(), HEAD_PAYLOAD);
    assert_eq!((HEAD_HEADER, HEAD_PAYLOAD, META_HEADER), (16, 4080, 128));
    assert_eq!(&meta[..8], b"senkoBLK");
    assert_eq!(half(meta, 8), 1);
    assert_eq!(meta[16..32], [0; 16]);
    assert_eq!(meta[32..128], record.encode());
    let starts: Vec<u32> = (0..257).map(|shard| half(meta, 128 + 4 * shard)).collect();
    assert_eq!(
        (starts[0x10], starts[0x11], starts[0x20], starts[0x21]),
        (0, 1, 1, 2)
    );
    assert_eq!((starts[0xf0], starts[0xf1], starts[256]), (3, 4, 4));
    let index = &meta[1156..];
    let index_bytes = half(meta, 12) as usize;
    let (shift, low_bits) = (index[16], index[17]);
    assert_eq!(word(index, 0), (1 << 60) >> shift);
    assert_eq!(half(index, 8), 3);
    let largest = ((2u64 << 60) - (1 << 60)) >> shift;
    assert!(largest > 0 && low_bits < 8);
    // The third page's first element has its own hash: 3 << 60.
    let separators = [0, largest, 2 * largest];
    let high_words = (3 + (separators[2] >> low_bits) + 1).div_ceil(64);
    assert_eq!(u64::from(half(index, 12)), high_words);
    assert_eq!((index[18], index[19], half(index, 20)), (1, 0, 0));
    for (page, separator) in separators.iter().enumerate() {
        let bit = (separator >> low_bits) as usize + page;
        assert_eq!(word(index, 24 + bit / 64 * 8) >> (bit % 64) & 1, 1);
        let low_at = 24 + 8 * high_words as usize;
        let low = word(index, low_at) >> (page * usize::from(low_bits));
        assert_eq!(
            low & ((1 << low_bits) - 1),
            separator & ((1 << low_bits) - 1)
        );
    }
    let tails = 24 + 8 * high_words as usize + 8;
    assert_eq!(word(index, tails), 0b100);
    assert_eq!(index_bytes, tails + 8);
    let large = &meta[1156 + index_bytes..];
    assert_eq!(large[..24], reference.encode());
    assert!(large[24..].iter().all(|byte| *byte == 0));

    let list = page(4);
    assert_eq!((half(&list, 8), &list[12..16]), (1, b"HEAD".as_slice()));
    let entry = &list[16 + 3 * 19..][..19];
    assert_eq!(entry[..8], [0, 0, 0, 0, 0, 0, 0, TOMBSTONE]);
    assert_eq!(entry[8..12], [0x11; 4]);
    assert_eq!(entry[12..], [0xf7, 3, 0, 0, 0, 0, 0]);
    assert!(list[16 + 4 * 19..].iter().all(|byte| *byte == 0));
}
