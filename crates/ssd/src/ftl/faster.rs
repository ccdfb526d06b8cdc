// SPDX-License-Identifier: Apache-2.0
//! FASTer: FAST in which a valid page of a reclaimed log block gets a second chance.
//!
//! Idea: in workloads such as OLTP many pages that are still valid when their log block is
//! reclaimed are overwritten soon after. So they are not merged but copied to the isolation area, a
//! separate queue of log blocks (in `fast.rs`). Most become invalid there. Pages that are still
//! valid when the area's oldest block must be freed are merged fully.
//!
//! Source: S.-P. Lim, S.-W. Lee, B. Moon, "FASTer FTL for enterprise-class flash memory SSDs",
//! SNAPI 2010. Options: `log-blocks`, all of them; `isolation-blocks`, those of the isolation area,
//! by default a quarter. Deviations: the paper spreads the merges of the isolation area over the
//! writes that follow, to even out response times. Here a block of it is merged at once. That
//! changes when pages are copied and erased, but not how many.

use crate::Error;
use crate::ftl::Made;
use crate::ftl::fast::Fast;
use crate::nand::Nand;
use crate::spec::Spec;

pub(super) const NAME: &str = "faster";

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let log_blocks: u32 = spec.take("log-blocks", 16)?;
    let isolation_blocks: u32 = spec.take("isolation-blocks", (log_blocks / 4).max(1))?;
    if isolation_blocks == 0 {
        return Err(Error::Spec(format!(
            "{NAME} needs at least 1 isolation block; without one it is fast"
        )));
    }
    Ok(Box::new(Fast::new(
        NAME,
        nand,
        logical_pages,
        log_blocks,
        isolation_blocks,
    )?))
}
