"""One round of a client library: every cell of the table in `docs/clients.md`, tried on a running keep.

Each program here says how its library opens a session and what that session does; what is tried is the same for all.
PROGRAM ROUND.json prints, as JSON, what the client saw.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SILENCE_S = 5.0
"""How long a notice may take before the client counts as not told."""
Server = dict[str, Any]
"""`command` (stdio) or `url` (streamable HTTP)."""


class Lacking(Exception):
    """The library has no such feature; the text says how that is known."""


@dataclass
class Heard:
    """What the library passed on to its user."""

    notices: list[str] = field(default_factory=list)
    """Words of progress and log messages."""
    questions: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def answer(self, message: str) -> dict[str, Any]:
        """Fill in the form of an approval."""
        self.questions.append(message)
        return {"answer": "Approve"}


class Session:
    """A connection of the library; what it cannot do is left as it is here."""

    async def tools(self) -> list[str]:
        raise NotImplementedError

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """`text`, as the model reads it, and `is_error`."""
        raise NotImplementedError

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        raise Lacking("no method for prompts")

    async def resource(self, uri: str) -> str:
        raise Lacking("no method for resources")


Open = Callable[[Server, Heard], AbstractAsyncContextManager[Session]]


class Round:
    """The cells, in order."""

    def __init__(self, given: dict[str, Any], open_session: Open) -> None:
        self._given = given
        self._open = open_session

    async def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        heard = Heard()
        async with self._open(self._given["plain"], heard) as session:
            found["list"] = await _tried(self._list(session))
            found["call"] = await _tried(session.call("count_words", {"text": "to be or not"}))
            found["refusal"] = {
                "misnamed": await _tried(session.call("count_words", {"txt": "to be"})),
                "empty": await _tried(session.call("count_words", {"text": ""})),
            }
            found["waiting"] = await _tried(self._wait(session, heard))
            found["prompt"] = await _tried(session.prompt("review", {"text": "this"}))
            found["resource"] = await _tried(session.resource("toolkeep:docs/docs://readme"))
            found["changed"] = await _tried(self._change(session, heard))
        heard = Heard()
        async with self._open(self._given["answering"], heard) as session:
            found["answer"] = await _tried(self._answer(session, heard))
        return found

    async def _list(self, session: Session) -> list[str]:
        return sorted(set(await session.tools()) & {"count_words", "send_note"})

    async def _wait(self, session: Session, heard: Heard) -> dict[str, Any]:
        heard.notices.clear()
        call = asyncio.ensure_future(session.call("send_note", {"text": "hi"}))
        waiting = await self._in_the_inbox(call)
        await _until(lambda: heard.notices)
        notices = [*heard.notices]
        await self._toolkeep("approve", waiting, "--token-file", self._given["token"])
        return {"notices": notices, "id": waiting, **await asyncio.wait_for(call, 30)}

    async def _in_the_inbox(self, call: "asyncio.Future[Any]") -> str:
        while not call.done():
            if found := await self._toolkeep("approvals", "list"):
                return str(found[0]["id"])
        raise AssertionError(f"it did not wait: {call.result()}")

    async def _change(self, session: Session, heard: Heard) -> dict[str, Any]:
        heard.changes.clear()
        try:
            await self._toolkeep("disable", "count_words")
            await _until(lambda: heard.changes)
            told = bool(heard.changes)
            without = await self._list(session)
        finally:
            await self._toolkeep("enable", "count_words")
        again: list[str] = []
        for _ in range(int(SILENCE_S)):
            if len(again := await self._list(session)) > len(without):
                break
            await asyncio.sleep(1)
        return {"told": told, "without": without, "again": again}

    async def _answer(self, session: Session, heard: Heard) -> dict[str, Any]:
        call = asyncio.ensure_future(session.call("send_note", {"text": "hi"}))
        done, _ = await asyncio.wait([call], timeout=SILENCE_S)
        if not done:  # nobody was asked here: end the wait, so that the round goes on
            waiting = await self._in_the_inbox(call)
            await self._toolkeep("approve", waiting, "--token-file", self._given["token"])
        return {"questions": heard.questions, "in_the_inbox": not done, **await asyncio.wait_for(call, 30)}

    async def _toolkeep(self, *words: str) -> Any:
        """Run a command, as a person at another terminal would."""
        process = await asyncio.create_subprocess_exec(
            *self._given["toolkeep"],
            *words,
            *("--json", "--project", self._given["project"]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, errors = await process.communicate()
        if process.returncode:
            raise AssertionError(f"{words}: {said.decode()}{errors.decode()}")
        return json.loads(said)


async def _tried(cell: Awaitable[Any]) -> Any:
    try:
        return await asyncio.wait_for(cell, 60)
    except Lacking as lacking:
        return {"lacking": str(lacking)}
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what the user of the library meets
        return {"raised": f"{type(error).__name__}: {error}"[:2_000]}


async def _until(is_so: Callable[[], object]) -> None:
    for _ in range(int(SILENCE_S * 20)):
        if is_so():
            return
        await asyncio.sleep(0.05)


def run(open_session: Open) -> None:
    """The program of a library."""
    given = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(asyncio.run(Round(given, open_session).run())))
