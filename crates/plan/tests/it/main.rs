// SPDX-License-Identifier: Apache-2.0
//! Curves of hit ratios against simulated caches, and devices whose kind is known.
#![allow(clippy::unwrap_used)]

mod curve; // curves compared with the simulated policy
mod kinds; // kinds of requests
mod policies; // the policy models against slow ones
mod populations; // plans for twenty kinds of requests, and the caches that they plan
mod wear; // what engines write
mod device; // devices, and the verdicts on them
