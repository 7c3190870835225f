// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that clients send. A program of its own: the children that other tests fork have copies of the
//! descriptors, and it counts the threads of its process.

mod common;
mod running;
mod simulated;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use daemon::config::By;
use linux::server::{Kind, Message};
use running::*;
use simulated::Simulated;

/// A kernel that lets clients send descriptors: nobody waits until they are closed.
#[test]
fn a_descriptor_that_is_sent_is_closed_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    kernel.state.lock().unwrap().old = true;
    let server = Running::start(&kernel, &config(By::Affinity), folder.path());
    let mut others = Vec::new();
    for (packet, closing) in [(&Message::new(Kind::WantBack).bytes()[..], 1), (&[1, 2, 3], 2)] {
        // Again, where the server was quicker than this test: the last close was not the server's then.
        eventually("the server closes it last", || {
            let (socket, other) = common::lingering();
            let connection = server.connect();
            common::send_with(&connection, packet, &[socket.as_fd()]).unwrap();
            others.push(other);
            std::thread::spawn(|| drop(socket));
            let start = Instant::now();
            while common::threads_called("closes") < closing && start.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            common::threads_called("closes") >= closing
        });
    }
    let process = Idle::new();
    assert!(server.ask(join(process.id(), 0, 1, 1)).is_ok());
    drop(others);
    eventually("they are closed", || common::threads_called("closes") == 0);
    server.stop();
}
