// SPDX-License-Identifier: Apache-2.0
//! What lies on the device beside logs and blocks.

pub(crate) mod large; // values in extents of their own
pub(crate) mod mark; // how far the youngest log is durable
pub(crate) mod space; // which extents are free
pub(crate) mod superblock; // and the manifest
pub(crate) mod wear; // bytes put, written and given back
