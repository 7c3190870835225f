// SPDX-License-Identifier: MIT OR Apache-2.0
//! A web server in plain blocking code, a fiber or a thread for each connection. It answers each request with
//! the bytes of a file that it reads anew, or with a few words.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example http_server -- fibers 8080
//! cargo run --release -p wakeful-fiber --example http_server -- threads 8080 some-file
//! ```
//!
//! Port 0 is one that is free. The first line of the output says where it listens.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use fiber::thread;

/// Reads a request up to its empty line. `None`: the client has closed the connection, or wants to. Else its
/// path.
fn request(lines: &mut impl BufRead) -> io::Result<Option<(String, bool)>> {
    let mut first = String::new();
    if lines.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace().skip(1);
    let path = words.next().unwrap_or("/").to_string();
    let mut stays = words.next() == Some("HTTP/1.1");
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some((path, stays)));
        }
        match line.to_ascii_lowercase().trim().strip_prefix("connection:").map(str::trim) {
            Some("close") => stays = false,
            Some("keep-alive") => stays = true,
            _ => {}
        }
    }
}

/// One connection, to its end.
fn serve(stream: TcpStream, file: Option<&PathBuf>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some((path, stays)) = request(&mut lines)? {
        let body = match file {
            Some(file) => std::fs::read(file)?,
            None => format!("You asked for {path}\n").into_bytes(),
        };
        let connection = if stays { "keep-alive" } else { "close" };
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n", body.len())
                .into_bytes();
        answer.extend(body);
        stream.write_all(&answer)?;
        if !stays {
            break;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "fibers".into());
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(8080_u16);
    let file = Arc::new(arguments.next().map(PathBuf::from));
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("http://{}", listener.local_addr()?);
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let file = file.clone();
            // A client that goes away is no error of ours.
            let body = move || drop(serve(stream, file.as_ref().as_ref()));
            match &kind[..] {
                "threads" => drop(std::thread::spawn(body)),
                _ => drop(thread::spawn(body)),
            }
        }
    };
    // A fiber as well: who accepts waits in the kernel, and the others have its processor.
    thread::spawn(accept).join().expect("it does not panic");
    Ok(())
}
