"""`toolkeep accept FILE`: accept a Python file or module of tools, to be named without a terminal."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolkeep.cli.acceptance import confirm, difference_lines, finish
from toolkeep.cli.options import say, warn
from toolkeep.cli.tools_files import find_named
from toolkeep.config.tools_file import ToolsFile
from toolkeep.errors import DefinitionInvalid, NotAccepted
from toolkeep.keep.open import module_reader, read_configuration
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.text.display import visible

_REVIEWED = ("description", "danger", "side_effects", "capabilities", "required_permissions")
"""Fields of a definition that say what a tool may do."""


def accept_tools(name: str, root: Path, state: KeepState, given_hash: str | None, *, as_json: bool) -> None:
    """Show the code and the tools of a file, and ask."""
    file = find_named(name, root)
    tools = _tools(file, root)
    data = {"path": file.place, "hash": file.seal, "code": dict(file.code), "tools": tools}
    content = json.dumps({"code": dict(file.code), "tools": tools}, ensure_ascii=False)
    before = state.accepted_content(file.key)
    if not as_json:
        for line in _lines(file, tools, before, content):
            say(line)
    confirm(file.seal, given_hash, {"accepted": False, **data} if as_json else None)
    # The person saw the tools of the code as it was when it was hashed.
    if find_named(name, root).seal != file.seal:
        raise NotAccepted(f"{visible(file.shown)} changed meanwhile", hint="review it again")
    state.accept(file.key, file.seal, content)
    finish({"accepted": True, **data}, f"accepted {visible(file.shown)}", as_json)
    for waiting in read_configuration(root, state).files:
        if not waiting.counts and waiting.code.keys() & file.code.keys():
            warn(f"{waiting.why_held_back}. It uses this code too; accept it as well: toolkeep accept")


def _tools(file: ToolsFile, root: Path) -> dict[str, Any]:
    """What each tool says about itself, read in a confined worker."""
    found = module_reader(root).read(file.shown, file.place, file.places)
    if broken := [one for one in found if one.definition is None]:
        raise DefinitionInvalid(broken[0].reference, broken[0].problems)
    said = [one.definition or {} for one in found]
    return {str(one.get("name")): reviewed(one) for one in said}


def reviewed(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What a definition says that a person has to judge."""
    return {key: definition[key] for key in _REVIEWED if key in definition}


def _lines(file: ToolsFile, tools: Mapping[str, Any], before: str | None, content: str) -> Iterator[str]:
    yield visible(file.place)
    yield f"SHA-256: {file.seal}"
    if before:
        yield from ("", "Changed since it was accepted:")
        yield from (f"  {line}" for line in difference_lines(before, content))
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
