// SPDX-License-Identifier: Apache-2.0
//! Transfers: the answer is found where it lies and checked, its region is kept meanwhile, and what is damaged is a miss.

use senko_cache::{
    AllocError, DeviceState, FlashRef, HashSeed, Key, Lookup, Shard, Transfer, TransferEnd,
};
use senko_io::{Op, PAGE_SIZE, Purpose, Queue, Tag};

use crate::model::config;
use crate::queue::MemoryQueue;

const FLASH_PAGES: usize = 64 << 20 >> 12;

struct Bench {
    shard: Shard,
    queue: MemoryQueue,
    stored: u64,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut shard = Shard::new(config(16 << 20, FLASH_PAGES as u64)).expect("a shard");
        let now = 1_700_000_000_000;
        shard.set_now(now);
        Bench {
            shard,
            queue: MemoryQueue::new(FLASH_PAGES, &[(1, 8), (16, 4)], 1),
            stored: 0,
            now,
        }
    }

    fn len(n: u64) -> usize {
        [10, 700, 5000, 30_000, 55_000][n as usize % 5]
    }

    /// Stores items until so many bytes have passed.
    fn store(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let n = self.stored;
            let len = Bench::len(n);
            let value = vec![b'a' + (n % 26) as u8; len];
            let key = format!("key{n}");
            match self.shard.alloc(
                &mut self.queue,
                &Key::new(key.as_bytes(), HashSeed::default()),
                7,
                0,
                len,
            ) {
                Ok(mut draft) => {
                    self.shard.fill(&mut draft, &value);
                    self.shard.link(draft, None);
                    self.stored += 1;
                    bytes = bytes.saturating_sub(len);
                }
                // A region that is kept stops the log; time goes by until items are dropped instead.
                Err(AllocError::Busy) if self.queue.pending() == 0 => {
                    self.now += 100;
                    self.shard.set_now(self.now);
                    self.shard.tick(&mut self.queue);
                }
                Err(AllocError::Busy) => self.complete(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn complete(&mut self) {
        let completion = self.queue.complete_one().expect("something to wait for");
        self.shard.on_disk(&mut self.queue, completion);
    }

    fn settle(&mut self) {
        while self.queue.pending() > 0 {
            self.complete();
        }
    }

    fn flash(&mut self, n: u64) -> Option<FlashRef> {
        match self
            .shard
            .lookup(&Key::new(format!("key{n}").as_bytes(), HashSeed::default()))
        {
            Lookup::Flash(at) => Some(at),
            Lookup::Dram(_) | Lookup::Miss => None,
        }
    }

    fn begin(&mut self, n: u64) -> Option<Transfer> {
        let at = self.flash(n)?;
        let name = format!("key{n}");
        let key = Key::new(name.as_bytes(), HashSeed::default());
        let can = self.shard.can_transfer(&key, at);
        let transfer = self.shard.begin_transfer(&key, at);
        assert_eq!(can, transfer.is_some());
        transfer
    }

    /// The pages of a transfer.
    fn read(&mut self, transfer: &Transfer) -> Vec<u8> {
        let (device, page) = transfer.place();
        let frame = self.queue.frame(transfer.pages()).expect("a frame");
        let tag = Tag::cache(Purpose::Lookup);
        self.queue
            .read(device, page, transfer.pages(), frame, tag, u64::MAX);
        let done = self.queue.complete_one().expect("the read");
        assert_eq!(done.op, Op::Read);
        done.buf.expect("the frame")[..transfer.pages() * PAGE_SIZE].to_vec()
    }
}

fn answer(n: u64) -> Vec<u8> {
    let len = Bench::len(n);
    let mut text = format!("VALUE key{n} 7 {len}\r\n").into_bytes();
    text.extend(vec![b'a' + (n % 26) as u8; len]);
    text.extend_from_slice(b"\r\nEND\r\n");
    text
}

#[test]
fn answers_are_found_where_they_lie() {
    let mut bench = Bench::new();
    bench.store(40 << 20);
    bench.settle();
    let (mut found, mut again) = (0, 0);
    for n in 0..bench.stored {
        // The first hit is transferred, the one that is due to promote is not.
        let Some(mut transfer) = bench.begin(n) else {
            continue;
        };
        let pages = bench.read(&transfer);
        let range = transfer.find(&pages).expect("the record is there");
        assert!(pages[range] == answer(n), "key{n}");
        bench.shard.end_transfer(transfer, TransferEnd::Read);
        found += 1;
        again += u64::from(bench.begin(n).is_some());
    }
    let stats = bench.shard.stats();
    assert!(found > 500, "{found} found");
    assert_eq!(
        (stats.flash_hits, stats.flash_sendfile_transfers),
        (found, found)
    );
    // The hand that forgets hits may have passed just then.
    assert!(again * 100 < found, "{again} of {found} not due");
}

#[test]
fn a_damaged_or_unreadable_record_is_a_miss() {
    let mut bench = Bench::new();
    bench.store(40 << 20);
    bench.settle();
    let keys: Vec<u64> = (0..bench.stored)
        .filter(|n| n % 5 == 3 && bench.flash(*n).is_some())
        .take(3)
        .collect();
    let mut transfer = bench.begin(keys[0]).expect("on flash");
    let mut pages = bench.read(&transfer);
    pages[20_000] ^= 4;
    assert_eq!(transfer.find(&pages), None);
    bench.shard.end_transfer(transfer, TransferEnd::Read);
    let transfer = bench.begin(keys[1]).expect("on flash");
    bench
        .shard
        .end_transfer(transfer, TransferEnd::Unread(senko_io::IoError::Os(5)));
    let transfer = bench.begin(keys[2]).expect("on flash");
    bench.shard.end_transfer(transfer, TransferEnd::Unused);
    let stats = bench.shard.stats();
    assert_eq!(
        (
            stats.flash_checksum_errors,
            stats.flash_read_errors,
            stats.flash_hits
        ),
        (1, 1, 0)
    );
    assert_eq!((bench.flash(keys[0]), bench.flash(keys[1])), (None, None));
    assert!(bench.flash(keys[2]).is_some());
}

/// A device with bad sectors is not one that fails, whichever way what is good was read.
#[test]
fn bad_sectors_among_good_transfers_leave_a_device_in_use() {
    let mut bench = Bench::new();
    bench.store(40 << 20);
    bench.settle();
    let keys: Vec<u64> = (0..bench.stored)
        .filter(|n| bench.flash(*n).is_some())
        .take(100)
        .collect();
    for (nth, n) in keys.into_iter().enumerate() {
        let Some(mut transfer) = bench.begin(n) else {
            continue;
        };
        let end = if nth % 2 == 0 {
            TransferEnd::Unread(senko_io::IoError::Os(5))
        } else {
            let pages = bench.read(&transfer);
            assert!(transfer.find(&pages).is_some());
            TransferEnd::Read
        };
        bench.shard.end_transfer(transfer, end);
    }
    assert!(bench.shard.stats().flash_read_errors > 40);
    assert!(bench.shard.devices().all(|d| d.state == DeviceState::Up));
}

#[test]
fn the_region_of_a_transfer_is_kept_until_its_end() {
    let mut bench = Bench::new();
    bench.store(40 << 20);
    bench.settle();
    let n = (0..bench.stored)
        .find(|n| n % 5 == 4 && bench.flash(*n).is_some())
        .expect("something is on flash");
    let mut transfer = bench.begin(n).expect("on flash");
    // Two laps of the flash go by, as far as they get.
    bench.store(128 << 20);
    bench.settle();
    let reclaimed = bench.shard.stats().reclaim_regions;
    let pages = bench.read(&transfer);
    let range = transfer.find(&pages).expect("nobody wrote there");
    assert!(pages[range] == answer(n), "key{n}");
    bench.shard.end_transfer(transfer, TransferEnd::Read);
    // Now the log goes on.
    bench.store(128 << 20);
    bench.settle();
    assert!(bench.shard.stats().reclaim_regions > reclaimed + 10);
}
