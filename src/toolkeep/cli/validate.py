"""`toolkeep validate`: check the arguments of a call, and suggest repairs."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from toolkeep.calls import CheckedCall, Refusal
from toolkeep.cli.call_arguments import arguments, read_arguments
from toolkeep.cli.options import common, files, print_json, project, say, say_done, say_failed, tools_option
from toolkeep.cli.tool_selection import complete_name, keep_with, named_tools
from toolkeep.keep.keep import Keep


@click.command("validate")
@click.argument("name", shell_complete=complete_name)
@arguments
@tools_option
@files
@project
@common
def command(
    name: str,
    arguments: tuple[str, ...],
    tools: tuple[str, ...],
    files: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Check ARGUMENTS against the tool NAME: key=value words, key:=JSON words, or one JSON object.

    Values are strings, or of the type in the tool's schema. Without ARGUMENTS, or with -, JSON is read from
    standard input, unless the tool takes none.

    Nothing is run. Exit status 0 if the call would be accepted, 1 if not.
    """
    keep = keep_with(files, project, tools=named_tools(tools, project))
    text = read_arguments(arguments, keep, name)
    check = keep.try_validate_arguments(name, text, agent="operator")
    if as_json:
        print_json(_data(check))
    elif isinstance(check, CheckedCall):
        _print_passed(check)
    else:
        _print_refusal(keep, check)
    if not check.success:
        sys.exit(1)


def _shown(check: CheckedCall) -> Any:
    """The parsed arguments without secrets."""
    return check.registered.arguments.secrecy.redact(check.arguments)


def _data(check: CheckedCall | Refusal) -> dict[str, Any]:
    data = check.to_dict()
    return {**data, "arguments": _shown(check)} if isinstance(check, CheckedCall) else data


def _print_passed(check: CheckedCall) -> None:
    say_done(f"Validation passed for tool '{check.tool}'")
    say("", "Parsed arguments:")
    print_json(_shown(check))


def _print_refusal(keep: Keep, refusal: Refusal) -> None:
    say_failed(f"Validation failed for tool '{refusal.tool}'")
    say("", "Errors:")
    for error in refusal.errors:
        say(f"  [{error.code}] {error.message}.")
        for label, text in (("Path", error.path), ("Expected", error.expected), ("Received", error.actual)):
            if text:
                say(f"      {label}: {text}")
        say(f"      Suggestion: {error.suggestion}")
    if refusal.schema_hint:
        _print_way_out(keep, refusal)
    say("", f"Correlation id: {refusal.correlation_id}")


def _print_way_out(keep: Keep, refusal: Refusal) -> None:
    from toolkeep.validation.example import example_call

    say("", f"Signature: {refusal.schema_hint}")
    example = example_call(keep.get(refusal.tool))
    if example is not None:
        say(f"Example: {json.dumps(example, ensure_ascii=False)}")
    if refusal.repair:
        say(f"Repair (JSON Patch): {json.dumps(refusal.repair, ensure_ascii=False)}")
