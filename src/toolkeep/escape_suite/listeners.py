"""Listeners and callers of the host, on this machine only: whatever reaches them escaped."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NOTICE_S: Final = 0.1
"""How long a listener that was reached may take to notice."""


class Listeners:
    """Listeners of one stage; all close with the stage."""

    def __init__(self, cleanup: contextlib.ExitStack) -> None:
        self._cleanup = cleanup
        self._heard: list[bytes] = []
        self._is_used = False

    def was_reached(self) -> bool:
        """Whether a connection arrived, or is arriving."""
        end = time.monotonic() + _NOTICE_S
        while self._is_used and not self._heard and time.monotonic() < end:
            time.sleep(0.01)
        return bool(self._heard)

    def tcp(self, family: socket.AddressFamily, address: str) -> int:
        """A TCP listener."""
        made = socket.create_server((address, 0), family=family)
        return int(self._listen(made).getsockname()[1])

    def udp(self) -> int:
        """A UDP socket."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        return int(self._listen(made, is_datagram=True).getsockname()[1])

    def unix(self, address: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
        """A unix socket that everybody may connect to."""
        made = socket.socket(socket.AF_UNIX, kind)
        made.bind(address)
        if not address.startswith("\0"):
            Path(address).chmod(0o777)
        is_datagram = kind is socket.SOCK_DGRAM
        if not is_datagram:
            made.listen()
        self._listen(made, is_datagram=is_datagram)
        return address

    def late_unix(self, address: str) -> str:
        """The same, from the moment on that a file with this name and `-asked` is there."""

        def listen() -> None:
            if Path(f"{address}-asked").exists() and not Path(address).exists():
                self.unix(address)

        self._repeat(listen, pause_s=0.02)
        return address

    def _listen(self, made: socket.socket, *, is_datagram: bool = False) -> socket.socket:
        self._cleanup.callback(made.close)
        made.settimeout(0.02)

        def hear() -> None:
            with contextlib.suppress(TimeoutError):
                if is_datagram:
                    self._heard.append(made.recv(1000))
                else:
                    made.accept()[0].close()
                    self._heard.append(b"connected")

        self._repeat(hear, pause_s=0.0)
        return made

    # --- the other way round -------------------------------------------------------------------

    def call_port(self) -> int:
        """A port that the host connects to as soon as something listens there."""
        port = free_port()
        self._call(lambda: socket.create_connection(("127.0.0.1", port), timeout=1))
        return port

    def call_abstract(self, name: str) -> str:
        """The same for an abstract socket name."""

        def connect() -> socket.socket:
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(1)
            try:
                made.connect(f"\0{name}")
            except OSError:
                made.close()
                raise
            return made

        self._call(connect)
        return name

    def _call(self, connect: Callable[[], socket.socket]) -> None:
        def call() -> None:
            with contextlib.suppress(OSError), connect() as reached:
                self._heard.append(reached.recv(100))

        self._repeat(call, pause_s=0.02)

    def _repeat(self, act: Callable[[], None], pause_s: float) -> None:
        """Repeat until the stage is cleaned up."""
        self._is_used = True
        done = threading.Event()

        def repeat() -> None:
            while not done.wait(pause_s):
                act()

        thread = threading.Thread(target=repeat)
        thread.start()
        self._cleanup.callback(thread.join)
        self._cleanup.callback(done.set)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
