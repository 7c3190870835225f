// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processor, where any would do.

use std::collections::BTreeSet;

use crate::Machine;

/// The one of `pool` that suits best somebody who has `own` and lacks `need` (this one included). Rule 6.
pub fn best(machine: &Machine, pool: &BTreeSet<u32>, own: &BTreeSet<u32>, need: u32) -> Option<u32> {
    let at = |number: u32| machine.get(number).map(|processor| (processor.node, processor.core));
    let count =
        |of: &BTreeSet<u32>, core: (u32, u32)| of.iter().filter(|&&number| at(number) == Some(core)).count();
    let key = |number: u32| {
        let core = at(number);
        let node = core.map(|(node, _)| node);
        let own_core = own.iter().any(|&mine| at(mine) == core);
        let own_node = own.iter().any(|&mine| at(mine).map(|(node, _)| node) == node);
        let in_node = pool.iter().filter(|&&other| at(other).map(|(node, _)| node) == node).count() as u32;
        // The least that is enough, else the most.
        let fit = if in_node >= need { (false, in_node) } else { (true, u32::MAX - in_node) };
        let free = core.map_or(0, |core| count(pool, core));
        let online = machine.online().filter(|&other| at(other) == core).count();
        let breaks = match free == online {
            true if free as u32 <= need => 0,
            false => 1,
            true => 2,
        };
        (!own_core, !own_node, fit, breaks, number)
    };
    pool.iter().copied().min_by_key(|&number| key(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Processor;

    /// Two nodes of two cores of two: 0 1 | 2 3 || 4 5 | 6 7.
    fn machine() -> Machine {
        (0..8).map(|n| (n, Processor { core: n / 2, node: n / 4, online: true })).collect()
    }

    fn pick(pool: &[u32], own: &[u32], need: u32) -> Option<u32> {
        best(&machine(), &pool.iter().copied().collect(), &own.iter().copied().collect(), need)
    }

    #[test]
    fn near_processors_first() {
        assert_eq!(pick(&[], &[], 1), None);
        assert_eq!(pick(&[0, 4, 5, 7], &[6], 1), Some(7), "the rest of a core");
        assert_eq!(pick(&[0, 1, 4], &[6], 2), Some(4), "the node, be it half a core");
        assert_eq!(pick(&[1, 2, 3], &[], 2), Some(2), "a whole core");
        assert_eq!(pick(&[0, 1, 2], &[], 1), Some(2), "no whole core for one");
        assert_eq!(pick(&[0, 1, 2, 3, 4, 5, 6], &[], 3), Some(4), "the node that is just enough");
        assert_eq!(pick(&[0, 1, 2, 4], &[], 4), Some(0), "the greater part, where none is enough");
    }
}
