"""The assembler against plain dictionaries, and the tables of numbers against the kernel's headers."""

import ctypes
import os
import platform
import re
import struct
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sandbox.interpreter import Call, decide, run
from toolkeep.sandbox.seccomp_bpf import (
    ALLOW,
    KILL,
    Action,
    Choice,
    HasFlag,
    IsOneOf,
    IsOwnPid,
    Rule,
    assemble,
    errno,
)
from toolkeep.sandbox.seccomp_filters import Profile
from toolkeep.sandbox.syscalls import AARCH64, ARCHITECTURES, X86_64, Architecture, this_machine

PID = 4321
EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda known: known.name)


# --- any table at all ----------------------------------------------------------------------------

words = st.integers(0, 2**32 - 1) | st.integers(0, 8) | st.just(PID)
registers = st.builds(
    lambda low, high: high << 32 | low, words, st.sampled_from([0, 0, 0, 1, 2**31, 2**32 - 1])
)
places = st.integers(0, 5)
actions = st.sampled_from([ALLOW, KILL, errno(1), errno(38)])
tests = st.one_of(
    st.builds(HasFlag, places, registers.filter(bool)),
    st.builds(
        IsOneOf,
        places,
        st.lists(words, min_size=1, max_size=12).map(tuple),
        st.sampled_from([0xFFFFFFFF, 0xF]),
        st.booleans(),
    ),
    st.builds(IsOwnPid, places),
)
rules: st.SearchStrategy[Rule] = st.recursive(
    actions, lambda inner: st.builds(Choice, tests, inner, inner), max_leaves=5
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    architecture = draw(st.sampled_from(ARCHITECTURES))
    names = st.sampled_from(sorted(architecture.numbers))
    table = draw(st.dictionaries(names, rules, max_size=120))
    return Profile(architecture=architecture, rules=table, default=draw(actions))


@settings(max_examples=60, deadline=None)
@given(profile=profiles(), arguments=st.lists(registers, min_size=6, max_size=6).map(tuple))
def test_a_program_decides_every_number_as_its_table_does(
    profile: Profile, arguments: tuple[int, ...]
) -> None:
    code = profile.program().for_process(PID)
    for number in (*range(601), -1, -2, 2**30 - 1, 2**30, 2**30 + 59, 2**31):
        call = Call(profile.architecture.audit, number, arguments)
        assert run(code, call) == decide(profile, call, pid=PID), call


@given(profile=profiles(), audit=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32 - 1))
def test_another_architecture_is_killed_whatever_it_calls(profile: Profile, audit: int, number: int) -> None:
    if audit != profile.architecture.audit:
        assert run(profile.program().code, Call(audit, number)) == KILL.value


@given(profile=profiles(), seed=st.randoms())
def test_the_order_of_a_table_does_not_change_a_byte(profile: Profile, seed: Random) -> None:
    items = list(profile.rules.items())
    seed.shuffle(items)
    shuffled = Profile(architecture=profile.architecture, rules=dict(items), default=profile.default)
    assert shuffled.program() == profile.program()


# --- single rules --------------------------------------------------------------------------------


def answer(rule: Rule, *arguments: int, architecture: Architecture = X86_64, pid: int = PID) -> Action:
    code = assemble({"getpid": rule}, KILL, architecture).for_process(pid)
    six = (*arguments, *[0] * (6 - len(arguments)))
    return Action(run(code, Call(architecture.audit, architecture.numbers["getpid"], six)))


@pytest.mark.parametrize("high", [0, 1, 2**32 - 1])
def test_an_int_is_recognised_whatever_its_high_half_holds(high: int) -> None:
    assert answer(Choice(IsOneOf(1, (0x5412,)), errno(1), ALLOW), 0, high << 32 | 0x5412) == errno(1)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, ALLOW), (2**32, errno(1)), (1, errno(1)), (2**63, errno(1))]
)
def test_a_wide_argument_must_have_an_empty_high_half(value: int, expected: Action) -> None:
    assert answer(Choice(IsOneOf(4, (0,), is_wide=True), ALLOW, errno(1)), 0, 0, 0, 0, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(1, ALLOW), (0x80801, ALLOW), (2, errno(1)), (0x80802, errno(1))]
)
def test_a_mask_leaves_only_the_bits_that_are_compared(value: int, expected: Action) -> None:
    assert answer(Choice(IsOneOf(0, (1,), mask=0xF), ALLOW, errno(1)), value) == expected


@pytest.mark.parametrize("bit", [0, 31, 32, 63])
def test_a_flag_is_seen_in_either_half(bit: int) -> None:
    rule = Choice(HasFlag(2, 1 << bit), errno(1), ALLOW)
    assert answer(rule, 0, 0, 1 << bit) == errno(1)
    assert answer(rule, 0, 0, 2**64 - 1 - (1 << bit)) == ALLOW


def test_the_marks_are_where_the_pid_goes() -> None:
    own = Choice(IsOwnPid(0), ALLOW, errno(1))
    other = Choice(IsOwnPid(1), ALLOW, errno(3))
    program = assemble({"kill": own, "getpid": other, "tgkill": own}, KILL, X86_64)
    assert len(program.pid_marks) == 2
    patched = program.for_process(PID)
    assert [struct.unpack_from("<I", patched, mark)[0] for mark in program.pid_marks] == [PID, PID]
    assert len(patched) == len(program.code) == 8 * program.instructions


@pytest.mark.parametrize("pid", [-1, 0, 1, PID, 2**22])
def test_a_program_without_its_pid_refuses_every_pid(pid: int) -> None:
    code = assemble({"kill": Choice(IsOwnPid(0), ALLOW, errno(1))}, KILL, X86_64).code
    assert run(code, Call(X86_64.audit, X86_64.numbers["kill"], (pid,))) == errno(1).value


def test_a_place_beyond_255_instructions_is_still_reached() -> None:
    wide = {
        name: Choice(IsOneOf(0, tuple(range(place, 90_000, 300))), errno(place + 1), errno(4000))
        for place, name in enumerate(["read", "getpid", "mount", "bpf", "openat2"])
    }
    profile = Profile(architecture=X86_64, rules=wide, default=ALLOW)
    program = profile.program()
    assert program.instructions > 1500
    for number in range(601):
        for value in (0, 1, 2, 3, 4, 5, 89_704):
            call = Call(X86_64.audit, number, (value,))
            assert run(program.code, call) == decide(profile, call, pid=PID)


def test_equal_rules_are_written_once() -> None:
    rule = Choice(IsOneOf(0, tuple(range(50))), ALLOW, errno(1))
    one = assemble({"read": rule}, KILL, X86_64).instructions
    assert assemble({"read": rule, "mount": rule, "bpf": rule}, KILL, X86_64).instructions < one + 10


def test_the_bytes_are_sock_filter_structures() -> None:
    program = assemble({}, ALLOW, AARCH64, unknown=ALLOW)
    assert list(struct.iter_unpack("<HBBI", program.code)) == [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 1, 0, 0xC00000B7),  # aarch64? then over the next one
        (0x06, 0, 0, 0x80000000),  # kill
        (0x20, 0, 0, 0),  # load the number
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]


def test_a_name_that_the_architecture_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="aarch64 has no system call fork, open"):
        assemble({"open": ALLOW, "fork": ALLOW, "read": ALLOW}, KILL, AARCH64)


def test_a_program_that_the_kernel_would_refuse_is_an_error() -> None:
    with pytest.raises(ValueError, match="the kernel takes 4096"):
        assemble({"read": Choice(IsOneOf(0, tuple(range(5000))), ALLOW, KILL)}, KILL, X86_64)


@pytest.mark.parametrize("number", [-1, 0, 4096])
def test_an_error_number_out_of_range_is_an_error(number: int) -> None:
    with pytest.raises(ValueError, match="not an error number"):
        errno(number)


# --- the tables of numbers -----------------------------------------------------------------------


def header(*candidates: str) -> str:
    for candidate in candidates:
        if Path(candidate).exists():
            return Path(candidate).read_text()
    if os.environ.get("CI"):
        pytest.fail("the kernel headers are missing: install linux-libc-dev")
    pytest.skip("the kernel headers are not installed (linux-libc-dev)")


def compare(defined: dict[str, int], architecture: Architecture) -> None:
    """The header may be older than our table, or newer: compare up to the last number that both know."""
    last = min(max(defined.values()), max(architecture.numbers.values()))
    ours = {name: number for name, number in architecture.numbers.items() if number <= last}
    theirs = {name: number for name, number in defined.items() if number <= last}
    for newer in ("uretprobe", "uprobe"):  # given numbers in a gap that older headers leave
        if newer not in theirs:
            ours.pop(newer, None)
    assert ours == theirs


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its headers come with x86_64 alone")
def test_the_numbers_of_x86_64_are_those_of_the_header() -> None:
    text = header("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h")
    compare({name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}, X86_64)


def test_the_numbers_of_aarch64_are_those_of_the_generic_header() -> None:
    text = header("/usr/include/asm-generic/unistd.h")
    plain = {name: int(number) for name, number in re.findall(r"#define (__NR\w+)\s+(\d+)", text)}
    by_width = text[text.index("#if __BITS_PER_LONG == 64 && !defined(__SYSCALL_COMPAT)\n#define") :]
    for name, target in re.findall(r"#define (__NR_\w+) (__NR3264_\w+)", by_width.split("#else")[0]):
        plain[name] = plain.get(target, -1)
    not_calls = {"arch_specific_syscall", "syscalls", "sync_file_range2", "stat", "lstat"}
    only_32_bits = range(403, 424)
    compare(
        {
            name: number
            for name, number in ((full.removeprefix("__NR_"), number) for full, number in plain.items())
            if not name.startswith("__NR3264") and name not in not_calls and number not in only_32_bits
        },
        AARCH64,
    )


@EVERY_ARCHITECTURE
def test_no_number_is_given_twice(architecture: Architecture) -> None:
    assert len(set(architecture.numbers.values())) == len(architecture.numbers)


def test_only_x86_64_has_the_legacy_calls() -> None:
    legacy = {"open", "stat", "fork", "vfork", "pipe", "chmod", "mkdir", "creat", "unlink", "rename"}
    assert legacy <= X86_64.numbers.keys()
    assert not legacy & AARCH64.numbers.keys()


@pytest.mark.skipif(this_machine() is None, reason="neither x86_64 nor aarch64 Linux")
def test_the_kernel_knows_these_numbers_by_the_same_names() -> None:
    machine = this_machine()
    assert machine is not None
    syscall = ctypes.CDLL(None).syscall
    answers = {
        "getpid": os.getpid(),
        "getppid": os.getppid(),
        "gettid": threading.get_native_id(),
        "getuid": os.getuid(),
        "getegid": os.getegid(),
    }
    assert {name: syscall(machine.numbers[name]) for name in answers} == answers


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("Linux", "x86_64", X86_64),
        ("Linux", "aarch64", AARCH64),
        ("Linux", "riscv64", None),
        ("Linux", "aarch64_be", None),
        ("Darwin", "x86_64", None),
    ],
)
def test_a_machine_without_a_table_is_none(
    system: str, machine: str, expected: Architecture | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert this_machine() is expected
