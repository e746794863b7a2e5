"""Runs a command as `docker run` does with the flags that toolkeep asks for: contained.py [systempaths=unconfined] COMMAND…;
started by root.

An ordinary user without any capability, who can gain none; parts of /proc are covered or read-only, and /sys is
read-only, as Docker has it unless told `systempaths=unconfined`. System calls are filtered by our seccomp profile, and
no AppArmor profile applies: those are the flags.
"""

import contextlib
import os
import sys
from pathlib import Path

from tests.hostile.sandbox.as_ordinary import show
from tests.sandbox.poorer import install, refuse
from toolkeep.sandbox.guest import linux
from toolkeep.sandbox.host_profiles import seccomp_profile
from toolkeep.sandbox.syscalls import this_machine

USER = 1_900_000_102
COVERED_FILES = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts")
COVERED_FOLDERS = ("/proc/acpi", "/proc/scsi", "/sys/firmware")
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys")
MS_REMOUNT, MS_RDONLY = 32, 1
WHOLE = "systempaths=unconfined"


def cover() -> None:
    for path in filter(os.path.exists, READ_ONLY):
        linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
        linux.mount(None, path, None, linux.MS_BIND | MS_REMOUNT | MS_RDONLY)
    for path in filter(os.path.exists, COVERED_FILES):
        linux.mount("/dev/null", path, None, linux.MS_BIND)
    for path in filter(os.path.exists, COVERED_FOLDERS):
        linux.mount("tmpfs", path, "tmpfs", MS_RDONLY)


def install_profile() -> None:
    """Put the seccomp profile on, as a container runtime does."""
    machine, profile = this_machine(), seccomp_profile()
    assert machine is not None
    answers = {"SCMP_ACT_ALLOW": (0x06, 0, 0, 0x7FFF0000)}
    steps = [(0x20, 0, 0, 0)]
    for rule in profile["syscalls"]:
        answer = answers.get(rule["action"]) or refuse(rule["errnoRet"])
        for name in rule["names"]:
            if name in machine.numbers:
                steps += [(0x15, 0, 1, machine.numbers[name]), answer]
    install([*steps, refuse(profile["defaultErrnoRet"])])


def main(command: list[str]) -> None:
    # First, or what is mounted below would cover folders of the whole machine.
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    if command[0] == WHOLE:
        command = command[1:]
    else:
        cover()
    show(os.path.realpath(sys.base_prefix))
    with contextlib.suppress(OSError):  # one that this kernel does not know is not held either
        linux.drop_bounding_set()
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    linux.forbid_new_privileges()
    install_profile()
    os.environ["HOME"] = str(Path("/nonexistent"))
    os.execv(command[0], command)  # noqa: S606 -- that is its purpose


if __name__ == "__main__":
    main(sys.argv[1:])
