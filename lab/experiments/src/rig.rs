// SPDX-License-Identifier: Apache-2.0
//! The common parts of experiments on servers: scratch files, memory caps, contenders, traffic, the
//! disk's counters.
//!
//! ```text
//!   Bench: scratch folder, block device, two cores, programs, noise probes
//!     +- Server (contender.rs): a process on its core, in a memory cap (cgroup.rs), until it is dropped
//!     +- traffic.rs: the load generator on the other core -> Window: rate, latency, CPU of both sides, device reads
//!     +- fio.rs, swap.rs: the rivals' machinery
//! ```
//!
//! Always holds: everything that a run made on the machine (files, swap areas, groups, processes)
//! is undone when its owner is dropped, and also on SIGINT, SIGTERM and SIGHUP ([`cleanup`]). A
//! process dies with its parent. A figure that can't be measured here is an `Err` with one
//! sentence, which the experiment reports as missing.

pub mod bench; // the machine as an experiment sees it
pub mod certificate; // for contenders with TLS
pub mod cgroup; // a cap on a server's memory, its page cache included
pub mod cleanup; // what has to be undone, whatever happens
pub mod contender; // a server under test
pub mod crowd; // clients that misbehave
pub mod device; // the block device behind a file, and the kernel's counts of it
mod middle; // the median
pub mod fio; // the device's own limit
pub mod memtier; // a load generator that is not ours
pub mod nginx; // parts of a file over HTTP
pub mod probe; // was the machine calm?
pub mod process; // memory and I/O of a process
pub mod recorded; // a disk whose requests the kernel records
pub mod scratch; // a folder for large files
pub mod series; // windows of several rounds, as figures and as rows
pub mod run; // an experiment on servers under way
pub mod swap; // a swap file
pub mod sys; // affinity, signals, file systems
pub mod traffic; // the load generator, and the results of a window
pub mod wire; // stats, and commands that the load generator does not send

pub use bench::Bench;
pub use certificate::Certificate;
pub use contender::{Server, Spec};
pub use memtier::Memtier;
pub use middle::median;
pub use run::Run;
pub use series::{Figure, Rounds, Series, Steps, over, put_so_far, ratio, some};
pub use traffic::{Items, Load, Window};
