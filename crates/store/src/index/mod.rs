// SPDX-License-Identifier: Apache-2.0
//! From the hash of a key to the blocks that may hold it.
