"""A program that stays and connects to what it is told by itself, as if there were a network."""

import contextlib
import json
import socket
import sys
import time
from typing import Any


def dial(
    host: str, port: int, say: str, *, listens_first: bool = False, waits_s: float = 0, asks: int = 1
) -> dict[str, Any]:
    for _ in range(asks - 1):
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    heard = b""
    with socket.create_connection((address, port), timeout=10) as opened:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8)
        if listens_first:
            heard = opened.recv(100)
        time.sleep(waits_s)
        opened.sendall(say.encode("latin-1"))
        with contextlib.suppress(ConnectionResetError):
            while more := opened.recv(65536):
                heard += more
    return {"address": address, "heard": heard.decode("latin-1")}


for line in sys.stdin:
    request = json.loads(line)
    try:
        result = dial(**request["arguments"])
    except OSError as error:
        result = {"error": type(error).__name__}
    sys.stdout.write(json.dumps({"id": request["id"], "result": result}) + "\n")
    sys.stdout.flush()
