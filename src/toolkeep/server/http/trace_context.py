"""Trace context of calls: span attributes of the MCP client, and continued traces of requests."""

import contextlib
from typing import Final

from toolkeep.mcp_server.client_context import current_client
from toolkeep.server.http.request import Request
from toolkeep.telemetry.spans import Setting, continued

_CARRIED: Final = ("traceparent", "tracestate", "baggage")
_METHOD: Final = "tools/call"


def setting() -> Setting:
    """Span attributes of the MCP client that makes the current call."""
    client = current_client()
    if client is None:
        return Setting()
    connection = client.connection
    attributes = {"mcp.method.name": _METHOD, "mcp.protocol.version": connection.version}
    if connection.session:
        attributes["mcp.session.id"] = connection.session
    return Setting(_METHOD, {name: value for name, value in attributes.items() if value})


def continue_trace(request: Request) -> contextlib.AbstractContextManager[None]:
    """Continue the trace of a request around its handler."""
    carrier = {name: text for name in _CARRIED if (text := request.header(name))}
    return continued(carrier) if carrier else contextlib.nullcontext()
