"""Builds the app of a keep: health checks, API, MCP, metrics and web interface."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from toolkeep.config.identity_settings import IdentitySettings
from toolkeep.keep.keep import Keep
from toolkeep.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.http_headers import LOOPBACK
from toolkeep.server.api.call_index import CallIndex
from toolkeep.server.api.health import Health, is_writable
from toolkeep.server.api.open_calls import RunningCalls
from toolkeep.server.api.routes import ROUTES
from toolkeep.server.asgi_app import AGENT_KEY, AuthenticatedMcp, KeepApp
from toolkeep.server.http.bearer_auth import BearerAuth
from toolkeep.server.http.route_table import RouteTable
from toolkeep.server.service import Service
from toolkeep.server.witness_app import WitnessApp
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.log.witness_folder import Witness
from toolkeep.storage.sqlite.sign_in_codes import SignInCodes
from toolkeep.storage.state_folder import make_private
from toolkeep.stores.api_tokens import Tokens

if TYPE_CHECKING:
    from toolkeep.server.oidc.access_tokens import AccessTokens
    from toolkeep.server.oidc.people import PeopleSignIn
    from toolkeep.server.oidc.refusals import Refusals
    from toolkeep.telemetry.metrics import Metrics


def make_app(
    keep: Keep,
    tokens: Tokens,
    *,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
    hosts: Iterable[str] = LOOPBACK,
    base: str = "",
    identity: IdentitySettings | None = None,
    codes: SignInCodes | None = None,
    client_answers: bool = False,
    page_url: str = "",
    has_metrics: bool = False,
    has_traces: bool = False,
    witness: Witness | None = None,
) -> KeepApp:
    """Make the app of one server. Open the keep with `approver=defer_to_inbox`.

    With `codes`, which hold sign-in codes, it serves the web interface, and `page_url` is its address for
    notices to MCP clients. Tokens of the issuers of `identity` count, too. `client_answers` lets MCP clients
    approve calls of up to medium danger. `witness` cosigns the logs of other servers.
    """
    hosts = frozenset(hosts)
    if has_traces:
        start_traces(keep)
    providers = open_providers(identity, keep) if identity else None
    granting = [one for one in identity.issuers if one.grants] if identity else []
    service = Service(
        keep=keep,
        tokens=tokens,
        authenticator=BearerAuth(tokens, foreign=providers.tokens if providers else None),
        limits=limits,
        calls=RunningCalls(keep),
        health=Health(keep, {name: partial(check, keep) for name, check in _CHECKS.items()}),
        index=CallIndex(lambda digest: keep.record.bodies.get(digest)),  # noqa: PLW0108 -- opened on first use
        metrics=start_metrics(keep) if has_metrics else None,
        has_traces=has_traces,
        issuers=tuple(one.issuer for one in granting),
        base=base,
        resource=granting[0].audience if granting else "",
    )
    if keep.shared is not None:
        keep.shared.watch_tokens(service.authenticator.forget)
    app = KeepApp(service, RouteTable(ROUTES), hosts=hosts)
    server = McpServer(keep, client_answers=client_answers, page_url=page_url)
    server.enable_logging()
    if providers is not None:
        app.on_shutdown_end(providers.refusals.close)
    mcp = McpApp(server, hosts=hosts, identify=lambda scope: scope.get(AGENT_KEY), path="/mcp")
    app.on_shutdown_end(service.index.close)
    app.on_shutdown_end(service.statistics.close)
    app.mount("/mcp", AuthenticatedMcp(app, mcp))
    app.on_shutdown_start(mcp.let_go)
    app.on_shutdown_end(mcp.close)
    if codes is not None:
        _add_page(app, codes, providers.people if providers else None)
    if witness is not None:
        app.mount("/witness", WitnessApp(witness, "/witness"))
    return app


class Providers(NamedTuple):
    """The configured identity providers."""

    tokens: "AccessTokens"
    people: "PeopleSignIn | None"
    """None if people sign in with none of them."""
    refusals: "Refusals"


def open_providers(identity: IdentitySettings, keep: Keep) -> Providers:
    """Recognizes the tokens of the configured issuers, and signs people in with them."""
    from toolkeep.server.oidc.access_tokens import AccessTokens
    from toolkeep.server.oidc.issuer_documents import IssuerDocuments
    from toolkeep.server.oidc.issuer_keys import IssuerKeys
    from toolkeep.server.oidc.people import PeopleSignIn
    from toolkeep.server.oidc.refusals import Refusals

    refusals = Refusals(keep)
    known = [(one, IssuerDocuments(one)) for one in identity.issuers]
    keys = {one.issuer: (one, IssuerKeys(one, documents.keys)) for one, documents in known}
    tokens = AccessTokens(keys, refusals.add)
    people = PeopleSignIn(tokens, known, refusals.add) if any(one.page for one, _ in known) else None
    return Providers(tokens, people, refusals)


def start_metrics(keep: Keep) -> "Metrics":
    """Start counting the events of a keep."""
    from toolkeep.telemetry.metrics import Metrics

    names = [held.name for tool in keep.tools() for held in keep.versions(tool.name)]
    metrics = Metrics(names, lambda: len(keep))
    if keep.workers() is not None:
        metrics.watch_workers(lambda: keep.workers() or ())
    keep.subscribe(metrics, timed=True)
    return metrics


def start_traces(keep: Keep) -> None:
    """Start tracing the calls of a keep, and observing its definitions."""
    from toolkeep.server.http.trace_context import setting
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


def _database_answers(keep: Keep) -> bool | None:
    record = keep.record
    return record.is_database_usable() if isinstance(record, FileRecord) else None


_LAST: Final = 1 << 62
"""Later than every change: the query returns nothing and only shows that the store answers."""
_CHECKS: Final[dict[str, Callable[[Keep], bool | None]]] = {
    "log": _log_is_writable,
    "store": _store_answers,
    "database": _database_answers,
}


def _add_page(app: KeepApp, codes: SignInCodes, people: "PeopleSignIn | None") -> None:
    from toolkeep.server.web.app import PageApp, redirect_to_page

    page = PageApp(app, codes, people)
    app.mount("/ui", page)
    app.mount("/", redirect_to_page)
    app.on_shutdown_start(page.close)
    app.on_shutdown_end(page.close)
