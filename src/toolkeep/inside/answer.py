"""Loads the tool and answers its one call: a JSON object of keyword arguments in, one JSON object out.

`{"ok": value}`, `{"bytes": base64}`, `{"failed": text}` if the tool raised toolkeep's ToolFailed, else
`{"raised": type, "where": place}`: another exception's text may hold values and stays here.
"""

import asyncio
import base64
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .plain import plain

_WHERE_CHARS: Final = 200
_FILE_MODULE: Final = "_toolkeep_tool"


class _Packages(importlib.abc.MetaPathFinder):
    """Finds packages by their own place: the folder around them need not even be listed."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002 -- of the protocol
        """The package or module of that name, where it is one of these."""
        place = self._places.get(name) if path is None else None
        if place is None:
            return None
        if place.endswith(".py"):
            return importlib.util.spec_from_file_location(name, place)
        first = f"{place}/__init__.py"
        return importlib.util.spec_from_file_location(name, first, submodule_search_locations=[place])


def show_packages(places: Sequence[str]) -> None:
    """Let these packages and modules be imported, by their names."""
    named = {Path(place).name.removesuffix(".py"): place for place in places}
    sys.meta_path.insert(0, _Packages(named))


def load(reference: str) -> Callable[..., Any]:
    """The function that `module:name` or `/path/file.py:name` names; the name may have dots."""
    place, _, name = reference.rpartition(":")
    found: Any = _module_of_file(place) if place.startswith("/") else importlib.import_module(place)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is not a function")
    return _bound(found) if _is_ours(type(found)) and hasattr(found, "bind") else found


def _bound(tool: Any) -> Callable[..., Any]:
    """A function that was made a tool: its models and its context are made from the arguments."""

    def call(**arguments: Any) -> Any:
        return tool.function(**tool.bind(arguments))

    return call


def _module_of_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(_FILE_MODULE, Path(path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_FILE_MODULE] = module
    spec.loader.exec_module(module)
    return module


def answer(function: Callable[..., Any], request: bytes) -> bytes:
    """The reply to one request; an exception of the tool is a reply too."""
    try:
        reply = _reply(_called(function, json.loads(request)))
        return encode(reply)
    except BaseException as error:  # noqa: BLE001 -- SystemExit and the like are answers of a tool too
        return encode(_failure(error))


def rehearse() -> None:
    """Go through a call without a tool, so that the memory it touches is this process's own already."""
    answer(_nothing, b'{"first":[1,"a"]}')


def _nothing(first: Any) -> Any:
    return first


def encode(reply: dict[str, Any]) -> bytes:
    """A reply as JSON."""
    return json.dumps(reply, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def describe(error: BaseException) -> dict[str, Any]:
    """An exception by type and place, without its text."""
    return {"raised": type(error).__name__[:_WHERE_CHARS], "where": _where(error)}


def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(**arguments))
    value = function(**arguments)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _reply(value: Any) -> dict[str, Any]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return {"ok": plain(value)}


def _failure(error: BaseException) -> dict[str, Any]:
    if not _is_tool_failure(error):
        return describe(error)
    try:
        return {"failed": str(error).encode("utf-8", "replace").decode()}
    except Exception as unsaid:  # noqa: BLE001 -- the exception cannot even say what it is
        return describe(unsaid)


def _is_tool_failure(error: BaseException) -> bool:
    """By name: toolkeep itself is imported here only if the tool does so."""
    return any(kind.__name__ == "ToolFailed" and _is_ours(kind) for kind in type(error).__mro__)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "toolkeep"


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"[:_WHERE_CHARS]
