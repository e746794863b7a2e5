"""toolkeep before another MCP server, with a policy and its log: MODULE stdio|PORT COMMAND… | URL."""

import asyncio
import hashlib
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from servers.toolkeep_mcp import POLICY
from toolkeep import open_keep
from toolkeep.definitions.vocabulary import Danger
from toolkeep.mcp_client.inspect_server import inspect_mcp_server
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.mcp_client.upstream_provider import capabilities_of, target_of
from toolkeep.mcp_server.client_approvals import ask_client
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.stdio_server import serve_stdio
from toolkeep.registry.coerce import Offer
from toolkeep.sandbox.trusted_paths import THIS_PROCESS


def offered(upstream: Sequence[str]) -> list[Offer]:
    """The tools of the server, confined as always, and called safe so that nobody is asked."""
    entry = {"url": upstream[0]} if upstream[0].startswith("http") else {"command": list(upstream)}
    listing = asyncio.run(inspect_mcp_server(entry, "/", lambda name: name, THIS_PROCESS)).listing
    name = f"up_{hashlib.sha256(' '.join(upstream).encode()).hexdigest()[:8]}"  # what was pinned is another's
    wishes = ImportOptions(name=name, capabilities=capabilities_of(entry), target=target_of(entry, "/x"))
    return [
        replace(offer, tool=offer.tool.replace(danger=Danger.SAFE))  # type: ignore[union-attr]
        for offer in import_listing(listing, wishes)
    ]


def main(where: str, upstream: Sequence[str]) -> None:
    keep = open_keep(built_in=False, approver=ask_client)
    keep.register(*offered(upstream))
    is_address = len(upstream) == 1
    place = upstream[0].partition("://")[2].partition("/")[0] if is_address else "docs.example.org"
    keep.declare_agent("mcp-local", capabilities=[f"net.write:{place}"] if is_address else [])
    keep.use_policies(
        POLICY.replace("docs.example.org", place).replace("api.example.org", place.partition(":")[0])
    )
    server = McpServer(keep)
    if where == "stdio":
        asyncio.run(serve_stdio(server))
        return
    import uvicorn

    app = McpApp(server, path="/mcp")
    uvicorn.run(
        app, host="127.0.0.1", port=int(where), log_level="error", access_log=False, proxy_headers=False
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
