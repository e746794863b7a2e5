"""Assemble a table of system calls into a seccomp program: names and rules come in, bytes go out.

A rule is an action (`ALLOW`, `KILL`, `errno(n)`) or a `Choice` between two rules by one test of an argument.

The bytes are an array of the kernel's `struct sock_filter`, eight bytes each, little-endian as both
architectures are:

    bytes 0-1   code   what to do: load, compare and jump, and, return
    byte  2     jt     how many instructions to skip if the comparison holds
    byte  3     jf     how many to skip if it does not
    bytes 4-7   k      the constant: an offset, a value to compare with, a mask, an answer

and they read the kernel's `struct seccomp_data`: the number at 0, the architecture at 4, the arguments from
16 on, eight bytes each with the low half first.

A filter sees registers, never what a pointer points to: it cannot judge a path, an address or a structure.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from errno import ENOSYS
from typing import Final, TypeAlias

from toolkeep.sandbox.syscalls import Architecture

# --- rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Action:
    """An answer of the filter, as the kernel spells it (SECCOMP_RET_…)."""

    value: int


ALLOW: Final = Action(0x7FFF0000)
KILL: Final = Action(0x80000000)
"""End the whole process, not only the thread that called."""


def errno(number: int) -> Action:
    """Fail the call with this error, without carrying it out."""
    if not 0 < number < 4096:
        raise ValueError(f"{number} is not an error number that a filter can answer with")
    return Action(0x00050000 | number)


@dataclass(frozen=True, slots=True)
class HasFlag:
    """Whether the argument has any bit of the mask."""

    argument: int
    mask: int


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """Whether the argument is one of some 32-bit values.

    The kernel reads an `int` argument from the low half of its register and ignores the high half, so a test
    of such an argument must ignore it too: a rule that compared all 64 bits could be stepped around.
    A pointer or a `long` is `is_wide`: its high half must be zero as well.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    """The bits of the low half that are compared."""
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class IsOwnPid:
    """Whether the argument is the pid of the process that the program is installed in."""

    argument: int


Test: TypeAlias = HasFlag | IsOneOf | IsOwnPid


@dataclass(frozen=True, slots=True)
class Choice:
    """`then` where the test holds, `otherwise` where it does not."""

    test: Test
    then: "Rule"
    otherwise: "Rule"


Rule: TypeAlias = Action | Choice

# --- the program ---------------------------------------------------------------------------------

UNKNOWN: Final = errno(ENOSYS)
"""What a number without a name gets: a call newer than our tables is absent, so libc takes the older one."""

_UNSET_PID: Final = 0x7FFFFFFF
"""Stands where a pid goes. It is above every pid (they end at 2^22), so a forgotten mark refuses all."""

_MAX_INSTRUCTIONS: Final = 4096
"""BPF_MAXINSNS: the kernel refuses a longer program."""

_INSTRUCTION: Final = struct.Struct("<HBBI")
_CONSTANT_AT: Final = 4


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and the byte offsets of the constants that must become the pid of its process."""

    code: bytes
    pid_marks: tuple[int, ...] = ()

    @property
    def instructions(self) -> int:
        """How many instructions it has: `sock_fprog.len`."""
        return len(self.code) // _INSTRUCTION.size

    def for_process(self, pid: int) -> bytes:
        """Give the code for the process that knows itself by this pid."""
        code = bytearray(self.code)
        for mark in self.pid_marks:
            struct.pack_into("<I", code, mark, pid)
        return bytes(code)


def assemble(
    rules: Mapping[str, Rule], default: Rule, architecture: Architecture, *, unknown: Rule = UNKNOWN
) -> Program:
    """Make the program that answers each call by its rule, and any other call that has a name by `default`.

    A call made through another architecture's table kills: its numbers mean other calls.
    The same table always gives the same bytes.
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
"""Before Linux 5.4 these reached x32 calls (execve, ptrace, …) even without the bit."""

_Range: TypeAlias = tuple[int, Rule]
"""The first number and the rule of it and of all that follow, up to the next range."""


def _ranges(
    rules: Mapping[str, Rule], default: Rule, unknown: Rule, architecture: Architecture
) -> list[_Range]:
    """Cut the line of numbers wherever the rule changes."""
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
"""How far a comparison may jump: 255, less the one instruction that its other arm may have to add."""

_Label: TypeAlias = int
"""A place in the program, counted from its end."""


class _Assembler:
    """Builds a program from its last instruction to its first.

    The kernel jumps forward only, so whatever is jumped to is already there and its distance is known.
    Equal rules are written once and shared, which makes the program a quarter shorter.
    """

    def __init__(self) -> None:
        self._backwards: list[tuple[int, int, int, int]] = []
        self._written: dict[Rule, _Label] = {}
        self._pid_labels: list[_Label] = []

    def program(self) -> Program:
        """Put what was written the right way round."""
        size = len(self._backwards)
        if size > _MAX_INSTRUCTIONS:
            raise ValueError(f"the program has {size} instructions, the kernel takes {_MAX_INSTRUCTIONS}")
        code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in reversed(self._backwards))
        marks = sorted((size - 1 - label) * _INSTRUCTION.size + _CONSTANT_AT for label in self._pid_labels)
        return Program(code, tuple(marks))

    def judge_all(self, ranges: list[_Range], architecture: Architecture) -> None:
        """Write the whole program: the architecture first, then x32, then the number."""
        entry = self._tree(ranges)
        if architecture.has_x32:
            entry = self._branch(_IF_AT_LEAST, _X32_BIT, self._rule(KILL), entry)
        entry = self._before(entry, _LOAD, _NUMBER_AT)
        entry = self._branch(_IF_EQUAL, architecture.audit, entry, self._rule(KILL))
        self._before(entry, _LOAD, _ARCHITECTURE_AT)

    def _tree(self, ranges: list[_Range]) -> _Label:
        """Find the range of the number by halving.

        At installation the kernel runs the program once for each number to learn which are always
        allowed, so comparing one number after another makes installing it 3 times as long.
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
        """Bring a place within the reach of a comparison, by a copy of its answer or a long jump."""
        if self._distance(label) <= _REACH:
            return label
        code, _, _, constant = self._backwards[label]
        if code != _RETURN:
            return self._write(_JUMP, self._distance(label))
        copy = self._write(_RETURN, constant)
        self._written[Action(constant)] = copy
        return copy

    def _before(self, label: _Label, code: int, constant: int) -> _Label:
        """Write an instruction that goes on to this place, which may not be the next one."""
        if self._distance(label):
            self._write(_JUMP, self._distance(label))
        return self._write(code, constant)

    def _distance(self, label: _Label) -> int:
        """How many instructions lie between a place and the next instruction written."""
        return len(self._backwards) - label - 1

    def _write(self, code: int, constant: int, if_true: int = 0, if_false: int = 0) -> _Label:
        self._backwards.append((code, if_true, if_false, constant))
        return len(self._backwards) - 1


def _low(argument: int) -> int:
    """Where the low half of an argument is."""
    return _ARGUMENTS_AT + 8 * argument


def _high(argument: int) -> int:
    """Where the high half of an argument is."""
    return _low(argument) + 4
