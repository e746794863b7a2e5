"""Fixtures of one escape attempt (baits), and what became of them afterwards.

Each bait is named like the parameter of an attempt that asks for it. Secrets are never passed as arguments:
an attempt that reports one must have read it.
"""

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkeep.escape_suite.attempts.system import EARLY_MARK
from toolkeep.escape_suite.listeners import Listeners, free_port
from toolkeep.execution.program_lookup import installed_with
from toolkeep.execution.read_only_paths import read_only_inside
from toolkeep.sandbox.plan import ResourceLimits
from toolkeep.sandbox.trusted_paths import TrustedPath, TrustedPaths

HERE: Final = Path(__file__).resolve().parent
KEY_NAME: Final = "id_ed25519"
SETUID_PROGRAM: Final = "id-as-root"

MEMORY_BYTES: Final = 256 << 20
PROCESSES: Final = 16
OPEN_FILES: Final = 64
CPU_S: Final = 1
"""What attempts are granted: enough for Python, and so little that an attempt that takes twice as much is
fast and does no harm to the machine."""

_LISTENERS: Final = ("s", "d", "p", "l")
"""Names of sockets that are baits themselves."""


@dataclass(frozen=True)
class BaitFolder:
    """Folders of one host, shared by all its attempts, because zygotes are made for them."""

    top: Path
    secret: str
    """In the host's environment, and in a file that it holds open and inheritable."""

    @property
    def work(self) -> Path:
        """Granted for writing at strict; each attempt gets a folder in it."""
        return self.top / "work"

    @property
    def shelf(self) -> Path:
        """Granted for reading at strict."""
        return self.top / "shelf"

    @property
    def code(self) -> Path:
        """A copy of the attempts, owned by the current user."""
        return self.top / "code" / "attempts"


def _open_to_all(path: Path) -> None:
    """Make a path world-writable, so that only the sandbox protects it from root's workers."""
    if os.geteuid() == 0:
        path.chmod(0o777 if path.is_dir() else 0o666)


@dataclass
class Stage:
    """Baits of one run of one attempt."""

    bait_folder: BaitFolder
    is_control: bool
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    secret: str = field(default_factory=lambda: secrets.token_hex(8))
    written_at: int = field(default_factory=lambda: 1_000_000_000 + secrets.randbelow(500_000_000))
    watched: list[Path] = field(default_factory=list)
    process: "subprocess.Popen[str] | None" = None
    before: dict[str, Any] = field(default_factory=dict)
    state: str = ""
    held: tuple[str, ...] = ()
    """Trusted paths of the project."""
    imported_name: str = ""
    program_path: str = ""
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    # --- files ---------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self.listeners = Listeners(self.cleanup)
        self.home = self._folder(self.bait_folder.top / f"home-{self.name}")
        self.own = self._folder(self.bait_folder.work / self.name)
        self.beside = self._folder(self.bait_folder.work / f"{self.name}-side")
        self._folder(self.home / ".ssh")
        self.key = self._file(self.home / ".ssh" / KEY_NAME)
        self.rc = self._file(self.home / ".bashrc")
        self._file(self.home / f"letter-{self.secret}")
        self.sibling = self._file(self.beside / "notes")
        self._file(self.beside / f"letter-{self.secret}")
        (self.beside / "link").symlink_to(f"/nowhere/{self.secret}")
        self.shelved = self._file(self.bait_folder.shelf / self.name)
        self.watched += [self.home, self.beside, self.shelved, self.bait_folder.code]
        self.mark_text = f"esc{self.name}"
        self.granted = self.own
        """What a strict call is granted for writing."""
        self.after_planning: Callable[[], None] = lambda: None
        """What another process does between the plan of a call and its start (TOCTOU)."""

    def _folder(self, path: Path) -> Path:
        path.mkdir()
        _open_to_all(path)
        self.cleanup.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def _file(self, path: Path) -> Path:
        path.write_text(f"KEY-{self.secret}\n")
        # A random time, so that an attempt that reports it must have read the metadata.
        os.utime(path, (self.written_at, self.written_at))
        _open_to_all(path)
        return path

    def _outside(self, folder: str) -> str:
        path = Path(folder) / f"toolkeep-{self.name}"
        self.watched.append(path)
        self.cleanup.callback(path.unlink, missing_ok=True)
        return str(path)

    def work(self) -> str:
        """The folder that a strict call may write."""
        return str(self.own)

    def empty(self) -> str:
        """A folder to mount something on."""
        return str(self.own)

    def key_(self) -> str:
        """A private key, not granted."""
        return str(self.key)

    def bashrc(self) -> str:
        """A file that a shell would run, not granted."""
        return str(self.rc)

    def home_(self) -> str:
        """The parent folder of both, not granted."""
        return str(self.home)

    def side(self) -> str:
        """A file beside the granted folder, mounted in the zygote but not granted to the call."""
        return str(self.sibling)

    def side_link(self) -> str:
        """A symlink there, whose target name is a secret."""
        return str(self.beside / "link")

    def shelf_file(self) -> str:
        """A file granted read-only."""
        return str(self.shelved)

    def code(self) -> str:
        """Folder of the tool's code; a control run gets a copy, because it will poison it."""
        if not self.is_control:
            return str(self.bait_folder.code)
        copy = self._folder(self.bait_folder.top / f"code-{self.name}")
        self.watched.append(copy)
        return str(shutil.copytree(self.bait_folder.code, copy / "attempts"))

    def outside(self) -> str:
        """A missing file in a world-writable folder."""
        return self._outside("/tmp")  # noqa: S108 -- that is the point

    def outside_memory(self) -> str:
        """The same in the shared memory folder."""
        return self._outside("/dev/shm")  # noqa: S108 -- that is the point

    def device(self) -> str:
        """A device that everybody may write to, and every worker has."""
        # Another one for the control, which does change it: hosts of several identities run at once.
        device = "/dev/zero" if self.is_control else "/dev/full"
        self.watched.append(Path(device))
        return device

    def own_scratch(self) -> str:
        """Scratch folder of the call."""
        if not self.is_control:
            return "/box/scratch"
        return str(self._folder(self.bait_folder.top / f"scratch-{self.name}"))

    def others_scratch(self) -> str:
        """Scratch folder of another call, by the same name."""
        return self.own_scratch()

    def key_handle(self) -> str:
        """name_to_handle_at() of the key."""
        libc = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
        mount = ctypes.c_int()
        if libc.name_to_handle_at(-100, os.fsencode(self.key), handle, ctypes.byref(mount), 0) < 0:
            return ""
        return handle.raw.hex()

    def setuid_id(self) -> str:
        """A setuid root program, if root has made one."""
        return str(self.bait_folder.code / SETUID_PROGRAM)

    # --- a project -----------------------------------------------------------------------------

    def project(self) -> str:
        """A writable project with the host's virtual environment and other tools' code."""
        top = self.own
        for folder in (
            ".venv/bin",
            ".venv/lib/site-packages",
            "src/shop",
            "tools/bin",
            "__pycache__",
            "attic",
        ):
            (top / folder).mkdir(parents=True)
        for name in (".venv/bin/python", "tools/bin/program"):
            (top / name).write_text("#!/bin/sh\n")
            (top / name).chmod(0o755)
        for name in ("src/shop/tool.py", "alone.py", "attic/__init__.py"):
            (top / name).write_text("owned = False\n")
        (top / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
        for path in (top / ".venv", top / "src", top / "alone.py", top / "__pycache__"):
            self.watched.append(path)
        self.held = (".venv", "src/shop", "alone.py", "__pycache__", "tools/bin/program")
        return str(top)

    def module(self) -> str:
        """A module name that the host will import from there, and has not yet."""
        name = f"bait_{self.name}"
        sys.path.insert(0, str(self.own))
        self.cleanup.callback(sys.path.remove, str(self.own))
        self.cleanup.callback(sys.modules.pop, name, None)
        self.imported_name = name
        return name

    def program(self) -> str:
        """A program there, whose surroundings the host computes."""
        for folder in ("bin", "lib"):
            self._folder(self.home / folder)
        (self.home / "bin/python").write_text("#!/bin/sh\n")
        (self.home / "bin/python").chmod(0o755)
        self.program_path = str(self.own / "tools/bin/program")
        if not self.is_control:
            installed_with(self.program_path)  # As a keep does that protects it.
        return self.program_path

    def frozen(self) -> tuple[str, ...]:
        """What a worker that may write the project must not change."""
        trusted = [TrustedPath(os.path.realpath(self.own / name), "a bait") for name in self.held]
        held = TrustedPaths(code=lambda: trusted)
        return tuple(read_only_inside(os.path.realpath(self.own), held, "", is_deep=True)) if trusted else ()

    def has_imported(self) -> bool:
        """Whether the host can import what the attempt left."""
        if not self.imported_name:
            return False
        try:
            importlib.import_module(self.imported_name)
        except ImportError:
            return False
        return True

    def is_shown(self) -> bool:
        """Whether a program would be shown a folder that nobody granted."""
        return bool(self.program_path) and str(self.home) in installed_with(self.program_path)

    def earlier_secret(self) -> str:
        """The secret itself, in each call but the last, which is given an empty text."""
        return self.secret

    # --- numbers -------------------------------------------------------------------------------

    def host_pid(self) -> int:
        """Pid of the host process."""
        return os.getpid()

    def mark(self) -> str:
        """Process name that an attempt uses, to be found again."""
        return self.mark_text

    def early_mark(self) -> str:
        """The same for an attempt that names itself at import, before it gets arguments."""
        self.mark_text = EARLY_MARK
        return EARLY_MARK

    def more_bytes(self) -> int:
        """Twice the granted memory."""
        return 2 * MEMORY_BYTES

    def more_processes(self) -> int:
        """Twice the granted number of processes."""
        return 2 * PROCESSES

    def more_files(self) -> int:
        """Twice the granted number of open files."""
        return 2 * OPEN_FILES

    def more_file_bytes(self) -> int:
        """More than the file size limit."""
        return ResourceLimits().file_bytes + (1 << 20)

    def more_timers(self) -> int:
        """More timers than a tool needs: each is a queued signal, which are limited per user."""
        return 1000

    def cpu_s(self) -> int:
        """Granted CPU seconds."""
        return CPU_S

    def interpreter(self) -> str:
        """A Python interpreter to start."""
        return os.path.realpath(sys.executable)

    # --- a process -----------------------------------------------------------------------------

    def victim(self) -> dict[str, int]:
        """A process of the same user, and the address of its secret."""
        command = [sys.executable, "-I", "-S", str(HERE / "victim.py"), self.secret, str(self.key)]
        self.process = subprocess.Popen(  # noqa: S603 -- our own file
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.home,
            process_group=0,
        )
        self.cleanup.callback(self._end, self.process)
        found: dict[str, int] = json.loads(self._ask(""))
        self.state = self._ask("\n")
        return found

    def _ask(self, line: str) -> str:
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            return ""
        with contextlib.suppress(OSError):
            self.process.stdin.write(line)
            self.process.stdin.flush()
        return self.process.stdout.readline()

    @staticmethod
    def _end(process: "subprocess.Popen[str]") -> None:
        with contextlib.suppress(OSError):
            process.communicate(timeout=2)

    def is_victim_touched(self) -> bool:
        """Whether its state changed, or it is gone."""
        return self.process is not None and self._ask("\n") != self.state

    # --- listeners -----------------------------------------------------------------------------

    def port(self) -> int:
        """A TCP listener on the loopback."""
        return self.listeners.tcp(socket.AF_INET, "127.0.0.1")

    def port_6(self) -> int:
        """The same with IPv6."""
        return self.listeners.tcp(socket.AF_INET6, "::1")

    def udp_port(self) -> int:
        """A UDP socket."""
        return self.listeners.udp()

    def unix_path(self) -> str:
        """A unix socket that is not granted."""
        return self.listeners.unix(str(self.home / "s"))

    def granted_unix_path(self) -> str:
        """A unix socket in the granted folder."""
        return self.listeners.unix(str(self.own / "s"))

    def granted_datagram_path(self) -> str:
        """A unix datagram socket there."""
        return self.listeners.unix(str(self.own / "d"), socket.SOCK_DGRAM)

    def granted_packet_path(self) -> str:
        """A unix socket of sequenced packets there."""
        return self.listeners.unix(str(self.own / "p"), socket.SOCK_SEQPACKET)

    def late_unix_path(self) -> str:
        """A unix socket that the host makes there when it is asked for."""
        return self.listeners.late_unix(str(self.own / "l"))

    def abstract(self) -> str:
        """An abstract unix socket."""
        return self.listeners.unix(f"\0toolkeep-{self.name}")[1:]

    def callback_port(self) -> int:
        """A port that the host connects to once something listens."""
        return self.listeners.call_port()

    def callback_abstract(self) -> str:
        """An abstract name that the host connects to once something listens."""
        return self.listeners.call_abstract(f"toolkeep-back-{self.name}")

    def meeting_port(self) -> int:
        """A port for two calls to meet on."""
        return free_port()

    def swapped(self) -> str:
        """A granted folder that is swapped for a symlink to its sibling right after the check (TOCTOU)."""
        self.granted = self.own / "swap"

        def swap() -> None:
            self.granted.rmdir()
            self.granted.symlink_to(self.beside)

        self.granted.mkdir()
        _open_to_all(self.granted)
        if self.is_control:
            swap()
        else:
            self.after_planning = swap
        return str(self.granted)

    def planted(self) -> str:
        """First half of the name of a file that another call is granted; the secret is the rest."""
        return f"plant-{self.name}-"

    # --- what can be seen ----------------------------------------------------------------------

    def create_baits(self, names: list[str]) -> dict[str, Any]:
        """Create the baits that an attempt asks for; returns its arguments."""
        spelled = {"key": "key_", "home": "home_"}
        arguments = {name: getattr(self, spelled.get(name, name))() for name in names if hasattr(self, name)}
        self.before = self.fingerprint()
        return arguments

    def fingerprint(self) -> dict[str, Any]:
        """State of the watched files, without access times."""
        return {str(path): look(path) for top in self.watched for path in below(top)}

    def traps(self) -> list[str]:
        """Special files that the attempt left in its own folder, except our own listeners."""
        return [path.name for path in odd_files(self.own) if path.name not in _LISTENERS]

    def left(self) -> list[int]:
        """Processes that carry the mark of this run."""
        return processes_named(self.mark_text)

    def left_after(self, most_s: float) -> list[int]:
        """The same, after a grace period."""
        end = time.monotonic() + most_s
        while (found := self.left()) and time.monotonic() < end:
            time.sleep(0.02)
        return found


def concurrent_arguments(wanted: list[str], stage: Stage, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the concurrent call of an attempt."""
    given = {
        "mark": stage.mark_text,
        "text": stage.secret,
        "folder": arguments.get("others_scratch"),
        "meeting_port": arguments.get("meeting_port"),
    }
    return {name: given[name] for name in wanted}


def last_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the last of several calls: the secret of an earlier one must be found, not given."""
    return arguments | ({"earlier_secret": ""} if "earlier_secret" in arguments else {})


def below(top: Path) -> Iterator[Path]:
    """A path and everything below it."""
    yield top
    if top.is_dir() and not top.is_symlink():
        yield from sorted(top.rglob("*"))


def look(path: Path) -> Any:
    """State of a file without access time; the errno if it is not visible."""
    try:
        status = path.lstat()
    except OSError as error:
        return error.errno
    content = ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    attributes = os.listxattr(path, follow_symlinks=False)
    return status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, content, attributes


def odd_files(top: Path) -> Iterator[Path]:
    """Special files (device, FIFO, socket) and setuid or setgid files."""
    for path in below(top):
        mode = path.lstat().st_mode if os.path.lexists(path) else 0
        is_plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or not mode
        if mode & 0o6000 or not is_plain:
            yield path


def processes_named(name: str) -> list[int]:
    """Pids of processes with this name that can run: no zombies, and none that its tracer holds.

    A template is held for ever, and so is a worker that waits for its grant.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                is_named = (entry / "comm").read_text().strip() == name
                status = (entry / "status").read_text()
                if is_named and not any(state in status for state in ("\nState:\tZ", "\nState:\tt")):
                    found.append(int(entry.name))
    return found
