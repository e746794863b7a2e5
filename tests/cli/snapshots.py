"""Whole outputs of the command: exit status, stdout, stderr, one file each in `snapshots/`.

After a change of wording: `python -m tests.cli.snapshots` writes them anew; read the difference.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from toolkeep.cli.main import cli

FOLDER = Path(__file__).parent / "snapshots"

READ_FILE = {
    "name": "read_file",
    "description": "Read the contents of a file from the filesystem",
    "category": "FileSystem",
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "maxLength": 4096, "description": "Absolute or relative path"},
            "encoding": {
                "type": "string",
                "enum": ["utf-8", "ascii", "utf-16", "utf-32"],
                "default": "utf-8",
                "description": "Character encoding",
            },
            "start_line": {"type": "integer", "minimum": 1, "description": "First line, 1-based"},
            "password": {
                "type": "string",
                "x-secret": True,
                "default": "hunter2",
                "description": "Key",
                "maxLength": 9,
            },
        },
        "required": ["path"],
    },
}

SOME_BROKEN = """\
- name: broken_tool
  description: Its schema names a type that does not exist
  parameters:
    type: object
    properties:
      value: {type: invalid_type_name}
- name: Bad Name
  description: ""
  version: one
  parameters:
    type: object
    properties:
      text: {type: string, description: Some text, pattern: "[a-z]", minlength: 3}
      list: {}
- name: custom_greeting
  description: Generates a personalized greeting message
  version: 1.0.0
  category: Custom
  parameters:
    type: object
    properties:
      name: {type: string, description: Name of the person to greet, maxLength: 100}
      style: {type: string, description: How to greet, enum: [formal, casual, enthusiastic], default: casual}
    required: [name]
"""

FILES = {
    "tools.json": json.dumps({"tools": [READ_FILE]}),
    "some_broken.yml": SOME_BROKEN,
    "not_yaml.yml": "name: x\n  description: [unclosed\n",
    "twice.yml": "name: x\nname: y\n",
    "not_json.json": '{"name": "x",}',
    "text.json": '"just text"',
}

T = ("-f", "tools.json")
B = ("-f", "some_broken.yml")


class Case(NamedTuple):
    """One run of the command."""

    name: str
    arguments: tuple[str, ...]
    text: str | None = None


CASES = [
    Case("help", ("--help",)),
    Case("version", ("--version",)),
    Case("no_such_command", ("validat",)),
    Case("validate_passes", ("validate", "read_file", '{"path": "/tmp/test.txt"}', *T)),
    Case("validate_from_standard_input", ("validate", "read_file", *T), '{"path": "x", "start_line": 3.0}'),
    Case("validate_from_standard_input_by_dash", ("validate", "read_file", "-", *T), '{"path": "x"}'),
    Case("validate_missing", ("validate", "read_file", "{}", *T)),
    Case("validate_wrong_type", ("validate", "read_file", '{"path": 12345}', *T)),
    Case(
        "validate_two_faults",
        ("validate", "read_file", '{"path": "/t", "encoding": "UTF-8", "start_line": "5"}', *T),
    ),
    Case("validate_enum", ("validate", "read_file", '{"path": "/t", "encoding": "invalid-encoding"}', *T)),
    Case("validate_unknown_property", ("validate", "read_file", '{"pth": "/t"}', *T)),
    Case(
        "validate_secret",
        ("validate", "read_file", '{"path": "/t", "password": "much-too-long-a-secret"}', *T),
    ),
    Case("validate_unknown_tool", ("validate", "read_fil", '{"arg": "value"}', *T)),
    Case("validate_unlike_any_tool", ("validate", "nonexistent_tool", "{}", *T)),
    Case("validate_not_json", ("validate", "read_file", '{"path": ', *T)),
    Case("validate_json_passes", ("validate", "read_file", '{"path": "x", "password": "s"}', "--json", *T)),
    Case("validate_json_fails", ("validate", "read_file", '{"path": 1}', "--json", *T)),
    Case("validate_custom_tool", ("validate", "custom_greeting", '{"name": "Alice", "style": "formal"}', *B)),
    Case("validate_with_logs", ("validate", "read_file", '{"path": 1}', "--log-level", "debug", *T)),
    Case("validate_without_name", ("validate",)),
    Case("validate_missing_file", ("validate", "x", "{}", "-f", "missing.json")),
    Case("show", ("show", "read_file", *T)),
    Case("show_json", ("show", "read_file", "--json", *T)),
    Case("show_unknown", ("show", "read_fle", *T)),
    Case("show_unknown_json", ("show", "read_fle", "--json", *T)),
    Case("list", ("list", *T)),
    Case("list_json", ("list", "--json")),
    Case("list_skips_broken_tools", ("list", *B)),
    Case("lint_everything", ("lint",)),
    Case("lint_tool", ("lint", "read_file", *T)),
    Case("lint_file", ("lint", "some_broken.yml")),
    Case("lint_file_json", ("lint", "some_broken.yml", "--json")),
    Case("lint_missing_file", ("lint", "missing.yml")),
    Case("lint_not_yaml", ("lint", "not_yaml.yml")),
    Case("lint_duplicate_key", ("lint", "twice.yml")),
    Case("lint_not_json", ("lint", "not_json.json", "--json")),
    Case("lint_no_definition", ("lint", "text.json")),
]


@contextmanager
def folder_with_files() -> Iterator[None]:
    """A fresh working folder that holds `FILES`."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def outcome(case: Case) -> str:
    """Everything that a run shows; correlation ids differ each time and are left out."""
    with folder_with_files():
        result = CliRunner().invoke(cli, list(case.arguments), input=case.text, prog_name="toolkeep")
    stderr = f"--- stderr\n{result.stderr}" if result.stderr else ""
    shown = f"exit {result.exit_code}\n{result.stdout}{stderr}"
    return re.sub(r"\b[0-9a-f]{16}\b", "<id>", shown)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for case in CASES:
        (FOLDER / f"{case.name}.txt").write_text(outcome(case))
