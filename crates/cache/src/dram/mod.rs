// SPDX-License-Identifier: Apache-2.0
//! The DRAM tier: what an item is in the arena, and which items leave first.

pub(crate) mod classes; // what happened in each size class
pub(crate) mod item; // an item in the arena
pub(crate) mod policy; // which items leave DRAM first
