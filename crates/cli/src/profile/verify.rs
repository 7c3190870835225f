// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--verify`: what `wakeful run` really gains, beside the bound that the record gives.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use bench::compare::{Comparison, End, Output, Plan, Run, Verdict as Measured, compare};
use launch::Launch;
use launch::suggest::{WIDTH, wrap};
use serde::Serialize;

use super::verdict::Verdict;
use crate::format::plain;
use crate::recorded::line;

/// BOUND: pairs of runs, the fewest that are judged; and one pair before them.
const PAIRS: usize = 5;
const WARM_UPS: usize = 1;
/// BOUND: a difference below this is none. Two series of plain runs differ by as much.
const NOISE: f64 = 0.03;

/// What was measured.
#[derive(Serialize)]
pub struct Verified {
    /// The bound; none where the record gives none.
    pub at_most: Option<f64>,
    /// Plain time over the time with `wakeful run`, by pairs: the median, the lowest and the highest that its
    /// confidence allows.
    pub gain: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub pairs: usize,
    pub words: String,
}

impl Verified {
    pub fn write(&self, is_json: bool, to: &mut dyn Write) -> io::Result<()> {
        match is_json {
            true => line(to, "verified", self),
            false => writeln!(to, "\n{}", wrap(&plain(&self.words), WIDTH)),
        }
    }
}

/// Runs the program in turns, without input, and with its output thrown away; unless it has failed already,
/// as `status` says: then nobody knows what its time means.
pub fn run(launch: &Launch, verdict: &Verdict, status: i32) -> Verified {
    let at_most = verdict.gains.iter().find(|gain| gain.by == "run").map(|gain| gain.at_most);
    let nothing = |why: String| Verified {
        at_most,
        gain: None,
        low: None,
        high: None,
        pairs: 0,
        words: format!("Verified: nothing was measured: {why}."),
    };
    if let Some(obstacle) = &launch.program.obstacle {
        return nothing(obstacle.to_string().replace('\n', " "));
    }
    if status != 0 {
        return nothing(format!("the program failed ({}), and its time means nothing", end(status)));
    }
    let plan = Plan {
        plain: &|| launch.plain(),
        helped: &|| launch.helped(),
        pairs: PAIRS,
        warm_ups: WARM_UPS,
        timeout: None,
        output: Output::Discard,
        ignore_failure: false,
    };
    match compare(&plan, || {}) {
        Ok(comparison) => judged(at_most, &comparison),
        Err(error) => nothing(error.to_string()),
    }
}

fn judged(at_most: Option<f64>, it: &Comparison) -> Verified {
    let pairs = it.plain_runs.len();
    let predicted = match at_most {
        Some(bound) => format!("predicted {bound:.1} x at most"),
        // The report may bound what something else gains: shorter sections, or fewer threads.
        None => "the report has no bound for `wakeful run`".into(),
    };
    let is_sound = !matches!(it.verdict, Measured::Failed | Measured::EndsDiffer | Measured::OutputsDiffer);
    let Some(ratio) = it.speedup.filter(|_| is_sound) else {
        let words = format!(
            "Verified: {predicted}; nothing was measured: {}. It ran without input and its output was thrown \
             away; `wakeful compare --show-output` shows what it says.",
            failed(it)
        );
        return Verified { at_most, gain: None, low: None, high: None, pairs, words };
    };
    let (gain, low, high) = (ratio.median, ratio.low, ratio.high);
    // Of five pairs without a difference, all are on one side of 1 in each sixteenth series. So 1 has to be
    // twice as far as the pair nearest to it. One that is far on the other side says nothing against it.
    let near = if gain > 1.0 { gain - low } else { high - gain };
    let is_noise = (gain - 1.0).abs() <= (2.0 * near).max(NOISE);
    let verdict = if is_noise { Measured::NoDifference } else { it.verdict };
    let finding = match verdict {
        Measured::Faster => "faster beyond the spread",
        Measured::Slower => "slower beyond the spread",
        _ => "no difference beyond the spread and 3 %",
    };
    let mut words = format!(
        "Verified: {predicted}; measured {gain:.2} x ({low:.2} to {high:.2}) with `wakeful run`, \
         {pairs} pairs in turns: {finding}."
    );
    words += meant(verdict, at_most, (low, high));
    Verified { at_most, gain: Some(gain), low: Some(low), high: Some(high), pairs, words }
}

/// A status of wait(2), as [`End`] has it.
fn end(status: i32) -> End {
    let status = ExitStatus::from_raw(status);
    status.code().map_or_else(|| End::Signal(status.signal().unwrap_or_default()), End::Exit)
}

/// How the runs ended that did not end well, by sides.
fn failed(it: &Comparison) -> String {
    let side = |runs: &[Run]| runs.iter().map(|run| run.end).find(|end| *end != End::Exit(0));
    match (side(&it.plain_runs), side(&it.helped_runs)) {
        (Some(plain), Some(helped)) if plain == helped => format!("the program failed ({plain})"),
        (Some(plain), Some(helped)) => {
            format!("the program failed, plainly ({plain}) and with `wakeful run` ({helped})")
        }
        (Some(plain), None) => format!("the program failed plainly ({plain})"),
        (None, Some(helped)) => format!("the program failed with `wakeful run` ({helped})"),
        (None, None) => "the runs did not end alike".into(),
    }
}

/// What that says about the bound, and what to do.
fn meant(verdict: Measured, at_most: Option<f64>, (low, high): (f64, f64)) -> &'static str {
    match (verdict, at_most) {
        (_, Some(bound)) if low > bound * 1.05 => {
            " That is more than the bound: the program did other work, or its threads burnt time while they \
             waited."
        }
        (Measured::Slower, Some(_)) => {
            " Do not use it here: the bound takes all of that waiting away, and it goes on with other locks."
        }
        (Measured::Slower, None) => " Do not use it here.",
        (Measured::Faster, None) => " Other locks help, too, but the cause that the verdict names stays.",
        (_, Some(bound)) if bound > high.max(1.0) * 1.2 => {
            " The bound is far from that: it takes all of that waiting away, and most of it goes on with \
             other locks."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use bench::compare::judge;
    use bench::process::Usage;

    use super::*;

    fn runs(walls: [f64; PAIRS], end: End) -> Vec<Run> {
        let run = |wall_seconds| Run { end, wall_seconds, usage: Usage::default(), output: None };
        walls.map(run).to_vec()
    }

    #[test]
    fn predicted_stands_beside_measured() {
        let end = End::Exit(0);
        let judge = |plain, helped| judge(plain, helped, false);
        let it = judge(runs([2.0, 2.0, 2.2, 2.0, 1.9], end), runs([1.0; PAIRS], end));
        let verified = judged(Some(2.5), &it);
        assert_eq!((verified.gain, verified.pairs), (Some(2.0), PAIRS));
        let words = "predicted 2.5 x at most; measured 2.00 x (1.90 to 2.20)";
        assert!(verified.words.contains(words), "{}", verified.words);
        let words = judged(Some(1.5), &it).words;
        assert!(words.contains("more than the bound"), "{words}");
        let it = judge(runs([1.0; PAIRS], end), runs([1.0; PAIRS], end));
        let words = judged(Some(2.5), &it).words;
        assert!(words.contains("The bound is far from that"), "{words}");
        let words = judged(Some(1.3), &it).words;
        assert!(words.contains("The bound is far from that"), "{words}");
        let words = judged(None, &it).words;
        assert!(words.contains("the report has no bound for `wakeful run`; measured 1.00 x"), "{words}");
        assert!(words.ends_with("no difference beyond the spread and 3 %."), "{words}");
        let it = judge(runs([1.0; PAIRS], end), runs([1.3, 1.2, 1.2, 1.3, 1.2], end));
        for (bound, said) in [(Some(1.5), "Do not use it here: the bound"), (None, "Do not use it here.")] {
            let words = judged(bound, &it).words;
            assert!(words.contains(said), "{words}");
        }
        // All pairs are slower, by less than they spread, or by next to nothing.
        for walls in [[1.02, 1.01, 1.04, 1.02, 1.03], [1.02; PAIRS]] {
            let it = judge(runs([1.0; PAIRS], end), runs(walls, end));
            let words = judged(Some(1.5), &it).words;
            assert!(words.contains("pairs in turns: no difference beyond the spread and 3 %."), "{words}");
            assert!(!words.contains("Do not use it"), "{words}");
        }
        // One pair that gains more takes nothing away.
        let it = judge(runs([1.5, 1.5, 1.5, 1.5, 2.2], end), runs([1.0; PAIRS], end));
        assert!(judged(None, &it).words.contains("faster beyond the spread"));
        let it = judge(runs([1.3, 1.2, 1.2, 1.3, 1.2], end), runs([1.0; PAIRS], end));
        let words = judged(None, &it).words;
        assert!(words.ends_with("names stays."), "{words}");
        let it = judge(runs([1.0; PAIRS], end), runs([1.0; PAIRS], End::Signal(11)));
        let verified = judged(Some(1.5), &it);
        assert_eq!(verified.gain, None);
        let words = "nothing was measured: the program failed with `wakeful run` (signal 11).";
        assert!(verified.words.contains(words), "{}", verified.words);
        // Without its input it ends at once: nobody wants that time.
        let it = judge(runs([2.0; PAIRS], End::Exit(3)), runs([1.0; PAIRS], End::Exit(3)));
        let verified = judged(None, &it);
        assert_eq!(verified.gain, None);
        assert!(verified.words.contains("the program failed (exit status 3)."), "{}", verified.words);
        assert_eq!((super::end(3 << 8), super::end(11)), (End::Exit(3), End::Signal(11)));
    }
}
