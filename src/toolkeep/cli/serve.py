"""`toolkeep serve`: serve the keep over HTTP, with token authentication."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from toolkeep.cli.listen_options import address as address_of
from toolkeep.cli.listen_options import alarms_shown, listen, whole
from toolkeep.cli.options import common, files, is_terminal, project, say, say_done, tools_argument, warn
from toolkeep.cli.tool_selection import keep_with, served_files
from toolkeep.errors import StoreUnavailable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from toolkeep.cli.reload import ReloadedFiles
    from toolkeep.config.tools_file import ToolsFile
    from toolkeep.keep.keep import Keep
    from toolkeep.storage.sqlite.sign_in_codes import SignInCodes

PORT = 8765


@click.command("serve")
@tools_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A host name that clients may use; repeatable.",
)
@click.option("--base-url", default="", help="Public address, if it differs.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long a call waits for approval.  [default: as configured, or 900]",
)
@click.option("--client-answers", is_flag=True, help="Let MCP clients approve calls of up to medium danger.")
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0, 3_600),
    metavar="SECONDS",
    help="How long to serve, not ready, before shutdown.  [default: 5 with a shared database, else 0]",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(1, 3_600),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running calls may finish at shutdown.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    help="Requests per second for each token; 0 is unlimited.",
)
@click.option(
    "--metrics/--no-metrics",
    "metrics",
    default=None,
    help="Serve /metrics.  [default: if prometheus_client is installed]",
)
@click.option("--traces", "has_traces", is_flag=True, help="Trace calls with OpenTelemetry.")
@click.option("--page/--no-page", "has_page", default=True, show_default=True, help="Serve the page.")
@click.option("--reload", "reloads", is_flag=True, help="Follow changes of each FILE.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@files
@project
@common
def command(
    *,
    tools: tuple[str, ...],
    host: str,
    port: int,
    allowed: tuple[str, ...],
    base_url: str,
    wait_s: float | None,
    client_answers: bool,
    drain_s: float | None,
    grace_s: float,
    rate: float,
    metrics: bool | None,
    has_traces: bool,
    has_page: bool,
    reloads: bool,
    opens: bool,
    files: tuple[Path, ...],
    project: Path | None,
    as_json: bool,
) -> None:
    """Serve the tools over HTTP: a page, an API with an OpenAPI document, MCP, health and metrics.

    FILE is a Python file or module of @tool functions, which are served too. A change of it takes effect once
    it is accepted: toolkeep accept FILE. With --reload it takes effect at once where nothing gets looser; the
    rest is shown, and waits for your y.

    With --json the address and the logs are lines of JSON.
    Every request needs a token: toolkeep token make. On SIGTERM it stops once running calls have ended, on a
    second one at once.
    """
    _check_installed({"prometheus_client": metrics or False, "opentelemetry": has_traces})
    has_metrics = find_spec("prometheus_client") is not None if metrics is None else metrics
    if reloads:
        from toolkeep.cli.reload import check_reload

        check_reload(tools, as_json=as_json)
    from toolkeep.cli.isolation_notice import warn_soon
    from toolkeep.cli.served_page import listed, open_in_browser, sign_in_link
    from toolkeep.keep.open import (
        open_sign_in_codes,
        open_state,
        open_tokens,
        open_witness,
        project_folder,
        read_configuration,
    )
    from toolkeep.limits import DRAIN_SECONDS, ServerLimits
    from toolkeep.server.app_factory import make_app
    from toolkeep.server.run_server import is_loopback, names_of, serve

    if as_json:
        _log_json()
    root = project_folder(project)
    served = served_files(tools, root, holds_back=False)
    named = served.files if served else ()
    sock = listen(host, port, option="--port")
    address = f"http://{address_of(host, sock.getsockname()[1])}"
    public = base_url.rstrip("/") or address
    state = open_state(root)
    settings = read_configuration(root, state)
    _check_installed({"joserfc": settings.identity is not None})
    if drain_s is None:
        drain_s = DRAIN_SECONDS if settings.database else 0.0
    limits = ServerLimits(drain_s=drain_s, grace_s=grace_s, requests_per_second=rate)
    folder = state.folder if state is not None else None
    codes = open_sign_in_codes(root) if has_page else None
    whole_files = whole(files)
    with contextlib.ExitStack() as stack:
        stack.enter_context(sock)
        stack.enter_context(alarms_shown())
        held = stack.enter_context(contextlib.closing(open_tokens(root)))
        # Relative paths in calls start from the project, wherever the server is started.
        stack.enter_context(contextlib.chdir(root))
        followed = stack.enter_context(_followed(named)) if reloads else None
        copies = followed.copies if followed else named
        keep = stack.enter_context(_open(whole_files, copies, root, wait_s))
        app = make_app(
            keep,
            held,
            limits=limits,
            hosts=names_of(host) | {name.lower() for name in allowed},
            base=base_url.rstrip("/"),
            identity=settings.identity,
            codes=codes,
            client_answers=client_answers,
            page_url=public if has_page else "",
            has_metrics=has_metrics,
            has_traces=has_traces,
            witness=open_witness(root) if settings.witness_for else None,
        )
        if settings.witnesses or settings.database:
            _ = keep.record  # opened before the first call: an idle log is witnessed, too
        keep.follow_store()
        warn_soon()
        if not is_loopback(host):
            warn(f"{host} is reachable from the network, and connections are not encrypted")

        def say_begun() -> None:
            _say_begun(address, as_json=as_json)
            with _warned_if_not_ready():
                if codes is not None and not as_json:
                    _say_how_to_sign_in(public, codes)
                if not held.list():
                    _say_how_to_make_token(has_page=codes is not None)
                if codes is not None and opens and folder is not None:
                    open_in_browser(sign_in_link(public, codes), folder)

        stack.enter_context(listed(folder if has_page else None, public))
        if followed:
            stack.enter_context(followed.followed(keep, root))
        elif served:
            stack.enter_context(served.followed(keep))
        stack.enter_context(_waiting_calls_said(keep, folder, public if has_page else "", as_json=as_json))
        serve(app, sock, limits, say_begun)


@contextlib.contextmanager
def _waiting_calls_said(keep: "Keep", folder: Path | None, page: str, *, as_json: bool) -> Iterator[None]:
    """Say when a call begins to wait, also on another server, or in `toolkeep mcp`, whose client may not."""
    if folder is None or as_json or not is_terminal(sys.stderr):
        yield
        return
    from toolkeep.approval.question_text import name
    from toolkeep.config.accepted_code import stamp_of
    from toolkeep.storage.sql.change_feed import StateChangeFeed

    said: set[str] = set()
    heard: list[int] = [0]
    approvals = keep.record.approvals
    files = [folder / f"approvals.db{end}" for end in ("", "-wal")]
    where = f", or {page}/ui/approvals" if page else ""

    def look() -> None:
        for question in (standing.question for standing in approvals.waiting()):
            if question.id not in said:
                said.add(question.id)
                what = f"{name(question.tool)} (danger: {question.danger}), called by {name(question.agent)},"
                warn(f"{what} waits for approval: toolkeep approve {name(question.id[:8])}{where}")

    def hear(_: str) -> None:
        heard[0] += 1

    with approvals.watch(hear):
        feed = StateChangeFeed(lambda: (*heard, *map(stamp_of, files)), look)
        try:
            yield
        finally:
            feed.close()


_EXTRAS: Final = {"joserfc": "identity"}


def _check_installed(needed: dict[str, bool]) -> None:
    for name, is_needed in needed.items():
        if is_needed and find_spec(name) is None:
            extra = _EXTRAS.get(name, "server")
            raise click.UsageError(f"{name} is not installed. Install it: pip install 'toolkeep[{extra}]'")


def _log_json() -> None:
    """Write logs as JSON lines."""
    import logging

    from toolkeep.telemetry.logs import JsonFormatter

    for handler in logging.getLogger("toolkeep").handlers:
        handler.format = JsonFormatter().format  # type: ignore[method-assign]  # as the handler was made


def _open(files: tuple[Path, ...], tools: "Sequence[ToolsFile]", root: Path, wait_s: float | None) -> "Keep":
    from toolkeep.limits import WAIT_FOR_PERSON_SECONDS
    from toolkeep.server.api.call_routes import defer_to_inbox

    return keep_with(
        files,
        root,
        tools=tools,
        approver=defer_to_inbox,
        approval_wait_s=wait_s,
        default_wait_s=WAIT_FOR_PERSON_SECONDS,
    )


def _followed(named: "Sequence[ToolsFile]") -> "AbstractContextManager[ReloadedFiles]":
    from toolkeep.cli.reload import reloaded_files

    return reloaded_files(named)


def _say_begun(address: str, *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"address": address}))
    else:
        say_done(f"serving at {address}", err=True)


@contextlib.contextmanager
def _warned_if_not_ready() -> Iterator[None]:
    """Go on without a shared database, as if it went away later: the server is ready once that answers."""
    try:
        yield
    except StoreUnavailable as error:
        warn("not ready", f"  {error.message}", f"  {error.hint}")


def _say_how_to_make_token(*, has_page: bool) -> None:
    """Tokens are printed by `toolkeep token make` only."""
    from toolkeep.cli.served_page import program_name

    make = f"{program_name()} token make me --scope admin --agent operator"
    if has_page:
        say("  The page is ready. Only programs that use the HTTP API need a token:", err=True)
    else:
        say("  There is no token for the API yet. Create the first in another terminal:", err=True)
    say(f"  {make}", err=True)


def _say_how_to_sign_in(public: str, codes: "SignInCodes") -> None:
    """Print a sign-in link, on a terminal only: other outputs may be logs, and the link grants all rights."""
    from toolkeep.cli.served_page import program_name, sign_in_link

    if is_terminal(sys.stderr):
        say("  Sign in with this link, which works once, within five minutes:", err=True)
        say(f"  {sign_in_link(public, codes)}", err=True)
    else:
        say(f"  To sign in to the page, create a link: {program_name()} token link", err=True)
