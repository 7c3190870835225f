// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to say when a name is unknown.

/// "did you mean", if something is near, and what there is.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        // COST: more than a third wrong is another word.
        .filter(|(distance, known)| distance * 3 <= known.len().max(3));
    let list = known.join(", ");
    match near {
        Some((_, near)) => format!("did you mean `{near}`? There are: {list}"),
        None => format!("there are: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn the_nearest_name_is_offered_and_all_are_listed() {
        assert_eq!(hint("tickte", ["mcs", "ticket"]), "did you mean `ticket`? There are: mcs, ticket");
        assert_eq!(hint("banana", ["mcs", "ticket"]), "there are: mcs, ticket");
    }
}
