// SPDX-License-Identifier: MIT OR Apache-2.0
//! How sure a claim is: on which share of the machines it holds that differ from the described one by what
//! its description assumes.
//!
//! A sample draws each assumption of a description from half to double, so that the logarithm is uniform, and
//! a seed. What a paper or a measurement says stays, and so do numbers of processors, zeros, what a machine
//! does not use, and choices that are no numbers. A draw depends on the seed, the sample's number, the
//! machine and the field only, not on which figures are computed.

use super::{Bound, Claim, Data, Figure, Point};
use crate::{Machine, Sourced};
use serde::Serialize;

/// A value of a description that a sample has drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// Such as `memory.hit_ns`.
    pub field: String,
    /// In the place of the described one.
    pub value: f64,
}

/// What a sample is, by the number.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// All draws come from it.
    pub seed: u64,
    /// The assumptions are drawn; not: only the simulations' seed is.
    pub draws: bool,
}

/// Mixes all bits of a text.
fn mixed(text: &str) -> u64 {
    // FNV-1a, then the finalizer of SplitMix64.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Samples {
    /// The seed of a sample's simulations.
    pub fn seed(&self, sample: u32) -> u64 {
        mixed(&format!("{}/{sample}", self.seed))
    }

    /// The machine of a sample, and what differs from the described one.
    pub fn machine(&self, described: &Machine, sample: u32) -> (Machine, Vec<Draw>) {
        let mut draws = Vec::new();
        if !self.draws {
            return (described.clone(), draws);
        }
        let mut all = toml::Value::try_from(described).expect("a description is a TOML table");
        each("", &mut all, &mut |field, value| {
            let bits = mixed(&format!("{}/{sample}/{}/{field}", self.seed, described.name));
            let exponent = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            if let Some((drawn, number)) = drawn(field, value, exponent) {
                *value = drawn;
                draws.push(Draw { field: field.into(), value: number });
            }
        });
        let text = toml::to_string(&all).expect("what was a table is one");
        (Machine::parse(&text).expect("half to double of a sound value is sound"), draws)
    }
}

/// Calls `draw` with each value that a description assumes.
fn each(at: &str, value: &mut toml::Value, draw: &mut impl FnMut(&str, &mut toml::Value)) {
    let under = |name: &str| if at.is_empty() { name.into() } else { format!("{at}.{name}") };
    match value {
        toml::Value::Table(table) => {
            if let Ok(Sourced { source, .. }) = table.clone().try_into::<Sourced<toml::Value>>() {
                if source.contains("assumption") && !source.contains("not used") {
                    draw(at, &mut table["value"]);
                }
                return;
            }
            table.iter_mut().for_each(|(key, value)| each(&under(key), value, draw));
        }
        toml::Value::Array(levels) => {
            for level in levels {
                let name = under(level.get("name").and_then(toml::Value::as_str).unwrap_or("?"));
                each(&name, level, draw);
            }
        }
        _ => {}
    }
}

/// The value times two to the exponent, which is from -1 to 1; `None` if it stays.
fn drawn(field: &str, value: &toml::Value, exponent: f64) -> Option<(toml::Value, f64)> {
    use toml::Value::{Float, Integer};
    let number = match *value {
        Float(value) if value > 0.0 => {
            return Some((Float(value * exponent.exp2()), value * exponent.exp2()));
        }
        Integer(_) if field.ends_with("processors") || field.ends_with("count") => return None,
        Integer(value) if field.ends_with("ways") => ((value as f64 * exponent.exp2()).round() as i64).max(1),
        // The others are powers of two. A line has at least 16 bytes.
        Integer(value) => ((value as f64 * exponent.round().exp2()) as i64).max(16),
        _ => return None,
    };
    Some((Integer(number), number as f64))
}

/// Low, middle and high: 5, 50 and 95 % of the samples are at most so much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// Of these; `None` if there are none. Missing numbers do not count.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        let last = all.len().checked_sub(1)?;
        let at = |part: f64| {
            let place = part * last as f64;
            let (low, high) = (all[place.floor() as usize], all[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        Some(Self { low: at(0.05), median: at(0.5), high: at(0.95) })
    }
}

/// The assumption that separates the samples on which a claim holds from those on which it does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// Which.
    pub assumption: String,
    /// It holds where the value is greater than `at`; not: where it is less.
    pub above: bool,
    /// Between the values that are told apart with the fewest errors.
    pub at: f64,
    /// Errors of that.
    pub errors: usize,
    /// The mean rank of the draws on which the claim holds, less that of the others, in halves of the number
    /// of samples: 1 and -1 if all are greater or less, 0 if nothing is known.
    pub separation: f64,
}

/// On how many samples a claim holds within a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The bound.
    pub bound: String,
    /// Samples on which it holds.
    pub holds: usize,
    /// What decides, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
}

/// How sure a claim is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sure {
    /// In words.
    pub claim: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What the number is.
    pub measure: &'static str,
    /// Samples.
    pub samples: usize,
    /// Of these, so many gave no number, as when a simulation failed. The claim does not hold there.
    pub missing: usize,
    /// The numbers.
    pub number: Option<Spread>,
    /// Within the bound that the words say.
    pub words: Share,
    /// Within the bound that [`Figure::verdicts`] uses, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Share>,
}

/// A sample of a figure: what was drawn, and what came out.
pub type Sampled = (Vec<Draw>, Data);

impl Figure {
    /// The points, from what was on the vertical axis; NaN where a simulation failed. `None` if there are
    /// more or less.
    pub fn data(&self, ys: &[f64]) -> Option<Data> {
        let places = self.series.iter().flat_map(|&series| self.at.iter().map(move |&x| (series, x)));
        let point = |((series, x), &y): ((&'static str, f64), &f64)| Point {
            series,
            x,
            y,
            extrapolated: false,
            failure: y.is_nan().then(|| "it failed on this sample".into()),
        };
        (ys.len() == self.points()).then(|| Data { points: places.zip(ys).map(point).collect() })
    }

    /// How sure its claims are.
    pub fn sure(&self, samples: &[Sampled]) -> Vec<Sure> {
        self.claims.iter().map(|claim| of_claim(self, claim, samples)).collect()
    }

    /// The spread of each point, in the table's order.
    pub fn spreads(&self, samples: &[Sampled]) -> Vec<Option<Spread>> {
        let of = |place: usize| Spread::of(samples.iter().map(move |(_, data)| data.points[place].y));
        (0..self.points()).map(of).collect()
    }
}

fn of_claim(figure: &Figure, claim: &Claim, samples: &[Sampled]) -> Sure {
    let numbers: Vec<f64> = samples.iter().map(|(_, data)| (claim.number)(data)).collect();
    let share = |bound: Bound| {
        let verdicts: Vec<bool> = numbers.iter().map(|&number| bound.allows(number)).collect();
        Share {
            bound: bound.to_string(),
            holds: verdicts.iter().filter(|&&it| it).count(),
            turn: turn(samples, &verdicts),
        }
    };
    let words = super::literal::bound(figure, claim);
    Sure {
        claim: claim.words,
        source: claim.source,
        measure: claim.measure,
        samples: samples.len(),
        missing: numbers.iter().filter(|number| !number.is_finite()).count(),
        number: Spread::of(numbers.iter().copied()),
        words: share(words.unwrap_or(claim.bound)),
        used: words.map(|_| share(claim.bound)),
    }
}

/// An assumption is named if so great a separation of any of them came by chance in fewer cases.
const CHANCE: f64 = 0.05;

fn turn(samples: &[Sampled], verdicts: &[bool]) -> Option<Turn> {
    let fields = &samples.first()?.0;
    let values = |place: usize| samples.iter().map(|(draws, _)| draws[place].value).collect::<Vec<f64>>();
    let all = fields.iter().enumerate().filter_map(|(place, draw)| {
        let values = values(place);
        let (separation, chance) = separation(&values, verdicts)?;
        let (at, errors) = split(&values, verdicts, separation > 0.0);
        Some((
            chance,
            Turn { assumption: draw.field.clone(), above: separation > 0.0, at, errors, separation },
        ))
    });
    let (chance, turn) = all.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (chance * fields.len() as f64 <= CHANCE).then_some(turn)
}

/// The difference of the mean ranks, as [`Turn::separation`], and with which chance one as great comes from
/// draws that decide nothing (Mann and Whitney's U, by the normal distribution). `None` if all hold or none.
fn separation(values: &[f64], verdicts: &[bool]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let yes = verdicts.iter().filter(|&&it| it).count() as f64;
    let no = count - yes;
    if yes == 0.0 || no == 0.0 {
        return None;
    }
    let below = |value: f64| values.iter().filter(|&&it| it < value).count() as f64;
    let same = |value: f64| values.iter().filter(|&&it| it == value).count() as f64;
    let rank = |value: f64| below(value) + (same(value) + 1.0) / 2.0;
    let sum = |want: bool| {
        let those = values.iter().zip(verdicts).filter(move |(_, verdict)| **verdict == want);
        those.map(|(&value, _)| rank(value)).sum::<f64>()
    };
    let separation = (sum(true) / yes - sum(false) / no) / (count / 2.0);
    // Each of t equal values adds t^2 - 1, so that they all add t^3 - t.
    let ties: f64 = values.iter().map(|&value| same(value).powi(2) - 1.0).sum();
    let variance = yes * no / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
    let far = (separation.abs() * yes * no / 2.0 - 0.5).max(0.0);
    Some((separation, if variance > 0.0 { beyond(far / variance.sqrt()) } else { 1.0 }))
}

/// The chance that a normal number is farther than so many standard deviations from the mean (Abramowitz and
/// Stegun, 7.1.26).
fn beyond(deviations: f64) -> f64 {
    let x = deviations / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let of = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    of.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

/// Where the values are cut with the fewest errors, if those above hold or those below, and the errors.
fn split(values: &[f64], verdicts: &[bool], above: bool) -> (f64, usize) {
    let mut sorted: Vec<(f64, bool)> = values.iter().copied().zip(verdicts.iter().copied()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let errors = |at: f64| sorted.iter().filter(|&&(value, holds)| (value > at) != (holds == above)).count();
    let cuts = sorted.windows(2).filter(|two| two[0].0 < two[1].0).map(|two| (two[0].0 * two[1].0).sqrt());
    cuts.map(|at| (at, errors(at))).min_by_key(|&(_, errors)| errors).unwrap_or((f64::NAN, values.len()))
}

#[cfg(test)]
mod tests;
