"""The database of the store: an SQLite file of the state folder, or a PostgreSQL by its URL.

Opens plain DB-API connections, so that reading imports no SQLAlchemy (0.33 s); writing puts Core over the
same connections. No password ever appears in a message.
"""

import contextlib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from toolkeep.errors import StateUnusable, StoreUnavailable, ToolkeepError
from toolkeep.host.files import is_there
from toolkeep.limits import STORE_BUSY_SECONDS, STORE_CONNECT_SECONDS
from toolkeep.storage.sqlite.database import open_file
from toolkeep.storage.state_folder import check_private

SCHEMA: Final = "agent_tools"
LAYOUT_TABLE: Final = "tool_store_layout"
"""Alembic's version table."""
HEAD: Final = "0003"
"""The newest migration: the schema that this toolkeep reads and writes."""
CHANNEL: Final = "toolkeep_definitions"


class DatabaseLocation(Protocol):
    """One database."""

    shown: str
    """Its name in errors and logs, without credentials."""
    prefix: str
    """The schema prefix of a table name."""
    mark: str
    """The placeholder for a parameter."""
    is_embedded: bool

    def exists(self) -> bool:
        """Whether there is anything to read; asking makes nothing."""

    def connect(self) -> Any:
        """A new connection, outside of any transaction until one is begun."""

    def refuse(self, error: BaseException) -> ToolkeepError:
        """What is raised where the database fails."""

    def failures(self) -> tuple[type[BaseException], ...]:
        """What its driver raises."""


class SqliteLocation:
    """`store.db` of a state folder."""

    prefix = ""
    mark = "?"
    is_embedded = True

    def __init__(self, folder: Path) -> None:
        self._file = folder / "store.db"
        self.shown = str(self._file)

    def exists(self) -> bool:
        """Whether there is anything to read; asking makes nothing."""
        try:
            if not is_there(self._file):
                return False
            check_private(self._file.parent)
        except OSError as error:
            raise self.refuse(error) from error
        return True

    def connect(self) -> Any:
        """A new connection; the file is made where it is missing, readable by this user alone."""
        # synchronous = FULL: an acknowledged change survives a crash of the machine. WAL: no reader waits.
        pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        return open_file(self._file, pragmas, "", busy_s=STORE_BUSY_SECONDS)  # Alembic makes the tables

    def failures(self) -> tuple[type[BaseException], ...]:
        """What its driver raises."""
        import sqlite3

        return (sqlite3.Error, OSError)

    def refuse(self, error: BaseException) -> ToolkeepError:
        """What is raised where the database fails."""
        if isinstance(error, ToolkeepError):
            return error
        if isinstance(error, OSError):
            hint = "check that the folder is writable and the disk is not full"
            return StateUnusable(self.shown, f"cannot be used: {error.strerror}", hint=hint)
        hint = "check that the disk is not full; `toolkeep backup restore` brings back an earlier state"
        return StoreUnavailable(self.shown, _first_line(error), hint=hint)


class PostgresLocation:
    """A PostgreSQL by its URL."""

    prefix = f"{SCHEMA}."
    mark = "%s"
    is_embedded = False

    def __init__(self, url: str) -> None:
        self._url = url
        self.shown = shown_url(url)

    def exists(self) -> bool:
        """Whether there is anything to read: that is known only there."""
        return True

    def connect(self, *, answer_s: float | None = None) -> Any:
        """A new connection; raises what `failures` lists.

        It is closed where an answer takes longer than `answer_s`.
        """
        from toolkeep.network.own_endpoints import bar_address, bar_port

        psycopg = _psycopg(self.shown)
        kind = psycopg.Connection if answer_s is None else _impatient(psycopg.Connection, answer_s)
        connection = kind.connect(
            self._url,
            **tls_of(self._url, os.environ),
            autocommit=True,
            connect_timeout=STORE_CONNECT_SECONDS,
            # Without these a server that vanished, or a lock that is never released, blocks the keep.
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
            options="-c statement_timeout=10000 -c lock_timeout=5000 -c timezone=UTC",
            application_name="toolkeep",
            target_session_attrs="read-write",  # of several hosts, the one that is no standby
        )
        # In the database a tool could rewrite definitions and tokens: no grant reaches it.
        if connection.info.hostaddr:
            bar_address(connection.info.hostaddr, connection.info.port)
        else:
            bar_port(connection.info.port)  # by a socket of this machine
        return connection

    def failures(self) -> tuple[type[BaseException], ...]:
        """What its driver raises."""
        return (_psycopg(self.shown).Error, OSError)

    def refuse(self, error: BaseException) -> ToolkeepError:
        """What is raised where the database fails."""
        if isinstance(error, ToolkeepError):
            return error
        hint = "check that it runs and accepts connections from here; cached definitions stay in use"
        return StoreUnavailable(self.shown, self._without_secrets(_first_line(error)), hint=hint)

    def _without_secrets(self, text: str) -> str:
        """Drivers quote the connection string in errors, percent-encoded or decoded: redact both."""
        for password in _passwords(self._url):
            text = text.replace(password, "…")
        return text


def tls_of(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Options that verify TLS to every host but this machine; raises where the URL asks for less.

    Without it, whoever is on the way reads tokens and answers in the database's place.
    """
    from psycopg.conninfo import conninfo_to_dict

    said = conninfo_to_dict(url)
    hosts = [str(said.get(name) or environ.get(f"PG{name.upper()}", "")) for name in ("host", "hostaddr")]
    if all(_is_local(host) for named in hosts for host in named.split(",")):
        return {}
    if said.get("sslmode", "verify-full") != "verify-full":
        hint = "leave sslmode out of database.url, or set it to verify-full"
        raise StoreUnavailable(shown_url(url), f"would be reached with sslmode={said['sslmode']}", hint=hint)
    return {"sslmode": "verify-full", "sslrootcert": str(said.get("sslrootcert") or "system")}


def _is_local(host: str) -> bool:
    """Whether a host is a socket or loopback address of this machine."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _impatient(connection: Any, answer_s: float) -> Any:
    """A class of connections that are closed where an answer takes too long; nothing is cancelled."""

    class Impatient(connection):  # type: ignore[misc]  # its base is known only where it is installed
        def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
            from psycopg import OperationalError, errors

            try:
                return super().wait(gen, timeout=answer_s)
            except errors._WaitTimeout as error:  # noqa: SLF001 -- documented, without a public name
                self.pgconn.finish()
                raise OperationalError(f"no answer within {answer_s:g} s") from error

    return Impatient


def _psycopg(shown: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        hint = "install it with toolkeep: pip install 'toolkeep[postgres]'"
        raise StoreUnavailable(shown, "psycopg is not installed", hint=hint) from error
    return psycopg


def shown_url(url: str) -> str:
    """A URL without user, password and options, any of which may hold a secret."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "postgresql://…"
    return f"postgresql://{parts.hostname or ''}{port}{parts.path}"


def files_of(url: str) -> Iterator[str]:
    """The files that a URL names: certificates, keys, passwords, the socket of a server on this machine."""
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        port = options.get("port", [str(parts.port or 5432)])[0]
    except ValueError:  # nothing connects there
        return
    for name in _FILE_OPTIONS & options.keys():
        yield from (path for path in options[name] if path != "system")  # which stands for no file
    written = parts.netloc.rpartition("@")[2].partition(":")[0]
    for host in (*options.get("host", ()), unquote(written)):
        if host.startswith("/"):
            yield f"{host}/.s.PGSQL.{port}"


_FILE_OPTIONS: Final = frozenset(
    ("passfile", "sslcert", "sslcrl", "sslcrldir", "sslkey", "sslrootcert", "servicefile")
)
"""Options of libpq that name a file."""


def _passwords(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
        written = {parts.password or "", *parse_qs(parts.query).get("password", ())}
    except ValueError:
        return {url}
    return {form for one in written if one for form in (one, unquote(one))}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def connected(place: DatabaseLocation) -> Iterator[Any]:
    """A connection for one use; driver errors become ours."""
    try:
        connection = place.connect()
    except place.failures() as error:
        raise place.refuse(error) from error
    try:
        yield connection
    except place.failures() as error:
        raise place.refuse(error) from error
    finally:
        connection.close()
