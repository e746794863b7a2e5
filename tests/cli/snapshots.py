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

READ_NOTE = {
    "name": "read_note",
    "description": "Read the contents of a note from the filesystem",
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
    "tools.json": json.dumps({"tools": [READ_NOTE]}),
    "some_broken.yml": SOME_BROKEN,
    "not_yaml.yml": "name: x\n  description: [unclosed\n",
    "twice.yml": "name: x\nname: y\n",
    "not_json.json": '{"name": "x",}',
    "text.json": '"just text"',
    "none.json": "[]",
}

GREETING = """\
tools:
  custom_tools:
    - name: custom_greeting
      version: 1.0.0
      category: Custom
      description: Generates a personalized greeting message
      parameters:
        type: object
        properties:
          name:
            type: string
            description: Name of the person to greet
            maxLength: 100
          style:
            type: string
            enum: [formal, casual, enthusiastic]
            default: casual
        required:
          - name
        additionalProperties: false
"""
BROKEN = """\
tools:
  custom_tools:
    - name: broken_tool
      version: 1.0.0
      description: This tool has an invalid schema
      parameters:
        type: object
        properties:
          value:
            type: invalid_type_name
"""
HOSTILE = """\
tool_registry:
  max_schema_size: 102400
  providers: [somebody]
  custom_tools:
    - name: greet
      version: 1.0.0
      description: Greet ${USER_NAME:-somebody}
      run: {command: [./bin/greet, --json]}
agents:
  writer:
    capabilities: ["fs.read:./docs"]
"""
HOSTILE_HASH = "189ac59745979e29c6cab7174f123ae7ecb4fef83a8df5c31e86860a2d6e9891"
"""As `toolkeep accept` shows it: of what the file says, together with the code that it names."""
UNKNOWN_KEY = "tool_registry:\n  strict_mode: true\n  custom_tool: []\n"

USER = {"~/.acode/config.yml": GREETING}
SKIPS = {"~/.acode/config.yml": BROKEN}
CLONE = {".agent/config.yml": HOSTILE}
ODD = {".agent/config.yml": UNKNOWN_KEY}
CLOSED = {".agent/config.yml": "disabled_tools: [agent_hello_world]\n"}

T = ("-f", "tools.json")
B = ("-f", "some_broken.yml")


class Case(NamedTuple):
    """One run of the command."""

    name: str
    arguments: tuple[str, ...]
    text: str | None = None
    files: dict[str, str] = {}  # noqa: RUF012 -- read, never changed
    """More files; `~` is the home folder."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that ran before in the same folder."""


CASES = [
    Case("help", ("--help",)),
    Case("version", ("--version",)),
    Case("no_such_command", ("validat",)),
    Case("validate_passes", ("validate", "read_note", '{"path": "/tmp/test.txt"}', *T)),
    Case("validate_from_standard_input", ("validate", "read_note", *T), '{"path": "x", "start_line": 3.0}'),
    Case("validate_from_standard_input_by_dash", ("validate", "read_note", "-", *T), '{"path": "x"}'),
    Case("validate_missing", ("validate", "read_note", "{}", *T)),
    Case("validate_wrong_type", ("validate", "read_note", '{"path": 12345}', *T)),
    Case(
        "validate_two_faults",
        ("validate", "read_note", '{"path": "/t", "encoding": "UTF-8", "start_line": "5"}', *T),
    ),
    Case("validate_enum", ("validate", "read_note", '{"path": "/t", "encoding": "invalid-encoding"}', *T)),
    Case("validate_unknown_property", ("validate", "read_note", '{"pth": "/t"}', *T)),
    Case(
        "validate_secret",
        ("validate", "read_note", '{"path": "/t", "password": "much-too-long-a-secret"}', *T),
    ),
    Case("validate_unknown_tool", ("validate", "read_not", '{"arg": "value"}', *T)),
    Case("validate_unlike_any_tool", ("validate", "nonexistent_tool", "{}", *T)),
    Case("validate_not_json", ("validate", "read_note", '{"path": ', *T)),
    Case("validate_json_passes", ("validate", "read_note", '{"path": "x", "password": "s"}', "--json", *T)),
    Case("validate_json_fails", ("validate", "read_note", '{"path": 1}', "--json", *T)),
    Case("validate_custom_tool", ("validate", "custom_greeting", '{"name": "Alice", "style": "formal"}', *B)),
    Case("validate_with_logs", ("validate", "read_note", '{"path": 1}', "--log-level", "debug", *T)),
    Case("validate_without_name", ("validate",)),
    Case("validate_missing_file", ("validate", "x", "{}", "-f", "missing.json")),
    Case("show", ("show", "read_note", *T)),
    Case("show_json", ("show", "read_note", "--json", *T)),
    Case("show_for_a_provider", ("show", "read_note", "--format", "gemini", *T)),
    Case("show_for_a_provider_json", ("show", "read_note", "--format", "openai", "--strict", "--json", *T)),
    Case("show_for_an_unknown_provider", ("show", "read_note", "--format", "skynet", *T)),
    Case("show_unknown", ("show", "read_fle", *T)),
    Case("show_unknown_json", ("show", "read_fle", "--json", *T)),
    Case("list", ("list", *T)),
    Case("list_json", ("list", "--json")),
    Case("list_skips_broken_tools", ("list", *B)),
    Case("list_by_category", ("list", "--category", "file_system", *T)),
    Case("list_by_danger", ("list", "--danger", "high", *T)),
    Case("list_by_state", ("list", "--state", "disabled"), before=(("disable", "agent_hello_world"),)),
    Case("list_by_source", ("list", "--source", "mcp")),
    Case("list_by_words", ("list", "--search", "notes", *T)),
    Case("list_at_start_up", ("list", "--log-level", "debug")),
    Case("list_with_custom_tool", ("list",), files=USER),
    Case("list_with_broken_custom_tool", ("list", "--log-level", "info"), files=SKIPS),
    Case("list_unknown_key", ("list",), files=ODD),
    Case("list_unknown_key_json", ("list", "--json"), files=ODD),
    Case(
        "list_unmatched",
        ("list",),
        files={"~/.agent/config.yml": "disabled_tools: [agent_hello, read_note@1.0.0]\n"},
    ),
    Case("list_clone", ("list",), files=CLONE),
    Case("show_custom_tool", ("show", "custom_greeting"), files=USER),
    Case("validate_configured_tool", ("validate", "custom_greeting", '{"name": "Alice"}'), files=USER),
    Case("validate_clone", ("validate", "greet", "{}"), files=CLONE),
    Case("disable", ("disable", "agent_hello_world")),
    Case("disable_json", ("disable", "agent_hello_world@1.0.0", "--json")),
    Case("disable_unknown", ("disable", "agent_hello_word")),
    Case("disable_unknown_version", ("disable", "agent_hello_world@9.0.0")),
    Case("enable", ("enable", "AGENT_HELLO_WORLD"), before=(("disable", "agent_hello_world"),)),
    Case("enable_one_unknown", ("enable", "agent_hello_world", "nobody")),
    Case("enable_closed", ("enable", "agent_hello_world"), files=CLOSED),
    Case(
        "validate_disabled",
        ("validate", "agent_hello_world", '{"name": "Ada"}'),
        before=(("disable", "agent_hello_world"),),
    ),
    Case("accept_shows_and_refuses_without_a_person", ("accept",), files=CLONE),
    Case("accept_by_hash", ("accept", "--hash", HOSTILE_HASH), files=CLONE),
    Case("accept_by_wrong_hash", ("accept", "--hash", "0" * 64), files=CLONE),
    Case("accept_json", ("accept", "--json", "--hash", HOSTILE_HASH), files=CLONE),
    Case("accept_json_without_a_hash", ("accept", "--json"), files=CLONE),
    Case("accept_again", ("accept",), files=CLONE, before=(("accept", "--hash", HOSTILE_HASH),)),
    Case("accept_inert", ("accept",), files=CLOSED),
    Case("accept_nothing", ("accept",)),
    Case("accept_unknown_tool", ("accept", "read_note")),
    Case("list_accepted", ("list",), files=CLONE, before=(("accept", "--hash", HOSTILE_HASH),)),
    Case("init", ("init",)),
    Case("init_twice", ("init",), before=(("init",),)),
    Case("list_after_init", ("list",), before=(("init",),)),
    Case("new", ("new", "word_count")),
    Case("new_class_json", ("new", "word_count", "--class", "--json")),
    Case("new_twice", ("new", "word_count"), before=(("new", "word_count"),)),
    Case("new_bad_name", ("new", "Word Count")),
    Case("new_taken_name", ("new", "json")),
    Case("completion", ("completion", "bash")),
    Case("completion_unknown_shell", ("completion", "cmd")),
    Case("lint_everything", ("lint",)),
    Case("lint_tool", ("lint", "read_note", *T)),
    Case("lint_for_a_provider", ("lint", "read_note", "--provider", "gemini", "--provider", "openai", *T)),
    Case("lint_flow", ("lint", "read_note", "--flow", *T)),
    Case("lint_file", ("lint", "some_broken.yml")),
    Case("lint_file_json", ("lint", "some_broken.yml", "--json")),
    Case("lint_missing_file", ("lint", "missing.yml")),
    Case("lint_not_yaml", ("lint", "not_yaml.yml")),
    Case("lint_duplicate_key", ("lint", "twice.yml")),
    Case("lint_not_json", ("lint", "not_json.json", "--json")),
    Case("lint_no_definition", ("lint", "text.json")),
    Case("lint_empty_list", ("lint", "none.json")),
    Case("lint_code", ("lint", "word_count.py"), before=(("new", "word_count"),)),
    Case("lint_missing_code", ("lint", "missing.py")),
    Case("lint_missing_path", ("lint", "tools/missing")),
    Case("list_code", ("list", "-f", "word_count.py"), before=(("new", "word_count"),)),
    Case("call_empty_key", ("call", "agent_hello_world", '{"name": "Ada"}', "--key", "")),
    Case("call_no_time", ("call", "agent_hello_world", '{"name": "Ada"}', "--timeout", "0")),
]


@contextmanager
def folder_with_files(more: dict[str, str]) -> Iterator[tuple[Path, Path]]:
    """A fresh working folder that holds `FILES` and more, and a home folder of its own."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve()
        here, home = root / "here", root / "home"
        for name, text in {**FILES, **more}.items():
            path = home / name[2:] if name.startswith("~/") else here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        os.chdir(here)
        os.environ["HOME"] = str(home)
        for name in ("TOOLKEEP_HOME", "XDG_STATE_HOME"):
            os.environ.pop(name, None)
        try:
            yield here, home
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def outcome(case: Case) -> str:
    """Everything that a run shows, without what differs each time: ids, times, how fast the machine is, folders."""
    with folder_with_files(case.files) as (here, home):
        for arguments in case.before:
            CliRunner().invoke(cli, list(arguments), prog_name="toolkeep", catch_exceptions=False)
        result = CliRunner().invoke(cli, list(case.arguments), input=case.text, prog_name="toolkeep")
    stderr = f"--- stderr\n{result.stderr}" if result.stderr else ""
    shown = f"exit {result.exit_code}\n{result.stdout}{stderr}"
    shown = shown.replace(str(here), "<here>").replace(str(home), "<home>")
    shown = re.sub(r"^warning toolkeep.registry: slow to compile .*\n", "", shown, flags=re.MULTILINE)
    shown = re.sub(r"(_ms=)[0-9.]+", r"\1<ms>", shown)
    return re.sub(r"\b[0-9a-f]{16}\b", "<id>", shown)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for case in CASES:
        (FOLDER / f"{case.name}.txt").write_text(outcome(case))
