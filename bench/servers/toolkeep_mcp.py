"""toolkeep: `echo` in a keep with a policy and its log on disk."""

import sys

from toolkeep import open_keep, tool
from toolkeep.mcp_server.client_approvals import ask_client
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.serve_http import run, serve_http
from toolkeep.mcp_server.stdio_server import serve_stdio

POLICY = """
@id("everyone") permit (principal, action == Action::"call", resource);
@id("nothing-dangerous") forbid (principal, action == Action::"call", resource) when { resource.danger > 2 };
@id("known-hosts-only") forbid (principal, action == Action::"call", resource)
unless { ["docs.example.org", "api.example.org"].containsAll(context.hosts) };
"""


@tool(side_effects=[])
async def echo(text: str) -> str:
    """Give back a text.

    Args:
        text: What to give back.
    """
    return text


def main(where: str, count: int) -> None:
    keep = open_keep(built_in=False, approver=ask_client)
    keep.register(echo)
    for number in range(count - 1):
        keep.register(tool(name=f"other_{number}", side_effects=[])(echo.function))
    keep.use_policies(POLICY)
    server = McpServer(keep)
    if where == "stdio":
        run(serve_stdio(server))
    else:
        serve_http(server, port=int(where))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
