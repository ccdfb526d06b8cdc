// SPDX-License-Identifier: Apache-2.0
//! A B+tree in place: each changed page is written where it was.
//!
//! *Idea*: elements lie in leaves, sorted; inner pages have keys and pointers; nothing is in DRAM.
//! A put writes its leaf; if the leaf was full, it also writes a second leaf and the pages above.
//! *Source*: paper A, 4.2.2, figures 27 to 29, table 5: a write is durable before the next.
//! *Deviations*: every page of a descent is read from the device. The root's number stays in DRAM,
//! since nothing opens the tree again.
//!
//! ```text
//!   0 magic u32 | 4 leaf u16 | 6 count u16 | 8 zero | 16 entries, by rising key
//!   leaf:  key u64 | element's number u64 | value
//!   inner: key u64 | page u64       (the first entry's key counts as smaller than any)
//! ```

use anyhow::{Context, Result, ensure};
use senko_io::{AlignedBuf, Device, Engine, PAGE_SIZE, Purpose, Tag};
use senko_workload::fill_value;

use crate::Wanted;

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};
const MAGIC: u32 = 0x4254_5031;
const START: usize = 16;
/// Bytes of an entry without a value.
const PAIR: usize = 16;

pub struct Tree<'d> {
    device: &'d dyn Device,
    value_bytes: usize,
    root: u64,
    pages: u64,
    /// Pages read.
    pub reads: u64,
    /// Pages written, each durable before the next.
    pub writes: u64,
    /// Of those, pages above the leaves.
    pub inner_writes: u64,
}

/// A page in memory.
struct Node {
    bytes: AlignedBuf,
    entry: usize,
}

impl Node {
    fn new(leaf: bool, value_bytes: usize) -> Node {
        let mut bytes = AlignedBuf::new(1);
        bytes.fill(0);
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&u16::from(leaf).to_le_bytes());
        Node {
            bytes,
            entry: Node::entry_bytes(leaf, value_bytes),
        }
    }

    fn entry_bytes(leaf: bool, value_bytes: usize) -> usize {
        PAIR + if leaf { value_bytes } else { 0 }
    }

    fn is_leaf(&self) -> bool {
        self.bytes[4] == 1
    }

    fn count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[6], self.bytes[7]]))
    }

    fn set_count(&mut self, count: usize) {
        self.bytes[6..8].copy_from_slice(&(count as u16).to_le_bytes());
    }

    fn room(&self) -> usize {
        (PAGE_SIZE - START) / self.entry
    }

    fn word(&self, entry: usize, nth: usize) -> u64 {
        let at = START + entry * self.entry + nth * 8;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The first entry with a key that is larger than `key`.
    fn beyond(&self, key: u64) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.word(middle, 0) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Inserts an entry before entry `at`.
    fn insert(&mut self, at: usize, key: u64, other: u64) {
        let (from, end) = (START + at * self.entry, START + self.count() * self.entry);
        self.bytes.copy_within(from..end, from + self.entry);
        self.set_count(self.count() + 1);
        self.set(at, key, other);
    }

    fn set(&mut self, at: usize, key: u64, other: u64) {
        let from = START + at * self.entry;
        self.bytes[from..from + 8].copy_from_slice(&key.to_le_bytes());
        self.bytes[from + 8..from + PAIR].copy_from_slice(&other.to_le_bytes());
        fill_value(&mut self.bytes[from + PAIR..from + self.entry], other, 0);
    }

    /// Moves the upper half to a new page.
    fn split(&mut self, value_bytes: usize) -> Node {
        let mut upper = Node::new(self.is_leaf(), value_bytes);
        let (half, count) = (self.count() / 2, self.count());
        let from = START + half * self.entry..START + count * self.entry;
        let bytes = from.len();
        upper.bytes[START..START + bytes].copy_from_slice(&self.bytes[from]);
        upper.set_count(count - half);
        self.set_count(half);
        upper
    }
}

/// A page above a leaf, with its number and the entry that was followed.
struct Step {
    page: u64,
    node: Node,
    entry: usize,
}

/// The order of keys: as numbers.
fn order(wanted: &Wanted) -> u64 {
    u64::from_le_bytes(wanted.key)
}

impl<'d> Tree<'d> {
    /// A tree without elements, whose values have `value_bytes`.
    ///
    /// # Panics
    /// If a page does not hold four elements.
    pub fn new(device: &'d dyn Device, value_bytes: usize) -> Result<Tree<'d>> {
        let root = Node::new(true, value_bytes);
        assert!(root.room() >= 4, "a leaf holds at least four elements");
        let mut tree = Tree {
            device,
            value_bytes,
            root: 0,
            pages: 1,
            reads: 0,
            writes: 0,
            inner_writes: 0,
        };
        tree.write(0, &root)?;
        Ok(tree)
    }

    fn read(&mut self, page: u64) -> Result<Node> {
        let mut bytes = AlignedBuf::new(1);
        self.reads += 1;
        self.device
            .read(page, &mut bytes, TAG)
            .context("the flash file cannot be read")?;
        let magic = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        let entry = Node::entry_bytes(bytes[4] == 1, self.value_bytes);
        let node = Node { bytes, entry };
        ensure!(
            magic == MAGIC && node.count() <= node.room(),
            "page {page} of the tree is not a page of it"
        );
        Ok(node)
    }

    fn write(&mut self, page: u64, node: &Node) -> Result<()> {
        self.writes += 1;
        self.inner_writes += u64::from(!node.is_leaf());
        self.device
            .write_durable(page, &node.bytes, TAG)
            .context("the flash file cannot be written")
    }

    /// The number of a key's leaf, the leaf, and the pages above.
    fn descend(&mut self, key: u64) -> Result<(u64, Node, Vec<Step>)> {
        let (mut page, mut path) = (self.root, Vec::new());
        loop {
            let node = self.read(page)?;
            if node.is_leaf() {
                return Ok((page, node, path));
            }
            let entry = node.beyond(key).saturating_sub(1);
            let child = node.word(entry, 1);
            path.push(Step { page, node, entry });
            page = child;
        }
    }

    /// Puts an element, durably.
    pub fn put(&mut self, wanted: &Wanted) -> Result<()> {
        let (mut key, mut other) = (order(wanted), wanted.number);
        let (mut page, mut node, mut path) = self.descend(key)?;
        let at = node.beyond(key);
        if at > 0 && node.word(at - 1, 0) == key {
            node.set(at - 1, key, other);
            return self.write(page, &node);
        }
        let mut at = at;
        loop {
            if node.count() < node.room() {
                node.insert(at, key, other);
                return self.write(page, &node);
            }
            let mut upper = node.split(self.value_bytes);
            let half = node.count();
            if at > half {
                upper.insert(at - half, key, other);
            } else {
                node.insert(at, key, other);
            }
            ensure!(
                self.pages + 1 < self.device.pages(),
                "there is no room for another page"
            );
            let new = self.pages;
            self.pages += 1;
            self.write(new, &upper)?;
            self.write(page, &node)?;
            (key, other) = (upper.word(0, 0), new);
            match path.pop() {
                Some(above) => (page, node, at) = (above.page, above.node, above.entry + 1),
                None => {
                    let mut root = Node::new(false, self.value_bytes);
                    root.insert(0, 0, page);
                    root.insert(1, key, other);
                    self.root = self.pages;
                    self.pages += 1;
                    return self.write(self.root, &root);
                }
            }
        }
    }

    /// The value of a key.
    pub fn get(&mut self, wanted: &Wanted) -> Result<Option<Vec<u8>>> {
        let key = order(wanted);
        let (_, node, _) = self.descend(key)?;
        let at = node.beyond(key);
        if at == 0 || node.word(at - 1, 0) != key {
            return Ok(None);
        }
        let from = START + (at - 1) * node.entry + PAIR;
        Ok(Some(node.bytes[from..from + self.value_bytes].to_vec()))
    }

    /// Pages of the device that the tree has.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}
