// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `wakefuld`.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use anyhow::{Context, bail};
use clap::Parser;
use daemon::args::{Args, CONFIG};
use daemon::config::By;
use daemon::loader::{self, Loader};
use daemon::{Config, Server, kernel};

fn main() {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            std::process::exit(if error.use_stderr() { 125 } else { 0 });
        }
    };
    if let Err(error) = run(&args) {
        eprintln!("wakefuld: {error:#}");
        std::process::exit(125);
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if args.print_config {
        print!("{}", daemon::config::DOCUMENTED);
        return Ok(());
    }
    if args.print_man {
        print!("{}", include_str!("../man/wakefuld.8"));
        return Ok(());
    }
    let level = [tracing::Level::WARN, tracing::Level::INFO][args.verbose.min(1) as usize];
    let level = if args.verbose > 1 { tracing::Level::DEBUG } else { level };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
    if args.config != Path::new(CONFIG) && !args.config.exists() {
        bail!("there is no {};\n`wakefuld --print-config` prints one to begin with", args.config.display());
    }
    let config = Config::load(&args.config)?;
    let realtime = config.enforcement.realtime;
    // Before there is anything that it could have of us, and any thread.
    let loader = Loader::fork(|| hurry(realtime)).context("cannot start the loader")?;
    let blocks = args.folder.join("partitions");
    make(&args.folder, 0o755)?;
    make(&blocks, 0o700)?;
    // Until this process ends.
    let _only = lock(&args.folder, &blocks)?;
    let _of_group = lock_group(&config)?;
    let socket = args.folder.join("wakefuld");
    let (listener, ours) = match activated()? {
        Some(listener) => (listener, false),
        None => {
            let _ = fs::remove_file(&socket);
            let listener = kernel::listen(&socket);
            let listener = listener.with_context(|| {
                // sun_path of unix(7).
                let long = if socket.as_os_str().len() > 107 {
                    ": its path may have 107 bytes; choose a shorter --folder"
                } else {
                    ""
                };
                format!("cannot make the socket {}{long}", socket.display())
            })?;
            (listener, true)
        }
    };
    let stop = stop_signals()?;
    // Before the programs of an earlier server are taken over.
    have_descriptors();
    let mut kernel = kernel::Linux::new()?;
    if let Err(error) = kernel.read_only(&blocks) {
        tracing::warn!(
            "a user with number 0, in a container too, could write what the server tells it: {error}"
        );
    }
    // What is left: to write control groups that users own, and to move and pin the processes of others.
    hurry(realtime);
    loader::keep_only(&[loader::DAC_OVERRIDE, loader::SYS_NICE]);
    kernel.with(loader)?;
    let mut server = Server::start(kernel, config, listener, &blocks).with_context(|| {
        format!(
            "cannot keep partitions here; as root, `enforcement.by` in {} says how",
            args.config.display()
        )
    })?;
    server.stop_by(&stop)?;
    let notify = Notify::from_systemd();
    notify.say("READY=1");
    server.run_and_say(|| notify.say("WATCHDOG=1"));
    if ours {
        let _ = fs::remove_file(&socket);
    }
    Ok(())
}

/// Three a program, and one a connection: as many as we may.
fn have_descriptors() {
    // SAFETY: a limit that lives, and that the first call fills.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Programs that ask wait until we run, on processors that are loaded. As a real-time task we run before all
/// others, also before other control groups and sessions, between which a nice value decides nothing. We run
/// for 95 % of a second at most; the kernel sees to that (`sched_rt_runtime_us`). Else with the most weight,
/// and in slices so short that the kernel lets us preempt.
fn hurry(realtime: bool) {
    /// BOUND: ns; the shortest slice that Linux grants.
    const SLICE_NS: u64 = 100_000;
    /// SCHED_FLAG_RESET_ON_FORK: threads and children of ours are ordinary.
    const RESET_ON_FORK: u64 = 1;
    let set = |policy: libc::c_int, nice, priority, slice_ns| {
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: policy as u32,
            sched_flags: RESET_ON_FORK,
            sched_nice: nice,
            sched_priority: priority,
            sched_runtime: slice_ns,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: it lives, and says how long it is.
        match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // A control group of the server may have no real-time share.
    let done =
        if realtime { set(libc::SCHED_FIFO, 0, 1, 0) } else { Err(std::io::ErrorKind::Unsupported.into()) };
    if let Err(error) = done.or_else(|_| set(libc::SCHED_OTHER, -20, 0, SLICE_NS)) {
        tracing::warn!("no higher priority than others: {error}");
    }
    lead_session();
}

/// Linux divides time among sessions before it looks at nice values (autogroup). What is said here is the
/// whole session's, so whoever is in another's session leaves that alone.
fn lead_session() {
    // SAFETY: plain numbers.
    let leads = unsafe { libc::getsid(0) == libc::getpid() };
    // Where the kernel knows no such groups, there is no such file.
    if leads && let Err(error) = fs::write("/proc/self/autogroup", "-20") {
        tracing::debug!("the session's weight: {error}");
    }
}

fn make(folder: &Path, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("cannot make the folder {}; wakefuld runs as root", folder.display()))
}

/// Where servers with different folders see one another.
const LOCKS: &str = "/run/wakeful/groups";

/// There is one server for a base group, whatever its folder: two would take each other's processors for changes by strangers.
fn lock_group(config: &Config) -> anyhow::Result<Option<File>> {
    let folder = Path::new(LOCKS);
    let private = || make(Path::new("/run/wakeful"), 0o755).and_then(|()| make(folder, 0o700));
    // Without control groups there is nothing to share; who may not write there has none.
    if config.enforcement.by == By::Affinity || private().is_err() {
        return Ok(None);
    }
    let group = config.enforcement.group.trim_matches('/');
    // A name has up to 255 bytes.
    let name: String = group.bytes().rev().take(120).map(|byte| format!("{byte:02x}")).collect();
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options
        .open(folder.join(format!("of-{name}")))
        .context("cannot make the lock file of the base group")?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "another wakefuld divides the processors of the control group /{group};\none has to end, or to have another `enforcement.group`"
        ),
        Err(fs::TryLockError::Error(error)) => Err(error).context("cannot lock the base group"),
    }
}

/// There is one server for a folder. The kernel lets go when we end, however that happens.
/// It is in a folder that only root can look into: whoever could open it could hold it.
fn lock(folder: &Path, private: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(private.join("lock")).context("cannot make the lock file")?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "a wakefuld runs already in {};\n`wakeful status` asks it; `systemctl stop wakefuld`, or SIGTERM, ends it",
            folder.display()
        ),
        Err(fs::TryLockError::Error(error)) => Err(error).context("cannot lock the folder"),
    }
}

/// The socket that systemd listens at for us (sd_listen_fds(3)).
fn activated() -> anyhow::Result<Option<OwnedFd>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        Some(1) => {
            // SAFETY: by the protocol, descriptor 3 is ours.
            let fd = unsafe { OwnedFd::from_raw_fd(3) };
            // SAFETY: plain numbers.
            if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
                bail!("what systemd passed is no socket: {}", std::io::Error::last_os_error());
            }
            Ok(Some(fd))
        }
        count => bail!("systemd passed {count:?} sockets; the unit must have one ListenSequentialPacket"),
    }
}

/// The socket at which systemd hears that we are ready and live (sd_notify(3)).
struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    fn from_systemd() -> Self {
        let open = || {
            let name = std::env::var_os("NOTIFY_SOCKET")?;
            let address = match name.as_bytes() {
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
                _ => SocketAddr::from_pathname(&name),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        };
        Self(open())
    }

    fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.0 {
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}

/// Readable when we are to stop.
fn stop_signals() -> anyhow::Result<OwnedFd> {
    // SAFETY: a set that lives; the descriptor is new and ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error()).context("cannot wait for signals"),
        }
    }
}
