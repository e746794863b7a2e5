"""`toolkeep new`: write a tool with tests that pass."""

import builtins
import keyword
import sys
from pathlib import Path
from string import Template

import click

from toolkeep.cli.options import common, is_terminal, print_json, say, say_done, write_new
from toolkeep.cli.project_tools import add_to_project, project_of
from toolkeep.config.paths import PROJECT_FILE
from toolkeep.definitions.tool_names import wrong_with_author_name
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import is_there

_FUNCTION = Template('''\
"""The tool `$name`."""

from typing import Annotated

from pydantic import Field

from toolkeep import tool


@tool(effects="none", determinism="Pure")
def $name(text: Annotated[str, Field(max_length=10_000)]) -> dict[str, int]:
    """Count the words of a text.

    Say here, in one or two sentences, what the tool does: a model chooses it by them.

    Args:
        text: The text to look at.
    """
    return {"words": len(text.split())}
''')

_FUNCTION_TEST = Template('''\
"""The contract of `$name`, and what it does."""

from $name import $name

from toolkeep import open_keep
from toolkeep.testing import check_tool


def test_${name}_keeps_its_contract() -> None:
    check_tool($name, {"text": "two words"}, bad_arguments=[{}, {"text": 1}, {"text": "a", "other": 1}])


def test_${name}_counts_words() -> None:
    assert $name("two words") == {"words": 2}


def test_a_wrong_call_of_${name}_is_refused_with_the_place() -> None:
    with open_keep(built_in=False) as keep:
        keep.register($name)
        (error,) = keep.try_validate_arguments("$name", {"text": 1}).errors
    assert error.path == "/text"
''')

_CLASS = Template('''\
"""The tool `$name`, as an agent-tool class."""

import json
import logging
from typing import Any, ClassVar

from toolkeep import InvokeResult, ToolContext


class $class_name:
    """Counts the words of a text."""

    TOOL_NAME = "$name"
    TOOL_USAGE_METADATA = "Say here when a model should use the tool."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = {"effects": "none"}

    is_tool_fully_executed_on_server = True

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    @property
    def name(self) -> str:
        """The name under which the tool is called."""
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        """The function schema that a model sees."""
        return {
            "type": "function",
            "name": $class_name.TOOL_NAME,
            "description": "Count the words of a text.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "The text to look at.", "maxLength": 10000}
                },
                "required": ["text"],
            },
        }

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        """The number of words; a blank text is a failed result."""
        try:
            text = json.loads(arguments_json)["text"]
        except (ValueError, KeyError, TypeError):
            return InvokeResult.failed("Arguments must be a JSON object with a 'text'.")
        try:
            if not text.strip():
                return InvokeResult.failed("'text' is blank; give some words.")
            return InvokeResult.ok(json.dumps({"words": len(text.split())}))
        except Exception:
            self._logger.exception("$name failed")
            return InvokeResult.failed("The words could not be counted.")
''')

_CLASS_TEST = Template('''\
"""The contract of `$name`, and what it does."""

import asyncio
import json
import logging

from $name import $class_name

from toolkeep import InvokeResult
from toolkeep.testing import RecordingContext, check_tool


def run(arguments: dict[str, object]) -> InvokeResult:
    tool = $class_name(logging.getLogger("test"))
    return asyncio.run(tool.execute(json.dumps(arguments), RecordingContext().context()))


def test_${name}_keeps_its_contract() -> None:
    check_tool($class_name, {"text": "two words"}, bad_arguments=[{}, {"text": 1}, {"text": " "}])


def test_${name}_counts_words() -> None:
    assert json.loads(run({"text": "two words"}).result_json) == {"words": 2}


def test_a_blank_text_is_a_failed_result_that_says_so() -> None:
    result = run({"text": " "})
    assert not result.successful
    assert "blank" in result.error_message
''')


_OURS = frozenset({"toolkeep", "pydantic", "pytest", "tool", "open_keep", "check_tool"})


def _is_taken(name: str) -> bool:
    """Whether a module or function of that name would shadow one that it needs."""
    is_theirs = keyword.iskeyword(name) or hasattr(builtins, name) or name in sys.stdlib_module_names
    return is_theirs or name in _OURS or name.startswith("test_")


@click.command("new")
@click.argument("name")
@click.option("--class", "is_class", is_flag=True, help="Create an agent-tool class instead of a function.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder to write to; the working folder by default.",
)
@common
def command(name: str, folder: Path, *, is_class: bool, as_json: bool) -> None:
    """Create a tool NAME.py and its tests test_NAME.py, which pass.

    Nothing that exists is overwritten. In a project, on a terminal, the file is added to `tools` of
    .agent/config.yml, so that `toolkeep call NAME` finds it.
    """
    wrong = wrong_with_author_name(name) or ("is taken in Python" if _is_taken(name) else None)
    if wrong:
        raise click.UsageError(f"'{name[:64]}' {wrong}.")
    words = {"name": name, "class_name": "".join(map(str.capitalize, name.split("_"))) + "Tool"}
    tool, test = (_CLASS, _CLASS_TEST) if is_class else (_FUNCTION, _FUNCTION_TEST)
    made = {folder / f"{name}.py": tool, folder / f"test_{name}.py": test}
    for path in made:
        if is_there(path):
            raise FileUnreadable(str(path), "exists already; choose another name, or move it away")
    for path, text in made.items():
        write_new(path, text.substitute(words))
    if as_json:
        print_json({"written": list(map(str, made))})
        return
    for path in made:
        say_done(f"wrote {path}")
    what = words["class_name"] if is_class else name
    code, tests = made
    call = f'toolkeep call {name} text="two words"'
    if (root := _project(code)) is None:
        call = f'toolkeep call --tools {code} {name} text="two words"'
    elif not add_to_project(root, code, made[code].substitute(words)):
        say_done(f"named it under `tools` of {root / PROJECT_FILE}; accept that: toolkeep accept")
    else:
        say_done(f"named it under `tools` of {root / PROJECT_FILE}, and accepted that")
    say("", f"Run its tests: pytest {tests}")
    say(f"Call it:       {call}")
    say(f"In a program:  from {name} import {what}; keep.register({what})")


def _project(code: Path) -> Path | None:
    """The project whose configuration names the new file; on a terminal only.

    Elsewhere nobody could accept the changed configuration, and until then all of it would be held back.
    """
    return project_of(code) if is_terminal(sys.stdin) else None
