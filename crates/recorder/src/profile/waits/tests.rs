// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stories of switches and events, and what follows.

use super::*;
use crate::record::{Record, What};

/// A story: switches and events, with their times, in their order.
#[derive(Default)]
struct Story {
    waits: Waits,
    history: History,
    class: Option<Class>,
    shared: bool,
    writer: bool,
}

impl Story {
    fn of(class: Class) -> Self {
        Self { class: Some(class), ..Self::default() }
    }

    fn switch(&mut self, time_ns: u64, thread: u32, what: What) -> &mut Self {
        self.history.apply(&Record { process: 1, thread, time_ns, what });
        self
    }

    fn event(&mut self, time_ns: u64, thread: u32, kind: Kind, number: u32) -> &mut Self {
        let class = self.class.unwrap_or(Class::Mutex);
        let (shared, object) = (self.shared, 16);
        let writer = self.writer;
        let event =
            Event { time_ns, process: 1, thread, kind, class, shared, writer, number, object, caller: 4 };
        self.waits.apply(&event, 1, thread, &self.history);
        self
    }

    fn object(&self) -> &Object {
        let class = self.class.unwrap_or(Class::Mutex);
        &self.waits.objects[&Key { image: 1, object: 16, class }]
    }

    /// Running, preempted, blocked, unknown, free.
    fn shares(&self) -> [u64; 5] {
        let Shares { holder, free_ns } = self.object().shares;
        assert_eq!(self.object().shares.total_ns(), self.object().waits.total_ns);
        [holder.running_ns, holder.preempted_ns, holder.blocked_ns, holder.unknown_ns, free_ns]
    }
}

#[test]
fn waits_that_were_only_counted_are_like_the_others() {
    let mut story = Story::default();
    story.switch(0, 1, What::In).event(100, 2, Kind::Wait, 1);
    story.switch(110, 1, What::Preempted).switch(150, 1, What::In);
    story.event(200, 1, Kind::Released, 0).event(230, 2, Kind::Got, 0);
    let class = Class::Mutex;
    let untold = Untold { process: 1, thread: 3, class, object: 16, caller: 4, count: 7, ns: 1_300 };
    story.waits.untold(&untold, 1, 5);
    // One at an object of which nothing is told.
    story.waits.untold(&Untold { object: 32, count: 1, ns: 50, ..untold }, 1, 5);
    story.waits.finish(300, &story.history);
    assert_eq!(story.shares(), [660, 440, 0, 0, 330]);
    let object = story.object();
    assert_eq!(object.waits, Sum { count: 8, total_ns: 1_430, longest_ns: 130 });
    assert_eq!((object.sites[&5].total_ns, object.estimated_ns), (1_300, 1_300));
    assert_eq!(object.lengths.iter().sum::<u32>(), 8);
    assert_eq!((story.waits.threads[&3], story.waits.told), (1_350, (1, 8)));
    let other = &story.waits.objects[&Key { image: 1, object: 32, class }];
    assert_eq!((other.shares.holder.unknown_ns, other.waits.count), (50, 1));
}

#[test]
fn a_wait_is_split_by_what_its_holder_did() {
    let mut story = Story::default();
    story.switch(0, 1, What::In).event(100, 2, Kind::Wait, 1);
    story.switch(110, 1, What::Preempted).switch(150, 1, What::In).switch(160, 1, What::Out);
    story.switch(190, 1, What::In).event(200, 1, Kind::Released, 0).event(230, 2, Kind::Got, 0);
    assert_eq!(story.shares(), [30, 40, 30, 0, 30]);
    let waits = Sum { count: 1, total_ns: 130, longest_ns: 130 };
    assert_eq!((story.object().waits, story.waits.threads[&2]), (waits, 130));
    assert_eq!(story.object().sites[&2].count, 1);
}

#[test]
fn time_counts_for_each_waiter_and_for_each_holder() {
    let mut story = Story::default();
    for thread in [1, 2, 3] {
        story.switch(0, thread, What::In);
    }
    story.event(100, 2, Kind::Wait, 1).event(110, 3, Kind::Wait, 1);
    // Thread 4, which nobody knows, takes it in between.
    story.event(120, 1, Kind::Released, 0).event(125, 4, Kind::Took, 0).event(130, 4, Kind::Released, 0);
    story.event(131, 2, Kind::Got, 0).switch(140, 2, What::Preempted).switch(150, 2, What::In);
    story.event(160, 2, Kind::Released, 0).event(160, 3, Kind::Got, 0);
    assert_eq!(story.shares(), [10 + 20 + 19, 10, 0, 10, 10 + 2]);
}

#[test]
fn a_holder_whom_no_word_names_is_known_by_its_release() {
    let mut story = Story::of(Class::Spin);
    story.switch(0, 1, What::In).event(100, 2, Kind::Wait, 0).switch(120, 1, What::Preempted);
    story.event(130, 3, Kind::Wait, 0).switch(150, 1, What::In).event(160, 1, Kind::Released, 0);
    story.event(160, 3, Kind::Got, 0).event(170, 3, Kind::Released, 0).event(170, 2, Kind::Got, 0);
    assert_eq!(story.shares(), [20 + 20, 10 + 40, 0, 10, 0]);
    // Nobody releases it in the end.
    let mut story = Story::of(Class::Spin);
    story.event(100, 2, Kind::Wait, 0);
    story.waits.finish(150, &story.history);
    assert_eq!(story.shares(), [0, 0, 0, 50, 0]);
}

#[test]
fn readers_are_known_when_they_go_and_a_writer_is_known() {
    // Two readers inside, of whom one goes first; then nobody, and then the writer.
    let mut story = Story { writer: true, ..Story::of(Class::Rwlock) };
    [1, 2, 3].into_iter().for_each(|thread| _ = story.switch(0, thread, What::In));
    // 77 is no thread of the program.
    story.event(10, 3, Kind::Wait, 77).switch(15, 1, What::Preempted).switch(25, 1, What::In);
    story.event(30, 1, Kind::Released, 0).event(50, 2, Kind::Released, 0).event(54, 3, Kind::Got, 0);
    assert_eq!(story.shares(), [10 + 20, 10, 0, 0, 4]);
    // A reader waits for it, and another one comes and goes meanwhile.
    story.writer = false;
    story.event(60, 1, Kind::Wait, 3).event(75, 3, Kind::Released, 0).event(77, 2, Kind::Took, 0);
    story.event(80, 1, Kind::Got, 0).event(81, 1, Kind::Released, 0);
    assert_eq!(story.shares(), [10 + 20 + 15, 10, 0, 3, 4 + 2]);
    // A reader of whom nobody hears holds it up.
    story.writer = true;
    story.event(90, 3, Kind::Wait, 0).event(95, 3, Kind::GaveUp, 0);
    assert_eq!(story.shares(), [10 + 20 + 15, 10, 0, 3 + 5, 4 + 2]);
}

#[test]
fn a_semaphore_waits_for_whoever_posts_it() {
    let mut story = Story::of(Class::Semaphore);
    story.switch(0, 1, What::In).event(10, 2, Kind::Wait, 0).switch(20, 1, What::Out);
    story.event(25, 3, Kind::Wait, 0).switch(40, 1, What::In).event(50, 1, Kind::Released, 0);
    story.event(52, 2, Kind::Got, 0).event(60, 3, Kind::GaveUp, 0);
    assert_eq!(story.shares(), [10 + 10 + 10, 0, 20 + 15, 8, 2 + 2]);
}

#[test]
fn a_wait_names_why_and_for_whom() {
    let mut story = Story::default();
    story.waits.longest = Some(Longest::new(8));
    story.switch(0, 1, What::In).switch(0, 2, What::In);
    story.event(100, 2, Kind::Wait, 1).event(110, 3, Kind::Wait, 1).event(130, 1, Kind::Released, 0);
    story.event(132, 2, Kind::Got, 0).event(170, 2, Kind::Released, 0).event(175, 3, Kind::Got, 0);
    let (waits, dropped) = story.waits.longest.take().unwrap().finish();
    let told = |wait: &Wait| (wait.thread, wait.from_ns, wait.to_ns, wait.whom);
    assert_eq!(told(&waits[0]), (3, 110, 175, [(2, 38), (1, 20), (0, 0)]));
    assert_eq!(told(&waits[1]), (2, 100, 132, [(1, 30), (0, 0), (0, 0)]));
    assert_eq!((waits.len(), dropped), (2, 0));
    let running = waits[0].shares.holder.running_ns;
    assert_eq!((running, waits[0].shares.free_ns), (20 + 38, 2 + 5));
    let pieces: u64 = story.waits.pieces.iter().map(|one| (one.to_ns - one.from_ns) * one.waiters).sum();
    assert_eq!(pieces, story.object().waits.total_ns);
    assert_eq!(story.object().lengths[0], 2);
    // At a barrier it is the last one.
    let mut story = Story::of(Class::Barrier);
    story.waits.longest = Some(Longest::new(8));
    story.switch(0, 2, What::In).event(100, 1, Kind::Arrived, 0).event(130, 2, Kind::Arrived, 0);
    story.event(140, 1, Kind::Left, 0).event(141, 2, Kind::Left, 0);
    let (waits, _) = story.waits.longest.take().unwrap().finish();
    assert_eq!((told(&waits[0]).3[0], waits[0].shares.free_ns), ((2, 30), 10));
}

#[test]
fn what_other_processes_do_is_unknown() {
    let mut story = Story { shared: true, ..Story::default() };
    story.switch(0, 1, What::In).event(100, 2, Kind::Wait, 0).event(110, 3, Kind::Wait, 0);
    story.event(120, 2, Kind::Got, 0).event(130, 2, Kind::Released, 0).event(150, 3, Kind::Got, 0);
    assert_eq!(story.shares(), [0, 0, 0, 20 + 40, 0]);
    // Two of three: the other process's came last.
    let mut story = Story { shared: true, ..Story::of(Class::Barrier) };
    story.switch(0, 2, What::In).event(100, 1, Kind::Arrived, 0).event(120, 2, Kind::Arrived, 0);
    story.event(150, 1, Kind::Left, 0).event(160, 2, Kind::Left, 0);
    assert_eq!((story.shares(), story.object().rounds), ([0, 0, 0, 50 + 40, 0], 0));
}

#[test]
fn what_is_lost_ends_a_wait_at_the_next_event() {
    let mut story = Story::default();
    story.switch(0, 1, What::In).event(10, 2, Kind::Wait, 1).event(30, 2, Kind::Wait, 1);
    story.event(40, 2, Kind::Got, 0).event(50, 2, Kind::Got, 0).event(60, 3, Kind::Released, 0);
    assert_eq!((story.shares(), story.object().waits.count), ([30, 0, 0, 0, 0], 2));
    // A thread that ends while it waits, and one that nobody has seen.
    story.event(100, 4, Kind::Wait, 1);
    story.waits.exited(4, 120, &story.history);
    story.waits.exited(5, 120, &story.history);
    assert_eq!((story.shares(), story.object().waits.count), ([50, 0, 0, 0, 0], 3));
}

#[test]
fn a_round_waits_for_the_last_one() {
    let mut story = Story::of(Class::Barrier);
    story.switch(0, 3, What::In);
    story.event(100, 1, Kind::Arrived, 0).event(110, 2, Kind::Arrived, 0);
    story.switch(120, 3, What::Preempted).switch(190, 3, What::In).event(200, 3, Kind::Arrived, 0);
    story.event(201, 3, Kind::Left, 0).event(205, 1, Kind::Left, 0);
    // One is in the next round before another has left this one.
    story.event(206, 3, Kind::Arrived, 0).event(210, 2, Kind::Left, 0);
    assert_eq!(story.shares(), [30 + 20, 70 + 70, 0, 0, 1 + 5 + 10]);
    assert_eq!(story.object().rounds, 1);
    let last = &story.object().last[&3];
    assert_eq!((last.0, last.1.holder.preempted_ns), (1, 140));
    story.event(220, 1, Kind::Arrived, 0).event(230, 2, Kind::Arrived, 0);
    story.waits.finish(300, &story.history);
    assert_eq!(story.object().waits.total_ns, 105 + 100 + 1 + 94 + 80 + 70);
    assert_eq!(story.shares(), [30 + 20, 70 + 70, 0, 94 + 80 + 70, 1 + 5 + 10]);
}

#[test]
fn who_never_leaves_a_barrier_has_waited_all_the_same() {
    // One of two never comes, and the process ends.
    let mut story = Story::of(Class::Barrier);
    story.event(100, 1, Kind::Arrived, 0);
    assert_eq!(story.waits.oldest_ns(0), Some(100));
    story.waits.exited(1, 160, &story.history);
    assert_eq!((story.shares(), story.waits.threads[&1]), ([0, 0, 0, 60, 0], 60));
    // The first to leave ends the process, before or after the kernel tells of the others' end.
    for is_told in [true, false] {
        let mut story = Story::of(Class::Barrier);
        story.switch(0, 2, What::In).event(100, 1, Kind::Arrived, 0).event(130, 2, Kind::Arrived, 0);
        story.event(131, 2, Kind::Left, 0);
        if is_told {
            story.waits.exited(1, 140, &story.history);
        }
        story.waits.finish(140, &story.history);
        assert_eq!((story.shares(), story.object().waits.count), ([30, 0, 0, 0, 1 + 10], 2));
        assert_eq!(story.waits.oldest_ns(0), None);
    }
    // One whose arrival was lost, and a barrier for one.
    story.event(200, 1, Kind::Left, 0).event(210, 1, Kind::Arrived, 0).event(220, 1, Kind::Left, 0);
    assert_eq!(story.shares(), [0, 0, 0, 60, 10]);
}

#[test]
fn who_is_never_woken_has_waited_all_the_same() {
    let mut story = Story::of(Class::Cond);
    story.event(100, 1, Kind::CondWait, 0).event(110, 2, Kind::CondWait, 0);
    story.waits.exited(1, 160, &story.history);
    story.waits.finish(200, &story.history);
    assert_eq!(story.object().waits, Sum { count: 2, total_ns: 60 + 90, longest_ns: 90 });
    assert!(story.waits.threads.is_empty());
}

#[test]
fn a_wake_up_in_vain_costs_what_was_run_for_it() {
    let mut story = Story::of(Class::Cond);
    story.switch(0, 2, What::In).event(100, 2, Kind::CondWait, 0).switch(110, 2, What::Out);
    story.switch(150, 2, What::In).event(160, 2, Kind::CondBack, 0).event(165, 2, Kind::CondWait, 1);
    story.event(190, 2, Kind::CondBack, 1).event(300, 2, Kind::CondWait, 0);
    let object = story.object();
    assert_eq!((object.vain, object.vain_ns, object.timeouts), (1, 10 + 15, 1));
    assert_eq!(object.waits, Sum { count: 2, total_ns: 60 + 25, longest_ns: 60 });
}

#[test]
fn who_works_between_two_waits_was_not_woken_in_vain() {
    // A consumer that handles its item under the mutex, which only its next wait releases.
    let mut story = Story::of(Class::Cond);
    story.switch(0, 2, What::In).event(100, 2, Kind::CondWait, 0).event(160, 2, Kind::CondBack, 0);
    story.event(160 + VAIN_NS, 2, Kind::CondWait, 1);
    assert_eq!((story.object().vain, story.object().vain_ns), (0, 0));
    // It only lost its processor.
    let back_ns = 200 + VAIN_NS;
    story.event(back_ns, 2, Kind::CondBack, 0).switch(back_ns + 1, 2, What::Preempted);
    story.switch(back_ns + VAIN_NS, 2, What::In).event(back_ns + VAIN_NS + 2, 2, Kind::CondWait, 1);
    assert_eq!(story.object().vain, 1);
    // Nobody knows whether it ran: then its time is what counts.
    let mut story = Story::of(Class::Cond);
    story.event(100, 2, Kind::CondWait, 0).event(160, 2, Kind::CondBack, 0);
    story.event(160 + VAIN_NS, 2, Kind::CondWait, 1);
    assert_eq!(story.object().vain, 0);
}

#[test]
fn at_a_barrier_with_tasks_only_who_is_blocked_waits() {
    for (class, from, to) in
        [(Class::Team, Kind::Arrived, Kind::Left), (Class::Region, Kind::End, Kind::Join)]
    {
        let mut story = Story::of(class);
        story.switch(0, 1, What::In).switch(0, 2, What::In);
        // The first one runs a task, and then sleeps until the other one has done its.
        story.event(100, 1, from, 0).event(110, 2, from, 0).switch(200, 1, What::Out).switch(
            240,
            1,
            What::In,
        );
        story.event(250, 1, to, 1);
        if class == Class::Team {
            story.event(260, 2, to, 1);
        }
        assert_eq!(story.shares(), [0, 0, 0, 40, 0]);
        assert_eq!((story.object().waits.count, story.object().rounds, story.object().last.len()), (2, 1, 0));
        assert_eq!((story.waits.threads[&1], story.waits.threads[&2]), (40, 0));
        // The next round has none.
        story.event(300, 1, from, 0).event(310, 2, from, 0).event(320, 1, to, 0).event(330, 2, to, 0);
        assert_eq!(story.object().rounds, 2);
        assert_eq!(story.shares()[0], 10);
    }
}

#[test]
fn threads_that_wait_for_each_other_at_the_end_are_told() {
    let mut story = Story::default();
    story.switch(0, 1, What::In).switch(0, 2, What::In).event(10, 1, Kind::Wait, 2);
    let (caller, class, object) = (4, Class::Mutex, 32);
    let (shared, writer, number, kind) = (false, false, 1, Kind::Wait);
    let event =
        Event { time_ns: 20, process: 1, thread: 2, kind, class, shared, writer, number, object, caller };
    story.waits.apply(&event, 1, 2, &story.history);
    story.waits.finish(100_000, &story.history);
    let other = &story.waits.objects[&Key { image: 1, object, class }];
    for (object, behind, key) in [(story.object(), 2, 32), (other, 1, 16)] {
        let [link] = &object.chain[..] else { panic!("{:?}", object.chain) };
        assert_eq!((link.thread, link.waited.unwrap().0.object), (behind, key));
    }
}
