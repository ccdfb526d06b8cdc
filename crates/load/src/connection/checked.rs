// SPDX-License-Identifier: Apache-2.0
//! The checking half of a connection: it compares a value or a number with the possible answers to
//! its request. [`super::Receiver`] calls it when a value is complete.

use super::{Kind, Pending, Receiver};
use crate::changes::{self, Class};
use crate::check::{self, Expected, FaultKind, Finding};

impl Receiver<'_> {
    #[cold]
    pub(super) fn fault(&mut self, finding: Finding) {
        let key_id = self.incoming.asked.map_or(0, |asked| asked.key_id);
        let mut buffer = [0; senko_workload::key::MAX_KEY_LEN];
        let key = self.shared.plan.space.write(key_id, &mut buffer);
        self.tally.fault(finding.on(key_id, key));
    }

    pub(super) fn check(&mut self, value: &[u8]) {
        self.incoming.settled = true;
        let Some(asked) = self.incoming.asked else {
            return;
        };
        if matches!(asked.kind, Kind::Change(_)) {
            return self.check_number(changes::number(value), asked);
        }
        self.tally.now.counts.verified += 1;
        let plan = self.shared.plan;
        let expected = Expected {
            key_id: asked.key_id,
            versions: self.shared.admissible(asked.key_id, asked.version),
            len_of: &|version| plan.value_len(asked.key_id, version),
        };
        let flags = self.incoming.flags;
        let found = match plan.classes.of(asked.key_id) {
            Class::Plain => check::check(value, flags, &expected),
            Class::Counter => check::check_counter(value, flags, &expected.versions)
                .and_then(|(version, count)| self.check_count(asked, version, count)),
            Class::Text => check::check_text(value, flags, &expected)
                .and_then(|(version, count)| self.check_count(asked, version, count)),
        };
        self.conclude(asked, found);
    }

    /// Checks the number that an `incr` or a `decr` returned; `None`: it is not a number.
    pub(super) fn check_number(&mut self, number: Option<u64>, asked: Pending) {
        if !self.shared.plan.settings.verify {
            return;
        }
        self.incoming.asked = Some(asked);
        self.tally.now.counts.verified += 1;
        let versions = self.shared.admissible(asked.key_id, asked.version);
        let found = match number {
            Some(number) => check::check_number(number, &versions)
                .and_then(|(version, count)| self.check_count(asked, version, count)),
            None => Err(Finding::plain(
                FaultKind::Wrong,
                "the answer to an incr or decr is no number",
            )),
        };
        self.conclude(asked, found);
    }

    /// Checks how many changes a value has.
    fn check_count(&self, asked: Pending, version: u32, count: i64) -> Result<(), Finding> {
        let Some(mut track) = self.shared.track(asked.key_id) else {
            return Ok(());
        };
        let own = match asked.kind {
            Kind::Change(change) => Some(change),
            _ => None,
        };
        let Some(right) = track.bounds(asked.mark, version, own) else {
            track.learn(version, count);
            return Ok(());
        };
        check::check_count(version, count, &right)
    }

    fn conclude(&mut self, asked: Pending, found: Result<(), Finding>) {
        if let Err(finding) = found {
            self.fault(finding);
        } else if self.shared.must_have_expired(asked.key_id, asked.sent) {
            let detail = format!(
                "its life of {} s had ended when it was read",
                self.shared.plan.settings.expire
            );
            self.fault(Finding::plain(FaultKind::Expired, detail));
        }
    }
}
