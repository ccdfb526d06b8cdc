// SPDX-License-Identifier: Apache-2.0
//! Sizes and counts in messages.

use std::fmt::Display;

/// Bytes as a user writes them, for a message that refuses them. Nothing is rounded: the unit is
/// the largest in which they have at most two decimals.
///
/// ```
/// use senko_io::exact_size;
/// assert_eq!(exact_size(3 << 29), "1.5 GiB");
/// assert_eq!(exact_size((64 << 20) - 1), "67108863 bytes");
/// ```
pub fn exact_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let exact = units.into_iter().find_map(|(shift, name)| {
        let hundredths = u128::from(bytes) * 100;
        let whole = hundredths >> shift;
        (bytes >> shift > 0 && whole << shift == hundredths)
            .then(|| format!("{} {name}", whole as f64 / 100.0))
    });
    exact.unwrap_or_else(|| counted(bytes, "byte"))
}

/// A count with its noun.
///
/// ```
/// use senko_io::counted;
/// assert_eq!([counted(1, "row"), counted(2, "row")], ["1 row", "2 rows"]);
/// ```
pub fn counted(count: impl Display, what: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {what}{plural}")
}
