"""The keep over HTTP: an API with a document of itself, MCP, health and metrics, for whoever has a token.

`__all__` is public, and the modules below are internal. A name is loaded when it is first used. Needs the
extra `server`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkeep.limits import ServerLimits
    from toolkeep.server.assemble import make_app, start_metrics, start_traces
    from toolkeep.server.calls import ask_elsewhere
    from toolkeep.tokens import MemoryTokens, Scope, Tokens

_HOMES = {
    "MemoryTokens": "tokens",
    "Scope": "tokens",
    "ServerLimits": "limits",
    "Tokens": "tokens",
    "ask_elsewhere": "server.calls",
    "make_app": "server.assemble",
    "start_metrics": "server.assemble",
    "start_traces": "server.assemble",
}

__all__ = [
    "MemoryTokens",
    "Scope",
    "ServerLimits",
    "Tokens",
    "ask_elsewhere",
    "make_app",
    "start_metrics",
    "start_traces",
]


if not TYPE_CHECKING:  # a type checker that saw it would believe every name to be there

    def __getattr__(name):
        if name in _HOMES:
            value = getattr(importlib.import_module(f"toolkeep.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'toolkeep.server' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
