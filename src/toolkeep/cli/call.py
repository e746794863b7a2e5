"""`toolkeep call`: make one call from the command line."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from toolkeep.calls import ToolResult
from toolkeep.cli.call_arguments import arguments, read_arguments
from toolkeep.cli.isolation_notice import warn_if_ran_unconfined
from toolkeep.cli.next_step import next_step, operator_text
from toolkeep.cli.options import common, files, print_json, project, say, say_failed, tools_option
from toolkeep.cli.tool_selection import complete_name, keep_with, named_tools
from toolkeep.definitions.tool_names import kind_of
from toolkeep.registry.tool_provider import FILES

if TYPE_CHECKING:
    from toolkeep.approval.approver import Approver
    from toolkeep.keep.keep import Keep
    from toolkeep.mcp_client.elicitation import Answerer, ElicitationAnswer, ElicitationRequest


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _key(_: click.Context, __: click.Parameter, key: str | None) -> str:
    if key == "":  # an unset variable: the call would not be idempotent
        raise click.BadParameter("is empty, so it would not prevent a second run")
    return key or ""


@click.command("call")
@click.argument("name", shell_complete=complete_name)
@arguments
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time out sooner than the tool's own limit.",
)
@click.option(
    "--key",
    "idempotency_key",
    callback=_key,
    metavar="KEY",
    help="Idempotency key: the call runs at most once for it.",
)
@click.option("--session", default="", metavar="SESSION", help="The session that the call belongs to.")
@click.option("--agent", default="operator", show_default=True, help="The agent that makes the call.")
@tools_option
@files
@project
@common
def command(
    name: str,
    arguments: tuple[str, ...],
    timeout_s: float | None,
    idempotency_key: str,
    session: str,
    agent: str,
    tools: tuple[str, ...],
    files: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Call the tool NAME with ARGUMENTS: key=value words, key:=JSON words, or one JSON object.

    Values are strings, or of the type in the tool's schema. Without ARGUMENTS, or with -, JSON is read from
    standard input, unless the tool takes none.

    The call is checked, decided, recorded and run inside its limits. Where a person has to agree, or the
    upstream server of the tool asks something, you are asked on the terminal. Exit status 0 if it worked.
    """
    approver = terminal_approver(project)
    named = named_tools(tools, project)
    with keep_with(files, project, tools=named, approver=approver, answerer=_answerer()) as keep:
        if not keep.has_agent(agent):
            raise click.BadParameter(f"{agent!r} is not declared under `agents`", param_hint="--agent")
        text = read_arguments(arguments, keep, name)
        call = keep.call(
            name,
            text,
            agent=agent,
            forwarded=True,
            session=session,
            caller="command",
            timeout_s=timeout_s,
            idempotency_key=idempotency_key,
            kind=kind_of(name),
        )
        result = asyncio.run(until_told(call, keep))
        # Printed before the keep is closed, which fails on a full disk: the call has run by now.
        if as_json:
            print_json(result.to_dict())
        else:
            _print(result, keep, tools)
        warn_if_ran_unconfined(result)
        if result.error is not None and result.error.diagnosis is not None:
            # To stderr: an agent that runs this command is given its standard output.
            say("", *result.error.diagnosis.text.split("\n"), err=True)
    if result.status == "error":
        sys.exit(1)


async def until_told(call: Awaitable[ToolResult], keep: "Keep") -> ToolResult:
    """Await the result; on a signal, cancel the call and record that.

    Without this, SIGTERM or a closed terminal would end the process at once, and the log would lack the
    outcome.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        keep.end_soon()
        if task is not None:
            loop.call_soon_threadsafe(task.cancel)

    before = {sig: signal.getsignal(sig) for sig in _ENDING}
    for sig, handler in before.items():
        if handler is not signal.SIG_IGN:  # ignored under `nohup`
            # Not through the loop, which would also take a Ctrl-C that answers a prompt.
            signal.signal(sig, end)
    try:
        return await call
    except asyncio.CancelledError:
        if not told:
            raise
        why = f"ended by {signal.Signals(told[0]).name}; see what became of the call: toolkeep audit list"
        say_failed(why, err=True)
        sys.exit(128 + told[0])  # exit status of a process ended by a signal
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def terminal_approver(project: Path | None) -> "Approver | None":
    """The person at the terminal; without one, a notice that the call waits in the inbox."""
    from toolkeep.cli.approval_prompt import TerminalApprover, announce, can_ask
    from toolkeep.keep.open import open_state, project_folder, read_configuration

    if can_ask():
        return TerminalApprover(project)
    root = project_folder(project)
    return announce if read_configuration(root, open_state(root)).approval_wait_s else None


def _answerer() -> "Answerer | None":
    """The person at the terminal, for elicitation by upstream servers."""
    from toolkeep.cli.approval_prompt import can_ask

    async def ask(question: "ElicitationRequest") -> "ElicitationAnswer":
        from toolkeep.cli.elicitation_prompt import answer

        return await answer(question)

    return ask if can_ask() else None


def _print(result: ToolResult, keep: "Keep", tools: Sequence[str]) -> None:
    if result.error is not None:
        say_failed(*operator_text(result.error).split("\n"))
        found = next((tool for tool in keep.tools() if tool.name == result.tool), None)
        is_of_file = found is None or found.provider == FILES
        if step := next_step(result.error, found and found.runner, tools if is_of_file else (), result.agent):
            say("", step)
        say("", f"Call id: {result.call_id}")
    elif result.status == "pending":
        say(f" pending: {result.tool} is executed by the client; submit its result for {result.call_id}")
    elif isinstance(result.value, bytes):
        sys.stdout.buffer.write(result.value)
    elif result.truncation is not None and result.value is None:
        say(f"{result.truncation.full_bytes} bytes: {result.truncation.reference}")
    else:
        value = result.value
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        say(*text.split("\n"))
