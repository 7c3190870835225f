// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers drawn from a generator.

use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

/// A number below `bound`.
pub(crate) fn below(random: &mut Pcg64Mcg, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// A number from 0 to 1.
pub(crate) fn unit(random: &mut Pcg64Mcg) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
