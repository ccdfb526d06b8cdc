// SPDX-License-Identifier: Apache-2.0
//! The operations of the block-granular layers and of DFTL, one by one, computed by hand. Blocks
//! have four pages: logical block 0 is pages 0 to 3, 1 is 4 to 7 and so on.

use senko_ssd::nand::Counts;

use crate::util::*;

/// A layer on flash, and its counts at the last query.
struct Story {
    nand: Nand,
    ftl: Box<dyn Ftl>,
    seen: Counts,
}

fn flash(blocks: u32) -> Nand {
    let geometry = Geometry {
        page_bytes: 512,
        ..Geometry::one_plane(blocks, 4)
    };
    Nand::new(geometry, None, &Endurance::default(), 1).unwrap()
}

impl Story {
    /// With the first `filled` logical pages written in order, which goes to data blocks alone.
    fn new(spec: &str, blocks: u32, logical_pages: u32, filled: u32) -> Self {
        let mut nand = flash(blocks);
        nand.keep_sequence();
        let (ftl, _) = ftl::build(&spec.parse().unwrap(), &nand, logical_pages).unwrap();
        let mut story = Self {
            nand,
            ftl,
            seen: Counts::default(),
        };
        story.write(0..filled);
        story
    }

    fn write(&mut self, pages: impl IntoIterator<Item = u32>) {
        for lpn in pages {
            self.ftl.write(&mut self.nand, lpn, 0, 0);
        }
    }

    fn read(&mut self, lpn: u32) -> bool {
        self.ftl.read(&mut self.nand, lpn, 0).0.is_some()
    }

    /// Pages written for the host, pages copied by merges, and blocks erased by them since the last
    /// query.
    fn merges(&mut self) -> (u64, u64, u64) {
        let Counts {
            programs, erases, ..
        } = self.since();
        let [host, merge] = [Cause::Host, Cause::Merge].map(|cause| cause as usize);
        (programs[host], programs[merge], erases[merge])
    }

    /// Pages of the map read and written, and pages of the host read and written, since the last
    /// query.
    fn map(&mut self) -> (u64, u64, u64, u64) {
        let Counts {
            reads, programs, ..
        } = self.since();
        let [map, host] = [Cause::Map, Cause::Host].map(|cause| cause as usize);
        (reads[map], programs[map], reads[host], programs[host])
    }

    fn since(&mut self) -> Counts {
        let now = *self.nand.counts();
        now.since(&std::mem::replace(&mut self.seen, now))
    }

    /// Writes pages, which costs these merges.
    #[track_caller]
    fn costs(&mut self, pages: impl IntoIterator<Item = u32>, merges: (u64, u64, u64)) {
        self.write(pages);
        assert_eq!(self.merges(), merges);
    }

    /// Writes pages, which costs these accesses to the map.
    #[track_caller]
    fn maps(&mut self, pages: impl IntoIterator<Item = u32>, map: (u64, u64, u64, u64)) {
        self.write(pages);
        assert_eq!(self.map(), map);
    }

    /// Switch, partial and full merges so far.
    fn kinds(&self) -> (u64, u64, u64) {
        let counts = self.ftl.counts();
        (
            counts.switch_merges,
            counts.partial_merges,
            counts.full_merges,
        )
    }

    /// The sequence number of a page's version: 1 for the first page that was written.
    fn version(&self, lpn: u32) -> u64 {
        let page = self.ftl.locate(lpn).expect("it was written");
        assert_eq!(self.nand.lpn(page), lpn);
        self.nand.sequence(page)
    }

    fn cut_and_recover(&mut self, operations: u64, lpn: u32) {
        self.nand.cut_power_after(operations);
        self.write([lpn]);
        assert!(self.nand.is_off());
        self.nand.power_on();
        self.ftl.recover(&mut self.nand);
    }
}

#[test]
fn block_level_replaces_the_block() {
    let mut story = Story::new("block", 5, 8, 8);
    // First versions go to their places.
    story.costs([], (8, 0, 0));
    // 0, 2 and 3 are copied, the old block is erased.
    story.costs([1], (1, 3, 1));
    // In a new logical block, pages after the last written one can be written, pages before it no
    // longer can.
    let mut story = Story::new("block", 5, 8, 0);
    story.costs([1, 3], (2, 0, 0));
    story.costs([2], (1, 2, 1));
}

#[test]
fn bast_switches() {
    let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
    // The second versions are in the log block.
    story.costs(0..4, (12, 0, 0));
    // The log block is the data block now.
    story.costs([4], (1, 0, 1));
    assert_eq!(story.kinds(), (1, 0, 0));
}

#[test]
fn bast_merges_partially() {
    let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
    // 2 and 3 are copied behind 0 and 1.
    story.costs([0, 1, 4], (11, 2, 1));
    assert_eq!(story.kinds(), (0, 1, 0));
}

#[test]
fn bast_merges_fully() {
    let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
    // Data and log block are erased.
    story.costs([1, 1, 0, 4], (12, 4, 2));
    assert_eq!(story.kinds(), (0, 0, 1));
    // The log block of 1 has only 4 so far. Three more versions fill it; the next one causes its
    // own merge.
    story.costs([4, 4, 4], (3, 0, 0));
    story.costs([4], (1, 4, 2));
    assert_eq!(story.kinds(), (0, 0, 2));
}

#[test]
fn bast_chooses_its_victim() {
    // Logical block 0 gets a log block first, 1 second; 0 is written last.
    let writes = [1, 4, 1, 8];
    let mut story = Story::new("bast:log-blocks=2,victim=lru", 7, 12, 12);
    story.write(writes);
    assert_eq!(story.kinds(), (0, 1, 0), "1, with page 4 in its place");
    let mut story = Story::new("bast:log-blocks=2,victim=round-robin", 7, 12, 12);
    story.write(writes);
    assert_eq!(story.kinds(), (0, 0, 1), "0, with page 1 twice");
    let mut story = Story::new("bast:log-blocks=2,victim=lowest", 7, 12, 12);
    story.write([4, 1, 8]);
    assert_eq!(story.kinds(), (0, 0, 1), "0, with page 1 out of its place");
}

#[test]
fn bast_by_the_rules_of_flashsim() {
    let mut story = Story::new("bast:log-blocks=1,rules=flashsim", 6, 8, 0);
    // First versions go to a log block too. It becomes the data block once it is full and in order.
    story.costs([0, 1, 2, 3], (4, 0, 0));
    story.costs([4], (1, 0, 0));
    assert_eq!(story.kinds(), (1, 0, 0));
    // The log block has page 4 in its place, which is no reason to complete it there.
    story.costs([0], (1, 1, 1));
    assert_eq!(story.kinds(), (1, 0, 1));
}

#[test]
fn bast_gives_back_what_is_trimmed() {
    let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
    story.write([0]);
    for lpn in 0..4 {
        assert_eq!(story.nand.counts().erases[Cause::Merge as usize], 0);
        story.ftl.trim(&mut story.nand, lpn, 0);
    }
    // Data and log block.
    story.costs([], (9, 0, 2));
    assert!(!story.read(0));
    // The log block is free.
    story.costs([4], (1, 0, 0));
}

#[test]
fn fast_writes_in_order_apart() {
    let mut story = Story::new("fast:log-blocks=2", 7, 12, 12);
    // The sequential log block has 0 to 3.
    story.costs(0..4, (16, 0, 0));
    // It is switched for 4.
    story.costs([4], (1, 0, 1));
    assert_eq!(story.kinds(), (1, 0, 0));
    story.costs([5], (1, 0, 0));
    // 7 does not follow 5: the old 6 and 7 are copied, the new 7 is random.
    story.costs([7], (1, 2, 1));
    assert_eq!(story.kinds(), (1, 1, 0));
    // 0 ends the sequential log block of 8.
    story.costs([8, 0], (2, 3, 1));
    assert_eq!(story.kinds(), (1, 2, 0));
}

#[test]
fn fast_shares_random_log_blocks() {
    let mut story = Story::new("fast:log-blocks=2", 7, 12, 12);
    story.costs([1, 5, 9, 1], (16, 0, 0));
    story.write([6]);
    // 5, 9 and the second 1 are valid: three logical blocks are copied whole; their data blocks and
    // the log block are erased.
    assert_eq!(story.merges(), (1, 12, 4));
    assert_eq!(story.kinds(), (0, 0, 3));
    // One logical block, three of its versions dead.
    story.costs([6, 6, 6, 7], (4, 4, 2));
}

#[test]
fn faster_gives_a_second_chance() {
    // Random log blocks get 1, 5, 9, 13 and 1, 5, 9, 2. Of the first, 13 is still valid when room
    // for 6 is needed.
    let writes = [1, 5, 9, 13, 1, 5, 9, 2, 6];
    let mut fast = Story::new("fast:log-blocks=3", 9, 16, 16);
    // FAST merges 13's logical block.
    fast.costs(writes, (25, 4, 2));
    let mut story = Story::new("faster:log-blocks=4", 10, 16, 16);
    // 13 is isolated, the log block is erased.
    story.costs(writes, (25, 1, 1));
    assert_eq!(story.kinds(), (0, 0, 0));
    // When 9 comes, the second block goes: its 9 and 2 are still valid. When the second 5 comes, of
    // 6, 13, 1, 5 the last is. 13 dies in isolation.
    story.costs([13, 1, 5, 9, 6, 13, 1, 5], (8, 3, 2));
    // The area is full of 13, 9, 2, 5, of which 2 alone is valid when room is needed for 1: its
    // logical block is merged, and takes 1 along. Data block, isolated block and log block are
    // erased.
    story.costs([9, 6, 13, 1], (4, 4, 3));
    assert_eq!(story.kinds(), (0, 0, 1));
}

#[test]
fn superblocks_erase_what_is_dead() {
    let mut story = Story::new("superblock:log-blocks=1,size=2", 7, 16, 16);
    assert_eq!(story.merges(), (16, 0, 0));
    // The update block has 0 to 3, their old block nothing valid.
    story.costs(0..4, (4, 0, 0));
    // That block is erased for the other superblock's sake.
    story.costs([8], (1, 0, 1));
    assert_eq!(story.kinds(), (1, 0, 0));
    // The update block has the new 8. 0 needs one: 9, 10 and 11 are copied after 8.
    story.costs([0], (1, 3, 1));
    assert_eq!(story.kinds(), (1, 0, 1));
}

/// Superblock 0 was written least recently. But superblock 1 has a block without a valid page, so
/// that one gives an update block back, and nothing is copied.
#[test]
fn superblocks_give_back_a_dead_block_before_an_old_one() {
    let mut story = Story::new("superblock:log-blocks=2,size=2", 10, 24, 24);
    story.write([0]);
    // Both update blocks are in use.
    story.costs(8..12, (29, 0, 0));
    story.costs([16], (1, 0, 1));
    assert_eq!(story.kinds(), (1, 0, 0));
    // Now none has a dead block. The oldest one gives its block back: 1, 2 and 3 are copied after 0.
    story.costs([12], (1, 3, 1));
    assert_eq!(story.kinds(), (1, 0, 1));
}

/// All allowed update blocks are in use: a recovery has none to regain.
#[test]
fn superblocks_are_as_they_were_after_a_cut() {
    let mut story = Story::new("superblock:log-blocks=2,size=2", 10, 24, 24);
    story.costs([0, 8, 0], (27, 0, 0));
    story.ftl.recover(&mut story.nand);
    assert_eq!(story.merges(), (0, 0, 0));
    let versions = [0, 1, 8, 9, 16].map(|lpn| story.version(lpn));
    assert_eq!(versions, [27, 2, 26, 10, 17]);
}

#[test]
fn last_lets_hot_blocks_die() {
    let mut story = Story::new("last:log-blocks=4,hot-blocks=2,threshold=2", 12, 16, 16);
    story.write([1; 9]);
    // One cold, eight hot versions fill the hot partition.
    story.costs([], (25, 0, 0));
    // Its first block is dead.
    story.costs([1], (1, 0, 1));
    assert_eq!(story.kinds(), (0, 0, 0));
    // 8 is cold. With 9 it is a long write: 8 is copied before it.
    story.costs([8, 9], (2, 1, 0));
    story.costs([10, 11], (2, 0, 0));
    // The next long write needs the sequential log block, which has all of 8 to 11.
    story.costs([4, 5], (2, 1, 1));
    assert_eq!(story.kinds(), (1, 0, 0));
}

#[test]
fn dftl_pays_for_misses() {
    // A translation page has 128 entries, the cache one.
    let mut story = Story::new("dftl:cmt-bytes=8", 100, 300, 0);
    // There is no map yet.
    story.maps([0], (0, 0, 0, 1));
    // 0's entry is written, then 1's is read.
    story.maps([1], (1, 1, 0, 1));
    // 1's page is read and written; 200 has none.
    story.maps([200], (1, 1, 0, 1));
    assert!(story.read(0));
    assert_eq!(story.map(), (1, 1, 1, 0), "200's is written, 0's is read");
    assert!(story.read(1));
    assert_eq!(story.map(), (1, 0, 1, 0), "0's entry was clean");
    assert!(story.read(1));
    assert_eq!(story.map(), (0, 0, 1, 0), "a hit");
    assert!(!story.read(2));
    assert_eq!(
        story.map(),
        (1, 0, 0, 0),
        "never written, which the map has to say"
    );
    let counts = story.ftl.counts();
    assert_eq!((counts.map_lookups, counts.map_hits), (7, 1));
}

#[test]
fn dftl_writes_entries_in_batches() {
    let mut story = Story::new("dftl:cmt-bytes=24", 100, 300, 3);
    assert_eq!(story.map(), (0, 0, 0, 3));
    // 0's entry leaves, and 1's and 2's are written with it.
    story.maps([200], (0, 1, 0, 1));
    // So theirs leave for nothing.
    story.maps([201, 202], (0, 0, 0, 2));
}

#[test]
fn dftl_collects_data_and_map() {
    // 14 blocks; the cache has all entries. Six blocks are taken at first; blocks are collected
    // when fewer than six are left.
    let mut story = Story::new("dftl:cmt-bytes=128", 14, 16, 16);
    story.write([12, 13, 14, 15, 12, 13, 14, 15]);
    let counts = story.ftl.counts();
    assert_eq!((counts.gc_blocks, counts.gc_pages), (0, 0));
    story.write([0; 16]);
    let counts = story.ftl.counts();
    assert!(counts.gc_blocks >= 2, "{counts:?}");
    assert_eq!(counts.gc_pages, 0, "dead blocks are taken first");
    assert_eq!(story.map(), (0, 0, 0, 40), "entries change in the cache");
}

/// Live pages are moved whose entries the cache has. Their new places are entries of the cache, and
/// the map on the flash need not know yet.
#[test]
fn dftl_moves_pages_without_the_map_where_the_cache_has_them() {
    let mut story = Story::new("dftl:cmt-bytes=128", 14, 16, 16);
    story.write((0..300).map(|n| (n * n * 5 + n / 3) % 16));
    let counts = story.ftl.counts();
    assert!(counts.gc_pages > 10, "{counts:?}");
    assert_eq!(story.map(), (0, 0, 0, 316));
}

/// The power fails when the map has no page on the flash yet: all entries were in the cache. After
/// the recovery it has one.
#[test]
fn dftl_writes_the_whole_map_after_a_cut() {
    let mut story = Story::new("dftl:cmt-bytes=128", 14, 16, 0);
    story.maps([3, 5], (0, 0, 0, 2));
    story.ftl.recover(&mut story.nand);
    assert_eq!(story.map(), (0, 1, 0, 0));
    assert!(story.read(5) && !story.read(4));
    assert_eq!(story.map().0, 2, "both are looked up in it");
}

/// Every logical block has one data block when the power fails. A recovery merges none of them.
#[test]
fn a_recovery_of_whole_data_blocks_writes_nothing() {
    for spec in [
        "block",
        "bast:log-blocks=1",
        "fast:log-blocks=2",
        "last:log-blocks=4,hot-blocks=2",
    ] {
        let mut story = Story::new(spec, 12, 12, 12);
        // {spec}.
        story.costs([], (12, 0, 0));
        story.ftl.recover(&mut story.nand);
        // {spec}.
        story.costs([], (0, 0, 0));
        let versions: Vec<u64> = (0..12).map(|lpn| story.version(lpn)).collect();
        assert_eq!(versions, (1..=12).collect::<Vec<u64>>(), "{spec}");
    }
}

#[test]
fn a_cut_in_a_full_merge_leaves_the_newest_versions() {
    // Page 1 has versions 2 (data), 9 and 10 (log). The write of 4 needs the log block: four
    // copies, two erases.
    for operations in 0..7 {
        let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
        story.write([1, 1]);
        story.cut_and_recover(operations, 4);
        let versions: Vec<u64> = (0..8).map(|lpn| story.version(lpn)).collect();
        // The seventh operation would be the write itself.
        assert_eq!(versions, [1, 10, 3, 4, 5, 6, 7, 8], "after {operations}");
        // The layer continues to work, including its log.
        story.write([4, 4, 1, 0, 0]);
        assert_eq!(story.read(0), story.read(4));
    }
    let mut story = Story::new("bast:log-blocks=1", 6, 8, 8);
    story.write([1, 1]);
    story.cut_and_recover(7, 4);
    assert_eq!(story.version(4), 11, "the write was the last operation");
}

#[test]
fn a_cut_does_not_bring_a_dead_copy_back() {
    // FAST's victim has versions 13 and 16 of page 1. Wherever its three merges are cut, 16 stays.
    for operations in 0..17 {
        let mut story = Story::new("fast:log-blocks=2", 7, 12, 12);
        story.write([1, 5, 9, 1]);
        story.cut_and_recover(operations, 6);
        let found = [1, 5, 9, 6].map(|lpn| story.version(lpn));
        assert_eq!(found, [16, 14, 15, 7], "after {operations}");
    }
}

#[test]
fn tables_take_what_the_thesis_says() {
    let mib = |bits: f64| bits / 8.0 / 1024.0 / 1024.0;
    // Table 2: 80 GB of the chip of table 1, by pages of 2 KB and by blocks of 128 KB. For DFTL's
    // 32 GB of pages of 2 KB the thesis prints 49 MB; its formula gives 48.
    for (entries, exact, whole) in [
        (41_943_040, "126.6", "130.00"),
        (655_360, "1.5", "1.56"),
        (16_777_216, "48.0", "48.00"),
    ] {
        let table = Mapping::table(entries, entries);
        assert_eq!(format!("{:.1}", mib(table.fractional_bits)), exact);
        assert_eq!(format!("{:.2}", mib(table.bits as f64)), whole);
    }
    // The block-level layer reports: 2 data blocks, each one of 5.
    let story = Story::new("block", 5, 8, 0);
    assert_eq!(story.ftl.mapping().bits, 2 * 3);
    // BAST: the log block's number (1 of 6), its data block's (1 of 2), and for each page which (4,
    // or none).
    let story = Story::new("bast:log-blocks=1", 6, 8, 0);
    assert_eq!(story.ftl.mapping().bits, 2 * 3 + 3 + 1 + 4 * 3);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |spec: &str| {
        let built = ftl::build(&spec.parse().unwrap(), &flash(8), 24);
        built.err().expect(spec).to_string()
    };
    assert_eq!(
        refused("bast:log-blocks=3"),
        "bast needs 11 blocks (6 for data, 3 for its log, 2 for merges), and the flash has 8"
    );
    assert_eq!(
        refused("bast:log-blocks=0"),
        "bast needs at least 1 log block"
    );
    assert_eq!(
        refused("bast:victim=mru"),
        "bast: victim is lru, round-robin or lowest, not \"mru\""
    );
    assert_eq!(
        refused("bast:rules=mine"),
        "bast: rules is paper or flashsim, not \"mine\""
    );
    assert!(refused("fast:log-blocks=1").starts_with("fast needs at least 2 log blocks"));
    assert!(refused("faster:log-blocks=2").starts_with("faster needs at least 3 log blocks"));
    assert!(refused("faster:isolation-blocks=0").ends_with("without one it is fast"));
    assert!(refused("superblock:size=0").contains("a size of at least 1"));
    assert!(refused("last:log-blocks=2").starts_with("last: of 2 log blocks"));
    assert!(refused("last:threshold=0").ends_with("at least 1 page"));
    assert!(refused("dftl:cmt-bytes=7").starts_with("dftl: cmt-bytes is 7"));
    assert!(refused("dftl").starts_with("dftl needs 16 blocks"));
}
