"""Assembles a table of system calls into a seccomp BPF program: names and rules in, bytes out.

A rule is an action (`ALLOW`, `KILL`, `errno(n)`) or a `Choice` between two rules by a test of one argument.

The bytes are an array of the kernel's `struct sock_filter`, eight bytes each, little-endian as on both
architectures:

    bytes 0-1   code   operation: load, compare and jump, and, return
    byte  2     jt     instructions to skip if the comparison holds
    byte  3     jf     instructions to skip if it does not
    bytes 4-7   k      constant: an offset, a value to compare with, a mask, a result

They read the kernel's `struct seccomp_data`: the number at 0, the architecture at 4, the arguments from 16
on, eight bytes each with the low half first.

A filter sees registers, never what a pointer points to: it cannot judge a path, an address or a structure.
(Reading the memory would be useless: another thread can change it after the check.)
"""

import struct
from collections.abc import Mapping
from errno import ENOSYS
from typing import Final, TypeAlias

import msgspec

from toolkeep.sandbox.syscalls import Architecture

# --- rules ---------------------------------------------------------------------------------------


class Action(msgspec.Struct, frozen=True):
    """A result of the filter (SECCOMP_RET_…)."""

    value: int


ALLOW: Final = Action(0x7FFF0000)
KILL: Final = Action(0x80000000)
"""Kills the whole process, not only the calling thread."""
TRACE: Final = Action(0x7FF00000)
"""Stops for the tracer, which may let it pass; without one it fails with ENOSYS."""
NOTIFY: Final = Action(0x7FC00000)
"""Stops until a supervisor answers (seccomp_unotify(2)); without one it fails with ENOSYS."""


def errno(number: int) -> Action:
    """Fail the call with this error, without executing it."""
    if not 0 < number < 4096:
        raise ValueError(f"{number} is not an error number that a filter can answer with")
    return Action(0x00050000 | number)


class HasFlag(msgspec.Struct, frozen=True):
    """Whether the argument has any bit of the mask."""

    argument: int
    mask: int


class IsOneOf(msgspec.Struct, frozen=True):
    """Whether the argument is one of some 32-bit values.

    The kernel reads an `int` argument from the low half of its register and ignores the high half. A test
    must do the same: a rule that compares all 64 bits is bypassed by setting a high bit. A pointer or `long`
    argument is `is_wide`: its high half must be zero too.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    """Bits of the low half that are compared."""
    is_wide: bool = False


class IsOwnPid(msgspec.Struct, frozen=True):
    """Whether the argument is the pid of the process that the filter is installed in."""

    argument: int


Test: TypeAlias = HasFlag | IsOneOf | IsOwnPid


class Choice(msgspec.Struct, frozen=True):
    """`then` if the test holds, else `otherwise`."""

    test: Test
    then: "Rule"
    otherwise: "Rule"


Rule: TypeAlias = Action | Choice

# --- the program ---------------------------------------------------------------------------------

UNKNOWN: Final = errno(ENOSYS)
"""Result for numbers without a name. ENOSYS makes libc fall back from a newer system call to an older one
that the table can judge; EPERM would make it fail."""

_UNSET_PID: Final = 0x7FFFFFFF
"""Placeholder for a pid. Above every real pid (at most 2^22), so a forgotten one refuses everything."""

_MAX_INSTRUCTIONS: Final = 4096
"""BPF_MAXINSNS: the kernel rejects longer programs."""

_INSTRUCTION: Final = struct.Struct("<HBBI")
_CONSTANT_AT: Final = 4


class Program(msgspec.Struct, frozen=True):
    """A BPF program, and the byte offsets of constants to be replaced by the pid of its process."""

    code: bytes
    pid_marks: tuple[int, ...] = ()

    @property
    def instructions(self) -> int:
        """Number of instructions: `sock_fprog.len`."""
        return len(self.code) // _INSTRUCTION.size

    def for_process(self, pid: int) -> bytes:
        """The code for a process that has this pid in its own namespace."""
        code = bytearray(self.code)
        for mark in self.pid_marks:
            struct.pack_into("<I", code, mark, pid)
        return bytes(code)


def assemble(
    rules: Mapping[str, Rule], default: Rule, architecture: Architecture, *, unknown: Rule = UNKNOWN
) -> Program:
    """The program that applies each call's rule, and `default` to any other call that has a name.

    A call through another architecture's table kills: its numbers mean other calls (int 0x80 on x86_64 would
    execute what the filter takes for something else). The same table always gives the same bytes.
    """
    absent = rules.keys() - architecture.numbers.keys()
    if absent:
        raise ValueError(f"{architecture.name} has no system call {', '.join(sorted(absent))}")
    assembler = _Assembler()
    assembler.judge_all(_ranges(rules, default, unknown, architecture), architecture)
    return assembler.program()


# --- ranges of numbers ---------------------------------------------------------------------------

_X32_BIT: Final = 0x40000000
_X32_NUMBERS: Final = range(512, 548)
"""Before Linux 5.4 these numbers reached x32 calls (execve, ptrace, …) even without the x32 bit."""

_Range: TypeAlias = tuple[int, Rule]
"""First number of a range and its rule; it extends to the next range."""


def _ranges(
    rules: Mapping[str, Rule], default: Rule, unknown: Rule, architecture: Architecture
) -> list[_Range]:
    """Split the number line wherever the rule changes."""
    by_number = {number: rules.get(name, default) for name, number in architecture.numbers.items()}
    if architecture.has_x32:
        by_number.update(dict.fromkeys(_X32_NUMBERS, KILL))
    ranges: list[_Range] = []
    for number in range(max(by_number) + 2):
        rule = by_number.get(number, unknown)
        if not ranges or ranges[-1][1] != rule:
            ranges.append((number, rule))
    return ranges


# --- instructions --------------------------------------------------------------------------------

_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP: Final = 0x05
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16

_REACH: Final = 254
"""Maximum jump distance: 255, minus one instruction that the other arm may have to add."""

_Label: TypeAlias = int
"""A position in the program, counted from its end."""


class _Assembler:
    """Builds a program from its last instruction to its first.

    BPF jumps only forward, so every jump target is already written and its distance known. Equal rules are
    written once and shared, which makes the program a quarter shorter.
    """

    def __init__(self) -> None:
        self._backwards: list[tuple[int, int, int, int]] = []
        self._written: dict[Rule, _Label] = {}
        self._pid_labels: list[_Label] = []

    def program(self) -> Program:
        """The instructions in execution order."""
        size = len(self._backwards)
        if size > _MAX_INSTRUCTIONS:
            raise ValueError(f"the program has {size} instructions, the kernel takes {_MAX_INSTRUCTIONS}")
        code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in reversed(self._backwards))
        marks = sorted((size - 1 - label) * _INSTRUCTION.size + _CONSTANT_AT for label in self._pid_labels)
        return Program(code, tuple(marks))

    def judge_all(self, ranges: list[_Range], architecture: Architecture) -> None:
        """The whole program: check the architecture, then the x32 bit, then the number."""
        entry = self._tree(ranges)
        if architecture.has_x32:
            # x32 calls share the architecture value but have other numbers: without this check every rule
            # could be bypassed by setting bit 30.
            entry = self._branch(_IF_AT_LEAST, _X32_BIT, self._rule(KILL), entry)
        entry = self._before(entry, _LOAD, _NUMBER_AT)
        # First instruction of the program: a number means nothing before the architecture is known.
        entry = self._branch(_IF_EQUAL, architecture.audit, entry, self._rule(KILL))
        self._before(entry, _LOAD, _ARCHITECTURE_AT)

    def _tree(self, ranges: list[_Range]) -> _Label:
        """Binary search for the range of the number.

        At installation the kernel runs the program once per number to build its bitmap of always-allowed
        calls, so a linear search makes installation three times as long.
        """
        if len(ranges) == 1:
            return self._rule(ranges[0][1])
        middle = len(ranges) // 2
        above = self._tree(ranges[middle:])
        below = self._tree(ranges[:middle])
        return self._branch(_IF_AT_LEAST, ranges[middle][0], above, below)

    def _rule(self, rule: Rule) -> _Label:
        if rule not in self._written:
            self._written[rule] = self._action(rule) if isinstance(rule, Action) else self._choice(rule)
        return self._written[rule]

    def _action(self, action: Action) -> _Label:
        return self._write(_RETURN, action.value)

    def _choice(self, choice: Choice) -> _Label:
        then, otherwise = self._rule(choice.then), self._rule(choice.otherwise)
        match choice.test:
            case HasFlag(argument, mask):
                return self._has_flag(argument, mask, then, otherwise)
            case IsOneOf():
                return self._is_one_of(choice.test, then, otherwise)
            case IsOwnPid(argument):
                own = self._branch(_IF_EQUAL, _UNSET_PID, then, otherwise)
                self._pid_labels.append(own)
                return self._before(own, _LOAD, _low(argument))

    def _has_flag(self, argument: int, mask: int, then: _Label, otherwise: _Label) -> _Label:
        high, low = divmod(mask, 2**32)
        label = self._before(self._branch(_IF_ANY_BIT, low, then, otherwise), _LOAD, _low(argument))
        if high:
            label = self._before(self._branch(_IF_ANY_BIT, high, then, label), _LOAD, _high(argument))
        return label

    def _is_one_of(self, test: IsOneOf, then: _Label, otherwise: _Label) -> _Label:
        label = otherwise
        for value in reversed(test.values):
            label = self._branch(_IF_EQUAL, value, then, label)
        if test.mask != 0xFFFFFFFF:
            label = self._before(label, _AND, test.mask)
        label = self._before(label, _LOAD, _low(test.argument))
        if test.is_wide:
            label = self._before(self._branch(_IF_EQUAL, 0, label, otherwise), _LOAD, _high(test.argument))
        return label

    def _branch(self, code: int, constant: int, then: _Label, otherwise: _Label) -> _Label:
        then, otherwise = self._near(then), self._near(otherwise)
        here = len(self._backwards)
        return self._write(code, constant, here - then - 1, here - otherwise - 1)

    def _near(self, label: _Label) -> _Label:
        """A label within jump range: a copy of its return, or a trampoline jump."""
        if self._distance(label) <= _REACH:
            return label
        code, _, _, constant = self._backwards[label]
        if code != _RETURN:
            return self._write(_JUMP, self._distance(label))
        copy = self._write(_RETURN, constant)
        self._written[Action(constant)] = copy
        return copy

    def _before(self, label: _Label, code: int, constant: int) -> _Label:
        """Write an instruction that continues at this label, which may not be the next instruction."""
        if self._distance(label):
            self._write(_JUMP, self._distance(label))
        return self._write(code, constant)

    def _distance(self, label: _Label) -> int:
        """Instructions between a label and the next instruction written."""
        return len(self._backwards) - label - 1

    def _write(self, code: int, constant: int, if_true: int = 0, if_false: int = 0) -> _Label:
        self._backwards.append((code, if_true, if_false, constant))
        return len(self._backwards) - 1


def _low(argument: int) -> int:
    """Offset of the low half of an argument."""
    return _ARGUMENTS_AT + 8 * argument


def _high(argument: int) -> int:
    """Offset of the high half of an argument."""
    return _low(argument) + 4
