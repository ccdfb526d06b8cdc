// SPDX-License-Identifier: Apache-2.0
//! Memory: alignment, laziness, and the frame pool against a model.

use senko_io::{AlignedBuf, FramePool, PAGE_SIZE};
use senko_workload::Rng;

use crate::support::seed;

#[test]
fn buffers_are_aligned_and_zero() {
    for pages in [0, 1, 2, 17, 4096] {
        let mut buf = AlignedBuf::new(pages);
        assert_eq!(buf.pages(), pages);
        assert_eq!(buf.len(), pages * PAGE_SIZE);
        if pages > 0 {
            assert!((buf.as_ptr() as usize).is_multiple_of(PAGE_SIZE));
        }
        assert!(buf.iter().all(|byte| *byte == 0));
        buf.fill(1);
    }
    assert!(AlignedBuf::try_new(usize::MAX / PAGE_SIZE).is_err());
    assert!(AlignedBuf::try_new(usize::MAX).is_err());
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_SIZE
}

/// 64 GiB of address space costs nothing until it is touched.
#[test]
fn untouched_memory_is_not_resident() {
    let before = resident();
    let mut buf = AlignedBuf::new((64 << 30) / PAGE_SIZE);
    let pool = FramePool::new(&[(1, 1000), (256, 8000)]);
    buf[5 << 30] = 1;
    let frame = pool.take(1).unwrap();
    drop(frame);
    // Other tests run at the same time; they do not touch half a gigabyte.
    assert!(resident() < before + (512 << 20));
}

#[test]
fn frames_against_a_model() {
    let mut rng = Rng::new(seed("frames_against_a_model"));
    let classes = [(1, 20), (4, 0), (8, 10), (300, 3)];
    let pool = FramePool::new(&classes);
    assert_eq!(pool.largest(), 300);
    let all: usize = classes
        .iter()
        .map(|(pages, count)| pages * count * PAGE_SIZE)
        .sum();
    assert_eq!(pool.usage(), (all, 0));
    let mut held: Vec<(u8, senko_io::PageBuf)> = Vec::new();
    for round in 0..20_000 {
        if rng.below(2) == 0 && !held.is_empty() {
            let (mark, frame) = held.swap_remove(rng.below(held.len() as u64) as usize);
            assert!(
                frame.iter().step_by(511).all(|byte| *byte == mark),
                "frames overlap"
            );
        } else {
            let most = if rng.below(10) == 0 { 310 } else { 9 };
            let pages = 1 + rng.below(most) as usize;
            let taken = |size| {
                held.iter()
                    .filter(|(_, frame)| frame.pages() == size)
                    .count()
            };
            let expected = classes
                .iter()
                .find(|(size, count)| *size >= pages && taken(*size) < *count)
                .map(|(size, _)| *size);
            let frame = pool.take(pages);
            assert_eq!(
                frame.as_ref().map(|frame| frame.pages()),
                expected,
                "asked for {pages}"
            );
            if let Some(mut frame) = frame {
                assert!((frame.as_ptr() as usize).is_multiple_of(PAGE_SIZE));
                let mark = round as u8;
                frame.fill(mark);
                held.push((mark, frame));
            }
        }
        let taken: usize = held.iter().map(|(_, frame)| frame.len()).sum();
        assert_eq!(pool.usage(), (all, taken));
    }
    // Frames outlive the pool's handle.
    drop(pool);
    for (mark, frame) in held {
        assert_eq!(frame[0], mark);
    }
}

/// A core dump of the server used to contain the clients' data.
#[test]
fn memory_for_data_stays_out_of_core_dumps() {
    let buf = AlignedBuf::new(64);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let at = buf.as_ptr() as usize;
    let mut inside = false;
    let mut flags = None;
    for line in maps.lines() {
        let range = line.split_whitespace().next().and_then(|range| {
            let (from, to) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(from)?..number(to)?)
        });
        if let Some(range) = range {
            inside = range.contains(&at);
        } else if inside && let Some(found) = line.strip_prefix("VmFlags:") {
            flags = Some(found.to_owned());
        }
    }
    let flags = flags.expect("the mapping is in the list");
    assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
}
