"""Why no runner takes a tool, said so that it is true for each kind of tool."""

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code


def why_not_run(tool: RegisteredTool) -> tuple[Code, str]:
    """The code, and what follows the name of the tool in a sentence."""
    if tool.runner is None:
        return Code.NOT_RUNNABLE, "is only described: nothing runs it"
    kind = getattr(tool.runner, "kind", "")
    wanted = tool.definition.constraints.isolation
    if kind == "http":
        why = f"asks for the isolation {wanted}, and is run by a server, of which nothing is known here"
        return Code.ISOLATION_UNAVAILABLE, why
    if kind in ("command", "process") and wanted is Isolation.RESTRICTED:
        return Code.ISOLATION_UNAVAILABLE, "asks for the isolation restricted, at which no program is started"
    if kind in ("python", "command", "process") and wanted is Isolation.NONE:
        why = (
            "asks for the isolation none, and what a configuration names never runs in the keep's own process"
        )
        return Code.ISOLATION_UNAVAILABLE, why
    return Code.NOT_RUNNABLE, f"is run by a {type(tool.runner).__name__}, and nothing here knows how"
