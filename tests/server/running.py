"""The server as it runs, in a thread of the tests."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tests.server.talk import until  # noqa: F401 -- for those who use both
from toolkeep import Keep
from toolkeep.limits import ServerLimits
from toolkeep.server.app_factory import make_app
from toolkeep.server.asgi_app import KeepApp
from toolkeep.server.run_server import Server, bind
from toolkeep.stores.api_tokens import MemoryTokens, Tokens


class Running:
    """A server that listens, and its tokens."""

    def __init__(self, app: KeepApp, server: Server, tokens: Tokens, port: int) -> None:
        self.app = app
        self.server = server
        self.tokens = tokens
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def token(self, agent: str = "operator", *scopes: str) -> str:
        return self.tokens.make("a token", scopes or ("admin",), agent=agent).text


@contextlib.contextmanager
def running(
    keep: Keep, limits: ServerLimits | None = None, port: int = 0, **options: Any
) -> Iterator[Running]:
    """Serve a keep until the block ends."""
    limits = limits or ServerLimits(grace_s=1)
    tokens = Tokens(MemoryTokens())
    app = make_app(keep, tokens, limits=limits, **options)
    sock = bind("127.0.0.1", port)
    server = Server(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield Running(app, server, tokens, sock.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        sock.close()
    assert not thread.is_alive()
