"""Finds out what this machine can enforce.

Each mechanism is tried in a throw-away process and must show its effect, and a real worker of each level must
answer a call. A level that misses one of its promises is refused by name, with what is missing and what to
do; it is never weakened. The answer is for this machine and this user, now: nothing is remembered.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from toolkeep.sandbox.container import FLAGS, is_container
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.levels import TREE_BOUNDS, Guarantee, Isolation, Mechanism, missing, needed
from toolkeep.sandbox.rehearsal import rehearse
from toolkeep.sandbox.tree_trial import try_tree_bound
from toolkeep.sandbox.zygote import START_FILE, interpreter

_SECONDS: Final = 20.0

REMEDIES: Final[Mapping[Mechanism, str]] = {
    Mechanism.USER_NAMESPACE: "allow user namespaces: sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0",
    Mechanism.PID_NAMESPACE: "allow user namespaces, and raise user.max_pid_namespaces if it is 0",
    Mechanism.MOUNT_NAMESPACE: "allow mounts in user namespaces, and use Linux 5.12 or later",
    Mechanism.NETWORK_NAMESPACE: "allow user namespaces, and raise user.max_net_namespaces if it is 0",
    Mechanism.IPC_NAMESPACE: "allow user namespaces, and raise user.max_ipc_namespaces if it is 0",
    Mechanism.LANDLOCK_PORTS: "use Linux 6.7 or later; until then tools at strict reach no host",
    Mechanism.LANDLOCK: "use Linux 6.2 or later with landlock in the kernel parameter lsm=",
    Mechanism.SECCOMP: "use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    Mechanism.MEMORY_LIMIT: "see why RLIMIT_AS has no effect here",
    Mechanism.MEMORY_WATCH: "let this user see its own processes in /proc: no hidepid there, and a kernel "
    "with CONFIG_PROC_CHILDREN",
    Mechanism.MEMORY_CGROUP: "let the keep make cgroups: in its systemd unit (254 or later) "
    "Delegate=memory pids and DelegateSubgroup=keep; elsewhere, start it in a cgroup v2 whose parent folder "
    "is its user's",
    Mechanism.CLEAN_START: "see what adds variables to every program that is started",
}


IN_A_CONTAINER: Final = f"start the container with {FLAGS}"
_NEEDS_FLAGS: Final = frozenset(mechanism for mechanism in Mechanism if mechanism.endswith("-namespace"))
"""What the defaults of container runtimes forbid."""

AS_ORDINARY: Final = "run as an ordinary user; root needs CAP_SYS_ADMIN to start workers"
BY_REASON: Final = (
    "see what the reason names; levels are made for an ordinary user of an ordinary Linux system"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a mechanism works here, why not, and what to do."""

    mechanism: Mechanism
    works: bool
    reason: str = ""
    in_container: bool = False

    @property
    def remedy(self) -> str:
        """What to do; nothing where it works."""
        if self.works:
            return ""
        if self.in_container and self.mechanism in _NEEDS_FLAGS:
            return f"{IN_A_CONTAINER}; on its machine, {REMEDIES[self.mechanism]}"
        return REMEDIES[self.mechanism]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about this machine."""

    findings: tuple[Finding, ...]
    unstarted: Mapping[Isolation, str] = field(default_factory=dict)
    """Levels whose worker could not be started or gave no answer, and why."""
    remedy: str = BY_REASON
    """What to do about these."""

    def missing(self, level: Isolation) -> Mapping[Guarantee, tuple[Finding, ...]]:
        """The promises of a level that cannot be kept here, each with the mechanisms that it lacks."""
        working = {finding.mechanism for finding in self.findings if finding.works}
        return {
            guarantee: tuple(finding for finding in self.findings if finding.mechanism in absent)
            for guarantee, absent in missing(level, working).items()
        }

    @property
    def tree_bound(self) -> Mechanism | None:
        """What bounds the memory of several processes together here: the best that works."""
        working = {finding.mechanism for finding in self.findings if finding.works}
        return next((mechanism for mechanism in TREE_BOUNDS if mechanism in working), None)

    def is_available(self, level: Isolation) -> bool:
        """Whether a worker of this level has answered, with every mechanism that the level needs."""
        return not self.missing(level) and level not in self.unstarted

    @property
    def has_hosts(self) -> bool:
        """Whether a confined tool can be led to single hosts here."""
        found = (finding for finding in self.findings if finding.mechanism is Mechanism.LANDLOCK_PORTS)
        return any(finding.works for finding in found)

    def require(self, level: Isolation, *, connects: bool = False) -> None:
        """Raise `SandboxUnavailable` unless the level can be given, with a way out where that is wanted."""
        if connects and not self.has_hosts:
            hint = REMEDIES[Mechanism.LANDLOCK_PORTS]
            raise SandboxUnavailable(level, missing=["no hosts without landlock-ports"], hint=hint)
        lacking = self.missing(level)
        if lacking:
            causes = dict.fromkeys(finding for findings in lacking.values() for finding in findings)
            said = [f"{finding.mechanism} ({finding.reason})" for finding in causes]
            promises = ", ".join(lacking)
            hint = "; ".join(dict.fromkeys(finding.remedy for finding in causes))
            raise SandboxUnavailable(level, missing=[f"no {promises} without {', '.join(said)}"], hint=hint)
        if level in self.unstarted:
            # The reason may name places of this machine: it is for the operator, not for a model.
            hint = f"{self.unstarted[level]}; {self.remedy}"
            raise SandboxUnavailable(level, missing=["no worker of it could be started"], hint=hint)


Try = Callable[[Sequence[Mechanism]], Sequence[Finding]]
Rehearse = Callable[[Iterable[Isolation]], Mapping[Isolation, str]]


LEVELS: Final = tuple(level for level in Isolation if level is not Isolation.NONE)


def probe(
    attempt: Try | None = None, rehearsal: Rehearse = rehearse, levels: Sequence[Isolation] = LEVELS
) -> Findings:
    """Try every mechanism that these levels need, and at the same time each of them as a whole."""
    mechanisms = tuple(one for one in Mechanism if any(one in needed(level) for level in levels))
    if sys.platform != "linux":
        reason = f"isolation is made for Linux, this is {sys.platform}"
        return Findings(tuple(Finding(mechanism, works=False, reason=reason) for mechanism in mechanisms))
    with ThreadPoolExecutor(max_workers=2) as threads:
        # In a thread of its own: where an event loop runs already there cannot be another.
        rehearsed = threads.submit(rehearsal, levels)
        found = tuple((attempt or try_mechanisms)(mechanisms))
        return Findings(found, rehearsed.result(), AS_ORDINARY if os.geteuid() == 0 else BY_REASON)


def try_mechanisms(mechanisms: Sequence[Mechanism]) -> list[Finding]:
    """Try them in a process of its own, each in a fork of that; bounds of several processes on a tree."""
    alone = [mechanism for mechanism in mechanisms if mechanism not in TREE_BOUNDS]
    with ThreadPoolExecutor(max_workers=1) as beside:
        tried = beside.submit(_try_alone, alone)
        objections = {one: try_tree_bound(one) for one in TREE_BOUNDS if one in mechanisms}
        answers, reason = tried.result()
    for mechanism, objection in objections.items():
        answers[mechanism] = {"works": not objection, "reason": objection}
    nothing = {"works": False, "reason": reason}
    in_container = is_container()
    return [
        Finding(mechanism, answer["works"] is True, str(answer["reason"]), in_container)
        for mechanism in mechanisms
        for answer in (answers.get(mechanism, nothing),)
    ]


def _try_alone(mechanisms: Sequence[Mechanism]) -> tuple[dict[str, Any], str]:
    """What the trial says of each, and why it says nothing of the others."""
    command = [interpreter(), "-I", "-S", "-E", START_FILE, "trial", *mechanisms]
    reason, said = "the trial ended without an answer", b""
    try:
        done = subprocess.run(  # noqa: S603 -- our own file, by our own interpreter
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        reason, said = f"the trial took longer than {_SECONDS:.0f} s", error.stdout or b""
    except OSError as error:
        reason = f"the trial could not be started: {error.strerror}"
    return {answer["mechanism"]: answer for answer in map(json.loads, said.splitlines())}, reason
