// SPDX-License-Identifier: MIT OR Apache-2.0
//! How results look.

pub use launch::suggest::plain;
use serde::Serialize;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON object a line, with a schema number
    Json,
    /// Comma-separated values with a header line
    Csv,
}

/// Takes a whole number of this range, and says so of anything else.
pub fn whole_number<T: TryFrom<u64>>(
    range: impl std::ops::RangeBounds<u64> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    use std::ops::Bound::{Excluded, Included};
    move |text| {
        let found = text.parse().ok().filter(|number| range.contains(number));
        found.and_then(|number: u64| T::try_from(number).ok()).ok_or_else(|| {
            let least = match range.start_bound() {
                Included(least) => *least,
                _ => 0,
            };
            // A number that is neither the least one nor the most one says more.
            match range.end_bound() {
                Included(most) => {
                    format!("give a whole number from {least} to {most}, such as {}", most.min(&least.max(8)))
                }
                Excluded(end) => format!("give a whole number from {least} to {}, such as {least}", end - 1),
                _ => format!("give a whole number of {least} or more, such as {}", least.max(8)),
            }
        })
    }
}

/// A JSON line: the record, with what it is and its schema.
#[derive(Serialize)]
pub struct Record<'a, T: Serialize> {
    /// Version of the records.
    pub schema: u32,
    /// What this line is.
    pub record: &'a str,
    /// Its fields.
    #[serde(flatten)]
    pub fields: &'a T,
}

/// Prints a JSON line.
pub fn json(record: &str, fields: &impl Serialize) -> anyhow::Result<()> {
    use std::io::Write;
    let mut text = serde_json::to_vec(&Record { schema: ::bench::SCHEMA, record, fields })?;
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
        crate::unwritten(&error);
    }
    Ok(())
}

/// Three significant digits with a unit prefix: 1234567 is "1.23M".
pub fn count(value: f64) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{prefix}")
}

/// A part of one, in words.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        part if part < 1.0 => "less than 1 %".into(),
        part => format!("{part:.0} %"),
    }
}

/// As [`count`], of things that are not divided: 0 is "0".
pub fn whole(value: u64) -> String {
    if value < 1000 { value.to_string() } else { count(value as f64) }
}

/// In groups of three digits, for a sentence: 1234567 is "1,234,567".
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds with a unit, two or three significant digits: 1234567 is "1.23ms".
pub fn ns(value: u64) -> String {
    let (scaled, unit) = match value as f64 {
        v if v >= 1e9 => (v / 1e9, "s"),
        v if v >= 1e6 => (v / 1e6, "ms"),
        v if v >= 1e3 => (v / 1e3, "us"),
        v => return format!("{v:.0}ns"),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(count(1_234_567.0), "1.23M");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(45_600.0), "45.6k");
        assert_eq!(count(0.5), "0.50");
        assert_eq!([0, 999, 1_000].map(whole), ["0", "999", "1.00k"]);
        assert_eq!([0, 999, 4_629, 1_234_567].map(grouped), ["0", "999", "4,629", "1,234,567"]);
        assert_eq!(ns(999), "999ns");
        assert_eq!(ns(1_500), "1.50us");
        assert_eq!(ns(123_456_789), "123ms");
    }

    #[test]
    fn what_is_no_number_is_told_what_one_is() {
        assert_eq!((whole_number::<u32>(1..)("7"), whole_number::<u16>(0..=7)("7")), (Ok(7), Ok(7)));
        let more = Err("give a whole number of 1 or more, such as 8".to_string());
        for text in ["x", "", "0", "-1", "1.5", "4294967296"] {
            assert_eq!(whole_number::<u32>(1..)(text), more, "{text}");
        }
        let text = whole_number::<u32>(1..=4)("5").unwrap_err();
        assert_eq!(text, "give a whole number from 1 to 4, such as 4");
    }
}
