// SPDX-License-Identifier: Apache-2.0
//! The next requests: the keys of a load or read-back in their order, or draws from a mix.
//!
//! Each thread has a source. The threads of a step share a cursor, from which each claims a few
//! places at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_workload::{KeyChooser, Op, Rng};

use crate::changes::{Change, Class};
use crate::plan::Plan;
use crate::settings::{Amount, Step};

/// Places that a thread claims at once.
const CLAIM: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read(u64),
    Write(u64),
    Modify(u64),
    Change(u64, Change),
}

/// The state that the threads of a step share.
pub struct Cursor {
    next: AtomicU64,
    end: u64,
    /// Number of keys, including inserted ones; it outlives the step.
    newest: AtomicU64,
}

impl Cursor {
    /// A cursor for `step`; `newest` is the number of keys so far.
    pub fn new(plan: &Plan, step: Step, newest: u64) -> Cursor {
        let places = match step {
            Step::Load => 0..plan.keys,
            Step::ReadBack => plan.places.clone(),
            Step::Mix(Amount::Requests(requests)) => 0..requests,
            Step::Mix(Amount::For(_)) | Step::WarmUp(_) => 0..u64::MAX / 2,
        };
        Cursor {
            next: AtomicU64::new(places.start),
            end: places.end,
            newest: AtomicU64::new(newest),
        }
    }

    /// The number of keys, including inserted ones.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// The share of the places that was claimed.
    pub fn share(&self, first: u64) -> f64 {
        let done = self.next.load(Ordering::Relaxed).min(self.end) - first;
        done as f64 / (self.end - first).max(1) as f64
    }
}

pub struct Source<'a> {
    plan: &'a Plan,
    cursor: &'a Cursor,
    step: Step,
    claimed: Range<u64>,
    rng: Rng,
    chooser: KeyChooser,
}

impl<'a> Source<'a> {
    /// The requests of thread number `thread`.
    ///
    /// # Errors
    /// If the key distribution does not fit the keys.
    pub fn new(
        plan: &'a Plan,
        cursor: &'a Cursor,
        step: Step,
        thread: usize,
        rng: Rng,
    ) -> Result<Source<'a>, String> {
        let mut chooser = KeyChooser::new(&plan.settings.mix.popularity, plan.keys)
            .map_err(|error| error.to_string())?;
        chooser.start_at(
            (u128::from(plan.keys) * thread as u128 / plan.settings.threads as u128) as u64,
        );
        Ok(Source {
            plan,
            cursor,
            step,
            claimed: 0..0,
            rng,
            chooser,
        })
    }

    fn place(&mut self) -> Option<u64> {
        if self.claimed.is_empty() {
            let first = self.cursor.next.fetch_add(CLAIM, Ordering::Relaxed);
            self.claimed = first..(first + CLAIM).min(self.cursor.end);
        }
        self.claimed.next()
    }

    /// The next request; `None` when there are no more.
    pub fn want(&mut self) -> Option<Request> {
        let place = self.place()?;
        Some(match self.step {
            Step::Load => Request::Write(self.plan.key_at(place)),
            Step::ReadBack => Request::Read(self.plan.key_at(place)),
            Step::Mix(_) | Step::WarmUp(_) => self.draw(),
        })
    }

    fn draw(&mut self) -> Request {
        let settings = &self.plan.settings;
        if let Some(change) = settings.changes.draw(&mut self.rng) {
            return Request::Change(self.existing_of(change.class()), change);
        }
        match settings.mix.draw(&mut self.rng) {
            Op::Read => Request::Read(self.existing()),
            Op::Update => Request::Write(self.existing_of(Class::Plain)),
            Op::ReadModifyWrite => Request::Modify(self.existing_of(Class::Plain)),
            Op::Insert => Request::Write(self.insert()),
        }
    }

    fn existing_of(&mut self, class: Class) -> u64 {
        let key_id = self.existing();
        let classes = self.plan.classes;
        if classes.count() == 1 {
            return key_id;
        }
        classes.nearest(key_id, class, self.plan.keys)
    }

    /// One more key for a get of several keys.
    pub fn another_read(&mut self) -> Option<u64> {
        match self.step {
            Step::Load => None,
            Step::ReadBack => self.place().map(|place| self.plan.key_at(place)),
            Step::Mix(_) | Step::WarmUp(_) => Some(self.existing()),
        }
    }

    fn existing(&mut self) -> u64 {
        let settings = &self.plan.settings;
        // Inserts that may still be under way are excluded. Otherwise a read of the newest key
        // would overtake its insertion.
        let under_way = (settings.connections * settings.pipeline) as u64;
        let visible = self.cursor.newest().saturating_sub(under_way);
        if visible > self.chooser.keys() {
            self.chooser
                .grow(visible)
                .expect("the keys only grow, and stay below the limit that the plan checked");
        }
        self.chooser.next_key(&mut self.rng)
    }

    fn insert(&mut self) -> u64 {
        let most = self.plan.most_keys;
        let taken =
            self.cursor
                .newest
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| {
                    (newest < most).then_some(newest + 1)
                });
        // Without room for more keys, the newest ones are written again.
        taken.unwrap_or_else(|_| most - 1 - self.rng.below(self.chooser.keys().min(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{KeyCount, Settings};

    #[test]
    fn threads_together_cover_every_place_once() {
        for permuted in [false, true] {
            let settings = Settings {
                keys: KeyCount::Keys(1000),
                threads: 3,
                permuted,
                ..Settings::default()
            };
            let plan = Plan::new(&settings).expect("good settings");
            let cursor = Cursor::new(&plan, Step::Load, plan.keys);
            let mut sources: Vec<Source<'_>> = (0..3)
                .map(|thread| {
                    Source::new(&plan, &cursor, Step::Load, thread, Rng::new(thread as u64))
                        .expect("good settings")
                })
                .collect();
            let mut seen = vec![0; 1000];
            let mut turn = 0;
            while let Some(want) = sources[turn % 3].want() {
                let Request::Write(key_id) = want else {
                    panic!("a load only writes")
                };
                seen[key_id as usize] += 1;
                turn += 1;
            }
            for source in &mut sources {
                while let Some(Request::Write(key_id)) = source.want() {
                    seen[key_id as usize] += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn inserts_grow_the_keys_and_reads_follow() {
        let settings = Settings {
            keys: KeyCount::Keys(100),
            connections: 2,
            mix: "ycsb-d".parse().expect("a YCSB workload"),
            steps: vec![Step::Mix(Amount::Requests(20_000))],
            ..Settings::default()
        };
        let plan = Plan::new(&settings).expect("good settings");
        let cursor = Cursor::new(&plan, settings.steps[0], plan.keys);
        let mut source =
            Source::new(&plan, &cursor, settings.steps[0], 0, Rng::new(3)).expect("good settings");
        let mut newest = 100;
        let mut total = 0;
        while let Some(want) = source.want() {
            total += 1;
            match want {
                Request::Write(key_id) => {
                    assert_eq!(key_id, newest);
                    newest += 1;
                }
                Request::Read(key_id) => assert!(key_id < (newest - 2).max(100)),
                Request::Modify(_) | Request::Change(..) => panic!("D does not modify"),
            }
        }
        assert_eq!(total, 20_000);
        assert!((800..1200).contains(&(newest - 100)));
        assert_eq!(cursor.newest(), newest);
    }
}
