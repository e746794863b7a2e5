"""Real tools and calls, read from a folder with `tools.jsonl` and `calls.jsonl`.

The rivals define tools by functions, so each schema is also turned into the function that an author would
have written for it: `integer` becomes `int`, an enum becomes a `Literal`, an object becomes a TypedDict.
"""

import inspect
import itertools
import json
import keyword
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

from toolkeep import Keep, ToolDefinition, ToolkeepError

_SCALARS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCall:
    """A valid call of a real tool."""

    name: str
    schema: Mapping[str, Any]
    raw: str

    @property
    def definition(self) -> ToolDefinition:
        """The tool as toolkeep takes it over."""
        return define(self.name, "A tool.", self.schema)


class RealTool(NamedTuple):
    """A real tool under a name of our own."""

    name: str
    description: str
    schema: dict[str, Any]


def define(name: str, description: str, schema: Mapping[str, Any]) -> ToolDefinition:
    """A tool from elsewhere."""
    return ToolDefinition.from_elsewhere({"name": name, "description": description, "parameters": schema})


def read_calls(folder: Path) -> list[RealCall]:
    """The valid calls, each with a name of its own."""
    return [
        RealCall(
            name=f"tool_{number}",
            schema=row["schema"],
            raw=json.dumps(row["arguments"], separators=(",", ":"), ensure_ascii=False),
        )
        for number, row in enumerate(_rows(folder / "calls.jsonl"))
        if row["valid"]
    ]


def read_tools(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Description and schema of every tool."""
    return [
        (row.get("description") or "", row.get("schema_normalised") or row["schema"])
        for row in _rows(folder / "tools.jsonl")
    ]


def read_admitted_tools(folder: Path, count: int, *, by_hand: bool = False) -> list[RealTool]:
    """That many tools that a keep takes, the same ones again under other names if there are too few.

    Under `by_hand` they follow the rules for authors too.
    """
    # In another process: what trying them leaves in memory would hide what keeping them takes.
    with ProcessPoolExecutor(max_workers=1) as executor:
        usable = executor.submit(_read_admitted, folder, by_hand=by_hand).result()
    rows = enumerate(itertools.islice(itertools.cycle(usable), count))
    return [RealTool(f"tool_{number}", *row) for number, row in rows]


def _read_admitted(folder: Path, *, by_hand: bool) -> list[tuple[str, dict[str, Any]]]:
    keep = Keep()
    rows = enumerate(read_tools(folder))
    return [row for number, row in rows if _is_admitted(keep, f"tool_{number}", row, by_hand=by_hand)]


def _is_admitted(keep: Keep, name: str, row: tuple[str, dict[str, Any]], *, by_hand: bool) -> bool:
    description, schema = row
    data = {"name": name, "description": description, "parameters": schema}
    try:
        keep.register(ToolDefinition.from_dict(data) if by_hand else define(name, *row))
    except ToolkeepError:
        return False
    return True


def _rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class NotAFunction(ValueError):
    """A schema that no Python signature expresses."""


def function_for(call: RealCall) -> Callable[..., str]:
    """The function that an author would have written for the schema; raises `NotAFunction`."""

    def tool(**_: object) -> str:
        return "done"

    required = set(call.schema.get("required", ()))
    parameters = [
        _parameter(name, schema, is_required=name in required)
        for name, schema in call.schema.get("properties", {}).items()
    ]
    tool.__name__ = tool.__qualname__ = call.name
    tool.__doc__ = "A tool."
    tool.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {
        "return": str
    }
    signature = inspect.Signature(parameters, return_annotation=str)
    tool.__signature__ = signature  # type: ignore[attr-defined]
    return tool


def _parameter(name: str, schema: Mapping[str, Any], *, is_required: bool) -> inspect.Parameter:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise NotAFunction(name)
    annotation = _annotation(name, schema)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=annotation if is_required else annotation | None,
        default=inspect.Parameter.empty if is_required else None,
    )


def _annotation(name: str, schema: Mapping[str, Any]) -> Any:
    """The annotation for a schema; what has no plain one is `Any`, which favours the rivals."""
    if choices := schema.get("enum"):
        return Literal[tuple(choices)]
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return list[_annotation(name, items)] if isinstance(items, dict) else list[Any]  # type: ignore[misc]
    if kind == "object":
        return _typed_dict(name, schema)
    return _SCALARS.get(kind, Any) if isinstance(kind, str) else Any


def _typed_dict(name: str, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if not properties:
        return dict[str, Any]
    required = set(schema.get("required", ()))
    fields = {}
    for key, value in properties.items():
        annotation = _annotation(key, value)
        fields[key] = annotation if key in required else NotRequired[annotation]
    return TypedDict(name.title(), fields)  # type: ignore[operator]
