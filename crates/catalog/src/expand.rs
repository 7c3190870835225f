// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is made of each list: its entries, and the calls that find an algorithm by its name.

/// Is this a kind, or a flag, of which that is true?
macro_rules! is {
    // All locks but those whose waiters bring a node.
    (in_place queue) => {
        false
    };
    (in_place $kind:ident) => {
        true
    };
    (timed timed) => {
        true
    };
    // Of a barrier, which is one or the other: another kind does not compile.
    (dynamic dynamic) => {
        true
    };
    (dynamic fixed) => {
        false
    };
    (served served) => {
        true
    };
    (fair fair) => {
        true
    };
    (informed informed) => {
        true
    };
    (wishes wishes) => {
        true
    };
    ($what:ident $other:ident) => {
        false
    };
}

/// The block if the kind is of that sort, else nothing: there the type does not do what the block asks of it.
macro_rules! if_is {
    (any $kind:ident $then:block) => {
        $then
    };
    (in_place queue $then:block) => {};
    (in_place $kind:ident $then:block) => {
        $then
    };
    (timed timed $then:block) => {
        $then
    };
    // No more: of another sort it does not compile.
    (timed $kind:ident $then:block) => {};
}

/// Makes of the rows in brackets: a table of entries, with what the kinds and the flags say of each; the
/// function that finds an entry; and for each visitor the function that calls it with the type of a name.
macro_rules! expand {
    (
        $(#[$doc:meta])*
        $list:ident: $entry:ident { kinds: $($kind:ident)*; flags: $flags:tt } by $find:ident;
        $($(#[$about:meta])* $visit:ident: $visitor:ident of $sort:ident on $platform:ident;)*
        => $rows:tt
    ) => {
        expand!(@entries $(#[$doc])* $list $entry [$($kind)*] $flags $rows);

        /// The entry of this name.
        pub fn $find(name: &str) -> Option<&'static $entry> {
            $list.iter().find(|entry| entry.name == name)
        }

        $(expand!(@visit $(#[$about])* $visit $visitor $sort $platform $find $rows);)*
    };
    (
        @entries $(#[$doc:meta])* $list:ident $entry:ident $kinds:tt $flags:tt
        [$({
            $name:literal, $ident:ident, [P] $type:ty, $kind:ident, $has:tt,
            $citation:literal, $summary:literal
        })*]
    ) => {
        $(#[$doc])*
        pub static $list: &[$entry] = &[$(expand!(
            @entry $entry $kinds $flags $kind $has $name, $citation, $summary
        )),*];
    };
    (
        @entry $entry:ident [$($sort:ident)*] [$($flag:ident)*] $kind:ident $has:tt
        $name:literal, $citation:literal, $summary:literal
    ) => {
        $entry {
            name: $name,
            summary: $summary,
            citation: $citation,
            $($sort: is!($sort $kind),)*
            $($flag: expand!(@has $flag $has),)*
        }
    };
    (@has $flag:ident [$($has:ident)*]) => { false $(|| is!($flag $has))* };
    (
        @visit $(#[$about:meta])* $visit:ident $visitor:ident $sort:ident $platform:ident $find:ident
        [$({
            $name:literal, $ident:ident, [P] $type:ty, $kind:ident, $has:tt,
            $citation:literal, $summary:literal
        })*]
    ) => {
        $(#[$about])*
        pub fn $visit<P: $platform, V: $visitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            let entry = $find(name)?;
            $(if_is!($sort $kind {
                if name == $name {
                    return Some(visitor.visit::<$type>(entry));
                }
            });)*
            None
        }
    };
}
