// SPDX-License-Identifier: Apache-2.0
//! The adaptive buffer's judge: it chooses a candidate by the cost of each one's ghost between
//! judgements.
//!
//! Idea: a candidate becomes the leader if its cost is lower by more than chance explains, and by
//! more than the change itself may cost. Chance is measured as the standard deviation of the
//! differences between the two, plus the average cost of a judgement. A block that leaves a little
//! earlier or later can make as much of a difference. Costs are summed over two pasts, in which
//! older costs count less and less. The long past distinguishes small differences from chance; the
//! short one detects a change of the load.
//!
//! Always holds: the same costs give the same choices; memory is a few words for each pair of
//! candidates.

struct Past {
    batch: u32,
    kept: f64,
}

impl Past {
    const fn new(batch: u32, kept: f64) -> Self {
        Self { batch, kept }
    }
}

const PASTS: [Past; 3] = [
    Past::new(1, KEPT),
    Past::new(1, 0.9987),
    Past::new(32, 0.992),
];
/// The part of a cost that remains from one judgement to the next in the short past.
pub(super) const KEPT: f64 = 0.9925;
const SHORT: usize = 0;

/// A gain counts if it exceeds this many standard deviations, average costs of a judgement, and
/// erases.
const DEVIATIONS: f64 = 1.0;
const AVERAGES: f64 = 4.0;
const ERASES: f64 = 2.0;

#[derive(Clone, Debug)]
struct Sums {
    scores: Vec<f64>,
    /// Squares of the differences between the costs of each two, at `first * candidates + second`.
    /// Weights are squared too.
    squares: Vec<f64>,
    /// Sums of the weights of the batches so far, and of their squares.
    weights: f64,
    weights_squared: f64,
    /// The batch being gathered: each candidate's costs, and the judgements so far.
    batch: Vec<f64>,
    gathered: u32,
}

impl Sums {
    fn new(candidates: usize) -> Self {
        Self {
            scores: vec![0.0; candidates],
            squares: vec![0.0; candidates * candidates],
            weights: 0.0,
            weights_squared: 0.0,
            batch: vec![0.0; candidates],
            gathered: 0,
        }
    }

    fn add(&mut self, past: &Past, costs: impl Iterator<Item = f64>) {
        for (sum, cost) in self.batch.iter_mut().zip(costs) {
            *sum += cost;
        }
        self.gathered += 1;
        if self.gathered < past.batch {
            return;
        }
        self.gathered = 0;
        self.weights = self.weights * past.kept + 1.0;
        self.weights_squared = self.weights_squared * past.kept * past.kept + 1.0;
        let count = self.scores.len();
        for (first, cost) in self.batch.iter().enumerate() {
            self.scores[first] = self.scores[first] * past.kept + cost;
            for (second, other) in self.batch.iter().enumerate() {
                let square = &mut self.squares[first * count + second];
                *square = *square * past.kept * past.kept + (cost - other) * (cost - other);
            }
        }
        self.batch.fill(0.0);
    }

    fn gain(&self, leader: usize, candidate: usize) -> f64 {
        self.scores[leader] - self.scores[candidate]
    }

    /// By how much a candidate was better than the leader, beyond chance.
    fn surely_gained(&self, past: &Past, leader: usize, candidate: usize) -> f64 {
        // A single batch does not show how batches vary.
        if self.weights == 0.0 || (past.batch > 1 && self.weights == 1.0) {
            return f64::NEG_INFINITY;
        }
        let gain = self.gain(leader, candidate);
        let square = self.squares[leader * self.scores.len() + candidate] / self.weights_squared;
        let variance = (square - (gain / self.weights).powi(2)).max(0.0);
        let average = self.scores[leader] / self.weights / f64::from(past.batch);
        let deviation = (variance * self.weights_squared).sqrt();
        gain - DEVIATIONS * deviation - AVERAGES * average - ERASES
    }
}

#[derive(Clone, Debug)]
pub(super) struct Judge {
    sums: [Sums; PASTS.len()],
}

impl Judge {
    pub fn new(candidates: usize) -> Self {
        Self {
            sums: std::array::from_fn(|_| Sums::new(candidates)),
        }
    }

    pub fn add(&mut self, costs: impl Iterator<Item = f64> + Clone) {
        for (sums, past) in self.sums.iter_mut().zip(&PASTS) {
            sums.add(past, costs.clone());
        }
    }

    pub fn recent(&self, candidate: usize) -> f64 {
        self.sums[SHORT].scores[candidate]
    }

    /// By how much another candidate is certainly better than the leader, if one is. A candidate
    /// that a longer past prefers must not be worse now.
    fn surely_gained(&self, leader: usize, candidate: usize) -> Option<f64> {
        let worse_now = self.sums[SHORT].gain(leader, candidate) < 0.0;
        let pasts = self.sums.iter().zip(&PASTS);
        let pasts = pasts.take(if worse_now { SHORT + 1 } else { PASTS.len() });
        let most = pasts
            .map(|(sums, past)| sums.surely_gained(past, leader, candidate))
            .fold(f64::NEG_INFINITY, f64::max);
        (most > 0.0).then_some(most)
    }

    /// The candidate to follow instead of the leader, if one is better by more than `change`, the
    /// possible cost of the change to it.
    pub fn better(&self, leader: usize, change: impl Fn(usize) -> f64) -> Option<usize> {
        let others = (0..self.sums[SHORT].scores.len()).filter(|candidate| *candidate != leader);
        let gains = others.filter_map(|candidate| {
            let gained = self.surely_gained(leader, candidate)? - change(candidate);
            (gained > 0.0).then_some((gained, candidate))
        });
        let best = gains.max_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, candidate)| candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_what_is_better_beyond_chance() {
        // The second candidate costs a fifth less each time.
        let mut judge = Judge::new(2);
        let mut judgements = 0;
        while judge.better(0, |_| 0.0).is_none() {
            judge.add([10.0, 8.0].into_iter());
            judgements += 1;
        }
        // The gain is 2 each time, against four times 10 on average and 2 erases. With forgetting,
        // the twenty-second judgement exceeds that.
        assert_eq!(judgements, 22);
        assert_eq!(judge.better(0, |_| 100.0), None, "a change that costs more");
        assert_eq!(judge.better(1, |_| 0.0), None, "the other way");
        assert!((judge.recent(0) - 10.0 * (0..22).map(|n| KEPT.powi(n)).sum::<f64>()).abs() < 1e-9);
    }

    #[test]
    fn finds_a_small_difference_between_costs_that_come_in_bursts() {
        // The costs of both come in bursts, in alternating judgements, and the second candidate
        // costs 3 % less. Between judgements this is small compared with the bursts; between
        // batches it is the whole difference.
        let mut judge = Judge::new(2);
        let mut judgements = 0;
        while judge.better(0, |_| 0.0).is_none() {
            let costs = match judgements % 4 {
                0 => [100.0, 0.0],
                1 => [0.0, 97.0],
                _ => [0.0, 0.0],
            };
            judge.add(costs.into_iter());
            judgements += 1;
            assert!(judgements < 1000, "never found out");
        }
        assert!(judgements > 100, "found out by chance after {judgements}");
    }

    #[test]
    fn does_not_follow_chance() {
        let mut judge = Judge::new(2);
        for nth in 0..1000 {
            let costs = if nth % 2 == 0 {
                [20.0, 0.0]
            } else {
                [0.0, 20.0]
            };
            judge.add(costs.into_iter());
            assert_eq!(judge.better(0, |_| 0.0), None, "judgement {nth}");
            assert_eq!(judge.better(1, |_| 0.0), None, "judgement {nth}");
        }
    }
}
