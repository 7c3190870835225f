// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where memory comes from, by where the servers run: steps 1 to 5 of RCLAwareMalloc, without a machine.

/// Where new blocks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// From the default allocator; the block is listed.
    #[default]
    Default,
    /// From the heap that is bound to this node.
    Node(u32),
}

/// Steps 1, 3, 4 and 5: the servers' node if all run on one, else the default. `None` is a server of which
/// nobody can say on which node it runs, or one that may run on several.
pub fn place(servers: impl IntoIterator<Item = Option<u32>>) -> Place {
    let mut servers = servers.into_iter();
    match servers.next() {
        Some(Some(first)) if servers.all(|node| node == Some(first)) => Place::Node(first),
        _ => Place::Default,
    }
}

/// BOUND: servers that are told apart. With more at a time nobody can say that all are on one node.
const MOST: usize = 64;

/// The servers that run, and what followed from that.
#[derive(Debug)]
pub struct Servers {
    known: [(usize, Option<u32>); MOST],
    count: usize,
    /// Those beyond [`MOST`].
    others: usize,
    place: Place,
}

impl Default for Servers {
    fn default() -> Self {
        Self::new()
    }
}

impl Servers {
    /// None runs.
    pub const fn new() -> Self {
        Self { known: [(0, None); MOST], count: 0, others: 0, place: Place::Default }
    }

    /// A server begins, or runs on another node now. The new place, if there is one.
    pub fn serves(&mut self, server: usize, node: Option<u32>) -> Option<Place> {
        match self.known[..self.count].iter_mut().find(|known| known.0 == server) {
            Some(known) => known.1 = node,
            None if self.count < MOST => {
                self.known[self.count] = (server, node);
                self.count += 1;
            }
            None => self.others += 1,
        }
        self.change()
    }

    /// A server ends. The new place, if there is one.
    pub fn ends(&mut self, server: usize) -> Option<Place> {
        match self.known[..self.count].iter().position(|known| known.0 == server) {
            Some(at) => {
                self.count -= 1;
                self.known[at] = self.known[self.count];
            }
            None => self.others = self.others.saturating_sub(1),
        }
        self.change()
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.count + self.others
    }

    fn change(&mut self) -> Option<Place> {
        let known = self.known[..self.count].iter().map(|known| known.1);
        let place = place(known.chain((self.others > 0).then_some(None)));
        (core::mem::replace(&mut self.place, place) != place).then_some(place)
    }
}
