"""The least that a server with a durable log can do: read, answer, write as much as a record and sync it.

It checks nothing, decides nothing and knows one tool: what is left above it is what there is to be had.
"""

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

RECORDS = bytes(2275)  # as long as what toolkeep writes for one of these calls
ROOM = 64 << 20

Answer = Callable[[dict[str, Any]], Awaitable[None]]


class Log:
    """Something durable, written over zeros that are there already."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as the process
        self._file.write(bytes(ROOM))
        os.fsync(self._file.fileno())
        self._place = 0

    def append(self) -> None:
        os.pwrite(self._file.fileno(), RECORDS, self._place)
        os.fdatasync(self._file.fileno())
        self._place = (self._place + len(RECORDS)) % (ROOM - len(RECORDS))


def answered(log: Log, raw: bytes) -> bytes:
    message = orjson.loads(raw)
    if message["method"] == "server/discover":
        result: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    else:
        log.append()
        text = message["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": text}]}
    result["resultType"] = "complete"
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


def serve_stdio(log: Log) -> None:
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answered(log, line) + b"\n")
        sys.stdout.buffer.flush()


def serve_http(log: Log, port: int) -> None:
    import uvicorn

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Answer) -> None:
        if scope["type"] == "http":
            body = answered(log, (await receive())["body"])
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        lifespan="off",
    )


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio(Log())
    else:
        serve_http(Log(), int(sys.argv[1]))
