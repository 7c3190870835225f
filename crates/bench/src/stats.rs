// SPDX-License-Identifier: MIT OR Apache-2.0
//! Few numbers, honestly: medians and the order-statistic interval of the median, which assumes no
//! distribution.

use serde::Serialize;

/// Middle of the sorted values; NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Geometric mean; NaN if there are none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0u32), |(sum, n), value| (sum + value.ln(), n + 1));
    if n == 0 { f64::NAN } else { (sum / f64::from(n)).exp() }
}

/// A median and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Median of the values.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability with which the interval covers the true median.
    pub confidence: f64,
}

/// Confidence that [`interval`] tries to keep: what lowest and highest of five values have (1 - 2/2^5).
pub const CONFIDENCE: f64 = 0.9375;

/// The narrowest pair of k-th smallest and k-th largest value that covers the median with [`CONFIDENCE`];
/// lowest and highest, at whatever confidence they have, if there are fewer than five values. (Order
/// statistics of a binomial; for example Conover, Practical Nonparametric Statistics, section 3.2.)
pub fn interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 || sorted.iter().any(|value| !value.is_finite()) {
        return None;
    }
    // P(fewer than k of n values lie below the median), for growing k.
    let mut term = 0.5f64.powi(n as i32);
    let mut below = term;
    let mut k = 1;
    while k < n.div_ceil(2) {
        term *= (n - k + 1) as f64 / k as f64;
        if 1.0 - 2.0 * (below + term) < CONFIDENCE {
            break;
        }
        below += term;
        k += 1;
    }
    Some(Interval {
        median: median(&sorted),
        low: sorted[k - 1],
        high: sorted[n - k],
        confidence: (1.0 - 2.0 * below).max(0.0),
    })
}

/// The interval of `numerator[i] / denominator[i]`: values of the same round, so that what disturbs both
/// falls out.
pub fn paired_ratio(numerator: &[f64], denominator: &[f64]) -> Option<Interval> {
    assert_eq!(numerator.len(), denominator.len());
    interval(&numerator.iter().zip(denominator).map(|(n, d)| n / d).collect::<Vec<_>>())
}

/// What a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The whole interval is above 1.
    Greater,
    /// The whole interval is below 1.
    Less,
    /// The interval covers 1.
    Undecided,
    /// Fewer than five values: no interval of theirs is worth its name.
    TooFew,
}

impl Interval {
    /// Which side of 1 this ratio is on.
    pub fn finding(&self) -> Finding {
        if self.confidence < CONFIDENCE {
            Finding::TooFew
        } else if self.low > 1.0 {
            Finding::Greater
        } else if self.high < 1.0 {
            Finding::Less
        } else {
            Finding::Undecided
        }
    }

    /// Width as a factor: 1 is exact.
    pub fn spread(&self) -> f64 {
        self.high / self.low
    }
}

/// Fairness factor: share of all acquisitions that the busier half of the threads had. 0.5 is fair, 1 is
/// starvation; `None` for less than two threads or acquisitions. Of an odd number of threads, the larger
/// half is the busier.
pub fn fairness_factor(counts: &[u64]) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if counts.len() < 2 || total == 0 {
        return None;
    }
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let busier: u64 = sorted[counts.len() / 2..].iter().sum();
    Some(busier as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_between_the_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn geometric_mean_of_reciprocals_is_one() {
        assert!((geometric_mean([4.0, 0.25]) - 1.0).abs() < 1e-12);
        assert!(geometric_mean([]).is_nan());
    }

    #[test]
    fn five_values_give_their_extremes_with_the_confidence_of_the_sign_test() {
        let it = interval(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((it.low, it.median, it.high), (1.0, 3.0, 5.0));
        assert_eq!(it.confidence, 1.0 - 2.0 / 32.0);
    }

    /// From the binomial table: n = 9 takes the 2nd and 8th (0.961), n = 20 the 6th and 15th (0.959).
    #[test]
    fn more_values_give_inner_ones() {
        for (n, k, confidence) in [(8, 1, 0.992), (9, 2, 0.961), (20, 6, 0.959)] {
            let it = interval(&(1..=n).map(f64::from).collect::<Vec<_>>()).unwrap();
            assert_eq!((it.low, it.high), (f64::from(k), f64::from(n + 1 - k)), "n = {n}");
            assert!((it.confidence - confidence).abs() < 0.0006, "n = {n}: {}", it.confidence);
        }
    }

    #[test]
    fn one_value_has_no_confidence() {
        let it = interval(&[2.0]).unwrap();
        assert_eq!((it.low, it.high, it.confidence), (2.0, 2.0, 0.0));
        assert_eq!(it.finding(), Finding::TooFew);
    }

    #[test]
    fn no_interval_of_nothing_or_of_an_infinite_ratio() {
        assert_eq!(interval(&[]), None);
        assert_eq!(paired_ratio(&[1.0, 1.0], &[1.0, 0.0]), None);
    }

    #[test]
    fn pairs_cancel_what_disturbs_both() {
        let base = [100.0, 50.0, 200.0, 80.0, 120.0];
        let new: Vec<f64> = base.iter().map(|x| x * 1.5).collect();
        let ratio = paired_ratio(&new, &base).unwrap();
        assert_eq!((ratio.low, ratio.high), (1.5, 1.5));
        assert_eq!(ratio.finding(), Finding::Greater);
    }

    #[test]
    fn a_ratio_that_straddles_one_decides_nothing() {
        let finding = |values: &[f64]| interval(values).unwrap().finding();
        assert_eq!(finding(&[0.9, 1.1, 1.2, 1.2, 1.3]), Finding::Undecided);
        assert_eq!(finding(&[0.9, 0.8, 0.7, 0.9, 0.95]), Finding::Less);
        assert_eq!(finding(&[1.5, 1.5, 1.5, 1.5]), Finding::TooFew);
    }

    #[test]
    fn fairness_counts_the_busier_half() {
        assert_eq!(fairness_factor(&[5, 5, 5, 5]), Some(0.5));
        assert_eq!(fairness_factor(&[0, 10]), Some(1.0));
        assert_eq!(fairness_factor(&[3, 1, 2]), Some(5.0 / 6.0));
        assert_eq!(fairness_factor(&[7]), None);
        assert_eq!(fairness_factor(&[0, 0]), None);
    }
}
