"""Each profile against its table by the interpreter, and against the kernel by a throw-away child.

`python -m tests.sandbox.test_seccomp_filters PROFILE` makes every attempt twice, each in a child of its own: once
without the filter, which is the control, and once under it.
"""

import asyncio
import concurrent.futures.process
import concurrent.futures.thread
import ctypes
import errno
import fcntl
import json
import mmap
import multiprocessing
import os
import platform
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn, TypedDict, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sandbox.interpreter import Call, decide, run
from toolkeep.sandbox import seccomp_filters
from toolkeep.sandbox.seccomp_bpf import ALLOW, NOTIFY, Action, Choice, HasFlag, IsOneOf, Program, Rule
from toolkeep.sandbox.seccomp_filters import Profile, restricted, standard, strict, suspendable
from toolkeep.sandbox.syscalls import AARCH64, ARCHITECTURES, X86_64, Architecture, this_machine

PID = 4321


@cache
def profiles(architecture: Architecture) -> Mapping[str, Profile]:
    return {
        "standard": standard(architecture),
        "strict": strict(architecture, may_spawn=False, may_connect=False),
        "strict+spawn": strict(architecture, may_spawn=True, may_connect=False),
        "strict+connect": strict(architecture, may_spawn=False, may_connect=True),
        "strict+both": strict(architecture, may_spawn=True, may_connect=True),
        "supervised": strict(architecture, may_spawn=True, may_connect=True, is_supervised=True),
        "restricted": restricted(architecture),
    }


NAMES = tuple(profiles(X86_64))
EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda known: known.name)
EVERY_PROFILE = pytest.mark.parametrize("name", NAMES)


# --- by the interpreter --------------------------------------------------------------------------


def interesting(rule: Rule) -> set[int]:
    """The values at which a rule changes its mind, and their neighbours."""
    if isinstance(rule, Action):
        return set()
    values = {0, PID}
    if isinstance(rule.test, HasFlag):
        values |= {1 << bit for bit in range(64) if rule.test.mask >> bit & 1}
    if isinstance(rule.test, IsOneOf):
        values |= {value + step for value in rule.test.values for step in (-1, 0, 1, 2**32)}
    return values | interesting(rule.then) | interesting(rule.otherwise)


KNOWN = (*range(601), -1, 2**30, 2**30 + 59)
AUDITS = (X86_64.audit, AARCH64.audit)


@EVERY_ARCHITECTURE
@EVERY_PROFILE
def test_a_program_decides_every_number_as_its_table_does(name: str, architecture: Architecture) -> None:
    profile = profiles(architecture)[name]
    code = profile.program().for_process(PID)
    for call in (Call(audit, number, (0,) * 6) for audit in AUDITS for number in KNOWN):
        assert run(code, call) == decide(profile, call, pid=PID), call


@EVERY_ARCHITECTURE
@EVERY_PROFILE
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_program_decides_by_arguments_as_its_table_does(
    name: str, architecture: Architecture, data: st.DataObject
) -> None:
    profile = profiles(architecture)[name]
    code = profile.program().for_process(PID)
    edges = sorted(set().union(*(interesting(rule) for rule in profile.rules.values())))
    registers = st.sampled_from(edges) | st.integers(0, 2**64 - 1)
    arguments = data.draw(st.lists(registers, min_size=6, max_size=6).map(tuple))
    looks = {architecture.numbers[call] for call, rule in profile.rules.items() if isinstance(rule, Choice)}
    numbers = looks | set(data.draw(st.lists(st.sampled_from(KNOWN), max_size=20)))
    for call in (Call(audit, number, arguments) for audit in AUDITS for number in numbers):
        assert run(code, call) == decide(profile, call, pid=PID), call


@EVERY_ARCHITECTURE
@EVERY_PROFILE
def test_every_rule_is_met_at_each_of_its_edges(name: str, architecture: Architecture) -> None:
    profile = profiles(architecture)[name]
    code = profile.program().for_process(PID)
    for call_name, rule in profile.rules.items():
        for value in interesting(rule):
            for place in range(6):
                arguments = tuple(value if place == at else 0 for at in range(6))
                for six in (arguments, (1, 1, 1, 1, 0, 0), (value,) * 6):
                    call = Call(architecture.audit, architecture.numbers[call_name], six)
                    assert run(code, call) == decide(profile, call, pid=PID), (call_name, six)


@pytest.mark.spec("SBX-2")
@EVERY_ARCHITECTURE
@pytest.mark.parametrize("name", ["standard", "strict+spawn", "strict+both"])
def test_what_is_stopped_between_calls_cannot_have_itself_continued(
    name: str, architecture: Architecture
) -> None:
    code = suspendable(profiles(architecture)[name]).program().for_process(PID)

    def decided(call_name: str, *arguments: int) -> int:
        six = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
        return run(code, Call(architecture.audit, architecture.numbers[call_name], six))

    refused = [
        decided("timer_create", 1),
        decided("clone", signal.SIGCONT),
        decided("clone", 0x4100 | signal.SIGCONT),  # as vfork does
        decided("prctl", 1, signal.SIGCONT),
        decided("prctl", HIGH | 1, HIGH | signal.SIGCONT),
        decided("fcntl", 0, 10, signal.SIGCONT),
        decided("mq_notify"),
    ]
    allowed = [decided("clone", signal.SIGCHLD), decided("prctl", 1, signal.SIGKILL)]
    assert (set(refused), set(allowed)) == ({seccomp_filters.REFUSED.value}, {ALLOW.value})


@EVERY_ARCHITECTURE
@pytest.mark.parametrize(
    ("tighter", "looser"),
    [
        ("restricted", "strict"),
        ("strict", "strict+spawn"),
        ("strict", "strict+connect"),
        ("strict+spawn", "strict+both"),
        ("strict+connect", "strict+both"),
        ("strict+both", "standard"),
        ("strict+spawn", "supervised"),
        ("supervised", "standard"),
    ],
)
@settings(deadline=None)
@given(data=st.data())
def test_a_tighter_profile_allows_nothing_that_a_looser_one_refuses(
    tighter: str, looser: str, architecture: Architecture, data: st.DataObject
) -> None:
    tight, loose = profiles(architecture)[tighter], profiles(architecture)[looser]
    name = data.draw(st.sampled_from(sorted(tight.rules)))
    edges = interesting(tight.rules[name]) | interesting(loose.rules.get(name, ALLOW)) | {0, 2**64 - 1}
    arguments = data.draw(st.lists(st.sampled_from(sorted(edges)), min_size=6, max_size=6).map(tuple))
    call = Call(architecture.audit, architecture.numbers[name], arguments)
    if decide(tight, call, pid=PID) == ALLOW.value:
        assert decide(loose, call, pid=PID) == ALLOW.value, (name, arguments)


@EVERY_ARCHITECTURE
def test_the_size_of_each_program(architecture: Architecture) -> None:
    sizes = {name: profile.program().instructions for name, profile in profiles(architecture).items()}
    assert sizes == SIZES[architecture.name]


SIZES: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        "standard": 160,
        "strict": 249,
        "strict+spawn": 234,
        "strict+connect": 271,
        "strict+both": 255,
        "supervised": 254,
        "restricted": 227,
    },
    "aarch64": {
        "standard": 149,
        "strict": 231,
        "strict+spawn": 218,
        "strict+connect": 251,
        "strict+both": 238,
        "supervised": 244,
        "restricted": 212,
    },
}


@EVERY_ARCHITECTURE
@EVERY_PROFILE
def test_only_a_profile_without_processes_needs_the_pid(name: str, architecture: Architecture) -> None:
    program = profiles(architecture)[name].program()
    has_processes = name in {"standard", "strict+spawn", "strict+both", "supervised"}
    assert bool(program.pid_marks) is not has_processes


def test_every_name_in_a_group_is_a_system_call() -> None:
    groups = {
        name: value.split()
        for name, value in vars(seccomp_filters).items()
        if isinstance(value, str) and name.isupper()
    }
    observed = groups.pop("_OBSERVED")[:: seccomp_filters._FIELDS]
    assert len(groups) > 10
    called = {call for group in (*groups.values(), observed) for call in group}
    assert called <= X86_64.numbers.keys() | AARCH64.numbers.keys()


# --- written out a second time --------------------------------------------------------------------
# The tests above read the table they judge. These say on their own what must be refused.

NEVER = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "pidfd_getfd",
    "migrate_pages",
    "move_pages",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "modify_ldt",
    "lookup_dcookie",
    "nfsservctl",
    "uselib",
    "_sysctl",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "create_module",
    "get_kernel_syms",
    "query_module",
    "iopl",
    "ioperm",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "unshare",
    "setns",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "fanotify_mark",
    "reboot",
    "swapon",
    "swapoff",
    "sethostname",
    "setdomainname",
    "acct",
    "quotactl",
    "quotactl_fd",
    "syslog",
    "vhangup",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "seccomp",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "lsm_set_self_attr",
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "mq_open",
    "mq_unlink",
    "mq_timedsend",
    "mq_timedreceive",
    "mq_notify",
    "mq_getsetattr",
    "memfd_create",
    "memfd_secret",
    "execveat",
    "clone3",
    "openat2",
]

OTHER = 99
"""A pid that is not the worker's."""
HIGH = 7 << 32
"""What an int argument may carry in the half that the kernel does not read."""
NAMESPACE_FLAGS = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]

HOSTILE_EVERYWHERE: list[tuple[str, tuple[int, ...]]] = [
    *[("clone", (flag | 17,)) for flag in NAMESPACE_FLAGS],
    *[("clone", (flag | 0x10F00,)) for flag in NAMESPACE_FLAGS],  # as a thread
    *[
        ("clone", (flag | kind,)) for flag in (0x8000, 0x2000) for kind in (17, 0x10F00)
    ],  # CLONE_PARENT, CLONE_PTRACE
    *[("fcntl", (3, HIGH | command, OTHER)) for command in (8, 10, 15, 1024, 1026)],
    *[("ioctl", (0, HIGH | command)) for command in (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)],
    *[("prctl", (HIGH | option, 2)) for option in (22, 35, 0x59616D61)],
    *[("socket", (HIGH | family, 2)) for family in (9, 17, 38, 40)],  # X.25, packet, crypto, vsock
    ("personality", (0x40000,)),
    ("personality", (HIGH | 0x400000,)),
    ("prlimit64", (OTHER, 7)),
    ("setpriority", (0, OTHER)),
    ("setpriority", (1, 0)),
    ("setpriority", (2, 0)),
    ("ioprio_set", (1, OTHER)),
    ("ioprio_set", (3, 0)),
    *[
        (name, (OTHER,))
        for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    ],
    *[
        (name, (0, HIGH | bit))
        for name in ("creat", "mkdir", "chmod", "fchmod", "mknod")
        for bit in (0o4755, 0o2755)
    ],
    *[
        (name, (0, 0, HIGH | bit))
        for name in ("mkdirat", "fchmodat", "fchmodat2", "mknodat")
        for bit in (0o4755, 0o2755)
    ],
    *[("open", (0, flags, mode)) for flags in (0o101, 0o20200001) for mode in (0o4755, 0o2755)],
    *[("openat", (0, 0, flags, mode)) for flags in (0o101, 0o20200001) for mode in (0o4755, 0o2755)],
    # Room beyond the end, inserting, and bits of calls to come: all but making room and punching holes.
    *[("fallocate", (3, HIGH | mode)) for mode in (0x01, 0x02, 0x10, 0x11, 0x20, 0x40, 0x80)],
]

HOSTILE_WHERE_CONFINED: list[tuple[str, tuple[int, ...]]] = [
    *[("socketpair", (1, kind)) for kind in (2, 3, HIGH | 2, 0x80002)],
    ("socketpair", (2, 1)),
    ("sendto", (3, 0, 0, 0, 4096, 16)),
    ("sendto", (3, 0, 0, 0, 1 << 32, 16)),
    ("sendto", (3, 0, 0, 0x20000000)),
    ("sendmsg", (3, 0, 0x20000000)),
    *[("setsockopt", (3, 1, option)) for option in (26, 50, 51, 52)],
    ("setsockopt", (3, 6, 31)),
    *[("setsockopt", (3, 0, option)) for option in (2, 19, 35, 64)],
    *[("setsockopt", (3, 41, option)) for option in (2, 34, 54, 64, 75)],
    *[("setsockopt", (3, level, 1)) for level in (255, 263)],
    *[("socket", (1, kind)) for kind in (2, 3, HIGH | 2, 0x80002)],
    ("socket", (16, 1)),
    *[("socket", (2, kind)) for kind in (2, 3, 5, 10)],
    *[("socket", (2, 1, protocol)) for protocol in (132, 256, 262)],
    *[("prctl", (option, 1)) for option in (4, 8, 28, 47, 59)],
    *[("fcntl", (3, command)) for command in (1025, 1029)],
    *[("ioctl", (3, command)) for command in (0x5402, 0x40049409, 0x40086602, 0x8912)],
    *[(name, ()) for name in ("sendmmsg", "chown", "fchownat", "mknodat")],
    *[(name, ()) for name in ("splice", "vmsplice", "inotify_init1", "setuid", "setgroups")],
]

HOSTILE_WITHOUT_SUPERVISOR: list[tuple[str, tuple[int, ...]]] = [
    ("socket", (1, 1)),
    *[(name, ()) for name in ("bind", "listen", "accept", "accept4")],
]

HOSTILE_WHERE_CONFINED += [
    (f"{how}{what}{at}", ())
    for what in ("setxattr", "removexattr")
    for how, at in (("", ""), ("l", ""), ("f", ""), ("", "at"))
]

HOSTILE_WITHOUT_PROCESSES: list[tuple[str, tuple[int, ...]]] = [
    *[
        (name, ())
        for name in (
            "fork",
            "vfork",
            "execve",
            "setsid",
            "setpgid",
            "pidfd_open",
            "pidfd_send_signal",
            "tkill",
            "capset",
        )
    ],
    ("clone", (17,)),
    ("clone", (0x4100 | 17,)),  # as vfork does
    *[
        (name, (pid,))
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
        for pid in (-1, 0, 1, OTHER, -PID, HIGH | OTHER)
    ],
]

HOSTILE_WITHOUT_WRITING: list[tuple[str, tuple[int, ...]]] = [
    *[("open", (0, flags)) for flags in (1, 2, 3, 0o100, 0o1000, 0o20200000)],
    *[("openat", (0, 0, flags)) for flags in (1, 2, 3, 0o100, 0o1000, 0o20200000)],
    *[
        (name, ())
        for name in ("unlink", "unlinkat", "renameat2", "mkdirat", "fchmodat", "truncate", "ftruncate")
    ],
    *[
        (name, ())
        for name in ("utimensat", "linkat", "symlinkat", "flock", "socket", "connect", "sendmsg", "setrlimit")
    ],
    *[("fcntl", (3, command)) for command in (5, 6, 7, 36, 37, 38)],
    ("prlimit64", (0, 7, 4096)),
    ("prlimit64", (0, 7, 1 << 32)),
]

REFUSALS: list[tuple[str, list[tuple[str, tuple[int, ...]]]]] = [
    *[(name, [*[(call, ()) for call in NEVER], *HOSTILE_EVERYWHERE]) for name in NAMES],
    *[(name, HOSTILE_WHERE_CONFINED) for name in NAMES if name != "standard"],
    *[(name, HOSTILE_WITHOUT_SUPERVISOR) for name in NAMES if name not in ("standard", "supervised")],
    ("supervised", [("connect", ())]),
    *[(name, HOSTILE_WITHOUT_PROCESSES) for name in ("strict", "strict+connect", "restricted")],
    ("restricted", HOSTILE_WITHOUT_WRITING),
    *[(name, [("socket", (2, 1)), ("connect", ())]) for name in ("strict", "strict+spawn")],
]


@EVERY_ARCHITECTURE
@pytest.mark.parametrize(("name", "hostile"), REFUSALS)
def test_hostile_calls_are_refused(
    name: str, hostile: list[tuple[str, tuple[int, ...]]], architecture: Architecture
) -> None:
    code = profiles(architecture)[name].program().for_process(PID)
    allowed = [
        (call, arguments)
        for call, arguments in hostile
        if call in architecture.numbers
        and run(code, Call(architecture.audit, architecture.numbers[call], arguments)) == ALLOW.value
    ]
    assert allowed == []


THREAD = 0x3D0F00
"""What pthread_create asks for."""

FRIENDLY_EVERYWHERE: list[tuple[str, tuple[int, ...]]] = [
    ("clone", (THREAD,)),
    *[(name, (PID,)) for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")],
    ("setpriority", (0, 0)),
    ("sched_setaffinity", (0,)),
    ("prlimit64", (0, 7, 0, 4096)),
    *[("fcntl", (3, command)) for command in (0, 1, 2, 3, 4, 1030)],
    *[("ioctl", (3, command)) for command in (0x5401, 0x541B, 0x5421, 0x5451)],
    *[("prctl", (option,)) for option in (15, 16, 38)],
    *[("socketpair", (1, kind)) for kind in (0x80801, 5)],
    ("sendto", (3, 4096, 1, 0x4000)),  # MSG_NOSIGNAL
    ("setsockopt", (3, 1, 7)),
    ("setsockopt", (3, 6, 1)),
]

FRIENDLY_WITH_FILES: list[tuple[str, tuple[int, ...]]] = [
    ("open", (0, 0o101, 0o644)),
    ("openat", (0, 0, 0o101, 0o644)),
    ("openat", (0, 0, 0o2, 0o7777)),  # nothing is created: the mode is an old register
    *[(name, (0, 0o1777)) for name in ("mkdir", "chmod", "fchmod", "creat")],
    *[(name, (0, 0, 0o1777)) for name in ("mkdirat", "fchmodat", "fchmodat2")],
    *[("fcntl", (3, command)) for command in (5, 6, 7, 38)],
    ("prlimit64", (0, 7, 4096)),
    ("sendmsg", (3, 0, 0x4000)),
    *[("fallocate", (3, mode)) for mode in (0, 3)],
]

FRIENDLY_WITH_HOSTS: list[tuple[str, tuple[int, ...]]] = [
    ("setsockopt", (3, 0, 1)),  # IP_TOS
    *[("setsockopt", (3, 41, option)) for option in (26, 67)],  # IPV6_V6ONLY and IPV6_TCLASS
]

FRIENDLY_WITH_PROCESSES: list[tuple[str, tuple[int, ...]]] = [
    ("clone", (0x4100 | 17,)),  # as vfork does
    ("clone", (0x1200000 | 17,)),  # as fork does
    *[(name, (OTHER,)) for name in ("kill", "tgkill", "pidfd_open", "execve")],
]

ACCEPTANCES: list[tuple[str, list[tuple[str, tuple[int, ...]]]]] = [
    *[(name, FRIENDLY_EVERYWHERE) for name in NAMES],
    *[(name, FRIENDLY_WITH_FILES) for name in NAMES if name != "restricted"],
    *[(name, FRIENDLY_WITH_PROCESSES) for name in ("standard", "strict+spawn", "strict+both", "supervised")],
    *[(name, FRIENDLY_WITH_HOSTS) for name in ("standard", "strict+connect", "strict+both", "supervised")],
    *[
        (name, [("socket", (2, 0x80801, 6)), ("socket", (10, 1))])
        for name in ("standard", "strict+connect", "strict+both", "supervised")
    ],
    ("supervised", [*HOSTILE_WITHOUT_SUPERVISOR, ("socket", (1, 0x80805))]),
    ("restricted", [("open", (0, 0o2000000)), ("openat", (0, 0, 0o2200000)), ("openat", (0, 0, 0o10000000))]),
    (
        "standard",
        [
            ("personality", (0xFFFFFFFF,)),
            ("sched_setscheduler", (0,)),
            ("ioprio_set", (1, 0)),
            ("mknodat", (0, 0, 0o10644)),
        ],
    ),
]


@EVERY_ARCHITECTURE
@pytest.mark.parametrize(("name", "friendly"), ACCEPTANCES)
def test_friendly_calls_are_allowed(
    name: str, friendly: list[tuple[str, tuple[int, ...]]], architecture: Architecture
) -> None:
    code = profiles(architecture)[name].program().for_process(PID)
    refused = [
        (call, arguments)
        for call, arguments in friendly
        if call in architecture.numbers
        and run(code, Call(architecture.audit, architecture.numbers[call], arguments)) != ALLOW.value
    ]
    assert refused == []


def test_every_hostile_call_exists() -> None:
    calls = {call for _, hostile in REFUSALS for call, _ in hostile}
    assert calls <= X86_64.numbers.keys() | AARCH64.numbers.keys()


# --- by the kernel -------------------------------------------------------------------------------

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
SCRATCH_FILE = b"file"

Attempt = Callable[[], Iterator[None]]
ATTEMPTS: dict[str, Attempt] = {}
EXPECTED: list[tuple[str, str, str]] = []
"""The attempt, the profile, and how it must end there."""

STRICT = ("strict", "strict+spawn", "strict+connect", "strict+both", "supervised")
WITHOUT_PROCESSES = ("strict", "strict+connect", "restricted")
CONFINED = (*STRICT, "restricted")
ALL = ("standard", *CONFINED)


def ends(outcome: str, *where: str) -> Callable[[Attempt], Attempt]:
    """Say how an attempt ends under some profiles. What comes before its `yield` is not confined."""

    def note(attempt: Attempt) -> Attempt:
        ATTEMPTS[attempt.__name__] = attempt
        EXPECTED.extend((attempt.__name__, name, outcome) for name in where)
        return attempt

    return note


def raw(name: str, *arguments: object) -> int:
    """Make one system call as it is, past every fallback of libc."""
    machine = this_machine()
    assert machine is not None
    words = [ctypes.c_ulong(value % 2**64) if isinstance(value, int) else value for value in arguments]
    return check(LIBC.syscall(ctypes.c_long(machine.numbers[name]), *words))


def check(answer: int) -> int:
    if answer == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


# processes and signals


@ends("EPERM", *WITHOUT_PROCESSES)
@ends("done", "standard", "strict+spawn", "strict+both")
def fork() -> Iterator[None]:
    yield
    clone_with(0)


def clone_with(flags: int) -> None:
    pid = raw("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)


@ends("EPERM", *ALL)
def clone_into_a_user_namespace() -> Iterator[None]:
    yield
    clone_with(0x10000000)


@ends("EPERM", *ALL)
def clone_as_a_sibling() -> Iterator[None]:
    yield
    clone_with(0x8000)


@ends("ENOSYS", *ALL)
def clone3() -> Iterator[None]:
    yield
    raw("clone3", 0, 0)


@ends("EPERM", *WITHOUT_PROCESSES)
@ends("done", "standard", "strict+spawn", "strict+both")
def execute() -> Iterator[None]:
    yield
    os.execv("/bin/true", ["true"])  # noqa: S606


@ends("EPERM", *ALL)
def memfd() -> Iterator[None]:
    yield
    raw("memfd_create", b"name", 0)


@ends("EPERM", *ALL)
def execute_a_memfd() -> Iterator[None]:
    held = os.memfd_create("program")
    os.write(held, Path("/bin/true").read_bytes())
    yield
    raw("execveat", held, b"", (ctypes.c_char_p * 2)(b"true", None), (ctypes.c_char_p * 1)(None), 0x1000)


@ends("EPERM", *WITHOUT_PROCESSES)
@ends("done", "standard", "strict+spawn", "strict+both")
def signal_the_parent() -> Iterator[None]:
    yield
    raw("kill", os.getppid(), 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def signal_the_parent_with_a_high_half() -> Iterator[None]:
    yield
    raw("kill", 5 << 32 | os.getppid(), 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def signal_a_thread_of_the_parent() -> Iterator[None]:
    yield
    raw("tgkill", os.getppid(), os.getppid(), 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def signal_a_thread_by_its_bare_id() -> Iterator[None]:
    yield
    raw("tkill", os.getppid(), 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def signal_the_group() -> Iterator[None]:
    yield
    raw("kill", 0, 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def queue_a_signal_to_the_parent() -> Iterator[None]:
    yield
    raw("rt_sigqueueinfo", os.getppid(), 0, 0)


@ends("EPERM", *WITHOUT_PROCESSES)
def hold_the_parent() -> Iterator[None]:
    yield
    raw("pidfd_open", os.getppid(), 0)


@ends("done", *ALL)
def signal_oneself() -> Iterator[None]:
    yield
    caught: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
    signal.raise_signal(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert caught == [signal.SIGUSR1, signal.SIGUSR1]


@ends("killed by SIGABRT", *ALL)
def abort() -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    yield
    os.abort()


@ends("EPERM", *ALL)
def own_signals_by_fcntl() -> Iterator[None]:
    end, _ = os.pipe()
    yield
    raw("fcntl", end, 8, os.getppid())


@ends("EPERM", *ALL)
def trace() -> Iterator[None]:
    yield
    raw("ptrace", 0, 0, 0, 0)


@ends("EPERM", *ALL)
def read_memory_by_pid() -> Iterator[None]:
    yield
    raw("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0)


@ends("EPERM", *ALL)
def write_memory_by_pid() -> Iterator[None]:
    yield
    raw("process_vm_writev", os.getpid(), 0, 0, 0, 0, 0)


@ends("EPERM", *ALL)
def compare_processes() -> Iterator[None]:
    yield
    raw("kcmp", os.getpid(), os.getpid(), 1, 0, 0)


@ends("EPERM", *ALL)
def take_a_descriptor() -> Iterator[None]:
    held = os.pidfd_open(os.getpid())
    yield
    raw("pidfd_getfd", held, 0, 0)


@ends("EPERM", *ALL)
def read_the_limits_of_the_parent() -> Iterator[None]:
    yield
    raw("prlimit64", os.getppid(), resource.RLIMIT_NOFILE, 0, ctypes.create_string_buffer(16))


@ends("EPERM", "restricted")
@ends("done", "standard", *STRICT)
def set_own_limit() -> Iterator[None]:
    limits = ctypes.create_string_buffer(16)
    raw("prlimit64", 0, resource.RLIMIT_CORE, 0, limits)
    yield
    raw("prlimit64", 0, resource.RLIMIT_CORE, limits, 0)


@ends("done", *ALL)
def read_own_limit() -> Iterator[None]:
    yield
    resource.getrlimit(resource.RLIMIT_NOFILE)


@ends("EPERM", *ALL)
def renice_the_parent() -> Iterator[None]:
    nice = os.getpriority(os.PRIO_PROCESS, os.getppid())
    yield
    raw("setpriority", os.PRIO_PROCESS, os.getppid(), nice)


@ends("EPERM", *ALL)
def renice_the_group() -> Iterator[None]:
    os.setpgid(0, 0)
    nice = os.getpriority(os.PRIO_PGRP, 0)
    yield
    raw("setpriority", os.PRIO_PGRP, 0, nice)


@ends("EPERM", *ALL)
def move_the_parent() -> Iterator[None]:
    mask = ctypes.create_string_buffer(1024)
    raw("sched_getaffinity", os.getppid(), 1024, mask)
    yield
    raw("sched_setaffinity", os.getppid(), 1024, mask)


@ends("EPERM", *ALL)
def schedule_the_parent() -> Iterator[None]:
    yield
    raw("sched_setscheduler", os.getppid(), 0, ctypes.byref(ctypes.c_int(0)))


@ends("EPERM", *ALL)
def set_io_priority_of_the_parent() -> Iterator[None]:
    now = raw("ioprio_get", 1, os.getppid())
    yield
    raw("ioprio_set", 1, os.getppid(), now)


# namespaces, mounts, and its own confinement


@ends("EPERM", *ALL)
def unshare() -> Iterator[None]:
    yield
    raw("unshare", 0x10000000)


@ends("EPERM", *ALL)
def join_a_namespace() -> Iterator[None]:
    yield
    raw("setns", -1, 0)


@ends("EPERM", *ALL)
def mount() -> Iterator[None]:
    raw("unshare", 0x10020000)
    yield
    raw("mount", b"none", b".", b"tmpfs", 0, 0)


@ends("EPERM", *ALL)
def unmount() -> Iterator[None]:
    raw("unshare", 0x10020000)
    raw("mount", b"none", b"folder", b"tmpfs", 0, 0)
    yield
    raw("umount2", b"folder", 0)


@ends("EPERM", *ALL)
def open_a_file_system() -> Iterator[None]:
    raw("unshare", 0x10020000)
    yield
    raw("fsopen", b"tmpfs", 0)


@ends("EPERM", *ALL)
def clone_a_mount() -> Iterator[None]:
    raw("unshare", 0x10020000)
    yield
    raw("open_tree", AT_FDCWD, b".", 1)


@ends("EPERM", *ALL)
def change_the_root() -> Iterator[None]:
    raw("unshare", 0x10020000)
    yield
    raw("chroot", b".")


@ends("EPERM", *ALL)
def make_a_landlock_ruleset() -> Iterator[None]:
    yield
    raw("landlock_create_ruleset", 0, 0, 1)


@ends("EPERM", *ALL)
def widen_a_landlock_ruleset() -> Iterator[None]:
    yield
    raw("landlock_add_rule", -1, 1, 0, 0)


@ends("EPERM", *ALL)
def use_seccomp() -> Iterator[None]:
    yield
    raw("seccomp", 2, 0, ctypes.byref(ctypes.c_uint(0x7FFF0000)))


@ends("EPERM", *ALL)
def use_seccomp_by_prctl() -> Iterator[None]:
    LIBC.prctl(38, 1, 0, 0, 0)
    yield
    raw("prctl", 22, 2, 0)


@ends("EPERM", *CONFINED)
def become_dumpable() -> Iterator[None]:
    yield
    raw("prctl", 4, 1, 0, 0, 0)


@ends("EPERM", *ALL)
def invite_a_tracer() -> Iterator[None]:
    yield
    raw("prctl", 0x59616D61, os.getppid(), 0, 0, 0)


@ends("EPERM", *ALL)
def weaken_its_address_space() -> Iterator[None]:
    yield
    raw("personality", 0x0040000)


# the kernel and the machine


@ends("EPERM", *ALL)
def bpf() -> Iterator[None]:
    yield
    raw("bpf", -1, 0, 0)


@ends("EPERM", *ALL)
def perf() -> Iterator[None]:
    yield
    raw("perf_event_open", 0, 0, -1, -1, 0)


@ends("EPERM", *ALL)
def userfaultfd() -> Iterator[None]:
    yield
    raw("userfaultfd", 1)


@ends("EPERM", *ALL)
def io_uring() -> Iterator[None]:
    yield
    raw("io_uring_setup", 1, ctypes.create_string_buffer(120))


@ends("EPERM", *ALL)
def keys() -> Iterator[None]:
    yield
    raw("keyctl", -1, 0, 0, 0, 0)


@ends("EPERM", *ALL)
def quotas() -> Iterator[None]:
    yield
    raw("quotactl", -1, 0, 0, 0)


@ends("EPERM", *ALL)
def watch_by_fanotify() -> Iterator[None]:
    yield
    raw("fanotify_init", 0x200, 0)


@ends("EPERM", *ALL)
def name_a_handle() -> Iterator[None]:
    yield
    raw("name_to_handle_at", AT_FDCWD, b".", 0, 0, 0)


@ends("EPERM", *ALL)
def open_by_handle() -> Iterator[None]:
    yield
    raw("open_by_handle_at", AT_FDCWD, 0, 0)


@ends("EPERM", *ALL)
def shared_memory() -> Iterator[None]:
    yield
    held = raw("shmget", 0, 4096, 0o600)
    raw("shmctl", held, 0, 0)


@ends("EPERM", *ALL)
def message_queue() -> Iterator[None]:
    yield
    held = raw("msgget", 0, 0o600)
    raw("msgctl", held, 0, 0)


@ends("EPERM", *ALL)
def semaphores() -> Iterator[None]:
    yield
    held = raw("semget", 0, 1, 0o600)
    raw("semctl", held, 0, 0)


@ends("EPERM", *ALL)
def posix_message_queue() -> Iterator[None]:
    name = f"toolkeep-{os.getpid()}".encode()
    yield
    raw("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, 0)
    raw("mq_unlink", name)


def type_into_the_terminal(command: int) -> Iterator[None]:
    _, terminal = os.openpty()
    os.setsid()
    fcntl.ioctl(terminal, 0x540E, 0)
    yield
    raw("ioctl", terminal, command, b"x")


@ends("EPERM", "standard")
@ends("ENOTTY", *CONFINED)
def tiocsti() -> Iterator[None]:
    return type_into_the_terminal(0x5412)


@ends("EPERM", "standard")
@ends("ENOTTY", *CONFINED)
def tiocsti_with_a_high_half() -> Iterator[None]:
    return type_into_the_terminal(1 << 32 | 0x5412)


@ends("EPERM", "standard")
def tioclinux() -> Iterator[None]:
    return type_into_the_terminal(0x541C)


@ends("killed by SIGSYS", *ALL)
def x32() -> Iterator[None]:
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, "only x86_64 has it")
    yield
    check(LIBC.syscall(ctypes.c_long(0x40000000 | X86_64.numbers["getpid"])))


@ends("killed by SIGSYS", *ALL)
def call_through_the_table_of_i386() -> Iterator[None]:
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, "only x86_64 has it")
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
    yield
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()


@ends("ENOSYS", *ALL)
def a_call_newer_than_the_tables() -> Iterator[None]:
    yield
    check(LIBC.syscall(ctypes.c_long(max(X86_64.numbers.values()) + 1), ctypes.c_long(-1)))


# files


@ends("EPERM", "standard", *STRICT)
def setuid_by_chmod() -> Iterator[None]:
    yield
    raw("fchmodat", AT_FDCWD, SCRATCH_FILE, 0o4755)


@ends("EPERM", "standard", *STRICT)
def setgid_by_fchmod() -> Iterator[None]:
    held = os.open(SCRATCH_FILE, os.O_RDONLY)
    yield
    raw("fchmod", held, 0o2755)


@ends("EPERM", "standard", *STRICT)
def setuid_by_fchmodat2() -> Iterator[None]:
    yield
    raw("fchmodat2", AT_FDCWD, SCRATCH_FILE, 0o4755, 0)


@ends("EPERM", "standard", *STRICT)
def setuid_by_openat() -> Iterator[None]:
    yield
    raw("openat", AT_FDCWD, b"new", os.O_CREAT | os.O_WRONLY, 0o4755)


@ends("EPERM", "standard", *STRICT)
def setuid_by_an_unnamed_file() -> Iterator[None]:
    yield
    raw("openat", AT_FDCWD, b".", os.O_TMPFILE | os.O_WRONLY, 0o4755)


@ends("EPERM", "standard", *STRICT)
def setuid_by_mkdirat() -> Iterator[None]:
    yield
    raw("mkdirat", AT_FDCWD, b"new", 0o4755)


@ends("EPERM", "standard", *STRICT)
def setuid_by_mknodat() -> Iterator[None]:
    yield
    raw("mknodat", AT_FDCWD, b"new", 0o104755, 0)


@ends("EPERM", *STRICT)
def make_a_pipe_with_a_name() -> Iterator[None]:
    yield
    os.mkfifo("new")


@ends("done", "standard", *STRICT)
def modes_without_setuid() -> Iterator[None]:
    yield
    Path("file").chmod(0o755)
    Path("new").mkdir(mode=0o1777)
    Path("new", "inner").touch(mode=0o640)


@ends("ENOSYS", "standard", *STRICT, "restricted")
def openat2() -> Iterator[None]:
    yield
    raw("openat2", AT_FDCWD, 0, 0, 0)


@ends("EACCES", "restricted")
def open_to_write() -> Iterator[None]:
    yield
    os.open(SCRATCH_FILE, os.O_WRONLY)


@ends("EACCES", "restricted")
def open_to_truncate() -> Iterator[None]:
    yield
    os.open(SCRATCH_FILE, os.O_RDONLY | os.O_TRUNC)


@ends("EACCES", "restricted")
def create() -> Iterator[None]:
    yield
    os.open("new", os.O_RDONLY | os.O_CREAT)


@ends("EPERM", "restricted")
def remove() -> Iterator[None]:
    yield
    Path("file").unlink()


@ends("EPERM", "restricted")
def make_a_folder() -> Iterator[None]:
    yield
    Path("new").mkdir()


@ends("EPERM", "restricted")
def change_a_mode() -> Iterator[None]:
    yield
    Path("file").chmod(0o644)


@ends("done", "restricted")
def open_to_read() -> Iterator[None]:
    yield
    os.open(SCRATCH_FILE, os.O_RDONLY)


@ends("done", "restricted")
def look_at_a_file() -> Iterator[None]:
    yield
    Path("file").stat()


@ends("EINVAL", *STRICT)
@ends("EPERM", "restricted")
def rename_and_leave_a_device() -> Iterator[None]:
    yield
    raw("renameat2", AT_FDCWD, SCRATCH_FILE, AT_FDCWD, b"other", 4)


@ends("done", *STRICT)
def rename_to_what_is_not_there() -> Iterator[None]:
    yield
    raw("renameat2", AT_FDCWD, SCRATCH_FILE, AT_FDCWD, b"other", 1)


@ends("ENOTSUP", *STRICT)
@ends("EPERM", "restricted")
def set_an_extended_attribute() -> Iterator[None]:
    yield
    raw("lsetxattr", SCRATCH_FILE, b"user.note", b"x", 1, -1)


@ends("EPERM", *CONFINED)
def change_an_owner() -> Iterator[None]:
    yield
    os.chown("file", -1, -1)


@ends("EPERM", "restricted")
def lock_a_file() -> Iterator[None]:
    held = os.open(SCRATCH_FILE, os.O_RDONLY)
    yield
    fcntl.lockf(held, fcntl.LOCK_SH)


# sockets


@ends("EPERM", "strict", "strict+spawn", "restricted")
@ends("done", "standard", "strict+connect", "strict+both", "supervised")
def tcp_socket() -> Iterator[None]:
    yield
    raw("socket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0)


@ends("EPERM", *CONFINED)
def udp_socket() -> Iterator[None]:
    yield
    raw("socket", socket.AF_INET, socket.SOCK_DGRAM, 0)


@ends("EPERM", *CONFINED)
def mptcp_socket() -> Iterator[None]:
    yield
    raw("socket", socket.AF_INET, socket.SOCK_STREAM, 262)


@ends("EAFNOSUPPORT", "strict+connect", "strict+both")
@ends("EPERM", "strict", "strict+spawn", "restricted")
@ends("done", "supervised")
def unix_socket() -> Iterator[None]:
    yield
    raw("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)


@ends("EAFNOSUPPORT", "standard")
def packet_socket() -> Iterator[None]:
    yield
    raw("socket", 17, socket.SOCK_DGRAM, 0)


@ends("EPERM", *(name for name in CONFINED if name != "supervised"))
def listen() -> Iterator[None]:
    held = socket.socket()
    yield
    held.bind(("127.0.0.1", 0))


@ends("EPERM", *CONFINED)
def send_to_a_unix_datagram_socket_from_a_pair() -> Iterator[None]:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind("server")
    yield
    mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    mine.sendto(b"leak", "server")
    assert server.recv(4) == b"leak"


@ends("EPERM", *CONFINED)
def raw_socketpair() -> Iterator[None]:
    yield
    raw("socketpair", socket.AF_UNIX, socket.SOCK_RAW, 0, (ctypes.c_int * 2)())


@ends("EPERM", *CONFINED)
def send_to_an_address() -> Iterator[None]:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind("server")
    mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    yield
    mine.sendto(b"leak", "server")


def tcp_server() -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


@ends("EPERM", *CONFINED)
def connect_while_sending() -> Iterator[None]:
    server, client = tcp_server(), socket.socket()
    yield
    client.sendto(b"x", socket.MSG_FASTOPEN, server.getsockname())


@ends("EPERM", *CONFINED)
def connect_while_sending_a_message() -> Iterator[None]:
    server, client = tcp_server(), socket.socket()
    yield
    client.sendmsg([b"x"], [], socket.MSG_FASTOPEN, server.getsockname())


@ends("EPERM", "strict", "strict+spawn", "restricted")
@ends("done", "standard", "strict+connect", "strict+both")
@ends("ENOSYS", "supervised")  # No supervisor has its listener.
def connect() -> Iterator[None]:
    server, client = tcp_server(), socket.socket()
    yield
    client.connect(server.getsockname())


@ends("ENOPROTOOPT", *CONFINED)
def attach_a_filter() -> Iterator[None]:
    held, _ = socket.socketpair()
    yield
    raw("setsockopt", held.fileno(), socket.SOL_SOCKET, 26, 0, 0)


@ends("ENOPROTOOPT", *CONFINED)
def put_a_protocol_on_top() -> Iterator[None]:
    held = socket.socket()
    yield
    raw("setsockopt", held.fileno(), socket.IPPROTO_TCP, 31, b"tls", 3)


@ends("ENOPROTOOPT", *CONFINED)
def set_an_option_of_netfilter() -> Iterator[None]:
    held = socket.socket()
    yield
    raw("setsockopt", held.fileno(), 0, 64, 0, 0)


# what ordinary programs do


@ends("done", *ALL)
def threads() -> Iterator[None]:
    yield
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(abs, range(-50, 0))) == list(range(50, 0, -1))


@ends("done", *ALL)
def event_loop() -> Iterator[None]:
    yield

    async def work() -> int:
        await asyncio.sleep(0)
        return await asyncio.wait_for(asyncio.to_thread(os.getpid), 10)

    assert asyncio.run(work()) == os.getpid()


@ends("done", "standard", *STRICT, "restricted")
def event_loop_with_signals() -> Iterator[None]:
    yield

    async def work() -> None:
        loop = asyncio.get_running_loop()
        caught = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, caught.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(caught.wait(), 10)

    asyncio.run(work())


@ends("done", "standard", *STRICT)
def database() -> Iterator[None]:
    yield
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for mode in ("delete", "wal"):
            with sqlite3.connect(Path(folder, mode)) as base:
                base.execute(f"pragma journal_mode={mode}")
                base.execute("create table t (x)")
                base.execute("insert into t values (1)")
            assert base.execute("select x from t").fetchall() == [(1,)]
            base.close()


@ends("done", "standard", *STRICT)
def temporary_files() -> Iterator[None]:
    yield
    with tempfile.TemporaryDirectory(dir=".") as folder, tempfile.TemporaryFile(dir=folder) as unnamed:
        unnamed.write(b"x" * 100_000)
        with tempfile.NamedTemporaryFile(dir=folder) as named:
            named.write(b"y")
            fcntl.flock(named, fcntl.LOCK_EX)
            os.fsync(named.fileno())
        source, target = Path(folder, "a"), Path(folder, "b")
        source.write_text("text")
        source.replace(target)
        os.utime(target, (1, 1))
        assert [entry.name for entry in os.scandir(folder)] == ["b"]


@ends("done", "standard", *STRICT, "restricted")
def time_zones() -> Iterator[None]:
    if not zoneinfo.available_timezones():
        raise OSError(errno.ENOENT, "no time zones on this machine")
    yield
    zoneinfo.ZoneInfo.no_cache("Europe/Vienna")


@ends("done", "standard", *STRICT, "restricted")
def foreign_functions() -> Iterator[None]:
    yield
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL("libc.so.6").qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
    assert list(numbers) == [1, 2, 3]


SELF_TEST = """
import asyncio, ctypes, hashlib, json, multiprocessing, os, pathlib, random, sqlite3, ssl, tempfile, threading
import shutil, subprocess, sys
thread = threading.Thread(target=sum, args=([1],)); thread.start(); thread.join()
async def child():
    process = await asyncio.create_subprocess_exec("/bin/cat", stdin=-1, stdout=-1)
    return (await process.communicate(b"x"))[0]
assert asyncio.run(child()) == b"x"
with tempfile.TemporaryDirectory(dir=".") as folder:
    shutil.copy2(sys.executable, folder); shutil.copytree(folder, folder + "/copy")
"""


@ends("done", "standard", "strict+spawn", "strict+both", "supervised")
def other_programs() -> Iterator[None]:
    yield
    script = "echo a b | tr a-b c-d | sort; pwd >/dev/null; ls -l >list; cp -p list copy; sed -i s/a/b/ copy"
    piped = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"c d\n", b"")
    subprocess.run([sys.executable, "-I", "-c", SELF_TEST], check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["/bin/cat"], stdin=os.pipe()[0], timeout=0.01, check=False)


@ends("done", "standard", "strict+spawn", "strict+both")
def pool_of_processes() -> Iterator[None]:
    yield
    # From 3.14 on the default is a server of forks, which is asked over a unix socket.
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]


# --- making the attempts -------------------------------------------------------------------------


class SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def install(program: Program) -> None:
    """Put the filter on this process, for good."""
    code = program.for_process(os.getpid())
    given_to_kernel = SockFprog(program.instructions, code)
    check(LIBC.prctl(38, 1, 0, 0, 0))
    check(LIBC.prctl(22, 2, ctypes.byref(given_to_kernel), 0, 0))


def outcome_of(attempt: Attempt, program: Program | None) -> str:
    """Make one attempt in a child and a folder of its own, and say how it ended."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").touch()
        Path(folder, "folder").mkdir()
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            os.write(writing, make(attempt, program).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read().decode()
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else told or "done"


def make(attempt: Attempt, program: Program | None) -> str:
    steps = attempt()
    try:
        next(steps)
        if program is not None:
            install(program)
    except OSError as error:
        return f"not prepared: {error}"
    try:
        next(steps, None)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except BaseException as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "done"


def sweep(profile: Profile) -> dict[str, str]:
    """Make every call that is refused whatever its arguments, all in one child."""
    dangerous_without_the_filter = {"fork", "vfork", "clone", "vhangup"}
    names = sorted(profile.architecture.numbers.keys() - dangerous_without_the_filter)
    refused = [name for name in names if constant(profile, name) not in {None, ALLOW, NOTIFY}]
    answers: dict[str, str] = {}

    def attempt() -> Iterator[None]:
        yield
        for name in refused:
            try:
                raw(name, -1, -1, -1, -1, -1, -1)
                answers[name] = "done"
            except OSError as error:
                answers[name] = errno.errorcode[error.errno or 0]
        raise ValueError(json.dumps(answers))

    told = outcome_of(attempt, profile.program())
    return dict(json.loads(told.removeprefix("ValueError: ")))


def constant(profile: Profile, name: str) -> Action | None:
    rule = profile.rules.get(name, profile.default)
    return None if isinstance(rule, Choice) else rule


def main(name: str) -> None:
    machine = this_machine()
    assert machine is not None
    profile = profiles(machine)[name]
    program = profile.program()
    chosen = {attempt for attempt, where, _ in EXPECTED if where == name}
    outcomes = {
        attempt: (outcome_of(ATTEMPTS[attempt], None), outcome_of(ATTEMPTS[attempt], program))
        for attempt in chosen
    }
    print(json.dumps({"outcomes": outcomes, "sweep": sweep(profile)}))


class Report(TypedDict):
    outcomes: dict[str, tuple[str, str]]
    """How each attempt ended without the filter, and under it."""
    sweep: dict[str, str]


@cache
def report(name: str) -> Report:
    if this_machine() is None:
        pytest.skip("neither x86_64 nor aarch64 Linux")
    done = subprocess.run(
        [sys.executable, "-m", "tests.sandbox.test_seccomp_filters", name],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return cast("Report", json.loads(done.stdout))


X86_ONLY = {"call_through_the_table_of_i386", "x32"}


def cannot_show(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.parametrize("attempt", sorted({attempt for attempt, _, _ in EXPECTED}))
def test_an_attempt_ends_under_each_filter_as_it_must(attempt: str) -> None:
    if attempt in X86_ONLY and platform.machine() != "x86_64":
        pytest.skip("only x86_64 has such calls")
    expected = {name: ending for one, name, ending in EXPECTED if one == attempt}
    found = {name: report(name)["outcomes"][attempt] for name in expected}
    for name, (control, _) in found.items():
        if control.startswith("not prepared") or (expected[name] == "done" and control != "done"):
            cannot_show(f"not even without a filter: {control}")
    assert {name: confined for name, (_, confined) in found.items()} == expected
    for name, (control, confined) in found.items():
        if control == confined and attempt not in SAME_WITHOUT_A_FILTER and expected[name] != "done":
            cannot_show(f"this machine ends it so without a filter: {control}")


SAME_WITHOUT_A_FILTER = {"abort", "a_call_newer_than_the_tables"}


@EVERY_PROFILE
def test_every_call_that_is_refused_outright_is_refused_by_the_kernel(name: str) -> None:
    machine = this_machine()
    answers = report(name)["sweep"]
    assert machine is not None
    profile = profiles(machine)[name]
    assert len(answers) > 60
    for call, answer in answers.items():
        rule = constant(profile, call)
        assert rule is not None
        assert errno.errorcode[rule.value & 0xFFFF] == answer, call


if __name__ == "__main__":
    main(sys.argv[1])
