"""A PostgreSQL with a standby that is some milliseconds away, which takes over when its primary is gone."""

import contextlib
import queue
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.storage.cluster import Cluster, need_programs


class DelayedLink:
    """Carries bytes to a server on 127.0.0.1, each after a delay, both ways."""

    def __init__(self, port: int, seconds: float) -> None:
        self._target, self._seconds = port, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_closed = False
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Break: bytes on their way are lost, and nothing connects again."""
        self._is_closed = True
        for one in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            one.close()

    def _accept(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:  # it is away; the client tries again
            client.close()
            return
        server.settimeout(None)
        self._ends += [client, server]
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            late: queue.Queue[tuple[float, bytes]] = queue.Queue()
            threading.Thread(target=self._take, args=(one, late), daemon=True).start()
            threading.Thread(target=self._give, args=(other, late), daemon=True).start()

    def _take(self, source: socket.socket, late: "queue.Queue[tuple[float, bytes]]") -> None:
        data = b"."
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            late.put((time.monotonic() + self._seconds, data))

    def _give(self, target: socket.socket, late: "queue.Queue[tuple[float, bytes]]") -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = late.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data or self._is_closed:
                    break
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


class Standby(Cluster):
    """Follows a primary over a link."""

    def __init__(self, programs: Path, folder: Path, primary: Cluster, link: DelayedLink, port: int) -> None:
        self._primary = primary
        self._link = link
        super().__init__(programs, folder)
        self.port = port

    def _fill(self) -> None:
        data = str(self._folder / "data")
        where = f"host=127.0.0.1 port={self._primary.port} user=keep"
        self._run("pg_basebackup", "--pgdata", data, "--dbname", where, "--checkpoint", "fast", "--no-sync")
        follow = (
            f"primary_conninfo = 'host=127.0.0.1 port={self._link.port} user=keep application_name=standby'\n"
        )
        settings = Path(data) / "postgresql.auto.conf"
        settings.write_text(settings.read_text() + follow)
        (Path(data) / "standby.signal").touch()
        for file in (settings, Path(data) / "standby.signal"):
            self._own(file)

    def promote(self) -> None:
        """Become the primary."""
        self._run("pg_ctl", "promote", "--pgdata", str(self._folder / "data"), "--wait")

    def last_replayed(self) -> float:
        """When the newest commit was made that it has of its primary."""
        import psycopg

        with psycopg.connect(self.url("postgres")) as connection:
            row = connection.execute("SELECT extract(epoch FROM pg_last_xact_replay_timestamp())::float8")
            return float(row.fetchall()[0][0])


class Replicated:
    """A primary with a standby; after a failover the old one comes back as the standby."""

    def __init__(self, folder: Path, *, delay_s: float, is_synchronous: bool) -> None:
        self._programs, self._root, self._delay_s = need_programs(), folder, delay_s
        self._count = 0
        self.behind: list[int] = []
        """At each failover, the milliseconds since the last commit that the standby had."""
        self.primary = Cluster(self._programs, self._next())
        self.primary.start_first()
        self.primary.clean()
        self.primary.execute("postgres", "ALTER SYSTEM SET wal_retrieve_retry_interval = '500ms'")
        self.primary.execute(
            "postgres", "ALTER SYSTEM SET wal_keep_size = '256MB'"
        )  # for a standby that is late
        if is_synchronous:
            self.primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("postgres", "SELECT pg_reload_conf()")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._ports = (self.primary.port, port)
        self.standby = self._follow(port)

    @property
    def url(self) -> str:
        """Where servers find whichever is the primary."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://keep@{hosts}/made"

    def restart(self, away_s: float) -> None:
        """Stop the primary at once, and start it again."""
        self.primary.stop()
        time.sleep(away_s)
        self.primary.start()

    def fail_over(self) -> None:
        """Lose the primary and what it has not replicated; the standby takes over, and gets its own standby."""
        lost_at = time.time()
        self._link.close()
        lost, self.primary = self.primary, self.standby
        lost.stop()
        self.standby.promote()
        self.behind.append(round(1000 * (lost_at - self.standby.last_replayed())))
        shutil.rmtree(lost.folder, ignore_errors=True)
        self.standby = self._follow(lost.port)

    def close(self) -> None:
        """Stop both."""
        self._link.close()
        for one in (self.standby, self.primary):
            one.stop()

    def _follow(self, port: int) -> Standby:
        self._link = DelayedLink(self.primary.port, self._delay_s)
        standby = Standby(self._programs, self._next(), self.primary, self._link, port)
        standby.start()
        return standby

    def _next(self) -> Path:
        self._count += 1
        folder = self._root / str(self._count)
        folder.mkdir()
        return folder


@contextlib.contextmanager
def replicated(*, delay_s: float, is_synchronous: bool = True) -> Iterator[Replicated]:
    """A database with a standby, for as long as something runs."""
    folder = Path(tempfile.mkdtemp(prefix="keep-pg-"))
    folder.chmod(0o755)
    made = Replicated(folder, delay_s=delay_s, is_synchronous=is_synchronous)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
