"""One authorization by code (OAuth 2.1): the URL that a person opens, and the check of what comes back.

PKCE binds the code to us, `state` binds the answer to this attempt, and `iss` binds it to the server that was
asked (RFC 9207): a code that another issuer slipped in is not sent anywhere.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from toolkeep.sign_ins import Client
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.discovery import Issuer


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What must come back, and what is then shown with the code."""

    state: str
    verifier: str

    @classmethod
    def new(cls) -> "Attempt":
        """A fresh one."""
        return cls(state=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(64))

    def __repr__(self) -> str:
        """Without what is secret."""
        return "<attempt>"

    def url(self, issuer: Issuer, client: Client, resource: str, scope: str) -> str:
        """Where a person signs in."""
        if not issuer.authorization_endpoint:
            raise UpstreamFailed("who signs in for it does not say where")
        if not issuer.has_pkce:
            raise UpstreamFailed("who signs in for it does not bind codes to who asked for them (PKCE, S256)")
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": client.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": resource,
        }
        asked |= {"scope": scope} if scope else {}
        joint = "&" if "?" in issuer.authorization_endpoint else "?"
        return f"{issuer.authorization_endpoint}{joint}{urlencode(asked)}"

    def is_ours(self, answer: Mapping[str, str]) -> bool:
        """Whether an answer belongs to this attempt."""
        return hmac.compare_digest(answer.get("state", "").encode(), self.state.encode())

    def code(self, answer: Mapping[str, str], issuer: Issuer) -> str:
        """The code of an answer that is ours. Raises `UpstreamFailed`."""
        if "iss" in answer and answer["iss"] != issuer.issuer:
            raise UpstreamFailed("the answer comes from another issuer than was asked")
        if issuer.says_issuer and "iss" not in answer:
            raise UpstreamFailed("the answer does not say which issuer it comes from, as it always should")
        if "error" in answer or not answer.get("code"):
            known = answer.get("error", "") == "access_denied"
            raise UpstreamFailed("you were not let in" if known else "signing in failed there")
        return answer["code"]
