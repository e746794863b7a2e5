"""Runs a command as `docker run` does with the flags that toolkeep asks for: contained.py COMMAND…; started by root.

An ordinary user without any capability, who can gain none; parts of /proc are covered or read-only, and /sys is
read-only, as Docker has it unless told `systempaths=unconfined`. System calls are not filtered and no AppArmor
profile applies: those are the flags.
"""

import contextlib
import os
import sys
from pathlib import Path

from tests.hostile.sandbox.as_ordinary import show
from toolkeep.inside import kernel

USER = 1_900_000_102
COVERED_FILES = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts")
COVERED_FOLDERS = ("/proc/acpi", "/proc/scsi", "/sys/firmware")
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys")
MS_REMOUNT, MS_RDONLY = 32, 1


def cover() -> None:
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    for path in filter(os.path.exists, READ_ONLY):
        kernel.mount(path, path, None, kernel.MS_BIND | kernel.MS_REC)
        kernel.mount(None, path, None, kernel.MS_BIND | MS_REMOUNT | MS_RDONLY)
    for path in filter(os.path.exists, COVERED_FILES):
        kernel.mount("/dev/null", path, None, kernel.MS_BIND)
    for path in filter(os.path.exists, COVERED_FOLDERS):
        kernel.mount("tmpfs", path, "tmpfs", MS_RDONLY)


def main(command: list[str]) -> None:
    cover()
    show(os.path.realpath(sys.base_prefix))
    with contextlib.suppress(OSError):  # one that this kernel does not know is not held either
        kernel.drop_bounding_set()
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    kernel.forbid_new_privileges()
    os.environ["HOME"] = str(Path("/nonexistent"))
    os.execv(command[0], command)  # noqa: S606 -- that is its purpose


if __name__ == "__main__":
    main(sys.argv[1:])
