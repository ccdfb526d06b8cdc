// SPDX-License-Identifier: Apache-2.0
//! The words of a server that outlive its process: the number of acknowledged `flush_all`, the
//! time, and the start that has the memory.
//!
//! A `flush_all` is answered when its number is stored here. Each shard notes the last one that it
//! has applied ([`crate::Shard::set_flushes`]). A shard that was killed before that applies it when
//! it is restored.

use std::io;

use senko_io::{SharedFile, Words};

use crate::superblock::VERSION;
use crate::words::{get_checked, set_checked};

/// `SENKOSRV`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"SENKOSRV");
const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_ID: usize = 2;
const AT_FLUSHES: usize = 3;
const AT_DUE: usize = 4;
const AT_SECOND: usize = 5;
const AT_OPENED: usize = 6;
/// All words with a checksum.
const CHECKED: [usize; 5] = [AT_ID, AT_FLUSHES, AT_DUE, AT_SECOND, AT_OPENED];
const COUNT: usize = 8;

/// The state that a server keeps in shared memory. Any thread may use it. Callers that change a
/// flush hold a lock of their own.
#[derive(Debug)]
pub struct ServerWords {
    words: Words,
}

impl ServerWords {
    /// New words.
    pub fn new(file: SharedFile, id: u64) -> io::Result<ServerWords> {
        let words = file.words(COUNT)?;
        CHECKED.iter().for_each(|&n| set_checked(&words, n, 0));
        set_checked(&words, AT_ID, id & ID_MASK);
        words.set(AT_VERSION, u64::from(VERSION));
        words.set(AT_MAGIC, MAGIC);
        Ok(ServerWords { words })
    }

    /// The words that a killed server left; `None` if they are incomplete, or another server's.
    pub fn kept(file: SharedFile, id: u64) -> io::Result<Option<ServerWords>> {
        let words = file.words(COUNT)?;
        let whole = words.get(AT_MAGIC) == MAGIC
            && words.get(AT_VERSION) == u64::from(VERSION)
            && get_checked(&words, AT_ID) == Some(id & ID_MASK)
            && CHECKED.iter().all(|&n| get_checked(&words, n).is_some());
        Ok(whole.then_some(ServerWords { words }))
    }

    /// How many `flush_all` were acknowledged.
    pub fn flushes(&self) -> u64 {
        get_checked(&self.words, AT_FLUSHES).unwrap_or(0)
    }
    /// Sets how many.
    pub fn set_flushes(&self, flushes: u64) {
        set_checked(&self.words, AT_FLUSHES, flushes);
    }
    /// Unix second of a planned `flush_all`; 0: none.
    pub fn flush_due(&self) -> u32 {
        get_checked(&self.words, AT_DUE).unwrap_or(0) as u32
    }
    pub fn set_flush_due(&self, due: u32) {
        set_checked(&self.words, AT_DUE, u64::from(due));
    }
    /// The latest Unix second that the server's clock has shown.
    pub fn second(&self) -> u32 {
        get_checked(&self.words, AT_SECOND).unwrap_or(0) as u32
    }
    pub fn set_second(&self, second: u32) {
        set_checked(&self.words, AT_SECOND, u64::from(second));
    }
    /// The number of the start that has the memory, as labels carry it.
    pub fn opened(&self) -> u64 {
        get_checked(&self.words, AT_OPENED).unwrap_or(0)
    }
    pub fn set_opened(&self, opened: u64) {
        set_checked(&self.words, AT_OPENED, opened & ID_MASK);
    }
}

/// Bits of a number that a checked word holds.
const ID_MASK: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder() -> Folder {
        let name = format!("senko-server-words-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn kept(path: &Path, id: u64) -> Option<ServerWords> {
        let file = SharedFile::open(path).expect("readable").expect("there");
        ServerWords::kept(file, id).expect("mapped")
    }

    /// A server is killed after it answered two `flush_all` and noted a planned third. The next
    /// process finds all three words, but only if they are complete and of the same server.
    #[test]
    fn the_next_process_finds_what_a_killed_server_noted() {
        let folder = folder();
        let path = folder.0.join("words");
        // Only 48 bits of the number are kept.
        let id = 0xabcd_0000_0000_0077;
        let new = SharedFile::create(&path).expect("made");
        let words = ServerWords::new(new, id).expect("mapped");
        assert_eq!(
            (words.flushes(), words.flush_due(), words.second()),
            (0, 0, 0)
        );
        words.set_flushes(2);
        words.set_flush_due(1_800_000_000);
        words.set_second(1_790_000_000);
        words.set_opened(7);
        let now = |words: &ServerWords| {
            let times = (words.flush_due(), words.second());
            (words.flushes(), times, words.opened())
        };
        let noted = (2, (1_800_000_000, 1_790_000_000), 7);
        assert_eq!(now(&words), noted);
        drop(words);
        let again = kept(&path, id).expect("whole");
        assert_eq!(now(&again), noted);
        assert!(kept(&path, id + 1).is_none(), "the words of another folder");
        for at in [AT_MAGIC, AT_VERSION].into_iter().chain(CHECKED) {
            let word = again.words.get(at);
            again.words.set(at, word ^ 1 << 20);
            assert!(kept(&path, id).is_none(), "word {at} is damaged");
            again.words.set(at, word);
        }
        assert!(kept(&path, id).is_some());
    }
}
