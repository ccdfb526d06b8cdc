// SPDX-License-Identifier: Apache-2.0
//! The cache shard against a model, over devices that answer late, out of order, and with errors.

mod afar; // reads by another worker
mod edges; // records of all lengths around whole pages
mod model; // random commands against a map
mod keep_all; // no eviction over flash: every item stays in one of the tiers
mod no_evict; // full memory, and nothing may be evicted
mod outage; // a device that stalls or fails for a while
mod page_fill; // pages are full when they are written
mod queue; // a queue whose completions the test hands out
mod restart; // kills, clean stops, lost memory
mod sorted; // what sorted items cost
mod stay; // which items eviction leaves in DRAM
mod steps; // how much work a step does
mod stream;
mod upload; // large values piece by piece
