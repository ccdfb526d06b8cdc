// SPDX-License-Identifier: Apache-2.0
//! The store, used as its users do.

mod log; // the log: model, crashes, damage, threads
