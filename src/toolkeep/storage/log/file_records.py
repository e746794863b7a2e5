"""The record of calls in a state folder: audit log, bodies, idempotency ledger, approvals and keys."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkeep.approval.approval_store import Approvals
from toolkeep.audit.receipt import Receipt
from toolkeep.audit.signed_note import VerifierKey
from toolkeep.audit.witness_protocol import Request
from toolkeep.errors import NotRecorded
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_publisher import Publisher
from toolkeep.storage.log.witness_client import WitnessClient, WitnessSender, over_http
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.body_writer import BodyWriter
from toolkeep.storage.sqlite.ledger_db import SqliteLedger
from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates

if TYPE_CHECKING:
    from toolkeep.config.settings import DatabaseSettings
    from toolkeep.execution.idempotency import Ledger
    from toolkeep.storage.postgres.shared_state import SharedState as _Shared


class FileRecord:
    """The record of one keep, shared by its processes. The first call creates its files."""

    def __init__(
        self,
        folder: Path,
        *,
        checkpoint_file: str = "",
        checkpoint_webhook: str = "",
        witnesses: Mapping[str, str] | None = None,
        database: "DatabaseSettings | None" = None,
    ) -> None:
        """`witnesses` are the URLs of the witnesses that cosign the log, with their keys.

        `database`: what several servers decide together is stored there.
        """
        self.folder = folder
        self._shared: _Shared | None = None
        self.log = AuditLog(folder)
        self.bodies = BodyWriter(folder)
        self.ledger: Ledger
        self.approvals: Approvals
        self.sessions = SqliteSessionStates(folder)
        self._publisher: Publisher | None = None
        if checkpoint_file or checkpoint_webhook:
            self._publisher = Publisher(folder, file=checkpoint_file, webhook=checkpoint_webhook)
        self._sender: WitnessSender | None = None
        if witnesses:
            clients = [
                WitnessClient(self.log, VerifierKey.parse(key), over_http(url))
                for url, key in witnesses.items()
            ]
            self._sender = WitnessSender(self.log, clients)
        self._secret_key: bytes | None = None
        if database is not None:
            from toolkeep.storage.postgres.shared_state import SharedState

            self._shared = SharedState(database, self._own_key, folder)
            self.ledger, self.approvals = self._shared.ledger, self._shared.approvals
        else:
            self.ledger, self.approvals = SqliteLedger(folder), SqliteApprovals(folder)

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed."""
        if self._secret_key is None:
            self._secret_key = self._own_key() if self._shared is None else self._shared.secret_key()
        return self._secret_key

    def _own_key(self) -> bytes:
        return Keys(self.folder).secret_key()

    def receipt(self, index: int) -> Receipt:
        """The receipt for the record at an index; waits for a checkpoint that covers it."""
        proof = self.log.prove(index)
        (entry,) = self.log.read(index, index + 1)
        return Receipt.of(entry, proof)

    def witness_request(self, old_size: int) -> str:
        """The request to a witness that signed the log last at this size, as text."""
        try:
            proof, checkpoint = self.log.prove_growth(old_size)
        except ValueError:
            hint = "give the size that the witness signed last"
            raise NotRecorded(f"the log was never of size {old_size}", hint) from None
        return str(Request(old_size=old_size, proof=tuple(proof), checkpoint=checkpoint))

    def records_of(self, call_id: str) -> list[dict[str, Any]]:
        """The records of one call, in order."""
        return [entry.record for entry in self.log.read() if entry.record.get("call") == call_id]

    def close(self) -> None:
        """Flush everything, and close."""
        with contextlib.ExitStack() as closing:  # each is closed, even where another one raises
            if self._publisher is not None:
                closing.callback(self._publisher.close)
            if self._sender is not None:
                closing.callback(self._sender.close)
            closing.callback((self._shared or self.ledger).close)
            closing.callback(self.approvals.close)
            closing.callback(self.sessions.close)
            closing.callback(self.log.close)
            closing.callback(self.bodies.close)
