"""From data to HTML. Whatever a template shows is escaped, and characters that nobody sees are made visible.

Both happen to every value by itself: a template cannot forget it. A value that goes into a field to be edited
is `editable`, which escapes it and leaves it as it is.
"""

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from toolkeep.approval.view import duration, name, steady
from toolkeep.limits import SHOWN_CHARS
from toolkeep.server.answers import Answer, Header
from toolkeep.server.auth import Caller
from toolkeep.server.page.assets import Assets
from toolkeep.server.page.request import PageRequest
from toolkeep.server.page.security import protective
from toolkeep.tokens import Scope
from toolkeep.wording import counted

HTML_TYPE: Final = b"text/html; charset=utf-8"
_TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
_COMPRESSED_FROM: Final = 1024
_KINDS: Final = {
    "ToolInvoked": "Asked for",
    "CapabilityCheck": "Capabilities checked",
    "PolicyDecision": "Policy decided",
    "Approval": "A person answered",
    "ServerAsked": "Its server asked",
    "ToolCompleted": "Completed",
}
"""The kinds of records, in words."""


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
    Place("/ui/audit", "Audit", "scroll", (Scope.AUDIT_READ,)),
    Place("/ui/policies", "Policies", "shield", (Scope.POLICIES_READ,)),
    Place("/ui/tokens", "Tokens", "key", (Scope.TOKENS,)),
)


class Renderer:
    """Makes pages and parts of them."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
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
            "words": words,
            "sentence": lambda text: text if str(text).endswith((".", "?", "!")) else f"{text}.",
            "kind": lambda kind: _KINDS.get(str(kind), str(kind)),
            "milliseconds": lambda number: f"{number:.0f}" if number >= 100 else f"{number:.3g}",
            "tojson_text": lambda value: json.dumps(value, ensure_ascii=False),
            "field_name": lambda field: str(field).removeprefix("parameters/properties/"),
        }
        self._environment.globals |= {"asset": assets.address, "places": places}

    def page(self, request: PageRequest, template: str, *, status: int = 200, **data: Any) -> Answer:
        """An answer with a whole page, or a part of one."""
        return self._answer(request, self.text(request, template, **data), status, ())

    def part(
        self,
        request: PageRequest,
        template: str,
        *,
        status: int = 200,
        headers: Sequence[Header] = (),
        **data: Any,
    ) -> Answer:
        """As `page`, with headers that tell htmx what to do with it."""
        return self._answer(request, self.text(request, template, **data), status, headers)

    def text(self, request: PageRequest, template: str, **data: Any) -> str:
        """The HTML itself."""
        session = request.session
        known = {
            "caller": session.caller if session else None,
            "path": request.path,
            "nonce": request.nonce,
            "Scope": Scope,
        }
        return self._environment.get_template(template).render({**known, **data})

    def _answer(self, request: PageRequest, text: str, status: int, headers: Sequence[Header]) -> Answer:
        body = text.encode("utf-8", "backslashreplace")
        more: tuple[Header, ...] = (
            *headers,
            *protective(request.nonce),
            (b"vary", b"accept-encoding, hx-request"),
        )
        # Only what is read: an answer to a change may show a secret that was just made.
        is_read = request.method == "GET" and len(body) > _COMPRESSED_FROM
        if is_read and b"gzip" in request.headers.raw(b"accept-encoding"):
            body, more = gzip.compress(body, 3, mtime=0), (*more, (b"content-encoding", b"gzip"))
        return Answer(status, body, HTML_TYPE, more)


def places(caller: Caller | None) -> list[Place]:
    """The navigation for whoever is signed in."""
    return [] if caller is None else [one for one in NAVIGATION if any(map(caller.has_scope, one.scopes))]


def _seen(value: Any) -> Any:
    """What `finalize` does to everything that a template shows."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    cut = value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}… ({len(value)} characters)"
    return "\n".join(map(steady, cut.split("\n")))


def editable(value: Any) -> Markup:
    """Text for a field: escaped, and otherwise as it is."""
    return escape("" if value is None else value)


def pretty(value: Any) -> str:
    """JSON data as indented text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def when(moment: str | float | datetime | None) -> Markup:
    """A moment as an element that shows it in the reader's zone; in UTC where no script runs."""
    if moment is None or moment == "":
        return Markup("—")
    try:
        found = _moment(moment)
    except ValueError:
        return escape(_seen(str(moment)))
    return Markup('<time datetime="{}">{}</time>').format(
        found.isoformat(timespec="milliseconds"), found.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def _moment(moment: str | float | datetime) -> datetime:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC)
    if isinstance(moment, str):
        found = datetime.fromisoformat(moment)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.fromtimestamp(moment, UTC)


def size(number: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("bytes", "KB", "MB"):
        if number < 1024:
            return f"{number:g} {unit}" if number == int(number) else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GB"


def words(text: str) -> str:
    """`file_system` as a person writes it."""
    return "by hand" if text == "hand" else str(text).replace("_", " ")
