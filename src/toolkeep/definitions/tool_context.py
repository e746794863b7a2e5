"""What a running tool may ask of its call: ids, per-call data, secrets, progress, cancellation; how it fails.

A function takes it as a parameter annotated `ToolContext`, which is hidden from the schema; an agent-tool
class gets it as the second argument of `execute`.

Workers import this module with nearly every tool, so it loads nothing else of the package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Cancelled(Exception):
    """Raised by `ToolContext.check_cancelled` once the call is cancelled."""


class ToolFailed(Exception):
    """Raise it in a tool to say why it failed; the model reads the message.

    Any other exception is shown to the operator and answered generically: its message may hold secrets.
    """


def _discard(done: float, total: float | None, message: str) -> None:
    """The default progress callback: discards."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call, seen from inside the tool."""

    agent: str = "local"
    correlation_id: str = ""
    conversation_id: str = ""
    session_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the host passed with this call: `keep.call(…, data={"tenant": "acme"})`."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_progress: Callable[[float, float | None, str], None] = field(default=_discard, repr=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the work is."""
        self.on_progress(done, total, message)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the caller has cancelled; call it in long loops."""
        if self.is_cancelled():
            raise Cancelled

    def secret(self, name: str) -> str:
        """The secret that the operator configured for this tool; `SecretUnavailable` if there is none."""
        try:
            return self.secrets[name]
        except KeyError:
            from toolkeep.errors import SecretUnavailable

            raise SecretUnavailable(name) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeResult:
    """What `execute` of an agent-tool class returns: JSON text, or a failure that the model may read."""

    successful: bool
    result_json: str = ""
    error_message: str = ""

    @classmethod
    def ok(cls, result_json: str) -> "InvokeResult":
        """The call worked; the result as JSON text."""
        return cls(successful=True, result_json=result_json)

    @classmethod
    def failed(cls, message: str) -> "InvokeResult":
        """The call did not work, for a reason that the caller should read."""
        return cls(successful=False, error_message=message)
