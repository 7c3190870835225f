// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful scheduler`: the sched_ext scheduler, as a background process that programs ask to be taken in.
//!
//! A client sends one word, and gets one line: `join` (the handle of its arena, with the descriptors),
//! `status` (a JSON object) or `stop` (root only). Whom to take in, the kernel says, not the client.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fs, mem};

use abi::server::SCHEDULER as SOCKET;
use anyhow::{Context, Result, bail};
use bpf::scheduler::{self, Config, SLOTS, Scheduler, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};

/// Divide processors among the programs that ask for it, by what their threads say matters
///
/// Needs root and a kernel with sched_ext to start. Programs take part with `wakeful run --scheduled`; all others stay where they are, and come before
/// those that take part. If the scheduler ends, however it ends, the kernel takes its programs back.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Put the scheduler in charge, until it is stopped
    Start(Tuning),
    /// End it; its programs go on under the kernel's own scheduler
    Stop,
    /// Say whether it is in charge, and what its programs have had
    Status {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Serve(Tuning),
}

#[derive(clap::Args)]
struct Tuning {
    /// How long a thread runs before it is another's turn
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    quantum: humantime::Duration,
    /// How long a thread may stay that wishes not to be preempted; the time is deducted from its next turns
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    extension: humantime::Duration,
}

impl Tuning {
    fn config(&self) -> Result<Config> {
        let ns = |time: humantime::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let config =
            Config { quantum_ns: ns(self.quantum), extension_ns: ns(self.extension), ..Config::default() };
        if !(1_000_000..=1_000_000_000).contains(&config.quantum_ns) {
            bail!("--quantum {}: from 1ms to 1s", self.quantum);
        }
        if !(1..=config.quantum_ns).contains(&config.extension_ns) {
            bail!("--extension {}: more than nothing, and not more than the quantum", self.extension);
        }
        Ok(config)
    }
}

/// What `status` tells of a program.
#[derive(Debug, Serialize, Deserialize)]
struct Program {
    process: u32,
    cpu_seconds: f64,
    extended: u64,
    refused: u64,
    handed_off: u64,
}

/// What `status` tells.
#[derive(Debug, Serialize, Deserialize)]
struct Status {
    schema: u32,
    in_charge: bool,
    programs: Vec<Program>,
}

const FOLDER: &str = "/run/wakeful";

pub fn main(args: Args) -> Result<ExitCode> {
    match args.verb {
        Verb::Start(tuning) => start(&tuning),
        Verb::Stop => stop(),
        Verb::Status { json } => status(json),
        Verb::Serve(tuning) => serve(tuning.config()?),
    }
}

/// One question to the running scheduler; `None` if none runs.
fn ask(word: &str) -> Result<Option<(String, Vec<OwnedFd>)>> {
    let mut stream = match UnixStream::connect(SOCKET) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error).context("cannot reach the scheduler"),
    };
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let (mut text, descriptors) = receive(&stream).context("the scheduler does not answer")?;
    stream.read_to_string(&mut text)?;
    Ok(Some((text, descriptors)))
}

fn start(tuning: &Tuning) -> Result<ExitCode> {
    tuning.config()?;
    if let Some(name) = scheduler::in_charge() {
        bail!("the scheduler `{name}` is in charge; `wakeful scheduler stop` ends ours");
    }
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let mut command = Command::new(program);
    command.args(["scheduler", "serve", "--quantum", &tuning.quantum.to_string()]);
    command.args(["--extension", &tuning.extension.to_string()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir("/")
        .process_group(0);
    let mut server = command.spawn().context("cannot start the background process")?;
    let end = Instant::now() + Duration::from_secs(60);
    while ask("status").ok().flatten().is_none() {
        if server.try_wait()?.is_some() || Instant::now() > end {
            let mut why = String::new();
            let _ = server.kill();
            server.stderr.take().expect("it is piped").read_to_string(&mut why)?;
            bail!("the scheduler did not start:\n{}", why.trim().trim_start_matches("wakeful: "));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("wakeful: the scheduler is in charge of what `wakeful run --scheduled` starts");
    Ok(ExitCode::SUCCESS)
}

fn stop() -> Result<ExitCode> {
    match ask("stop")? {
        Some((answer, _)) if answer == "stopped" => {}
        Some((answer, _)) => bail!("{answer}"),
        None => match scheduler::in_charge() {
            Some(name) => bail!("the scheduler `{name}` is in charge, and it is not ours"),
            None => bail!("no scheduler runs; `wakeful scheduler start` starts one"),
        },
    }
    let end = Instant::now() + Duration::from_secs(10);
    while scheduler::in_charge().is_some() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    eprintln!("wakeful: stopped; its programs go on under the kernel's own scheduler");
    Ok(ExitCode::SUCCESS)
}

fn status(json: bool) -> Result<ExitCode> {
    let status: Status = match ask("status")? {
        Some((answer, _)) => {
            serde_json::from_str(&answer).context("the scheduler is of another version; restart it")?
        }
        None => Status { schema: 1, in_charge: false, programs: Vec::new() },
    };
    if json {
        println!("{}", serde_json::to_string(&status)?);
    } else if !status.in_charge {
        match scheduler::in_charge() {
            Some(name) => println!("another scheduler is in charge: {name}"),
            None => println!("no scheduler runs; `wakeful scheduler start` starts one"),
        }
    } else {
        let count = status.programs.len();
        println!("in charge of {count} program{}", if count == 1 { "" } else { "s" });
        if !status.programs.is_empty() {
            println!(
                "{:>9} {:>11} {:>10} {:>9} {:>11}",
                "process", "cpu time", "extended", "refused", "handed off"
            );
        }
        for Program { process, cpu_seconds, extended, refused, handed_off } in &status.programs {
            println!("{process:>9} {cpu_seconds:>9.1} s {extended:>10} {refused:>9} {handed_off:>11}");
        }
    }
    Ok(if status.in_charge { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks the running scheduler to take this process in, and what it becomes; the handle of its arena, for [`linux::environment::OBSERVER`].
pub fn join() -> Result<String> {
    let Some((answer, descriptors)) = ask("join")? else {
        bail!("no scheduler runs; as root, `wakeful scheduler start` starts one");
    };
    let [arena, enrol] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| anyhow::anyhow!("{answer}"))?;
    let handle = scheduler::Admission { slot: 0, arena, enrol };
    let text = handle.hand_over()?.to_string();
    // The program that we become inherits them.
    mem::forget(handle);
    scheduler::join().context("the kernel does not let this process join the scheduler")?;
    Ok(text)
}

/// A program that was taken in.
struct Member {
    process: u32,
    user: u32,
    pidfd: OwnedFd,
    /// How many programs it has executed that took part.
    executed: u32,
}

/// BOUND: a script executes one in the end. Each arena that a process keeps takes half a MB, too.
const EXECUTED: u32 = 16;

/// BOUND: programs of one user, and of all users but root; each takes half a MB of the kernel's memory.
const OF_USER: usize = 16;
const OF_USERS: usize = 48;

/// Is there room for another program of this user, beside those of these?
fn has_room(others: impl Iterator<Item = u32>, user: u32) -> bool {
    let (theirs, all) = others
        .filter(|&other| other != 0)
        .fold((0, 0), |(theirs, all), other| (theirs + usize::from(other == user), all + 1));
    user == 0 || theirs < OF_USER && all < OF_USERS
}

struct Server {
    scheduler: Scheduler,
    /// By slot; the first is never used.
    members: Vec<Option<Member>>,
}

fn serve(config: Config) -> Result<ExitCode> {
    let scheduler = Scheduler::start(config)?;
    fs::create_dir_all(FOLDER).context("cannot make /run/wakeful")?;
    let _ = fs::remove_file(SOCKET);
    let listener = listen(Path::new(SOCKET)).context("cannot make the socket in /run/wakeful")?;
    let mut server = Server { scheduler, members: (0..SLOTS).map(|_| None).collect() };
    loop {
        let asked = server.wait(&listener);
        server.forget_the_dead();
        if let State::Ended(why) = server.scheduler.state()? {
            let _ = fs::remove_file(SOCKET);
            bail!("the kernel ended the scheduler: {why}");
        }
        if asked
            && let Ok((stream, _)) = listener.accept()
            && server.answer(&stream).unwrap_or(false)
        {
            break;
        }
    }
    let _ = fs::remove_file(SOCKET);
    Ok(ExitCode::SUCCESS)
}

/// A socket that everybody may connect to, and nobody sends descriptors to: the last close of one can take as long as its owner likes.
fn listen(path: &Path) -> io::Result<UnixListener> {
    /// Linux 6.16. Connections have it from their listener.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let listener = UnixListener::bind(path)?;
    let no: libc::c_int = 0;
    let length = size_of_val(&no) as libc::socklen_t;
    // SAFETY: the number lives and is of this length. An older kernel refuses, and all is as before.
    unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            length,
        )
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Has one of these flags come already?
fn is(flags: PollFlags, what: impl AsFd) -> bool {
    let mut one = [PollFd::new(&what, flags)];
    poll(&mut one, Some(&Timespec::default())).is_ok() && one[0].revents().intersects(flags)
}

/// HINT: seconds until it is noticed that the kernel has ended the scheduler, which happens on errors only.
/// Each look takes a processor from a program, and maybe from a thread that holds a lock.
const BETWEEN_LOOKS: i64 = 10;

impl Server {
    /// Until somebody asks (true) or ends, or it is time to look.
    fn wait(&self, listener: &UnixListener) -> bool {
        let ends = self.members.iter().flatten().map(|member| PollFd::new(&member.pidfd, PollFlags::IN));
        let mut all: Vec<_> = [PollFd::new(listener, PollFlags::IN)].into_iter().chain(ends).collect();
        let time = Timespec { tv_sec: BETWEEN_LOOKS, tv_nsec: 0 };
        poll(&mut all, Some(&time)).is_ok() && !all[0].revents().is_empty()
    }

    fn forget_the_dead(&mut self) {
        for slot in 1..SLOTS {
            let place = &mut self.members[slot as usize];
            if place.as_ref().is_some_and(|member| is(PollFlags::IN, &member.pidfd)) {
                *place = None;
                let _ = self.scheduler.release(slot);
            }
        }
    }

    /// True if it was asked to stop.
    fn answer(&mut self, stream: &UnixStream) -> Result<bool> {
        // One who dawdles keeps the others waiting for no longer than this.
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        let mut word = String::new();
        stream.take(16).read_to_string(&mut word)?;
        let who = net::sockopt::socket_peercred(stream)?;
        self.forget_the_dead();
        match word.as_str() {
            // Its patience is over, and it goes on without us: it takes no place.
            "join" if is(PollFlags::HUP, stream) => {}
            "join" => match self.take_in(who.pid.as_raw_nonzero().get() as u32, who.uid.as_raw()) {
                Ok(admission) => {
                    send(stream, b" ", &[admission.arena.as_fd(), admission.enrol.as_fd()])?;
                }
                Err(error) => send(stream, format!("{error:#}").as_bytes(), &[])?,
            },
            "stop" if who.uid.is_root() => {
                send(stream, b"stopped", &[])?;
                return Ok(true);
            }
            "stop" => send(stream, b"only root may stop the scheduler", &[])?,
            _ => send(stream, serde_json::to_string(&self.status())?.as_bytes(), &[])?,
        }
        Ok(false)
    }

    /// Also a process that has executed another program since, and a child of one that was taken in.
    fn take_in(&mut self, process: u32, user: u32) -> Result<scheduler::Admission> {
        for (slot, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|member| member.process == process) {
                if member.executed >= EXECUTED {
                    bail!("the process has executed too many programs");
                }
                let admission = self.scheduler.renew(slot as u32)?;
                member.executed += 1;
                return Ok(admission);
            }
        }
        let pidfd = scheduler::pidfd(process).context("the asking process is gone")?;
        if !has_room(self.members.iter().flatten().map(|member| member.user), user) {
            bail!("you have too many programs under the scheduler, or all users have; end some");
        }
        let free = (1..SLOTS).find(|&slot| self.members[slot as usize].is_none());
        let slot = free.ok_or(bpf::Error::Full)?;
        let admission = self.scheduler.prepare(slot)?;
        if let Err(error) = self.scheduler.admit(pidfd.as_fd(), slot) {
            let _ = self.scheduler.release(slot);
            return Err(error.into());
        }
        self.members[slot as usize] = Some(Member { process, user, pidfd, executed: 0 });
        Ok(admission)
    }

    fn status(&self) -> Status {
        let programs = self.members.iter().enumerate().filter_map(|(slot, member)| {
            let had = self.scheduler.application(slot as u32).ok()?;
            Some(Program {
                process: member.as_ref()?.process,
                cpu_seconds: had.cpu_ns as f64 / 1e9,
                extended: had.extended,
                refused: had.refused,
                handed_off: had.handed,
            })
        });
        Status { schema: 1, in_charge: true, programs: programs.collect() }
    }
}

/// Descriptors of one message, at most.
const MOST: usize = 2;

/// A message with descriptors.
fn send(stream: &UnixStream, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = net::sendmsg(stream, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The beginning of an answer, and its descriptors.
fn receive(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut text = [0; 4096];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let length =
        net::recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok((String::from_utf8_lossy(&text[..length]).into_owned(), descriptors.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sends_it_descriptors() {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers =
            release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(16)) {
            return println!("skipped: Linux {release} cannot bar descriptors");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = listen(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        assert!(send(&client, b"join", &[listener.as_fd()]).is_err());
        let (server, _) = listener.accept().unwrap();
        assert!(send(&client, b"join", &[listener.as_fd()]).is_err());
        send(&client, b"join", &[]).unwrap();
        assert_eq!(receive(&server).unwrap().0, "join");
    }

    /// A client that has said all, and waits for the answer, has not hung up.
    #[test]
    fn who_has_given_up_is_seen() {
        let (server, client) = UnixStream::pair().unwrap();
        send(&client, b"join", &[]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!is(PollFlags::HUP, &server));
        drop(client);
        assert!(is(PollFlags::HUP, &server));
    }

    #[test]
    fn root_has_room_whatever_users_do() {
        let one = |count: usize| std::iter::repeat_n(1, count);
        assert!(has_room(one(OF_USER - 1), 1) && !has_room(one(OF_USER), 1) && has_room(one(OF_USER), 2));
        let many = || (1..=OF_USERS as u32).chain([0; 9]);
        assert!(!has_room(many(), 99) && has_room(many(), 0) && has_room(many().skip(1), 99));
        assert!(OF_USERS < SLOTS as usize - 1);
    }
}
