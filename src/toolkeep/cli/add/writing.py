"""An upstream goes into `.agent/config.yml` as text, so that comments and order stay.

Where the file is written in a way that cannot be added to, it is left to a person.
"""

import json
import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.cli.options import is_agreed, is_terminal
from toolkeep.documents import read_yaml
from toolkeep.errors import FileUnreadable, ImportRefused, NotAccepted
from toolkeep.files import is_there
from toolkeep.storage.atomic import write_whole
from toolkeep.wording import visible

_SECTION = re.compile(r"^upstreams:[ \t]*(#.*)?$", re.MULTILINE)


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a configuration, not yet made."""

    path: Path
    before: str
    after: str
    document: Path
    content: bytes

    @property
    def difference(self) -> list[str]:
        """The change, as a person reads it."""
        lines = unified_diff(
            self.before.splitlines(),
            self.after.splitlines(),
            str(self.path),
            str(self.path),
            lineterm="",
            n=2,
        )
        return [visible(line) for line in lines]


def propose(
    root: Path, name: str, entry: dict[str, Any], file_name: str, content: bytes, *, kind: str = "openapi"
) -> Addition:
    """The configuration with one more upstream; `ImportRefused` where it cannot be written there."""
    path = root / ".agent" / "config.yml"
    try:
        before = path.read_text() if is_there(path) else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), "cannot be read") from error
    data = read_yaml(before.encode(), str(path)).data if before.strip() else {}
    upstreams = data.get("upstreams") if isinstance(data, dict) else None
    if isinstance(upstreams, dict) and name in upstreams:
        other = "with --name" if kind == "openapi" else "name, or ask it again with --refresh"
        raise ImportRefused(f"upstream '{name}'", "is there already", hint=f"choose another {other}")
    entry = {**entry, kind: file_name}
    after = _inserted(before, name, entry)
    expected = {**(data or {}), "upstreams": {**(upstreams or {}), name: entry}}
    if _read(after, path) != expected:
        hint = f"write it by hand, under `upstreams`: {name}: {json.dumps(entry)}"
        raise ImportRefused(
            str(path), "its upstreams are written in a way that cannot be added to", hint=hint
        )
    return Addition(path=path, before=before, after=after, document=path.parent / file_name, content=content)


def _read(text: str, path: Path) -> Any:
    try:
        return read_yaml(text.encode(), str(path)).data
    except FileUnreadable:
        return None


def write_addition(addition: Addition, *, is_agreed: bool, as_json: bool) -> None:
    """Make the change, if a person says so."""
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


def check_agreed(question: str, *, as_json: bool) -> None:
    """Raise `NotAccepted` unless a person at the terminal says yes."""
    if as_json or not is_terminal(sys.stdin):
        raise NotAccepted("nobody is there to ask", hint="run it on a terminal, or give --yes")
    if not is_agreed(question):
        raise NotAccepted("you said no", hint="nothing was changed")


def _inserted(text: str, name: str, entry: dict[str, Any]) -> str:
    """The text with the entry first under `upstreams:`, which is made where there is none."""
    block = "".join(f"{line}\n" for line in _lines(name, entry))
    if section := _SECTION.search(text):
        end = section.end() + 1
        return f"{text[:end].rstrip()}\n{block}{text[end:]}"
    start = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{start}upstreams:\n{block}"


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
