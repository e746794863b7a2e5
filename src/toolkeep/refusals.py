"""A refusal by a stage after validation: one violation, mostly about the call as a whole."""

from toolkeep.calls import Refusal, ToolCall, Violation
from toolkeep.errors import Code
from toolkeep.wording import echo_name, visible


def refuse(request: ToolCall, code: Code, message: str, suggestion: str, *, path: str = "") -> Refusal:
    """The refusal of one call; `path` points to the argument at fault."""
    error = Violation(path, code, _shown(message), "", None, suggestion)
    return Refusal(tool=echo_name(request.tool), errors=(error,), correlation_id=request.correlation_id)


def ran_unrecorded(request: ToolCall, why: str) -> Refusal:
    """The answer to a call whose tool ran, where its outcome could not be made durable."""
    message = f"The tool ran, and its outcome could not be recorded ({why}); the result is withheld"
    suggestion = "Do not call it again: it would run twice. Tell the operator."
    return refuse(request, Code.OUTCOME_NOT_RECORDED, message, suggestion)


def _shown(message: str) -> str:
    """Several lines stay several, further in than ours: what a tool says must not pass for what we say."""
    return "\n    ".join(map(visible, message.split("\n")))
