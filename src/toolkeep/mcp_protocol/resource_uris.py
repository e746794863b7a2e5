"""URIs of resources: which are accepted, RFC 6570 templates as patterns, and names per upstream.

A URI of an upstream is only a name at that upstream. `file:///etc/passwd` is sent back to the server that
listed it, and nothing here opens it. Clients get `toolkeep:UPSTREAM/URI`, so that two upstreams can list the
same URI, and no client takes it for a file or page of its own.
"""

import re
from typing import Final
from urllib.parse import unquote

from toolkeep.limits import MCP_URI_CHARS

SCHEME: Final = "toolkeep"
OWN_URI_CHARS: Final = MCP_URI_CHARS - 64
"""Maximum length of a URI of an upstream: with its name, it must not exceed the one of clients."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
"""RFC 3986: ASCII without blanks, control characters, quotes, backslashes and brackets."""
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLES: Final = re.compile(
    r"([+#./;?&]?)([A-Za-z0-9_.%]+(?::[1-9][0-9]{0,3}|\*)?(?:,[A-Za-z0-9_.%]+(?::[1-9][0-9]{0,3}|\*)?)*)"
)
_EXPRESSIONS: Final = 20
"""Maximum number of expressions in one template; real ones have at most five."""

_UNRESERVED: Final = "(?:[A-Za-z0-9._~,=-]|%[0-9A-Fa-f]{2})*"
"""The text of a value in simple expansion; lists and exploded maps add `,` and `=`."""
_RESERVED: Final = r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_NAMED: Final = "(?:[A-Za-z0-9._~,=;&-]|%[0-9A-Fa-f]{2})*"
_BY_OPERATOR: Final = {
    "": _UNRESERVED,
    "+": _RESERVED,
    "#": f"(?:#{_RESERVED})?",
    ".": rf"(?:\.{_UNRESERVED})?",
    "/": f"(?:/{_UNRESERVED})*",
    ";": f"(?:;{_NAMED})?",
    "?": rf"(?:\?{_NAMED})?",
    "&": f"(?:&{_NAMED})?",
}
"""Pattern of everything that an expression can expand to, by operator (RFC 6570, section 3.2)."""


def wrong_with_uri(uri: object) -> str:
    """Why a URI is not accepted; empty if it is."""
    if not isinstance(uri, str) or not uri:
        return "has no URI"
    if len(uri) > OWN_URI_CHARS:
        return f"has a URI of more than {OWN_URI_CHARS} characters"
    if _URI.fullmatch(uri) is None:
        return "has a URI with characters that RFC 3986 does not allow, or without a scheme"
    return ""


def wrong_with_template(template: object) -> str:
    """Why a URI template is not accepted; empty if it is."""
    if not isinstance(template, str) or not template:
        return "has no URI template"
    inside = _EXPRESSION.findall(template)
    if len(inside) > _EXPRESSIONS or not all(map(_VARIABLES.fullmatch, inside)):
        return f"has a URI template that RFC 6570 does not allow, or more than {_EXPRESSIONS} expressions"
    # A scheme that a client could choose would make the template stand for any URI.
    scheme = template.partition(":")[0]
    return (
        "has a URI template without a scheme"
        if "{" in scheme
        else wrong_with_uri(_EXPRESSION.sub("x", template))
    )


def template_pattern(template: str) -> str:
    """An anchored regular expression that every expansion of an accepted template matches."""
    parts = _EXPRESSION.split(template)
    return "^" + "".join(_part(part, is_expression=bool(index % 2)) for index, part in enumerate(parts)) + "$"


def _part(part: str, *, is_expression: bool) -> str:
    if not is_expression:
        return re.sub(r"([.?+*$()\[\]|^{}])", r"\\\1", part)
    return _BY_OPERATOR[part[0] if part[0] in _BY_OPERATOR else ""]


def has_dot_segments(uri: str) -> bool:
    """Whether a URI has a path segment `.` or `..`, also percent-encoded.

    Policies compare text: `docs://public/../private` would pass `like "docs://public/*"`.
    """
    text = unquote(unquote(uri)).replace("\\", "/")
    return any(segment in (".", "..") for segment in re.split("[/?#]", text))


def namespaced(upstream: str, uri: str) -> str:
    """The URI or template as clients get it."""
    return f"{SCHEME}:{upstream}/{uri}"


def split_namespaced(uri: str) -> tuple[str, str] | None:
    """The upstream and its own URI; None if the URI is none of ours."""
    scheme, _, rest = uri.partition(":")
    upstream, slash, own = rest.partition("/")
    return (upstream, own) if scheme == SCHEME and upstream and slash and own else None
