"""Publishes checkpoints where the log's owner cannot rewrite them: to a file elsewhere, or a webhook (AUD-2).

A thread looks for a newer checkpoint once a second and publishes it. It retries after a failure, and never
delays a call. A file with the checkpoint of a longer or another log is left alone: it is the evidence that
this log was rolled back or begun anew. The protection is only as good as the place it publishes to.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.signed_note import Note
from toolkeep.storage.atomic_files import write_whole

log = logging.getLogger("toolkeep.audit")

EVERY_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 10.0
"""How long closing waits for a slow webhook to take the last checkpoint."""


class Publisher:
    """Publishes the newest checkpoint of a log."""

    def __init__(
        self, folder: Path, *, file: str = "", webhook: str = "", every_s: float = EVERY_SECONDS
    ) -> None:
        self._checkpoint = folder / "audit" / "checkpoint"
        self._file = Path(file) if file else None
        self._webhook = webhook
        self._every_s = every_s
        self._published = b""
        self._is_left = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolkeep-publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publish the last one, and stop."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.publish()
        self.publish()

    def publish(self) -> None:
        """Publish the newest checkpoint if it is new; a failure is logged and retried."""
        elsewhere = _parsed(self._file)  # read before the newest one: other processes publish, too
        try:
            newest = self._checkpoint.read_bytes()
        except OSError:
            return
        if newest == self._published:
            return
        try:
            if self._file is not None:
                self._replace(self._file, elsewhere, newest)
            if self._webhook:
                _post(self._webhook, newest)
        except Exception as error:  # noqa: BLE001 -- whatever a server answers, the next one is published
            log.warning("a checkpoint was not published", extra={"error_type": type(error).__name__})
            return
        self._published = newest

    def _replace(self, file: Path, elsewhere: Checkpoint | None, newest: bytes) -> None:
        if elsewhere is None or _goes_on(elsewhere, _parsed(self._checkpoint)):
            write_whole(file, newest)
        elif not self._is_left:
            self._is_left = True
            fields = {"file": str(file), "records": elsewhere.size}
            log.warning(
                "the checkpoint elsewhere is of a longer or another log, and is left there", extra=fields
            )


def _parsed(file: Path | None) -> Checkpoint | None:
    """The checkpoint in a file, its signature unverified; None where there is none."""
    try:
        return None if file is None else Checkpoint.parse(Note.parse(file.read_bytes().decode()).text)
    except (OSError, ValueError, NoteInvalid):
        return None


def _goes_on(elsewhere: Checkpoint, here: Checkpoint | None) -> bool:
    """Whether the published log may have grown into this one, judged by name and size."""
    if here is None or elsewhere.origin != here.origin:
        return False
    return elsewhere.size < here.size or elsewhere == here


def _post(url: str, body: bytes) -> None:
    import urllib.error  # with the HTTP client 8 ms, for the few logs that have a webhook
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """The operator named one address; a server must not send the request to another, inside the
        network."""

        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(url, data=body, headers={"Content-Type": "text/plain"})  # noqa: S310 -- checked
    opener = urllib.request.build_opener(NoRedirect)
    try:
        opener.open(request, timeout=_TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as refused:
        refused.close()  # an HTTPError is a response, too
        raise
