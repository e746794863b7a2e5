"""The listener that a browser comes back to: one answer, the right one, and nothing said back."""

import asyncio

import pytest

from toolkeep.mcp_client.oauth.redirect_listener import RedirectListener, listening
from toolkeep.mcp_client.transport import UpstreamFailed


def is_ours(answer: object) -> bool:
    return isinstance(answer, dict) and answer.get("state") == "right"


async def ask(loopback: RedirectListener, raw: bytes) -> bytes:
    port = int(loopback.redirect_uri.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    writer.write_eof()
    said = await reader.read()
    writer.close()
    return said


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


@pytest.mark.parametrize(
    "raw",
    [
        get("/callback?code=x&state=wrong"),
        get("/callback?code=x"),
        get("/callback?code=x&state=right&state=right"),
        get("/callback?" + "&".join(f"a{n}=1" for n in range(30)) + "&state=right"),
        get("/other?code=x&state=right"),
        get("/callback?code=x&state=right").replace(b"GET", b"POST"),
        b"\r\n\r\n",
        b"GET /callback?state=right HTTP/1.1\r\n" + b"x" * 100_000,
    ],
)
def test_a_stranger_is_not_taken_for_the_answer(raw: bytes) -> None:
    async def main() -> tuple[bytes, dict[str, str]]:
        async with listening(is_ours) as loopback:
            said = await ask(loopback, raw)
            await ask(loopback, get("/callback?code=ours&state=right"))
            return said, dict(await loopback.answer())

    said, found = asyncio.run(main())
    assert b"200 OK" not in said
    assert found == {"code": "ours", "state": "right"}


def test_an_answer_is_taken_once_and_nothing_of_it_is_said_back() -> None:
    async def main() -> tuple[bytes, bytes]:
        async with listening(is_ours) as loopback:
            assert loopback.redirect_uri.startswith("http://127.0.0.1:")
            first = await ask(loopback, get("/callback?code=<script>&state=right"))
            return first, await ask(loopback, get("/callback?code=second&state=right"))

    first, second = asyncio.run(main())
    assert b"200 OK" in first
    assert b"script" not in first
    assert b"400 Bad Request" in second


def test_strangers_are_not_listened_to_for_ever() -> None:
    async def main() -> None:
        async with listening(is_ours) as loopback:
            for _ in range(50):
                await ask(loopback, get("/callback?state=wrong"))
            assert b"400" in await ask(loopback, get("/callback?code=x&state=right"))

    asyncio.run(main())


def test_nobody_is_waited_for_without_end() -> None:
    async def main() -> None:
        async with listening(is_ours) as loopback:
            await loopback.answer(0.01)

    with pytest.raises(UpstreamFailed, match="no sign-in within"):
        asyncio.run(main())


def test_a_port_that_is_taken_is_said() -> None:
    async def main() -> None:
        async with listening(is_ours) as first:
            port = int(first.redirect_uri.split(":")[2].split("/")[0])
            async with listening(is_ours, port):
                pass

    with pytest.raises(UpstreamFailed, match="is taken"):
        asyncio.run(main())
