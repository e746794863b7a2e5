"""Sends the checkpoints of a log to its witnesses, and stores what they cosign (c2sp.org/tlog-witness).

A thread sends the newest checkpoint to every witness, at most once a second, and again after a while without
a new one: a witness can then tell an idle log from one that was rolled back. No call waits for a witness. A
witness that holds another history, or does not cosign for minutes, is an error in the program's own log
(`toolkeep.audit`). A witness may lie: it can withhold its cosignature and cause false alarms, but can neither
forge a cosignature of another nor change this log.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from toolkeep.audit.checkpoint import Checkpoint, parse_size
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.signed_note import NOTE_BYTES, Note, VerifierKey
from toolkeep.audit.witness_protocol import REQUEST_BYTES, Answer, Request, cosign
from toolkeep.events import AuditAlarm
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.cosigned_checkpoints import CosignedCheckpoint, cosigned_folder
from toolkeep.storage.log.witness_folder import Alarm, log_alarm
from toolkeep.storage.state_folder import make_private

log = logging.getLogger("toolkeep.audit")

EVERY_SECONDS: Final = 1.0
"""How often a new checkpoint is sent."""
AGAIN_SECONDS: Final = 15.0
"""How often the newest one is sent again, and the longest pause after a failure. Shorter than a witness waits
for a better one (`SETTLE_SECONDS`)."""
SILENT_SECONDS: Final = 300.0
"""How long a witness may cosign nothing before that is an alarm."""
_ASK_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
"""How long closing waits for the witnesses to cosign the last checkpoint."""


Ask = Callable[[str], Awaitable[Answer]]
"""Carries a request to a witness, and its answer back."""


class _Alarm(Exception):
    """What the witness says cannot be true together with this log and what it said before."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(reason)
        self.message = message


_CONTRADICTED: Final = "a witness contradicts this log"


class WitnessClient:
    """One witness of a log."""

    def __init__(
        self,
        log: AuditLog,
        key: VerifierKey,
        ask: Ask,
        *,
        alarm: Alarm = log_alarm,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._alarm = alarm
        self._key = key
        self._ask = ask
        self._clock = clock
        self._last = CosignedCheckpoint(log, key)
        self._sent = ""
        self._due = self._again = clock()
        self._failures = 0
        self._cosigned_at = clock()
        self._said = ""

    def is_due(self, checkpoint: str, *, is_last: bool = False) -> bool:
        """Whether it is time to send this checkpoint; the last one of a log that closes does not wait."""
        now = self._clock()
        is_time = now >= self._due or (is_last and not self._failures)
        return now >= self._again or (checkpoint != self._sent and is_time)

    async def send(self, checkpoint: str) -> None:
        """Have a checkpoint cosigned, and store it. What goes wrong is logged, and tried again when due."""
        self._sent = checkpoint
        try:
            self._last.save(await self._cosigned(checkpoint))
        except _Alarm as alarm:
            self._failed(logging.ERROR, alarm.message, str(alarm), AGAIN_SECONDS)
        except Exception as error:  # noqa: BLE001 -- whatever a witness answers, the next one is sent
            self._unanswered(f"{type(error).__name__}: {error}")
        else:
            now = self._clock()
            self._failures, self._said, self._cosigned_at = 0, "", now
            self._due, self._again = now + EVERY_SECONDS, now + AGAIN_SECONDS

    async def _cosigned(self, checkpoint: str) -> Note:
        size = Checkpoint.parse(Note.parse(checkpoint).text).size
        signed = self._last.size()
        answer = await self._asked(checkpoint, size, min(signed, size), signed)
        # Only now: the witness hears of a log that was cut, whatever is done about our own alarm.
        if signed > size:
            raise _Alarm(_CONTRADICTED, f"it cosigned {signed} records, and this log has {size}")
        if answer.status == 422:
            raise _Alarm(_CONTRADICTED, f"it holds no history that size {size} extends")
        if answer.status != 200:
            raise RuntimeError(f"it answered {answer.status}")
        try:
            return cosign(checkpoint, answer.text, self._key)
        except NoteInvalid as error:
            raise _Alarm("a witness gave no valid cosignature", error.message) from error

    async def _asked(self, checkpoint: str, size: int, old: int, signed: int) -> Answer:
        """The answer to a request that begins at the size that the witness holds."""
        for _ in range(2):
            try:
                proof = self._last.prove_growth(old, checkpoint)
            except AuditBroken as error:
                # Sent without a proof, so that the witness hears that there is none.
                with contextlib.suppress(Exception):
                    await self._ask(_request(old, [], checkpoint))
                raise _Alarm("this log contradicts what it signed", error.message) from error
            answer = await self._ask(_request(old, proof, checkpoint))
            if answer.status != 409:
                return answer
            held = parse_size(answer.text.removesuffix("\n"))
            if held > size:
                raise _Alarm(_CONTRADICTED, f"it cosigned {held} records, and this log has {size}")
            if held == old == size:
                raise _Alarm(_CONTRADICTED, f"it cosigned another history of size {size}")
            if held < signed:
                reason = f"it cosigned {signed} records, and knows of {held}"
                self._raise("a witness has forgotten what it cosigned", reason)
            old = held
        return answer

    def _unanswered(self, reason: str) -> None:
        self._failures += 1
        pause_s = min(2.0**self._failures, AGAIN_SECONDS)
        if self._clock() - self._cosigned_at < SILENT_SECONDS:
            self._failed(logging.WARNING, "a witness did not cosign the log", reason, pause_s)
        else:
            self._failed(logging.ERROR, "a witness has not cosigned the log for minutes", reason, pause_s)

    def _failed(self, level: int, message: str, reason: str, pause_s: float) -> None:
        """Log what is wrong, once until it changes."""
        self._due = self._again = self._clock() + pause_s
        if message != self._said:
            self._said = message
            if level == logging.ERROR:
                self._raise(message, reason)
            else:
                log.warning(message, extra={"witness": self._key.name, "reason": reason})

    def _raise(self, alarm: str, reason: str) -> None:
        origin = self._log.public_key().name
        self._alarm(AuditAlarm(alarm=alarm, origin=origin, witness=self._key.name, reason=reason))


def _request(old: int, proof: Sequence[bytes], checkpoint: str) -> str:
    return str(Request(old_size=old, proof=tuple(proof), checkpoint=checkpoint))


class WitnessSender:
    """Sends the newest checkpoint of a log to its witnesses."""

    def __init__(self, log: AuditLog, witnesses: Callable[[], Sequence[WitnessClient]]) -> None:
        self._newest = log.folder / "audit" / "checkpoint"
        self._folder = cosigned_folder(log.folder)
        self._witnesses = witnesses
        self._stop = threading.Event()
        # A daemon: a witness that does not answer must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="toolkeep-witnesses", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last checkpoint, unless the log was open for a moment only; then stop."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        is_last, was_sent = False, False
        while not is_last:
            is_last = self._stop.wait(EVERY_SECONDS)
            try:
                was_sent = (was_sent or not is_last) and self._send(is_last=is_last)
            except Exception as error:  # noqa: BLE001 -- a full disk now is none later
                log.warning("no checkpoint was sent to witnesses", extra={"reason": str(error)})

    def _send(self, *, is_last: bool = False) -> bool:
        """Send it to the witnesses whose time it is; whether there is one to send."""
        try:
            newest = self._newest.read_bytes().decode()
        except FileNotFoundError:
            return False
        due = [witness for witness in self._witnesses() if witness.is_due(newest, is_last=is_last)]
        if due:
            with self._turn() as is_ours:
                if is_ours:
                    asyncio.run(_send_all(newest, due))
        return True

    @contextlib.contextmanager
    def _turn(self) -> Iterator[bool]:
        """One process of a keep at a time: a checkpoint that arrives late would look like a rollback."""
        make_private(self._folder)
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(descriptor)


async def _send_all(checkpoint: str, witnesses: Sequence[WitnessClient]) -> None:
    await asyncio.gather(*(witness.send(checkpoint) for witness in witnesses))


def over_http(url: str) -> Ask:
    """Asks the witness at a URL, the submission prefix of tlog-witness."""

    async def ask(request: str) -> Answer:
        from toolkeep.definitions.constraints import NetworkBounds
        from toolkeep.network.allowlist import HostAllowlist
        from toolkeep.network.budget import Budget
        from toolkeep.network.fetch import fetch
        from toolkeep.network.hosts import HostScope, read_url
        from toolkeep.network.http_endpoint import Request as HttpRequest

        # An allowlist of one host, which a person named; no redirect leads elsewhere.
        allowed = HostAllowlist(writes=(HostScope.of(read_url(url), is_named=True),))
        budget = Budget(NetworkBounds(max_requests=1, max_bytes=REQUEST_BYTES + 2 * NOTE_BYTES))
        posted = HttpRequest(
            method="POST",
            url=f"{url.rstrip('/')}/add-checkpoint",
            body=request.encode(),
            content_type="text/plain; charset=utf-8",
        )
        async with asyncio.timeout(_ASK_SECONDS):
            answer = await fetch(posted, allowed, budget, NOTE_BYTES, redirects=0)
        return Answer(answer.status, answer.body.decode())

    return ask
