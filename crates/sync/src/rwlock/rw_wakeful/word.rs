// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state's bits, and what each kind of user wants of them.

pub const WRITER: u32 = 1;
pub const UPGRADABLE: u32 = 1 << 1;
pub const DEMAND: u32 = 1 << 2;
pub const SLEEPER: u32 = 1 << 3;
pub const UPGRADING: u32 = 1 << 4;
pub const URGENT: u32 = 1 << 5;
pub const BIASED: u32 = 1 << 6;
/// Both: held by a writer that is not inside yet, but in B3 or B5.
pub const DRAINING: u32 = WRITER | UPGRADABLE;
/// The writer inside has told a scheduler what it is, or the last one did: see [`super::published`].
pub const TOLD: u32 = 1 << 7;
pub const READER: u32 = 1 << 8;
pub const READERS: u32 = 0x3_ffff << 8;
/// So many readers keep the next one out: the upper half of READERS is for those who have added themselves in
/// vain.
pub const MANY: u32 = 1 << 25;
pub const VERSION: u32 = 1 << 26;
pub const VERSION_SHIFT: u32 = 26;
pub const VERSIONS: u32 = 64;

/// What a user wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Read,
    ReadRecursive,
    Upgradable,
    Write,
}

impl Want {
    /// Bits that keep it out.
    #[inline]
    pub fn excluded(self) -> u32 {
        match self {
            Self::Read => WRITER | UPGRADING | MANY,
            Self::ReadRecursive => WRITER | MANY,
            Self::Upgradable => WRITER | UPGRADABLE | MANY,
            Self::Write => WRITER | UPGRADABLE | READERS,
        }
    }

    /// Does this state keep it out?
    #[inline]
    pub fn kept_out(self, word: u32) -> bool {
        // A5. It may be one of the readers for whom the writer waits.
        let goes_before = self == Self::ReadRecursive && word & (DRAINING | MANY) == DRAINING;
        word & self.excluded() != 0 && !goes_before
    }

    /// The state with it, after one in which it may have the lock.
    #[inline]
    pub fn added_to(self, word: u32) -> u32 {
        match self {
            Self::Write if word & BIASED != 0 => word & !BIASED | DRAINING,
            _ => word + self.unit(),
        }
    }

    /// What it adds to the state, where that is not biased.
    #[inline]
    fn unit(self) -> u32 {
        match self {
            Self::Read | Self::ReadRecursive => READER,
            Self::Upgradable => UPGRADABLE,
            Self::Write => WRITER,
        }
    }
}

/// What the release of this counts (see [`super::share`]).
#[inline(always)]
pub fn version(from: u32) -> u32 {
    if from & WRITER != 0 { 2 * VERSION } else { VERSION }
}
