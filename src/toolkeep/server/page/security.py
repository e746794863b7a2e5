"""What every answer of the page tells the browser not to do, and which requests may change something."""

from typing import Final

from toolkeep.errors import Code
from toolkeep.mcp.headers import Headers
from toolkeep.server.answers import Header
from toolkeep.server.problems import RequestRefused

TAB_HEADER: Final = b"x-toolkeep-tab"
KEY_HEADER: Final = b"x-toolkeep-key"

_STEADY: Final[tuple[Header, ...]] = (
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"permissions-policy",
        b"camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-read=()",
    ),
)


def protective(nonce: str) -> tuple[Header, ...]:
    """The headers of an answer: only what carries the nonce is run, and nothing comes from elsewhere."""
    policy = (
        "default-src 'none'; "
        f"script-src 'nonce-{nonce}'; "
        f"style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    return (b"content-security-policy", policy.encode()), *_STEADY


def check_origin(headers: Headers, base: str) -> None:
    """Raise for a change that no page of ours asked for; browsers say where a request comes from."""
    origin = headers.raw(b"origin").decode("latin-1")
    if headers.is_doubled(b"origin") or origin.lower() != base.lower():
        raise not_from_page("the request does not come from this page")


def not_from_page(message: str) -> RequestRefused:
    """A change that was not made by a tab of the one who is signed in."""
    return RequestRefused(
        Code.NOT_FROM_PAGE,
        message,
        hint="load the page anew; a program uses /v1 with a token",
        headers=((TAB_HEADER, b"unknown"),),
    )
