// SPDX-License-Identifier: Apache-2.0
//! The binary from outside: texts, refusals, `senko serve` from start to SIGTERM, and the drop-in
//! by the name memcached.

#![allow(clippy::unwrap_used)]
// Words are given by reference or by value.
#![allow(clippy::needless_borrows_for_generic_args)]

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod fill; // a server that is filled from another
mod ctl; // `senko ctl`
mod dbm; // `senko dbm`
mod dbm_formats; // its dumps, and other programs' dumps
mod dropin; // the name memcached
mod examples; // every example of the documents and the help texts
mod load; // `senko load`
mod load_tls; // `senko load --tls`
mod overwrite; // files that commands write, and those that they must not
mod plan; // `senko plan`
mod no_eviction; // `-M` with flash
mod process; // a server process and a scratch folder, cleaned up
mod serve; // `senko serve`
mod ssd; // `senko ssd`
mod store; // `senko store`
mod texts; // help, version, refusals
mod transfer; // `senko dump` and `senko restore`
mod zeros; // 0 for options for which it makes no sense
