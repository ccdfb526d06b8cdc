// SPDX-License-Identifier: Apache-2.0
//! What tables hold, and changes of it, as bytes.

pub(crate) mod blob; // long values
pub(crate) mod changes;
pub(crate) mod codec;
pub(crate) mod table;
