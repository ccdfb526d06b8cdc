// SPDX-License-Identifier: Apache-2.0
//! How much flash for each byte of DRAM: by price, by the capacity of a machine, by the size of an
//! index. For `senko plan --ratios`.
//!
//! *Source*: paper A, chapter 8. Figure 49: the price of flash with its DRAM, for each byte of
//! flash, falls with the ratio and approaches the price of flash alone. Table 10: a machine holds
//! 37.5 times as much flash as DRAM. Table 11: the largest amount of flash that an index of 16 bits
//! an element allows. The paper uses the areas of the cells as prices, 9 to 2. It calls the price
//! flat from "about ten times" on, where it is 1.45 times that of flash alone ([`FLAT`]).

use crate::Table;

/// The paper's ratio of ten: flash with its DRAM costs this many times the price of flash alone.
pub const FLAT: f64 = 1.45;

/// The paper's sizes of key and value, in bytes.
pub const SIZES: [u64; 5] = [16, 64, 256, 1024, 4096];

/// The ratios of figure 49's axis.
const RATIOS: [f64; 12] = [
    1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 37.5, 50.0, 100.0, 200.0, 500.0, 1000.0,
];

/// Prices, the capacity of a machine, and the size of an index.
///
/// ```
/// use senko_plan::ratios::PAPER;
///
/// assert_eq!(PAPER.machine_ratio(), 37.5);
/// assert_eq!(PAPER.index_ratio(1024), 516.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Premises {
    /// Price of DRAM, a GB.
    pub dram_price: f64,
    /// Price of flash, a GB.
    pub flash_price: f64,
    /// Bytes of DRAM that a machine holds.
    pub machine_dram: f64,
    /// Bytes of flash that it holds.
    pub machine_flash: f64,
    /// Bits of DRAM for an element on flash.
    pub index_bits: f64,
    /// Bytes of an element besides key and value.
    pub header_bytes: f64,
}

/// The paper's assumptions: 9 to 2; 12 modules of 8 GB and 6 drives of 600 GB; a map of 16 bits.
pub const PAPER: Premises = Premises {
    dram_price: 9.0,
    flash_price: 2.0,
    machine_dram: 96e9,
    machine_flash: 3600e9,
    index_bits: 16.0,
    header_bytes: 8.0,
};

/// Today's: the default prices of `senko plan`; 24 modules of 64 GB and 24 drives of 15.36 TB; the
/// index of `senko serve`, 9 bytes, and its record's 32 bytes.
pub const TODAY: Premises = Premises {
    dram_price: 4.0,
    flash_price: 0.1,
    machine_dram: 1536e9,
    machine_flash: 368.64e12,
    index_bits: 72.0,
    header_bytes: 32.0,
};

impl Premises {
    /// The price of a GB of flash with its share of DRAM, at this many bytes of flash a byte of
    /// DRAM.
    pub fn price(&self, ratio: f64) -> f64 {
        self.flash_price + self.dram_price / ratio
    }

    /// The ratio from which on that price is at most [`FLAT`] times that of flash.
    pub fn flat_from(&self) -> f64 {
        self.dram_price / (self.flash_price * (FLAT - 1.0))
    }

    /// Bytes of flash a byte of DRAM that a machine holds.
    pub fn machine_ratio(&self) -> f64 {
        self.machine_flash / self.machine_dram
    }

    /// Bytes of flash for each byte of index, for elements of this size of key and value.
    pub fn index_ratio(&self, size: u64) -> f64 {
        (size as f64 + self.header_bytes) / (self.index_bits / 8.0)
    }

    /// The share of a full machine's DRAM that the index takes; above 1 it does not fit.
    pub fn index_share(&self, size: u64) -> f64 {
        self.machine_ratio() / self.index_ratio(size)
    }
}

/// Figure 49, table 10 and table 11 for several assumptions, each with its name.
pub fn tables(all: &[(&str, Premises)]) -> Vec<Table> {
    let columns = |first: &str, what: &[&str]| -> Vec<String> {
        let names = all.iter().flat_map(|(name, _)| {
            what.iter()
                .map(move |what| format!("{name} {what}").trim().to_owned())
        });
        std::iter::once(first.to_owned()).chain(names).collect()
    };
    let table = |title: &str, columns: Vec<String>| {
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        Table::new(title, &names)
    };
    let mut prices = table(
        "Flash with its DRAM, price over that of flash alone (figure 49)",
        columns("flash/DRAM", &["price/flash"]),
    );
    for ratio in RATIOS {
        let over = |premises: &Premises| premises.price(ratio) / premises.flash_price;
        let cells = all
            .iter()
            .map(|(_, premises)| format!("{:.3}", over(premises)));
        prices.row(std::iter::once(ratio.to_string()).chain(cells).collect());
    }
    let mut machines = table(
        "What a machine holds (table 10)",
        columns("kind", &["amount"]),
    );
    let row = |name: &str, of: &dyn Fn(&Premises) -> String| {
        let cells = all.iter().map(|(_, premises)| of(premises));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    machines.row(row("DRAM", &|of| {
        format!("{:.0} GB", of.machine_dram / 1e9)
    }));
    machines.row(row("flash", &|of| {
        format!("{:.0} GB", of.machine_flash / 1e9)
    }));
    machines.row(row("flash/DRAM", &|of| {
        format!("{:.1} times", of.machine_ratio())
    }));
    machines.row(row("flash/DRAM where the price is flat", &|of| {
        format!("{:.1} times", of.flat_from())
    }));
    let mut indexes = table(
        "What an index allows, by bytes of key and value (table 11)",
        columns("bytes", &["flash/DRAM", "of a full machine's DRAM %"]),
    );
    for size in SIZES {
        let cells = all.iter().flat_map(|(_, premises)| {
            [
                format!("{:.0}", premises.index_ratio(size)),
                format!("{:.1}", premises.index_share(size) * 100.0),
            ]
        });
        indexes.row(std::iter::once(size.to_string()).chain(cells).collect());
    }
    vec![prices, machines, indexes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tables_to_the_digit() {
        let ratios = SIZES.map(|size| PAPER.index_ratio(size));
        assert_eq!(ratios, [12.0, 36.0, 132.0, 516.0, 2052.0]);
        assert_eq!(PAPER.machine_ratio(), 37.5);
        assert!((PAPER.flat_from() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_table_has_a_column_for_each_of_several_premises() {
        let both = tables(&[("paper", PAPER), ("today", TODAY)]);
        assert_eq!(both[2].columns[1], "paper flash/DRAM");
        assert_eq!((both[2].columns.len(), both[1].columns.len()), (5, 3));
        let one = tables(&[("", PAPER)]);
        assert_eq!(one[2].columns[1], "flash/DRAM");
        assert_eq!(one[2].rows[3], ["1024", "516", "7.3"]);
    }
}
