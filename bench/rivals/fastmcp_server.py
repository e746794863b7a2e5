"""FastMCP: a function added to a server, lax (its default) and strict."""

import asyncio
from typing import Literal

import pydantic_core
from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]
from fastmcp.exceptions import ToolError, ValidationError  # type: ignore[import-not-found, unused-ignore]
from fastmcp.server.dependencies import (  # type: ignore[import-not-found, unused-ignore]
    without_injected_parameters,
)
from fastmcp.tools.function_tool import (  # type: ignore[import-not-found, unused-ignore]
    _validate_input,
    _wrap_body_errors,
)
from fastmcp.utilities.types import get_cached_typeadapter  # type: ignore[import-not-found, unused-ignore]

from rivals.contestant import Check, Function
from rivals.mcp_sdk import NotAMessage, arguments_on_the_wire


class FastMcpServer:
    """One server setting: `strict_input_validation` off or on."""

    package = "fastmcp"
    timed = (
        "pydantic_core.from_json, then the type adapter of FunctionTool.run, which ends in the empty body; "
        "no envelope, no worker thread"
    )
    takes_text = False

    def __init__(self, setting: Literal["default", "strict"]) -> None:
        self._is_strict = setting == "strict"
        self.name = "fastmcp strict" if self._is_strict else "fastmcp"
        self.sent = f"read as by mcp, then FastMCP(strict_input_validation={self._is_strict}).call_tool"

    def send(self, function: Function, raw: str) -> str:
        server = FastMCP("bench", strict_input_validation=self._is_strict)
        server.add_tool(function)
        try:
            arguments = arguments_on_the_wire(function.__name__, raw)
            return str(asyncio.run(server.call_tool(function.__name__, arguments)))
        except (NotAMessage, ToolError, ValidationError) as error:
            return str(error)

    def check(self, function: Function) -> Check:
        body = _wrap_body_errors(function, materialize_generators=True)
        # FunctionTool.run leaves the sync body to a thread; here it runs in place.
        inline = without_injected_parameters(body, run_in_thread=False)
        adapter = get_cached_typeadapter(_wrap_body_errors(inline))
        from_json = pydantic_core.from_json
        strict = True if self._is_strict else None

        def check(raw: bytes) -> object:
            return _validate_input(adapter, from_json(raw), strict=strict)

        return check
