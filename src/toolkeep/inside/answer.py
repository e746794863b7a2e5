"""Answers the one call of a worker: a JSON object in, one JSON object out.

In come `arguments`, and in `context` what the tool may know of its call. Out goes `{"ok": value}`,
`{"pieces": [value, …]}`, `{"bytes": base64}`, `{"failed": text}` if the tool raised toolkeep's ToolFailed,
else `{"raised": type, "where": place}`, with the kernel's `errno` where that is the reason: another
exception's text may hold values and stays here.
"""

import base64
import inspect
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from .context import Send, make_context
from .load import Call, Failed, is_ours
from .pieces import Pieces
from .plain import plain

_WHERE_CHARS: Final = 200


def answer(call: Call, request: bytes, send: Send) -> bytes:
    """The reply to one request; an exception of the tool is a reply too. Progress is sent on the way."""
    try:
        return encode(_reply(_called(call, json.loads(request), send)))
    except BaseException as error:  # noqa: BLE001 -- SystemExit and the like are answers of a tool too
        return encode(_failure(error))


def rehearse() -> None:
    """Go through a call without a tool, so that the memory it touches is this process's own already."""
    answer(lambda arguments, _: arguments["first"], b'{"arguments":{"first":[1,"a"]}}', lambda _: None)


def encode(reply: dict[str, Any]) -> bytes:
    """A reply as JSON."""
    return json.dumps(reply, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def describe(error: BaseException) -> dict[str, Any]:
    """An exception by type and place, without its text."""
    number = error.errno if isinstance(error, OSError) else None
    described: dict[str, Any] = {"raised": type(error).__name__[:_WHERE_CHARS], "where": _where(error)}
    return described | ({"errno": number} if type(number) is int else {})


def _called(call: Call, request: dict[str, Any], send: Send) -> Any:
    value = call(request["arguments"], lambda: make_context(request.get("context", {}), send))
    if inspect.isgenerator(value):
        return Pieces(send).take(value)
    if inspect.isasyncgen(value):
        return _run(Pieces(send).take_soon(value))
    return _run(_awaited(value)) if inspect.isawaitable(value) else value


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # imported by zygotes already, where it is worth it

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
        return describe(error)
    try:
        return {"failed": str(error).encode("utf-8", "replace").decode()}
    except Exception as unsaid:  # noqa: BLE001 -- the exception cannot even say what it is
        return describe(unsaid)


def _is_tool_failure(error: BaseException) -> bool:
    """By name: toolkeep itself is imported here only if the tool does so."""
    return any(kind.__name__ == "ToolFailed" and is_ours(kind) for kind in type(error).__mro__)


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"[:_WHERE_CHARS]
