// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_events() {
    loom("event", 3, || event::<Loom, Sleepy<Loom>, NONE>(1));
    loom("event, awake", 3, || event::<Loom, Sleepless<Loom>, NONE>(1));
    loom("event, two waiters", 2, || event::<Loom, Sleepy<Loom>, NONE>(2));
}

#[test]
fn loom_counts() {
    loom("awaited", 3, || awaited::<Loom>(2));
    loom("holders", 3, || holders::<Loom, NONE>(3));
    loom("one holder", 3, alone::<Loom>);
    loom("kin", 3, || kin::<Loom>(2, true));
    loom("kin that nobody waits for", 3, || kin::<Loom>(2, false));
    loom("flag", 3, flag::<Loom>);
}

#[test]
fn loom_dependences() {
    loom("dependences", 2, dependent::<Loom, NONE>);
    loom("a followed task", 3, followed::<Loom>);
}

#[test]
fn loom_deque() {
    loom("deque", 2, || queue::<Loom, Sound<Loom>>(1));
    loom("deque, more", 2, || queue::<Loom, Sound<Loom>>(2));
}

#[test]
fn loom_tasks() {
    loom_by_hints("tasks", 2, || tasks::<Loom, Sleepy<Loom>, NONE>(2, 1));
    loom_by_hints("tasks, awake", 2, || tasks::<Loom, Sleepless<Loom>, NONE>(2, 2));
    loom_by_hints("tasks of tasks", 2, || descendants::<Loom, Sleepy<Loom>>(2));
    loom_by_hints("tasks from outside", 2, || from_outside::<Loom, Sleepy<Loom>, NONE>(1));
    loom_by_hints("tasks from outside, two members", 2, || from_outside::<Loom, Sleepy<Loom>, NONE>(2));
    loom("tasks of a lone member", 3, finish::<Loom, Sleepy<Loom>>);
    loom("tasks, regions", 3, regions::<Loom>);
}

#[test]
fn loom_task_counts() {
    loom("tasks, seen region", 3, sees_region::<Loom>);
    loom("tasks, a runner leaves", 3, leaves::<Loom>);
    loom("tasks, all done", 3, done::<Loom>);
    loom("tasks, the last", 3, last::<Loom>);
    loom("tasks, a member arrives", 3, || arrives::<Loom>(0));
    loom("tasks, another member arrives", 3, || arrives::<Loom>(1));
}

#[test]
fn loom_fork_join() {
    loom_by_hints("fork and join", 3, || fork_join::<Loom, Sleepy<Loom>, NONE>(1, 2, 1));
    loom_by_hints("fork and join, awake", 3, || fork_join::<Loom, Sleepless<Loom>, NONE>(1, 2, 0));
    loom_by_hints("fork and join, two helpers", 2, || fork_join::<Loom, Sleepy<Loom>, NONE>(2, 1, 1));
}

#[test]
fn loom_regions() {
    loom_by_hints("a region with a task", 2, || region::<Loom, Sleepy<Loom>, NONE>(1, 0, 1, false));
    loom_by_hints("a region with a helper's task", 2, || region::<Loom, Sleepy<Loom>, NONE>(1, 1, 1, false));
    loom_by_hints("a region, an event", 2, || region::<Loom, Sleepy<Loom>, NONE>(1, 0, 0, true));
    loom("a lone region, an event", 3, || region::<Loom, Sleepy<Loom>, NONE>(0, 0, 0, true));
}

#[test]
fn loom_shares() {
    loom("turns", 3, || turns::<Loom, Sleepy<Loom>, NONE>(2, 3, 2));
    loom("turns, a ring of one", 3, || turns::<Loom, Sleepy<Loom>, NONE>(2, 2, 1));
    loom("iterations", 3, || iterations::<Loom>(2, 3, false, 1));
    loom("iterations, guided", 3, || iterations::<Loom>(2, 4, true, 1));
    loom("first", 3, || first::<Loom>(2));
    loom("first of three", 2, || first::<Loom>(3));
}

#[test]
fn loom_order() {
    loom("order", 3, || order::<Loom, Sleepy<Loom>, NONE>(2, 2));
    loom("order of three", 2, || order::<Loom, Sleepy<Loom>, NONE>(3, 1));
    loom("progress", 3, progress::<Loom, Sleepy<Loom>>);
}
