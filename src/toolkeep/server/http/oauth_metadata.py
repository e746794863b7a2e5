"""OAuth protected resource metadata (RFC 9728), which an MCP client reads before it has a token.

Tokens come from the operator (`toolkeep token make`) or from an issuer that the configuration names; without
one, a client learns that it needs a bearer token and asks its user.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from toolkeep.stores.api_tokens import Scope

PATH = "/.well-known/oauth-protected-resource"


class ResourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """OAuth 2.0 protected resource metadata."""

    resource: str
    authorization_servers: list[str] | UnsetType = UNSET
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


def resource_metadata(resource: str, issuers: Sequence[str] = ()) -> ResourceMetadata:
    """The metadata of the MCP endpoint at this URL, which is the audience of its tokens."""
    return ResourceMetadata(
        resource=resource,
        authorization_servers=list(issuers) or UNSET,
        # What MCP needs, and no more: some clients ask their provider for all that they read here. A step-up
        # names others when they are needed.
        scopes_supported=[Scope.MCP.value],
        bearer_methods_supported=["header"],
        resource_name="toolkeep",
    )
