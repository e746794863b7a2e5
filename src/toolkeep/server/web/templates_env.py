"""HTML rendering. Every value that a template shows is escaped, and invisible characters are made visible.

Both happen in the environment, so that no template can forget them: names and texts come from models and
servers. A value in an input field is `editable`: escaped, and otherwise unchanged.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from toolkeep.approval.question_text import duration, name
from toolkeep.audit.call_verdict import duration_text, remedy_for
from toolkeep.errors import TITLES, Code
from toolkeep.limits import SHOWN_CHARS
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.api.recorded_calls import UNSUCCESSFUL
from toolkeep.server.api.status_routes import StatusView
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.responses import Header, Response
from toolkeep.server.web.browser_security import security_headers
from toolkeep.server.web.cookie_sessions import Session
from toolkeep.server.web.schema_form import Field, is_moment, rows_of
from toolkeep.server.web.static_files import Assets
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.columns import sanitize_line
from toolkeep.text.display import counted, shorten, shorten_middle, size

HTML_TYPE: Final = b"text/html; charset=utf-8"
_TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
_COMPRESSED_FROM: Final = 1024
_BRIEF_CHARS: Final = 60
"""Characters of a call in one line of a phone."""
_MIDDLE_CHARS: Final = 44
"""Characters of a grant in one line."""
STAGE_WORDS: Final = {
    "admit": "Admission",
    "validate": "Validation",
    "authorize": "Authorization",
    "approve": "Approval",
    "record": "Recording",
    "run": "Execution",
    "check": "Result check",
}
"""The stages of a call (`audit.record_kinds.STAGES`): one word each, on every page."""
_OUTCOMES: Final = {
    "ok": "succeeded",
    "error": "failed",
    UNSUCCESSFUL: "refused or failed",
    "allow": "allowed by policy",
    "deny": "denied by policy",
}
"""Outcomes of calls, and decisions, where the word of the log is not that of the page."""
_KINDS: Final = {
    "ToolInvoked": STAGE_WORDS["validate"],
    "CapabilityCheck": "Capabilities",
    "PolicyDecision": STAGE_WORDS["authorize"],
    "Approval": STAGE_WORDS["approve"],
    "ServerAsked": "Its server asked",
    "RanElsewhere": "Ran on a worker",
    "ToolCompleted": STAGE_WORDS["run"],
    "AnsweredLate": "A worker answered late",
    "AnswersSigned": "A worker signed answers",
    "WorkersDisagreed": "Workers gave different results",
    "WorkerRefused": "Frames of a worker refused",
    "RefusedElsewhere": "A worker refused something",
    "IdentityRefused": "Token or sign-in refused",
    "SessionEnded": "Session ended",
    "OperatorChange": "Put in force",
    "AgentDrift": "An agent did something new",
    "AuditAlarm": "Alarm about a log",
}
"""Display names of record kinds; one that ends a stage has its name."""


WORKERS: Final = "/ui/workers"


class Place(msgspec.Struct, frozen=True):
    """One entry of the navigation."""

    path: str
    label: str
    icon: str
    scopes: tuple[Scope, ...]


NAVIGATION: Final = (
    Place("/ui/", "Overview", "pulse", (Scope.AUDIT_READ,)),
    Place("/ui/approvals", "Approvals", "inbox", (Scope.APPROVE,)),
    Place("/ui/tools", "Tools", "tools", (Scope.TOOLS_READ,)),
    Place(WORKERS, "Workers", "workers", (Scope.AUDIT_READ,)),
    Place("/ui/agents", "Agents", "users", (Scope.POLICIES_READ,)),
    Place("/ui/audit", "Audit", "scroll", (Scope.AUDIT_READ,)),
    Place("/ui/policies", "Policies", "shield", (Scope.POLICIES_READ,)),
    Place("/ui/tokens", "Tokens", "key", (Scope.TOKENS,)),
)


class Rendered(Protocol):
    """What rendering needs of a request (`web_request.PageRequest`)."""

    method: str
    path: str
    headers: Headers
    nonce: str
    session: Session | None


class Renderer:
    """Renders pages and parts of pages."""

    def __init__(
        self,
        assets: Assets,
        *,
        has_workers: bool = False,
        status_of: Callable[[Session], StatusView] | None = None,
    ) -> None:
        """`status_of` gives what stands at the bottom of every page."""
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            # Escaping and `finalize` apply to every value: a forgotten filter would be stored XSS.
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_seen,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "editable": editable,
            "pretty": pretty,
            "when": when,
            "name": lambda text: name(str(text)),
            "lasting": duration,
            "count": counted,
            "size": size,
            "with_code": with_code,
            "words": words,
            "sentence": lambda text: text if str(text).endswith((".", "?", "!")) else f"{text}.",
            "kind": kind_text,
            "lasted": duration_text,
            "brief": lambda text: shorten(" ".join(str(text).split()), _BRIEF_CHARS),
            "middle": lambda text: shorten_middle(str(text), _MIDDLE_CHARS),
            "reason": lambda code: TITLES[Code(code)] if code in set(Code) else code,
            "outcome": lambda word: _OUTCOMES.get(word, word),
            "remedy": remedy_for,
            "split": str.split,
            "tojson_text": lambda value: json.dumps(value, ensure_ascii=False),
            "input_type": input_type,
            "field_name": lambda field: str(field).removeprefix("parameters/properties/"),
        }
        self._environment.globals |= {"rows_of": rows_of, "session_link": session_link}
        shown = partial(places, has_workers=has_workers)
        self._environment.globals |= {"asset": assets.address, "places": shown, "status_of": status_of}

    def page(self, request: Rendered, template: str, *, status: int = 200, **data: Any) -> Response:
        """A response with a page, or a part of one."""
        return self._answer(request, self.text(request, template, **data), status, ())

    def part(
        self,
        request: Rendered,
        template: str,
        *,
        status: int = 200,
        headers: Sequence[Header] = (),
        **data: Any,
    ) -> Response:
        """Like `page`, with headers for htmx."""
        return self._answer(request, self.text(request, template, **data), status, headers)

    def text(self, request: Rendered, template: str, **data: Any) -> str:
        """Render a template."""
        session = request.session
        known = {
            "caller": session.caller if session else None,
            "session": session,
            "path": request.path,
            "is_change": request.method != "GET",
            "nonce": request.nonce,
            "Scope": Scope,
        }
        return self._environment.get_template(template).render({**known, **data})

    def _answer(self, request: Rendered, text: str, status: int, headers: Sequence[Header]) -> Response:
        body = text.encode("utf-8", "backslashreplace")
        more: tuple[Header, ...] = (
            *headers,
            *security_headers(request.nonce),
            (b"vary", b"accept-encoding, hx-request"),
        )
        # Only GET is compressed: a response to a change may contain a new secret, whose text could be guessed
        # from the compressed length (BREACH).
        is_read = request.method == "GET" and len(body) > _COMPRESSED_FROM
        if is_read and b"gzip" in request.headers.raw(b"accept-encoding"):
            body, more = gzip.compress(body, 5, mtime=0), (*more, (b"content-encoding", b"gzip"))
        return Response(status, body, HTML_TYPE, more)


def session_link(agent: str, session: str, conversation: str) -> str:
    """The address of the timeline of a session, else of a conversation; neither fits into a path."""
    named = {"session": session} if session else {"conversation": conversation}
    return f"/ui/sessions/show?{urlencode({'agent': agent, **named})}"


def kind_text(kind: object) -> str:
    """Display name of a kind of record."""
    return _KINDS.get(str(kind), str(kind))


def places(caller: Caller | None, *, has_workers: bool = False) -> list[Place]:
    """The navigation entries for a caller."""
    known = [one for one in NAVIGATION if has_workers or one.path != WORKERS]
    return [] if caller is None else [one for one in known if any(map(caller.has_scope, one.scopes))]


def _seen(value: Any) -> Any:
    """`finalize` hook: cut long text and make invisible characters visible."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    cut = value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}… ({len(value)} characters)"
    return "\n".join(map(sanitize_line, cut.split("\n")))


def shown_text(text: str) -> Markup:
    """Text as it is shown: escaped, with invisible characters made visible."""
    return escape(_seen(text))


def with_code(text: str) -> Markup:
    """A sentence whose commands between backticks are shown as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return shown_text(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(shown_text(part)) if place % 2 else shown_text(part) for place, part in enumerate(parts)
    )


def editable(value: Any) -> Markup:
    """Text for an input field: escaped, and otherwise unchanged."""
    return escape("" if value is None else value)


def pretty(value: Any) -> str:
    """Format JSON data with indentation."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def when(moment: str | float | datetime | None) -> Markup:
    """A `<time>` element in the reader's time zone; until scripts run, UTC in about as many characters."""
    if moment is None or moment == "":
        return Markup("—")
    try:
        found = _moment(moment)
    except ValueError:
        return escape(_seen(str(moment)))
    return Markup('<time datetime="{}">{}</time>').format(
        found.isoformat(timespec="milliseconds"), found.strftime(f"{_day_format(found)}%H:%M:%S UTC")
    )


def _day_format(moment: datetime) -> str:
    now = datetime.now(UTC)
    if moment.date() == now.date():
        return ""
    return "%b %d, " if moment.year == now.year else "%b %d, %Y, "


def _moment(moment: str | float | datetime) -> datetime:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC)
    if isinstance(moment, str):
        found = datetime.fromisoformat(moment)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.fromtimestamp(moment, UTC)


def input_type(field: Field, typed: str) -> str:
    """The `type` of the input of a field."""
    if field.kind == "moment":  # what is no time is shown as it was typed
        return "datetime-local" if not typed or is_moment(typed) else "text"
    kinds = {"secret": "password", "date": "date"}
    return kinds.get(field.kind) or {"email": "email", "uri": "url"}.get(field.format, "text")


def words(text: str) -> str:
    """`file_system` as words."""
    return "not imported" if text == "hand" else str(text).replace("_", " ")
