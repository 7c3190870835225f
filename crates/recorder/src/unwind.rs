// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of a copied stack, by the call frame information of each file (x86-64).
//!
//! A look tells the stack pointer and the program counter, and no other register. Most frames need no more,
//! as compilers count from the stack pointer. Others count from the frame pointer (rbp). Where a function
//! between has saved it, it is on the stack. Where none has, [`Walk::guess`] tries the places where the frame
//! could end. Such a place holds an address behind a call. Best is a call of this very function, from which
//! the rest of the stack unwinds to the thread's beginning.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, Expression,
    FrameDescriptionEntry, Location, NativeEndian, RegisterRule, UnwindContext, UnwindSection, Value,
};

use crate::image::Image;
use crate::look::Look;
use crate::maps::{File, Place, Space};

type Slice<'a> = EndianSlice<'a, NativeEndian>;

/// Numbers of registers in call frame information: what a callee keeps, the pointers, the return address.
const RBX: usize = 3;
const RBP: usize = 6;
const RSP: usize = 7;
const KEPT: [usize; 6] = [RBX, RBP, 12, 13, 14, 15];
const RETURN: usize = 16;
const REGISTERS: usize = 17;

/// BOUND: frames of a stack, and places that are tried where a frame's end is unknown.
const MOST_FRAMES: usize = 256;
const MOST_GUESSES: usize = 24;

/// A stack, innermost frame first.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub struct Stack {
    /// Where each function is: of all but the first one, behind the call.
    pub places: Vec<Place>,
    /// From this frame on it is a guess.
    pub guessed_from: Option<usize>,
    /// Does it reach the thread's beginning?
    pub is_whole: bool,
}

type Registers = [Option<u64>; REGISTERS];

/// How a function keeps its frame at one address.
struct Row {
    cfa: Rule,
    registers: Vec<(usize, Rule)>,
    encoding: gimli::Encoding,
    /// Where the function begins.
    function: u64,
    is_signal: bool,
}

enum Rule {
    Undefined,
    Same,
    /// In memory, so many bytes from the frame's end.
    At(i64),
    /// Itself so many bytes from the frame's end.
    Is(i64),
    /// Another register, and so many bytes more.
    Register(usize, i64),
    /// In memory where the expression says.
    AtExpression(Vec<u8>),
    Expression(Vec<u8>),
}

/// What is known of the files so far.
pub struct Unwinder {
    began: SystemTime,
    files: HashMap<Arc<File>, Option<Rc<Frames>>>,
}

/// A file's frames.
struct Frames {
    image: Image,
    /// First address, end and offset of each entry, where the file has no index.
    index: Vec<(u64, u64, usize)>,
    rows: std::cell::RefCell<HashMap<u64, Option<Rc<Row>>>>,
}

impl Unwinder {
    /// Files that are newer may be others than those that were mapped.
    pub fn new(began: SystemTime) -> Self {
        Self { began, files: HashMap::new() }
    }

    /// The frames of a thread of the process with this space.
    pub fn unwind(&mut self, space: &Space, look: &Look) -> Stack {
        let mut registers = [None; REGISTERS];
        registers[RSP] = Some(look.sp);
        registers[RETURN] = Some(look.pc);
        registers[RBP] = look.bp;
        let mut walk = Walk { unwinder: self, space, look, guesses: MOST_GUESSES };
        let mut stack = Stack::default();
        walk.go(registers, true, &mut stack);
        stack
    }

    fn frames(&mut self, file: &Arc<File>) -> Option<Rc<Frames>> {
        if !self.files.contains_key(file) {
            let frames = file.open(self.began).and_then(Image::of);
            self.files.insert(file.clone(), frames.map(|image| Rc::new(Frames::new(image))));
        }
        self.files[file].clone()
    }
}

/// One stack.
struct Walk<'a> {
    unwinder: &'a mut Unwinder,
    space: &'a Space,
    look: &'a Look,
    guesses: usize,
}

impl Walk<'_> {
    /// Adds frames to `stack` as far as they can be found. `exact`: the address is that of the next
    /// instruction, and not behind a call.
    fn go(&mut self, mut registers: Registers, mut exact: bool, stack: &mut Stack) {
        while stack.places.len() < MOST_FRAMES {
            let Some(pc) = registers[RETURN] else { return };
            if pc == 0 {
                stack.is_whole = true;
                return;
            }
            let Some(place) = self.space.at(pc) else { return };
            stack.places.push(place.clone());
            let Some((frames, row)) = self.row(&place, exact) else { return };
            let cfa = match row.cfa {
                Rule::Register(RBP, offset) if registers[RBP].is_none() => {
                    return self.guess(&frames, &row, offset, registers, stack);
                }
                ref rule => self.value(rule, &row, &registers, None),
            };
            let Some(caller) = cfa.and_then(|cfa| self.caller(&row, &registers, cfa)) else { return };
            if caller[RETURN].is_none() {
                // By its own word nobody has called it.
                stack.is_whole = row.ends();
                return;
            }
            if caller[RSP] <= registers[RSP] {
                return;
            }
            exact = row.is_signal;
            registers = caller;
        }
    }

    /// The registers of the caller of a frame that ends at `cfa`.
    fn caller(&self, row: &Row, registers: &Registers, cfa: u64) -> Option<Registers> {
        let mut caller = [None; REGISTERS];
        for register in KEPT {
            caller[register] = registers[register];
        }
        caller[RSP] = Some(cfa);
        for (register, rule) in &row.registers {
            caller[*register] = match rule {
                Rule::Same => registers[*register],
                rule => self.value(rule, row, registers, Some(cfa)),
            };
        }
        Some(caller)
    }

    /// Goes on from the likeliest place where a frame may end whose pointer is unknown.
    fn guess(&mut self, frames: &Frames, row: &Row, offset: i64, registers: Registers, stack: &mut Stack) {
        let from = stack.places.len();
        let mut likely = Vec::new();
        let mut possible = Vec::new();
        // The frame pointer lies below what it points to: the caller's own, and the return address.
        let words = self.look.stack.len() / 8;
        let above = registers[RSP].unwrap_or(self.look.sp).saturating_sub(self.look.sp);
        let first = above.div_ceil(8) as usize;
        for word in first..words {
            let pointer = self.look.sp.wrapping_add(8 * word as u64);
            let mut tried = registers;
            tried[RBP] = Some(pointer);
            let cfa = pointer.wrapping_add_signed(offset);
            let Some(caller) = self.caller(row, &tried, cfa) else { continue };
            let Some(behind) = caller[RETURN].and_then(|pc| self.space.at(pc)) else { continue };
            match self.calls(&behind, frames, row.function) {
                Some(true) => likely.push(caller),
                Some(false) => possible.push(caller),
                None => {}
            }
        }
        let mut best: Option<Stack> = None;
        for caller in likely.into_iter().chain(possible) {
            if self.guesses == 0 {
                break;
            }
            self.guesses -= 1;
            let mut tried = stack.clone();
            tried.guessed_from.get_or_insert(from);
            self.go(caller, false, &mut tried);
            let is_whole = tried.is_whole;
            if is_whole || best.is_none() {
                best = Some(tried);
            }
            if is_whole {
                break;
            }
        }
        if let Some(best) = best {
            *stack = best;
        }
    }

    /// Is there a call before this place? And if so, one of that function?
    fn calls(&mut self, behind: &Place, frames: &Frames, function: u64) -> Option<bool> {
        let file = behind.file.as_ref()?;
        let caller = self.unwinder.frames(file)?;
        let bytes: [u8; 7] = caller.image.before(behind.offset)?;
        if bytes[2] == 0xe8 {
            let distance = i32::from_ne_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
            let target = caller.image.address(behind.offset)?.wrapping_add_signed(distance.into());
            if std::ptr::eq(&*caller, frames) && target == function {
                return Some(true);
            }
            return Some(false);
        }
        // call *register, *(register), *d8(register), *d32(register) and *d32(rip), also with a prefix.
        let indirect = |at: usize, length: usize| {
            bytes[at] == 0xff && bytes[at + 1] & 0x38 == 0x10 && at + length == bytes.len()
        };
        let is_call = indirect(5, 2) || indirect(4, 3) || indirect(3, 4) || indirect(1, 6) || indirect(0, 7);
        is_call.then_some(false)
    }

    fn row(&mut self, place: &Place, exact: bool) -> Option<(Rc<Frames>, Rc<Row>)> {
        let frames = self.unwinder.frames(place.file.as_ref()?)?;
        let address = frames.image.address(place.offset)?.checked_sub(u64::from(!exact))?;
        let known = frames.rows.borrow().get(&address).cloned();
        let row = known.unwrap_or_else(|| {
            let row = frames.row(address).map(Rc::new);
            frames.rows.borrow_mut().insert(address, row.clone());
            row
        });
        Some((frames, row?))
    }

    fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.look.sp)?).ok()?;
        let bytes = self.look.stack.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn value(&self, rule: &Rule, row: &Row, registers: &Registers, cfa: Option<u64>) -> Option<u64> {
        let register = |number: usize| *registers.get(number)?;
        match rule {
            Rule::Undefined | Rule::Same => None,
            Rule::At(offset) => self.read(cfa?.wrapping_add_signed(*offset)),
            Rule::Is(offset) => Some(cfa?.wrapping_add_signed(*offset)),
            Rule::Register(number, offset) => Some(register(*number)?.wrapping_add_signed(*offset)),
            Rule::Expression(bytes) => self.evaluate(bytes, row, registers, cfa),
            Rule::AtExpression(bytes) => self.read(self.evaluate(bytes, row, registers, cfa)?),
        }
    }

    fn evaluate(&self, bytes: &[u8], row: &Row, registers: &Registers, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = Expression(Slice::new(bytes, NativeEndian)).evaluation(row.encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        evaluation.set_max_iterations(1000);
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = (*registers.get(usize::from(register.0))?)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.read(address)?)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result().first()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

impl Row {
    /// Does it say that nobody called the function? That is how a thread's first one is marked.
    fn ends(&self) -> bool {
        self.registers.iter().any(|(register, rule)| *register == RETURN && matches!(rule, Rule::Undefined))
    }
}

impl Frames {
    fn new(image: Image) -> Self {
        let mut frames = Self { image, index: Vec::new(), rows: Default::default() };
        frames.index = if !frames.image.debug_frame.bytes.is_empty() {
            index(&frames.debug_frame(), &frames.bases())
        } else if frames.image.eh_frame_hdr.bytes.is_empty() {
            index(&frames.eh_frame(), &frames.bases())
        } else {
            Vec::new()
        };
        frames
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.image.eh_frame.bytes, NativeEndian);
        section.set_address_size(8);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.image.debug_frame.bytes, NativeEndian);
        section.set_address_size(8);
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.image.eh_frame.address)
            .set_eh_frame_hdr(self.image.eh_frame_hdr.address)
            .set_text(self.image.text)
            .set_got(self.image.got)
    }

    fn row(&self, address: u64) -> Option<Row> {
        let bases = self.bases();
        if let Some(offset) = self.offset(address) {
            return if self.image.debug_frame.bytes.is_empty() {
                let section = self.eh_frame();
                let entry = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset).ok()?;
                row(&section, &bases, &entry, address)
            } else {
                let section = self.debug_frame();
                let entry =
                    section.fde_from_offset(&bases, offset.into(), DebugFrame::cie_from_offset).ok()?;
                row(&section, &bases, &entry, address)
            };
        }
        let header = EhFrameHdr::new(&self.image.eh_frame_hdr.bytes, NativeEndian).parse(&bases, 8).ok()?;
        let section = self.eh_frame();
        let entry =
            header.table()?.fde_for_address(&section, &bases, address, EhFrame::cie_from_offset).ok()?;
        row(&section, &bases, &entry, address)
    }

    /// The entry for an address, by our own index.
    fn offset(&self, address: u64) -> Option<usize> {
        let after = self.index.partition_point(|&(start, ..)| start <= address);
        let &(_, end, offset) = self.index.get(after.checked_sub(1)?)?;
        (address < end).then_some(offset)
    }
}

fn index<'a, S>(section: &S, bases: &BaseAddresses) -> Vec<(u64, u64, usize)>
where
    S: UnwindSection<Slice<'a>>,
{
    let mut index = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(S::cie_from_offset)
        {
            index.push((entry.initial_address(), entry.end_address(), entry.offset()));
        }
    }
    index.sort_unstable();
    index
}

fn row<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Slice<'a>>,
    address: u64,
) -> Option<Row>
where
    S: UnwindSection<Slice<'a>>,
{
    let mut context = UnwindContext::new();
    let found = entry.unwind_info_for_address(section, bases, &mut context, address).ok()?;
    let bytes = |expression: &gimli::UnwindExpression<usize>| {
        Some(expression.get::<Slice<'a>, S>(section).ok()?.0.slice().to_vec())
    };
    let cfa = match found.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Rule::Register(register.0.into(), *offset),
        CfaRule::Expression(expression) => Rule::Expression(bytes(expression)?),
    };
    let mut registers = Vec::new();
    for (register, rule) in found.registers() {
        let rule = match rule {
            RegisterRule::SameValue => Rule::Same,
            RegisterRule::Offset(offset) => Rule::At(*offset),
            RegisterRule::ValOffset(offset) => Rule::Is(*offset),
            RegisterRule::Register(other) => Rule::Register(other.0.into(), 0),
            RegisterRule::Expression(expression) => Rule::AtExpression(bytes(expression)?),
            RegisterRule::ValExpression(expression) => Rule::Expression(bytes(expression)?),
            _ => Rule::Undefined,
        };
        if usize::from(register.0) < REGISTERS {
            registers.push((register.0.into(), rule));
        }
    }
    Some(Row {
        cfa,
        registers,
        encoding: entry.cie().encoding(),
        function: entry.initial_address(),
        is_signal: entry.is_signal_trampoline(),
    })
}
