// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps whose hashes take some nanoseconds: each event and each record asks several.

use foldhash::fast::RandomState;

/// As the standard library's.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// As the standard library's.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
