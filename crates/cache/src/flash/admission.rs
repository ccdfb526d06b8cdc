// SPDX-License-Identifier: Apache-2.0
//! Decides which items that leave DRAM deserve a write, by a rule and a byte budget (a token
//! bucket).
//!
//! Flash wears by bytes written, so the operator sets a rate of bytes, not of items. Reinsertion
//! spends the same budget. An item spends its own bytes when it is admitted. Pages are written
//! whole, with ends that no item fits into. These additional bytes are charged after the write.
//!
//! Always holds: bytes spent = bytes written + `unwritten`. The exception is an item that was
//! admitted and lost with its device, which stays in `unwritten`.

use crate::config::{Admission, AdmissionRule};

/// Why an item was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rule refused it.
    Rule,
    /// The budget is spent.
    Budget,
}

/// The state of the budget.
#[derive(Debug)]
pub(crate) struct Admitter {
    rule: AdmissionRule,
    rate: u64,
    burst: u64,
    /// Bytes that may be written now, in thousandths. It is below zero after ends of pages were
    /// charged.
    millibytes: i128,
    /// Bytes that were spent but not written yet.
    unwritten: u64,
    last_ms: u64,
    limited: bool,
    random: u64,
}

impl Admitter {
    pub fn new(config: Admission, seed: u64) -> Admitter {
        let mut admitter = Admitter {
            rule: config.rule,
            rate: 0,
            burst: 0,
            millibytes: 0,
            unwritten: 0,
            last_ms: 0,
            limited: false,
            random: seed | 1,
        };
        admitter.change(config);
        admitter
    }

    /// Goes on with this rule and budget. A bucket where none was is full. Another bucket keeps
    /// what it has, as far as its burst reaches, and its debt.
    pub fn change(&mut self, config: Admission) {
        let was_limited = self.limited;
        self.rule = config.rule;
        self.limited = config.budget.is_some();
        (self.rate, self.burst) = config
            .budget
            .map_or((0, 0), |b| (b.bytes_per_second, b.burst));
        let full = i128::from(self.burst) * 1000;
        match was_limited {
            true => self.millibytes = self.millibytes.min(full),
            false => (self.millibytes, self.unwritten) = (full, 0),
        }
    }

    /// Fills the bucket up to `now_ms`.
    pub fn advance(&mut self, now_ms: u64) {
        if self.limited && self.last_ms != 0 {
            let gained = i128::from(now_ms.saturating_sub(self.last_ms)) * i128::from(self.rate);
            self.millibytes = (self.millibytes + gained).min(i128::from(self.burst) * 1000);
        }
        self.last_ms = now_ms;
    }

    /// Whether [`Admitter::admit`] would certainly refuse, so that no room need be made. This makes
    /// no random draw: an item that is tried again must not be drawn twice.
    pub fn refuses(&self, bytes: usize, fetched: bool) -> Option<Refusal> {
        if matches!(self.rule, AdmissionRule::Fetched) && !fetched {
            return Some(Refusal::Rule);
        }
        (!self.affords(bytes)).then_some(Refusal::Budget)
    }

    /// Whether the budget has this many bytes. More than a burst need a full bucket, and leave a
    /// debt.
    pub fn affords(&self, bytes: usize) -> bool {
        let needed = i128::from((bytes as u64).min(self.burst));
        !self.limited || needed * 1000 <= self.millibytes
    }

    /// Asks to write `bytes` of an item; `fetched`: it was read while in DRAM. If admitted, it
    /// spends the budget.
    pub fn admit(&mut self, bytes: usize, fetched: bool) -> Result<(), Refusal> {
        if !self.passes(bytes, fetched) {
            return Err(Refusal::Rule);
        }
        self.spend(bytes)
    }

    /// Whether the rule lets an item in. It may be a random draw.
    pub fn passes(&mut self, bytes: usize, fetched: bool) -> bool {
        match self.rule {
            AdmissionRule::All => true,
            AdmissionRule::Fetched => fetched,
            AdmissionRule::Random(percent) => self.draw() % 100 < u64::from(percent),
            AdmissionRule::Bytes(most) => {
                bytes as u64 <= most || self.draw() % (bytes as u64) < most
            }
        }
    }

    /// xorshift64: good enough to thin a stream.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Spends budget for a write to which no rule applies.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Refusal> {
        if !self.affords(bytes) {
            return Err(Refusal::Budget);
        }
        self.spend_anyway(bytes);
        Ok(())
    }

    /// Spends budget for a write that must happen: later ones wait until the debt is paid.
    pub fn spend_anyway(&mut self, bytes: usize) {
        if self.limited {
            self.millibytes -= bytes as i128 * 1000;
            self.unwritten += bytes as u64;
        }
    }

    /// Gives back what was spent for bytes that will not be written.
    pub fn give_back(&mut self, bytes: usize) {
        if self.limited {
            self.millibytes += bytes as i128 * 1000;
            self.unwritten = self.unwritten.saturating_sub(bytes as u64);
        }
    }

    /// Notes that the device got this many bytes.
    pub fn written(&mut self, bytes: u64) {
        if self.limited {
            let unspent = bytes.saturating_sub(self.unwritten);
            self.unwritten = self.unwritten.saturating_sub(bytes);
            self.millibytes -= i128::from(unspent) * 1000;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Budget;

    #[test]
    fn a_budget_holds_over_any_stretch() {
        let budget = Some(Budget {
            bytes_per_second: 1000,
            burst: 500,
        });
        let mut a = Admitter::new(
            Admission {
                rule: AdmissionRule::All,
                budget,
            },
            1,
        );
        let (mut admitted, mut written) = (0, 0);
        for ms in 1..=10_000 {
            a.advance(ms);
            while a.admit(70, false).is_ok() {
                admitted += 70;
                // Five items fill a page of 400 bytes except for its end.
                if admitted % 350 == 0 {
                    a.written(400);
                    written += 400;
                }
            }
        }
        assert!((9_800..=10_600).contains(&written), "{written}");
    }

    /// Of many items that come once, the configured share is admitted, with any seed: none at 0
    /// percent, and all at 100.
    #[test]
    fn draws_let_in_the_share_that_is_asked_for() {
        for (percent, seed) in [
            (0, 1),
            (1, 2),
            (30, 3),
            (30, 0xffff_ffff),
            (99, 4),
            (100, 5),
        ] {
            let rule = AdmissionRule::Random(percent);
            let mut a = Admitter::new(Admission { rule, budget: None }, seed);
            let draws: Vec<bool> = (0..50_000).map(|_| a.admit(70, false).is_ok()).collect();
            let share = draws.iter().filter(|&&passed| passed).count() as f64 / 500.0;
            // Four standard deviations of 50,000 draws are 0.82 percent at most.
            let asked = f64::from(percent);
            let off = 4.0 * (asked * (100.0 - asked) / 50_000.0).sqrt();
            assert!(
                (share - asked).abs() <= off,
                "{share} of {percent}, seed {seed}"
            );
            // Draws are independent of each other.
            let pairs = draws.windows(2).filter(|pair| pair[0] && pair[1]).count();
            let expected = asked * asked / 100.0;
            assert!(
                (pairs as f64 / 500.0 - expected).abs() <= 1.5 * off + 0.01,
                "{pairs} pairs"
            );
        }
    }

    /// However large items are, so many bytes of each are written on average; small ones all are.
    #[test]
    fn items_of_all_sizes_write_the_same_bytes() {
        let rule = AdmissionRule::Bytes(64 << 10);
        let mut a = Admitter::new(Admission { rule, budget: None }, 5);
        assert!((0..1000).all(|n| a.admit(n * 65, false).is_ok()));
        assert!(a.admit(64 << 10, false).is_ok());
        for bytes in [100_000, 1 << 20, 32 << 20] {
            let (draws, p) = (100_000.0, (64 << 10) as f64 / bytes as f64);
            let passed = (0..100_000)
                .filter(|_| a.admit(bytes, true).is_ok())
                .count() as f64;
            // Five standard deviations.
            let off = 5.0 * (draws * p * (1.0 - p)).sqrt();
            assert!((passed - draws * p).abs() <= off, "{passed} of {bytes}");
        }
    }

    /// Whatever is written, another budget begins with no more than its burst, and a debt stays.
    #[test]
    fn another_budget_goes_on_where_the_one_before_was() {
        let of = |rate, burst| Admission {
            rule: AdmissionRule::All,
            budget: Some(Budget {
                bytes_per_second: rate,
                burst,
            }),
        };
        let none = Admission {
            rule: AdmissionRule::Fetched,
            budget: None,
        };
        let mut a = Admitter::new(none, 1);
        a.advance(1);
        assert_eq!(a.admit(10_000, false), Err(Refusal::Rule));
        assert_eq!(a.admit(10_000, true), Ok(()));
        a.change(of(1000, 500));
        assert!(a.affords(500) && a.admit(400, false).is_ok());
        assert!(a.affords(100) && !a.affords(101));
        // More a second, from what is left.
        a.change(of(2000, 1000));
        assert!(a.affords(100) && !a.affords(101));
        a.advance(201);
        assert!(a.affords(500) && !a.affords(501));
        a.change(of(1000, 50));
        assert!(a.affords(50));
        a.spend_anyway(51);
        assert!(!a.affords(50), "the rest is no more than the burst");
        a.spend_anyway(999);
        a.change(of(1000, 500));
        a.advance(1201);
        assert!(a.affords(0) && !a.affords(1), "the debt is paid first");
        a.change(none);
        assert!(a.affords(1 << 40));
        a.change(of(1, 70));
        assert!(a.affords(70) && a.admit(70, false).is_ok() && !a.affords(1));
    }

    /// A write that must happen takes its bytes from the budget. Later writes wait until the bytes
    /// are earned.
    #[test]
    fn a_write_that_must_be_leaves_a_debt() {
        let budget = Some(Budget {
            bytes_per_second: 1000,
            burst: 500,
        });
        let rule = AdmissionRule::All;
        let mut a = Admitter::new(Admission { rule, budget }, 1);
        a.advance(1);
        a.spend_anyway(70);
        assert!(a.affords(430) && !a.affords(431));
        a.spend_anyway(530);
        assert!(!a.affords(0));
        assert_eq!(a.refuses(1, true), Some(Refusal::Budget));
        a.advance(101);
        assert!(a.affords(0) && !a.affords(1));
        a.advance(111);
        assert!(a.affords(10) && !a.affords(11));
        // The 600 admitted bytes are 650 on the device, with the ends of pages.
        a.written(650);
        a.advance(151);
        assert!(a.affords(0) && !a.affords(1));
        a.advance(100_000);
        assert!(a.affords(500));
        // A write larger than a burst passes when the bucket is full.
        assert!(a.affords(5000));
        a.spend_anyway(1);
        assert!(a.affords(499) && !a.affords(5000));
        a.advance(101_000);
        a.spend_anyway(5000);
        a.give_back(4000);
        a.advance(101_499);
        assert!(!a.affords(0), "the debt is paid first");
        a.advance(101_500);
        assert!(a.affords(0) && !a.affords(1));
    }
}
