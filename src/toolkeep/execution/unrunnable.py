"""Why no runner takes a tool, said so that it is true for each kind of tool."""

from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code

_UNBUILT: Final = {"command": "a command", "http": "an HTTP request", "wasm": "a WASM module"}


def why_not_run(tool: RegisteredTool) -> tuple[Code, str]:
    """The code, and what follows the name of the tool in a sentence."""
    if tool.runner is None:
        return Code.NOT_RUNNABLE, "is only described: nothing runs it"
    kind = getattr(tool.runner, "kind", "")
    if kind in _UNBUILT:
        return Code.NOT_RUNNABLE, f"is run by {_UNBUILT[kind]}, which toolkeep cannot do yet"
    wanted = tool.definition.constraints.isolation
    if kind == "python" and wanted is Isolation.NONE:
        why = (
            "asks for the isolation none, and what a configuration names never runs in the keep's own process"
        )
        return Code.ISOLATION_UNAVAILABLE, why
    return Code.NOT_RUNNABLE, f"is run by a {type(tool.runner).__name__}, and nothing here knows how"
