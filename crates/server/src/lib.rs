// SPDX-License-Identifier: Apache-2.0
//! The memcached-compatible server over DRAM and flash, and its load generator.
