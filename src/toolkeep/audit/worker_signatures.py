"""Checks the signatures of workers in a log: that a worker gave the answers that the log names (SCL-3).

It shows neither whose key that is nor what an answer said: the log holds its hash.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolkeep.audit.signed_note import is_signed

_PURPOSE: Final = b"toolkeep fleet 1 answers "
_PREFIX: Final = "ed25519:"

_Named = tuple[str, str, str]
"""Key, session and hash of an answer."""


def answers_message(session: bytes, leaves: Sequence[bytes]) -> bytes:
    """What a worker signs, for answers of one session."""
    return _PURPOSE + session + hashlib.sha256(b"".join(leaves)).digest()


class WorkerSignatures:
    """Follows the answers of workers through a log."""

    def __init__(self) -> None:
        self.unsigned: set[_Named] = set()
        """Answers that calls ended with, and that no signature covers."""
        self._ahead: set[_Named] = set()
        """Answers that were signed before their call was recorded, or whose call ended without them."""

    def problem(self, record: Mapping[str, Any]) -> str:
        """What is wrong with a record; empty if nothing."""
        kind = record.get("type")
        if kind == "AnswersSigned":
            return self._signed(record)
        if kind in ("RanElsewhere", "AnsweredLate"):
            named = (str(record.get("key")), str(record.get("session")), str(record.get("answer_hash")))
            if named in self._ahead:
                self._ahead.remove(named)
            else:
                self.unsigned.add(named)
        return ""

    def _signed(self, record: Mapping[str, Any]) -> str:
        try:
            key, session = str(record["key"]), str(record["session"])
            answers = list(map(str, record["answers"]))
            message = answers_message(bytes.fromhex(session), list(map(bytes.fromhex, answers)))
            public = base64.b64decode(key.removeprefix(_PREFIX), validate=True)
            is_valid = is_signed(public, base64.b64decode(record["signature"], validate=True), message)
        except (KeyError, TypeError, ValueError):
            return "it is no signature"
        if not is_valid:
            return f"worker '{record.get('worker')}' did not sign these answers"
        for answer in answers:
            named = (key, session, answer)
            if named in self.unsigned:
                self.unsigned.remove(named)
            else:
                self._ahead.add(named)
        return ""
