// SPDX-License-Identifier: Apache-2.0
//! Sorted blocks: written once, read one page a look-up.
