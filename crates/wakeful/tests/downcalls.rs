// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program of fibers says to the processor server by itself. One test, because the server is the
//! process's.

mod heard;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use abi::server::Request;
use heard::{Server, block, grant};
use wakeful::{partition, thread};

#[test]
fn blocked_fibers_lend_a_processor_and_ready_ones_want_it_back() {
    if std::thread::available_parallelism().unwrap().get() != 2 {
        return println!("skipped: the block is one of two processors");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wakefuld");
    let path = path.to_str().unwrap();
    // SAFETY: no other thread reads the environment now.
    unsafe { std::env::set_var("WAKEFUL_SERVER", path) };
    let server = Server::new(path);
    let asked = std::thread::spawn(|| partition::request(0, 1..=2));
    let block = block();
    grant(&server, &block);
    assert_eq!(asked.join().unwrap().unwrap(), 2);

    // All are blocked: one processor is enough.
    static BUSY: AtomicBool = AtomicBool::new(false);
    let fibers: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                thread::park();
                let began = Instant::now();
                while BUSY.load(Relaxed) {
                    assert!(began.elapsed() < Duration::from_secs(60), "nobody wants a processor back");
                    thread::yield_now();
                }
            })
        })
        .collect();
    let (envelope, _connection) = server.hear();
    assert_eq!(envelope.request, Request::Spare(1));

    // The look is each second until then, and each 10 ms from then on.
    BUSY.store(true, Relaxed);
    fibers.iter().for_each(|fiber| fiber.thread().unpark());
    let (envelope, _connection) = server.hear();
    assert_eq!(envelope.request, Request::WantBack);
    BUSY.store(false, Relaxed);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}
