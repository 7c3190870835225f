// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures on fibers: wakers of fibers and of kernel threads, futures that are dropped, wakers that stay.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fiber::futures::{block_on, spawn_async};
use fiber::thread::Cancelled;
use fiber::{Activations, Config, Runtime, thread};

fn runtime(processors: u32) -> &'static Runtime {
    let config = Config { processors: Some(processors), activations: Activations::Told, ..Config::default() };
    Runtime::start(config).unwrap()
}

/// A channel whose receiver waits by a waker.
#[derive(Default)]
struct Channel {
    state: Mutex<(VecDeque<u64>, Option<Waker>)>,
}

impl Channel {
    fn send(&self, item: u64) {
        let waker = {
            let mut state = self.state.lock().unwrap();
            state.0.push_back(item);
            state.1.take()
        };
        waker.inspect(Waker::wake_by_ref);
    }

    fn receive(&self) -> impl Future<Output = u64> {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            match state.0.pop_front() {
                Some(item) => Poll::Ready(item),
                None => {
                    state.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    /// Somebody waits, and nobody has woken it.
    fn waker(&self) -> Option<Waker> {
        self.state.lock().unwrap().1.clone()
    }
}

#[test]
fn items_come_from_fibers_and_threads() {
    const ITEMS: u64 = 200;
    for processors in [1, 2, 4] {
        runtime(processors).run(|| {
            let sum = Arc::new(AtomicU64::new(0));
            let channels: Vec<Arc<Channel>> = (0..50).map(|_| Arc::default()).collect();
            let tasks: Vec<_> = channels
                .iter()
                .cloned()
                .map(|channel| {
                    let sum = sum.clone();
                    spawn_async(async move {
                        for _ in 0..2 * ITEMS {
                            sum.fetch_add(channel.receive().await, Relaxed);
                        }
                    })
                })
                .collect();
            std::thread::scope(|threads| {
                threads.spawn(|| (0..ITEMS).for_each(|item| channels.iter().for_each(|to| to.send(item))));
                let fibers: Vec<_> = channels
                    .iter()
                    .cloned()
                    .map(|channel| {
                        thread::spawn(move || {
                            for item in 0..ITEMS {
                                channel.send(item);
                                thread::yield_now();
                            }
                        })
                    })
                    .collect();
                fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            });
            tasks.into_iter().for_each(|task| task.join().unwrap());
            assert_eq!(sum.load(Relaxed), 50 * ITEMS * (ITEMS - 1));
        });
    }
}

/// Outside of fibers the kernel thread waits.
#[test]
fn a_kernel_thread_blocks_on_a_task() {
    let (to, from) = (Arc::new(Channel::default()), Arc::new(Channel::default()));
    let (theirs, ours) = (to.clone(), from.clone());
    let task = spawn_async(async move {
        for _ in 0..1000 {
            ours.send(theirs.receive().await + 1);
        }
        "done"
    });
    let last = block_on(async {
        let mut number = 0;
        for _ in 0..1000 {
            to.send(number);
            number = from.receive().await;
        }
        number
    });
    assert_eq!((last, task.join().unwrap()), (1000, "done"));
}

/// The item of the first channel that has one. The other future is dropped.
async fn first(channels: [&Channel; 2]) -> u64 {
    let mut futures = channels.map(|channel| Box::pin(channel.receive()));
    poll_fn(|context| {
        let mut polls = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// What a dropped future left behind wakes a task that waits for something else, or has ended.
#[test]
fn wakers_of_dropped_futures_do_no_harm() {
    for processors in [1, 3] {
        runtime(processors).run(|| {
            let channels: Arc<[Channel; 2]> = Arc::default();
            let ours = channels.clone();
            let task = spawn_async(async move {
                let first = first([&ours[0], &ours[1]]).await;
                (first, ours[0].receive().await)
            });
            let waker = loop {
                match channels[1].waker() {
                    Some(waker) => break waker,
                    None => thread::yield_now(),
                }
            };
            channels[0].send(1);
            for _ in 0..100 {
                waker.wake_by_ref();
                thread::yield_now();
            }
            assert!(!task.is_finished());
            channels[0].send(2);
            assert_eq!(task.join().unwrap(), (1, 2));
            // Its fiber's record is another's now, which must not end its wait for this.
            let stop = Arc::new(AtomicBool::new(false));
            let others = [stop.clone(), stop.clone()].map(|stop| {
                spawn_async(poll_fn(
                    move |_| if stop.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending },
                ))
            });
            let late = waker.clone();
            std::thread::scope(|threads| _ = threads.spawn(|| (0..100).for_each(|_| late.wake_by_ref())));
            waker.wake();
            (0..10).for_each(|_| thread::yield_now());
            stop.store(true, Relaxed);
            assert!(others.iter().all(|other| !other.is_finished()));
            // Nobody has their wakers: they are never polled again, as nobody asked for it.
            others.into_iter().for_each(drop);
        });
    }
}

/// A future that wakes itself at each poll lets the others run.
#[test]
fn a_task_that_wakes_itself_comes_last() {
    const MOST: u32 = 100_000;
    runtime(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let mut polls = 0;
        let task = spawn_async(poll_fn(move |context| {
            if polls == 0 {
                let stop = stop.clone();
                thread::spawn(move || stop.store(true, Relaxed));
            }
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            polls += 1;
            if stop.load(Relaxed) || polls == MOST { Poll::Ready(polls) } else { Poll::Pending }
        }));
        assert!(task.join().unwrap() < MOST);
    });
}

/// An unpark is for a park, also if a future was waited for between.
#[test]
fn an_unpark_is_left_for_the_park() {
    runtime(1).run(|| {
        let channel = Arc::new(Channel::default());
        let ours = channel.clone();
        let fiber = thread::spawn(move || {
            thread::current().unwrap().unpark();
            let item = block_on(ours.receive());
            thread::park();
            item
        });
        while channel.waker().is_none() {
            thread::yield_now();
        }
        channel.send(5);
        assert_eq!(fiber.join().unwrap(), 5);
    });
}

/// A panic comes out of the join, and what the future held is dropped.
#[test]
fn a_task_that_panics() {
    let held = Arc::new(());
    let ours = held.clone();
    let task = spawn_async(async move {
        let _ours = ours;
        std::panic::resume_unwind(Box::new(3u32));
    });
    assert_eq!(*task.join().unwrap_err().downcast::<u32>().unwrap(), 3);
    assert_eq!(Arc::strong_count(&held), 1);
}

/// A waker before the task's own.
trait Between: Send + Sync + 'static {
    fn wake(&self, real: &Waker);
}

struct Whole;

impl Between for Whole {
    fn wake(&self, real: &Waker) {
        real.wake_by_ref();
    }
}

/// A twin that is broken: it loses the first call.
#[derive(Default)]
struct Loses(AtomicBool);

impl Between for Loses {
    fn wake(&self, real: &Waker) {
        if self.0.swap(true, Relaxed) {
            real.wake_by_ref();
        }
    }
}

struct Through<B>(Arc<B>, Waker);

impl<B: Between> Wake for Through<B> {
    fn wake(self: Arc<Self>) {
        self.0.wake(&self.1);
    }
}

struct Wrapped<F, B>(F, Arc<B>);

impl<F: Future + Unpin, B: Between> Future for Wrapped<F, B> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let waker = Arc::new(Through(self.1.clone(), context.waker().clone())).into();
        pin!(&mut self.0).poll(&mut Context::from_waker(&waker))
    }
}

/// Does an item that is sent wake the task? One carrier runs all, in one order.
fn wakes<B: Between>(between: B) -> bool {
    runtime(1).run(|| {
        let channel = Arc::new(Channel::default());
        let ours = channel.clone();
        let between = Arc::new(between);
        let task = spawn_async(async move { Wrapped(Box::pin(ours.receive()), between).await });
        while channel.waker().is_none() {
            thread::yield_now();
        }
        let real = channel.waker().unwrap();
        channel.send(1);
        (0..1000).for_each(|_| thread::yield_now());
        let woken = task.is_finished();
        // So that it ends: the second call is not lost.
        real.wake();
        assert_eq!(task.join().unwrap(), 1);
        woken
    })
}

/// Is dropped with its future.
struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Whether it waits to be woken, has woken itself, or has not begun.
#[test]
fn a_task_that_is_cancelled_ends_where_it_is_pending() {
    // SAFETY: no pointers. A test that hangs is ended.
    unsafe { libc::alarm(60) };
    runtime(1).run(|| {
        for wakes in [false, true] {
            for begins in [false, true] {
                let (polls, drops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
                let (counts, dropped) = (polls.clone(), Dropped(drops.clone()));
                let never = poll_fn(move |context| {
                    let _ = &dropped;
                    counts.fetch_add(1, SeqCst);
                    if wakes {
                        context.waker().wake_by_ref();
                    }
                    Poll::<()>::Pending
                });
                let task = spawn_async(never);
                while begins && polls.load(SeqCst) == 0 {
                    thread::yield_now();
                }
                task.cancel();
                assert!(task.join().unwrap_err().is::<Cancelled>());
                assert_eq!(drops.load(SeqCst), 1);
            }
        }
        // And not, if it comes to its end before.
        let task = spawn_async(std::future::ready(7));
        task.cancel();
        assert_eq!(task.join().unwrap(), 7);
    });
    // SAFETY: no pointers.
    unsafe { libc::alarm(0) };
}

#[test]
fn a_lost_wake_is_noticed() {
    assert!(wakes(Whole));
    assert!(!wakes(Loses::default()));
}

fn kernel_thread() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Notes in each of its polls on which kernel thread that is. Each finds the thread-local variables of that
/// thread, also after a wait inside the poll.
async fn noting(items: Arc<Channel>, polled: Arc<AtomicU64>) -> Vec<i32> {
    std::thread_local! {
        static OWN: std::cell::Cell<i32> = const { std::cell::Cell::new(0) };
    }
    let mut threads = Vec::new();
    for _ in 0..3 {
        let here = kernel_thread();
        OWN.set(here);
        thread::sleep(Duration::from_millis(2));
        assert_eq!((kernel_thread(), OWN.get()), (here, here), "a poll moved");
        threads.push(here);
        polled.store(here as u64, Relaxed);
        items.receive().await;
    }
    threads
}

/// Starts that with a channel, and makes it ready while its carrier is blocked for so long. Returns its
/// threads, and how long it took then.
fn woken_while_blocked(
    time: Duration,
    start: impl FnOnce(Arc<Channel>, Arc<AtomicU64>) -> thread::JoinHandle<Vec<i32>>,
) -> (Vec<i32>, Duration) {
    let (channel, polled) = (Arc::new(Channel::default()), Arc::new(AtomicU64::new(0)));
    let task = start(channel.clone(), polled.clone());
    while channel.waker().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Some fiber begins with the task's carrier, and keeps it.
    let (wanted, blocked) = (polled.load(Relaxed) as i32, Arc::new(AtomicBool::new(false)));
    while !blocked.load(Acquire) {
        let blocked = blocked.clone();
        drop(thread::spawn(move || {
            match kernel_thread() == wanted && !blocked.swap(true, AcqRel) {
                true => std::thread::sleep(time),
                // The next one begins elsewhere.
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        }));
        std::thread::sleep(Duration::from_micros(200));
    }
    // A task that is woken before its carrier blocks waits for it.
    let stat = format!("/proc/self/task/{wanted}/stat");
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(5));
    let begin = Instant::now();
    (0..3).for_each(|_| channel.send(1));
    let threads = task.join().unwrap();
    assert_eq!(threads[0], wanted);
    (threads, begin.elapsed())
}

/// A task goes on with another carrier where its own is blocked.
#[test]
fn a_task_moves_between_its_polls_only() {
    let (threads, took) =
        woken_while_blocked(Duration::from_secs(2), |items, polled| spawn_async(noting(items, polled)));
    assert!(took < Duration::from_secs(1), "it waited for its carrier");
    assert!(threads[1..].iter().all(|&thread| thread != threads[0]), "{threads:?}");
}

/// A future in `block_on` need not be `Send`: it stays with the kernel thread of its fiber.
#[test]
fn a_future_that_is_not_send_stays() {
    let (threads, _) = woken_while_blocked(Duration::from_millis(300), |items, polled| {
        thread::spawn(|| {
            block_on(async {
                let here = std::rc::Rc::new(());
                let threads = noting(items, polled).await;
                drop(here);
                threads
            })
        })
    });
    assert!(threads.iter().all(|&thread| thread == threads[0]), "{threads:?}");
}
