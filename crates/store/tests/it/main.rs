// SPDX-License-Identifier: Apache-2.0
//! The store, used as its users do.

mod basics; // each call once, against what it says
mod log; // the log alone: model, crashes, damage, threads
