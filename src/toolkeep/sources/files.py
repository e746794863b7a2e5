"""Definitions from files: JSON or YAML, one definition, a list, or an object with `tools`.

A file is data: nothing in it runs. A file that cannot be read says where it is wrong; a definition that
cannot be used does not keep the others from loading.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.definitions.check import written_by_hand
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionError, FileUnreadable, ToolkeepError
from toolkeep.limits import DEFINITION_FILE_BYTES, DEFINITION_FILE_NODES
from toolkeep.validation.parse import Snapshot, parse_json_fully
from toolkeep.validation.reasons import NotStrictJson

_DEPTH = 100


class LoadedDefinition(msgspec.Struct, frozen=True):
    """One definition of a file: read, or the reason why not."""

    name: str
    definition: ToolDefinition | None
    error: ToolkeepError | None = None


def load_definitions(path: Path) -> list[LoadedDefinition]:
    """Every definition of a file; `FileUnreadable` where the file itself is wrong."""
    return [_load(data, index) for index, data in enumerate(_entries(path, read_data(path)))]


def read_data(path: Path) -> Any:
    """The JSON data that a JSON or YAML file holds."""
    try:
        with path.open("rb") as file:
            raw = file.read(DEFINITION_FILE_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be opened") from error
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(str(path), f"is over {DEFINITION_FILE_BYTES} bytes")
    return _read_yaml(path, raw) if path.suffix.lower() in (".yml", ".yaml") else _read_json(path, raw)


def _read_json(path: Path, raw: bytes) -> Any:
    try:
        return parse_json_fully(raw, depth=_DEPTH)
    except NotStrictJson as error:
        line, column = _place(raw)
        raise FileUnreadable(str(path), f"{error.reason}; {error.mend}", line=line, column=column) from error


def _place(raw: bytes) -> tuple[int, int] | tuple[None, None]:
    """Line and column where a text stops being JSON; nothing where it is JSON, but not strict."""
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return error.lineno, error.colno
    except (ValueError, RecursionError):
        pass
    return None, None


def _read_yaml(path: Path, raw: bytes) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(raw.decode())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise FileUnreadable(str(path), error.problem or "is not YAML", line=line, column=column) from error
    except (YAMLError, UnicodeDecodeError, ValueError) as error:
        raise FileUnreadable(str(path), "is not YAML in UTF-8") from error
    except RecursionError as error:
        raise FileUnreadable(str(path), "is nested too deep") from error
    try:
        # Written out with a limit, so that aliases of aliases cannot fill the memory.
        return Snapshot(data, depth=_DEPTH, values=DEFINITION_FILE_NODES).value
    except NotStrictJson as error:
        where = f"{error.path}: " if error.path else ""
        mend = "write it as text, in quotes" if error.code is Code.NOT_JSON else error.mend
        raise FileUnreadable(str(path), f"{where}{error.reason}; {mend}") from error


def _entries(path: Path, data: Any) -> list[Any]:
    if isinstance(data, list):
        return data
    if isinstance(data, dict) and isinstance(data.get("tools"), list):
        return list(data["tools"])
    if isinstance(data, dict):
        return [data]
    raise FileUnreadable(
        str(path), "holds no definition; expected an object, a list, or an object with 'tools'"
    )


def _load(data: Any, index: int) -> LoadedDefinition:
    name = data.get("name") if isinstance(data, dict) else None
    shown = name if isinstance(name, str) and name else f"#{index + 1}"
    try:
        return LoadedDefinition(shown, written_by_hand(ToolDefinition.from_dict(data)))
    except DefinitionError as error:
        return LoadedDefinition(shown, None, error)


def usable(loaded: list[LoadedDefinition]) -> Iterator[ToolDefinition]:
    """The definitions that could be read."""
    return (entry.definition for entry in loaded if entry.definition is not None)
