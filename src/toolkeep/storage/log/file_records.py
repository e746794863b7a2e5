"""The record of calls in a state folder: audit log, bodies, idempotency ledger, approvals and keys."""

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from toolkeep.approval.approval_store import Approvals
from toolkeep.audit.receipt import Receipt
from toolkeep.audit.record_kinds import AuditAlarm as AuditAlarmRecord
from toolkeep.audit.record_kinds import written
from toolkeep.audit.signed_note import VerifierKey
from toolkeep.audit.witness_protocol import Request
from toolkeep.errors import NotRecorded, ToolkeepError
from toolkeep.events import AuditAlarm, Listener
from toolkeep.limits import UNDO_DAYS
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_publisher import Publisher
from toolkeep.storage.log.witness_client import WitnessClient, WitnessSender, over_http
from toolkeep.storage.log.witness_folder import Alarm, log_alarm
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.body_writer import BodyWriter
from toolkeep.storage.sqlite.ledger_db import SqliteLedger
from toolkeep.storage.sqlite.replaced_files_db import SqliteReplacedFiles
from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates

if TYPE_CHECKING:
    from toolkeep.execution.idempotency import Ledger
    from toolkeep.flow.session_store import SessionStates
    from toolkeep.storage.postgres.shared_state import SharedState


class FileRecord:
    """The record of one keep, shared by its processes. The first call creates its files."""

    def __init__(
        self,
        folder: Path,
        *,
        checkpoint_file: str = "",
        checkpoint_webhook: str = "",
        witnesses: Mapping[str, str] | None = None,
        shared: "SharedState | None" = None,
        undo_days: float = UNDO_DAYS,
    ) -> None:
        """`witnesses` are the URLs of the witnesses that cosign the log, with their keys.

        `shared` is what several servers decide together; whoever gave it closes it.
        """
        self.folder = folder
        self._shared = shared
        self.log = AuditLog(folder)
        self.bodies = BodyWriter(folder)
        self.sessions: SessionStates = SqliteSessionStates(folder) if shared is None else shared.sessions
        self.replaced = SqliteReplacedFiles(folder, undo_days)
        self._publisher: Publisher | None = None
        if checkpoint_file or checkpoint_webhook:
            self._publisher = Publisher(folder, file=checkpoint_file, webhook=checkpoint_webhook)
        self._tell: Alarm = log_alarm
        self._secret_key: bytes | None = None
        self.ledger: Ledger = SqliteLedger(folder) if shared is None else shared.ledger
        self.approvals: Approvals = SqliteApprovals(folder) if shared is None else shared.approvals
        clients = [
            WitnessClient(self.log, VerifierKey.parse(key), over_http(url), alarm=self._alarm)
            for url, key in (witnesses or {}).items()
        ]
        self._exchange = None if shared is None else shared.exchange_logs(self.log, self.bodies, self._alarm)
        others = self._exchange.witnesses if self._exchange else tuple
        self._sender: WitnessSender | None = None
        if clients or self._exchange:
            self._sender = WitnessSender(self.log, lambda: [*clients, *others()])

    def report_to(self, tell: Listener) -> None:
        """Tell alarms about the log as events."""
        self._tell = tell

    def _alarm(self, alarm: AuditAlarm) -> None:
        self._tell(alarm)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = AuditAlarmRecord(**msgspec.structs.asdict(alarm), time=now)
        with contextlib.suppress(ToolkeepError):  # of a log that is broken or closed; it was told
            self.log.append(msgspec.json.decode(written(record)))

    def is_database_usable(self) -> bool | None:
        """Whether the shared database can be used; None if there is none."""
        return None if self._shared is None else self._shared.is_usable()

    def watch_servers(self, heard: Callable[[int], object]) -> None:
        """Call `heard` each second with the number of servers on the database; never, without one."""
        if self._shared is not None:
            changes = self._shared.changes
            changes.watch("servers", lambda _: heard(changes.servers))

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
            closing.callback(self.bodies.close)
            closing.callback(self.replaced.close)
            if self._publisher is not None:
                closing.callback(self._publisher.close)
            if self._exchange is not None:
                closing.callback(self._exchange.close)
            if self._sender is not None:
                closing.callback(self._sender.close)
            closing.callback(self.ledger.close)
            closing.callback(self.approvals.close)
            closing.callback(self.sessions.close)
            closing.callback(self.log.close)
