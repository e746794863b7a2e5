"""From a keep and its tokens to the app: health, MCP, metrics and routes put together."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from toolkeep.keep import Keep
from toolkeep.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from toolkeep.mcp.headers import LOOPBACK
from toolkeep.mcp.http import McpApp
from toolkeep.mcp.server import McpServer
from toolkeep.server.api import ROUTES
from toolkeep.server.app import AGENT_KEY, KeepApp, McpDoor
from toolkeep.server.auth import Recognizer
from toolkeep.server.calls import OpenCalls
from toolkeep.server.health import Health, is_writable
from toolkeep.server.routing import RouteTable
from toolkeep.server.service import Service
from toolkeep.storage.folder import make_private
from toolkeep.storage.record import FileRecord
from toolkeep.storage.sign_in import SignInCodes
from toolkeep.tokens import Tokens

if TYPE_CHECKING:
    from toolkeep.telemetry.metrics import Metrics


def make_app(
    keep: Keep,
    tokens: Tokens,
    *,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
    hosts: Iterable[str] = LOOPBACK,
    base: str = "",
    issuers: Sequence[str] = (),
    codes: SignInCodes | None = None,
    has_metrics: bool = False,
    has_traces: bool = False,
) -> KeepApp:
    """The app of one server. The keep should be opened with `approver=ask_elsewhere`.

    With `codes`, which sign people in, it has a page.
    """
    hosts = frozenset(hosts)
    if has_traces:
        start_traces(keep)
    service = Service(
        keep=keep,
        tokens=tokens,
        recognizer=Recognizer(tokens),
        limits=limits,
        calls=OpenCalls(),
        health=Health(keep, {"log": lambda: _log_is_writable(keep), "store": lambda: _store_answers(keep)}),
        metrics=start_metrics(keep) if has_metrics else None,
        has_traces=has_traces,
        issuers=tuple(issuers),
        base=base,
    )
    app = KeepApp(service, RouteTable(ROUTES), hosts=hosts)
    server = McpServer(keep)
    mcp = McpApp(server, hosts=hosts, identify=lambda scope: scope.get(AGENT_KEY), path="/mcp")
    app.mount("/mcp", McpDoor(app, mcp))
    app.at_stop(mcp.let_go)
    app.at_end(mcp.close)
    if codes is not None:
        _add_page(app, codes)
    return app


def start_metrics(keep: Keep) -> "Metrics":
    """Count what a keep does from now on."""
    from toolkeep.telemetry.metrics import Metrics

    names = [held.name for tool in keep.tools() for held in keep.versions(tool.name)]
    metrics = Metrics(names, lambda: len(keep))
    keep.subscribe(metrics, timed=True)
    return metrics


def start_traces(keep: Keep) -> None:
    """Trace every call of a keep from now on, and observe its definitions."""
    from toolkeep.server.tracing import setting
    from toolkeep.telemetry.spans import CallSpans, DefinitionInstruments

    keep.trace_with(CallSpans(setting))
    keep.subscribe(DefinitionInstruments(keep))


def _log_is_writable(keep: Keep) -> bool:
    record = keep.record
    if not isinstance(record, FileRecord):
        return True
    make_private(record.folder)
    return is_writable(record.folder) and record.log.is_sound()


def _store_answers(keep: Keep) -> bool:
    store = keep.editor.store
    place = getattr(store, "place", None)
    if place is not None and place.is_embedded and not place.exists():
        return True
    return store.changed_since(_LAST)[0] >= 0


_LAST: Final = 1 << 62
"""Later than every change: whoever asks for what came after it only wants to hear an answer."""


def _add_page(app: KeepApp, codes: SignInCodes) -> None:
    from toolkeep.server.page.app import PageApp, to_page

    page = PageApp(app, codes)
    app.mount("/ui", page)
    app.mount("/", to_page)
    app.at_stop(page.close)
    app.at_end(page.close)
