"""What is kept beside the log of a call that was refused or failed: why, and what the caller sent (AUD-5).

A record holds its hash (`diagnosis_hash`). Comes in: a refusal. Goes out: bytes without secrets, and the way
back. Bodies of earlier versions are one text; they are read as such.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import Refusal, Violation
from toolkeep.errors import TITLES, Code
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.text.refusal_text import refusal_text

ReadBody: TypeAlias = Callable[[str], bytes]
"""A body by its hash; raises `BodyUnavailable` or `KeyError`."""


class KeptProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem of a refused call."""

    path: str = ""
    """JSON Pointer of the argument."""
    code: str
    message: str
    expected: str = ""
    actual: str = ""
    suggestion: str = ""

    @property
    def violation(self) -> Violation:
        """It, as refusals have it."""
        code = Code(self.code) if self.code in set(Code) else Code.CHECK_FAILED  # of a later version
        actual = self.actual or None
        return Violation(self.path, code, self.message, self.expected, actual, self.suggestion)


class KeptRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call was refused or failed."""

    tool: str = ""
    problems: list[KeptProblem] = []
    hint: str = ""
    """The signature of the tool, if validation refused."""
    repair: list[dict[str, Any]] = []
    """A JSON Patch that would make the call valid."""
    is_repeated: bool = False
    ungranted: str = ""
    """What the agent has no grant for, if that is why."""
    diagnosis: str = ""
    """For the operator alone: what was denied, a traceback."""
    received: Any = None
    """The arguments as sent, if they were never found valid; what may be secret is described only."""
    is_whole: bool = False
    """Whether `received` is exactly what was sent."""

    @property
    def text(self) -> str:
        """What the model was told; of a call that may hold a secret in a wrong place, without its values."""
        errors = [one.violation for one in self.problems]
        said = refusal_text(self.tool, errors, self.hint, self.repair, is_repeated=self.is_repeated)
        return said if errors else ""

    @property
    def lines(self) -> list[str]:
        """What went wrong, then the diagnosis, in lines."""
        return [one.message for one in self.problems] + (self.diagnosis.split("\n") if self.diagnosis else [])


def kept_of(refusal: Refusal, *, hides_values: bool, received: Any, is_whole: bool) -> KeptRefusal:
    """What is kept; without anything that quotes a value, if one may be a secret in a wrong place."""
    return KeptRefusal(
        tool=refusal.tool,
        problems=[_hidden(one) if hides_values else _shown(one) for one in refusal.errors],
        hint=refusal.schema_hint,
        repair=[] if hides_values or refusal.repair is None else list(refusal.repair),
        is_repeated=refusal.is_repeated,
        ungranted=refusal.ungranted,
        diagnosis="" if refusal.diagnosis is None else refusal.diagnosis.text,
        received=received,
        is_whole=is_whole,
    )


def _shown(error: Violation) -> KeptProblem:
    return KeptProblem(
        path=error.path,
        code=error.code.value,
        message=error.message,
        expected=error.expected,
        actual=error.actual or "",
        suggestion=error.suggestion,
    )


def _hidden(error: Violation) -> KeptProblem:
    title = TITLES[error.code]
    return KeptProblem(
        path=error.path,
        code=error.code.value,
        message=title[0].upper() + title[1:],
        expected=error.expected,
    )


def kept_body(kept: KeptRefusal) -> bytes:
    """What is kept as JSON."""
    try:
        return msgspec.json.encode(kept)  # a sixth of the time of canonical JSON, which nobody needs here
    except OverflowError:  # integers beyond 64 bits
        data: Any = msgspec.to_builtins(kept)
        return canonical_bytes(data)


def parse_kept(body: bytes) -> KeptRefusal:
    """What was kept; raises `ValueError` for anything else."""
    try:
        return msgspec.json.decode(body, type=KeptRefusal)
    except msgspec.ValidationError:
        text = msgspec.json.decode(body, type=str)  # of an earlier version
        first, *rest = text.split("\n")
        problem = KeptProblem(code=Code.TOOL_FAILED.value, message=first)
        return KeptRefusal(problems=[problem], diagnosis="\n".join(rest))


def read_kept(records: Sequence[Mapping[str, Any]], read_body: ReadBody) -> KeptRefusal | None:
    """What is kept of the refusal or failure of a call, if anything; `records` are all of its records."""
    digest = next((str(one["diagnosis_hash"]) for one in reversed(records) if one.get("diagnosis_hash")), "")
    if not digest:
        return None
    with contextlib.suppress(BodyUnavailable, KeyError, ValueError):
        return parse_kept(read_body(digest))
    return None
