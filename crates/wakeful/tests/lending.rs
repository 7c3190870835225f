// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server of delegated sections says to the processor server. One test, because that server is the
//! process's.

mod heard;

use std::fs::File;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use abi::Partition;
use abi::server::{Block, Request};
use heard::{Server, block, grant, word};
use wakeful::{ByServer, Delegated, RclServer, partition};

#[test]
fn a_server_lends_its_processor_while_nobody_asks() {
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

    // One that runs anywhere lends nothing, and neither does one that is asked.
    let anywhere = RclServer::start().unwrap();
    Delegated::on(&anywhere, ()).run(|()| ());
    // SAFETY: a plain call.
    let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
    let count = Delegated::on(&RclServer::start_on(here).unwrap(), 0);
    for _ in 0..30 {
        count.run(|count| *count += 1);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.is_quiet());

    for _ in 0..2 {
        let (envelope, _connection) = server.hear();
        assert_eq!(envelope.request, Request::Spare(1));
        // SAFETY: a plain call.
        let ran_on = count.run(|_| unsafe { libc::sched_getcpu() });
        assert_eq!(usize::try_from(ran_on).unwrap(), here);
        let (envelope, _connection) = server.hear();
        assert_eq!(envelope.request, Request::WantBack);
    }

    says_again(&server, path, &count);
    let (envelope, _connection) = server.hear();
    assert_eq!(envelope.request, Request::Spare(1));
    let other = a_second_one(&server, &block, here);

    // Their end is no offer.
    drop((count, other));
    let (envelope, _connection) = server.hear();
    assert_eq!(envelope.request, Request::WantBack);
    assert!(server.is_quiet());
}

/// What was not heard is said again, while nobody asks, and while the server is asked.
fn says_again(server: &Server, path: &str, count: &Delegated<i32, ByServer>) {
    let away = format!("{path}-");
    for request in [Request::Spare(1), Request::WantBack] {
        std::fs::rename(path, &away).unwrap();
        if request == Request::WantBack {
            count.run(|count| *count += 1);
        }
        std::thread::sleep(Duration::from_millis(1_500));
        std::fs::rename(&away, path).unwrap();
        let heard = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if request == Request::WantBack {
                scope.spawn(|| {
                    while !heard.load(Relaxed) {
                        count.run(|count| *count += 1);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let (envelope, _connection) = server.hear();
            heard.store(true, Relaxed);
            assert_eq!(envelope.request, request);
        });
    }
}

/// Another server that nobody asks: what is lent already is not offered once more.
fn a_second_one(server: &Server, block: &File, here: usize) -> Delegated<i32, ByServer> {
    let processors = offset_of!(Block, partition) + offset_of!(Partition, processors);
    word(block, processors, 1);
    let other = Delegated::on(&RclServer::start_on(here).unwrap(), 0);
    other.run(|other| *other += 1);
    let (envelope, _connection) = server.hear();
    assert_eq!(envelope.request, Request::Spare(1));
    word(block, processors, 2);
    other
}
