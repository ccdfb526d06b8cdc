// SPDX-License-Identifier: Apache-2.0
//! The I/O layer under every engine: devices of pages, sockets, one ring per thread.
//!
//! This is the only crate with file, socket or ring system calls; it knows nothing of keys. Store
//! and DBM use the *blocking* interface ([`Device`]). The cache never waits, so it uses the
//! *queued* interface ([`Queue`]). [`EventLoop`] joins the queued interface and sockets, on
//! io_uring or on epoll and a thread pool. [`faulty`] implements both interfaces in memory. From a
//! seed it loses, tears, reorders, corrupts and fails operations. [`trace`] wraps either interface
//! and records the device operations.

#![warn(missing_docs)]

mod ahead; // memory is touched before it is used
mod boot; // the time since boot
mod conns; // the table of connections, for both backends
mod content; // whether a file holds foreign data
mod counters; // sums and differences of structs of counters
mod device; // the blocking interface
mod disk; // the table of device operations in flight, for both backends
mod event; // the settings of a loop and its events
mod event_loop; // sockets and files on one loop: the facade over the two backends
pub mod fault; // faults on demand under a running loop, for tests of a whole server
pub mod faulty; // the in-memory device that fails from a seed, both interfaces
mod file; // a flash file or block device: open, probe, preallocate, lock
mod file_system; // free space, and whether it is in memory
pub mod le; // numbers in bytes, little-endian
pub mod memory; // a file on a disk in memory
mod net; // listening and connecting
mod observe; // for tests: a call before each store into shared memory
mod passed; // sockets that a service manager passes
pub mod out; // results on stdout, whose reader may leave
mod output; // results of commands: never over an input, or over a file in use
mod page; // aligned memory: page runs to write, pooled frames to read into
mod posix; // backend: epoll, and a thread pool for the disk
mod queue; // the queued interface: submit now, completion later
mod recv; // receive buffers
pub mod say; // lines on stderr that never stop the work
mod send; // the data of a send
mod shared; // memory that outlives the process: files on tmpfs
mod snapshot; // files that are written and read as a whole
mod stats; // counts of what reached the devices
mod tag; // the engine and the purpose of an I/O
mod times; // a histogram of durations
pub mod trace; // the recorder of device operations, and the reader of its format
pub mod undo; // what a command has made, undone at its end
mod unfinished; // a file that gets its name when it is complete
mod units; // sizes and counts in messages
mod uring; // backend: io_uring
mod wake; // waking a loop from another thread

pub use ahead::touch_ahead;
pub use boot::since_boot;
pub use content::{Content, MOST_READ, content_of, find_content};
pub use device::{Device, MOST_UNDER_WAY, ReadRequest, ReadStream};
pub use event::{BackendChoice, ConnId, Event, ListenerId, LoopConfig};
pub use event_loop::{Backend, EventLoop};
pub use file::fork_count::forks;
pub use file::told::error_number;
pub use file::{FileId, FileOptions, FlashFile, discard_bytes, refuse_file_in_dev};
pub use file_system::FileSystem;
pub use net::{Listener, SocketFile, connect_tcp, connect_unix};
pub use observe::observe_stores;
pub use output::Output;
pub use page::{
    AlignedBuf, FramePool, MappedMemory, PAGE_SIZE, PageBuf, prefetch, prefetch_address,
};
pub use passed::passed_listeners;
pub use queue::{Completion, DeviceId, IoError, Op, Queue};
pub use recv::RecvBuf;
pub use send::{Piece, PinnedBytes, SendBatch, SendMode};
pub use shared::{SharedFile, Words};
pub use snapshot::{Snapshot, SnapshotReader};
pub use stats::{DeviceTimes, DiskCount, DiskStats};
pub use tag::{Engine, Purpose, Tag};
pub use times::Times;
pub use unfinished::Unfinished;
pub use units::{counted, exact_size};
pub use wake::Waker;
