"""Revoked identities: subjects, tokens and sessions of identity providers that no longer count (IDN-1).

A provider's own revocation counts here when a token expires, since nobody asks it about each request. What is
in this set counts at once, on every server of the keep.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from toolkeep.calls import Identity
from toolkeep.limits import SESSION_HOURS

REVOCATIONS: Final = 10_000
"""And as many logouts. A few hundred bytes each, all of them in the memory of every server."""
LOGOUT_SECONDS: Final = 31 * 86_400.0
"""How long a logout is remembered: longer than any token that was issued before it may live."""

SUBJECT_LOGOUTS: Final = 50
"""Sessions of one subject whose logouts are remembered each; with more of them, all of theirs have ended."""
_SESSION_SECONDS: Final = SESSION_HOURS * 3600


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """What no longer counts, of one issuer."""

    issuer: str
    subject: str = ""
    """All tokens of this subject, and its sessions on the page."""
    token_id: str = ""
    """The token with this `jti`."""
    session: str = ""
    """For a logout, the session at the provider that ended; empty for all of the subject."""
    issued_by: float | None = None
    """For a logout: only what the provider issued up to then, in POSIX seconds; None for everything."""
    made_at: float

    @property
    def id(self) -> str:
        """The same for the same thing: to revoke it twice changes nothing."""
        kind = "revoked" if self.issued_by is None else "logout"
        parts = kind, self.issuer, self.subject, self.token_id, self.session
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def is_over(self, now: float) -> bool:
        """Whether everything that it revokes has expired by itself."""
        # Without a subject it ends a session of the page alone.
        lasts = LOGOUT_SECONDS if self.subject else _SESSION_SECONDS
        return self.issued_by is not None and now >= self.made_at + lasts


def merged(held: Mapping[str, Revocation], new: Revocation) -> tuple[Revocation, list[str]]:
    """What to store of a revocation, and the ids of those that it takes the place of.

    Somebody who signs in and out for hours must not use up the room for the logouts of others.
    """
    if new.issued_by is None or not new.subject:
        return new, []
    person = new.issuer, new.subject
    same = {
        key: one.issued_by
        for key, one in held.items()
        if one.issued_by is not None and (one.issuer, one.subject) == person
    }
    # Sessions of the page that they ended are over; of access tokens, the new one says at least as much.
    old = [key for key in same if held[key].session and new.made_at >= held[key].made_at + _SESSION_SECONDS]
    if len(same) - len(old) < SUBJECT_LOGOUTS:
        return new, old
    return replace(new, session="", issued_by=max(new.issued_by, *same.values())), list(same)


class RevokedIdentities:
    """The revocations, to look up."""

    def __init__(self, revocations: Iterable[Revocation] = ()) -> None:
        self._subjects: set[tuple[str, str]] = set()
        self._tokens: set[tuple[str, str]] = set()
        self._logouts: dict[tuple[str, str], float] = {}
        """Of a subject, in any session: until when tokens of theirs were issued that do not count."""
        self._ended: dict[tuple[str, str, str], float] = {}
        """Sessions at the provider, by issuer, subject and session; each of them may be empty."""
        for one in revocations:
            if one.issued_by is not None:
                self._log_out(one, one.issued_by)
            elif one.subject:
                self._subjects.add((one.issuer, one.subject))
            else:
                self._tokens.add((one.issuer, one.token_id))

    def _log_out(self, one: Revocation, issued_by: float) -> None:
        if one.subject:
            person = one.issuer, one.subject
            self._logouts[person] = max(issued_by, self._logouts.get(person, 0.0))
        # A session names its subject by itself; a logout token need not name both.
        ended = (one.issuer, "", one.session) if one.session else (one.issuer, one.subject, "")
        self._ended[ended] = max(issued_by, self._ended.get(ended, 0.0))

    def has_token(self, who: Identity, issued_at: float) -> bool:
        """Whether an access token does not count."""
        person = who.issuer, who.subject
        return (
            person in self._subjects
            or (bool(who.token_id) and (who.issuer, who.token_id) in self._tokens)
            or issued_at <= self._logouts.get(person, 0.0)
        )

    def has_session(self, who: Identity, session: str, issued_at: float) -> bool:
        """Whether a session of the page does not count that began with an ID token of then."""
        if (who.issuer, who.subject) in self._subjects:
            return True
        ended = max(
            self._ended.get((who.issuer, who.subject, ""), 0.0),
            self._ended.get((who.issuer, "", session), 0.0) if session else 0.0,
        )
        return issued_at <= ended
