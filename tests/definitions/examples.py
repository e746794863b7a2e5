"""Definitions that tests start from, and a strategy for JSON data."""

from typing import Any

from hypothesis import strategies as st

from toolkeep import ToolDefinition
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.errors import Problem

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
"""Any Unicode text that JSON can hold."""

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def json_of(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values made of these scalars."""
    return st.recursive(
        st.none() | st.booleans() | TEXT | scalars,
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXT, inside, max_size=4),
        max_leaves=12,
    )


JSON = json_of(st.integers(-(2**70), 2**70) | FLOATS)
"""Any JSON value."""


def made(**fields: Any) -> ToolDefinition:
    """A small definition by hand, with some fields of the data form changed."""
    return ToolDefinition.from_dict({"name": "read_file", "description": "Read a file.", **fields})


def read(**fields: Any) -> ToolDefinition:
    """The same as registration reads it: its rules are not checked yet."""
    return definition_from_dict({"name": "read_file", "description": "Read a file.", **fields})


def made_elsewhere(**fields: Any) -> ToolDefinition:
    """The same, taken over from another system."""
    return made(source={"kind": "mcp", "origin": "files"}, **fields)


def with_properties(properties: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """The JSON Schema of parameters with these properties."""
    return {"type": "object", "properties": properties, **keywords}


def fields_of(problems: tuple[Problem, ...] | list[Problem]) -> list[str]:
    """Where the problems are."""
    return [problem.field for problem in problems]
