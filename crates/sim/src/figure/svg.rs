// SPDX-License-Identifier: MIT OR Apache-2.0
//! A figure as SVG: lines that differ by dash and by mark, so that they can be told apart without colours;
//! bars where there is one point a series.

use std::fmt::Write;

use super::{Axis, Data, Figure, Point};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 430.0;
const COLOURS: [&str; 6] = ["#000000", "#0060a0", "#b04000", "#007050", "#8040a0", "#707070"];
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

/// What is drawn.
#[derive(Clone, Copy)]
pub struct Drawing<'a> {
    /// Its name and what it shows.
    pub title: &'a str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Each is a line.
    pub series: &'a [&'a str],
    /// Of all series.
    pub points: &'a [Point],
}

/// Around a line, or at the end of a bar.
#[derive(Clone, Copy)]
pub struct Band<'a> {
    /// Whose.
    pub series: &'a str,
    /// Where on the horizontal axis.
    pub x: f64,
    /// From here on the vertical axis,
    pub low: f64,
    /// to here.
    pub high: f64,
}

impl Band<'_> {
    fn both(&self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// From values to places.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    begin: f64,
    end: f64,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, begin: f64, end: f64) -> Self {
        let values = values.filter(|value| value.is_finite() && (!axis.log || *value > 0.0));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        let (mut low, mut high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        if axis.log {
            low /= 1.15;
            high *= 1.15;
        } else {
            (low, high) = (0.0, high * 1.05);
        }
        Self { log: axis.log, low, high, begin, end }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.begin + part * (self.end - self.begin)
    }

    /// At round numbers.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10();
            let within: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let from = self.low.log10().floor() as i32;
            let to = self.high.log10().ceil() as i32;
            let all = (from..=to).flat_map(|power| within.iter().map(move |it| it * 10f64.powi(power)));
            return all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|it| it * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        (0..).map(|number| f64::from(number) * step).take_while(|tick| *tick <= self.high).collect()
    }
}

fn label(axis: &Axis) -> String {
    if axis.unit.is_empty() { axis.label.into() } else { format!("{} ({})", axis.label, axis.unit) }
}

/// At most four digits after the point, and no more than needed.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// One of six, hollow from the seventh on.
fn mark(index: usize, x: f64, y: f64) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    let fill = if index < 6 { colour } else { "white" };
    let style = format!("stroke=\"{colour}\" fill=\"{fill}\" stroke-width=\"1.3\"");
    let path = |d: &[(f64, f64)]| {
        let points: Vec<String> = d.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon points=\"{}\" {style}/>", points.join(" "))
    };
    match index % 6 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" {style}/>"),
        1 => path(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        2 => path(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
        3 => path(&[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
        4 => path(&[(0.0, 5.0), (5.0, -4.0), (-5.0, -4.0)]),
        _ => path(&[(-2.0, -5.0), (2.0, -5.0), (2.0, 5.0), (-2.0, 5.0)]),
    }
}

/// What dark pages have in the place of the colours below. A rule outweighs an attribute.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\n\
    text { fill: #e6edf3 }\n[fill='white'] { fill: #0d1117 }\n[stroke='black'] { stroke: #9198a1 }\n\
    [stroke='#e4e4e4'] { stroke: #30363d }\n[fill='#7fa8c9'] { fill: #2f6a94 }\n\
    [stroke='#000000'] { stroke: #e6edf3 }\n[fill='#000000'] { fill: #e6edf3 }\n\
    [stroke='#0060a0'] { stroke: #58a6ff }\n[fill='#0060a0'] { fill: #58a6ff }\n\
    [stroke='#b04000'] { stroke: #f0883e }\n[fill='#b04000'] { fill: #f0883e }\n\
    [stroke='#007050'] { stroke: #3fb950 }\n[fill='#007050'] { fill: #3fb950 }\n\
    [stroke='#8040a0'] { stroke: #bc8cff }\n[fill='#8040a0'] { fill: #bc8cff }\n\
    [stroke='#707070'] { stroke: #9198a1 }\n[fill='#707070'] { fill: #9198a1 }\n}</style>\n";

pub(crate) fn head(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n{DARK}<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"15\">{}</text>\n",
        escape(title)
    )
}

/// What a hollow mark or bar means, if there is one.
fn footnote(points: &[Point], y: f64) -> Option<String> {
    points.iter().any(|point| point.extrapolated).then(|| {
        format!(
            "<text x=\"20\" y=\"{y}\" font-size=\"12\">* not done at the limit of virtual time: extrapolated from the rate until \
             then</text>\n"
        )
    })
}

/// One bar a series, each with its number, from a power of ten that is below all of them.
fn bars(figure: &Drawing, bands: &[Band]) -> String {
    const LEFT: f64 = 150.0;
    const RIGHT: f64 = 740.0;
    const STEP: f64 = 30.0;
    let bottom = TOP + 10.0 + STEP * figure.series.len() as f64;
    let sound = || figure.points.iter().filter(|point| point.failure.is_none());
    let values = sound().map(|point| point.y).chain(bands.iter().flat_map(Band::both));
    let mut scale = Scale::new(&figure.y, values, LEFT, RIGHT);
    scale.low = 10f64.powf(scale.low.log10().floor());
    let mut out = head(figure.title, bottom + 70.0);
    let mut put = |line: String| writeln!(out, "{line}").expect("a string takes all");
    for tick in scale.ticks() {
        let at = scale.place(tick);
        put(format!("<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/>"));
        put(format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            number(tick)
        ));
    }
    for (index, &series) in figure.series.iter().enumerate() {
        let top = TOP + 10.0 + STEP * index as f64;
        let middle = top + STEP / 2.0;
        put(format!("<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{series}</text>", LEFT - 10.0));
        let Some(point) = sound().find(|point| point.series == series) else {
            put(format!("<text x=\"{}\" y=\"{middle}\">failed</text>", LEFT + 10.0));
            continue;
        };
        let end = scale.place(point.y);
        let fill = if point.extrapolated { "white" } else { "#7fa8c9" };
        put(format!(
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{fill}\" stroke=\"black\"/>",
            top + 2.0,
            end - LEFT
        ));
        let band = bands.iter().find(|band| band.series == series);
        let end = band.map_or(end, |band| {
            let (low, high) = (scale.place(band.low), scale.place(band.high));
            put(format!(
                "<path d=\"M{low:.1} {:.1}H{high:.1}\" stroke=\"black\" stroke-width=\"2\"/>",
                top + 11.0
            ));
            end.max(high)
        });
        let late = if point.extrapolated { "*" } else { "" };
        let shown = if point.y >= 100.0 { format!("{:.0}", point.y) } else { format!("{:.1}", point.y) };
        put(format!("<text x=\"{:.1}\" y=\"{middle}\">{shown}{late}</text>", end + 6.0));
    }
    put(format!("<path d=\"M{LEFT} {TOP}V{bottom}H{RIGHT}\" fill=\"none\" stroke=\"black\"/>"));
    put(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}, logarithmic</text>",
        (LEFT + RIGHT) / 2.0,
        bottom + 40.0,
        label(&figure.y)
    ));
    out.extend(footnote(figure.points, bottom + 60.0));
    out.push_str("</svg>\n");
    out
}

/// The picture of a figure.
pub fn svg(figure: &Figure, data: &Data) -> String {
    svg_banded(figure, data, &[])
}

/// With bands.
pub fn svg_banded(figure: &Figure, data: &Data, bands: &[Band]) -> String {
    let title = format!("{}: {}", figure.name, figure.title);
    let Figure { x, y, series, .. } = *figure;
    let drawing = Drawing { title: &title, x, y, series, points: &data.points };
    if figure.at.len() == 1 { bars(&drawing, bands) } else { banded(&drawing, bands) }
}

/// A picture with lines.
pub fn lines(figure: &Drawing) -> String {
    banded(figure, &[])
}

/// The field between a line's bands.
fn field(bands: &[Band], series: &str, colour: &str, x: &Scale, y: &Scale) -> Option<String> {
    let own: Vec<&Band> = bands.iter().filter(|band| band.series == series).collect();
    let high = own.iter().map(|band| (band.x, band.high));
    let low = own.iter().rev().map(|band| (band.x, band.low));
    let corners: Vec<String> =
        high.chain(low).map(|(at, value)| format!("{:.1},{:.1}", x.place(at), y.place(value))).collect();
    (!own.is_empty()).then(|| {
        format!("<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.14\"/>", corners.join(" "))
    })
}

/// The grid with its numbers, and what the axes are.
fn axes(figure: &Drawing, x: &Scale, y: &Scale) -> String {
    let mut out = String::new();
    let mut put = |line: String| writeln!(out, "{line}").expect("a string takes all");
    for tick in x.ticks() {
        let at = x.place(tick);
        put(format!("<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#e4e4e4\"/>"));
        put(format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            number(tick)
        ));
    }
    for tick in y.ticks() {
        let at = y.place(tick);
        put(format!("<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#e4e4e4\"/>"));
        put(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.5,
            number(tick)
        ));
    }
    put(format!("<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"black\"/>"));
    let middle = (LEFT + RIGHT) / 2.0;
    put(format!(
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        BOTTOM + 42.0,
        label(&figure.x)
    ));
    let middle = (TOP + BOTTOM) / 2.0;
    let scale = if figure.y.log { ", logarithmic" } else { "" };
    put(format!(
        "<text transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">{}{scale}</text>",
        label(&figure.y)
    ));
    out
}

/// A picture with lines in their bands.
pub fn banded(figure: &Drawing, bands: &[Band]) -> String {
    let x = Scale::new(&figure.x, figure.points.iter().map(|point| point.x), LEFT, RIGHT);
    let values = figure.points.iter().map(|point| point.y).chain(bands.iter().flat_map(Band::both));
    let y = Scale::new(&figure.y, values, BOTTOM, TOP);
    let mut out = head(figure.title, HEIGHT) + &axes(figure, &x, &y);
    let mut put = |line: String| writeln!(out, "{line}").expect("a string takes all");
    for (index, &series) in figure.series.iter().enumerate() {
        field(bands, series, COLOURS[index % COLOURS.len()], &x, &y).map(&mut put);
        let own = figure.points.iter().filter(|point| point.series == series && point.failure.is_none());
        let places: Vec<(f64, f64, bool)> =
            own.map(|point| (x.place(point.x), y.place(point.y), point.extrapolated)).collect();
        let points: Vec<String> = places.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let style = format!(
            "fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-dasharray=\"{}\"",
            COLOURS[index % COLOURS.len()],
            DASHES[index % DASHES.len()]
        );
        put(format!("<polyline points=\"{}\" {style}/>", points.join(" ")));
        for &(x, y, extrapolated) in &places {
            put(mark(index, x, y));
            if extrapolated {
                put(format!("<text x=\"{:.1}\" y=\"{:.1}\">*</text>", x + 5.0, y - 3.0));
            }
        }
        let (left, at) = (RIGHT + 20.0, TOP + 10.0 + 22.0 * index as f64);
        put(format!("<path d=\"M{left} {at}h36\" {style}/>{}", mark(index, left + 18.0, at)));
        put(format!("<text x=\"{}\" y=\"{}\">{series}</text>", left + 44.0, at + 4.5));
    }
    out.extend(footnote(figure.points, HEIGHT - 8.0));
    out.push_str("</svg>\n");
    out
}
