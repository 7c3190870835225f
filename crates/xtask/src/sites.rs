// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory orderings in a source file, and how each can be weakened.

use std::fmt;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Relaxed,
    Acquire,
    Release,
    AcqRel,
    SeqCst,
}

impl Order {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "Relaxed" => Self::Relaxed,
            "Acquire" => Self::Acquire,
            "Release" => Self::Release,
            "AcqRel" => Self::AcqRel,
            "SeqCst" => Self::SeqCst,
            _ => return None,
        })
    }

    /// The weaker orderings that this operation can have: one step down, and from SeqCst two, since loom
    /// treats an access with SeqCst as one with AcqRel, and a test that misses the first step can still see
    /// the second.
    fn weaker(self, method: &str, role: &str) -> &'static [Order] {
        match self {
            Self::Relaxed => &[],
            Self::Acquire | Self::Release => &[Self::Relaxed],
            Self::AcqRel => &[Self::Acquire, Self::Release],
            Self::SeqCst if method == "load" || role == "failure" => &[Self::Acquire, Self::Relaxed],
            Self::SeqCst if method == "store" => &[Self::Release, Self::Relaxed],
            Self::SeqCst => &[Self::AcqRel, Self::Acquire, Self::Release],
        }
    }
}

/// An ordering in the source that is not Relaxed.
#[derive(Clone, Debug)]
pub struct Site {
    /// Below `crates/sync/src`, or `fiber/` and below `crates/fiber/src`.
    pub file: String,
    pub line: usize,
    pub bytes: Range<usize>,
    pub order: Order,
    /// Where it stands, in a way that survives edits elsewhere: `unlock: compare_exchange success`, with `
    /// #2` for the second of its kind.
    pub place: String,
    /// An `ORDER:` comment stands on the line or in the ten above it.
    pub commented: bool,
    method: String,
    role: &'static str,
}

impl Site {
    pub fn weaker(&self) -> &'static [Order] {
        self.order.weaker(&self.method, self.role)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}", self.file, self.line, self.place)
    }
}

/// All of a file, in the order in which they stand there.
pub fn find(file: &str, text: &str) -> Result<Vec<Site>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}")).context("not Rust")?;
    let mut finder = Finder { file, lines: text.lines().collect(), sites: Vec::new(), stray: Vec::new() };
    finder.walk(tokens, "");
    if let Some((line, order)) = finder.stray.first() {
        bail!(
            "{file}:{line}: {order:?} is not itself an argument of a call; write it as one, or it cannot be weakened here"
        );
    }
    Ok(finder.sites)
}

struct Finder<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    sites: Vec<Site>,
    stray: Vec<(usize, Order)>,
}

impl Finder<'_> {
    fn walk(&mut self, tokens: TokenStream, function: &str) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut function = function.to_owned();
        let outer = function.clone();
        let mut unit_tests = false;
        for (at, token) in tokens.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &tokens[at]);
            match token {
                TokenTree::Ident(name) => {
                    if before.is_some_and(|before| before.to_string() == "fn") {
                        function = name.to_string();
                    }
                    if let Some(order) =
                        Order::parse(&name.to_string()).filter(|&order| order != Order::Relaxed)
                    {
                        self.stray.push((name.span().start().line, order));
                    }
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    let attribute = before.is_some_and(|before| before.to_string() == "#");
                    unit_tests |= attribute && group.stream().to_string().starts_with("cfg (test");
                    self.walk(group.stream(), &function);
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => match before {
                    Some(TokenTree::Ident(method)) => {
                        self.arguments(group.stream(), &function, &method.to_string())
                    }
                    _ => self.walk(group.stream(), &function),
                },
                TokenTree::Group(group) => {
                    if !std::mem::take(&mut unit_tests) {
                        self.walk(group.stream(), &function);
                    }
                    if group.delimiter() == Delimiter::Brace {
                        function.clone_from(&outer);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn arguments(&mut self, tokens: TokenStream, function: &str, method: &str) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        for (index, argument) in tokens.split(comma).enumerate() {
            let name = match argument {
                [TokenTree::Ident(name)] => Some(name),
                [TokenTree::Ident(path), .., TokenTree::Ident(name)] if path == "Ordering" => Some(name),
                _ => None,
            };
            match name.and_then(|name| Some((name.span(), Order::parse(&name.to_string())?))) {
                Some((_, Order::Relaxed)) => {}
                Some((span, order)) => {
                    let role = match (method, index) {
                        ("compare_exchange" | "compare_exchange_weak", 2) | ("fetch_update", 0) => "success",
                        ("compare_exchange" | "compare_exchange_weak", 3) | ("fetch_update", 1) => "failure",
                        _ => "",
                    };
                    // The whole path, so that `Ordering::Acquire` is replaced and not its end.
                    let start = argument[0].span().byte_range().start;
                    self.site(function, method, role, order, start..span.byte_range().end, span.start().line);
                }
                None => self.walk(argument.iter().cloned().collect(), function),
            }
        }
    }

    fn site(
        &mut self,
        function: &str,
        method: &str,
        role: &'static str,
        order: Order,
        bytes: Range<usize>,
        line: usize,
    ) {
        let mut place = format!("{function}: {method} {role}").trim_end().to_owned();
        let alike = |site: &&Site| site.order == order && site.place.split(" #").next() == Some(&place);
        let earlier = self.sites.iter().filter(alike).count();
        if earlier > 0 {
            place = format!("{place} #{}", earlier + 1);
        }
        let commented = self.lines[line.saturating_sub(10)..line].iter().any(|line| line.contains("ORDER:"));
        let file = self.file.to_owned();
        let method = method.to_owned();
        self.sites.push(Site { file, line, bytes, order, place, commented, method, role });
    }
}

/// The text with every ordering sent through the hook; the first has the number `first`.
pub fn hooked(text: &str, sites: &[Site], first: usize) -> String {
    let mut hooked = String::with_capacity(text.len() * 2);
    let mut done = 0;
    for (number, site) in sites.iter().enumerate() {
        hooked += &text[done..site.bytes.start];
        hooked += &format!("crate::hook::at({}, {})", first + number, &text[site.bytes.clone()]);
        done = site.bytes.end;
    }
    hooked + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        use platform::Ordering::{self, *};
        fn lock(&self) {
            // ORDER: Acquire.
            while word.compare_exchange(0, f(1, 2), AcqRel, Ordering::Acquire).is_err() {
                debug_assert!(word.load(Acquire) != 0 && word.load(Relaxed) != 0);
            }
            word.load(Acquire);
        }
        #[cfg(test)]
        mod tests { fn f() { word.load(Acquire); } }
    ";

    #[test]
    fn finds_each_once_also_in_macros_and_not_in_unit_tests() {
        let sites = find("a.rs", TEXT).unwrap();
        let places: Vec<_> = sites.iter().map(|site| (site.place.as_str(), site.order)).collect();
        assert_eq!(
            places,
            [
                ("lock: compare_exchange success", Order::AcqRel),
                ("lock: compare_exchange failure", Order::Acquire),
                ("lock: load", Order::Acquire),
                ("lock: load #2", Order::Acquire),
            ]
        );
        assert_eq!(sites[0].weaker(), [Order::Acquire, Order::Release]);
        assert!(sites[0].commented);
        let hooked = hooked(TEXT, &sites, 5);
        assert!(
            hooked.contains("f(1, 2), crate::hook::at(5, AcqRel), crate::hook::at(6, Ordering::Acquire))")
        );
        assert!(hooked.contains("load(crate::hook::at(7, Acquire)) != 0 && word.load(Relaxed)"));
    }

    #[test]
    fn an_ordering_that_is_computed_is_refused() {
        let error = find("a.rs", "fn f() { let order = if x { Acquire } else { Relaxed }; }").unwrap_err();
        assert!(error.to_string().contains("a.rs:1"), "{error}");
    }
}
