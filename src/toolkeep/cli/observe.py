"""`toolkeep add mcp --observe`: show what a server asked for, and let a person grant it line by line.

Nothing is granted by default: not by Enter, not without a terminal.
"""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from msgspec.structs import replace

from toolkeep.cli.approval_prompt import can_ask, forget_typed
from toolkeep.cli.danger_dialogue import reading_tools, typed_line
from toolkeep.cli.options import is_agreed, print_json, say
from toolkeep.cli.progress import progress
from toolkeep.cli.upstream_access import started_entry, trusted_paths_of
from toolkeep.errors import ImportRefused
from toolkeep.execution.observation.proposed_grant import Observation, Proposal, propose_grant
from toolkeep.mcp_client.observe_server import SampleCall, observe_server
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.text.display import counted, echo_name, shorten, visible, visible_lines

_NUMBERS: Final = re.compile(r"[\d\s,]*")
_OWN_OPTIONS: Final = frozenset(("observe", "calls", "as_json", "log_level", "yes"))
_AGAIN: Final = "A call failed. Observe again, with the content of the files that it may read?"
_READING: Final = 50
"""Reading tools that are printed as options."""
_REASON: Final = 160
"""Characters of why a call failed."""


def ask_for_grant(
    root: Path,
    name: str,
    entry: dict[str, Any],
    packages: PinnedPackages | None,
    calls: Sequence[str],
    *,
    is_asked: bool,
    as_json: bool,
) -> None:
    """Observe a server, and add to its entry what the person grants; exits where nobody can be asked.

    To be called from the command itself, whose options are printed again with those of the grant.
    """
    if "command" not in entry:
        raise ImportRefused(
            f"'{name}'", "is not a program, and only programs are observed", hint="leave --observe out"
        )
    samples = [_sample_call(text) for text in calls]
    tools = [tool for tool, _ in samples]
    while True:
        observation, proposal = _observed(root, name, entry, packages, samples)
        if as_json or not (is_asked and can_ask()):
            break
        _show(observation, proposal, tools)
        granted = [proposal.lines[number].capability for number in _ticked(len(proposal.lines))]
        entry.update({"capabilities": [*(entry.get("capabilities") or ()), *granted]} if granted else {})
        # A call that failed on an empty file goes further with its content.
        if not any(observation.calls) or not any(one.startswith("fs.read:") for one in granted):
            return
        forget_typed()
        if not is_agreed(_AGAIN):
            return
    reading, command = _reading(observation, name), _command()
    if as_json:
        print_json({"upstream": name, **_data(observation, proposal, tools, reading, command)})
    else:
        _show(observation, proposal, tools)
        _show_command(proposal, reading, command)
    sys.exit(0)


def _observed(
    root: Path,
    name: str,
    entry: dict[str, Any],
    packages: PinnedPackages | None,
    samples: Sequence[SampleCall],
) -> tuple[Observation, Proposal]:
    _, trusted = trusted_paths_of(root)
    # Hosts that the person grants meanwhile stay out: calls that reach them have effects.
    given = click.get_current_context().params["capabilities"]
    held = [one for one in entry.get("capabilities") or () if one in given or not one.startswith("net.")]
    started = started_entry(root, {**entry, "capabilities": held}, packages)
    try:
        with progress("Observing the server"):
            observation = asyncio.run(observe_server(started, str(root), trusted, samples))
            proposal = propose_grant(observation)
    except ValueError as error:
        raise ImportRefused(f"'{name}'", str(error), hint="name a program that is there") from error
    new = [line for line in proposal.lines if line.capability not in (entry.get("capabilities") or ())]
    return observation, replace(proposal, lines=tuple(new))


def _sample_call(text: str) -> SampleCall:
    """A tool and its arguments, from TOOL=JSON; a tool without arguments by its name alone."""
    tool, _, arguments = text.partition("=")
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = None
    if not tool or not isinstance(found, dict):
        hint = """write TOOL=JSON, such as 'search={"query": "dune"}'"""
        raise ImportRefused(f"'{echo_name(text)}'", "names no call", hint=hint)
    return tool, found


def _show(observation: Observation, proposal: Proposal, tools: Sequence[str]) -> None:
    started = counted(observation.rounds, "time")
    say(f"Started {started}, with dummies for your secrets and empty files for those of the project.")
    if observation.tools is not None:
        free = " It did so before it was given anything." if observation.needs_nothing else ""
        say(f"It listed {counted(len(observation.tools), 'tool')}.{free}")
    else:
        say(f"It did not list its tools: {observation.failure}.")
        for words in visible_lines(observation.last_words).splitlines():
            say(f"  | {words}")
    for tool, reason in zip(tools, observation.calls, strict=False):
        outcome = f"failed: {shorten(visible(reason), _REASON)}" if reason else "worked"
        say(f"The call of {visible(tool)} {outcome}")
    say("It asked for:" if proposal.lines else "It asked for nothing that can be granted.")
    width = max((len(line.words) for line in proposal.lines), default=0)
    for number, line in enumerate(proposal.lines, 1):
        say(f"  {number:2} [ ] {line.words:{width}}  {line.capability}")
    if proposal.notes:
        say("Not offered:", *(f"  - {note}" for note in proposal.notes))
    say("What its tools use in other calls is not seen, nor which variables it reads.")


def _ticked(count: int) -> list[int]:
    """Numbers of the lines that the person grants, from 0."""
    if not count:
        return []
    forget_typed()
    while True:
        answer = typed_line("Grant by number, such as 1 2; Enter grants nothing: ")
        numbers = {int(word) - 1 for word in re.findall(r"\d{1,3}", answer)}
        if _NUMBERS.fullmatch(answer) and numbers <= set(range(count)):
            return sorted(numbers)
        say(f"Not one of the numbers 1 to {count}.", err=True)


def _show_command(proposal: Proposal, reading: Iterable[str], command: Sequence[str]) -> None:
    say("Nothing was granted or added. To add it, keep the options that you want:")
    say(f"  {shlex.join(_with_options(command, proposal))}")
    if any(line.capability.startswith("net.") for line in proposal.lines):
        say("  What a host answers may lead to more: with its --capability, observe again.")
    if dangers := " ".join(f"--danger {shlex.quote(f'{tool}=low')}" for tool in reading):
        say(f"  Its reading tools ask no more with: {dangers}")


def _command() -> list[str]:
    """The words of the command that runs, without those that observe, print or agree."""
    context = click.get_current_context()
    words = ["toolkeep", "add", "mcp", context.params["name"]]
    for option in context.command.params:
        value = context.params[str(option.name)]
        is_given = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and is_given and option.name not in _OWN_OPTIONS:
            values = value if option.multiple else [value]
            words += [
                word for one in values for word in (option.opts[0], *([] if option.is_flag else [str(one)]))
            ]
    return [*words, "--", *context.params["server"]]


def _with_options(command: Sequence[str], proposal: Proposal) -> list[str]:
    """The command with a grant, before the `--` that ends its options."""
    end = list(command).index("--")
    options = [word for line in proposal.lines for word in ("--capability", line.capability)]
    return [*command[:end], *options, *command[end:]]


def _reading(observation: Observation, name: str) -> list[str]:
    tools = observation.tools or ()
    offers = import_listing(PinnedTools(server={}, tools=tools), ImportOptions(name=name))
    found = sorted(tool for tool in reading_tools(tools, offers) if visible(tool) == tool)
    return found[:_READING]


def _data(
    observation: Observation,
    proposal: Proposal,
    tools: Sequence[str],
    reading: list[str],
    command: Sequence[str],
) -> dict[str, Any]:
    return {
        "granted": [],
        "rounds": observation.rounds,
        "tools": None if observation.tools is None else len(observation.tools),
        "needs_nothing": observation.needs_nothing,
        "last_words": visible_lines(observation.last_words),
        "calls": [
            {"tool": tool, "failed": shorten(visible(reason), _REASON)}
            for tool, reason in zip(tools, observation.calls, strict=False)
        ],
        "lines": [{"words": line.words, "capability": line.capability} for line in proposal.lines],
        "not_offered": list(proposal.notes),
        "reading_tools": reading,
        "command": _with_options(command, proposal),
    }
