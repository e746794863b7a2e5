"""What the host lays out for one attempt, and what became of it afterwards.

Each bait is named as the parameter of an attempt that asks for it. Secrets never are part of an argument.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
KEY_NAME: Final = "id_ed25519"
SETUID_PROGRAM: Final = "id-as-root"

MEMORY_BYTES: Final = 256 << 20
PROCESSES: Final = 16
OPEN_FILES: Final = 64
CPU_S: Final = 1


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
    heard: list[bytes] = field(default_factory=list)
    watched: list[Path] = field(default_factory=list)
    has_listener: bool = False
    process: "subprocess.Popen[str] | None" = None
    before: dict[str, Any] = field(default_factory=dict)
    state: str = ""
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    # --- files ---------------------------------------------------------------------------------

    def __post_init__(self) -> None:
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
        return str(self.own)

    def empty(self) -> str:
        return str(self.own)

    def key_(self) -> str:
        return str(self.key)

    def bashrc(self) -> str:
        return str(self.rc)

    def home_(self) -> str:
        return str(self.home)

    def side(self) -> str:
        return str(self.sibling)

    def side_link(self) -> str:
        return str(self.beside / "link")

    def shelf_file(self) -> str:
        return str(self.shelved)

    def code(self) -> str:
        """Where the tool's code lies; a control gets a copy, as it will poison it."""
        if not self.is_control:
            return str(self.ground.code)
        copy = self._folder(self.ground.top / f"code-{self.name}")
        self.watched.append(copy)
        return str(shutil.copytree(self.ground.code, copy / "attempts"))

    def outside(self) -> str:
        return self._outside("/tmp")  # noqa: S108 -- that is the point

    def outside_memory(self) -> str:
        return self._outside("/dev/shm")  # noqa: S108 -- that is the point

    def own_scratch(self) -> str:
        if not self.is_control:
            return "/box/scratch"
        return str(self._folder(self.ground.top / f"scratch-{self.name}"))

    def others_scratch(self) -> str:
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
        return str(self.ground.code / SETUID_PROGRAM)

    # --- numbers -------------------------------------------------------------------------------

    def host_pid(self) -> int:
        return os.getpid()

    def mark(self) -> str:
        return self.mark_text

    def more_bytes(self) -> int:
        return 2 * MEMORY_BYTES

    def more_processes(self) -> int:
        return 2 * PROCESSES

    def more_files(self) -> int:
        return 2 * OPEN_FILES

    def cpu_s(self) -> int:
        return CPU_S

    def interpreter(self) -> str:
        return os.path.realpath(sys.executable)

    # --- a process -----------------------------------------------------------------------------

    def victim(self) -> dict[str, int]:
        command = [sys.executable, "-I", "-S", str(HERE / "victim.py"), self.secret, str(self.key)]
        self.process = subprocess.Popen(
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

    def _listen(self, made: socket.socket, *, is_datagram: bool = False) -> socket.socket:
        self.has_listener = True
        self.cleanup.callback(made.close)
        made.settimeout(0.02)
        done = threading.Event()

        def hear() -> None:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    if is_datagram:
                        self.heard.append(made.recv(1000))
                    else:
                        made.accept()[0].close()
                        self.heard.append(b"connected")

        listener = threading.Thread(target=hear)
        listener.start()
        self.cleanup.callback(listener.join)
        self.cleanup.callback(done.set)
        return made

    def port(self) -> int:
        return int(self._listen(socket.create_server(("127.0.0.1", 0))).getsockname()[1])

    def port_6(self) -> int:
        made = socket.create_server(("::1", 0), family=socket.AF_INET6)
        return int(self._listen(made).getsockname()[1])

    def udp_port(self) -> int:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        return int(self._listen(made, is_datagram=True).getsockname()[1])

    def _unix(self, address: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
        made = socket.socket(socket.AF_UNIX, kind)
        made.bind(address)
        if not address.startswith("\0"):
            Path(address).chmod(0o777)
        if kind is socket.SOCK_STREAM:
            made.listen()
        self._listen(made, is_datagram=kind is socket.SOCK_DGRAM)
        return address

    def unix_path(self) -> str:
        return self._unix(str(self.home / "s"))

    def granted_unix_path(self) -> str:
        return self._unix(str(self.own / "s"))

    def granted_datagram_path(self) -> str:
        return self._unix(str(self.own / "d"), socket.SOCK_DGRAM)

    def abstract(self) -> str:
        return self._unix(f"\0toolkeep-{self.name}")[1:]

    def _call_back(self, connect: Callable[[], socket.socket]) -> None:
        """Connect to whoever listens, until the run is over."""
        self.has_listener = True
        done = threading.Event()

        def call() -> None:
            while not done.wait(0.02):
                with contextlib.suppress(OSError), connect() as reached:
                    self.heard.append(reached.recv(100))

        caller = threading.Thread(target=call)
        caller.start()
        self.cleanup.callback(caller.join)
        self.cleanup.callback(done.set)

    def callback_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = int(found.getsockname()[1])
        self._call_back(lambda: socket.create_connection(("127.0.0.1", port), timeout=1))
        return port

    def callback_abstract(self) -> str:
        name = f"toolkeep-back-{self.name}"

        def connect() -> socket.socket:
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(1)
            try:
                made.connect(f"\0{name}")
            except OSError:
                made.close()
                raise
            return made

        self._call_back(connect)
        return name

    def meeting_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as found:
            return int(found.getsockname()[1])

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
        return {str(path): _look(path) for top in self.watched for path in _below(top)}

    def traps(self) -> list[str]:
        """What the attempt left in its own folder that is not plain."""
        found = []
        for path in _below(self.own):
            mode = path.lstat().st_mode if os.path.lexists(path) else 0
            is_plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or not mode
            if path.name not in ("s", "d") and (mode & 0o6000 or not is_plain):
                found.append(path.name)
        return found

    def left(self) -> list[int]:
        """Processes that carry the mark of this run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    is_marked = (entry / "comm").read_text().strip() == self.mark_text
                    is_zombie = "\nState:\tZ" in (entry / "status").read_text()
                    if is_marked and not is_zombie:
                        found.append(int(entry.name))
        return found

    def left_after(self, most_s: float) -> list[int]:
        """The same, after some time to end in."""
        end = time.monotonic() + most_s
        while (found := self.left()) and time.monotonic() < end:
            time.sleep(0.02)
        return found


def _below(top: Path) -> Iterator[Path]:
    yield top
    if top.is_dir() and not top.is_symlink():
        yield from sorted(top.rglob("*"))


def _look(path: Path) -> Any:
    try:
        status = path.lstat()
    except OSError as error:
        return error.errno
    content = ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    attributes = os.listxattr(path, follow_symlinks=False)
    return status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, content, attributes
