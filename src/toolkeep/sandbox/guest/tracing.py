"""ptrace(2) by ctypes: what a fork server does to its template and to the workers that come from it.

A system call is injected by putting a stopped process in front of the instruction that it just executed,
with other registers. The template's filter answers SECCOMP_RET_TRACE for each call that is injected, so such
a call stops once more at its start; without a tracer the same answer means ENOSYS.

All of it has to happen in the thread that seized the process.
"""

import ctypes
import os
import signal
import struct
from dataclasses import dataclass
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

EVENT_FORK: Final = 1
EVENT_VFORK: Final = 2
EVENT_CLONE: Final = 3
EVENT_SECCOMP: Final = 7
EVENT_STOP: Final = 128
"""Events of a stop (PTRACE_EVENT_…). EVENT_STOP is the first stop of a child that is traced from birth."""

_PEEKDATA: Final = 2
_POKEDATA: Final = 5
_CONT: Final = 7
_DETACH: Final = 17
_SYSCALL: Final = 24
_GETEVENTMSG: Final = 0x4201
_GETREGSET: Final = 0x4204
_SETREGSET: Final = 0x4205
_SEIZE: Final = 0x4206
_GET_RSEQ_CONFIGURATION: Final = 0x420F
_RSEQ_BYTES: Final = 24
"""Size of struct ptrace_rseq_configuration, which begins with the address of the registered area."""
_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x80 | 0x0010_0000
"""TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACESECCOMP; EXITKILL: it dies with its tracer."""

_NT_PRSTATUS: Final = 1
_NT_ARM_SYSTEM_CALL: Final = 0x404
_WALL: Final = 0x4000_0000
"""__WALL: wait for threads as well."""
_SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
_NO_CALL: Final = -1
_WORD: Final = 1 << 64
_WORD_BYTES: Final = 8
"""What PEEKDATA and POKEDATA transfer."""


class Unexpected(Exception):
    """A stop, an exit or a value that must not occur: whoever caused it is killed."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True, slots=True)
class Machine:
    """Where one architecture keeps what, as indexes into its general registers (struct user_regs_struct)."""

    words: int
    arguments: tuple[int, ...]
    number: int
    """The register that a system call instruction takes its number from."""
    result: int
    counter: int
    stack: int
    instruction: bytes
    """The system call instruction."""
    clone: int
    capset: int
    openat: int
    prctl: int
    """Numbers of the system calls that are injected or waited for."""
    child_id: int
    """Which argument of clone says where the child finds its thread id."""
    stopped_number: int | None
    """Where the number of a stopped call is; None: in a register set of its own (arm64)."""


_MACHINES: Final = {
    "x86_64": Machine(
        words=27,
        arguments=(14, 13, 12, 7, 9, 8),
        number=10,
        result=10,
        counter=16,
        stack=19,
        instruction=b"\x0f\x05",
        clone=56,
        capset=126,
        openat=257,
        prctl=157,
        child_id=3,
        stopped_number=15,
    ),
    "aarch64": Machine(
        words=34,
        arguments=(0, 1, 2, 3, 4, 5),
        number=8,
        result=0,
        counter=32,
        stack=31,
        instruction=b"\x01\x00\x00\xd4",
        clone=220,
        capset=91,
        openat=56,
        prctl=167,
        child_id=4,
        stopped_number=None,
    ),
}


def this_machine() -> Machine:
    """Registers of this architecture; OSError if they are not known."""
    name = os.uname().machine
    if name not in _MACHINES:
        raise OSError(f"the registers of {name} are not known")
    return _MACHINES[name]


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace({request:#x}): {os.strerror(number)}")


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of a traced process or thread."""

    pid: int
    status: int

    @property
    def event(self) -> int:
        """PTRACE_EVENT_…; 0 for any other stop."""
        return self.status >> 16

    @property
    def has_ended(self) -> bool:
        """Whether it does not exist any more."""
        return not os.WIFSTOPPED(self.status)

    @property
    def is_syscall(self) -> bool:
        """Whether a system call begins or ends."""
        return os.WIFSTOPPED(self.status) and os.WSTOPSIG(self.status) == _SYSCALL_STOP

    @property
    def signal(self) -> int:
        """The signal to be passed on; 0 if the stop is ptrace's own."""
        return 0 if self.event or os.WSTOPSIG(self.status) == signal.SIGTRAP else os.WSTOPSIG(self.status)


def seize(pid: int) -> None:
    """Trace a process and everything that it starts, without stopping it."""
    _ptrace(_SEIZE, pid, 0, _OPTIONS)


def wait_any() -> Stop:
    """The next stop of anything that is traced; also reaps."""
    return Stop(*os.waitpid(-1, _WALL))


def wait_for(pid: int, *events: int) -> Stop:
    """Wait for one of these events of a process; 0 or none for a system call. Nothing else may happen."""
    stop = Stop(*os.waitpid(pid, _WALL))
    is_event = stop.event in events and (stop.event or stop.is_syscall) if events else stop.is_syscall
    if stop.has_ended or not is_event:
        raise Unexpected(f"stopped with {stop.status:#x}")
    return stop


def resume(pid: int, signal_number: int = 0) -> None:
    """Let it run until the next event."""
    _ptrace(_CONT, pid, 0, signal_number)


def resume_to_syscall(pid: int, signal_number: int = 0) -> None:
    """Let it run until a system call begins or ends."""
    _ptrace(_SYSCALL, pid, 0, signal_number)


def detach(pid: int) -> None:
    """Let it run untraced."""
    _ptrace(_DETACH, pid)


def event_child(pid: int) -> int:
    """Pid of the child that a fork event is about."""
    value = ctypes.c_ulong()
    _ptrace(_GETEVENTMSG, pid, 0, ctypes.addressof(value))
    return value.value


def write_memory(pid: int, address: int, data: bytes) -> None:
    """Write into its memory; a multiple of eight bytes."""
    for place, (word,) in enumerate(struct.iter_unpack("=Q", data)):
        _ptrace(_POKEDATA, pid, address + _WORD_BYTES * place, word)


def _read_word(pid: int, address: int) -> bytes:
    ctypes.set_errno(0)
    value = _libc.ptrace(_PEEKDATA, pid, address, None)
    if (number := ctypes.get_errno()) != 0:
        raise OSError(number, f"ptrace(PEEKDATA): {os.strerror(number)}")
    return int(value % _WORD).to_bytes(_WORD_BYTES, "little")


def rewrite_instruction(machine: Machine, pid: int, end: int) -> None:
    """Write the system call instruction that ends here once more.

    That gives the process a copy of its own of a page that was mapped from a file, where whoever may write
    the file could otherwise change what is executed. Fails for a shared mapping.
    """
    first = (end - len(machine.instruction)) // _WORD_BYTES * _WORD_BYTES
    found = b"".join(_read_word(pid, address) for address in range(first, end, _WORD_BYTES))
    before, after = found[: end - len(machine.instruction) - first], found[end - first :]
    write_memory(pid, first, before + machine.instruction + after)


def rseq_area(pid: int) -> int:
    """Address of the area that it registered by rseq(2); 0 for none. OSError before Linux 5.13."""
    configuration = (ctypes.c_uint64 * (_RSEQ_BYTES // _WORD_BYTES))()
    _ptrace(_GET_RSEQ_CONFIGURATION, pid, _RSEQ_BYTES, ctypes.addressof(configuration))
    return configuration[0]


class Registers:
    """General registers of a stopped process, read once and written back on request."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self._machine = machine
        self._words = (ctypes.c_uint64 * machine.words)()
        self._transfer(_GETREGSET, pid)

    def _transfer(self, request: int, pid: int) -> None:
        vector = _Vector(ctypes.addressof(self._words), ctypes.sizeof(self._words))
        _ptrace(request, pid, _NT_PRSTATUS, ctypes.addressof(vector))

    def write(self, pid: int) -> None:
        """Make them those of a process."""
        self._transfer(_SETREGSET, pid)

    def copy(self) -> "Registers":
        """A copy to be changed."""
        made = object.__new__(Registers)
        made._machine = self._machine
        made._words = type(self._words).from_buffer_copy(self._words)
        return made

    @property
    def stack(self) -> int:
        """Stack pointer."""
        return self._words[self._machine.stack]

    @property
    def counter(self) -> int:
        """Address of the next instruction."""
        return self._words[self._machine.counter]

    @property
    def result(self) -> int:
        """Result of the system call that ended."""
        value = self._words[self._machine.result]
        return value - _WORD if value >> 63 else value

    @result.setter
    def result(self, value: int) -> None:
        """The same, as the process will see it."""
        self._words[self._machine.result] = value % _WORD

    def argument(self, place: int) -> int:
        """Argument of the system call that begins."""
        return self._words[self._machine.arguments[place]]

    def stopped_number(self, pid: int) -> int:
        """Number of the system call that begins."""
        if self._machine.stopped_number is not None:
            return ctypes.c_int32(self._words[self._machine.stopped_number]).value
        return _arm_number(pid)

    def set_call(self, number: int, arguments: tuple[int, ...]) -> None:
        """Make the next instruction, once more, this system call."""
        self._words[self._machine.counter] -= len(self._machine.instruction)
        self._words[self._machine.number] = number
        if self._machine.stopped_number is not None:
            self._words[self._machine.stopped_number] = _NO_CALL % _WORD
        self.set_arguments(arguments)

    def set_arguments(self, arguments: tuple[int, ...]) -> None:
        """Arguments of the system call that begins."""
        for place, value in enumerate(arguments):
            self._words[self._machine.arguments[place]] = value % _WORD

    def skip(self, pid: int) -> None:
        """Do not execute the system call that begins."""
        self.replace_call(pid, _NO_CALL)

    def replace_call(self, pid: int, number: int) -> None:
        """Execute another system call instead of the one that begins."""
        if self._machine.stopped_number is not None:
            self._words[self._machine.stopped_number] = number % _WORD
            self.write(pid)
        else:
            _set_arm_number(pid, number)


def _arm_number(pid: int) -> int:
    value = ctypes.c_int()
    vector = _Vector(ctypes.addressof(value), ctypes.sizeof(value))
    _ptrace(_GETREGSET, pid, _NT_ARM_SYSTEM_CALL, ctypes.addressof(vector))
    return value.value


def _set_arm_number(pid: int, number: int) -> None:
    value = ctypes.c_int(number)
    vector = _Vector(ctypes.addressof(value), ctypes.sizeof(value))
    _ptrace(_SETREGSET, pid, _NT_ARM_SYSTEM_CALL, ctypes.addressof(vector))


def inject(machine: Machine, pid: int, at: Registers, number: int, *arguments: int) -> int:
    """Have a stopped process execute one system call that its filter traces; its result.

    `at` are its registers right after a system call instruction; the caller writes them back.
    """
    call = at.copy()
    call.set_call(number, arguments)
    call.write(pid)
    resume(pid)
    wait_for(pid, EVENT_SECCOMP)
    resume_to_syscall(pid)
    wait_for(pid)
    return Registers(machine, pid).result
