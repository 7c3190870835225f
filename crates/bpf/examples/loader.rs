// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes of the observer's object what [`bpf::shared`] loads it by, so that a server needs no libbpf:
//!
//!     cargo run -p wakeful-bpf --example loader >crates/bpf/src/bpf/observer.loader
//!
//! Two words, how many bytes of data and of instructions; the data; the instructions.

use std::io::{Error, Result, Write};

use libbpf_rs::libbpf_sys::{bpf_object__gen_loader, bpf_object__load, gen_loader_opts};
use libbpf_rs::{AsRawLibbpf, ObjectBuilder};

static OBJECT: &[u8] = include_bytes!("../src/bpf/observer.bpf.o");

pub fn generate() -> Result<Vec<u8>> {
    let mut builder = ObjectBuilder::default();
    // Else it would be an address.
    let object =
        builder.name("observer").and_then(|builder| builder.open_memory(OBJECT)).map_err(Error::other)?;
    let mut loader = gen_loader_opts { sz: size_of::<gen_loader_opts>() as _, ..Default::default() };
    let raw = object.as_libbpf_object().as_ptr();
    // SAFETY: a live object and a live structure of this size; with a generator, to load is to write down what would be done.
    let result = unsafe {
        match bpf_object__gen_loader(raw, &mut loader) {
            0 => bpf_object__load(raw),
            error => error,
        }
    };
    if result != 0 {
        return Err(Error::from_raw_os_error(-result));
    }
    let mut bytes = [loader.data_sz.to_le_bytes(), loader.insns_sz.to_le_bytes()].concat();
    for (start, length) in [(loader.data, loader.data_sz), (loader.insns, loader.insns_sz)] {
        // SAFETY: libbpf has written so many, and they are there as long as the object.
        bytes.extend(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length as usize) });
    }
    Ok(bytes)
}

#[allow(dead_code, reason = "tests/object.rs has this file too")]
fn main() -> Result<()> {
    std::io::stdout().write_all(&generate()?)
}
