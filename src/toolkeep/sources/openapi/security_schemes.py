"""How an operation authenticates: which secret goes where. A secret has the name of its security scheme.

API keys in header, query or cookie; HTTP basic (a secret `name:password`) and bearer; OAuth 2.0 and OpenID
Connect by an existing token. Of several alternatives, the first that is possible.
"""

import re
from typing import Any, Final

import msgspec

from toolkeep.sources.openapi.document import Document, Refused
from toolkeep.text.display import echo, echo_name

_SECRET_NAME: Final = re.compile(r"[^{}\r\n]{1,128}")


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """Headers and query of an operation that hold secrets, by name."""

    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()

    def joined(self, other: "Authentication") -> "Authentication":
        """Both combined; cookies share a header."""
        cookies = [value for name, value in (*self.headers, *other.headers) if name == "Cookie"]
        headers = tuple(pair for pair in (*self.headers, *other.headers) if pair[0] != "Cookie")
        if cookies:
            headers = (*headers, ("Cookie", "; ".join(cookies)))
        return Authentication(
            headers=headers, query=(*self.query, *other.query), secrets=(*self.secrets, *other.secrets)
        )


NOBODY: Final = Authentication()


def authentication_of(document: Document, operation: dict[str, Any], given: frozenset[str]) -> Authentication:
    """The authentication of an operation; prefers the secrets in `given`."""
    stated = operation.get("security", document.data.get("security"))
    if not isinstance(stated, list) or not stated:
        return NOBODY
    ways, reasons = [], []
    for requirement in stated:
        try:
            ways.append(_way(document, requirement))
        except Refused as error:
            reasons.append(str(error))
    if not ways:
        raise Refused(reasons[0])
    return next((way for way in ways if way.secrets and given.issuperset(way.secrets)), ways[0])


def _way(document: Document, requirement: Any) -> Authentication:
    if not isinstance(requirement, dict):
        raise Refused("has a security requirement that is not an object")
    made = NOBODY
    schemes = document.data.get("components", {})
    schemes = schemes.get("securitySchemes") if isinstance(schemes, dict) else None
    for name in requirement:
        scheme = document.followed(schemes.get(name)) if isinstance(schemes, dict) else None
        if not isinstance(scheme, dict) or not _SECRET_NAME.fullmatch(name):
            raise Refused(
                f"needs the security scheme {echo_name(str(name))}, which the document does not describe"
            )
        made = made.joined(_scheme(name, scheme))
    return made


def _scheme(name: str, scheme: dict[str, Any]) -> Authentication:
    kind = scheme.get("type")
    if kind == "apiKey":
        return _api_key(name, scheme)
    if kind in ("oauth2", "openIdConnect"):
        return _header("Authorization", f"Bearer {{secret:{name}}}", name)
    how = str(scheme.get("scheme", "")).lower()
    if kind == "http" and how == "bearer":
        return _header("Authorization", f"Bearer {{secret:{name}}}", name)
    if kind == "http" and how == "basic":
        return _header("Authorization", f"Basic {{basic:{name}}}", name)
    what = f"http {how}" if kind == "http" else str(kind)
    raise Refused(f"authenticates by {echo(what)}, which is not supported")


def _api_key(name: str, scheme: dict[str, Any]) -> Authentication:
    where, key = scheme.get("in"), scheme.get("name")
    if not isinstance(key, str) or not key:
        raise Refused(f"has the API key {echo_name(name)} without a name")
    if where == "header":
        return _header(key, f"{{secret:{name}}}", name)
    if where == "query":
        return Authentication(query=((key, name),), secrets=(name,))
    if where == "cookie":
        return _header("Cookie", f"{key}={{secret:{name}}}", name)
    raise Refused(f"has the API key {echo_name(name)} in {echo(where)}")


def _header(header: str, value: str, secret: str) -> Authentication:
    return Authentication(headers=((header, value),), secrets=(secret,))
