"""What stands in the way of isolation on this machine, and the narrowest way to get it, in one line each.

Read from facts of the kernel that any user sees. A guess where several causes are possible: only words depend
on it, never a decision.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolkeep.sandbox.container_check import FLAGS, is_container
from toolkeep.sandbox.isolation_levels import Mechanism

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
    Mechanism.SECCOMP_SUPERVISOR: "use Linux 6.9 or later, with kernel.yama.ptrace_scope at most 1; until "
    "then persistent programs have no unix sockets",
    Mechanism.MEMORY_LIMIT: "see why RLIMIT_AS has no effect here",
    Mechanism.MEMORY_WATCH: "let this user see its own processes in /proc: no hidepid there, and a kernel "
    "with CONFIG_PROC_CHILDREN",
    Mechanism.MEMORY_CGROUP: "let the keep make cgroups: in its systemd unit (254 or later) "
    "Delegate=memory pids and DelegateSubgroup=keep; elsewhere, start it in a cgroup v2 whose parent folder "
    "is its user's",
    Mechanism.CLEAN_START: "see what adds variables to every program that is started",
}

NAMESPACES: Final = frozenset(mechanism for mechanism in Mechanism if mechanism.endswith("-namespace"))
"""What the default seccomp and AppArmor profiles of container runtimes and distributions forbid."""

INSTALL_APPARMOR: Final = (
    "toolkeep doctor --profile apparmor | sudo tee /etc/apparmor.d/toolkeep >/dev/null && "
    "sudo apparmor_parser --replace /etc/apparmor.d/toolkeep"
)
IN_A_CONTAINER: Final = (
    f"start the container with {FLAGS}; `toolkeep doctor --profile docker` prints that profile"
)
ELSEWHERE: Final = (
    "run toolkeep in a Linux container, from its repository: docker build --tag toolkeep . "
    "&& docker run --rm toolkeep doctor --profile docker > toolkeep-seccomp.json "
    f"&& docker run --rm --interactive --tty --volume .:/project {FLAGS} toolkeep doctor"
)
_SYSTEMS: Final = {"darwin": "macOS", "win32": "Windows"}


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether an ordinary user gets namespaces."""

    platform: str = "linux"
    in_container: bool = False
    is_filtered: bool = False
    """Whether a seccomp filter applies to this process, as a container runtime installs one."""
    has_apparmor_restriction: bool = False
    """Ubuntu since 23.10: only programs with an AppArmor profile that allows it get user namespaces."""
    is_limited_to_none: bool = False
    """user.max_user_namespaces is 0."""
    is_root_only: bool = False
    """kernel.unprivileged_userns_clone is 0, on older Debian kernels."""


def machine_facts(root: Path = Path("/")) -> MachineFacts:
    """The facts of this machine and process."""
    status = _text(root / "proc/self/status").splitlines()
    kernel = root / "proc/sys/kernel"
    return MachineFacts(
        platform=sys.platform,
        in_container=is_container(root),
        is_filtered="Seccomp:\t2" in status,
        has_apparmor_restriction=_text(kernel / "apparmor_restrict_unprivileged_userns").strip() == "1",
        is_limited_to_none=_text(root / "proc/sys/user/max_user_namespaces").strip() == "0",
        is_root_only=_text(kernel / "unprivileged_userns_clone").strip() == "0",
    )


class Cure(NamedTuple):
    """Why tools cannot be confined here, and what to do."""

    cause: str
    remedy: str


def cure_for(lacking: Collection[Mechanism], machine: MachineFacts) -> Cure:
    """The cause and the narrowest remedy for missing mechanisms."""
    if machine.platform != "linux":
        system = _SYSTEMS.get(machine.platform, machine.platform)
        return Cure(f"isolation needs Linux, and this is {system}", ELSEWHERE)
    if not NAMESPACES.isdisjoint(lacking):
        return _for_namespaces(lacking, machine)
    remedies = dict.fromkeys(REMEDIES[mechanism] for mechanism in lacking)
    return Cure(f"this kernel lacks {', '.join(lacking)}", "; ".join(remedies))


def _for_namespaces(lacking: Collection[Mechanism], machine: MachineFacts) -> Cure:
    # Limits of the kernel come first: no profile of a container or program lifts them.
    if machine.is_limited_to_none:
        return Cure("user.max_user_namespaces is 0", "sudo sysctl --write user.max_user_namespaces=15000")
    if machine.is_root_only:
        remedy = "sudo sysctl --write kernel.unprivileged_userns_clone=1"
        return Cure("kernel.unprivileged_userns_clone is 0", remedy)
    if machine.in_container or machine.is_filtered:
        host = "; on its machine: " + INSTALL_APPARMOR if machine.has_apparmor_restriction else ""
        flags = IN_A_CONTAINER
        if machine.has_apparmor_restriction:
            flags = flags.replace("apparmor=unconfined", "apparmor=toolkeep")
        return Cure("the container's profile denies user namespaces", flags + host)
    if machine.has_apparmor_restriction:
        return Cure("AppArmor denies user namespaces to programs without a profile", INSTALL_APPARMOR)
    remedies = dict.fromkeys(REMEDIES[mechanism] for mechanism in lacking if mechanism in NAMESPACES)
    return Cure(f"this machine gives no {', '.join(sorted(NAMESPACES & {*lacking}))}", "; ".join(remedies))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
