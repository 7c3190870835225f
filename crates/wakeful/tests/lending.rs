// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server of delegated sections says to the processor server. One test, because that server is the
//! process's.

mod heard;

use abi::server::Request;
use heard::{Server, block, grant};
use wakeful::{Delegated, RclServer, partition};

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
        std::thread::sleep(std::time::Duration::from_millis(50));
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
    // Its end is no offer.
    drop(count);
    assert!(server.is_quiet());
}
