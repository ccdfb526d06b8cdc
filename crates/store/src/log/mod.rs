// SPDX-License-Identifier: Apache-2.0
//! The block in append order: the only log.
