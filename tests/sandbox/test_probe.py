"""What a machine can give, and how poorer machines are told apart."""

import functools
import sys
from pathlib import Path

import pytest

from toolkeep.errors import Code
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.levels import Guarantee, Isolation, Mechanism
from toolkeep.sandbox.probe import REMEDIES, Finding, Findings, probe, try_mechanism
from toolkeep.sandbox.syscalls import this_machine

POORER = str(Path(__file__).resolve().parent / "poorer.py")


def findings_without(*calls: str) -> Findings:
    machine = this_machine()
    assert machine is not None
    numbers = ",".join(str(machine.numbers[call]) for call in calls)
    return probe(functools.partial(try_mechanism, launcher=(sys.executable, POORER, numbers)))


def lacking(findings: Findings) -> set[Mechanism]:
    return {finding.mechanism for finding in findings.findings if not finding.works}


@pytest.mark.spec("SBX-1")
def test_this_machine_gives_every_level() -> None:
    findings = probe()
    assert lacking(findings) <= {Mechanism.MEMORY_CGROUP}
    for level in Isolation:
        findings.require(level)


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("calls", "without"),
    [
        (
            ("unshare",),
            {
                Mechanism.USER_NAMESPACE,
                Mechanism.PID_NAMESPACE,
                Mechanism.MOUNT_NAMESPACE,
                Mechanism.NETWORK_NAMESPACE,
                Mechanism.IPC_NAMESPACE,
                Mechanism.MEMORY_WATCH,
            },
        ),
        (("landlock_create_ruleset", "landlock_restrict_self"), {Mechanism.LANDLOCK}),
        (("mount", "mount_setattr"), {Mechanism.MOUNT_NAMESPACE}),
        (("prlimit64",), {Mechanism.MEMORY_LIMIT}),
    ],
)
def test_a_poorer_machine_is_told_apart(calls: tuple[str, ...], without: set[Mechanism]) -> None:
    assert lacking(findings_without(*calls)) - {Mechanism.MEMORY_CGROUP} == without


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
    assert refused.value.missing == ("no fs-read, fs-write without landlock (absent)",)
    assert refused.value.hint == REMEDIES[Mechanism.LANDLOCK]
    assert set(findings.missing(Isolation.STRICT)) == {Guarantee.FS_READ, Guarantee.FS_WRITE}


def test_a_trial_that_gives_no_answer_has_shown_nothing() -> None:
    assert not try_mechanism(Mechanism.SECCOMP, launcher=("/bin/true",)).works
