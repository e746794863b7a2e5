"""What was asked and answered in a session, as the worker signs it: each second, after 256 answers, or idle.

Seals are symmetric: they prove nothing to a third party, as the server could have made them itself. The
worker's signature covers each job and its final answer, by hash; the server's own log, which holds the same
hashes, is signed by the server. So both are bound to every answer, as by a signature on each, for a hundredth
of the time. What is lost is the last second of a worker that dies.
"""

import hashlib
from typing import Final

from toolkeep.audit.worker_signatures import answers_message
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import Signed

BATCH: Final = 256
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
        return Signed(ids, key.sign(answers_message(self._session, self._taken(ids))))

    def check(self, signed: Signed, key: PublicKey) -> list[bytes] | None:
        """The hashes that the worker signed, each answer once; None if it signed something else."""
        if len(set(signed.ids)) != len(signed.ids) or not self._leaves.keys() >= set(signed.ids):
            return None
        leaves = self._taken(signed.ids)
        return leaves if key.has_signed(signed.signature, answers_message(self._session, leaves)) else None

    def _taken(self, ids: tuple[str, ...]) -> list[bytes]:
        return [self._leaves.pop(one) for one in ids]
