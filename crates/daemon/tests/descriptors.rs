// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that clients send. A program of its own: the children that other tests fork have copies of the
//! descriptors, and it counts the threads of its process.

mod common;
mod running;
mod simulated;

use std::os::fd::AsFd;

use daemon::config::By;
use linux::server::{Envelope, Request};
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
    for (packet, closing) in [(&Envelope::from(Request::WantBack).encode().bytes()[..], 1), (&[1, 2, 3], 2)] {
        let (socket, other) = common::lingering();
        let connection = server.connect();
        // The server stands at its next call meanwhile: its close is the last one.
        let stands = kernel.state.lock().unwrap();
        common::send_with(&connection, packet, &[socket.as_fd()]).unwrap();
        drop((socket, stands));
        others.push(other);
        eventually("the server closes it", || common::threads_called("closes") == closing);
    }
    let process = Idle::new();
    assert!(server.ask(join(process.id(), 0, 1, 1)).is_ok());
    drop(others);
    eventually("they are closed", || common::threads_called("closes") == 0);
    server.stop();
}
