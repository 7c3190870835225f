// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file of a process: what the unwinder and the names need of it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::{Object, ObjectSection, ObjectSegment, ReadCache};

/// A file's code, and how it says its functions keep their frames.
pub struct Image {
    file: File,
    /// Where parts of the file lie in memory.
    segments: Vec<Segment>,
    /// `.eh_frame` and its address.
    pub eh_frame: Section,
    /// `.eh_frame_hdr`, the index of the former.
    pub eh_frame_hdr: Section,
    /// `.debug_frame`, which Go has instead.
    pub debug_frame: Section,
    /// The addresses of `.text` and `.got`, which pointers may be relative to.
    pub text: u64,
    /// See `text`.
    pub got: u64,
    /// What the linker calls this very file, in hexadecimal digits.
    pub build_id: Option<String>,
}

/// A part of a file that lies in memory.
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
    /// Bytes in memory. Those beyond the file's are zero at first.
    size: u64,
    is_code: bool,
}

/// What a mapping begins at a multiple of: of the smallest pages.
const PAGE: u64 = 4096;

/// BOUND: bytes of a section. The largest programs have some 100 MB of call frame information.
const MOST_BYTES: u64 = 256 << 20;

/// A section of a file; empty if there is none.
#[derive(Default)]
pub struct Section {
    /// Where it lies in memory.
    pub address: u64,
    /// Its bytes, uncompressed.
    pub bytes: Vec<u8>,
}

impl Image {
    /// None if it is no ELF file, or is damaged.
    pub fn of(file: File) -> Option<Self> {
        Self::read(file, true)
    }

    /// The same for names alone, without how functions keep their frames.
    pub fn without_frames(file: File) -> Option<Self> {
        Self::read(file, false)
    }

    fn read(file: File, with_frames: bool) -> Option<Self> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let object = object::File::parse(&cache).ok()?;
        let section = |name: &str| {
            let section = object.section_by_name(name).filter(|_| with_frames)?;
            // What it says of its length is believed only so far.
            let data = section.compressed_file_range().ok()?;
            if data.uncompressed_size.max(data.compressed_size) > MOST_BYTES {
                return None;
            }
            let bytes = section.uncompressed_data().ok()?.into_owned();
            Some(Section { address: section.address(), bytes })
        };
        let address = |name: &str| object.section_by_name(name).map_or(0, |section| section.address());
        let segment = |segment: object::Segment<_>| {
            let (offset, bytes) = segment.file_range();
            let is_code = segment.permissions().executable();
            Segment { offset, bytes, address: segment.address(), size: segment.size(), is_code }
        };
        let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self {
            segments: object.segments().map(segment).collect(),
            eh_frame: section(".eh_frame").unwrap_or_default(),
            eh_frame_hdr: section(".eh_frame_hdr").unwrap_or_default(),
            debug_frame: section(".debug_frame").unwrap_or_default(),
            text: address(".text"),
            got: address(".got"),
            build_id: object.build_id().ok().flatten().map(digits),
            file,
        })
    }

    /// The address that a part of the file has, if the file lies where it was linked to.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let holds = |one: &&Segment| offset >= one.offset && offset - one.offset < one.bytes;
        self.segments.iter().find(holds).map(|one| (offset - one.offset).wrapping_add(one.address))
    }

    /// The address of what lies so far behind code whose mapping begins at that offset, if the file has
    /// memory there.
    pub fn address_behind(&self, offset: u64, behind: u64) -> Option<u64> {
        let is_its = |one: &&Segment| {
            let start = one.offset & !(PAGE - 1);
            one.is_code && offset >= start && offset - start < one.bytes.saturating_add(one.offset - start)
        };
        let code = self.segments.iter().find(is_its)?;
        let address = code.address.wrapping_add(offset).wrapping_sub(code.offset).wrapping_add(behind);
        let holds = |one: &Segment| address >= one.address && address - one.address < one.size;
        self.segments.iter().any(holds).then_some(address)
    }

    /// The bytes before an offset in the file.
    pub fn before<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, offset.checked_sub(N as u64)?).ok()?;
        Some(bytes)
    }
}
