// SPDX-License-Identifier: Apache-2.0
//! Counts by cause as `{"host": 3, "gc": 1, ...}`: readers of results need not know the order of
//! causes.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

use super::{CAUSES, Cause};

pub(super) fn serialize<S: Serializer>(
    counts: &[u64; CAUSES],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Cause::ALL.iter().map(|cause| cause.name()).zip(counts))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[u64; CAUSES], D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let mut counts = [0; CAUSES];
    for (cause, count) in Cause::ALL.iter().zip(&mut counts) {
        *count = *named
            .get(cause.name())
            .ok_or_else(|| D::Error::custom(format!("the cause {} is missing", cause.name())))?;
    }
    Ok(counts)
}
