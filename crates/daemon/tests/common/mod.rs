// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers, programs and control groups of a test's own, on the machine that it runs on.
#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

mod damage;
pub mod stories;

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use damage::damaged;
use linux::server::{Connection, Demand, Entry, Envelope, Error, Request, State, Summary};

pub const LIMIT: Duration = Duration::from_secs(120);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that does not outlive the test.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn idle() -> Self {
        Self::start(Command::new("sleep").arg("1000"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// What the kernel lets it run on.
    pub fn allowed(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_string()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that we have not waited for.
        assert_eq!(unsafe { libc::kill(self.id() as i32, signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder, a configuration, and servers one after the other.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new(config: &str) -> Self {
        Self::within(&std::env::temp_dir(), config)
    }

    /// In memory, as /run is: to remove a file from a disk can take milliseconds.
    pub fn in_memory(config: &str) -> Self {
        Self::within(Path::new("/dev/shm"), config)
    }

    fn within(parent: &Path, config: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir_in(parent).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("config.toml"), config).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Members that the server remembers.
    pub fn blocks(&self) -> usize {
        let names =
            fs::read_dir(self.path("run/partitions")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().parse::<u32>().is_ok()).count()
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakefuld"));
        command.arg("--config").arg(self.path("config.toml")).arg("--folder").arg(self.path("run"));
        command
    }

    pub fn server(&self) -> Process {
        let server = Process::start(&mut self.command());
        eventually("the server answers", || self.connect().is_ok());
        server
    }

    /// One that leads a session of its own, as a service does.
    pub fn server_of_a_session(&self) -> Process {
        use std::os::unix::process::CommandExt;
        let mut command = self.command();
        // SAFETY: a call that a child may make.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            })
        };
        let server = Process::start(&mut command);
        eventually("the server answers", || self.connect().is_ok());
        server
    }

    pub fn connect(&self) -> Result<Connection, Error> {
        let mut connection = Connection::open_at(self.path("run/wakefuld").to_str().unwrap())?;
        connection.status()?;
        Ok(connection)
    }
}

pub fn ask(place: &Place, request: impl Into<Envelope>) -> Result<State, Error> {
    let path = place.path("run/wakefuld");
    Ok(Connection::open_at(path.to_str().unwrap())?.ask(request)?.0)
}

pub fn join(process: u32, count: u32) -> Envelope {
    join_at(0, process, count)
}

/// The same, with a priority.
pub fn join_at(priority: u32, process: u32, count: u32) -> Envelope {
    Request::Join(Demand::new(priority, count, count, count)).of(process)
}

/// How many processors this test may use at all.
pub fn several() -> bool {
    let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !several {
        println!("skipped: one processor cannot be divided");
    }
    several
}

/// Of a process: seconds of processor time, bytes in memory, open descriptors.
pub fn usage(process: u32) -> (f64, u64, usize) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let busy_ns: f64 = read("schedstat").split_whitespace().next().unwrap().parse().unwrap();
    let pages: u64 = read("statm").split_whitespace().nth(1).unwrap().parse().unwrap();
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    (busy_ns / 1e9, pages * 4096, files)
}

/// All entries and the summary.
pub fn status(connection: &mut Connection) -> (Vec<Entry>, Summary) {
    connection.status().unwrap()
}

/// A generator of its own: the same numbers each time.
pub fn random() -> impl FnMut() -> u32 {
    random_from(1)
}

/// Others, but the same each time too.
pub fn random_from(mut seed: u64) -> impl FnMut() -> u32 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 32) as u32
    }
}

/// Runs this in a thread that is an ordinary user's, if this program is root's.
pub fn as_nobody<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        // SAFETY: plain numbers; the call itself, unlike libc's function of this name, is about this thread
        // alone.
        unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        body()
    };
    std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
}

/// Long tests? Not in an emulated machine, where all takes longer.
pub fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some() && std::env::var_os("WAKEFUL_IN_GUEST").is_none()
}

const V1: &str = "/sys/fs/cgroup/cpuset";
const V2: &str = "/sys/fs/cgroup";

/// A control group whose processes are the default partition.
pub struct Base {
    pub folder: PathBuf,
    v2: bool,
}

impl Base {
    /// With all processors of cgroup v1, if they can be divided: one of this test's own.
    pub fn v1(name: &str) -> Option<Self> {
        // SAFETY: no arguments.
        let root = unsafe { libc::geteuid() } == 0;
        if !several() || !root || !Path::new(V1).join("cpuset.cpus").exists() {
            println!("skipped: one processor, no cpusets at {V1}, or not root");
            return None;
        }
        remove_orphans();
        let folder = Path::new(V1).join(format!("wakeful-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for file in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(folder.join(file), fs::read_to_string(Path::new(V1).join(file)).unwrap().trim())
                .unwrap();
        }
        Some(Self { folder, v2: false })
    }

    /// The root of cgroup v2, so everybody: for guests only.
    pub fn v2() -> Self {
        assert!(
            std::env::var_os("WAKEFUL_IN_GUEST").is_some(),
            "this would take the whole machine; vm/test runs it in a guest"
        );
        Self { folder: V2.into(), v2: true }
    }

    pub fn take(&self, process: &Process) {
        fs::write(self.folder.join("cgroup.procs"), process.id().to_string()).unwrap();
    }

    pub fn place(&self) -> Place {
        // The observer has descriptors of its own.
        self.place_with("[observer]\nenabled = false\n")
    }

    /// With more of a configuration.
    pub fn place_with(&self, more: &str) -> Place {
        Place::new(&self.config(more))
    }

    /// What makes this group the base group, and more.
    pub fn config(&self, more: &str) -> String {
        let (by, mount) = if self.v2 { ("cgroup-v2", V2) } else { ("cgroup-v1", V1) };
        let group = self.folder.strip_prefix(mount).unwrap().display();
        format!("[enforcement]\nby = \"{by}\"\ngroup = \"/{group}\"\n{more}")
    }

    /// That of a process's partition.
    pub fn group(&self, process: &Process) -> PathBuf {
        self.folder.join(format!("wakeful-{}", process.id()))
    }

    /// Groups of processes that are there.
    pub fn groups(&self) -> usize {
        let names = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_str().unwrap().starts_with("wakeful-") && name != "wakeful-default")
            .count()
    }

    /// A server has ended, and has left nothing.
    pub fn end(self) {
        assert_eq!((self.groups(), self.folder.join("wakeful-default").exists()), (0, false));
        // Who is killed is in it until it is dead.
        eventually("the group is empty", || self.v2 || fs::remove_dir(&self.folder).is_ok());
    }
}

/// Groups of tests that were killed, as far as nobody is in them.
fn remove_orphans() {
    for entry in fs::read_dir(V1).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let test = name.strip_prefix("wakeful-test-").and_then(|rest| rest.split('-').next());
        if test.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            for group in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(group.path());
            }
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if !self.v2 {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// A packet with descriptors.
pub fn send_with(connection: &Connection, packet: &[u8], fds: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut room = [0u64; 16];
    let mut part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    // SAFETY: the message describes live memory, with room for so many numbers.
    unsafe {
        let size = size_of_val(&numbers[..]) as u32;
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        (header.msg_control, header.msg_controllen) =
            (room.as_mut_ptr().cast(), libc::CMSG_SPACE(size) as usize);
        let control = libc::CMSG_FIRSTHDR(&header);
        ((*control).cmsg_level, (*control).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*control).cmsg_len = libc::CMSG_LEN(size) as usize;
        std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), libc::CMSG_DATA(control), size as usize);
        match libc::sendmsg(connection.as_fd().as_raw_fd(), &header, libc::MSG_NOSIGNAL) {
            0.. => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// A socket whose last close takes an hour, and the end that nobody reads from.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Less than the sender's buffer, or everything may arrive in the end.
    option(&listener, libc::SO_RCVBUF, 4096 as libc::c_int);
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    let stream = stream.into();
    linger_for(&stream, 3600);
    (stream, other)
}

pub fn linger_for(socket: &OwnedFd, seconds: i32) {
    option(socket, libc::SO_LINGER, libc::linger { l_onoff: 1, l_linger: seconds });
}

fn option<T>(socket: &impl AsRawFd, option: libc::c_int, value: T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: it lives and is of this size.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), size)
    };
    assert_eq!(set, 0);
}

/// Threads of this process with this name.
pub fn threads_called(name: &str) -> usize {
    let names = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("comm")));
    names.filter(|read| read.as_ref().is_ok_and(|read| read.trim() == name)).count()
}
