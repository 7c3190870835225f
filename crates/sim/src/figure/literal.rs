// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the papers' words say where [`Claim::bound`] allows more: "the best" is 1.0 times the others and not
//! 1.05, "348 times" is not a tenth of that. A claim that is not here is tested as its words are, or its
//! words have no number ("considerably", "a close second").

use super::Bound::{self, AtLeast, AtMost};
use super::{Claim, Figure};

/// Figure, how the claim begins, what it says.
const LITERAL: &[(&str, &str, Bound)] = &[
    ("tr13", "Native-np and TAS-B-np display the best", AtMost(1.0)),
    ("tr14", "Queue-HS has a high, steady level", AtMost(0.667)),
    ("tr14", "Ticket-np is the best lock", AtMost(1.0)),
    ("tr14", "Native-np provides the best", AtMost(1.0)),
    ("tr15", "More processors do not affect", AtMost(1.0)),
    ("tr16", "Native-np is roughly twice", AtLeast(2.0)),
    ("tr16", "Among the all-software locks", AtMost(1.0)),
    ("tr17", "Ticket-np and Smart-Q match", AtMost(1.0)),
    ("tr19", "Ticket-np and Smart-Q match", AtMost(1.0)),
    ("tr21", "RW-Native-np outperforms all", AtMost(1.0)),
    ("tr22", "RW-Native-np outperforms all", AtMost(1.0)),
    ("tr23", "RW-Native-np outperforms all", AtMost(1.0)),
    ("tr24", "RW-Native-np outperforms all", AtMost(1.0)),
    ("tr25", "In the absence of multiprogramming C-sched performs as well", AtMost(1.0)),
    ("tr25", "At level 1 C-sched performs as well", AtMost(1.0)),
    ("tr26", "C-sched provides the best", AtMost(1.0)),
    ("tr27", "C-sched provides the best", AtMost(1.0)),
    ("tr28", "Scal-SC improves performance by an order of magnitude", AtLeast(10.0)),
    ("icppml", "They execute up to 348 times", AtLeast(348.4)),
    ("icppml", "They execute up to 8 times", AtLeast(8.0)),
    ("icppml", "On a dedicated machine", AtMost(1.0689)),
    ("icppml", "Informing locks execute on average 177.6", AtLeast(177.6)),
    ("icppml", "Informing locks execute on average 5.2", AtLeast(5.2)),
    ("icppml", "At degree 2 the spinning TTAS", AtLeast(1.167)),
    ("icppmb", "Informing barriers execute on average 512.4", AtLeast(512.4)),
    ("icppmb", "Informing barriers execute on average 4.8", AtLeast(4.8)),
    ("icppmb", "They execute up to 1356 times", AtLeast(1356.4)),
    ("icppmb", "They execute up to 10.5 times", AtLeast(10.5)),
    ("icppmb", "On a dedicated machine", AtMost(1.0689)),
    ("paz5b", "The server's accesses to memory take less time", AtMost(1.0)),
    ("paz5b", "With random access and with a stride each access", AtLeast(100.0)),
];

/// What a claim's words say, if that is less than what is allowed.
pub fn bound(figure: &Figure, claim: &Claim) -> Option<Bound> {
    let found =
        LITERAL.iter().find(|(name, words, _)| *name == figure.name && claim.words.starts_with(words));
    found.map(|(_, _, bound)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{figure, figures};

    #[test]
    fn each_is_of_one_claim_and_stricter() {
        for (name, words, bound) in LITERAL {
            let figure = figure(name).unwrap();
            let claims: Vec<_> = figure.claims.iter().filter(|it| it.words.starts_with(words)).collect();
            assert_eq!(claims.len(), 1, "{name}: {words}");
            let stricter = match (bound, claims[0].bound) {
                (AtMost(it), AtMost(used)) => *it < used,
                (AtLeast(it), AtLeast(used)) => *it > used,
                _ => false,
            };
            assert!(stricter, "{name}: {words}");
        }
    }

    /// A claim of the best by 5 %, or of a number by a part of it, is here.
    #[test]
    fn nothing_softer_than_its_words_is_missing() {
        for figure in figures() {
            for claim in figure.claims {
                let soft = claim.measure.contains("is enough") || matches!(claim.bound, AtMost(1.05));
                assert!(!soft || bound(figure, claim).is_some(), "{}: {}", figure.name, claim.words);
            }
        }
    }
}
