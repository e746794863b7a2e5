"""A witness in a folder: its key, the logs it knows, and the last checkpoint it cosigned of each.

It runs under another account or on another machine than the logs; else whoever rolls a log back rolls the
witness back too. Requests come through `submit`, or as files through `answer_requests`.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import WitnessReason, WitnessRefused
from toolkeep.audit.note import NOTE_BYTES, Algorithm, Note, Signature, Signer, VerifierKey
from toolkeep.audit.witness import Request, consider, origin_of
from toolkeep.files import is_there
from toolkeep.storage.atomic import write_once, write_whole
from toolkeep.storage.folder import make_private

log = logging.getLogger("toolkeep.audit")

_KEY_BYTES = 32
_REQUEST_BYTES = 2 * NOTE_BYTES
"""A checkpoint, and more than the longest proof."""
_REQUEST, _COSIGNATURE, _REFUSED = ".request", ".cosignature", ".refused"


class Answered(NamedTuple):
    """How many requests were answered, and how."""

    cosigned: int = 0
    refused: int = 0


class Witness:
    """Keeps the last checkpoint of each log, demands that the next extends it, and cosigns."""

    def __init__(self, folder: Path, *, name: str, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        make_private(folder)
        key = folder / "witness.key"
        if not is_there(key):
            made = Signer(name=name, algorithm=Algorithm.COSIGNATURE, seed=os.urandom(_KEY_BYTES))
            write_once(key, made.to_text().encode())
        self._signer = Signer.parse(key.read_text())

    @property
    def public_key(self) -> VerifierKey:
        """What others check its cosignatures with."""
        return self._signer.verifier

    @property
    def knows_a_log(self) -> bool:
        """Whether it was told of any key; else it can only refuse."""
        return any(self._folder.glob("*.keys"))

    def trust(self, key: VerifierKey | str) -> None:
        """Accept checkpoints signed with this key, of the log that it names; beside its keys known before."""
        key = VerifierKey.parse(key) if isinstance(key, str) else key
        with self._locked():
            known = {*self._keys(key.name), key}
            write_whole(self._file(key.name, "keys"), "".join(f"{each}\n" for each in known).encode())

    def last(self, origin: str) -> str | None:
        """The last checkpoint of a log, with its cosignature: an outside checkpoint for `verify`."""
        try:
            return self._file(origin, "checkpoint").read_bytes().decode()
        except FileNotFoundError:
            return None

    def submit(self, old_size: int, proof: Sequence[bytes], checkpoint: str) -> Signature:
        """Cosign a checkpoint that extends the last one, of size `old_size`; else raise `WitnessRefused`."""
        return self._answer(Request(old_size=old_size, proof=tuple(proof), checkpoint=checkpoint))

    def answer_requests(self, folder: Path) -> Answered:
        """Answer each `*.request` file in the folder by a `.cosignature` or `.refused` file; how many.

        Others write to the folder: what is no file of its own there is left alone, and never waited for. One
        that cannot be read, or whose answer cannot be written, keeps no other from its answer.
        """
        cosigned = refused = 0
        for path in sorted(folder.glob(f"*{_REQUEST}")):
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    continue
                if self._answer_file(path):
                    cosigned += 1
                else:
                    refused += 1
            except OSError as error:
                fields = {"request": path.name, "reason": error.strerror}
                log.warning("a request to the witness could not be answered", extra=fields)
        return Answered(cosigned=cosigned, refused=refused)

    def _answer_file(self, path: Path) -> bool:
        """Whether it was cosigned; else it was refused."""
        try:
            answer = str(self._answer(Request.parse(_read(path))))
            suffix = _COSIGNATURE
        except WitnessRefused as refusal:
            answer, suffix = f"{refusal.held}\n{refusal.message}\n", _REFUSED
        write_whole(path.with_suffix(suffix), answer.encode())
        path.unlink()
        return suffix == _COSIGNATURE

    def _answer(self, request: Request) -> Signature:
        origin = origin_of(request.checkpoint)
        # Checking against the last one and replacing it must be one step, or two requests could cross.
        with self._locked():
            keys = self._keys(origin)
            if not keys:
                raise WitnessRefused(WitnessReason.UNKNOWN_LOG, origin)
            new = consider(request, self._last(origin), keys)
            cosignature = self._signer.sign(new.text, timestamp=int(self._clock()))
            others = [s for s in Note.parse(request.checkpoint).signatures if s.key_id != cosignature.key_id]
            note = Note(text=new.text, signatures=(*others, cosignature))
            write_whole(self._file(origin, "checkpoint"), str(note).encode())
            return cosignature

    def _last(self, origin: str) -> Checkpoint | None:
        written = self.last(origin)
        if written is None:
            return None
        note = Note.parse(written)
        note.signers([self.public_key])
        return Checkpoint.parse(note.text)

    def _keys(self, origin: str) -> list[VerifierKey]:
        try:
            lines = self._file(origin, "keys").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [VerifierKey.parse(line) for line in lines]

    def _file(self, origin: str, kind: str) -> Path:
        return self._folder / f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.{kind}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _read(path: Path) -> str:
    """A request, as far as one can be long; cut short it is refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 -- a descriptor
        return file.read(_REQUEST_BYTES).decode(errors="replace")
