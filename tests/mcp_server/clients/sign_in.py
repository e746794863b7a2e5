"""mcp 1 and mcp 2: the official client, which signs in by itself: SIGN_IN.py URL.

Each line on stdin is a command; each on stdout what came of it, or an address that a person is to open, whose
answer is the address that their browser was sent to in the end.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider  # type: ignore[import-not-found, unused-ignore]
from mcp.client.streamable_http import (  # type: ignore[import-not-found, unused-ignore]
    streamable_http_client,
)
from mcp.shared._httpx_utils import (  # type: ignore[import-not-found, unused-ignore]
    create_mcp_http_client,
)
from mcp.shared.auth import OAuthClientMetadata  # type: ignore[import-not-found, unused-ignore]

IS_OLD = version("mcp").startswith("1.")


async def read() -> str:
    return str(await asyncio.to_thread(sys.stdin.readline)).strip()


def tell(told: dict[str, str]) -> None:
    print(json.dumps(told), flush=True)


class Storage:
    """What a client stores of its sign-ins."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def show(url: str) -> None:
    tell({"open": url})


async def come_back() -> Any:
    said = {name: values[0] for name, values in parse_qs(urlsplit(await read()).query).items()}
    if IS_OLD:
        return said.get("code", ""), said.get("state")
    from mcp.client.auth import AuthorizationCodeResult

    return AuthorizationCodeResult(code=said.get("code", ""), state=said.get("state"), iss=said.get("iss"))


class Client:
    """One client, which keeps its connection as long as it works."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._storage = Storage()
        self._asked: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()
        self._session: asyncio.Task[None] | None = None

    async def call(self) -> str:
        if self._session is None or self._session.done():
            self._asked = asyncio.Queue()
            self._session = asyncio.ensure_future(self._run(self._asked))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await self._asked.put(answer)
        both: list[asyncio.Future[Any]] = [answer, self._session]
        await asyncio.wait(both, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        if self._session.done():
            self._session.result()
        return await asyncio.wait_for(answer, 0)

    async def _run(self, asked: "asyncio.Queue[asyncio.Future[str]]") -> None:
        told = OAuthClientMetadata(
            client_name="mcp",
            redirect_uris=["http://127.0.0.1:3030/callback"],
            token_endpoint_auth_method="none",
        )
        signed_in = OAuthClientProvider(self._url, told, self._storage, show, come_back)
        async with (
            create_mcp_http_client(auth=signed_in) as http,
            self._opened(streamable_http_client(self._url, http_client=http)) as client,
        ):
            while True:
                answer = await asked.get()
                result = await client.call_tool("add", {"a": 2, "b": 3})
                answer.set_result(str(result.content[0].text))

    @asynccontextmanager
    async def _opened(self, transport: Any) -> AsyncIterator[Any]:
        if not IS_OLD:
            from mcp import Client as Mcp  # type: ignore[attr-defined, import-not-found, unused-ignore]

            async with Mcp(transport) as client:
                yield client
            return
        from mcp import ClientSession

        async with transport as (streams, taken, *_), ClientSession(streams, taken) as session:
            await session.initialize()
            yield session


def pass_time(seconds: float) -> None:
    now = time.time
    time.time = lambda: now() + seconds


async def main(url: str) -> None:
    client = Client(url)
    while command := await read():
        try:
            if command.startswith("later"):
                pass_time(float(command.split()[1]))
            tell({"done": await client.call() if command == "call" else ""})
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what the user of the library meets
            tell({"raised": told_by(error)})


def told_by(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


asyncio.run(main(sys.argv[1]))
