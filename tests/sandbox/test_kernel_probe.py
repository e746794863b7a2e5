"""What a machine can give, and how poorer machines are told apart."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.descriptors import moved_up
from tests.sandbox.workers import POORER
from toolkeep.errors import Code
from toolkeep.sandbox import kernel_probe, memory_trial
from toolkeep.sandbox.container_check import is_container
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.isolation_cure import REMEDIES
from toolkeep.sandbox.isolation_levels import Guarantee, Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import AS_ORDINARY, Finding, Findings, probe, try_mechanisms
from toolkeep.sandbox.syscalls import this_machine

NAMESPACES = frozenset(mechanism for mechanism in Mechanism if mechanism.endswith("-namespace"))
CONFINED = frozenset({Isolation.STRICT, Isolation.RESTRICTED})
ALL = frozenset({Isolation.STANDARD, *CONFINED})

LOOK = """
import json
from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.kernel_probe import probe
found, refused = probe(), {}
for level in Isolation:
    try:
        found.require(level)
    except ToolkeepError as error:
        refused[level] = [error.message, error.hint]
lacking = {finding.mechanism: finding.reason for finding in found.findings if not finding.works}
print(json.dumps({"lacking": lacking, "refused": refused}))
"""


class Seen(NamedTuple):
    """What a probe found out on another machine: mechanisms and levels that are not there, and why."""

    lacking: dict[str, str]
    refused: dict[str, list[str]]


@functools.cache
def seen_on(poorer: str) -> Seen:
    command = [sys.executable, POORER, poorer, sys.executable, "-c", LOOK]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return Seen(**json.loads(done.stdout))


def without(*calls: str) -> str:
    machine = this_machine()
    assert machine is not None
    return ",".join(str(machine.numbers[call]) for call in calls)


@pytest.mark.spec("SBX-1")
def test_this_machine_gives_every_level() -> None:
    findings = probe()
    assert {finding.mechanism for finding in findings.findings if not finding.works} <= {
        Mechanism.MEMORY_CGROUP
    }
    for level in Isolation:
        findings.require(level)
        assert findings.is_available(level)


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("poorer", "lacking", "refused"),
    [
        (without("unshare"), NAMESPACES | {Mechanism.MEMORY_WATCH, Mechanism.SECCOMP_SUPERVISOR}, ALL),
        ("user-namespaces", NAMESPACES | {Mechanism.MEMORY_WATCH, Mechanism.SECCOMP_SUPERVISOR}, ALL),
        (without("pidfd_getfd"), {Mechanism.SECCOMP_SUPERVISOR}, set()),
        ("landlock", {Mechanism.LANDLOCK, Mechanism.LANDLOCK_PORTS}, CONFINED),
        ("seccomp", {Mechanism.SECCOMP}, ALL),
        (without("mount", "mount_setattr"), {Mechanism.MOUNT_NAMESPACE}, ALL),
        (without("prlimit64"), {Mechanism.MEMORY_LIMIT}, ALL),
        pytest.param(
            *("admin", set(), ALL),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can hold less than root"),
        ),
    ],
    ids=["unshare", "user-namespaces", "pidfd", "landlock", "seccomp", "mounts", "limits", "admin"],
)  # fmt: skip
def test_a_poorer_machine_is_told_apart(
    poorer: str, lacking: set[Mechanism], refused: set[Isolation]
) -> None:
    found = seen_on(poorer)
    assert (set(found.lacking) - {Mechanism.MEMORY_CGROUP}, set(found.refused)) == (lacking, refused)


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("poorer", "level", "named"),
    [
        ("landlock", "strict", "missing landlock (Landlock 3 is needed, this kernel has none), needed for fs-read, fs-write"),
        ("user-namespaces", "standard", "user-namespace ([Errno 28] unshare(0x10000000): No space left on device)"),
        ("seccomp", "restricted", "seccomp ([Errno 22] prctl(PR_SET_SECCOMP): Invalid argument)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(poorer: str, level: str, named: str) -> None:
    assert named in seen_on(poorer).refused[level][0]


@pytest.mark.spec("SBX-1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hold less than root")
def test_root_without_its_capability_is_told_to_be_somebody_else() -> None:
    """Every mechanism works for a user that root could become; a zygote cannot be started."""
    message, hint = seen_on("admin").refused["standard"]
    assert message == "isolation 'standard' is not available here: no worker could be started"
    assert hint == (
        "the sandbox could not be set up: PermissionError: [Errno 1] unshare(0x20000): Operation not permitted; "
        + AS_ORDINARY
    )


def test_a_level_counts_after_its_rehearsal_only() -> None:
    def all_work(mechanisms: Sequence[Mechanism]) -> list[Finding]:
        return [Finding(mechanism, works=True) for mechanism in mechanisms]

    findings = probe(all_work, lambda _: {Isolation.STRICT: "it fell over"})
    assert [level for level in Isolation if findings.is_available(level)] == [
        "none",
        "standard",
        "restricted",
    ]
    with pytest.raises(SandboxUnavailable):
        findings.require(Isolation.STRICT)


def test_for_one_level_no_more_is_tried_than_it_needs() -> None:
    tried: list[Sequence[Mechanism]] = []
    rehearsed: list[Isolation] = []

    def attempt(mechanisms: Sequence[Mechanism]) -> list[Finding]:
        tried.append(mechanisms)
        return [Finding(mechanism, works=True) for mechanism in mechanisms]

    def rehearse(levels: Iterable[Isolation]) -> dict[Isolation, str]:
        rehearsed.extend(levels)
        return {}

    for level in sorted(ALL):
        probe(attempt, rehearse, levels=(level,)).require(level, connects=level is Isolation.STRICT)
    probe(attempt, rehearse)
    assert rehearsed == [*sorted(ALL), *(level for level in Isolation if level in ALL)]
    assert [len(mechanisms) for mechanisms in tried] == [9, 6, 13, len(Mechanism)]


def test_a_rehearsal_says_why_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_probe, "_TOOL", "os:no_such_function")
    (reason,) = kernel_probe.try_levels([Isolation.STANDARD]).values()
    assert reason.startswith("a worker gave no answer: unloaded Absent")


@pytest.mark.spec("SBX-1")
def test_a_level_that_misses_a_promise_is_refused_by_name() -> None:
    findings = Findings(
        tuple(
            Finding(mechanism, works=mechanism is not Mechanism.LANDLOCK, reason="absent")
            for mechanism in Mechanism
        )
    )
    findings.require(Isolation.STANDARD)
    with pytest.raises(SandboxUnavailable) as refused:
        findings.require(Isolation.STRICT)
    assert refused.value.code is Code.ISOLATION_UNAVAILABLE
    assert refused.value.missing == ("missing landlock (absent), needed for fs-read, fs-write",)
    assert refused.value.hint == REMEDIES[Mechanism.LANDLOCK]
    assert set(findings.missing(Isolation.STRICT)) == {Guarantee.FS_READ, Guarantee.FS_WRITE}


@pytest.mark.parametrize("program", ["/bin/true", "/nonexistent"])
def test_a_trial_that_gives_no_answer_has_shown_nothing(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.sandbox.launch.interpreter", lambda: program)
    (found,) = try_mechanisms([Mechanism.SECCOMP])
    assert (found.works, found.reason.startswith("the trial")) == (False, True)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (".dockerenv", "", True),
        ("run/.containerenv", "", True),
        ("proc/1/cgroup", "0::/system.slice/docker-1234.scope", True),
        ("proc/1/cgroup", "0::/init.scope", False),
        ("etc/hostname", "", False),
    ],
)
def test_a_container_is_recognized(file: str, content: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert is_container(tmp_path) is expected


def test_a_process_with_many_open_files_can_be_looked_at_too() -> None:
    heard, said = map(moved_up, os.pipe())
    with os.fdopen(heard, "rb", 0) as told, os.fdopen(said, "wb", 0) as tell:
        tell.write(b"words")
        assert memory_trial._heard(told) == b"words"


ENDED = """
import os
from toolkeep.sandbox.guest import trial

os.kill = lambda *_: os._exit(0)  # as if the host ended the trial at this moment
trial._try_pid_namespace()
"""


def test_a_trial_that_is_ended_in_the_middle_leaves_no_process() -> None:
    # What it leaves would hold its output open.
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
