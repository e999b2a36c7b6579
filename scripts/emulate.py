#!/usr/bin/env python3
"""Runs a program built here on an emulated x86-64 CPU, for instruction sets that this machine lacks:

    scripts/emulate.py build/release/src/ops/ops_tests --gtest_filter='*Gemm*'

The CPU is that of Bochs (`pip install bochscpu-python==0.4.0`, which brings the emulator as a
library); the kernel's part is played here, as far as tests need it: memory, reading files, the
console, time. There is one thread (OMP_THREAD_LIMIT=1), no signals and no protection of memory.
--cpu picks the model: sapphire-rapids has AVX-512 with BF16 but, in Bochs 3.0, not AMX.

Known difference from real CPUs: VCVTNE2PS2BF16 reads its second source twice.
"""

import argparse
import ctypes
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time

PAGE = 4096
MEMORY = 1 << 36  # bytes; virtual addresses are physical ones, which are offsets into the host's mapping
KERNEL = 0x1_0000  # page tables and the few instructions of the kernel
PROGRAM = 0x1_0000_0000
LOADER = 0x2_0000_0000
HEAP = 0x4_0000_0000
MAPPINGS = 0x8_0000_0000
STACK_TOP = 0xF_0000_0000

# Their places in the emulator's list of models.
CPUS = {"haswell": 22, "skylake-x": 26, "ice-lake": 28, "sapphire-rapids": 30}

# glibc 2.38's names of old functions, which the package wants and older systems lack.
SHIM = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
unsigned long long __isoc23_strtoull(const char* s, char** e, int b) { return strtoull(s, e, b); }
int __isoc23_sscanf(const char* s, const char* f, ...) {
  va_list a;
  va_start(a, f);
  int r = vsscanf(s, f, a);
  va_end(a);
  return r;
}
"""


def import_bochs():
    if not hasattr(ctypes.CDLL(None), "__isoc23_sscanf"):
        with tempfile.TemporaryDirectory() as folder:
            source, library = f"{folder}/shim.c", f"{folder}/shim.so"
            with open(source, "w") as file:
                file.write(SHIM)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import bochscpu
    import bochscpu.memory

    return bochscpu


def whole_pages(size):
    return (size + PAGE - 1) & -PAGE


class Memory:
    """The guest's memory, which the emulator is given page by page as it touches it."""

    def __init__(self, bochs):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        self.host = mmap.mmap(-1, MEMORY, flags=flags)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.host))
        self.bochs = bochs

    def add_page(self, address):
        address &= -PAGE
        if not KERNEL <= address < MEMORY:
            print(f"access to {address:#x}", file=sys.stderr)
            os._exit(139)
        self.bochs.memory.page_insert(address, self.base + address)

    def put(self, address, data):
        self.host[address : address + len(data)] = data

    def get(self, address, size):
        return ctypes.string_at(self.base + address, size)

    def text(self, address):
        return ctypes.string_at(self.base + address)

    def clear(self, address, size):
        ctypes.memset(self.base + address, 0, size)


class Program:
    """An ELF file brought into memory."""

    def __init__(self, memory, path, base):
        with open(path, "rb") as file:
            data = file.read()
        kind, machine = struct.unpack_from("<HH", data, 16)
        if data[:4] != b"\x7fELF" or machine != 62:
            raise SystemExit(f"{path} is no x86-64 program")
        base = 0 if kind == 2 else base  # fixed addresses
        entry, headers = struct.unpack_from("<QQ", data, 24)
        size, self.header_count = struct.unpack_from("<HH", data, 54)
        self.entry, self.headers, self.loader = base + entry, base + headers, None
        for i in range(self.header_count):
            kind, _, offset, address, _, length, _, _ = struct.unpack_from(
                "<IIQQQQQQ", data, headers + i * size
            )
            if kind == 1:  # PT_LOAD
                memory.put(base + address, data[offset : offset + length])
                if offset <= headers < offset + length:
                    self.headers = base + address + headers - offset
            elif kind == 3:  # PT_INTERP
                self.loader = data[offset : offset + length - 1].decode()


class Kernel:
    """Serves system calls."""

    # mprotect, rt_sigaction, rt_sigprocmask, madvise, sigaltstack, sched_yield, mlock, futex,
    # sched_setaffinity, set_robust_list; nanosleep, clock_nanosleep; getuid and its kin
    NOTHING_TO_DO = {10, 13, 14, 28, 131, 24, 149, 202, 203, 273, 35, 230, 102, 104, 107, 108}
    # clone, mremap, getcpu, rseq, clone3: callers do without
    ABSENT = {56, 25, 309, 334, 435}

    def __init__(self, memory):
        self.memory = memory
        self.heap_end = HEAP
        self.next_mapping = MAPPINGS
        self.free = {}  # mappings given back, by size
        self.status = None

    def call(self, cpu):
        number = cpu.rax
        args = (cpu.rdi, cpu.rsi, cpu.rdx, cpu.r10, cpu.r8, cpu.r9)
        try:
            result = self.serve(cpu, number, args)
        except OSError as error:
            result = -error.errno
        except Exception as error:  # nothing may pass through the emulator
            print(f"system call {number}{args}: {error!r}", file=sys.stderr)
            self.status, result = 70, 0
        cpu.rax = result & (1 << 64) - 1

    def serve(self, cpu, number, a):
        memory = self.memory
        match number:
            case 0:  # read
                data = os.read(a[0], a[2])
                memory.put(a[1], data)
                return len(data)
            case 17:  # pread64
                data = os.pread(a[0], a[2], a[3])
                memory.put(a[1], data)
                return len(data)
            case 1:
                return os.write(a[0], memory.get(a[1], a[2]))
            case 18:  # pwrite64
                return os.pwrite(a[0], memory.get(a[1], a[2]), a[3])
            case 20:  # writev
                parts = struct.iter_unpack("<QQ", memory.get(a[1], 16 * a[2]))
                return os.write(a[0], b"".join(memory.get(*part) for part in parts))
            case 257:  # openat
                return os.open(memory.text(a[1]), a[2], a[3])
            case 3:  # close
                if a[0] > 2:
                    os.close(a[0])
                return 0
            case 8:  # lseek
                return os.lseek(a[0], a[1], a[2])
            case 5:  # fstat
                return self.put_stat(a[1], os.fstat(a[0]))
            case 262:  # newfstatat
                path = memory.text(a[1])
                return self.put_stat(a[2], os.stat(path) if path else os.fstat(a[0]))
            case 79:  # getcwd
                path = os.getcwd().encode() + b"\0"
                memory.put(a[0], path)
                return len(path)
            case 21 | 89 | 267:  # access, readlink, readlinkat
                return -2
            case 16:  # ioctl
                return -25
            case 12:  # brk
                if a[0] >= HEAP:
                    memory.clear(a[0], max(0, self.heap_end - a[0]))
                    self.heap_end = a[0]
                return self.heap_end
            case 9:
                return self.map(*a)
            case 11:  # munmap
                size = whole_pages(a[1])
                memory.clear(a[0], size)
                self.free.setdefault(size, []).append(a[0])
                return 0
            case 158:  # arch_prctl: the thread's own memory
                if a[0] != 0x1002:
                    return -22
                segment = cpu.fs
                segment.base = a[1]
                cpu.fs = segment
                return 0
            case 39 | 110 | 186 | 218:  # getpid, getppid, gettid, set_tid_address
                return 1000
            case 318:  # getrandom
                memory.put(a[0], bytes(i * 37 + 11 & 255 for i in range(a[1])))
                return a[1]
            case 96:  # gettimeofday
                now = time.time_ns()
                memory.put(a[0], struct.pack("<QQ", now // 10**9, now % 10**9 // 1000))
                return 0
            case 228:  # clock_gettime
                now = time.time_ns() if a[0] == 0 else time.monotonic_ns()
                memory.put(a[1], struct.pack("<QQ", now // 10**9, now % 10**9))
                return 0
            case 201:
                return int(time.time())
            case 204:  # sched_getaffinity: one core
                memory.put(a[2], struct.pack("<Q", 1))
                return 8
            case 302:  # prlimit64
                if a[3]:
                    memory.put(a[3], struct.pack("<QQ", 8 << 20, 8 << 20))
                return 0
            case 99:  # sysinfo: 8 GiB, half of it free
                memory.put(a[0], struct.pack("<8Q", 1, 0, 0, 0, 1 << 33, 1 << 32, 0, 0))
                return 0
            case 63:  # uname
                names = (b"Linux", b"emulated", b"6.1.0", b"#1", b"x86_64", b"")
                memory.put(a[0], b"".join(name.ljust(65, b"\0") for name in names))
                return 0
            case 60 | 231:  # exit, exit_group
                self.status = a[0] & 255
                return 0
            case 62 | 200 | 234:  # kill, tkill, tgkill: of itself
                self.status = 128 + (a[2] if number == 234 else a[1])
                return 0
        if number in self.NOTHING_TO_DO:
            return 0
        if number not in self.ABSENT:
            print(f"system call {number} is not there", file=sys.stderr)
        return -38

    def map(self, address, size, _protection, flags, file, offset):
        size = whole_pages(size)
        if flags & mmap.MAP_ANONYMOUS == 0:
            data = os.pread(file, size, offset)
        else:
            data = b""
        if flags & 0x10:  # MAP_FIXED
            self.memory.clear(address, size)
        elif self.free.get(size):
            address = self.free[size].pop()
        else:
            address = self.next_mapping
            self.next_mapping += size + PAGE
        self.memory.put(address, data)
        return address

    def put_stat(self, address, s):
        head = struct.pack("<QQQIIII", s.st_dev, s.st_ino, s.st_nlink, s.st_mode, 0, 0, 0)
        sizes = struct.pack("<Qqqq", s.st_rdev, s.st_size, s.st_blksize, s.st_blocks)
        times = struct.pack("<6q", int(s.st_atime), 0, int(s.st_mtime), 0, int(s.st_ctime), 0)
        self.memory.put(address, head + sizes + times + bytes(24))
        return 0


def build_stack(memory, program, loader_base, arguments, environment):
    """Puts what the System V ABI wants above the stack pointer there; returns the pointer."""
    top = STACK_TOP - PAGE

    def push(data):
        nonlocal top
        top -= len(data)
        memory.put(top, data)
        return top

    def texts(values):
        return [push(value.encode() + b"\0") for value in values]

    random = push(bytes(range(16)))
    arguments, environment = texts(arguments), texts(environment)
    auxiliary = {
        3: program.headers,
        4: 56,  # bytes of a header
        5: program.header_count,
        6: PAGE,
        7: loader_base,
        9: program.entry,
        11: 1000,  # users and groups
        12: 1000,
        13: 1000,
        14: 1000,
        17: 100,  # ticks a second
        23: 0,
        25: random,
        26: 2,  # FSGSBASE
        31: arguments[0],
        0: 0,
    }
    words = [len(arguments), *arguments, 0, *environment, 0]
    words += [word for entry in auxiliary.items() for word in entry]
    top = (top - 8 * len(words)) & -64
    memory.put(top, struct.pack(f"<{len(words)}Q", *words))
    return top


def first_state(bochs, memory, entry, stack):
    """64-bit mode with AVX-512 enabled, all memory mapped one to one in pages of 1 GiB; two
    instructions of the kernel that enter the program, and one that returns from system calls."""
    tables, stub = KERNEL, KERNEL + 2 * PAGE
    memory.put(tables, struct.pack("<Q", tables + PAGE | 7))
    pages = MEMORY >> 30
    memory.put(tables + PAGE, struct.pack(f"<{pages}Q", *(i << 30 | 0xE7 for i in range(pages))))
    memory.put(stub, bytes.fromhex("0f01d1 4889d9 480f07"))  # xsetbv; mov rcx, rbx; sysretq
    memory.put(stub + 64, bytes.fromhex("480f07"))  # sysretq

    def segment(selector, attributes):
        result = bochs.Segment()
        result.present, result.selector = True, selector
        result.base, result.limit, result.attr = 0, 0xFFFFFFFF, attributes
        return result

    state = bochs.State()
    state.cr0, state.cr3, state.cr4, state.efer = 0x80050033, tables, 0x506A0, 0x501
    state.xcr0, state.mxcsr, state.mxcsr_mask = 7, 0x1F80, 0xFFFF
    state.fpcw, state.fptw = 0x37F, 0xFFFF
    state.cs, state.ss = segment(0x10, 0xA09B), segment(0x18, 0xC093)
    state.ds = state.es = state.fs = state.gs = segment(0x2B, 0xC0F3)
    state.tr, state.ldtr = segment(0x40, 0x8B), segment(0, 0x82)
    state.star, state.lstar = 0x23 << 48 | 0x10 << 32, stub + 64
    state.pat, state.apic_base = 0x0007040600070406, 0xFEE00900
    state.rip, state.rsp, state.rflags, state.r11 = stub, stack, 2, 2
    state.rax, state.rbx, state.rcx, state.rdx = 0xE7, entry, 0, 0
    return state, stub + 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cpu", choices=CPUS, default="sapphire-rapids")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()

    bochs = import_bochs()
    library = ctypes.CDLL(bochs._bochscpu.__file__)
    library.sim_get_param_enum.restype = ctypes.c_void_p
    model = library.sim_get_param_enum(b"cpu.model")
    ctypes.c_uint64.from_address(model + 136).value = CPUS[args.cpu]  # its value

    memory = Memory(bochs)
    program = Program(memory, args.program, PROGRAM)
    entry, loader_base = program.entry, 0
    if program.loader is not None:
        entry, loader_base = Program(memory, program.loader, LOADER).entry, LOADER
    environment = ["OMP_NUM_THREADS=1", "OMP_THREAD_LIMIT=1"]
    environment += [f"{k}={v}" for k, v in os.environ.items() if k.startswith(("GTEST", "LONGTUNE"))]
    stack = build_stack(
        memory, program, loader_base, [args.program, *args.arguments], environment
    )
    session = bochs.Session()
    session.missing_page_handler = memory.add_page
    state, system_call = first_state(bochs, memory, entry, stack)
    if args.cpu == "haswell":
        state.rax = 7  # XCR0 without AVX-512
    session.cpu.state = state
    kernel = Kernel(memory)

    def far_branch(session, _cpu, _what, _old_segment, _old, _segment, target):
        if target == system_call:
            kernel.call(session.cpu)
            if kernel.status is not None:
                session.stop()

    def exception(session, _cpu, vector, _error):
        cpu = session.cpu
        print(f"exception {vector} at {cpu.rip:#x}, address {cpu.cr2:#x}", file=sys.stderr)
        kernel.status = 139
        session.stop()

    hook = bochs.Hook()
    hook.far_branch = far_branch
    hook.exception = exception
    session.run([hook])
    sys.stdout.flush()
    os._exit(70 if kernel.status is None else kernel.status)


if __name__ == "__main__":
    main()
