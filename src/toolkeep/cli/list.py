"""`toolkeep list`: list the tools by category and name."""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from toolkeep.authoring.declaration_advice import declaration
from toolkeep.calls import RegisteredTool
from toolkeep.cli.isolation_notice import say_unconfined
from toolkeep.cli.options import (
    common,
    files,
    is_terminal,
    print_json,
    project,
    say,
    say_columns,
    tools_argument,
)
from toolkeep.cli.tool_selection import keep_with, named_tools
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import Category, Danger, ToolState
from toolkeep.keep.keep import Keep
from toolkeep.registry.tool_provider import FILES
from toolkeep.text.display import counted, shorten, visible

if TYPE_CHECKING:
    from rich.text import Text

_HEADS = ("NAME", "VERSION", "CATEGORY", "RISK", "DANGER", "STATE", "DESCRIPTION")
_DESCRIPTION_CHARS = 60
"""Characters of a description in a row, beside six other columns; `toolkeep show` prints all of it."""
_MANY = 10_000
_WIDE_COLUMNS = 100
_NARROW_COLUMNS = 60


def _words(words: Sequence[str]) -> click.Choice[str]:
    return click.Choice(list(words), case_sensitive=False)


@click.command("list")
@tools_argument
@click.option("--category", type=_words([word.value for word in Category]), help="Only this category.")
@click.option("--danger", type=_words([word.value for word in Danger]), help="Only this danger.")
@click.option("--source", type=_words(get_args(SourceKind)), help="Only tools that come from there.")
@click.option("--state", type=_words([word.value for word in ToolState]), help="Only tools in this state.")
@click.option("--search", metavar="TEXT", help="Only tools that fit these words, the best first.")
@click.option("--plain/--table", "is_plain", default=None, help="Columns, or a table (on a terminal).")
@click.option("--tools", "added", multiple=True, metavar="FILE", help="List the tools of this file too.")
@files
@project
@common
def command(
    *,
    tools: tuple[str, ...],
    added: tuple[str, ...],
    search: str | None,
    is_plain: bool | None,
    files: tuple[Path, ...],
    project: Path | None,
    as_json: bool,
    **filters: str | None,
) -> None:
    """List the tools, or only those of a Python FILE or module of @tool functions."""
    keep = keep_with(files, project, tools=named_tools((*tools, *added), project))
    candidates = [tool for tool in keep.tools() if not tools or tool.provider == FILES]
    if search is not None:
        from toolkeep.registry.search import ToolSearch

        candidates = ToolSearch().find(search, {tool.name: tool for tool in candidates}, limit=_MANY)
    shown = [tool for tool in candidates if _fits(tool, filters)]
    if as_json:
        print_json([{**_data(tool), "unconfined": keep.may_run_unconfined(tool)} for tool in shown])
        return
    rows = [_row(tool) for tool in shown]
    is_narrow = shutil.get_terminal_size().columns < _NARROW_COLUMNS
    if is_plain or (is_plain is None and (is_narrow or not is_terminal(sys.stdout))):
        say_columns([_HEADS, *rows])
    else:
        _print_table(rows)
    say("", _summary(keep, shown))
    say_unconfined(keep, shown)
    for tool in shown:
        if tool.is_undeclared:
            line = declaration(tool.definition, tool.runner)
            say(f"{tool.name} declares no side effects, so each call is asked about; add {line}")


def _fits(tool: RegisteredTool, filters: dict[str, str | None]) -> bool:
    is_ = {
        "category": tool.definition.category.value,
        "danger": tool.definition.danger_level.value,
        "source": tool.definition.source.kind,
        "state": tool.state.value,
    }
    return all(wanted is None or is_[name] == wanted for name, wanted in filters.items())


def _data(tool: RegisteredTool) -> dict[str, Any]:
    definition = tool.definition
    return {
        **definition.to_dict(),
        "parameters": list(definition.properties),
        "risk": definition.category.risk,
        "state": tool.state.value,
        "why": tool.why,
        "provider": tool.provider,
        "definition_hash": tool.definition_hash,
    }


def _row(tool: RegisteredTool) -> tuple[str, ...]:
    definition = tool.definition
    return (
        definition.name,
        definition.version,
        definition.category.value,
        definition.category.risk,
        definition.danger_level.value,
        tool.state.value,
        shorten(visible(definition.description.split("\n")[0]), _DESCRIPTION_CHARS),
    )


def _summary(keep: Keep, shown: Sequence[RegisteredTool]) -> str:
    tools = keep.tools()
    counts = Counter(tool.state for tool in tools)
    details = [
        f"{counts[state]} {state.value}" for state in ToolState if counts[state] and state != "enabled"
    ]
    if keep.start_up.skipped:
        details.append(f"{len(keep.start_up.skipped)} skipped")
    if len(shown) != len(tools):
        details.insert(0, f"{len(shown)} shown")
    total = f"Total: {counted(len(tools), 'tool')}"
    return f"{total} ({', '.join(details)})" if details else total


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    left_out = {"VERSION", "RISK", "DANGER"} if console.width < _WIDE_COLUMNS else set()
    shown = [column for column, head in enumerate(_HEADS) if head not in left_out]
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in shown:
        head = _HEADS[column]
        table.add_column(_cell(head, head), overflow="fold", no_wrap=head != "DESCRIPTION")
    for row in rows:
        table.add_row(*(_cell(row[column], _HEADS[column]) for column in shown))
    console.print(table)


def _cell(text: str, head: str) -> "Text":
    """A table cell; descriptions are truncated to keep one line for each tool."""
    from rich.text import Text

    cell = Text(text, style=_STYLES.get(text, ""))
    if head == "DESCRIPTION":
        cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


_STYLES: dict[str, str] = {
    ToolState.DISABLED.value: "dim",
    ToolState.QUARANTINED.value: "yellow",
    Danger.MEDIUM.value: "yellow",
    Danger.HIGH.value: "red",
    Danger.CRITICAL.value: "bold red",
}
