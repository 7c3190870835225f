// SPDX-License-Identifier: MIT OR Apache-2.0
//! A region from its fork to its join, with tasks and with an event from outside of the team.

use super::*;

/// Whoever does the last task believes that a helper is missing, which would ring.
pub const NEVER_BACK: u32 = 1;
/// Who completes a task from outside does not hold the team.
pub const HOLDS_NO_TEAM: u32 = 2;

/// A team with its helpers, which goes with the last who holds it.
struct Region<M: Machine + Wide, const MISTAKE: u32> {
    group: Group<M, NONE>,
    fork: ForkJoin<M>,
    holders: Holders<M>,
    gone: M::Cell,
    jobs: Vec<&'static Job<M::Cell>>,
    maker: u32,
}

impl<M: Machine + Wide, const MISTAKE: u32> Crew<M> for Region<M, MISTAKE> {
    type Task = Job<M::Cell>;

    fn size(&self) -> u32 {
        self.group.size()
    }
    fn deque(&self, member: usize) -> &Deque<M, Self::Task> {
        self.group.deque(member)
    }
    fn summon(&self) {
        self.stays();
        self.fork.summon();
    }
    fn hold(&self) {}
    fn let_go(&self) {}
    fn bells(&self) -> [&Event<M>; 2] {
        self.stays();
        self.group.bells()
    }
    fn are_back(&self) -> bool {
        self.stays();
        MISTAKE != NEVER_BACK && self.fork.are_back()
    }
}

impl<M: Machine + Wide, const MISTAKE: u32> Region<M, MISTAKE> {
    fn stays(&self) {
        assert_eq!(self.gone.get(), 0, "the team is gone");
    }

    fn let_go(&self) {
        if self.holders.let_go() {
            self.gone.bump();
        }
    }

    fn run_all(&self, own: u32, stop: impl Fn() -> bool) {
        let run = |job: &'static Job<M::Cell>| {
            job.ran.bump();
            self.group.tasks.one_done(self, true);
        };
        self.group.tasks.run_all(self, own as usize, run, stop);
        // The last one may be taken and not counted yet.
        M::pause();
    }

    fn make(&self, member: u32) {
        for &job in self.jobs.iter().filter(|_| member == self.maker) {
            self.group.tasks.one_more();
            let before = None::<fn(&Job<M::Cell>) -> bool>;
            self.group.tasks.put(self, job, before, Some(member), || job.number);
        }
    }

    fn primary<W: Patience>(&self, helpers: u32) {
        let tasks = &self.group.tasks;
        self.fork.fork(helpers, |forks| tasks.begin_epoch(forks));
        self.make(0);
        let run = || self.run_all(0, || false);
        self.fork.join::<W>(&self.group.bells[1], || !tasks.are_open(), || tasks.are_there(), run);
        assert!(self.jobs.iter().all(|job| job.ran.get() == 1), "the join was before a task");
        self.fork.fork(0, |forks| tasks.begin_epoch(forks));
    }

    fn helper<W: Patience>(&self, number: u32) {
        let tasks = &self.group.tasks;
        let is_over = |forks| tasks.epoch() != forks;
        let has_work = |forks| forks > 0 && tasks.are_for_more() && !is_over(forks);
        let work = |forks| self.run_all(number, || is_over(forks));
        let region = || {
            self.make(number);
            if tasks.are_there() {
                self.run_all(number, || false);
            }
        };
        self.fork.serve::<W>(number, 0, &self.group.bells[1], has_work, work, region);
    }

    fn outside(&self) {
        if MISTAKE != HOLDS_NO_TEAM {
            self.holders.add();
        }
        self.group.tasks.one_done(self, true);
        // It has rung.
        self.stays();
        if MISTAKE != HOLDS_NO_TEAM {
            self.let_go();
        }
    }
}

/// A member makes tasks in a region, and `outside` completes another one. The join comes after all, and the
/// team goes with the last of those who touch it.
pub fn region<M: Machine + Wide, W: Patience, const MISTAKE: u32>(
    helpers: u32,
    maker: u32,
    jobs: u32,
    outside: bool,
) {
    let region = Arc::new(Region::<M, MISTAKE> {
        group: Group::new(helpers + 1),
        fork: ForkJoin::default(),
        holders: Holders::new(helpers + 1),
        gone: M::Cell::new(),
        jobs: (0..jobs).map(Job::leak).collect(),
        maker,
    });
    (0..helpers).for_each(|_| region.fork.recruit());
    if outside {
        region.group.tasks.one_more();
    }
    let ours = region.clone();
    together::<M>(helpers + 1 + u32::from(outside), move |index| {
        match index {
            _ if index > helpers => return ours.outside(),
            0 if helpers == 0 => ours.group.tasks.finish::<_, W>(&*ours, 0, |_| ()),
            0 => ours.primary::<W>(helpers),
            _ => ours.helper::<W>(index),
        }
        ours.let_go();
    });
    assert_eq!(region.gone.get(), 1, "nobody, or more than one, was the last");
}
