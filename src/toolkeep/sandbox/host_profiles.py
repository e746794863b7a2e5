"""Profiles that let toolkeep make namespaces where a system's defaults forbid it, and nothing else.

A seccomp profile for Docker, Podman and Kubernetes, and an AppArmor profile for the `toolkeep` command.
Workers get a seccomp filter of their own, which is narrower than both.
"""

from typing import Any, Final

from toolkeep.sandbox.syscalls import AARCH64, X86_64

_DENIED: Final = """
    acct add_key keyctl request_key bpf perf_event_open
    init_module finit_module delete_module create_module query_module get_kernel_syms
    kexec_load kexec_file_load reboot swapon swapoff syslog vhangup
    clock_settime clock_adjtime settimeofday ioperm iopl
    io_uring_setup io_uring_enter io_uring_register
    fspick fanotify_init quotactl quotactl_fd setdomainname
    open_by_handle_at lookup_dcookie nfsservctl userfaultfd uselib ustat sysfs _sysctl
    mbind get_mempolicy set_mempolicy set_mempolicy_home_node move_pages migrate_pages
    kcmp process_madvise process_mrelease
    afs_syscall tuxcall security vserver getpmsg putpmsg epoll_ctl_old epoll_wait_old
"""
"""What container runtimes deny without added capabilities and toolkeep does not need: kernel-wide settings,
modules, keys, tracing, io_uring, and calls that are gone.

Left to toolkeep are `unshare`, `setns`, `mount`, `umount2`, `pivot_root`, `open_tree`, `move_mount`,
`mount_setattr`, `fsopen`, `fsconfig`, `fsmount` and `sethostname`, which runtimes deny without CAP_SYS_ADMIN:
workers are made of them. To an ordinary user the kernel allows them inside a user namespace only."""

_EPERM: Final = 1
_ENOSYS: Final = 38
"""For calls that are newer than this list: programs then use older ones."""


def seccomp_profile() -> dict[str, Any]:
    """A seccomp profile in the form of the OCI runtime specification."""
    known, denied = {*X86_64.numbers, *AARCH64.numbers}, set(_DENIED.split())
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": sorted(known - denied), "action": "SCMP_ACT_ALLOW"},
            {"names": sorted(known & denied), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
        ],
    }


_APPARMOR: Final = """\
# AppArmor profile for toolkeep: lets this one program, and what it starts, make user namespaces.
# It restricts nothing. Workers confine themselves before they run a tool.
abi <abi/4.0>,
include <tunables/global>

profile toolkeep "{program}" flags=(unconfined) {{
  userns,

  include if exists <local/toolkeep>
}}
"""


_GLOBS: Final = r"\*?[]{}^@"
"""Characters with a meaning in paths of AppArmor."""


def apparmor_profile(program: str) -> str:
    """An AppArmor profile for the program at a path: the `toolkeep` script, not the Python that runs it.

    Attached to Python, it would let every Python program of every user make namespaces.
    """
    if not program.startswith("/") or any(ord(char) < ord(" ") or char == '"' for char in program):
        raise ValueError(f"no AppArmor profile can name {program!r}")
    escaped = "".join(f"\\{char}" if char in _GLOBS else char for char in program)
    return _APPARMOR.format(program=escaped)
