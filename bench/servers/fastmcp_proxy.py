"""FastMCP's proxy with its default settings: MODULE stdio|PORT COMMAND… | URL."""

import logging
import sys
from collections.abc import Sequence

from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from fastmcp.server import create_proxy  # type: ignore[import-not-found, unused-ignore]


def main(where: str, upstream: Sequence[str]) -> None:
    logging.disable(logging.CRITICAL)
    target = (
        upstream[0] if upstream[0].startswith("http") else StdioTransport(upstream[0], list(upstream[1:]))
    )
    server = create_proxy(target, name="bench")
    if where == "stdio":
        server.run(show_banner=False)
        return
    import uvicorn

    app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(
        app, host="127.0.0.1", port=int(where), log_level="error", access_log=False, proxy_headers=False
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
