"""Everything that a server shares with others through one PostgreSQL."""

import hashlib
import hmac
import socket
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import StoreUnavailable
from toolkeep.limits import WEBHOOK_SECRET_CHARS
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.witness_folder import Alarm
from toolkeep.storage.postgres.approvals_table import PostgresApprovals
from toolkeep.storage.postgres.database_history import DatabaseHistory
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.log_copier import LogCopier
from toolkeep.storage.postgres.log_copies import LogCopies
from toolkeep.storage.postgres.log_exchange import LogExchange
from toolkeep.storage.postgres.log_table import LogTable
from toolkeep.storage.postgres.peers import Peers
from toolkeep.storage.postgres.remote_log import RemoteLogs
from toolkeep.storage.postgres.sessions_table import PostgresSessionStates
from toolkeep.storage.postgres.shared_access import SharedSignedOut, SharedSignInCodes, SharedTokens
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import ServerId, SharedDatabase
from toolkeep.storage.postgres.shared_register import REGISTERS, Item, SharedRegister
from toolkeep.storage.postgres.shared_switches import POLICIES, SharedKeepState
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import PostgresLocation
from toolkeep.storage.sqlite.body_writer import BodyWriter
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.api_tokens import KeptToken
from toolkeep.stores.identity_revocations import Revocation
from toolkeep.stores.registry_state import StoredPolicies

_SIGNED_OUT: Final = "sign-outs"
_TOKENS: Final = "tokens"
_REVOCATIONS: Final = "revocations"


class SharedState:
    """The stores of one server. Nothing connects before the first use."""

    def __init__(self, settings: DatabaseSettings, own_key: Callable[[], bytes], folder: Path) -> None:
        """`own_key` is that of the state folder, for a keep that is alone on its database."""
        self._settings = settings
        self._folder = folder
        self._secret = _servers_key(settings) or own_key()
        self._key = row_key(settings, own_key)
        self._server = ServerId()
        self._history = DatabaseHistory(folder)
        self._databases: list[SharedDatabase] = []
        self._database = self._opened()
        self.changes = SharedChanges(self._database, socket.gethostname())
        self.ledger = PostgresLedger(self._database, self._key, self.changes.start)
        self.approvals = PostgresApprovals(self._opened(), self._key, self.changes, folder)
        self.sessions = PostgresSessionStates(self._opened(), self._opened(), self._key)
        self._peers: Peers | None = None
        self._state: SharedKeepState | None = None

    def exchange_logs(self, log: AuditLog, bodies: BodyWriter, alarm: Alarm) -> LogExchange:
        """Begin to watch the logs of other servers, and have them watch this one; the caller closes it."""
        table, copies = self._log_tables()
        return LogExchange(log, table, LogCopier(log, bodies, copies), self.changes, alarm)

    @cached_property
    def remote_logs(self) -> RemoteLogs:
        """The logs of the other servers, to read."""
        return RemoteLogs(*self._log_tables(), self._folder)

    def _log_tables(self) -> tuple[LogTable, LogCopies]:
        database, key = self._opened(), self._derived(b"toolkeep log copies")
        return LogTable(database, self._key), LogCopies(database, key, self._key)

    def keep_state(self) -> KeepState:
        """The state of the server, with the switches of all servers."""
        switches, policies = self._register("switches", bool), self._register(POLICIES, StoredPolicies)
        self._state = SharedKeepState(self._folder, switches, policies, self.changes)
        return self._state

    def watch_tokens(self, changed: Callable[[], object]) -> None:
        """Call `changed` in another thread whenever a server changed or revoked a token."""
        self.changes.watch(REGISTERS, lambda kind: changed() if kind in (_TOKENS, _REVOCATIONS) else None)

    def page_key(self) -> bytes:
        """The key under which sessions of the page are sealed."""
        return self._derived(b"toolkeep page")

    def signed_out(self) -> SharedSignedOut:
        """The sessions of the page that were ended on any server."""
        return SharedSignedOut(self._register(_SIGNED_OUT, float))

    def sign_in_codes(self) -> SharedSignInCodes:
        """The codes of links to the page."""
        return SharedSignInCodes(self._register("links", float))

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed: servers that share claims must agree on equal calls."""
        return self._derived(b"toolkeep secrets")

    def is_usable(self) -> bool:
        """Whether the database answers, was not restored unnoticed, and what is withdrawn is known."""
        self.changes.start()
        knows_withdrawn = self._state is None or not self._state.problem()
        return self.changes.is_current and not self._history.is_behind and knows_withdrawn

    def peers(self) -> Peers:
        """What this server and the others tell each other about their clients."""
        if self._peers is None:
            secret = self._derived(b"toolkeep request states")
            self._peers = Peers(self._opened(), self.changes, self._key, secret)
        return self._peers

    def close(self) -> None:
        """Settle what waits, and close."""
        self.approvals.close()
        self.ledger.close()
        if self._peers is not None:
            self._peers.close()
        self.changes.close()
        for database in self._databases:
            database.close()

    def _register(self, kind: str, item: type[Item]) -> SharedRegister[Item]:
        return SharedRegister(kind, item, self._registers, self._key, self._folder)

    @cached_property
    def _registers(self) -> SharedDatabase:
        """The connection of all registers, which change rarely."""
        return self._opened()

    def _derived(self, purpose: bytes) -> bytes:
        return _derived(self._secret, purpose)

    def _opened(self) -> SharedDatabase:
        """A connection for one store, closed with all others."""
        database = open_database(self._settings, self._server, self._history)
        self._databases.append(database)
        return database


def open_shared_tokens(
    settings: DatabaseSettings, own_key: Callable[[], bytes], folder: Path | None
) -> SharedTokens:
    """The tokens of a keep, over a connection of their own."""
    database = open_database(settings, history=DatabaseHistory(folder) if folder else None)
    key = row_key(settings, own_key)
    tokens = SharedRegister(_TOKENS, KeptToken, database, key, folder)
    return SharedTokens(tokens, SharedRegister(_REVOCATIONS, Revocation, database, key, folder), database)


def open_shared_sessions(settings: DatabaseSettings, own_key: Callable[[], bytes]) -> PostgresSessionStates:
    """The sessions and measures of a keep, over connections of their own."""
    return PostgresSessionStates(open_database(settings), open_database(settings), row_key(settings, own_key))


def open_database(
    settings: DatabaseSettings, server: ServerId | None = None, history: DatabaseHistory | None = None
) -> SharedDatabase:
    """A connection to the shared database; each store has its own."""
    place = PostgresLocation(settings.url)
    return SharedDatabase(place, is_single=settings.is_single, server=server, history=history)


def row_key(settings: DatabaseSettings, own_key: Callable[[], bytes]) -> RowKey:
    """The key of rows, the same on all servers with the same `database.key`."""
    return RowKey(_derived(_servers_key(settings) or own_key(), b"toolkeep rows"))


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, purpose, hashlib.sha256)


def _servers_key(settings: DatabaseSettings) -> bytes:
    if not settings.key_file:
        return settings.key.encode()
    try:
        key = Path(settings.key_file).read_bytes().strip()
    except OSError as error:
        reason = f"the servers' key cannot be read: {error.strerror}"
        raise StoreUnavailable(settings.key_file, reason, hint="see database.key_file") from error
    if len(key) < WEBHOOK_SECRET_CHARS:
        hint = f"make one of {WEBHOOK_SECRET_CHARS} characters or more, such as with: openssl rand -hex 32"
        raise StoreUnavailable(settings.key_file, "holds no key, or a short one", hint=hint)
    return key
