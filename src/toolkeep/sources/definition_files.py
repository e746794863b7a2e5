"""Load definitions from files: JSON or YAML, one definition, a list, or an object with `tools`.

A file is data: nothing in it runs. An unreadable file is reported with its position; an invalid definition
does not keep the others from loading.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.definitions.definition_rules import written_by_hand
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionError, FileUnreadable, ToolkeepError
from toolkeep.json_values.yaml import Place, read_yaml
from toolkeep.limits import DEFINITION_FILE_BYTES, DOCUMENT_DEPTH, INTEGER_DIGITS
from toolkeep.text.display import echo_name
from toolkeep.validation.parse import NotStrictJson, fault_position, is_trailing_comma, parse_json_fully

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*+|-?[A-Za-z]++|[\[\]{}:]')
_IS_CONFIGURATION = (
    "is a configuration, not a file of definitions; its tools are known in its project without it"
)
_CONFIGURED = frozenset(("tool_registry", "tools", "agents", "policies", "upstreams", "approvals"))
_IS_CODE = (
    "is Python, and no code is run here; name definitions in JSON or YAML, "
    "and check a tool of your code with `toolkeep.testing.check_tool`"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class LoadedDefinition(msgspec.Struct, frozen=True):
    """One definition of a file, or the reason why it cannot be read."""

    name: str
    definition: ToolDefinition | None
    error: ToolkeepError | None = None


def load_definitions(path: Path) -> list[LoadedDefinition]:
    """Every definition of a file; `FileUnreadable` if the file itself is invalid."""
    return [_load(data, index) for index, data in enumerate(_entries(path, read_data(path)))]


def read_data(path: Path) -> Any:
    """The data of a JSON or YAML file."""
    try:
        with path.open("rb") as file:
            raw = file.read(DEFINITION_FILE_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be opened") from error
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(str(path), f"is over {DEFINITION_FILE_BYTES} bytes")
    return data_of(raw, path)


def data_of(raw: bytes, path: Path) -> Any:
    """The data in the bytes of a file; its name says whether they are JSON or YAML."""
    if path.suffix.lower() in (".yml", ".yaml"):
        return read_yaml(raw, str(path)).data
    if path.suffix.lower() in (".py", ".pyi"):
        raise FileUnreadable(str(path), _IS_CODE)
    return _read_json(str(path), raw)


def _read_json(path: str, raw: bytes) -> Any:
    try:
        return parse_json_fully(raw, depth=DOCUMENT_DEPTH)
    except NotStrictJson:
        before, reason = _json_fault(raw)
        place = Place.after(before, path)
        raise FileUnreadable(path, reason, line=place.line, column=place.column) from None


def _json_fault(raw: bytes) -> tuple[str, str]:
    """The text before the first fault of a JSON file, and what is wrong there."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        reason = f"the byte 0x{raw[error.start]:02X} is not UTF-8; save the file as UTF-8"
        return raw[: error.start].decode(), reason
    try:
        json.loads(text, parse_int=len)  # digits are counted below
    except json.JSONDecodeError as error:
        position = fault_position(text, error)
        return text[:position], f"is not JSON; {_fix(text, position)}"
    except RecursionError:
        pass
    position, reason = next(_strictness_faults(text), (0, "is not strict JSON; write simpler values"))
    return text[:position], reason


def _fix(text: str, position: int) -> str:
    """How to fix a text where it stops being JSON."""
    here = text[position : position + 1]
    if not text.strip():
        return "the file is empty"
    if here == "\ufeff":
        return "save the file without a byte order mark"
    if not text[position:].strip():
        return "the file ends too early: close every bracket and string"
    if is_trailing_comma(text, position):
        return "remove the trailing comma"
    if here in "/#":
        return "remove the comment, JSON has none"
    if here == "'":
        return "use double quotes"
    return "check quotes, commas and brackets here"


def _strictness_faults(text: str) -> Iterator[tuple[int, str]]:
    """Where a well-formed JSON text violates strict JSON, in order."""
    open_keys: list[dict[str, int]] = []
    last = ""
    start = 0
    for token in _TOKEN.finditer(text):
        found = token.group()
        if found == ":":
            key = json.loads(last)
            if key in open_keys[-1]:
                first = Place.after(text[: open_keys[-1][key]], "")
                twice = f"the key {echo_name(key)} is written twice"
                where = f"first at line {first.line}, column {first.column}"
                yield start, f"{twice}, {where}; keep one of the two"
            open_keys[-1][key] = start
        elif found in ("[", "{"):
            open_keys.append({})
            if len(open_keys) > DOCUMENT_DEPTH:
                yield token.start(), f"is nested deeper than {DOCUMENT_DEPTH}; write flatter data"
        elif found in ("]", "}"):
            open_keys.pop()
        elif reason := _scalar_fault(found):
            yield token.start(), reason
        last, start = found, token.start()


def _scalar_fault(token: str) -> str:
    if token[0] == '"':
        is_half = "\\u" in token and _SURROGATE.search(json.loads(token))
        return "a \\u escape is half of a surrogate pair; escape both halves" if is_half else ""
    if token in ("NaN", "Infinity", "-Infinity"):
        return f"{token} is not JSON; write a finite number or null"
    if token.lstrip("-").isdigit():
        too_long = len(token.lstrip("-")) > INTEGER_DIGITS
        return f"an integer has more than {INTEGER_DIGITS} digits; write a shorter one" if too_long else ""
    if token[-1].isdigit() and math.isinf(float(token)):
        return "a number is beyond 1.8e308; write a smaller one"
    return ""


def _entries(path: Path, data: Any) -> list[Any]:
    if isinstance(data, list):
        return data
    if isinstance(data, dict) and isinstance(data.get("tools"), list):
        return list(data["tools"])
    if isinstance(data, dict) and "name" not in data and not _CONFIGURED.isdisjoint(data):
        raise FileUnreadable(str(path), _IS_CONFIGURATION)
    if isinstance(data, dict):
        return [data]
    raise FileUnreadable(
        str(path), "holds no definition; expected an object, a list, or an object with 'tools'"
    )


def _load(data: Any, index: int) -> LoadedDefinition:
    name = data.get("name") if isinstance(data, dict) else None
    shown = name if isinstance(name, str) and name else f"#{index + 1}"
    try:
        return LoadedDefinition(shown, written_by_hand(definition_from_dict(data)))
    except DefinitionError as error:
        return LoadedDefinition(shown, None, error)


def usable(loaded: list[LoadedDefinition]) -> Iterator[ToolDefinition]:
    """The definitions that could be read."""
    return (entry.definition for entry in loaded if entry.definition is not None)
