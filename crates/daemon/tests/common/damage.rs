// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that no program sends.

use abi::server::Envelope;

/// The packet of a request, of which these words are others: 0 is the magic number, 2 says what it asks for.
pub fn damaged(request: impl Into<Envelope>, words: &[(usize, u32)]) -> Vec<u8> {
    let mut packet = request.into().encode().bytes().to_vec();
    for (at, word) in words {
        packet[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
    }
    packet
}
