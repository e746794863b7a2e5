"""Sign-in to the page with an identity provider, as its browser sees it (IDN-2).

The page begins an attempt with a POST of its own, and passes the provider's answer on with another: no
other site can begin one, or have an answer counted, in somebody's browser (login CSRF). After it the browser
goes to a fixed address, so that nothing in an answer leads elsewhere (open redirect).
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from toolkeep.errors import Code, TokenRefused
from toolkeep.limits import SIGN_IN_SECONDS
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.responses import Header, Response
from toolkeep.server.oidc.person import SignInInvalid
from toolkeep.server.service import Service
from toolkeep.server.web.browser_security import security_headers
from toolkeep.server.web.cookie_sessions import COOKIE, NewSession, Sessions
from toolkeep.server.web.web_request import Form, PageRequest

if TYPE_CHECKING:
    from toolkeep.server.oidc.people import PeopleSignIn

LOGOUT: Final = "/ui/back-channel-logout"
ATTEMPT: Final = "-sign-in"
"""At the end of the name of the cookie."""
_REDIRECT: Final = "/ui/sign-in"
_USED: Final = "it was used before"
_FIELDS: Final = 16
"""Of an answer: it has four, and a provider may add some."""


class PeoplePage:
    """Signs people in and out."""

    def __init__(self, people: "PeopleSignIn", sessions: Sessions, service: Service) -> None:
        self._people = people
        self._sessions = sessions
        self._service = service

    def choices(self) -> list[tuple[str, str]]:
        """The providers, each with the name that people are shown."""
        return self._people.choices()

    async def begin(self, request: PageRequest, form: Form, base: str, cookie: str) -> Response:
        """Begin an attempt: its cookie, and for the page the key of the attempt and where to go."""
        issuer = form.get("begin")
        try:
            begun = await self._people.begin(issuer, f"{base}{_REDIRECT}", is_fresh=bool(form.get("fresh")))
        except SignInInvalid as error:
            raise self._refused(issuer, str(error)) from error
        sealed = attempt_cookie(cookie, self._sessions.seal_attempt(begun.attempt), base)
        headers = (sealed, *security_headers(request.nonce))
        return Response(200, f"{begun.key} {begun.url}".encode(), b"text/plain", headers)

    async def finish(self, request: PageRequest, form: Form, cookie: str) -> NewSession:
        """The session of the person whom the provider's answer names; raises `RequestRefused`."""
        attempt = self._sessions.read_attempt(cookie) if cookie else None
        if attempt is None:
            raise self._refused("", "this browser did not begin it")
        issuer = attempt.issuer
        # Before the provider is asked, and again after: the same answer may come twice at once.
        if await self._sessions.is_used(attempt):
            raise self._refused(issuer, _USED)
        try:
            person = await self._people.finish(attempt, form.get("key"), _read_answer(form.get("answer")))
        except SignInInvalid as error:
            raise self._refused(issuer, str(error)) from error
        begun = self._sessions.begin_person(person)
        if begun is None:
            raise self._refused(issuer, "its names are too long")
        # Only an answer that a provider vouched for is remembered: others could be made up without end.
        if not await self._sessions.use(attempt):
            raise self._refused(issuer, _USED)
        # The session that this browser had before does not outlive the sign-in of somebody else.
        if request.session is not None:
            await self._sessions.end(request.session)
        return begun

    async def log_out(self, request: PageRequest) -> Response:
        """A logout token, which the provider itself sends: it has no cookie and no origin."""
        if request.method != "POST":
            return Response(405, b"", b"text/plain", ((b"allow", b"POST"),))
        token = (await request.form()).get("logout_token")
        try:
            over = await self._people.log_out(token)
            mark = partial(
                self._service.tokens.log_out,
                over.issuer,
                subject=over.subject,
                session=over.session,
                issued_by=over.issued_by,
            )
            await asyncio.to_thread(mark)
        except (SignInInvalid, TokenRefused) as error:
            self._people.refused("logout", self._people.named_issuer(token), str(error))
            return Response(400, b'{"error":"invalid_request"}', b"application/json")
        self._people.note_logout(over)
        self._service.authenticator.forget()
        return Response(200, b"", b"text/plain")

    def tell_refused(self, reason: str) -> None:
        """Tell of a sign-in that was refused before its provider was known."""
        self._people.refused("sign-in", "", reason)

    def _refused(self, issuer: str, reason: str) -> RequestRefused:
        """One message for every reason; the log of the operator says which."""
        self._people.refused("sign-in", issuer, reason)
        return RequestRefused(
            Code.SIGN_IN_REFUSED,
            "the identity provider did not sign you in, or not in this browser",
            hint="begin again on this page; the log of the server says why",
        )


def _read_answer(text: str) -> dict[str, str]:
    """The parameters of an answer; none of them if one comes twice."""
    try:
        pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return {}
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}


def attempt_cookie(name: str, value: str, base: str) -> Header:
    """The cookie of an attempt; without a value, its end."""
    parts = [f"{name}{ATTEMPT}={value}", f"Path={_REDIRECT}", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={SIGN_IN_SECONDS:.0f}" if value else "Max-Age=0")
    if base.startswith("https:"):
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode()


def cookie_of(request: PageRequest, wanted: str) -> str:
    """A cookie; empty if there is none, or more than one candidate.

    Another program on this host can set a second cookie of the same name; neither is trusted then.
    """
    given = request.headers.raw(b"cookie").decode("latin-1").split(";")
    pairs = (part.strip().partition("=") for part in given)
    found = [value for name, _, value in pairs if name == wanted]
    return found[0] if len(found) == 1 and COOKIE.fullmatch(found[0]) else ""
