"""Differences between MCP protocol versions, in one place.

Versions up to 2025-11-25 begin with the `initialize` handshake, and the server may send requests to the
client. Since 2026-07-28 the protocol is stateless: each request carries the client info in `_meta`, and the
server asks for input in its result (`input_required`).
"""

from typing import Any, Final

from toolkeep.mcp_protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ProtocolError,
)

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
TASKS: Final = "io.modelcontextprotocol/tasks"

LISTEN: Final = "subscriptions/listen"

LOG_LEVELS: Final = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip

ONLY_HANDSHAKE: Final = frozenset(
    ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
)
ONLY_MODERN: Final = frozenset(("server/discover", LISTEN, "tasks/get", "tasks/update", "tasks/cancel"))

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header `Mcp-Name` repeats, by method."""

_HTTP_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def negotiated(wanted: object) -> str:
    """Version negotiation: the client's version if supported, else the newest one with a handshake."""
    return wanted if isinstance(wanted, str) and wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


def http_status(error: ProtocolError, *, is_modern: bool) -> int:
    """The HTTP status of an error; with a handshake, handler errors are sent with status 200."""
    if is_modern or error.code in (PARSE_ERROR, INVALID_REQUEST):
        return _HTTP_STATUS.get(error.code, 200)
    return 200


def check_envelope(meta: object) -> str:
    """Validate the `_meta` of a stateless request and return its version.

    Raises for a missing or unsupported one.
    """
    if not isinstance(meta, dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta must be an object with {VERSION_KEY!r}")
    # Demanded on every request: without a handshake nothing else says what the client can do.
    for key in (VERSION_KEY, CAPABILITIES_KEY):
        if key not in meta:
            raise ProtocolError(INVALID_PARAMS, f"params._meta lacks {key!r}")
    version = meta[VERSION_KEY]
    if not isinstance(version, str) or not isinstance(meta[CAPABILITIES_KEY], dict):
        raise ProtocolError(
            INVALID_PARAMS, f"{VERSION_KEY!r} must be text and {CAPABILITIES_KEY!r} an object"
        )
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return version


def is_modern_request(meta: dict[str, Any]) -> bool:
    """Whether a message without headers is a stateless request (2026-07-28)."""
    return VERSION_KEY in meta
