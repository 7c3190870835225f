// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the processor time as bars, by lock and multiprogramming level.

use std::fmt::Write;

use super::Lost;
use crate::figure::svg::{escape, head};

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Of this lock.
    pub name: String,
    /// In which group.
    pub group: String,
    /// Its parts.
    pub lost: Lost,
}

/// Fills, from left to right: dark and light by turns, so that the parts can be told apart without colours.
const PARTS: [(&str, &str); 7] = [
    ("work", "white"),
    ("holder preempted", "#b04000"),
    ("waiter preempted", "#000000"),
    ("holder runs", "#7fa8c9"),
    ("hand-over", "#0060a0"),
    ("switches, refills", "#8040a0"),
    ("rest", "#707070"),
];

fn parts(lost: &Lost) -> [f64; 7] {
    let whole = lost.processors().max(1) as f64;
    let spun = &lost.spun;
    [
        lost.work,
        spun.holder_preempted,
        spun.waiter_preempted,
        spun.holder_runs,
        spun.hand_over,
        lost.switches + lost.refills,
        lost.rest,
    ]
    .map(|part| part as f64 / whole)
}

/// One bar a line, each as long as all: parts of the processor time that was the program's.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    const LEFT: f64 = 150.0;
    const WIDTH: f64 = 680.0;
    const STEP: f64 = 22.0;
    let groups = bars.chunk_by(|a, b| a.group == b.group).count();
    let height = 90.0 + STEP * (bars.len() + groups) as f64;
    let mut out = head(title, height);
    let mut put = |line: String| writeln!(out, "{line}").expect("a string takes all");
    for (index, (name, fill)) in PARTS.iter().enumerate() {
        let x = 20.0 + 118.0 * index as f64;
        put(format!(
            "<rect x=\"{x}\" y=\"44\" width=\"12\" height=\"12\" fill=\"{fill}\" stroke=\"black\"/>"
        ));
        put(format!("<text x=\"{}\" y=\"55\" font-size=\"12\">{name}</text>", x + 16.0));
    }
    let mut top = 66.0;
    let mut group = "";
    for bar in bars {
        if bar.group != group {
            group = &bar.group;
            put(format!("<text x=\"20\" y=\"{}\">{}</text>", top + 16.0, escape(group)));
            top += STEP;
        }
        let middle = top + 14.0;
        put(format!(
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(&bar.name)
        ));
        let mut x = LEFT;
        for (part, (name, fill)) in parts(&bar.lost).into_iter().zip(PARTS) {
            let width = part * WIDTH;
            if width > 0.0 {
                put(format!(
                    "<rect x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"16\" fill=\"{fill}\" \
                     stroke=\"black\" stroke-width=\"0.5\"><title>{name}: {:.1} %</title></rect>",
                    top + 1.0,
                    100.0 * part
                ));
            }
            x += width;
        }
        top += STEP;
    }
    out + "</svg>\n"
}
