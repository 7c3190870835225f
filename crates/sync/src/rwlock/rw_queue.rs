// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-queue`: a fair reader-writer lock over a doubly linked list of waiters and readers.
//!
//! First come, first served, each waiter spinning on its own line: for machines of many processors with no
//! more threads than those, and the oblivious reference for `rw-smart-q`. Krieger, Stumm, Unrau, "A Fair
//! Fast Scalable Reader-Writer Lock", ICPP 1993; TR 1994, section 5.3, "RW-Queue".
//!
//! Changed, because our nodes are on the stacks of their threads and gone when those have left:
//! - The original links itself behind its predecessor and then looks whether that one is an active reader.
//!   By then it may have left. We ask first, by a compare-and-swap that also leaves word that a reader
//!   follows (A3), as in Mellor-Crummey and Scott's lock (PPoPP 1991).
//! - A reader that leaves locks its own node, then tries its predecessor's, then locks its successor's. The
//!   original does not lock the successor's, so that a reader may try the lock of a predecessor that is
//!   gone.
//!
//! # State
//! The lock is the tail of the list, null when free. A node has `next`, `prev`, its thread, a small lock
//! for its removal, `status` (WAITING -> SUCCESS; `rw-smart-q` also FAILURE) and `class`:
//!
//! | class | meaning |
//! |---|---|
//! | WRITER | a writer, waiting or active |
//! | READER | a reader that waits |
//! | FOLLOWED | a reader that waits and will let the reader behind it in |
//! | ACTIVE | a reader that holds the lock |
//!
//! `READER -> FOLLOWED` by the successor, `READER, FOLLOWED -> ACTIVE` by the reader itself.
//!
//! # Invariants
//! I1. The active readers are the head of the list; or one writer is its first node and nobody is active
//! beside it.
//! I2. `next` of a node other than the tail is set, or about to be set: by the successor, which has swapped
//! the tail already, or by the reader between (R4).
//! I3. `prev` of an active reader is its predecessor, an active reader too, or null if it is the first.
//! I4. `prev` of an active reader changes only under the small lock of that node, `next` only under that of
//! its own node or while it is null, by the successor that links itself. So a node whose removal is
//! complete is nobody's neighbour.
//!
//! # Protocol
//! A1. Swap the own node into the tail; null: the lock is ours. A2. Writer: link behind the predecessor,
//! and wait for SUCCESS.
//! A3. Reader: if the predecessor's class goes from READER to FOLLOWED, it will let us in; if it is ACTIVE,
//! we are (class ACTIVE before A4).
//! A4. Link behind the predecessor. A5. If not active: wait for SUCCESS. A6. Swap the own class to ACTIVE;
//! was it FOLLOWED, let the successor in.
//! R1. Writer, or first reader: no successor: tail from us to null, or wait for A2 or A4. R2. Let the
//! successor in; if it is a reader that is in already, it becomes the first (I3).
//! R3. Another reader: lock the own node, try to lock the predecessor's, giving up the own if that fails;
//! R4. unlink: as the tail, set the tail to the predecessor; else lock the successor and join the two.
//! `try`: A1 on an empty list only. Without waiting a reader cannot learn that the last in line is an
//! active reader, and stays.
//!
//! # Memory order
//! A2, A4 release -> R1, R4, A6 acquire publishes the node. R2, A6 release (`status`) -> A5 acquire, and R1
//! release -> A1 acquire, publish the protected data; so do the small locks from one leaving reader to the
//! next, of which the last lets a writer in. A6 release -> A3 acquire: who enters beside an active reader
//! sees what that reader saw.
//!
//! # Under the scheduler
//! Oblivious: a preempted holder, but also a preempted waiter, stalls everybody behind it; with more
//! threads than processors each hand-over may wait for a time slice. A reader preempted while it leaves
//! holds up to three of the small locks, and its neighbours that leave spin for them. Killed while holding
//! or waiting: lost. A copy made by `fork` while threads held or waited is lost in the child: its nodes are
//! on stacks that are nobody's there.
//!
//! # Fairness and space
//! First come, first served; readers who come one after the other share. A pointer, and a node of a cache
//! line for each thread.
//!
//! # Rejected
//! One lock for the whole list instead of one for each node: the readers that leave would meet there, which
//! is what the list is to spare them.
//!
//! # Checked by
//! `conformance`: real threads, loom, shuttle, readers that come in beside one that leaves
//! (`orderings.rs`); a lock whose readers keep one another out is caught, and so is each without its
//! acquires or releases.

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, Ordering::*, Platform, RunState, ThreadId, Wish};

use super::RawRwLock;
use crate::wait::{self, LOOK_PAUSES, Preemptable, Preemption};

const WRITER: u32 = 0;
const READER: u32 = 1;
const FOLLOWED: u32 = 2;
const ACTIVE: u32 = 3;

const WAITING: u32 = 0;
const SUCCESS: u32 = 1;
const FAILURE: u32 = 2;

/// Who may be let in.
pub trait Succession: Send + Sync + 'static {
    /// Waiters are passed over.
    const PASSES: bool;
    /// Whether the lock asks the kernel not to preempt those inside.
    type Wish: Preemption;

    /// May this waiter be let in, after so many others were not?
    fn fit<P: Platform>(waiter: ThreadId, skipped: u32) -> bool;
}

/// First come, first served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Succession for Fifo {
    const PASSES: bool = false;
    type Wish = Preemptable;

    fn fit<P: Platform>(_: ThreadId, _: u32) -> bool {
        true
    }
}

/// A thread's place in the list.
#[repr(align(64))]
pub struct QueueNode<P: Platform> {
    next: P::AtomicPtr<QueueNode<P>>,
    prev: P::AtomicPtr<QueueNode<P>>,
    class: P::AtomicU32,
    status: P::AtomicU32,
    removal: P::AtomicU32,
    thread: P::AtomicU32,
}

impl<P: Platform> Default for QueueNode<P> {
    fn default() -> Self {
        Self {
            next: Atomic::new(ptr::null_mut()),
            prev: Atomic::new(ptr::null_mut()),
            class: P::AtomicU32::new(WRITER),
            status: P::AtomicU32::new(WAITING),
            removal: P::AtomicU32::new(0),
            thread: P::AtomicU32::new(0),
        }
    }
}

impl<P: Platform> QueueNode<P> {
    fn reset(&self, class: u32, me: ThreadId) {
        self.next.store(ptr::null_mut(), Relaxed);
        self.prev.store(ptr::null_mut(), Relaxed);
        self.class.store(class, Relaxed);
        self.status.store(WAITING, Relaxed);
        self.thread.store(me.0, Relaxed);
    }

    fn address(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }

    fn try_bolt(&self) -> bool {
        // ORDER: Acquire, pairs with `unbolt`.
        self.removal.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn bolt(&self) {
        while !self.try_bolt() {
            P::pause();
        }
    }

    fn unbolt(&self) {
        // ORDER: Release, pairs with `try_bolt`; publishes the links, and what the thread did before.
        self.removal.store(0, Release);
    }

    /// The successor, which has swapped the tail and is about to link itself (I2).
    fn next(&self) -> *mut Self {
        loop {
            // ORDER: Acquire, pairs with A2 and A4.
            let next = self.next.load(Acquire);
            if !next.is_null() {
                return next;
            }
            P::pause();
        }
    }
}

/// Reader-writer queue lock.
pub struct Queue<P: Platform, S: Succession> {
    tail: P::AtomicPtr<QueueNode<P>>,
    succession: PhantomData<S>,
}

impl<P: Platform, S: Succession> Queue<P, S> {
    /// Takes the tail back from `node` to `before`; false if somebody has come.
    fn retract(&self, node: &QueueNode<P>, before: *mut QueueNode<P>) -> bool {
        // ORDER: Release (R1), pairs with A1; publishes the protected data. What others published on the
        // tail before stays published: it is changed by read-modify-writes only.
        self.tail.compare_exchange(node.address(), before, Release, Relaxed).is_ok()
    }

    /// Waits for what becomes of the node, whose predecessor is `before`.
    fn wait(&self, node: &QueueNode<P>, me: ThreadId, before: ThreadId) -> bool {
        if S::Wish::WISHES && !wait::is_inside::<P>(me) {
            // Unless who lets us in has replaced it by its own already.
            P::change_wish(me, Wish::UnpreemptableSelf, Wish::Preemptable);
        }
        let mut turns = 0u32;
        let naps = S::PASSES && !P::honours_wishes();
        loop {
            // ORDER: Acquire (A5), pairs with R2 and A6.
            match node.status.load(Acquire) {
                // As in `smart-q`.
                WAITING => turns = turns.wrapping_add(naps.into()),
                status => {
                    // Who let us in has made the wish, unless it was out of patience with others; and who
                    // queues again makes it, too.
                    wait::shield::<S::Wish, P>();
                    return status == SUCCESS;
                }
            }
            // HINT: naps in vain, or spins through a slice.
            if naps
                && turns.is_multiple_of(LOOK_PAUSES.min(P::PAUSES))
                && matches!(P::run_state(before), RunState::Preempted | RunState::Blocked)
            {
                wait::hand_off::<P>(ptr::from_ref(self).cast());
                turns = 1;
            } else {
                P::pause();
            }
        }
    }

    /// A6. The calling reader is in.
    fn activate(&self, node: &QueueNode<P>) {
        // ORDER: Release (A6), pairs with A3. The follower's node is published by its link (A4).
        if node.class.swap(ACTIVE, Release) == FOLLOWED {
            self.admit(node, node.next(), false);
        }
    }

    /// Lets in the first of the waiters from `candidate`, the successor of `node`, who is fit; only readers
    /// if not `anybody`. `node` is the calling thread's, and stays in the list if not `anybody`.
    fn admit(&self, node: &QueueNode<P>, candidate: *mut QueueNode<P>, anybody: bool) {
        let mut candidate = candidate;
        let mut skipped = 0;
        loop {
            // SAFETY: linked and waiting, so that it stays until it gets a status.
            let waiter = unsafe { &*candidate };
            // A reader that has come in by A3 has said so before it linked itself, and we have seen the link.
            let class = waiter.class.load(Relaxed);
            if !anybody && class == WRITER {
                return;
            }
            if S::fit::<P>(ThreadId(waiter.thread.load(Relaxed)), skipped) {
                if anybody {
                    waiter.prev.store(ptr::null_mut(), Relaxed);
                }
                // ORDER: Release (R2, A6), pairs with A5; publishes the protected data.
                waiter.status.store(SUCCESS, Release);
                return;
            }
            // Settles what is behind the waiter, and only then tells it.
            skipped += 1;
            // ORDER: Acquire, pairs with A2 and A4.
            let mut next = waiter.next.load(Acquire);
            if next.is_null() {
                let before = if anybody { ptr::null_mut() } else { node.address() };
                node.next.store(ptr::null_mut(), Relaxed);
                if self.retract(waiter, before) {
                    // ORDER: Release, pairs with A5: our last look at the node comes before its next use.
                    waiter.status.store(FAILURE, Release);
                    return;
                }
                next = waiter.next();
            }
            if !anybody {
                node.next.store(next, Relaxed);
                // SAFETY: as above: its predecessor has not left it yet.
                unsafe { (*next).prev.store(node.address(), Relaxed) };
            }
            // ORDER: Release, as above.
            waiter.status.store(FAILURE, Release);
            candidate = next;
        }
    }

    /// R1 and R2: the calling thread is the first, and leaves.
    fn leave_first(&self, node: &QueueNode<P>) {
        if node.next.load(Relaxed).is_null() && self.retract(node, ptr::null_mut()) {
            return;
        }
        let next = node.next();
        // SAFETY: linked behind us, so that it stays until we have told it.
        let successor = unsafe { &*next };
        successor.bolt();
        // A reader that has come in by A3 has said so before it linked itself, and we have seen the link.
        if successor.class.load(Relaxed) == ACTIVE || successor.status.load(Relaxed) == SUCCESS {
            successor.prev.store(ptr::null_mut(), Relaxed);
            successor.unbolt();
        } else {
            successor.unbolt();
            self.admit(node, next, true);
        }
    }

    fn leave_reader(&self, node: &QueueNode<P>) {
        loop {
            node.bolt();
            let before = node.prev.load(Relaxed);
            if before.is_null() {
                self.leave_first(node);
                break;
            }
            // SAFETY: it cannot leave while our node is bolted: it would have to change our `prev` (I4).
            let before = unsafe { &*before };
            if !before.try_bolt() {
                node.unbolt();
                P::pause();
                continue;
            }
            // R4.
            before.next.store(ptr::null_mut(), Relaxed);
            if !node.next.load(Relaxed).is_null() || !self.retract(node, before.address()) {
                let next = node.next();
                // SAFETY: linked behind us, so that it stays until we have unlinked ourselves.
                let successor = unsafe { &*next };
                successor.bolt();
                successor.prev.store(before.address(), Relaxed);
                // Whose node it is looks at it when it leaves, after taking the bolt from us.
                before.next.store(next, Relaxed);
                successor.unbolt();
            }
            before.unbolt();
            break;
        }
        node.unbolt();
    }
}

impl<P: Platform, S: Succession> RawRwLock<P> for Queue<P, S> {
    type Node = QueueNode<P>;

    fn new() -> Self {
        Self { tail: Atomic::new(ptr::null_mut()), succession: PhantomData }
    }

    unsafe fn read(&self, node: &QueueNode<P>) {
        let me = wait::shield::<S::Wish, P>();
        loop {
            node.reset(READER, me);
            // ORDER: AcqRel (A1): Acquire pairs with R1; Release publishes the node's fields to who comes
            // next.
            let before = self.tail.swap(node.address(), AcqRel);
            if before.is_null() {
                break self.activate(node);
            }
            node.prev.store(before, Relaxed);
            // SAFETY: the predecessor stays until it has seen our link (I2).
            let before = unsafe { &*before };
            let predecessor = ThreadId(before.thread.load(Relaxed));
            // ORDER: Acquire on failure (A3), pairs with A6. Success publishes nothing: A4 does.
            if before.class.compare_exchange(READER, FOLLOWED, Relaxed, Acquire) == Err(ACTIVE) {
                // ORDER: Release, as A6.
                let followed = node.class.swap(ACTIVE, Release) == FOLLOWED;
                // ORDER: Release (A4), pairs with R1 and R4.
                before.next.store(node.address(), Release);
                if followed {
                    self.admit(node, node.next(), false);
                }
                break;
            }
            // ORDER: Release (A4), pairs with R1 and A6.
            before.next.store(node.address(), Release);
            if self.wait(node, me, predecessor) {
                break self.activate(node);
            }
        }
        wait::inside::<S::Wish, P>(me);
    }

    unsafe fn try_read(&self, node: &QueueNode<P>) -> bool {
        // Not beside other readers: without waiting there is no way to learn that the last in line is one,
        // and stays.
        let me = wait::shield::<S::Wish, P>();
        node.reset(READER, me);
        // ORDER: AcqRel, as A1.
        if self.tail.compare_exchange(ptr::null_mut(), node.address(), AcqRel, Relaxed).is_ok() {
            self.activate(node);
            wait::inside::<S::Wish, P>(me);
            return true;
        }
        wait::unshield::<S::Wish, P>(me);
        false
    }

    unsafe fn unlock_read(&self, node: &QueueNode<P>) {
        self.leave_reader(node);
        wait::outside::<S::Wish, P>();
    }

    unsafe fn write(&self, node: &QueueNode<P>) {
        let me = wait::shield::<S::Wish, P>();
        loop {
            node.reset(WRITER, me);
            // ORDER: AcqRel (A1): Acquire pairs with R1; Release publishes the node's fields to who comes
            // next.
            let before = self.tail.swap(node.address(), AcqRel);
            if before.is_null() {
                break;
            }
            node.prev.store(before, Relaxed);
            // SAFETY: the predecessor stays until it has seen our link (I2).
            let before = unsafe { &*before };
            let predecessor = ThreadId(before.thread.load(Relaxed));
            // ORDER: Release (A2), pairs with R1 and R4.
            before.next.store(node.address(), Release);
            if self.wait(node, me, predecessor) {
                break;
            }
        }
        wait::inside::<S::Wish, P>(me);
    }

    unsafe fn try_write(&self, node: &QueueNode<P>) -> bool {
        let me = wait::shield::<S::Wish, P>();
        node.reset(WRITER, me);
        // ORDER: AcqRel, as A1.
        let got = self.tail.compare_exchange(ptr::null_mut(), node.address(), AcqRel, Relaxed).is_ok();
        if got {
            wait::inside::<S::Wish, P>(me);
        } else {
            wait::unshield::<S::Wish, P>(me);
        }
        got
    }

    unsafe fn unlock_write(&self, node: &QueueNode<P>) {
        self.leave_first(node);
        wait::outside::<S::Wish, P>();
    }
}
