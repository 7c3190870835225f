// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to say when a name is unknown.

/// Columns of a message.
pub const WIDTH: usize = 79;

/// What follows "there is no x." in a message: on lines of their own, "did you mean", if something is
/// near, and what there is.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        // BOUND: more than a third wrong is another word.
        .filter(|(distance, known)| distance * 3 <= known.len().max(3));
    let near = near.map_or(String::new(), |(_, near)| format!("\nDid you mean `{near}`?"));
    format!("{near}\n{}", wrap(&format!("There are: {}", known.join(", ")), WIDTH))
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
    use super::{hint, wrap};

    #[test]
    fn the_nearest_name_is_offered_and_all_are_listed() {
        assert_eq!(hint("tickte", ["mcs", "ticket"]), "\nDid you mean `ticket`?\nThere are: mcs, ticket");
        assert_eq!(hint("banana", ["mcs", "ticket"]), "\nThere are: mcs, ticket");
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
