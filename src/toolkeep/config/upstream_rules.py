"""Rules for an upstream in a configuration, beyond its schema: keys that require or exclude each other."""

from collections.abc import Mapping
from typing import Any

from toolkeep.definitions.capability import Capability


def document_of(said: Mapping[str, Any]) -> str:
    """The path of the document that describes an upstream."""
    return str(said.get("openapi") or said.get("mcp") or "")


_OF_OPENAPI = frozenset(("operations", "check_answers"))
_OF_MCP = frozenset(
    (
        "command",
        "environment",
        "code",
        "idle_s",
        "between_calls",
        "start_timeout_s",
        "headers",
        "capabilities",
        "tools",
        "prompts",
        "resources",
        "completions",
        "subscriptions",
        "protocol",
        "oauth",
    )
)

_OF_PROGRAM = ("environment", "code", "idle_s", "between_calls")


def wrong_with_upstream(said: Mapping[str, Any]) -> str:
    """What is inconsistent in an upstream; empty if nothing is."""
    if ("openapi" in said) == ("mcp" in said):
        return "needs either openapi (a document) or mcp (the list of a server's tools)"
    odd = sorted((_OF_MCP if "openapi" in said else _OF_OPENAPI) & said.keys())
    if odd:
        return f"has {odd[0]}, which this kind of upstream does not take"
    if "openapi" in said:
        return "" if "url" in said else "has no url for its calls"
    if ("command" in said) == ("url" in said):
        return "needs either command (a program) or url (an address)"
    if wrong := _wrong_with_server(said) or _wrong_with_oauth(said):
        return wrong
    for capability in said.get("capabilities") or ():
        try:
            if not Capability.read(capability).scope.strip("*"):
                return f"is granted {capability} without a scope"
        except ValueError as error:
            return f"has an invalid capability: {error}"
    return ""


def _wrong_with_server(said: Mapping[str, Any]) -> str:
    """What is wrong with the address of an MCP server; values of variables are checked later."""
    from toolkeep.execution.persistent.spec import ProcessSpec
    from toolkeep.network.http_endpoint import Endpoint

    if "${" in str(said):
        return ""
    try:
        if "url" in said:
            if "between_calls" in said:
                return "has between_calls, which only applies to a command"
            Endpoint.read({"url": said["url"], "headers": said.get("headers") or {}})
        else:
            words = {key: said[key] for key in _OF_PROGRAM if key in said}
            ProcessSpec.read({"argv": said["command"], **words})
    except ValueError as error:
        return str(error)
    return ""


def _wrong_with_oauth(said: Mapping[str, Any]) -> str:
    """What is inconsistent in the OAuth settings of a server; empty if nothing is."""
    if "oauth" not in said:
        return ""
    told, names = said["oauth"], {str(name).lower() for name in said.get("headers") or {}}
    if not str(said.get("url", "")).startswith(("https://", "${")):
        return "has oauth, which needs an https address"
    if "authorization" in names:
        return "has both oauth and a header Authorization; keep one"
    if "client_secret" not in told:
        is_own = told.get("grant") == "client_credentials"
        return "has the grant client_credentials without client_secret" if is_own else ""
    if "client_id" not in told or "issuer" not in told:
        return "has a client_secret without client_id and issuer, so any server could obtain it"
    if told["client_secret"] not in (said.get("secrets") or {}):
        return "has a client_secret that is not one of its secrets"
    return ""
