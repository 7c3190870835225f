// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples that are programs of a usual kind: what they do is right. Cargo builds examples for tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

fn example(name: &str) -> Command {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let program: PathBuf = deps.parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{program:?}: cargo build --example {name}");
    Command::new(program)
}

/// Ends with the test, however that ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An answer: its head's first line, and its body.
fn answer(stream: &mut BufReader<TcpStream>) -> (String, String) {
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (first, String::from_utf8(body).unwrap())
}

/// More connections than processors, all open at once, and each used more than once.
#[test]
fn a_server_serves() {
    let mut server =
        Server(example("http_server").args(["fibers", "0"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let connect = |_| BufReader::new(TcpStream::connect(address).unwrap());
    let mut connections: Vec<_> = (0..100).map(connect).collect();
    for round in 0..3 {
        for (number, connection) in connections.iter_mut().enumerate() {
            let ask = format!("GET /{number}/{round} HTTP/1.1\r\nHost: here\r\n\r\n");
            connection.get_mut().write_all(ask.as_bytes()).unwrap();
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            let (first, body) = answer(connection);
            assert_eq!(first, "HTTP/1.1 200 OK\r\n");
            assert_eq!(body, format!("You asked for /{number}/{round}\n"));
        }
    }
    let mut last = connections.pop().unwrap();
    last.get_mut().write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(&mut last).1, "You asked for /\n");
    assert_eq!(last.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_walk_finds_the_same() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let found = |way| {
        let output = example("walk_and_hash").args([way, here]).output().unwrap();
        assert!(output.status.success(), "{way}: {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    };
    let one = found("one");
    assert!(!one.starts_with("0 files"), "{one}");
    assert_eq!(found("fibers"), one);
}

/// Less than half of the waits are long while a low fiber runs, on a busy machine too, where other programs
/// make some so. Without priorities all are, and the trace says so.
#[test]
fn a_trace_shows_who_waited_for_whom() {
    let status = |others| {
        let output = example("priority_trace").args([others, "1", "200"]).output().unwrap();
        eprint!("{}", String::from_utf8_lossy(&output.stdout));
        output.status.code()
    };
    match status("one") {
        Some(2) => eprintln!("skipped: no events of perf here"),
        found => assert_eq!((found, status("low")), (Some(1), Some(0))),
    }
}
