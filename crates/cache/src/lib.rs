// SPDX-License-Identifier: Apache-2.0
//! A cache shard over DRAM and flash.
