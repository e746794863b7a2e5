"""Adds a new Python file of tools to `tools:` of the project's configuration, and accepts what it added."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from toolkeep.cli.config_edit import block_end, parsed
from toolkeep.config.consent import tools_effect
from toolkeep.config.paths import PROJECT_FILE
from toolkeep.config.settings import ConfigFile
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import check_inside
from toolkeep.json_values.yaml import read_yaml
from toolkeep.keep.open import open_state, project_folder, read_configuration
from toolkeep.storage.atomic_files import write_whole

_SECTION = re.compile(r"^tools:[ \t]*(?P<list>\[.*\])?[ \t]*(#.*)?$", re.MULTILINE)


def project_of(path: Path) -> Path | None:
    """The project with a configuration that a file lies in."""
    root = project_folder()
    is_inside = path.resolve().is_relative_to(root.resolve())
    return root if is_inside and (root / PROJECT_FILE).is_file() else None


def add_to_project(root: Path, path: Path, text: str) -> bool:
    """Name a file that was written with this text under `tools:`; returns whether it is in effect.

    It is if the configuration was before, and differs in nothing but this file. The person ran the command
    that wrote both.
    """
    state = open_state(root)
    before = _project_file(root)
    name = str(path.resolve().relative_to(root.resolve()))
    _write(root, name)
    after = _project_file(root)
    if state is None or before is None or after is None or not before.counts:
        return False
    if _without(after, name, text) != _facts(before):
        return False
    state.accept(after.path, after.seal, after.content)
    return True


def _project_file(root: Path) -> ConfigFile | None:
    return next((file for file in read_configuration(root, open_state(root)).files if file.is_project), None)


def _without(file: ConfigFile, name: str, text: str) -> dict[str, Any] | None:
    """The content of the file before one of tools was named, if that has this text; else None."""
    content = _facts(file)
    if content["code"].pop(name, None) != hashlib.sha256(text.encode()).hexdigest():
        return None
    content["file"]["tools"].remove(name)
    content["effects"].remove(["runs", tools_effect(name)])
    return content


def _facts(file: ConfigFile) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.content)
    data = content["file"] or {}
    return {**content, "file": {**data, "tools": data.get("tools") or []}}


def _write(root: Path, name: str) -> None:
    path = root / PROJECT_FILE
    check_inside(root, path)
    before = path.read_text()
    data = read_yaml(before.encode(), str(path)).data or {}
    listed = data.get("tools") if isinstance(data, dict) else None
    after = _inserted(before, name)
    expected = {**data, "tools": [*(listed or []), name]} if isinstance(listed, list | None) else None
    # Parsed again: a text that cannot be extended this way is left as it is.
    if expected is None or parsed(after, path) != expected:
        hint = f"add it by hand, under `tools`: {name}"
        raise FileUnreadable(str(path), f"its `tools` cannot be edited automatically; {hint}")
    write_whole(path, after.encode())
    path.chmod(0o644)


def _inserted(text: str, name: str) -> str:
    """The text with the file last under `tools:`, which is added if missing."""
    start = text if not text or text.endswith("\n") else f"{text}\n"
    section = _SECTION.search(start)
    if section is None:
        return f"{start}tools:\n  - {json.dumps(name)}\n"
    if (listed := section["list"]) is not None:
        inside = ", ".join(filter(None, (listed[1:-1].strip(), json.dumps(name))))
        return f"{start[: section.start('list')]}[{inside}]{start[section.end('list') :]}"
    lines = start.splitlines(keepends=True)
    end = block_end(lines, start.count("\n", 0, section.end()) + 1, 0)
    return "".join([*lines[:end], f"  - {json.dumps(name)}\n", *lines[end:]])
