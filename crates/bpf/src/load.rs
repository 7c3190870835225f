// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the observer, which is what needs libbpf.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{Link, MapCore, Object};

use crate::{Admission, Error, Observer, admission, move_up};

static OBJECT: &[u8] = include_bytes!("bpf/observer.bpf.o");

impl From<libbpf_rs::Error> for Error {
    fn from(error: libbpf_rs::Error) -> Self {
        match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) => Self::NoBpf,
            _ => Self::Refused(error),
        }
    }
}

/// libbpf talks on stderr, which is the program's.
pub(crate) fn quietly<T>(body: impl FnOnce() -> T) -> T {
    let printer = libbpf_rs::set_print(None);
    let done = body();
    libbpf_rs::set_print(printer);
    done
}

pub(crate) fn map<'a>(object: &'a Object, name: &str) -> libbpf_rs::Map<'a> {
    object.maps().find(|map| map.name() == name).expect("the object has it")
}

pub(crate) fn load_observer() -> Result<(Object, Link), Error> {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::NoBtf);
    }
    let object = libbpf_rs::ObjectBuilder::default().open_memory(OBJECT)?.load()?;
    let link = object
        .progs_mut()
        .find(|program| program.name() == "sched_switch")
        .expect("the object has it")
        .attach()?;
    Ok((object, link))
}

impl Observer {
    /// Loads the observer into the kernel and starts it. Privileged; takes some milliseconds.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn load() -> Result<Self, Error> {
        let (object, link) = quietly(load_observer)?;
        let enrol = object.progs().find(|program| program.name() == "enrol").expect("the object has it");
        let Admission { arena, enrol, .. } =
            admission::prepare(map(&object, "arenas").as_fd(), enrol.as_fd(), 0, None)?;
        let link = move_up(link.as_fd())?;
        Ok(Self { arena: arena.into(), enrol: enrol.into(), link: Some(link) })
    }
}
