// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench draw`: bars of ratios, as a picture for a page, light and dark.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Draw bars of ratios from a file, as SVG for light and dark pages
///
/// The file is CSV with the columns name and ratio; others are for its readers. Bars begin at 1, on a
/// logarithmic scale.
#[derive(clap::Args)]
pub struct Args {
    /// The file with the ratios
    file: PathBuf,
    /// What stands above the bars
    #[arg(long, default_value = "Speed with Wakeful divided by speed without")]
    title: String,
    /// Draw it into this file, and not to standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Bar {
    name: String,
    /// As it is written in the file, so it is written at its bar.
    ratio: String,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let picture = picture(&read(&args.file)?, &args.title)?;
    match &args.svg {
        Some(file) => {
            std::fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))?
        }
        None => println!("{}", picture.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Vec<Bar>> {
    let shown = file.display();
    let mut rows = csv::Reader::from_path(file).with_context(|| format!("cannot read {shown}"))?;
    let bars = rows.deserialize().collect::<Result<Vec<Bar>, _>>();
    bars.with_context(|| format!("{shown} needs a first line with the names of its columns: name,ratio"))
}

/// Columns of the picture: the names end at the first, and 1 is at the second.
const NAMES: f64 = 300.0;
const ONE: f64 = 390.0;
/// A factor of two.
const TWICE: f64 = 120.0;
/// From a bar to the next.
const STEP: f64 = 26.0;

const STYLE: &str = "<style>
  .bg { fill: #ffffff }
  text { font: 14px sans-serif; fill: #1f2328 }
  .s { font-size: 13px; fill: #59636e }
  .gain { fill: #2f81c4 } .loss { fill: #c4622f }
  .axis { stroke: #8c959f }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 }
    text { fill: #e6edf3 }
    .s { fill: #9198a1 }
    .gain { fill: #4493f8 } .loss { fill: #f0883e }
  }
</style>";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn picture(bars: &[Bar], title: &str) -> Result<String> {
    let ratio = |bar: &Bar| match bar.ratio.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio > 0.0 => Ok(ratio),
        _ => bail!("the ratio of `{}` is `{}`; give a number above 0", bar.name, bar.ratio),
    };
    let ratios = bars.iter().map(ratio).collect::<Result<Vec<f64>>>()?;
    let place = |ratio: f64| ONE + TWICE * ratio.log2();
    let most = ratios.iter().copied().fold(4.0, f64::max);
    let (width, end) = ((place(most) + 75.0).max(800.0).ceil(), 50.0 + STEP * bars.len() as f64);
    let (title, height) = (escape(title), end + 28.0);
    let mut out = String::new();
    let mut put = |line: String| writeln!(out, "{line}").expect("a string takes all");
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}, {} bars\">",
        bars.len()
    ));
    put(format!("<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n{STYLE}"));
    put(format!(
        "<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n<text x=\"15\" y=\"24\">{title}</text>"
    ));
    for doubled in 0..=most.log2() as i32 {
        let (at, from) = (ONE + TWICE * f64::from(doubled), if doubled == 0 { 44.0 } else { end - 6.0 });
        put(format!("<path class=\"axis\" d=\"M{at} {from}V{end}\"/>"));
        put(format!(
            "<text class=\"s\" x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            end + 16.0,
            1 << doubled
        ));
    }
    for (index, (bar, ratio)) in bars.iter().zip(ratios).enumerate() {
        let (line, at) = (64.0 + STEP * index as f64, place(ratio));
        let (from, to, kind) = if ratio < 1.0 { (at, ONE, "loss") } else { (ONE, at, "gain") };
        let (name, number) = (escape(&bar.name), escape(&bar.ratio));
        put(format!("<text x=\"{NAMES}\" y=\"{line}\" text-anchor=\"end\">{name}</text>"));
        put(format!(
            "<rect class=\"{kind}\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"17\"/>",
            line - 13.0,
            to - from
        ));
        put(format!("<text x=\"{:.0}\" y=\"{line}\">{number}</text>", to + 7.0));
    }
    put("</svg>".to_string());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `WAKEFUL_BLESS=1 cargo test -p wakeful-cli draw` writes it again.
    #[test]
    fn the_picture_of_the_pages_is_what_its_data_give() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let title = "Speed with Wakeful divided by speed without: 8 threads, 2 processors, idle machine";
        let is = picture(&read(&docs.join("gain.csv")).unwrap(), title).unwrap();
        let file = docs.join("gain.svg");
        if std::env::var_os("WAKEFUL_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(&file, &is).unwrap();
        }
        assert!(
            is == std::fs::read_to_string(file).unwrap(),
            "docs/gain.svg is not what docs/gain.csv gives"
        );
    }

    #[test]
    fn bars_go_from_one_to_their_ratio() {
        let bar = |name: &str, ratio: &str| Bar { name: name.to_string(), ratio: ratio.to_string() };
        let is = picture(&[bar("a<b", "8.0"), bar("c", "0.5")], "t").unwrap();
        for part in [
            "<text x=\"300\" y=\"64\" text-anchor=\"end\">a&lt;b</text>",
            "<rect class=\"gain\" x=\"390.0\" y=\"51\" width=\"360.0\" height=\"17\"/>",
            "<text x=\"757\" y=\"64\">8.0</text>",
            "<rect class=\"loss\" x=\"270.0\" y=\"77\" width=\"120.0\" height=\"17\"/>",
            "<text class=\"s\" x=\"750\" y=\"118\" text-anchor=\"middle\">8</text>",
            "viewBox=\"0 0 825 130\"",
        ] {
            assert!(is.contains(part), "{part}\n{is}");
        }
        for wrong in ["", "0", "-1", "x", "inf"] {
            assert!(picture(&[bar("a", wrong)], "t").is_err(), "{wrong}");
        }
    }
}
