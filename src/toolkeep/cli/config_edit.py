"""Adds an upstream to `.agent/config.yml` by editing its text, so that comments and order stay.

The edited text is parsed again and must give exactly the expected data; otherwise nothing is written.
"""

import json
import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.cli.options import is_agreed, is_terminal
from toolkeep.errors import FileUnreadable, ImportRefused, NotAccepted
from toolkeep.host.files import check_inside, is_there
from toolkeep.json_values.yaml import read_yaml
from toolkeep.storage.atomic_files import write_whole
from toolkeep.text.display import visible

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SECTION = re.compile(r"^upstreams:[ \t]*(#.*)?$", re.MULTILINE)


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed change of a configuration."""

    path: Path
    before: str
    after: str
    document: Path
    content: bytes

    @property
    def difference(self) -> list[str]:
        """The change as a unified diff."""
        return changed_lines(self.path, self.before, self.after)


def changed_lines(path: Path, before: str, after: str) -> list[str]:
    """A unified diff, safe to print."""
    lines = unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2)
    return [visible(line) for line in lines]


def propose(
    root: Path, name: str, entry: dict[str, Any], file_name: str, content: bytes, *, kind: str = "openapi"
) -> Addition:
    """The configuration with one more upstream; `ImportRefused` if the text cannot be extended."""
    path = root / ".agent" / "config.yml"
    check_inside(root, path.parent)
    try:
        before = path.read_text() if is_there(path) else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), "cannot be read") from error
    data = read_yaml(before.encode(), str(path)).data if before.strip() else {}
    upstreams = data.get("upstreams") if isinstance(data, dict) else None
    if isinstance(upstreams, dict) and name in upstreams:
        other = "with --name" if kind == "openapi" else "name, or list its tools again with --refresh"
        raise ImportRefused(f"upstream '{name}'", "exists already", hint=f"choose another {other}")
    entry = {**entry, kind: file_name}
    after = _inserted(before, name, entry)
    expected = {**(data or {}), "upstreams": {**(upstreams or {}), name: entry}}
    # Names and URLs come from the document: one that broke out of its YAML value would add settings of its
    # own.
    if parsed(after, path) != expected:
        hint = f"add this under `upstreams` by hand: {name}: {json.dumps(entry)}"
        raise ImportRefused(str(path), "its upstreams cannot be edited automatically", hint=hint)
    return Addition(path=path, before=before, after=after, document=path.parent / file_name, content=content)


def parsed(text: str, path: Path) -> Any:
    """The data of an edited text; None if it is no YAML any more."""
    try:
        return read_yaml(text.encode(), str(path)).data
    except FileUnreadable:
        return None


def write_addition(addition: Addition, *, is_agreed: bool, as_json: bool) -> None:
    """Write the change, after asking."""
    if not is_agreed:
        check_agreed("Write this?", as_json=as_json)
    try:
        addition.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(addition.document, addition.content)
        write_whole(addition.path, addition.after.encode())
        for written in (addition.document, addition.path):
            written.chmod(0o644)
    except OSError as error:
        raise FileUnreadable(str(addition.path), error.strerror or "cannot be written") from error


def check_name(name: str) -> None:
    """Raise `ImportRefused` for an invalid upstream name."""
    if not _NAME.fullmatch(name):
        raise ImportRefused(
            f"'{visible(name)}'", "is not a valid upstream name", hint="use a-z, 0-9, _ and -"
        )


def check_agreed(question: str, *, as_json: bool) -> None:
    """Raise `NotAccepted` unless the person at the terminal agrees."""
    if as_json or not is_terminal(sys.stdin):
        raise NotAccepted("confirming needs a terminal", hint="run it in a terminal, or pass --yes")
    if not is_agreed(question):
        raise NotAccepted("you declined", hint="nothing was changed")


def _inserted(text: str, name: str, entry: dict[str, Any]) -> str:
    """The text with the entry last under `upstreams:`, which is added if missing.

    Earlier upstreams keep their tool names: of two equal names, the first upstream has it.
    """
    block = [f"{line}\n" for line in _lines(name, entry)]
    start = text if not text or text.endswith("\n") else f"{text}\n"
    section = _SECTION.search(start)
    if section is None:
        return "".join([start, "upstreams:\n", *block])
    lines = start.splitlines(keepends=True)
    end = block_end(lines, start.count("\n", 0, section.end()) + 1, 0)
    return "".join([*lines[:end], *block, *lines[end:]])


def block_end(lines: list[str], after: int, indent: int) -> int:
    """The line after the last line that is indented below a key."""
    end = after
    for number, line in enumerate(lines[after:], after):
        if line.strip():
            if len(line) - len(line.lstrip(" ")) <= indent:
                break
            end = number + 1
    return end


def _lines(name: str, entry: dict[str, Any]) -> list[str]:
    lines = [f"  {name}:"]
    for key, value in entry.items():
        if isinstance(value, dict) and value:
            lines.append(f"    {key}:")
            lines += [f"      {json.dumps(key)}: {_flow(inside)}" for key, inside in value.items()]
        else:
            lines.append(f"    {key}: {json.dumps(value)}")
    return lines


def _flow(value: dict[str, str] | str) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return "{" + ", ".join(f"{key}: {json.dumps(inside)}" for key, inside in value.items()) + "}"
