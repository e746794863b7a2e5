"""`toolkeep accept FILE`: accept a Python file or module of tools, to be named without a terminal.

The accepted source is stored in the state folder, which is private to the user, so that the next review shows
what changed in it. The stored text accepts nothing: the hashes do.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolkeep.cli.acceptance import code_difference, confirm, difference_lines, finish
from toolkeep.cli.options import say, warn
from toolkeep.cli.tools_files import find_named
from toolkeep.config.tools_file import ToolsFile
from toolkeep.errors import DefinitionInvalid, FileUnreadable, NotAccepted
from toolkeep.keep.open import read_configuration, tools_reader
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.text.display import visible

_REVIEWED = ("description", "danger", "side_effects", "capabilities", "required_permissions")
"""Fields of a definition that say what a tool may do."""
_STORED_BYTES: Final = 256 << 10
"""Source that is stored of one file of tools, with its imports; of the rest a review shows the hashes."""


def accept_tools(name: str, root: Path, state: KeepState, given_hash: str | None, *, as_json: bool) -> None:
    """Show the code and the tools of a file, and ask."""
    file = find_named(name, root)
    tools = _tools(file, root)
    data = {"path": file.place, "hash": file.seal, "code": dict(file.code), "tools": tools}
    sealed = {"code": dict(file.code), "tools": tools, "texts": _texts(file)}
    before = json.loads(state.accepted_content(file.key) or "{}")
    changes = list(_changes(before, sealed)) if before else []
    if not as_json:
        for line in _lines(file, tools, changes):
            say(line)
    elif before:
        data["changes"] = changes
    confirm(file.seal, given_hash, {"accepted": False, **data} if as_json else None)
    # The person saw the tools of the code as it was when it was hashed.
    if find_named(name, root).seal != file.seal:
        raise NotAccepted(f"{visible(file.shown)} has changed since you reviewed it", hint="review it again")
    state.accept(file.key, file.seal, json.dumps(sealed, ensure_ascii=False))
    finish({"accepted": True, **data}, f"accepted {visible(file.shown)}", as_json)
    for waiting in read_configuration(root, state).files:
        if not waiting.counts and waiting.code.keys() & file.code.keys():
            warn(f"{waiting.why_held_back}. It uses this code too; accept it as well: toolkeep accept")


def _tools(file: ToolsFile, root: Path) -> dict[str, Any]:
    """What each tool says about itself, read in a confined worker."""
    found = tools_reader(root)(file)  # stored, so that a client need not wait for a worker
    if broken := [one for one in found if one.definition is None]:
        raise DefinitionInvalid(broken[0].reference, broken[0].problems)
    said = [one.definition or {} for one in found]
    return {str(one.get("name")): reviewed(one) for one in said}


def reviewed(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What a definition says that a person has to judge."""
    return {key: definition[key] for key in _REVIEWED if key in definition}


def _texts(file: ToolsFile) -> dict[str, str]:
    """The source of each file, as far as it is text and there is room."""
    found: dict[str, str] = {}
    left = _STORED_BYTES
    for name, digest in file.code.items():
        try:
            with Path(file.root, name).open("rb") as source:
                raw = source.read(left + 1)
            if len(raw) <= left and hashlib.sha256(raw).hexdigest() == digest:
                found[name] = raw.decode()
                left -= len(raw)
        except (OSError, UnicodeDecodeError):
            continue
    return found


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What differs: lines of source where both versions are there, else facts and hashes."""
    old, new = ({**sealed, "code": dict(sealed.get("code", {}))} for sealed in (before, now))
    had, has = old.pop("texts", None), new.pop("texts", {})
    shown: list[str] = []
    for name in has if had is not None else ():
        if name in had or name not in old["code"]:
            was, is_now = old["code"].pop(name, ""), new["code"].pop(name)
            if was != is_now:
                lines = code_difference(had.get(name, ""), has[name])
                shown += (f"{visible(name)}:", *(f"  {line}" for line in lines))
    for sealed in (old, new):
        if not sealed["code"]:
            del sealed["code"]
    yield from difference_lines(json.dumps(old), json.dumps(new))
    yield from shown


def changed_files(root: Path, state: KeepState) -> list[ToolsFile]:
    """The files of tools that were accepted for this project, and have changed since."""
    found = []
    for key in state.accepted_paths():
        sealed = json.loads(state.accepted_content(key) or "{}")
        if "tools" not in sealed or "file" in sealed:  # a configuration
            continue
        folder, _, module = key.rpartition(":")
        name = module if folder == os.path.realpath(root) else key
        try:
            file = find_named(name, root)
        except FileUnreadable:
            continue  # it is gone
        if not state.is_accepted(file.key, file.seal):
            found.append(file)
    return found


def _lines(file: ToolsFile, tools: Mapping[str, Any], changes: list[str]) -> Iterator[str]:
    yield visible(file.place)
    yield f"SHA-256: {file.seal}"
    if changes:
        yield from ("", "Changed since it was accepted:")
        yield from (f"  {line}" for line in changes)
    yield from ("", "Its code:")
    yield from (f"  - {visible(name)} {digest}" for name, digest in file.code.items())
    yield from ("", "Its tools:")
    for name, said in tools.items():
        yield f"  - {visible(name)}"
        yield from (f"      {line}" for line in reviewed_lines(said))
    yield ""


def reviewed_lines(said: Mapping[str, Any]) -> Iterator[str]:
    """The same, a line for each field."""
    yield from (f"{key}: {_shown(value)}" for key, value in said.items())


def _shown(value: Any) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
