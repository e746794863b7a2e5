"""Runs a command in throw-away namespaces: FOLDER COMMAND…

An unconfined attempt must not harm the machine that it is shown on. In here kill(-1) reaches only processes
of this run, mounts and the host name are private, and root's password file is a fake. Everything ends with
the command, or when the other end of standard input closes; then the folder is removed. If no namespaces can
be created, nothing is run.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import Final, NoReturn

from toolkeep.escape_suite.attempts import system

PASSWORDS: Final = "/etc/shadow"

_MS_NOSUID_NODEV_NOEXEC: Final = 2 | 4 | 8
_MS_BIND: Final = 4096
_MS_REC_PRIVATE: Final = 16384 | 1 << 18
_NAMESPACES: Final = system.CLONE_NEWPID | system.CLONE_NEWNS | system.CLONE_NEWIPC | system.CLONE_NEWUTS


def main(folder: str, command: list[str]) -> NoReturn:
    """Outermost process of a run."""
    try:
        status = _run(folder, command)
    except OSError as error:
        _tell_failure(error)
        status = 1
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status)


def _tell_failure(error: OSError) -> None:
    print(json.dumps({"unenclosed": str(error)}), flush=True)  # noqa: T201 -- to the suite


def _run(folder: str, command: list[str]) -> int:
    _leave_the_namespaces()
    first = os.fork()
    if first == 0:
        _run_as_init(folder, command)
    _wait_for_either(first)
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)  # PID 1: the kernel kills its whole namespace.
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _leave_the_namespaces() -> None:
    """Enter new namespaces. Root needs no user namespace, and would lose its identity in one."""
    if os.geteuid() == 0:
        system.unshare(_NAMESPACES)
        return
    user, group = os.getuid(), os.getgid()
    system.unshare(_NAMESPACES | system.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")


def _wait_for_either(first: int) -> None:
    """Wait until the command exits or standard input closes."""
    ended = os.pidfd_open(first)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(0, select.POLLIN)
    waiting.poll()
    os.close(ended)


def _run_as_init(folder: str, command: list[str]) -> NoReturn:
    """PID 1 of the pid namespace: prepare mounts, start the command, reap orphans."""
    status = 1
    try:
        _prepare_mounts(folder)
        child = os.fork()
        if child == 0:
            os.execv(command[0], command)  # noqa: S606 -- that is its purpose
        status = _reap_until(child)
    except OSError as error:
        _tell_failure(error)
    finally:
        os._exit(status)


def _prepare_mounts(folder: str) -> None:
    """Private mounts: most systems share mount propagation with every namespace, root's too."""
    system.call("mount", None, b"/", None, _MS_REC_PRIVATE, None)
    try:
        system.call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None)
    except OSError as error:
        raise OSError(error.errno, f"no /proc of its own: {error.strerror}") from error
    if os.geteuid() == 0 and Path(PASSWORDS).exists():
        made = Path(folder) / "passwords"
        made.write_text("root:!:made for an attempt\n", encoding="utf-8")
        made.chmod(0o644)  # Readable, so that only the sandbox protects it.
        system.call("mount", os.fsencode(made), os.fsencode(PASSWORDS), None, _MS_BIND, None)


def _reap_until(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            return max(os.waitstatus_to_exitcode(status), 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
