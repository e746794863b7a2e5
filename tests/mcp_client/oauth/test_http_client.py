"""A server that names a private address for a sign-in does not thereby grant it."""

import asyncio

import pytest

from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.transport import UpstreamFailed


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize("host", ["127.0.0.1:9", "[::1]:9", "169.254.169.254", "[::ffff:127.0.0.1]:9"])
def test_an_address_inside_that_a_server_names_is_not_asked(host: str) -> None:
    with pytest.raises(UpstreamFailed, match="is not among the hosts that this call may reach"):
        asyncio.run(AuthorizationServerClient().document(f"https://{host}/x"))
