"""FastMCP with its default settings."""

import logging
import sys

from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]


def main(where: str, count: int) -> None:
    logging.disable(logging.CRITICAL)
    server = FastMCP("bench")

    async def echo(text: str) -> str:
        """Give back a text."""
        return text

    server.tool(echo)
    for number in range(count - 1):
        server.tool(echo, name=f"other_{number}")
    if where == "stdio":
        server.run(show_banner=False)
        return
    import uvicorn

    app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(
        app, host="127.0.0.1", port=int(where), log_level="error", access_log=False, proxy_headers=False
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
