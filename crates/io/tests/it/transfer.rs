// SPDX-License-Identifier: Apache-2.0
//! Sending from a file by sendfile: what goes to the socket, what comes back, and what a vanished
//! peer does.

use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use senko_io::transfer::{Answer, CachedFile, Job, Moved, Transferred, Transfers};
use senko_io::{
    AlignedBuf, Backend, Device, EventLoop, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag,
};

use crate::support::{Folder, PATIENCE, Rng, config, poll_until, seed};

const TAG: Tag = Tag::cache(Purpose::Lookup);
const PAGES: u64 = 64;

/// Looks for a range whose bytes it knows.
#[derive(Debug)]
struct Wanted {
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl Answer for Wanted {
    fn find(&mut self, pages: &[u8]) -> Option<Range<usize>> {
        (pages[self.range.clone()] == self.bytes[..]).then(|| self.range.clone())
    }
}

/// A file of random bytes; none where the file system is refused.
fn random_file(folder: &Folder, rng: &mut Rng) -> Option<(Arc<FlashFile>, Vec<u8>)> {
    let options = FileOptions {
        bytes: PAGES * PAGE_SIZE as u64,
        ..FileOptions::default()
    };
    let file = Arc::new(FlashFile::open(&folder.file("flash"), &options).unwrap());
    if let Err(error) = CachedFile::open(Arc::clone(&file)) {
        println!("skipped: {error}");
        return None;
    }
    let bytes = rng.bytes(PAGES as usize * PAGE_SIZE);
    write(&file, 0, &bytes);
    Some((file, bytes))
}

fn write(file: &FlashFile, page: u64, bytes: &[u8]) {
    let mut buf = AlignedBuf::new(bytes.len() / PAGE_SIZE);
    buf.copy_from_slice(bytes);
    file.write(page, &buf, TAG).unwrap();
}

struct Bench {
    file: Arc<CachedFile>,
    pool: Transfers<Wanted>,
    ev: EventLoop,
}

impl Bench {
    fn new(file: &Arc<FlashFile>) -> Bench {
        let ev = EventLoop::new(&config(Backend::Posix)).unwrap();
        Bench {
            file: Arc::new(CachedFile::open(Arc::clone(file)).unwrap()),
            pool: Transfers::new(3, 16, ev.waker()).unwrap(),
            ev,
        }
    }

    fn start(&self, socket: &UnixStream, page: u64, pages: usize, answer: Wanted) {
        self.pool.start(Job {
            file: Arc::clone(&self.file),
            page,
            pages,
            tag: TAG,
            socket: OwnedFd::from(socket.try_clone().unwrap()),
            answer,
        });
    }

    /// The next job that ends; its end wakes the loop.
    fn wait(&mut self) -> Transferred<Wanted> {
        let mut done = Vec::new();
        let started = Instant::now();
        while done.is_empty() {
            assert!(started.elapsed() < PATIENCE, "no job ends");
            poll_until(&mut self.ev, |events| !events.is_empty());
            self.pool.take_done(&mut done);
        }
        assert_eq!(done.len(), 1);
        done.remove(0)
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

#[test]
fn what_was_checked_is_sent_lap_after_lap() {
    let mut rng = Rng(seed("what_was_checked_is_sent_lap_after_lap"));
    let folder = Folder::new();
    let Some((file, mut bytes)) = random_file(&folder, &mut rng) else {
        return;
    };
    let mut bench = Bench::new(&file);
    let (ours, mut theirs) = pair();
    for _ in 0..300 {
        let pages = 1 + rng.below(16) as usize;
        let page = rng.below(PAGES - pages as u64 + 1);
        let at = page as usize * PAGE_SIZE;
        if rng.below(3) == 0 {
            // What the page cache has of this range is old from here on.
            let new = rng.bytes(pages * PAGE_SIZE);
            write(&file, page, &new);
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        let start = rng.below((pages * PAGE_SIZE) as u64) as usize;
        let len = rng.below((pages * PAGE_SIZE - start) as u64 + 1) as usize;
        let mut wanted = bytes[at + start..at + start + len].to_vec();
        let spoilt = len > 0 && rng.below(5) == 0;
        if spoilt {
            wanted[len / 2] ^= 1;
        }
        let answer = Wanted {
            bytes: wanted.clone(),
            range: start..start + len,
        };
        bench.start(&ours, page, pages, answer);
        match bench.wait().moved {
            Moved::Nothing => assert!(spoilt),
            Moved::Sent { bytes, rest } => {
                assert!(!spoilt);
                let mut got = vec![0; bytes];
                theirs.read_exact(&mut got).unwrap();
                got.extend_from_slice(&rest);
                assert!(got == wanted, "{len} bytes at {start} of page {page}");
            }
            Moved::Unread(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_a_full_socket_does_not_take_comes_back() {
    let mut rng = Rng(seed("what_a_full_socket_does_not_take_comes_back"));
    let folder = Folder::new();
    let Some((file, bytes)) = random_file(&folder, &mut rng) else {
        return;
    };
    let mut bench = Bench::new(&file);
    let (ours, mut theirs) = pair();
    let range = 10..16 * PAGE_SIZE - 7;
    let mut wanted = Vec::new();
    let mut sent = 0;
    let mut full = false;
    while !full {
        let answer = Wanted {
            bytes: bytes[range.clone()].to_vec(),
            range: range.clone(),
        };
        bench.start(&ours, 0, 16, answer);
        let Moved::Sent { bytes: n, rest } = bench.wait().moved else {
            panic!("not sent")
        };
        assert_eq!(n + rest.len(), range.len());
        assert!(rest == bytes[range.start + n..range.end]);
        wanted.extend_from_slice(&bytes[range.start..range.start + n]);
        sent += n;
        full = !rest.is_empty();
    }
    let mut got = vec![0; sent];
    theirs.read_exact(&mut got).unwrap();
    assert!(got == wanted);
}

#[test]
fn a_peer_that_is_gone_and_pages_that_are_not_there() {
    let mut rng = Rng(1);
    let folder = Folder::new();
    let Some((file, bytes)) = random_file(&folder, &mut rng) else {
        return;
    };
    let mut bench = Bench::new(&file);
    let (ours, theirs) = pair();
    drop(theirs);
    let answer = || Wanted {
        bytes: bytes[..5000].to_vec(),
        range: 0..5000,
    };
    bench.start(&ours, 0, 2, answer());
    let Moved::Sent { bytes: 0, rest } = bench.wait().moved else {
        panic!("something was sent to nobody")
    };
    assert!(rest == bytes[..5000]);
    bench.start(&ours, PAGES - 1, 2, answer());
    assert!(matches!(bench.wait().moved, Moved::Unread(_)));
    // A pool that goes takes the jobs with it that nobody has begun.
    for _ in 0..100 {
        bench.start(&ours, 0, 2, answer());
    }
    drop(bench);
}
