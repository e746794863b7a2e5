"""FastMCP's proxy over one client that is connected before: MODULE stdio|PORT COMMAND… | URL."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from fastmcp import Client  # type: ignore[import-not-found, unused-ignore]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from fastmcp.server import create_proxy  # type: ignore[import-not-found, unused-ignore]


async def main(where: str, upstream: Sequence[str]) -> None:
    logging.disable(logging.CRITICAL)
    is_address = upstream[0].startswith("http")
    target = upstream[0] if is_address else StdioTransport(upstream[0], list(upstream[1:]))
    async with Client(target) as client:
        server = create_proxy(client, name="bench")
        if where == "stdio":
            await server.run_async(show_banner=False)
            return
        import uvicorn

        app = server.http_app(path="/mcp", json_response=True)
        config = uvicorn.Config(
            app, host="127.0.0.1", port=int(where), log_level="error", access_log=False, proxy_headers=False
        )
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
