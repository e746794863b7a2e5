"""HTTP server for a keep: REST API with an OpenAPI document, MCP, web interface, health and metrics.

`__all__` is public; the modules below are internal. A name is imported when it is first used. Needs the extra
`server`.
"""

from typing import TYPE_CHECKING

from toolkeep import _lazy_exports

if TYPE_CHECKING:
    from toolkeep.limits import ServerLimits
    from toolkeep.server.api.call_routes import defer_to_inbox
    from toolkeep.server.app_factory import make_app, start_metrics, start_traces
    from toolkeep.stores.api_tokens import MemoryTokens, Scope, Tokens

_HOMES = {
    "MemoryTokens": "stores.api_tokens",
    "Scope": "stores.api_tokens",
    "ServerLimits": "limits",
    "Tokens": "stores.api_tokens",
    "defer_to_inbox": "server.api.call_routes",
    "make_app": "server.app_factory",
    "start_metrics": "server.app_factory",
    "start_traces": "server.app_factory",
}

__all__ = [
    "MemoryTokens",
    "Scope",
    "ServerLimits",
    "Tokens",
    "defer_to_inbox",
    "make_app",
    "start_metrics",
    "start_traces",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__, __dir__ = _lazy_exports(globals(), _HOMES)
