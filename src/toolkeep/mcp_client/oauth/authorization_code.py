"""Authorization code flow with PKCE (OAuth 2.1): the URL that a person opens, and validation of the response.

PKCE binds the code to this client, `state` binds the response to this request (CSRF), and `iss` binds it to
the authorization server that was asked (RFC 9207, mix-up attack): a code injected by another issuer is never
sent anywhere.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from toolkeep.mcp_client.oauth.discovery import AuthorizationServer
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.stores.sign_ins import Client


class AuthorizationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of one authorization request: `state` and PKCE verifier."""

    state: str
    verifier: str

    @classmethod
    def new(cls) -> "AuthorizationRequest":
        """Generate fresh values."""
        return cls(state=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(64))

    def __repr__(self) -> str:
        """Without secrets."""
        return "<attempt>"

    def url(self, issuer: AuthorizationServer, client: Client, resource: str, scope: str) -> str:
        """The authorization URL for the person's browser."""
        if not issuer.authorization_endpoint:
            raise UpstreamFailed("its authorization server has no authorization endpoint")
        # Without PKCE a program that intercepts the loopback redirect could redeem the code.
        if not issuer.has_pkce:
            raise UpstreamFailed("its authorization server does not support PKCE with S256")
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
        """Whether a response has our `state`, compared in constant time.

        Any local program can time the listener.
        """
        return hmac.compare_digest(answer.get("state", "").encode(), self.state.encode())

    def code(self, answer: Mapping[str, str], issuer: AuthorizationServer) -> str:
        """The authorization code of a response. Raises `UpstreamFailed`."""
        if "iss" in answer and answer["iss"] != issuer.issuer:
            raise UpstreamFailed("the authorization response is from another issuer")
        # The server promised `iss` in its metadata: a response without it may come from another server
        # (mix-up).
        if issuer.sends_iss and "iss" not in answer:
            raise UpstreamFailed("the authorization response lacks its issuer (RFC 9207)")
        if "error" in answer or not answer.get("code"):
            known = answer.get("error", "") == "access_denied"
            raise UpstreamFailed(
                "access was denied" if known else "the authorization server reported an error"
            )
        return answer["code"]
