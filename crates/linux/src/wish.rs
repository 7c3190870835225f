// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread sets its wish, whatever its run state is: `platform::ke1`, G1.

use core::sync::atomic::AtomicU32;

use platform::Wish;

/// The wish of this word, by the store of its byte: the kernel may write the other one at any time.
#[inline(always)]
pub fn set(word: &AtomicU32, wish: Wish) {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! store {
            ($wish:ident) => {
                // SAFETY: the second byte of the word. To everybody who uses the word it is a relaxed
                // read-modify-write of it, which cannot fail.
                unsafe {
                    core::arch::asm!(
                        "mov byte ptr [{word} + 1], {wish}",
                        word = in(reg) word.as_ptr(),
                        wish = const Wish::$wish as u8,
                        options(nostack, preserves_flags)
                    )
                }
            };
        }
        match wish {
            Wish::Preemptable => store!(Preemptable),
            Wish::UnpreemptableSelf => store!(UnpreemptableSelf),
            Wish::UnpreemptableOther => store!(UnpreemptableOther),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    platform::ke1::set_wish(word, wish);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use platform::RunState;

    use super::*;

    #[test]
    fn a_wish_changes_nothing_else() {
        let word = AtomicU32::new(0xffff_ff00 | RunState::Preempted as u32);
        for wish in [Wish::UnpreemptableSelf, Wish::UnpreemptableOther, Wish::Preemptable] {
            set(&word, wish);
            let now = word.load(Relaxed);
            assert_eq!(abi::state::wish(now), wish);
            assert_eq!(now, abi::state::with_wish(0xffff_0000 | RunState::Preempted as u32, wish));
        }
    }
}
