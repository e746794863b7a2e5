"""Handles the one call of a worker: one JSON request in, one JSON reply out.

The request has `arguments`, and a `context` with what the tool may know about its call. The reply is `{"ok":
value}`, `{"pieces": [value, …]}`, `{"bytes": base64}`, `{"failed": text}` if the tool raised toolkeep's
ToolFailed, else `{"raised": type, "where": place}` with what `exception_report` says, for the operator alone:
the text of an exception may contain argument values or secrets, so that no model reads it.
"""

import base64
import inspect
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from .context import Send, make_context
from .exception_report import report
from .load import Call, Failed, is_ours
from .plain import plain

_WHERE_CHARS: Final = 200
"""Characters of an exception's type, and of its place: the tool chooses these names, and the host reads
them."""


def answer(call: Call, request: bytes, send: Send) -> bytes:
    """The reply to one request; exceptions of the tool become replies too. Progress is sent meanwhile."""
    try:
        return encode(_reply(_called(call, json.loads(request), send)))
    except BaseException as error:  # noqa: BLE001 -- SystemExit and the like are answers of a tool too
        return encode(_failure(error))


def warm_up() -> None:
    """Handle a dummy call, so that its copy-on-write page faults happen before the real call."""
    answer(lambda arguments, _: arguments["first"], b'{"arguments":{"first":[1,"a"]}}', lambda _: None)


def encode(reply: dict[str, Any]) -> bytes:
    """Encode a reply as JSON."""
    return json.dumps(reply, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as type and place, without its text."""
    return {"raised": type(error).__name__[:_WHERE_CHARS], "where": _where(error)}


def _called(call: Call, request: dict[str, Any], send: Send) -> Any:
    value = call(request["arguments"], lambda: make_context(request.get("context", {}), send))
    if inspect.isgenerator(value):
        return Pieces(send).take(value)
    if inspect.isasyncgen(value):
        return _run(Pieces(send).take_async(value))
    return _run(_awaited(value)) if inspect.isawaitable(value) else value


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # imported with the tool, where that is async

    return asyncio.run(work)


async def _awaited(value: Any) -> Any:
    return await value


def _reply(value: Any) -> dict[str, Any]:
    if isinstance(value, Pieces):
        if not value.are_bytes:
            return {"pieces": plain(value.given)}
        value = b"".join(value.given)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return {"ok": plain(value)}


def _failure(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, Failed) and not _is_tool_failure(error):
        return describe(error) | report(error)
    try:
        return {"failed": str(error).encode("utf-8", "replace").decode()}
    except Exception as unsaid:  # noqa: BLE001 -- the exception cannot even say what it is
        return describe(unsaid) | report(unsaid)


def _is_tool_failure(error: BaseException) -> bool:
    """Compare by class name: toolkeep is imported here only if the tool imports it."""
    return any(kind.__name__ == "ToolFailed" and is_ours(kind) for kind in type(error).__mro__)


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"[:_WHERE_CHARS]


_TOLD: Final = 10_000
"""Pieces streamed before the reply. The host refuses more frames; the reply holds all pieces anyway."""
_MOST: Final = 1_000_000
"""Bounds the memory of a generator that never ends; the reply could not be sent anyway."""


class Pieces:
    """Collects the output of a generator tool, and sends each piece as it comes."""

    def __init__(self, send: Send) -> None:
        self.given: list[Any] = []
        self._send = send

    def take(self, generator: Iterator[Any]) -> "Pieces":
        """Consume a generator."""
        for piece in generator:
            self._add(piece)
        return self

    async def take_async(self, generator: AsyncIterator[Any]) -> "Pieces":
        """Consume an async generator."""
        async for piece in generator:
            self._add(piece)
        return self

    @property
    def are_bytes(self) -> bool:
        """Whether the pieces are to be joined here, because JSON cannot hold bytes."""
        return bool(self.given) and all(isinstance(piece, bytes) for piece in self.given)

    def _add(self, piece: Any) -> None:
        if len(self.given) >= _MOST:
            raise ValueError(f"more than {_MOST} pieces")
        if isinstance(piece, (bytes, bytearray, memoryview)):
            self.given.append(bytes(piece))
            return
        self.given.append(plain(piece))
        if len(self.given) <= _TOLD:
            body = json.dumps({"piece": self.given[-1]}, ensure_ascii=False, allow_nan=False)
            self._send(body.encode())
