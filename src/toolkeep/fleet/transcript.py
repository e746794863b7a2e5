"""What was asked and answered in a session, as the worker signs it: once a second, or for 256 answers.

Seals are symmetric: they prove nothing to a third party, as the server could have made them itself. The
worker's signature covers each job and its final answer, by hash; the server's own log, which holds the same
hashes, is signed by the server. So both are bound to every answer, as by a signature on each, for a hundredth
of the time. What is lost is the last second of a worker that dies.
"""

import hashlib
from typing import Final

from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import Signed

BATCH: Final = 256
_PURPOSE: Final = b"toolkeep fleet 1 answers "
_KEPT: Final = 16 * BATCH
"""Answers that wait for their signature; more than a worker that signs leaves."""


class Transcript:
    """The answers of one session that are not signed yet, known to both sides."""

    def __init__(self, session: bytes) -> None:
        self._session = session
        self._leaves: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def add(self, job_id: str, job_hash: bytes, answer: bytes) -> bytes:
        """Add a job with its final answer; returns the hash of both."""
        leaf = hashlib.sha256(job_hash + hashlib.sha256(answer).digest()).digest()
        self._leaves[job_id] = leaf
        if len(self._leaves) > _KEPT:
            del self._leaves[next(iter(self._leaves))]
        return leaf

    def sign(self, key: PrivateKey) -> Signed:
        """Sign the oldest that are not signed yet."""
        ids = tuple(self._leaves)[:BATCH]
        return Signed(ids, key.sign(self._taken(ids)))

    def check(self, signed: Signed, key: PublicKey) -> bool:
        """Whether the worker signed what it answered; each answer once."""
        if len(set(signed.ids)) != len(signed.ids) or not self._leaves.keys() >= set(signed.ids):
            return False
        return key.has_signed(signed.signature, self._taken(signed.ids))

    def _taken(self, ids: tuple[str, ...]) -> bytes:
        leaves = b"".join(self._leaves.pop(one) for one in ids)
        return _PURPOSE + self._session + hashlib.sha256(leaves).digest()
