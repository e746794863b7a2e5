"""`toolkeep list`: list the tools by category and name."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from toolkeep.calls import RegisteredTool
from toolkeep.cli.isolation_notice import say_unconfined
from toolkeep.cli.options import common, files, print_json, project, say, tools_argument
from toolkeep.cli.tables import Column, say_table
from toolkeep.cli.tool_selection import keep_with, named_tools
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import CallKind, Category, Danger, ToolState
from toolkeep.keep.keep import Keep
from toolkeep.registry.tool_provider import FILES
from toolkeep.text.display import counted, shorten, visible

_COLUMNS = (
    Column("NAME"),
    Column("DANGER"),
    Column("STATE"),
    Column("DESCRIPTION", narrowest=24, is_optional=True),
    Column("CATEGORY", is_optional=True),
    Column("VERSION", is_optional=True),
    Column("RISK", is_optional=True),
)
_DESCRIPTION_CHARS = 60
"""Characters of a description in a row, beside six other columns; `toolkeep show` prints all of it."""
_MANY = 10_000


def _words(words: Sequence[str]) -> click.Choice[str]:
    return click.Choice(list(words), case_sensitive=False)


@click.command("list")
@tools_argument
@click.option("--category", type=_words([word.value for word in Category]), help="Only this category.")
@click.option("--danger", type=_words([word.value for word in Danger]), help="Only this danger.")
@click.option(
    "--kind",
    type=_words([word.value for word in CallKind]),
    default=CallKind.TOOL.value,
    help="Tools, or what upstream MCP servers pass on beside tools.",
)
@click.option("--source", type=_words(get_args(SourceKind)), help="Only tools from this kind of source.")
@click.option("--state", type=_words([word.value for word in ToolState]), help="Only tools in this state.")
@click.option("--search", metavar="TEXT", help="Only tools that match these words, best match first.")
@click.option("--tools", "added", multiple=True, metavar="FILE", help="Also list the tools of this file.")
@files
@project
@common
def command(
    *,
    tools: tuple[str, ...],
    added: tuple[str, ...],
    search: str | None,
    kind: str,
    files: tuple[Path, ...],
    project: Path | None,
    as_json: bool,
    **filters: str | None,
) -> None:
    """List the tools, or only those of a Python FILE or module of @tool functions."""
    keep = keep_with(files, project, tools=named_tools((*tools, *added), project))
    candidates = [tool for tool in keep.tools(kind=kind) if not tools or tool.provider == FILES]
    if search is not None:
        from toolkeep.registry.search import ToolSearch

        candidates = ToolSearch().find(search, {tool.name: tool for tool in candidates}, limit=_MANY)
    shown = [tool for tool in candidates if _fits(tool, filters)]
    if as_json:
        print_json([{**_data(tool), "unconfined": keep.may_run_unconfined(tool)} for tool in shown])
        return
    say_table(_COLUMNS, [_row(tool) for tool in shown])
    say("", _summary(keep, CallKind(kind), shown))
    say_unconfined(keep, shown)
    for tool in shown:
        if tool.is_undeclared:
            from toolkeep.authoring.declaration_advice import declaration

            line = declaration(tool.definition, tool.runner)
            say(f"{tool.name} declares no side effects, so every call needs approval. Declare them: {line}")


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
        definition.danger_level.value,
        tool.state.value,
        shorten(visible(definition.description.split("\n")[0]), _DESCRIPTION_CHARS),
        definition.category.value,
        definition.version,
        definition.category.risk,
    )


def _summary(keep: Keep, kind: CallKind, shown: Sequence[RegisteredTool]) -> str:
    tools = keep.tools(kind=kind)
    counts = Counter(tool.state for tool in tools)
    details = [
        f"{counts[state]} {state.value}" for state in ToolState if counts[state] and state != "enabled"
    ]
    if keep.start_up.skipped:
        details.append(f"{len(keep.start_up.skipped)} skipped")
    if len(shown) != len(tools):
        details.insert(0, f"{len(shown)} shown")
    total = f"Total: {counted(len(tools), kind.value)}"
    return f"{total} ({', '.join(details)})" if details else total
