"""`WasmTool`: a definition, and the WASM module that runs it."""

import os
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from toolkeep.definitions.tool import ToolDefinition


@dataclass(frozen=True, slots=True)
class WasmTool:
    """A tool that is a WASM module; register it like a function. Nothing is read before a call.

    A relative `path` is resolved against the current working directory. `output` says how the module's output
    is read. `fuel` is the number of instructions a call may execute; without it, its deadline is the limit.
    """

    definition: ToolDefinition
    path: str
    _: KW_ONLY
    output: Literal["json", "text"] = "json"
    fuel: int | None = None

    kind: ClassVar[Literal["wasm"]] = "wasm"

    def __post_init__(self) -> None:
        if self.output not in ("json", "text"):
            raise ValueError("output is json or text")
        if self.fuel is not None and not 0 < self.fuel < 1 << 63:
            raise ValueError("fuel is a number above 0")
        object.__setattr__(self, "path", os.path.abspath(self.path))  # noqa: PTH100 -- text is wanted
