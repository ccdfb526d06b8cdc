// SPDX-License-Identifier: Apache-2.0
//! The median, by which experiments on shared machines judge several rounds.

/// The median of some measurements; `None` if there are none.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.retain(|number| number.is_finite());
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => None,
        n if n % 2 == 1 => Some(numbers[middle]),
        _ => Some((numbers[middle - 1] + numbers[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![f64::NAN]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
    }
}
