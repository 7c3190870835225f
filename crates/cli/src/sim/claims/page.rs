// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page: the claims, and the figures' curves in their bands.

use std::fmt::Write;

use ::sim::figure::sure::{Share, Sure};
use ::sim::figure::{Band, Data, Point, svg_banded};

use super::{ClaimsArgs, Judged, SURE, counted, percent, spread, turned};
use crate::figure::escape;

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\">\
<meta name=\"color-scheme\" content=\"light dark\"><title>Wakeful: how sure the papers' claims are</title>\n\
<style>body{font:16px/1.4 sans-serif;max-width:64em;margin:2em auto;padding:0 1em}\
svg{max-width:100%;height:auto}table{border-collapse:collapse}\
td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left;vertical-align:top}\
.n{text-align:right;white-space:nowrap}.weak{font-weight:bold}</style></head><body>\n\
<h1>How sure the papers' claims are</h1>\n";

const COLUMNS: &str = "<tr><th>figure</th><th>claim</th><th>as its words say</th><th>bound in use</th>\
<th>number: median, 5 to 95 %</th><th>what decides</th></tr>\n";

fn cell(share: Option<&Share>, samples: usize) -> String {
    let Some(share) = share else { return "<td class=\"n\">the same</td>".into() };
    let part = percent(share.holds, samples);
    let class = if part >= SURE { "n" } else { "n weak" };
    format!("<td class=\"{class}\">{part:.0} %<br><small>{}</small></td>", share.bound)
}

fn row(figure: &str, sure: &Sure) -> String {
    let decides = [Some(&sure.words), sure.used.as_ref()].into_iter().flatten();
    let decides: Vec<String> = decides
        .filter_map(|share| Some(format!("{}: {}", share.bound, escape(&turned(share, sure.samples)?))))
        .collect();
    let missing = if sure.missing > 0 { format!("<br>none on {}", sure.missing) } else { String::new() };
    format!(
        "<tr><td><a href=\"#{figure}\">{figure}</a></td><td>{} <small>({})</small></td>{}{}\
         <td>{}{missing}<br><small>{}</small></td><td>{}</td></tr>\n",
        escape(sure.claim),
        escape(sure.source),
        cell(Some(&sure.words), sure.samples),
        cell(sure.used.as_ref(), sure.samples),
        spread(sure.number),
        escape(sure.measure),
        decides.join("<br>")
    )
}

fn picture(judged: &Judged) -> String {
    let figure = judged.figure;
    let places = figure.series.iter().flat_map(|&series| figure.at.iter().map(move |&x| (series, x)));
    let (mut points, mut bands) = (Vec::new(), Vec::new());
    for ((series, x), spread) in places.zip(&judged.spreads) {
        let failure = spread.is_none().then(|| "it failed on all samples".into());
        let y = spread.map_or(f64::NAN, |it| it.median);
        points.push(Point { series, x, y, extrapolated: false, failure });
        bands.extend(spread.map(|it| Band { series, x, low: it.low, high: it.high }));
    }
    svg_banded(figure, &Data { points }, &bands)
}

pub fn page(args: &ClaimsArgs, judged: &[Judged]) -> String {
    let [words, used, all] = counted(judged);
    let drawn = if args.described {
        "The machines are as described; a sample draws the seed."
    } else {
        "A sample draws each number of a machine that is an assumption from half to double, so that its \
         logarithm is uniform, and the seed."
    };
    let mut out = format!(
        "{HEAD}<p>{words} of {all} claims hold on at least {SURE} % of {} samples as their words say, {used} \
         within the bounds that <code>wakeful sim figure</code> uses. {drawn} Seed {}, size {}.</p>\n\
         <p>An assumption decides a claim if it separates the samples on which the claim holds from the \
         others: the difference of the draws' mean ranks, in halves of the number of samples, is the \
         separation. One is named if a separation as great comes by chance in at most one of 20 cases. \
         Curves are medians. Bands hold 90 % of the samples.</p>\n<table>{COLUMNS}",
        args.samples, args.seed, args.size
    );
    for Judged { figure, claims, .. } in judged {
        claims.iter().for_each(|sure| out += &row(figure.name, sure));
    }
    out += "</table>\n";
    for it in judged {
        let (name, title) = (it.figure.name, escape(it.figure.title));
        let _ = write!(out, "<h2 id=\"{name}\">{name}: {title}</h2>\n{}", picture(it));
    }
    out + "</body></html>\n"
}
