// SPDX-License-Identifier: Apache-2.0
//! Memory that will be used soon is touched by a thread of its own.
//!
//! The first touch of a page makes the system find memory and clear it. For a large page that is
//! 2 MiB, which takes a tenth of a millisecond, and several milliseconds where a host has to find
//! the memory for a virtual machine. The thread takes that work from the worker, which would stop
//! all of its clients. It starts with the first request, and serves the whole process.
//!
//! Always holds: contents never change. A request that is lost, because there are too many or there
//! is no thread, costs time only.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::page::{MappedMemory, PAGE_SIZE};

/// Bytes `from..from + bytes` of a mapping.
struct Request {
    memory: MappedMemory,
    from: usize,
    bytes: usize,
}

/// The most requests that wait.
const MOST: usize = 64;

/// Has pages `first..first + count` of a mapping made resident by another thread, so that their
/// first use does not wait for the system. It is a hint, for pages that will be used soon.
pub fn touch_ahead(memory: MappedMemory, first: usize, count: usize) {
    static REQUESTS: OnceLock<Option<SyncSender<Request>>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (sender, requests) = sync_channel::<Request>(MOST);
        let touches = move || {
            for request in requests {
                request.memory.touch(request.from, request.bytes);
            }
        };
        let thread = std::thread::Builder::new().name("touch".into());
        thread.spawn(touches).ok().map(|_| sender)
    });
    if let Some(requests) = requests {
        let request = Request {
            memory,
            from: first * PAGE_SIZE,
            bytes: count * PAGE_SIZE,
        };
        let _ = requests.try_send(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::AlignedBuf;

    #[test]
    fn pages_are_touched_ahead_and_no_others() {
        let mut buf = AlignedBuf::new(64);
        buf.prefer_small(0, 64);
        let memory = buf.mapping();
        memory.touch(0, PAGE_SIZE);
        if !memory.resident()[0] {
            println!("skipped: the kernel has no MADV_POPULATE_WRITE");
            return;
        }
        buf[5 * PAGE_SIZE] = 7;
        touch_ahead(buf.mapping(), 4, 10);
        while !memory.resident()[4..14].iter().all(|&there| there) {
            std::thread::yield_now();
        }
        assert_eq!(memory.resident().iter().filter(|&&there| there).count(), 11);
        assert_eq!((buf[5 * PAGE_SIZE], buf[4 * PAGE_SIZE]), (7, 0));
    }
}
