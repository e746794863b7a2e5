"""A real PostgreSQL from the machine's package, in a cluster of its own that lasts as long as the tests.

It runs as an ordinary user and answers on 127.0.0.1 and on a socket in its own folder. Where the package is
missing, the tests that need it are skipped by name; in CI that is a failure.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkeep.storage.sql.database_location import LAYOUT_TABLE, SCHEMA, DatabaseLocation, PostgresLocation
from toolkeep.storage.sql.definition_writer import DefinitionWriter
from toolkeep.storage.sql.tables import STATE

_LIBC = ctypes.CDLL(None)
_PORTS_TRIED = 5
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "16MB",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
}

_TRUNCATE = f"""
DO $$ BEGIN EXECUTE (
    SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables
    WHERE schemaname = '{SCHEMA}' AND tablename <> '{LAYOUT_TABLE}'
); END $$;
INSERT INTO {STATE} (id, revision) VALUES (1, 0)
"""  # noqa: S608 -- our own words


class Cluster:
    """A PostgreSQL that can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._user = _ordinary_user()
        self.port = _free_port()
        self._databases: set[str] = set()
        self._server: subprocess.Popen[bytes] | None = None
        self._own(folder)
        self._fill()

    @property
    def folder(self) -> Path:
        """Where it has its files."""
        return self._folder

    def _fill(self) -> None:
        made = ("--username", "keep", "--auth", "trust", "--no-sync", "--no-locale", "--encoding", "UTF8")
        self._run("initdb", "--pgdata", str(self._folder / "data"), *made)

    def start_first(self) -> None:
        """Start it on a port that is free; another cluster may take one that was a moment ago."""
        for _ in range(_PORTS_TRIED):
            with contextlib.suppress(RuntimeError):
                self.start()
                return
            self.port = _free_port()
        raise RuntimeError("PostgreSQL did not start")

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._server is not None:
            return
        options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        data, port = str(self._folder / "data"), str(self.port)
        self._server = subprocess.Popen(
            [self._programs / "postgres", "-D", data, "-p", port, "-k", str(self._folder), *options],
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=_end_with_the_tests,  # noqa: PLW1509 -- one call of the kernel, nothing of Python's
        )
        # By its own socket: on its port another one may answer.
        until = ["--host", str(self._folder), "--port", port, "--quiet"]
        while subprocess.run([self._programs / "pg_isready", *until], check=False).returncode:
            if self._server.poll() is not None:
                raise RuntimeError("PostgreSQL did not start")

    def stop(self) -> None:
        """Stop it at once, with every connection to it; what was committed is there after the next start."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
            self._server = None

    def clean(self) -> str:
        """The URL of a database whose tables are made and empty."""
        if "made" not in self._databases:
            self._make("made")
            make_tables(PostgresLocation(self.url("made")))
        self.execute("made", _TRUNCATE)
        return self.url("made")

    def empty(self) -> str:
        """The URL of a database without any table."""
        if "empty" not in self._databases:
            self._make("empty")
        self.execute("empty", f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        return self.url("empty")

    def _make(self, database: str) -> None:
        self.execute("postgres", f"CREATE DATABASE {database}")
        self._databases.add(database)

    def url(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://keep@127.0.0.1:{self.port}/{database}"

    def execute(self, database: str, statement: str) -> None:
        """Run a statement as whoever owns everything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user, -1)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments], user=self._user, check=True, capture_output=True, cwd="/"
        )


def find_programs() -> Path | None:
    """Where the newest PostgreSQL of this machine has its programs."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    on_path = shutil.which("initdb")
    found = packaged[-1] if packaged else Path(on_path).parent if on_path else None
    return found if found and (found / "postgres").exists() else None


def need_programs() -> Path:
    """Where PostgreSQL has its programs; where there is none, a skip, or a failure in CI."""
    programs = find_programs()
    if programs is None:
        missing = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return programs


def make_tables(place: DatabaseLocation) -> None:
    """Make the tables of the store."""
    with contextlib.closing(DefinitionWriter(place)) as writer:
        writer.migrate()


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that runs; where there is no PostgreSQL, a skip, or a failure in CI."""
    programs = need_programs()
    # Not below pytest's own folder: others may not look into that, and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="keep-pg-"))
    made = Cluster(programs, folder)
    made.start_first()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_the_tests() -> None:
    """Have the kernel stop it when whoever started it is gone, even if that was killed."""
    pr_set_pdeathsig = 1
    _LIBC.prctl(pr_set_pdeathsig, signal.SIGQUIT)


def _ordinary_user() -> int | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    return 65534


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
