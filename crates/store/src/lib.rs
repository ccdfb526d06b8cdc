// SPDX-License-Identifier: Apache-2.0
//! An unordered key-value store on flash with about two bytes of DRAM a key (paper A).

#![deny(unsafe_code)]

mod error; // what can go wrong
mod hash; // a key's hash, computed once
mod space; // which parts of the file are free

pub mod element; // how one key, value and time lie on flash
pub mod block; // sorted blocks: written once, one page a look-up
pub mod index; // from a hash to a block
pub mod log; // the block in append order

pub use error::StoreError;
pub use hash::{Hasher, KeyHash, SHARDS};
pub use space::Extent;
