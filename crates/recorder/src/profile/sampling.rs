// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the kernel samples where threads compute: while somebody waits for them, and as far as it is cheap.
//!
//! The kernel sets a timer for a thread's samples at each switch to it, and takes it back at the next one.
//! For a program that switches often, this costs more than the samples do. So they are on for a moment then,
//! and off for as long as makes the switches' part [`MOST`]. To switch them on or off is a call for each
//! thread and processor, which is bounded in the same way.

/// BOUND: samples are on for so long at least, and so long after somebody waited.
const ON_NS: u64 = 20_000_000;
const WAITED_NS: u64 = 100_000_000;
/// BOUND: the part of a processor's time that the timers take, and of ours that switching on and off takes.
const MOST: f64 = 0.01;
/// BOUND: ns that a timer's start and end take together, about: in a guest, where each is an exit.
const TIMER_NS: f64 = 2_700.0;
/// BOUND: ns that it takes to switch the samples of one thread on one processor on or off, about.
const CALL_NS: f64 = 4_600.0;

/// Decides.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    is_on: bool,
    changed_ns: u64,
    /// Since when the switches are counted, and when somebody waited last.
    since_ns: u64,
    waited_ns: Option<u64>,
    /// Nothing is judged before that time.
    until_ns: u64,
    /// By processor: switches to threads of the program.
    switches: Vec<u64>,
}

impl Sampling {
    /// A thread of the program got that processor.
    pub fn switched(&mut self, processor: u32) {
        let at = processor as usize;
        if self.switches.len() <= at {
            self.switches.resize(at + 1, 0);
        }
        self.switches[at] += 1;
    }

    /// Somebody waits, for one who may compute.
    pub fn waited(&mut self, now_ns: u64) {
        self.waited_ns = self.waited_ns.max(Some(now_ns));
    }

    /// Whether samples are to be on, if that changes: with so many events, of all threads and processors.
    pub fn look(&mut self, now_ns: u64, events: u64) -> Option<bool> {
        let pause_ns = (events as f64 * CALL_NS / MOST) as u64;
        if now_ns < self.until_ns || now_ns < self.changed_ns + pause_ns {
            return None;
        }
        let is_wanted = self.waited_ns.is_some_and(|waited_ns| now_ns < waited_ns + WAITED_NS);
        let passed_ns = (now_ns - self.since_ns).max(1);
        let most = self.switches.iter().max().copied().unwrap_or(0);
        let cost = most as f64 * TIMER_NS / passed_ns as f64;
        if !self.is_on && !is_wanted {
            return None;
        }
        let is_on = !self.is_on || is_wanted && cost <= MOST;
        self.since_ns = now_ns;
        self.switches.fill(0);
        let pause_ns = (passed_ns as f64 * (cost / MOST - 1.0)) as u64;
        self.until_ns = now_ns + if is_on { ON_NS } else { pause_ns };
        let is_new = is_on != self.is_on;
        if is_new {
            (self.is_on, self.changed_ns) = (is_on, now_ns);
        }
        is_new.then_some(is_on)
    }
}

impl super::Profiling {
    /// Has the kernel sample what threads compute, or not. Time stands still while the program is stopped.
    pub(super) fn sample(&mut self) {
        let Ok(rings) = &self.rings else { return };
        let now_ns = self.stops.now_ns(super::now_ns());
        if self.waits.is_anybody_waited() {
            self.sampling.waited(now_ns);
        }
        let events = (self.account.threads.len() * rings.processors()) as u64;
        if let Some(is_on) = self.sampling.look(now_ns, events) {
            rings.sample(is_on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(sampling: &mut Sampling, processor: u32, times: u64) {
        (0..times).for_each(|_| sampling.switched(processor));
    }

    fn on(now_ns: u64) -> Sampling {
        let mut sampling = Sampling::default();
        assert_eq!(sampling.look(now_ns, 0), None, "nobody waits");
        sampling.waited(now_ns);
        assert_eq!(sampling.look(now_ns, 0), Some(true));
        sampling
    }

    #[test]
    fn samples_are_on_while_somebody_waits() {
        let mut sampling = on(1);
        assert_eq!(sampling.look(WAITED_NS, 0), None);
        assert_eq!(sampling.look(WAITED_NS + ON_NS, 0), Some(false));
        assert_eq!(sampling.look(2 * WAITED_NS, 0), None);
        sampling.waited(2 * WAITED_NS);
        assert_eq!(sampling.look(2 * WAITED_NS, 0), Some(true));
    }

    #[test]
    fn where_threads_switch_often_they_are_off_for_most_of_the_time() {
        let cheap = (ON_NS as f64 * MOST / TIMER_NS) as u64;
        for (times, part) in [(cheap / 2, None), (4 * cheap, Some(4))] {
            let mut sampling = on(1);
            // Each processor is judged by its own.
            switched(&mut sampling, 0, cheap / 2);
            switched(&mut sampling, 3, times);
            assert_eq!(sampling.look(ON_NS, 0), None);
            assert_eq!(sampling.look(1 + ON_NS, 0), part.map(|_| false));
            let Some(part) = part else { continue };
            let on_ns = 1 + part * ON_NS;
            sampling.waited(on_ns);
            assert_eq!([sampling.look(on_ns - ON_NS / 2, 0), sampling.look(on_ns, 0)], [None, Some(true)]);
        }
    }

    #[test]
    fn of_many_threads_they_are_changed_seldom() {
        let events = 10_000;
        let pause_ns = (events as f64 * CALL_NS / MOST) as u64;
        let mut sampling = on(1);
        assert_eq!(
            [sampling.look(pause_ns, events), sampling.look(1 + pause_ns, events)],
            [None, Some(false)]
        );
        sampling.waited(2 * pause_ns);
        assert_eq!(sampling.look(2 * pause_ns, events), None);
        assert_eq!(sampling.look(1 + 2 * pause_ns, events), Some(true));
    }
}
