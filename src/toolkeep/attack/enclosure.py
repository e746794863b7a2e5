"""Runs a command in namespaces that are thrown away with it: FOLDER COMMAND…

An attempt with nothing around it must not hurt the machine that it is shown on. In here a signal to everybody
reaches the processes of this run alone, mounts and the name of the machine are nobody else's, and root's
password file is a made one. Everything ends with the command, or with whoever holds the other end of standard
input; then the folder is removed. Where no such namespace can be had, nothing is run.
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

from toolkeep.attack.attempts import system

PASSWORDS: Final = "/etc/shadow"

_MS_NOSUID_NODEV_NOEXEC: Final = 2 | 4 | 8
_MS_BIND: Final = 4096
_MS_REC_PRIVATE: Final = 16384 | 1 << 18
_NAMESPACES: Final = system.CLONE_NEWPID | system.CLONE_NEWNS | system.CLONE_NEWIPC | system.CLONE_NEWUTS


def main(folder: str, command: list[str]) -> NoReturn:
    """Be the outermost process of a run."""
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
        _be_first(folder, command)
    _wait_for_either(first)
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)  # it takes everything in its namespace with it
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _leave_the_namespaces() -> None:
    """As root without a user namespace, in which root would be somebody else; for others it is the way in."""
    if os.geteuid() == 0:
        system.unshare(_NAMESPACES)
        return
    user, group = os.getuid(), os.getgid()
    system.unshare(_NAMESPACES | system.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")


def _wait_for_either(first: int) -> None:
    """Until the command has ended, or nobody is left who wants it to go on."""
    ended = os.pidfd_open(first)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(0, select.POLLIN)
    waiting.poll()
    os.close(ended)


def _be_first(folder: str, command: list[str]) -> NoReturn:
    """Be the first process of the pid namespace: prepare it, start the command, bury the dead."""
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
    """Mounts of this namespace alone: most systems share theirs with every copy, root's too."""
    system.call("mount", None, b"/", None, _MS_REC_PRIVATE, None)
    try:
        system.call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None)
    except OSError as error:
        raise OSError(error.errno, f"no /proc of its own: {error.strerror}") from error
    if os.geteuid() == 0 and Path(PASSWORDS).exists():
        made = Path(folder) / "passwords"
        made.write_text("root:!:made for an attempt\n", encoding="utf-8")
        made.chmod(0o644)  # nothing but the sandbox keeps a worker from it
        system.call("mount", os.fsencode(made), os.fsencode(PASSWORDS), None, _MS_BIND, None)


def _reap_until(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            return max(os.waitstatus_to_exitcode(status), 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
