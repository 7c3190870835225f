// SPDX-License-Identifier: MIT OR Apache-2.0
//! When servers tell where they run, on this machine.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use linux::Linux;
use linux::serving::on_serving;
use sync::delegate::{RclLock, RclServer};

/// Each call: the server, who called, whether it serves, and on which processor.
type Call = (usize, ThreadId, bool, i32);
static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static CALLED: Condvar = Condvar::new();

extern "C" fn told(server: *const c_void, serves: i32) {
    // SAFETY: no preconditions.
    let processor = unsafe { libc::sched_getcpu() };
    CALLS.lock().unwrap().push((server as usize, thread::current().id(), serves != 0, processor));
    CALLED.notify_all();
}

type Server = RclServer<Linux>;

fn of(server: &Server, calls: &[Call]) -> Vec<Call> {
    calls.iter().copied().filter(|call| call.0 == core::ptr::from_ref(server) as usize).collect()
}

/// Waits until there are so many calls of this server.
fn calls(server: &Server, count: usize) -> Vec<Call> {
    let few = |calls: &mut Vec<Call>| of(server, calls).len() < count;
    let calls = CALLED.wait_timeout_while(CALLS.lock().unwrap(), Duration::from_secs(5), few).unwrap().0;
    of(server, &calls)
}

fn run<F: FnMut()>(server: &Server, lock: &RclLock<Linux>, mut section: F) {
    unsafe fn call<F: FnMut()>(context: *mut ()) {
        // SAFETY: `section`, which nobody else uses meanwhile.
        unsafe { (*context.cast::<F>())() }
    }
    // SAFETY: the context lives; sections of one lock wait at most for those of another one, with a spare.
    unsafe { server.run(lock, call::<F>, (&raw mut section).cast()) }
}

/// Closes it, also if a test fails.
struct Close<'a>(&'a Server);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Who takes over tells nothing before it has run what waits; and who is dismissed does not tell the end.
#[test]
fn the_server_begins_and_ends_once() {
    on_serving(told);
    let (server, locks) = (Server::default(), [RclLock::default(), RclLock::default()]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(server.serve()));
        }
        let second = Mutex::new(None);
        let ran = Condvar::new();
        let (mut first, mut told_first) = (None, Vec::new());
        let close = Close(&server);
        thread::scope(|clients| {
            let (inside, entered) = std::sync::mpsc::channel();
            let stuck = {
                let (server, lock, second, ran, first) = (&server, &locks[0], &second, &ran, &mut first);
                clients.spawn(move || {
                    run(server, lock, || {
                        *first = Some(thread::current().id());
                        inside.send(()).unwrap();
                        // Until a section of the other lock has run: on a spare thread.
                        drop(ran.wait_while(second.lock().unwrap(), |who| who.is_none()).unwrap());
                    });
                })
            };
            entered.recv().unwrap();
            run(&server, &locks[1], || {
                let me = thread::current().id();
                told_first = of(&server, &CALLS.lock().unwrap());
                *second.lock().unwrap() = Some(me);
                ran.notify_all();
            });
            stuck.join().unwrap();
        });
        let second = second.lock().unwrap().unwrap();
        assert!(told_first.iter().all(|call| call.1 != second), "{second:?} has taken over: {told_first:?}");
        assert!(told_first[0].2 && Some(told_first[0].1) == first && first != Some(second));
        drop(close);
    });
    let calls = of(&server, &CALLS.lock().unwrap());
    let ends = calls.iter().filter(|call| !call.2).count();
    assert!(ends == 1 && !calls.last().unwrap().2, "{calls:?}");
}

/// A server that was moved while it ran says so.
#[test]
fn a_server_that_was_moved_tells() {
    on_serving(told);
    let (server, lock) = (Server::default(), RclLock::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(&processors()[..1]);
            assert!(server.serve());
        });
        let _close = Close(&server);
        let all = processors();
        let begun = calls(&server, 1);
        assert_eq!((begun[0].2, begun[0].3), (true, all[0] as i32));
        if let Some(other) = all.get(1) {
            run(&server, &lock, || pin(&[*other]));
            let moved = calls(&server, 2);
            assert_eq!(moved.len(), 2, "it has told nothing more");
            assert_eq!((moved[1].2, moved[1].3), (true, *other as i32));
        } else {
            println!("one processor: nothing moves");
        }
    });
}

/// Those that the calling thread may run on.
fn processors() -> Vec<usize> {
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|processor| libc::CPU_ISSET(*processor, &set)).collect()
    }
}

fn pin(to: &[usize]) {
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        to.iter().for_each(|processor| libc::CPU_SET(*processor, &mut set));
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
