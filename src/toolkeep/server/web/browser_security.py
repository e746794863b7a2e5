"""Response headers against injection and framing (CSP), and the origin check for changes (CSRF)."""

from typing import Final

from toolkeep.errors import Code
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.responses import Header

TAB_HEADER: Final = b"x-toolkeep-tab"
KEY_HEADER: Final = b"x-toolkeep-key"

_COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"permissions-policy",
        b"camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-read=()",
    ),
)


def security_headers(nonce: str) -> tuple[Header, ...]:
    """Security headers of a page: only scripts with the nonce run, and nothing loads from other origins."""
    policy = (
        # Tool names, arguments and results are written by models and servers. Should one get past the
        # escaping, this policy leaves it nothing to run, load or send to: no inline scripts, no foreign
        # hosts, no foreign forms, no `<base>` that redirects ours, and no frame for clickjacking on
        # "approve".
        "default-src 'none'; "
        f"script-src 'nonce-{nonce}'; "
        f"style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    return (b"content-security-policy", policy.encode()), *_COMMON_HEADERS


def check_origin(headers: Headers, base: str) -> None:
    """Raise for a change that does not come from our own pages (CSRF).

    Browsers set `Origin` on every POST, and pages cannot change it. A missing one is refused as well.
    """
    origin = headers.raw(b"origin").decode("latin-1")
    if headers.is_doubled(b"origin") or origin.lower() != base.lower():
        raise not_from_page("the request does not come from this page")


def not_from_page(message: str) -> RequestRefused:
    """The error for a change without a valid origin or tab token."""
    return RequestRefused(
        Code.NOT_FROM_PAGE,
        message,
        hint="reload the page; programs use /v1 with a token",
        headers=((TAB_HEADER, b"unknown"),),
    )
