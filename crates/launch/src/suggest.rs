// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to say when a name is unknown, or something fails.

use std::io;

/// Columns of a message.
pub const WIDTH: usize = 79;

/// An error with its causes, for people. A cause that an error says itself is not said again, and of what
/// the kernel refuses for a limit, the limit is named.
pub fn reason(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    let number = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    match number {
        Some(libc::EMFILE) => {
            text += ";\nraise `ulimit -n`, the number of descriptors that a process may have"
        }
        Some(libc::EAGAIN) => {
            text += ";\nraise `ulimit -u`, the threads that a user may have, or `ulimit -v`, the memory"
        }
        _ => {}
    }
    text
}

/// What follows "there is no x." in a message: on lines of their own, "did you mean", if something is
/// near, and what there is.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = near(name, known.iter().copied());
    let near = near.map_or(String::new(), |near| format!("\nDid you mean `{near}`?"));
    format!("{near}\n{}", wrap(&format!("There are: {}", known.join(", ")), WIDTH))
}

/// The known name that is nearest, if it is near.
pub fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.map(|known| (strsim::damerau_levenshtein(name, known), known)).min()?;
    // BOUND: more than a third wrong is another word.
    (nearest.0 * 3 <= nearest.1.len().max(3)).then_some(nearest.1)
}

/// Without what a terminal would obey: names come from users and programs.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The text with its lines broken between words, so that none is wider, but for a word that is. What
/// follows a break is indented like the line.
pub fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        wrapped.push_str(indent);
        let mut column = indent.len();
        for (index, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > width {
                wrapped.push('\n');
                wrapped.push_str(indent);
                column = indent.len();
            } else if index > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += length;
        }
        wrapped.push('\n');
    }
    wrapped.pop();
    wrapped
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::{hint, plain, reason, wrap};

    #[test]
    fn a_reason_is_said_once_and_a_limit_is_named() {
        let of = |number| Err::<(), _>(io::Error::from_raw_os_error(number));
        let twice =
            of(libc::ENOENT).map_err(|error| anyhow::anyhow!("{error}").context(format!("x: {error}")));
        assert_eq!(reason(&twice.unwrap_err()), "x: No such file or directory (os error 2)");
        for (number, limit) in [(libc::EMFILE, "`ulimit -n`"), (libc::EAGAIN, "`ulimit -u`")] {
            let text = reason(&of(number).context("cannot start").unwrap_err());
            assert!(text.starts_with("cannot start: ") && text.contains(limit), "{text}");
        }
        assert_eq!(reason(&of(libc::ENOENT).context("x").unwrap_err()).lines().count(), 1);
    }

    #[test]
    fn the_nearest_name_is_offered_and_all_are_listed() {
        assert_eq!(hint("tickte", ["mcs", "ticket"]), "\nDid you mean `ticket`?\nThere are: mcs, ticket");
        assert_eq!(hint("banana", ["mcs", "ticket"]), "\nThere are: mcs, ticket");
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(plain("a\u{1b}[2J\nb\u{9b}1m\t\u{7f}ü"), "a?[2J?b?1m??ü");
    }

    #[test]
    fn a_long_list_is_broken() {
        let names = ["0123456789"; 20];
        assert!(hint("x", names).lines().all(|line| line.len() <= super::WIDTH));
        assert_eq!(hint("x", names).matches("0123456789").count(), 20);
        assert_eq!(wrap("a bc def\n  g h i\n\nj", 5), "a bc\ndef\n  g h\n  i\n\nj");
        assert_eq!(wrap("long words stand alone", 3), "long\nwords\nstand\nalone");
    }
}
