"""`toolkeep mcp`: serve the keep over MCP, as an entry in a client's configuration."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from toolkeep.cli.listen_options import address, listen, whole
from toolkeep.cli.options import common, files, project, say_done, tools_argument
from toolkeep.cli.tool_selection import keep_with, served_files

if TYPE_CHECKING:
    from toolkeep.config.tools_file import ToolsFile
    from toolkeep.keep.keep import Keep
    from toolkeep.mcp_server.dispatch import McpServer

INBOX_WAIT_S = 50.0
"""Default wait for an approval; most clients time out after a minute."""


@click.command("mcp")
@tools_argument
@click.option("--agent", default="mcp-local", show_default=True, help="The agent that calls are made as.")
@click.option(
    "--http", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve over HTTP instead."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="With --http: the loopback address to listen on."
)
@click.option(
    "--find-tools", is_flag=True, help="Offer only two tools: one finds the others, one calls them."
)
@click.option("--client-answers", is_flag=True, help="Let the client approve calls of up to medium danger.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long a call waits for approval.  [default: as configured, or 50]",
)
@files
@project
@common
def command(
    tools: tuple[str, ...],
    agent: str,
    port: int | None,
    host: str,
    find_tools: bool,  # noqa: FBT001 -- click hands options over by name
    client_answers: bool,  # noqa: FBT001 -- the same
    wait_s: float | None,
    files: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,  # noqa: ARG001 -- a server prints nothing but messages
) -> None:
    """Serve the tools over MCP, on standard input and output.

    FILE is a Python file or module of @tool functions, which are served too. A client starts this command
    without a terminal: a file is left out until its content is accepted with `toolkeep accept FILE`, and is
    then taken over without a restart.

    Calls are checked, decided, recorded and run as ever, as those of one agent. Where a person has to agree,
    the call waits in the inbox: toolkeep approve.
    """
    from toolkeep.keep.open import project_folder

    root = project_folder(project)
    # While standard input is that of the caller, maybe a terminal.
    named = served_files(tools, root, holds_back=True)
    streams = _take_streams() if port is None else contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        taken = stack.enter_context(streams)
        # Relative paths in calls start from the project, wherever the client starts this process.
        stack.enter_context(contextlib.chdir(root))
        keep = stack.enter_context(_open(whole(files), named.files if named else (), root, wait_s))
        if not keep.has_agent(agent):
            raise click.BadParameter(f"{agent!r} is not declared under `agents`", param_hint="--agent")
        from toolkeep.cli.isolation_notice import warn_soon
        from toolkeep.mcp_server.dispatch import McpServer

        warn_soon()
        if named is not None:
            named.load_accepted(keep)
            stack.enter_context(named.followed(keep))
        keep.follow_store()
        server = McpServer(
            keep,
            agent=agent,
            find_tools=find_tools,
            client_answers=client_answers,
            page_url=partial(_page_url, root),
        )
        server.enable_logging()
        if taken is None:
            _serve_http(server, host, port or 0)
        else:
            from toolkeep.mcp_server.serve_http import run
            from toolkeep.mcp_server.stdio_server import serve_stdio

            with contextlib.suppress(KeyboardInterrupt):
                run(serve_stdio(server, *taken))
        server.close()


def _open(files: tuple[Path, ...], tools: "Sequence[ToolsFile]", root: Path, wait_s: float | None) -> "Keep":
    from toolkeep.mcp_server.client_approvals import ask_client

    return keep_with(
        files,
        root,
        tools=tools,
        approver=ask_client,
        approval_wait_s=wait_s,
        default_wait_s=INBOX_WAIT_S,
    )


def _page_url(root: Path) -> str:
    """The address of the page that a `toolkeep serve` of this project serves; empty if none runs."""
    from toolkeep.errors import StateUnusable
    from toolkeep.keep.open import open_state
    from toolkeep.storage.running_servers import running_servers

    try:
        state = open_state(root)
        return next(iter(running_servers(state.folder)), "") if state else ""
    except StateUnusable:
        return ""


def _serve_http(server: "McpServer", host: str, port: int) -> None:
    from toolkeep.mcp_server.serve_http import PATH, check_loopback, serve_http

    try:
        check_loopback(host)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--host") from error
    with listen(host, port, option="--http") as sock, contextlib.suppress(KeyboardInterrupt):
        where = f"http://{address(host, sock.getsockname()[1])}{PATH}"
        say_done(f"serving at {where}", err=True)
        serve_http(server, host, sock=sock)


@contextlib.contextmanager
def _take_streams() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Reserve stdin and stdout for messages.

    A tool that prints would otherwise write into the protocol, and one that reads would take the client's
    messages: after this, its stdout is stderr and its stdin is empty.
    """
    sys.stdout.flush()
    source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    try:
        yield source, sink
    finally:
        os.dup2(sink.fileno(), 1)
        os.dup2(source.fileno(), 0)
        source.close()
        sink.close()
