"""What the host lays out for one attempt, and what became of it afterwards.

Each bait is named as the parameter of an attempt that asks for it. Secrets never are part of an argument.
"""

import contextlib
import ctypes
import importlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkeep.attack import traces
from toolkeep.attack.attempts.system import EARLY_MARK
from toolkeep.attack.listeners import Listeners, free_port
from toolkeep.execution.held_down import held_down
from toolkeep.execution.programs import surroundings
from toolkeep.sandbox.plan import ResourceLimits
from toolkeep.sandbox.trusted import TrustedPath, TrustedPaths

HERE: Final = Path(__file__).resolve().parent
KEY_NAME: Final = "id_ed25519"
SETUID_PROGRAM: Final = "id-as-root"

MEMORY_BYTES: Final = 256 << 20
PROCESSES: Final = 16
OPEN_FILES: Final = 64
CPU_S: Final = 1

_LISTENERS: Final = ("s", "d")
"""Names of sockets that are baits themselves."""


@dataclass(frozen=True)
class Ground:
    """The folders of one host, the same for all its attempts: zygotes are made for them."""

    top: Path
    secret: str
    """In the host's environment, and in a file that it holds open and inheritable."""

    @property
    def work(self) -> Path:
        """Granted for writing at strict; each attempt gets one folder in it."""
        return self.top / "work"

    @property
    def shelf(self) -> Path:
        """Granted for reading at strict."""
        return self.top / "shelf"

    @property
    def code(self) -> Path:
        """The attempts themselves, a copy that belongs to whoever runs this."""
        return self.top / "code" / "attempts"


def _open_to_all(path: Path) -> None:
    """So that nothing but the sandbox keeps a worker of root's from them."""
    if os.geteuid() == 0:
        path.chmod(0o777 if path.is_dir() else 0o666)


@dataclass
class Stage:
    """The baits of one run of one attempt."""

    ground: Ground
    is_control: bool
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    secret: str = field(default_factory=lambda: secrets.token_hex(8))
    written_at: int = field(default_factory=lambda: 1_000_000_000 + secrets.randbelow(500_000_000))
    watched: list[Path] = field(default_factory=list)
    process: "subprocess.Popen[str] | None" = None
    before: dict[str, Any] = field(default_factory=dict)
    state: str = ""
    held: tuple[str, ...] = ()
    """Of the project, what the host trusts."""
    imported_name: str = ""
    program_path: str = ""
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    # --- files ---------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self.listeners = Listeners(self.cleanup)
        self.home = self._folder(self.ground.top / f"home-{self.name}")
        self.own = self._folder(self.ground.work / self.name)
        self.beside = self._folder(self.ground.work / f"{self.name}-side")
        self._folder(self.home / ".ssh")
        self.key = self._file(self.home / ".ssh" / KEY_NAME)
        self.rc = self._file(self.home / ".bashrc")
        self._file(self.home / f"letter-{self.secret}")
        self.sibling = self._file(self.beside / "notes")
        self._file(self.beside / f"letter-{self.secret}")
        (self.beside / "link").symlink_to(f"/nowhere/{self.secret}")
        self.shelved = self._file(self.ground.shelf / self.name)
        self.watched += [self.home, self.beside, self.shelved, self.ground.code]
        self.mark_text = f"esc{self.name}"
        self.granted = self.own
        """What a strict call is granted for writing."""
        self.after_planning: Callable[[], None] = lambda: None
        """What another process does between the plan of a call and its start."""

    def _folder(self, path: Path) -> Path:
        path.mkdir()
        _open_to_all(path)
        self.cleanup.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def _file(self, path: Path) -> Path:
        path.write_text(f"KEY-{self.secret}\n")
        os.utime(path, (self.written_at, self.written_at))
        _open_to_all(path)
        return path

    def _outside(self, folder: str) -> str:
        path = Path(folder) / f"toolkeep-{self.name}"
        self.watched.append(path)
        self.cleanup.callback(path.unlink, missing_ok=True)
        return str(path)

    def work(self) -> str:
        """The folder that a strict call may write in."""
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
        """The folder of both, not granted."""
        return str(self.home)

    def side(self) -> str:
        """A file beside the granted folder, which the zygote shows and the call was not granted."""
        return str(self.sibling)

    def side_link(self) -> str:
        """A link there, which leads to a secret name."""
        return str(self.beside / "link")

    def shelf_file(self) -> str:
        """A file that may be read only."""
        return str(self.shelved)

    def code(self) -> str:
        """Where the tool's code lies; a control gets a copy, as it will poison it."""
        if not self.is_control:
            return str(self.ground.code)
        copy = self._folder(self.ground.top / f"code-{self.name}")
        self.watched.append(copy)
        return str(shutil.copytree(self.ground.code, copy / "attempts"))

    def outside(self) -> str:
        """A file that is not there, in a folder that everybody may write in."""
        return self._outside("/tmp")  # noqa: S108 -- that is the point

    def outside_memory(self) -> str:
        """The same, in the folder for shared memory."""
        return self._outside("/dev/shm")  # noqa: S108 -- that is the point

    def device(self) -> str:
        """A device that everybody may write to, and every worker has."""
        self.watched.append(Path("/dev/full"))
        return "/dev/full"

    def own_scratch(self) -> str:
        """The scratch folder of the call."""
        if not self.is_control:
            return "/box/scratch"
        return str(self._folder(self.ground.top / f"scratch-{self.name}"))

    def others_scratch(self) -> str:
        """The scratch folder of another call, by the same name."""
        return self.own_scratch()

    def key_handle(self) -> str:
        """What name_to_handle_at says of the key."""
        libc = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
        mount = ctypes.c_int()
        if libc.name_to_handle_at(-100, os.fsencode(self.key), handle, ctypes.byref(mount), 0) < 0:
            return ""
        return handle.raw.hex()

    def setuid_id(self) -> str:
        """A program that runs as root, where root has made one."""
        return str(self.ground.code / SETUID_PROGRAM)

    # --- a project -----------------------------------------------------------------------------

    def project(self) -> str:
        """A project that may be written, with the environment of the host and the code of other tools."""
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
        """A name that the host will import from there, and has not."""
        name = f"bait_{self.name}"
        sys.path.insert(0, str(self.own))
        self.cleanup.callback(sys.path.remove, str(self.own))
        self.cleanup.callback(sys.modules.pop, name, None)
        self.imported_name = name
        return name

    def program(self) -> str:
        """A program there, of which the host works out what it needs beside itself."""
        for folder in ("bin", "lib"):
            self._folder(self.home / folder)
        (self.home / "bin/python").write_text("#!/bin/sh\n")
        (self.home / "bin/python").chmod(0o755)
        self.program_path = str(self.own / "tools/bin/program")
        if not self.is_control:
            surroundings(self.program_path)  # as a keep does that holds it down
        return self.program_path

    def frozen(self) -> tuple[str, ...]:
        """What a worker that may write the project must leave as it is."""
        trusted = [TrustedPath(os.path.realpath(self.own / name), "a bait") for name in self.held]
        held = TrustedPaths(code=lambda: trusted)
        return tuple(held_down(os.path.realpath(self.own), held, "", is_deep=True)) if trusted else ()

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
        return bool(self.program_path) and str(self.home) in surroundings(self.program_path)

    # --- numbers -------------------------------------------------------------------------------

    def host_pid(self) -> int:
        """The number of the host's process."""
        return os.getpid()

    def mark(self) -> str:
        """The name that an attempt gives to its processes."""
        return self.mark_text

    def early_mark(self) -> str:
        """The same, of an attempt that names itself when it is imported, before it is told anything."""
        self.mark_text = EARLY_MARK
        return EARLY_MARK

    def more_bytes(self) -> int:
        """Twice the memory that was granted."""
        return 2 * MEMORY_BYTES

    def more_processes(self) -> int:
        """Twice as many processes as granted."""
        return 2 * PROCESSES

    def more_files(self) -> int:
        """Twice as many open files as granted."""
        return 2 * OPEN_FILES

    def more_file_bytes(self) -> int:
        """More than a file may have."""
        return ResourceLimits().file_bytes + (1 << 20)

    def more_timers(self) -> int:
        """More timers than any tool needs: each is a signal that may wait, and these are counted by user."""
        return 1000

    def cpu_s(self) -> int:
        """The seconds of processor that were granted."""
        return CPU_S

    def interpreter(self) -> str:
        """A Python to start."""
        return os.path.realpath(sys.executable)

    # --- a process -----------------------------------------------------------------------------

    def victim(self) -> dict[str, int]:
        """A process of the same user, and where its secret lies."""
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
        """Whether its state is another, or it is gone."""
        return self.process is not None and self._ask("\n") != self.state

    # --- listeners -----------------------------------------------------------------------------

    def port(self) -> int:
        """A port that listens on the loopback."""
        return self.listeners.tcp(socket.AF_INET, "127.0.0.1")

    def port_6(self) -> int:
        """The same by version 6."""
        return self.listeners.tcp(socket.AF_INET6, "::1")

    def udp_port(self) -> int:
        """A port that takes datagrams."""
        return self.listeners.udp()

    def unix_path(self) -> str:
        """A socket that is not granted."""
        return self.listeners.unix(str(self.home / "s"))

    def granted_unix_path(self) -> str:
        """A socket in the granted folder."""
        return self.listeners.unix(str(self.own / "s"))

    def granted_datagram_path(self) -> str:
        """A socket there that takes datagrams."""
        return self.listeners.unix(str(self.own / "d"), socket.SOCK_DGRAM)

    def abstract(self) -> str:
        """A socket with an abstract name."""
        return self.listeners.unix(f"\0toolkeep-{self.name}")[1:]

    def callback_port(self) -> int:
        """A port that the host connects to once somebody listens."""
        return self.listeners.call_port()

    def callback_abstract(self) -> str:
        """An abstract name that the host connects to once somebody listens."""
        return self.listeners.call_abstract(f"toolkeep-back-{self.name}")

    def meeting_port(self) -> int:
        """A port for two calls to meet on."""
        return free_port()

    def swapped(self) -> str:
        """A granted folder that is exchanged for a link to its sibling as soon as it was checked."""
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
        """The first half of the name of a file that another call is granted; the secret is the rest."""
        return f"plant-{self.name}-"

    # --- what can be seen ----------------------------------------------------------------------

    def lay_out(self, names: list[str]) -> dict[str, Any]:
        """The arguments of an attempt with these parameters."""
        spelled = {"key": "key_", "home": "home_"}
        arguments = {name: getattr(self, spelled.get(name, name))() for name in names if hasattr(self, name)}
        self.before = self.fingerprint()
        return arguments

    def fingerprint(self) -> dict[str, Any]:
        """Everything about the watched files but when they were read."""
        return {str(path): traces.look(path) for top in self.watched for path in traces.below(top)}

    def traps(self) -> list[str]:
        """What the attempt left in its own folder that is not plain, but for our own listeners."""
        return [path.name for path in traces.odd_files(self.own) if path.name not in _LISTENERS]

    def left(self) -> list[int]:
        """Processes that carry the mark of this run."""
        return traces.processes_named(self.mark_text)

    def left_after(self, most_s: float) -> list[int]:
        """The same, after some time to end in."""
        end = time.monotonic() + most_s
        while (found := self.left()) and time.monotonic() < end:
            time.sleep(0.02)
        return found


def for_companion(wanted: list[str], stage: Stage, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call that runs beside an attempt."""
    given = {
        "mark": stage.mark_text,
        "text": stage.secret,
        "folder": arguments.get("others_scratch"),
        "meeting_port": arguments.get("meeting_port"),
    }
    return {name: given[name] for name in wanted}
