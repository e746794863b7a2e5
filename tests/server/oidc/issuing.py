"""An issuer of our own: keys, tokens with anything in them, and a server of its documents."""

import base64
import hmac
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from toolkeep.config.identity_settings import ClaimGrant, Issuer
from toolkeep.server.oidc.access_tokens import AccessTokens
from toolkeep.server.oidc.issuer_keys import IssuerKeys

ISSUER, AUDIENCE = "https://login.example.org", "https://keep.example.org/mcp"
NOW = 1_800_000_000.0
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
with pytest.warns(SecurityWarning):
    SMALL = RSAKey.generate_key(1024, {"kid": "small"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
OTHER = RSAKey.generate_key(2048, {"kid": "rsa"})
GRANTS = (
    ClaimGrant(claims={"client_id": "nightly"}, agent="nightly", scopes=("call", "mcp")),
    ClaimGrant(claims={"groups": "approvers", "sub": "ada"}, agent="ada", scopes=("approver",)),
)


def issuer(**more: Any) -> Issuer:
    facts: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "algorithm": "RS256", "grants": GRANTS}
    return Issuer(**facts | more)


def claims(**more: Any) -> dict[str, Any]:
    """The claims of a token of the client `nightly`; a claim that is None is left out."""
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "nightly", "client_id": "nightly", "jti": "1"}
    whole = usual | {"iat": NOW - 10, "exp": NOW + 600} | more
    return {name: value for name, value in whole.items() if value is not None}


def header(**more: Any) -> dict[str, Any]:
    whole = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa"} | more
    return {name: value for name, value in whole.items() if value is not None}


def part(data: Any) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(head: Any = None, body: Any = None, key: Any = RSA, algorithm: str = "") -> str:
    """A token with this head and body, whatever they are."""
    head = header() if head is None else head
    body = claims() if body is None else body
    algorithm = algorithm or (head["alg"] if isinstance(head, dict) else "RS256")
    signing = f"{part(head)}.{part(body)}"
    algorithm = {"EdDSA": "Ed25519"}.get(algorithm, algorithm)  # without the library's warning
    found = jws.JWSRegistry.algorithms[algorithm].sign(signing.encode(), key)
    return f"{signing}.{part(found)}"


def key_set(*keys: Any, **more: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) | {"kid": key.kid, "use": "sig"} | more for key in keys]}


class Told(AccessTokens):
    """Keeps what is told of refusals."""

    def __init__(self, keys: Any, clock: Callable[[], float]) -> None:
        self.told: list[tuple[str, str, str]] = []
        super().__init__(keys, lambda *told: self.told.append(told), clock)


def access_tokens(document: Any = None, *, now: float = NOW, **more: Any) -> Told:
    """Recognizes tokens of one issuer with these keys."""

    async def fetch() -> dict[str, Any]:
        return key_set(RSA) if document is None else document

    one = issuer(**more)
    return Told({ISSUER: (one, IssuerKeys(one, fetch))}, lambda: now)


def signed_by_secret(head: Any, secret: bytes) -> str:
    """A token with an HMAC, under a secret that everybody knows."""
    signing = f"{part(head)}.{part(claims())}"
    return f"{signing}.{part(hmac.digest(secret, signing.encode(), 'sha256'))}"


@contextmanager
def documents(pages: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """A server of documents on this machine: its address, and the paths that were asked for.

    A page is JSON, or bytes that are sent as they are, or a text where to go instead.
    """
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.answer(pages.get(self.path))

        def answer(self, page: Any) -> None:
            raw = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response({type(None): 404, str: 302}.get(type(page), 200))
            if isinstance(page, str):
                self.send_header("Location", page)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            known = self.headers.get("Authorization", "").removeprefix("Basic ") or "-"
            asked.append(f"{self.path} {known} {body}")
            self.answer(pages.get(self.path))

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
