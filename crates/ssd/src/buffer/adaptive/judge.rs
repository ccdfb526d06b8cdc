// SPDX-License-Identifier: Apache-2.0
//! The adaptive buffer's judge: which candidate to follow, from what each one's ghost cost between judgements.
//!
//! Idea: a candidate is followed when it cost less than the leader by more than chance explains and by more than the change itself may cost. Chance is measured: the standard deviation of the
//! differences between the two, and on top of it what a judgement costs on average, since one block that left a little earlier or later can make as much of a difference. Costs are
//! summed over two pasts in which older ones count less and less: a long past tells small differences from chance; a short one finds that the load has changed.
//!
//! What always holds: the same costs give the same choices; memory is a few words for each pair of candidates.

/// What remains of a cost from one judgement to the next, in the short past and in the long one.
const KEPT: [f64; PASTS] = [0.97, 0.995];
const PASTS: usize = 2;
const SHORT: usize = 0;

/// A gain counts beyond so many standard deviations, average costs of a judgement, and erases.
const DEVIATIONS: f64 = 1.0;
const AVERAGES: f64 = 1.0;
const ERASES: f64 = 2.0;

/// Sums over all candidates and pairs of them.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    /// Each candidate's costs.
    scores: Vec<[f64; PASTS]>,
    /// Squares of the differences between the costs of each two, at `first * candidates + second`. Weights are squared too.
    squares: Vec<[f64; PASTS]>,
    /// Sums of the weights of the judgements so far, and of their squares.
    weights: [f64; PASTS],
    weights_squared: [f64; PASTS],
}

impl Judge {
    /// Nothing was judged yet.
    pub fn new(candidates: usize) -> Self {
        Self {
            scores: vec![[0.0; PASTS]; candidates],
            squares: vec![[0.0; PASTS]; candidates * candidates],
            weights: [0.0; PASTS],
            weights_squared: [0.0; PASTS],
        }
    }

    /// Adds what each candidate cost since the last judgement.
    pub fn add(&mut self, costs: impl Iterator<Item = f64> + Clone) {
        let count = self.scores.len();
        for (past, kept) in KEPT.into_iter().enumerate() {
            self.weights[past] = self.weights[past] * kept + 1.0;
            self.weights_squared[past] = self.weights_squared[past] * kept * kept + 1.0;
            for (first, cost) in costs.clone().enumerate() {
                let score = &mut self.scores[first][past];
                *score = *score * kept + cost;
                for (second, other) in costs.clone().enumerate() {
                    let square = &mut self.squares[first * count + second][past];
                    *square = *square * kept * kept + (cost - other) * (cost - other);
                }
            }
        }
    }

    /// What a candidate cost of late.
    pub fn recent(&self, candidate: usize) -> f64 {
        self.scores[candidate][SHORT]
    }

    /// By how much another candidate than the leader is better beyond doubt, if it is. What the long past prefers must not be worse now.
    fn surely_gained(&self, leader: usize, candidate: usize) -> Option<f64> {
        let gain = |past: usize| self.scores[leader][past] - self.scores[candidate][past];
        let sure = |past: usize| {
            let (weight, squared) = (self.weights[past], self.weights_squared[past]);
            let square = self.squares[leader * self.scores.len() + candidate][past] / squared;
            let variance = (square - (gain(past) / weight).powi(2)).max(0.0);
            let average = self.scores[leader][past] / weight;
            gain(past) - DEVIATIONS * (variance * squared).sqrt() - AVERAGES * average - ERASES
        };
        let pasts = (0..PASTS).filter(|past| *past == SHORT || gain(SHORT) >= 0.0);
        let most = pasts.map(sure).fold(f64::NEG_INFINITY, f64::max);
        (most > 0.0).then_some(most)
    }

    /// The candidate to follow instead of the leader, if one is better by more than `change` says that the change to it may cost.
    pub fn better(&self, leader: usize, change: impl Fn(usize) -> f64) -> Option<usize> {
        let others = (0..self.scores.len()).filter(|candidate| *candidate != leader);
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
        // The second costs a fifth less each time.
        let mut judge = Judge::new(2);
        let mut judgements = 0;
        while judge.better(0, |_| 0.0).is_none() {
            judge.add([10.0, 8.0].into_iter());
            judgements += 1;
        }
        // 2 each time, against 10 on average and 2 erases: the seventh makes it more, forgetting counted.
        assert_eq!(judgements, 7);
        assert_eq!(judge.better(0, |_| 100.0), None, "a change that costs more");
        assert_eq!(judge.better(1, |_| 0.0), None, "the other way");
        assert!(
            (judge.recent(0) - 10.0 * (0..7).map(|n| 0.97f64.powi(n)).sum::<f64>()).abs() < 1e-9
        );
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
