"""Where a call came from, for its span; the trace that a request carries goes on."""

import contextlib
from typing import Final

from toolkeep.mcp.client import current_client
from toolkeep.server.request import Request
from toolkeep.telemetry.spans import Setting, continued

_CARRIED: Final = ("traceparent", "tracestate", "baggage")
_METHOD: Final = "tools/call"


def setting() -> Setting:
    """What a span says of the MCP client that a call came from."""
    client = current_client()
    if client is None:
        return Setting()
    connection = client.connection
    attributes = {"mcp.method.name": _METHOD, "mcp.protocol.version": connection.version}
    if connection.session:
        attributes["mcp.session.id"] = connection.session
    return Setting(_METHOD, {name: value for name, value in attributes.items() if value})


def going_on(request: Request) -> contextlib.AbstractContextManager[None]:
    """Around a request: its spans belong to the trace that it carries."""
    carrier = {name: text for name in _CARRIED if (text := request.header(name))}
    return continued(carrier) if carrier else contextlib.nullcontext()
