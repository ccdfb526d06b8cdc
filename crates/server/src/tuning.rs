// SPDX-License-Identifier: Apache-2.0
//! How items go to flash and come back, which may change while the server runs: `ctl.rs` changes
//! it, and workers apply it ([`crate::shared::Cursor`]). The settings only say how it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use senko_cache::{Admission, AdmissionRule};

use crate::settings::Settings;

/// What is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuned {
    /// The rule, and the budget of the whole server.
    pub admission: Admission,
    /// Hits on flash after which an item is promoted, 1 to 3.
    pub promote_after: u8,
}

impl Tuned {
    /// The admission of one of so many shards: each gets its share of the budget.
    pub fn share(&self, shards: usize) -> Admission {
        let shards = shards as u64;
        let mut admission = self.admission;
        if let Some(budget) = &mut admission.budget {
            budget.bytes_per_second = (budget.bytes_per_second / shards).max(1);
            budget.burst = (budget.burst / shards).max(1);
        }
        admission
    }

    /// The rule in the words of `--admission`.
    pub fn rule(&self) -> String {
        match self.admission.rule {
            AdmissionRule::All => "all".to_owned(),
            AdmissionRule::Fetched => "fetched".to_owned(),
            AdmissionRule::Random(percent) => format!("random:{percent}"),
            AdmissionRule::Bytes(most) => format!("bytes:{most}"),
        }
    }

    /// The budget in bytes a second; 0: there is none.
    pub fn budget(&self) -> u64 {
        self.admission.budget.map_or(0, |b| b.bytes_per_second)
    }
}

/// The owner of what is in force.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// How often it was changed.
    changes: AtomicU64,
    now: Mutex<Tuned>,
}

impl Tuning {
    /// As the settings say.
    pub fn of(settings: &Settings) -> Tuning {
        Tuning {
            changes: AtomicU64::new(0),
            now: Mutex::new(Tuned {
                admission: settings.admission,
                promote_after: settings.promote_after,
            }),
        }
    }

    /// A panic under the lock leaves one whole value or the other.
    pub fn now(&self) -> Tuned {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it, for workers to see; returns what was before.
    pub fn change(&self, change: impl FnOnce(&mut Tuned)) -> Tuned {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *now;
        change(&mut now);
        self.changes.fetch_add(1, Ordering::Release);
        before
    }

    /// What came after so many changes, and how many there are now; `None`: nothing.
    pub fn after(&self, seen: u64) -> Option<(Tuned, u64)> {
        let changes = self.changes.load(Ordering::Acquire);
        (changes != seen).then(|| (self.now(), changes))
    }
}
