# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fibers in gdb: of a program that is stopped, or of its dump.

    info fibers       each fiber: its number, state, name, and where it is
    fiber bt N        the stack of one; `all` for N shows each

gdb loads it by itself where the library is installed: the package libwakeful-dev and `packaging/install` put it
where gdb looks, under share/gdb/auto-load. Otherwise, and for programs in Rust: `source libwakeful.so-gdb.py`. It changes nothing in the program. It needs
the symbol WAKEFUL_FIBERS and no debug information of ours (crates/fiber/src/debuggers.rs says what is there).
"""

import os
import struct

import gdb
import gdb.unwinder

PARKED, ASLEEP = 2, 3


class Memory:
    """The program's memory, read as numbers."""

    def __init__(self):
        # The words of an expression are those of the program's language, which may be Rust.
        language = gdb.parameter("language")
        gdb.execute("set language c", to_string=True)
        try:
            table = int(gdb.parse_and_eval("(unsigned long)&WAKEFUL_FIBERS"))
        except gdb.error:
            raise gdb.GdbError("No fibers: the program has no symbol WAKEFUL_FIBERS (yet).")
        finally:
            gdb.execute("set language " + language, to_string=True)
        numbers = struct.unpack("<17I", self.read(table, 68))
        if numbers[0] != 1:
            raise gdb.GdbError("This script is of another version than the program.")
        self.slab, self.record, self.fiber, self.text = numbers[1:5], numbers[5:7], numbers[7:16], numbers[16]
        self.slabs = self.word(table + 72)

    def read(self, address, size):
        return gdb.selected_inferior().read_memory(address, size).tobytes()

    def word(self, address):
        return struct.unpack("<Q", self.read(address, 8))[0]

    def half(self, address):
        return struct.unpack("<I", self.read(address, 4))[0]

    def fibers(self):
        """Those that are alive, in the order of their addresses."""
        found = []
        slab = self.word(self.slabs)
        while slab:
            start, stride, stacks, older = (self.word(slab + at) for at in self.slab)
            for stack in range(start, start + stacks * stride, stride):
                size, align = self.record
                record = (stack + stride - size) & ~(align - 1)
                if self.half(record + self.fiber[0]):
                    found.append(Fiber(self, record))
            slab = older
        self.find_running(found)
        return sorted(found, key=lambda fiber: fiber.record)

    def find_running(self, fibers):
        """Says of each fiber that a thread is on its stack: as it runs, or has called a new one to join it."""
        before = gdb.selected_thread()
        try:
            for thread in gdb.selected_inferior().threads():
                thread.switch()
                sp = int(gdb.newest_frame().read_register("rsp"))
                while here := next((one for one in fibers if one.stack < sp < one.top and not one.thread), None):
                    here.runs_on(thread)
                    # The end of its own stack says where its caller's goes on.
                    sp = self.word(here.yielder)
        finally:
            if before:
                before.switch()


class Fiber:
    """One fiber: what its record says."""

    def __init__(self, memory, record):
        self.record = record
        refs, token, started, name, yielder, coroutine, size, stack, top = memory.fiber
        token = memory.half(record + token)
        self.stack, self.top = memory.word(record + stack), memory.word(record + top)
        words = struct.unpack(f"<{size // 8}Q", memory.read(record + coroutine, size // 8 * 8))
        self.yielder = memory.word(record + yielder)
        low = [word for word in words if self.stack < word < self.yielder]
        self.asleep, self.thread, self.registers = token == ASLEEP, None, None
        if memory.read(record + started, 1) == b"\0" or not low:
            self.state = "new"
        else:
            self.state = "parked" if token == PARKED else "ready"
            sp = min(low)
            rip, rbx, rbp = (memory.word(sp + at) for at in (0, 8, 16))
            self.registers = {"rip": rip, "rbx": rbx, "rbp": rbp, "rsp": sp + 24}
        place, length = memory.word(record + name), memory.word(record + name + 8)
        self.name = memory.read(place + memory.text, length).decode(errors="replace") if place else ""

    def runs_on(self, thread):
        self.thread, self.registers = thread, None
        self.state = "waits with its thread" if self.asleep else "runs"


class Suspended(gdb.unwinder.Unwinder):
    """While it has registers, the caller of the innermost frame is a fiber that is suspended."""

    def __init__(self):
        super().__init__("wakeful-fibers")
        self.registers = None

    def __call__(self, pending):
        if not self.registers or int(pending.read_register("rsp")) != self.innermost:
            return None
        unwind = pending.create_unwind_info(FrameId(self.registers["rsp"] - 8, self.registers["rip"]))
        for name, value in self.registers.items():
            kind = pending.read_register(name).type
            unwind.add_saved_register(name, gdb.Value(value).cast(kind))
        return unwind

    def frames(self, fiber):
        """The fiber's frames, innermost first, as text and function."""
        before = gdb.selected_thread()
        if not fiber.thread and not fiber.registers:
            return []
        try:
            if fiber.thread:
                fiber.thread.switch()
            self.innermost = int(gdb.newest_frame().read_register("rsp"))
            self.registers = fiber.registers
            gdb.invalidate_cached_frames()
            frame = gdb.newest_frame()
            if fiber.registers:
                frame = frame.older()
            found = []
            while frame and frame.is_valid():
                # Behind its first function lies the stack of whoever runs it, or did last; before it, that of
                # a new fiber that it joins.
                if fiber.stack < int(frame.read_register("rsp")) <= fiber.top:
                    found.append(Frame(frame))
                elif found:
                    break
                frame = frame.older()
            return found
        finally:
            self.registers = None
            gdb.invalidate_cached_frames()
            before.switch()


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = gdb.Value(sp), gdb.Value(pc)


class Frame:
    """What is shown of a frame, which is not valid later."""

    RUNTIME = ("corosensei", "stack_init_trampoline", "fiber::", "wakeful_", "sync::", "core::", "std::", "<", "__")
    FILES = ("/corosensei-", "crates/fiber/src/", "crates/sync/", "crates/linux/", "/rustc/", "library/", "./nptl/")
    # The C library's need not have lines.
    LIBRARIES = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-")

    def __init__(self, frame):
        self.name = frame.name() or f"{frame.pc():#x}"
        line = frame.find_sal()
        file = line.symtab.filename if line and line.symtab else ""
        self.line = f" at {file}:{line.line}" if file else ""
        library = os.path.basename(gdb.solib_name(frame.pc()) or "")
        of_runtime = self.name.startswith(self.RUNTIME) or any(part in file for part in self.FILES)
        of_runtime = of_runtime or library.startswith(self.LIBRARIES)
        self.own = frame.name() is not None and not of_runtime


class InfoFibers(gdb.Command):
    """The fibers of a program: number, state, name, and the function in which each one is."""

    def __init__(self):
        super().__init__("info fibers", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        fibers = Memory().fibers()
        if not fibers:
            print("No fibers are alive.")
        for number, fiber in enumerate(fibers, 1):
            frames = SUSPENDED.frames(fiber)
            frame = next((frame for frame in frames if frame.own), frames[0] if frames else None)
            place = f"{frame.name}{frame.line}" if frame else ""
            print(f"{number:4} {fiber.state:8} {fiber.name or '-':16} {place}".rstrip())


class FiberCommand(gdb.Command):
    """Commands for one fiber: `fiber bt N`, or `fiber bt all`."""

    def __init__(self):
        super().__init__("fiber", gdb.COMMAND_STACK, prefix=True)


class FiberBacktrace(gdb.Command):
    """The stack of a fiber, by its number in `info fibers`; `all` for each one's."""

    def __init__(self):
        super().__init__("fiber bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        fibers = list(enumerate(Memory().fibers(), 1))
        if argument.strip() != "all":
            fibers = [(number, fiber) for number, fiber in fibers if str(number) == argument.strip()]
            if not fibers:
                raise gdb.GdbError("`fiber bt N`: `info fibers` has the numbers; `fiber bt all` shows each.")
        for number, fiber in fibers:
            print(f"Fiber {number} {fiber.name or '-'}: {fiber.state}")
            for level, frame in enumerate(SUSPENDED.frames(fiber)):
                print(f"#{level:<3} {frame.name}{frame.line}")


SUSPENDED = Suspended()
gdb.unwinder.register_unwinder(None, SUSPENDED, replace=True)
InfoFibers()
FiberCommand()
FiberBacktrace()
