"""Errors of the audit log.

ToolkeepError
├── AuditBroken      the log contradicts its hash chain or a signed checkpoint
├── LogUnwritable    a record could not be made durable; nothing was acknowledged
├── LogClosed        the log was closed, or this process is a fork of the one that opened it
├── NoteInvalid      a signed note, checkpoint or key is malformed or not signed by a known key
├── ReceiptInvalid   a receipt does not prove what it says
├── WitnessRefused   a witness does not cosign a checkpoint
└── BodyUnavailable  a body is erased, missing or does not match its hash
"""

from enum import StrEnum
from typing import Final

from toolkeep.errors import Code, ToolkeepError


class AuditBroken(ToolkeepError):
    """The log contradicts its hash chain or a signed checkpoint.

    Nothing more is appended: a new checkpoint would sign the tampering.
    """

    def __init__(self, place: str, reason: str) -> None:
        hint = "run `toolkeep audit verify`, keep a copy of the folder, and start a new keep"
        super().__init__(Code.STATE_UNUSABLE, f"{place}: {reason}", hint=hint)
        self.place = place


class LogUnwritable(ToolkeepError):
    """A record could not be made durable, so nothing may rely on it."""

    def __init__(self, path: str, reason: str) -> None:
        hint = "check that the folder is writable and the disk is not full; appending then resumes"
        super().__init__(Code.STATE_UNUSABLE, f"{path}: {reason}", hint=hint)
        self.path = path


class LogClosed(ToolkeepError):
    """The log was closed, or this process was forked from the one that opened it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(Code.STATE_UNUSABLE, f"{path}: {reason}", hint="open the log again")
        self.path = path


class NoteInvalid(ToolkeepError):
    """A signed note, checkpoint or key is malformed, or no known key signed it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(Code.STATE_UNUSABLE, reason, hint=hint)


class ReceiptInvalid(ToolkeepError):
    """A receipt does not prove what it says."""

    def __init__(self, reason: str) -> None:
        hint = "`toolkeep audit receipt CALL` prints one of a call that is in the log"
        super().__init__(Code.STATE_UNUSABLE, f"the receipt proves nothing: {reason}", hint=hint)


class WitnessReason(StrEnum):
    """Why a witness refuses."""

    MALFORMED = "malformed"
    UNKNOWN_LOG = "unknown log"
    NOT_SIGNED = "not signed by the log"
    OTHER_SIZE = "the witness holds another size"
    ROLLBACK = "smaller than what the witness holds"
    FORK = "another history of the same size"
    NOT_PROVEN = "not proven to extend what the witness holds"


class WitnessRefused(ToolkeepError):
    """A witness does not cosign. `held` is the size of the last checkpoint that it cosigned."""

    def __init__(self, reason: WitnessReason, detail: str, *, held: int = 0) -> None:
        super().__init__(Code.STATE_UNUSABLE, f"the witness refuses: {reason.value}: {detail}")
        self.reason = reason
        self.held = held


DIAGNOSIS_NOT_KEPT: Final = (
    "Not kept: the tool takes secrets. The process that made the call logged it (toolkeep.execution: a tool "
    "failed), and `toolkeep call` printed it."
)
"""Where the operator finds a diagnosis that no body holds."""

REFUSAL_EXPIRED: Final = (
    "No longer kept: of refused and failed calls, seven days and the newest of each agent are kept."
)
"""Why there is no body of such a call."""


class BodyState(StrEnum):
    """Why a body cannot be read."""

    ERASED = "erased"
    MISSING = "missing"
    CHANGED = "changed"


class BodyUnavailable(ToolkeepError):
    """A body (arguments or result) stored beside the log cannot be read."""

    def __init__(self, digest: str, state: BodyState) -> None:
        super().__init__(Code.STATE_UNUSABLE, f"the body {digest} is {state.value}")
        self.digest = digest
        self.state = state
