"""Runs classic BPF as the kernel does for seccomp, and reads rules as their words say: two ways to one answer."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from toolkeep.sandbox.seccomp_bpf import KILL, UNKNOWN, Action, Choice, HasFlag, IsOneOf, IsOwnPid, Rule, Test
from toolkeep.sandbox.seccomp_filters import Profile

X32_BIT = 0x40000000


@dataclass(frozen=True, slots=True)
class Call:
    """What the kernel shows a filter: `struct seccomp_data`, without the instruction pointer."""

    audit: int
    number: int
    arguments: tuple[int, ...] = ()

    def pack(self) -> bytes:
        six = (*self.arguments, *[0] * (6 - len(self.arguments)))
        return struct.pack("<IIQ6Q", self.number % 2**32, self.audit, 0, *(value % 2**64 for value in six))


def run(code: bytes, call: Call) -> int:
    """Run a program from its first instruction to its answer; only forward, so it always ends."""
    data = call.pack()
    instructions = list(struct.iter_unpack("<HBBI", code))
    accumulator = 0
    at = 0
    while True:
        operation, if_true, if_false, constant = instructions[at]
        at += 1
        match operation:
            case 0x20:
                assert constant % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += if_true if accumulator == constant else if_false
            case 0x35:
                at += if_true if accumulator >= constant else if_false
            case 0x45:
                at += if_true if accumulator & constant else if_false
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(f"instruction {at - 1} has the code {operation:#x}")


def decide(profile: Profile, call: Call, *, pid: int) -> int:
    """Answer as the table says, without any program."""
    return _apply(_rule_of(profile, call), call.arguments, pid).value


def _rule_of(profile: Profile, call: Call) -> Rule:
    architecture = profile.architecture
    number = call.number % 2**32
    if call.audit != architecture.audit:
        return KILL
    if architecture.has_x32 and (number >= X32_BIT or 512 <= number < 548):
        return KILL
    for name, known in architecture.numbers.items():
        if known == number:
            return profile.rules.get(name, profile.default)
    return UNKNOWN


def _apply(rule: Rule, arguments: Sequence[int], pid: int) -> Action:
    while isinstance(rule, Choice):
        rule = rule.then if _holds(rule.test, arguments, pid) else rule.otherwise
    return rule


def _holds(test: Test, arguments: Sequence[int], pid: int) -> bool:
    value = arguments[test.argument] % 2**64
    match test:
        case HasFlag(_, mask):
            return value & mask != 0
        case IsOneOf(_, values, mask, is_wide):
            return value % 2**32 & mask in values and (not is_wide or value < 2**32)
        case IsOwnPid():
            return value % 2**32 == pid
