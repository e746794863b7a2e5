"""Finds out what this machine can enforce.

Each mechanism is tried in a throw-away process and must show its effect. A level that misses one of its
promises is refused by name, with what is missing and what to do; it is never weakened. The answer is for this
machine and this user, now: nothing is remembered.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.levels import TREE_BOUNDS, Guarantee, Isolation, Mechanism, missing
from toolkeep.sandbox.tree_trial import try_tree_bound
from toolkeep.sandbox.zygote import START_FILE, interpreter

_SECONDS: Final = 20.0

REMEDIES: Final[Mapping[Mechanism, str]] = {
    Mechanism.USER_NAMESPACE: "allow user namespaces: sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container, a seccomp profile that permits unshare",
    Mechanism.PID_NAMESPACE: "allow user namespaces, and raise user.max_pid_namespaces if it is 0",
    Mechanism.MOUNT_NAMESPACE: "allow mounts in user namespaces, and use Linux 5.12 or later",
    Mechanism.NETWORK_NAMESPACE: "allow user namespaces, and raise user.max_net_namespaces if it is 0",
    Mechanism.IPC_NAMESPACE: "allow user namespaces, and raise user.max_ipc_namespaces if it is 0",
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


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a mechanism works here, why not, and what to do."""

    mechanism: Mechanism
    works: bool
    reason: str = ""

    @property
    def remedy(self) -> str:
        """What to do; nothing where it works."""
        return "" if self.works else REMEDIES[self.mechanism]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about this machine."""

    findings: tuple[Finding, ...]

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

    def require(self, level: Isolation) -> None:
        """Raise `SandboxUnavailable` unless the level can be given."""
        lacking = self.missing(level)
        if lacking:
            causes = dict.fromkeys(finding for findings in lacking.values() for finding in findings)
            said = [f"{finding.mechanism} ({finding.reason})" for finding in causes]
            promises = ", ".join(lacking)
            hint = "; ".join(finding.remedy for finding in causes)
            raise SandboxUnavailable(level, missing=[f"no {promises} without {', '.join(said)}"], hint=hint)


Try = Callable[[Mechanism], Finding]


def probe(attempt: Try | None = None) -> Findings:
    """Try every mechanism."""
    if sys.platform != "linux":
        reason = f"isolation is made for Linux, this is {sys.platform}"
        return Findings(tuple(Finding(mechanism, works=False, reason=reason) for mechanism in Mechanism))
    with ThreadPoolExecutor(max_workers=4) as threads:
        return Findings(tuple(threads.map(attempt or try_mechanism, Mechanism)))


def try_mechanism(mechanism: Mechanism, *, launcher: Sequence[str] = ()) -> Finding:
    """Try one in a process of its own; `launcher` is put before the command, for other surroundings."""
    if mechanism in TREE_BOUNDS:
        reason = try_tree_bound(mechanism, launcher)
        return Finding(mechanism, works=not reason, reason=reason)
    command = [*launcher, interpreter(), "-I", "-S", "-E", START_FILE, "trial", mechanism.value]
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
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Finding(
            mechanism, works=False, reason=f"the trial ended without an answer: {type(error).__name__}"
        )
    return Finding(mechanism, works=said["works"] is True, reason=str(said["reason"]))
