"""FastMCP over HTTP: the same two functions, no policy, log or token. Prints an empty line first."""

import logging
import sys
from collections import deque

import uvicorn
from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]

NOTES: deque[str] = deque(maxlen=1000)


def main(port: int) -> None:
    logging.disable(logging.CRITICAL)
    server = FastMCP("bench")

    async def echo(text: str) -> str:
        """Give back a text."""
        return text

    async def note(text: str) -> str:
        """Write a text down."""
        NOTES.append(text)
        return text

    server.tool(echo)
    server.tool(note)
    print(flush=True)
    app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False, proxy_headers=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
