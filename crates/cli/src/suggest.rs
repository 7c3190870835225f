// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to say when a name is unknown.

/// Columns of a message.
const WIDTH: usize = 79;

/// "did you mean", if something is near, and, on lines of its own, what there is.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        // COST: more than a third wrong is another word.
        .filter(|(distance, known)| distance * 3 <= known.len().max(3));
    match near {
        Some((_, near)) => format!("Did you mean `{near}`?\n{}", list(&known)),
        None => list(&known),
    }
}

/// "There are: a, b", broken between names.
fn list(names: &[&str]) -> String {
    let mut text = "There are:".to_string();
    let mut column = text.len();
    for (index, name) in names.iter().enumerate() {
        let comma = if index + 1 < names.len() { "," } else { "" };
        let word = format!(" {name}{comma}");
        if column + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        }
        column += word.len();
        text.push_str(&word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn the_nearest_name_is_offered_and_all_are_listed() {
        assert_eq!(hint("tickte", ["mcs", "ticket"]), "Did you mean `ticket`?\nThere are: mcs, ticket");
        assert_eq!(hint("banana", ["mcs", "ticket"]), "There are: mcs, ticket");
    }

    #[test]
    fn a_long_list_is_broken() {
        let names = ["0123456789"; 20];
        assert!(hint("x", names).lines().all(|line| line.len() <= super::WIDTH));
        assert_eq!(hint("x", names).matches("0123456789").count(), 20);
    }
}
