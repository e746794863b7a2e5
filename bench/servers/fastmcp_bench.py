"""FastMCP with its default settings."""

import logging
import sys
from typing import Any

from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]

AS_INSTALLED: dict[str, Any] = {"loop": "asyncio", "http": "h11"}
"""What uvicorn does without uvloop and httptools, which `fastmcp` does not bring."""


def main(where: str, count: int, *, is_as_installed: bool) -> None:
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

    app = server.http_app(path="/mcp", json_response=not is_as_installed)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(where),
        log_level="error",
        access_log=False,
        proxy_headers=False,
        **(AS_INSTALLED if is_as_installed else {}),
    )


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    main(sys.argv[1], count, is_as_installed="as-installed" in sys.argv[3:])
