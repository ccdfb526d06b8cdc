// SPDX-License-Identifier: Apache-2.0
//! The faulty device keeps its promises: flushed data survives, the rest may be lost in every
//! documented way, and the same seed gives the same run.

use std::sync::Arc;

use senko_io::faulty::{Faults, FaultyDevice, FaultyQueue, SECTOR};
use senko_io::{
    AlignedBuf, Completion, Device, IoError, Op, PAGE_SIZE, Purpose, Queue, ReadRequest, Tag,
};
use senko_workload::Rng;

use crate::support::seed;

const TAG: Tag = Tag::cache(Purpose::Admit);

fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE_SIZE]
}

fn read(device: &FaultyDevice, at: u64) -> Vec<u8> {
    let mut buf = page(0xee);
    device.read(at, &mut buf, TAG).unwrap();
    buf
}

#[test]
fn flushed_pages_survive_and_the_rest_is_kept_lost_or_torn() {
    let seed = seed("flushed_pages_survive");
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for round in 0..300 {
        let device = FaultyDevice::new(64, seed + round);
        for at in 0..32 {
            device.write(at, &page(1), TAG).unwrap();
        }
        device.flush(TAG).unwrap();
        assert_eq!(device.unflushed(), 0);
        for at in 16..48 {
            device.write(at, &page(2), TAG).unwrap();
        }
        assert_eq!(device.unflushed(), 32);
        assert!(read(&device, 20) == page(2), "reads see what was written");
        let report = device.crash();
        assert_eq!(report.kept + report.lost + report.torn, 32);
        for at in 0..64 {
            let old = if at < 32 { 1 } else { 0 };
            let found = read(&device, at);
            for sector in found.chunks(SECTOR) {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "a sector is never torn"
                );
                assert!(sector[0] == old || ((16..48).contains(&at) && sector[0] == 2));
            }
            if (16..48).contains(&at) {
                let new = found.iter().filter(|byte| **byte == 2).count();
                kept += usize::from(new == PAGE_SIZE);
                lost += usize::from(new == 0);
                torn += usize::from(new > 0 && new < PAGE_SIZE);
            }
        }
        assert_eq!(device.unflushed(), 0);
    }
    assert!(
        kept > 1000 && lost > 1000 && torn > 300,
        "{kept} kept, {lost} lost, {torn} torn"
    );
}

/// Whatever survives of two writes to one page, the earlier never overwrites the later: sectors are
/// 0, 1 or 2, and if the later write was kept whole all are 2.
#[test]
fn later_writes_win() {
    let seed = seed("later_writes_win");
    let mut only_older = 0;
    for round in 0..200 {
        let device = FaultyDevice::new(1, seed + round);
        device.write(0, &page(1), TAG).unwrap();
        device.write(0, &page(2), TAG).unwrap();
        let report = device.crash();
        let found = read(&device, 0);
        if report.kept == 2 {
            assert!(found == page(2));
        }
        only_older += usize::from(found == page(1));
    }
    assert!(
        only_older > 0,
        "the later of two writes may be lost while the earlier is kept"
    );
}

#[test]
fn crashed_copies_leave_the_original_alone() {
    let device = FaultyDevice::new(8, 1);
    device.write(0, &page(1), TAG).unwrap();
    device.flush(TAG).unwrap();
    device.write(1, &page(2), TAG).unwrap();
    let mut seen = [false; 2];
    for seed in 0..100 {
        let copy = device.crashed_copy(seed);
        assert!(read(&copy, 0) == page(1));
        let survived = read(&copy, 1);
        assert!(
            survived == read(&device.crashed_copy(seed), 1),
            "the same seed, the same crash"
        );
        seen[usize::from(survived == page(2))] = true;
    }
    assert_eq!(seen, [true, true]);
    assert!(read(&device, 1) == page(2));
    assert!(read(&device.copy(5), 1) == page(2));
}

#[test]
fn planned_faults_come_when_planned() {
    let device = FaultyDevice::new(8, 1);
    device.fail_nth(Op::Write, 2, libc::EIO);
    device.fail_nth(Op::Read, 1, libc::EIO);
    assert_eq!(device.write(0, &page(1), TAG), Ok(()));
    assert_eq!(device.write(1, &page(1), TAG), Err(IoError::Os(libc::EIO)));
    assert_eq!(device.write(2, &page(1), TAG), Ok(()));
    assert_eq!(
        device.read(0, &mut page(0), TAG),
        Err(IoError::Os(libc::EIO))
    );
    assert_eq!(device.read(0, &mut page(0), TAG), Ok(()));
    device.fail_from(Op::Write, 2, libc::ENOSPC);
    assert_eq!(device.write(3, &page(1), TAG), Ok(()));
    for _ in 0..3 {
        assert_eq!(
            device.write(4, &page(1), TAG),
            Err(IoError::Os(libc::ENOSPC))
        );
    }
    assert!(
        read(&device, 4) == page(0),
        "a write without space writes nothing"
    );
    device.heal();
    assert_eq!(device.write(4, &page(1), TAG), Ok(()));
    assert_eq!(device.stats().total(Op::Write).errors, 4);
    assert_eq!(
        device.write(8, &page(1), TAG),
        Err(IoError::Os(libc::EINVAL))
    );
    let mut two = [page(0), page(0)];
    let [one, other] = &mut two;
    let mut requests = [ReadRequest::new(0, one), ReadRequest::new(99, other)];
    assert_eq!(
        device.read_batch(&mut requests, TAG),
        Err(IoError::Os(libc::EINVAL))
    );
    assert_eq!(requests[0].result, Ok(()));
}

/// After a failed flush some writes are lost for good, although reads still see them and later
/// flushes succeed.
#[test]
fn a_failed_flush_is_not_made_good_by_another() {
    let seed = seed("a_failed_flush_is_not_made_good_by_another");
    let mut lost = 0;
    for round in 0..100 {
        let device = FaultyDevice::new(4, seed + round);
        device.write(0, &page(1), TAG).unwrap();
        device.fail_nth(Op::Flush, 1, libc::EIO);
        assert!(device.flush(TAG).is_err());
        assert!(read(&device, 0) == page(1));
        device.flush(TAG).unwrap();
        device.crash();
        lost += usize::from(read(&device, 0) == page(0));
    }
    assert!((20..80).contains(&lost), "{lost} of 100");
}

#[test]
fn chances_come_about_as_often_as_said() {
    let device = FaultyDevice::new(64, seed("chances"));
    let faults = Faults {
        read_error: 0.1,
        short_read: 0.1,
        flipped_read: 0.1,
        ..Faults::default()
    };
    for at in 0..64 {
        device.write(at, &page(0), TAG).unwrap();
    }
    device.set_faults(faults);
    let (mut errors, mut shorts, mut flips) = (0, 0, 0);
    for _ in 0..5000 {
        let mut buf = vec![0; 4 * PAGE_SIZE];
        match device.read(3, &mut buf, TAG) {
            Err(IoError::Os(libc::EIO)) => errors += 1,
            Err(IoError::Short { want, got }) => {
                assert_eq!(want, 4 * PAGE_SIZE);
                assert!(got < want && got % PAGE_SIZE == 0);
                shorts += 1;
            }
            Err(other) => panic!("{other}"),
            Ok(()) => {
                let bits: u32 = buf.iter().map(|byte| byte.count_ones()).sum();
                assert!(bits <= 1);
                flips += bits;
            }
        }
    }
    for count in [errors, shorts, flips] {
        assert!(
            (300..700).contains(&count),
            "{errors} errors, {shorts} short, {flips} flips"
        );
    }
    device.heal();
    device.flip_bit(3, 100);
    assert_eq!(read(&device, 3)[12], 1 << 4);
    device.flush(TAG).unwrap();
    device.crash();
    assert_eq!(read(&device, 3)[12], 1 << 4, "a flipped bit stays");
}

fn submit(queue: &mut FaultyQueue, count: u64) {
    for nth in 0..count {
        let mut buf = AlignedBuf::new(3);
        buf[PAGE_SIZE..].fill(nth as u8 + 1);
        queue.write((nth % 2) as u16, nth, Arc::new(buf), 1, 2, TAG, nth);
    }
}

fn order(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|done| done.token).collect()
}

#[test]
fn the_queue_reorders_from_its_seed() {
    let run = |seed| {
        let devices = vec![FaultyDevice::new(64, 1), FaultyDevice::new(64, 2)];
        let mut queue = FaultyQueue::new(devices, &[(1, 4), (4, 2)], seed);
        submit(&mut queue, 20);
        assert_eq!(queue.pending(), 20);
        assert!(
            read(&queue.devices()[0], 0) == page(0),
            "nothing happens before the completion"
        );
        let done = queue.complete_all();
        assert_eq!(queue.pending(), 0);
        assert!(queue.complete_one().is_none());
        order(&done)
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..20));
}

#[test]
fn the_queue_reads_stalls_and_flushes() {
    let devices = vec![FaultyDevice::new(64, 1), FaultyDevice::new(64, 2)];
    let mut queue = FaultyQueue::new(devices.clone(), &[(4, 1)], 3);
    submit(&mut queue, 10);
    devices[1].set_stalled(true);
    assert_eq!(queue.complete_all().len(), 5);
    assert_eq!(queue.pending(), 5);
    // The flush covers what completed before it was requested, and nothing that completes between
    // then and its end.
    queue.flush(0, TAG, 100);
    let unflushed = devices[0].unflushed();
    devices[0].write(60, &page(9), TAG).unwrap();
    assert_eq!(order(&queue.complete_all()), [100]);
    assert_eq!((unflushed, devices[0].unflushed()), (5, 1));
    devices[1].set_stalled(false);
    assert_eq!(queue.complete_all().len(), 5);
    let frame = queue.frame(2).unwrap();
    assert!(queue.frame(2).is_none());
    queue.read(0, 4, 2, frame, TAG, 7);
    devices[0].fail_nth(Op::Read, 1, libc::EIO);
    let done = queue.complete_one().unwrap();
    assert_eq!(done.result, Err(IoError::Os(libc::EIO)));
    queue.read(0, 4, 2, done.buf.unwrap(), TAG, 7);
    let done = queue.complete_one().unwrap();
    assert!(done.buf.unwrap()[..2 * PAGE_SIZE] == vec![5; 2 * PAGE_SIZE]);
    queue.discard(0, 4, 1, TAG, 8);
    queue.complete_all();
    assert!(read(&devices[0], 4) == page(0));
    assert!(read(&devices[0], 5) == page(5));
    let frame = queue.frame(4).unwrap();
    drop(queue);
    drop(frame);
}

/// Of writes in flight at a crash, everything, nothing or a part survives; the flushed part always
/// does.
#[test]
fn crashing_the_queue() {
    let seed = seed("crashing_the_queue");
    let mut rng = Rng::new(seed);
    let (mut whole, mut nothing) = (0, 0);
    for _ in 0..200 {
        let device = FaultyDevice::new(64, rng.next_u64());
        device.write(40, &page(1), TAG).unwrap();
        device.flush(TAG).unwrap();
        let mut queue = FaultyQueue::new(vec![Arc::clone(&device)], &[(1, 1)], rng.next_u64());
        let mut buf = AlignedBuf::new(2);
        buf.fill(2);
        let buf = Arc::new(buf);
        queue.write(0, 40, Arc::clone(&buf), 0, 2, TAG, 0);
        let devices = if rng.below(2) == 0 {
            queue.kill()
        } else {
            queue.crash()
        };
        assert_eq!(Arc::strong_count(&buf), 1);
        let found = [read(&devices[0], 40), read(&devices[0], 41)].concat();
        for (nth, sector) in found.chunks(SECTOR).enumerate() {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
            assert!(sector[0] == 2 || sector[0] == u8::from(nth < 8));
        }
        whole += usize::from(found.iter().all(|byte| *byte == 2));
        nothing += usize::from(!found.contains(&2));
    }
    assert!(
        whole > 10 && nothing > 10,
        "{whole} whole, {nothing} not at all"
    );
}
