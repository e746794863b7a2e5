"""Tokens: the same in memory, in SQLite and in PostgreSQL."""

import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.storage.cluster import Cluster
from toolkeep.calls import Identity
from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import StateUnusable, TokenRefused
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.stores.api_tokens import KeptToken, MemoryTokens, Scope, Token, Tokens, TokenTable
from toolkeep.stores.identity_revocations import SUBJECT_LOGOUTS, Revocation, RevokedIdentities

pytestmark = pytest.mark.spec("POL-8")

DAY = 86_400.0


class Clock:
    """Says the time that it was told."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "file", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TokenTable]:
    made: TokenTable
    if request.param == "memory":
        made = MemoryTokens()
    elif request.param == "file":
        made = SqliteTokens(tmp_path / "state")
    else:
        running: Cluster = request.getfixturevalue("postgres")
        settings = DatabaseSettings(url=running.clean(), is_single=True)
        made = open_shared_tokens(settings, lambda: b"key", tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(table: TokenTable, clock: Clock) -> Tokens:
    return Tokens(table, clock)


def test_a_token_is_recognized_with_its_scopes_and_its_agent(tokens: Tokens, clock: Clock) -> None:
    made = tokens.make("ci", ["mcp", "call", "call"], agent="writer", days=1)
    assert made.token == Token(
        id=made.token.id,
        name="ci",
        scopes=(Scope.CALL, Scope.MCP),
        agent="writer",
        created_at=clock.now,
        expires_at=clock.now + DAY,
    )
    assert tokens.recognize(made.text) == made.token
    assert re.fullmatch(r"tk_[0-9a-f]{16}_[\w-]{43}", made.text)


def test_nothing_but_the_hash_of_the_secret_is_kept(tokens: Tokens, table: TokenTable) -> None:
    made = tokens.make("ci", [Scope.CALL])
    kept = table.find(made.token.id)
    assert kept is not None
    assert kept.secret_hash == hashlib.sha256(made.text[20:].encode()).digest()
    for shown in (repr(made), repr(kept), repr(tokens.list())):
        assert made.text[20:] not in shown
        assert kept.secret_hash.hex() not in shown
        assert repr(kept.secret_hash) not in shown


@pytest.mark.parametrize(
    "shown",
    ["", "tk_", "Bearer x", "tk_0123456789abcdef_" + "A" * 43, "A" * 5000, "tk_é", "tk_0123456789abcdef_" + "A" * 44],
)  # fmt: skip
def test_what_is_no_token_is_not_recognized(tokens: Tokens, shown: str) -> None:
    tokens.make("ci", [Scope.CALL])
    assert tokens.recognize(shown) is None


def test_a_secret_counts_for_its_own_id_alone(tokens: Tokens) -> None:
    one, other = tokens.make("one", [Scope.CALL]), tokens.make("other", [Scope.ADMIN])
    assert tokens.recognize(f"tk_{other.token.id}_{one.text[20:]}") is None
    for wrong in (one.text + "A", one.text[:-1], one.text.upper(), f" {one.text}", f"{one.text}\n"):
        assert tokens.recognize(wrong) is None


def test_secrets_are_compared_in_constant_time_also_where_there_is_no_such_id(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def note(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    made = tokens.make("ci", [Scope.CALL])
    shown = (made.text, made.text[:-1] + "A", "tk_0123456789abcdef_" + "A" * 43)
    for text in shown:
        tokens.recognize(text)
    wanted = [hashlib.sha256(text[-43:].encode()).digest() for text in shown]
    assert [one for one, _ in compared if one in wanted] == wanted
    assert {len(side) for pair in compared for side in pair} == {32}


def test_a_token_ends_when_it_was_said_to(tokens: Tokens, clock: Clock) -> None:
    brief, endless = tokens.make("brief", [Scope.CALL], days=1), tokens.make("ever", [Scope.CALL], days=None)
    clock.now += DAY - 1
    assert tokens.recognize(brief.text) is not None
    clock.now += 1
    assert tokens.recognize(brief.text) is None
    clock.now += 5000 * DAY
    assert tokens.recognize(endless.text) is not None


def test_a_revoked_token_no_longer_counts(tokens: Tokens) -> None:
    made, other = tokens.make("ci", [Scope.CALL]), tokens.make("ci", [Scope.CALL])
    revoked = tokens.revoke(made.token.id[:15])
    assert revoked.revoked_at is not None
    assert tokens.recognize(made.text) is None
    assert tokens.recognize(other.text) is not None
    with pytest.raises(TokenRefused):
        tokens.revoke(made.token.id)
    assert {token.id for token in tokens.list()} == {made.token.id, other.token.id}


@pytest.mark.parametrize("overlap_s", [0, 60])
def test_a_rotated_token_counts_in_the_place_of_the_old_one(
    tokens: Tokens, clock: Clock, overlap_s: int
) -> None:
    old = tokens.make("ci", [Scope.CALL, Scope.MCP], agent="writer", days=10)
    clock.now += DAY
    new = tokens.rotate(old.token.id, overlap_s=overlap_s)
    assert (new.token.name, new.token.scopes, new.token.agent) == ("ci", old.token.scopes, "writer")
    assert new.token.expires_at == clock.now + 10 * DAY
    assert tokens.recognize(new.text) is not None
    assert (tokens.recognize(old.text) is not None) is bool(overlap_s)
    clock.now += overlap_s
    assert tokens.recognize(old.text) is None
    with pytest.raises(TokenRefused):
        tokens.rotate(old.token.id)


def test_a_token_that_is_revoked_while_it_is_rotated_gives_no_other(
    tokens: Tokens, table: TokenTable, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, genuine = tokens.make("ci", [Scope.CALL]), table.exchange

    def revoke_first(token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        table.revoke(token_id, clock.now)
        return genuine(token_id, kept, ends_at=ends_at)

    monkeypatch.setattr(table, "exchange", revoke_first)
    with pytest.raises(TokenRefused):
        tokens.rotate(old.token.id)
    assert not any(token.is_live(clock.now) for token in table.all())


def test_a_rotation_never_lengthens_the_old_token(tokens: Tokens, clock: Clock) -> None:
    old = tokens.make("ci", [Scope.CALL], days=1)
    tokens.rotate(old.token.id, overlap_s=30 * DAY)
    clock.now += DAY
    assert tokens.recognize(old.text) is None


def test_the_last_use_is_known_to_the_minute(tokens: Tokens, clock: Clock) -> None:
    made = tokens.make("ci", [Scope.CALL])
    assert tokens.list()[0].last_used_at is None
    tokens.recognize(made.text)
    first = clock.now
    clock.now += 59
    tokens.recognize(made.text)
    assert tokens.list()[0].last_used_at == first
    clock.now += 2
    tokens.recognize(made.text)
    assert tokens.list()[0].last_used_at == clock.now


def test_admin_has_every_scope_and_others_have_their_own() -> None:
    admin = Token(id="a", name="a", scopes=(Scope.ADMIN,), agent="a", created_at=0.0)
    caller = Token(id="c", name="c", scopes=(Scope.CALL,), agent="c", created_at=0.0)
    assert all(map(admin.has_scope, Scope))
    assert [scope for scope in Scope if caller.has_scope(scope)] == [Scope.CALL]


@pytest.mark.parametrize(
    ("name", "scopes", "agent", "days"),
    [
        ("", ["call"], "a", 1),
        ("x" * 65, ["call"], "a", 1),
        ("a\nb", ["call"], "a", 1),
        ("x'; DROP TABLE tokens;--", ["call"], "a", 1),
        ("ok", ["call"], "\x1b[31m", 1),
        ("ok", [], "a", 1),
        ("ok", ["root"], "a", 1),
        ("ok", ["call"], "a", 0),
        ("ok", ["call"], "a", 1e9),
    ],
)
def test_a_token_that_cannot_be_is_refused(name: str, scopes: list[str], agent: str, days: float) -> None:
    with pytest.raises(TokenRefused):
        Tokens(MemoryTokens()).make(name, scopes, agent=agent, days=days)


def test_there_are_only_so_many_that_count(table: TokenTable, tokens: Tokens) -> None:
    made = tokens.make("one", [Scope.CALL])
    another = KeptToken(replace(made.token, id="0" * 16), b"x" * 32)
    assert not table.add(another, most=1)
    tokens.revoke(made.token.id)
    assert table.add(another, most=1)


def test_a_beginning_that_several_have_names_none_of_them(tokens: Tokens, table: TokenTable) -> None:
    for last in "12":
        token = Token(id="a" * 15 + last, name="x", scopes=(Scope.CALL,), agent="x", created_at=1.0)
        table.add(KeptToken(token, b""), most=9)
    for beginning in ("a", ""):
        with pytest.raises(TokenRefused):
            tokens.revoke(beginning)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    tokens = Tokens(SqliteTokens(tmp_path / "state"))
    assert tokens.recognize("tk_0123456789abcdef_" + "A" * 43) is None
    assert tokens.list() == ()
    assert not (tmp_path / "state").exists()


def test_the_file_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    with contextlib.closing(Tokens(SqliteTokens(tmp_path / "state"))) as tokens:
        tokens.make("ci", [Scope.CALL])
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()} == {0o600}


def test_revocations_are_stored_once_and_logouts_are_forgotten(tokens: Tokens, clock: Clock) -> None:
    subject = tokens.revoke_identity("https://a", subject="ada")
    clock.now += 1
    assert tokens.revoke_identity("https://a", subject="ada").id == subject.id
    late = tokens.log_out("https://a", subject="bob", session="s", issued_by=clock.now)
    early = tokens.log_out("https://a", subject="bob", session="s", issued_by=clock.now - 9)
    assert early.id == late.id
    assert list(tokens.revocations()) == [subject, late]  # an older logout takes nothing back
    clock.now += 32 * DAY
    assert list(tokens.revocations()) == [subject]
    other = tokens.revoke_identity("https://a", token_id="7")
    assert list(tokens.revocations()) == [subject, other]
    assert tokens.restore(subject.id[:6]) == subject
    assert list(tokens.revocations()) == [other]
    for unknown in ("", subject.id):
        with pytest.raises(TokenRefused):
            tokens.restore(unknown)


def test_no_more_is_revoked_than_every_server_can_hold(table: TokenTable) -> None:
    made = [Revocation(issuer="https://a", subject=str(number), made_at=float(number)) for number in range(3)]
    assert [table.add_revocation(one, most=2) for one in (*made, made[0])] == [True, True, False, True]


def _logout(number: int, **more: Any) -> Revocation:
    """A logout an hour after the one before."""
    at = 3600.0 * number
    usual: dict[str, Any] = {
        "issuer": "https://a",
        "subject": "ada",
        "session": f"s{number}",
        "issued_by": at,
        "made_at": at,
    }
    return Revocation(**usual | more)


def test_one_person_takes_little_room_and_logouts_none_of_revocations(table: TokenTable) -> None:
    assert table.add_revocation(_logout(0, subject="bob"), most=60)
    for number in range(40):
        assert table.add_revocation(_logout(number), most=60)
    # Sessions of the page end after twelve hours; of her access tokens, the last logout says all.
    assert [one.session for one in table.revocations()] == ["s0", *(f"s{number}" for number in range(28, 40))]
    for number in range(200):
        assert table.add_revocation(_logout(40, session=f"t{number}"), most=60)
    held = table.revocations()
    assert [one.subject for one in held if one.session == "s0"] == ["bob"]
    assert len(held) <= 2 + SUBJECT_LOGOUTS
    known = RevokedIdentities(held)
    for session in ("s39", "t0", "t199"):  # with that many, all of hers from before have ended
        assert known.has_session(_of(), session, 40 * 3600.0)
    assert known.has_token(_of(), 40 * 3600.0)
    assert not known.has_session(_of(), "new", 40 * 3600.0 + 1)
    assert not known.has_session(_of(subject="bob"), "s7", 1.0)
    # Full of logouts without a subject, which belong to nobody: an operator still revokes.
    full = [table.add_revocation(_logout(40, subject="", session=f"u{one}"), most=60) for one in range(60)]
    assert (full[0], full[-1]) == (True, False)
    revoked = Revocation(issuer="https://a", subject="mallory", made_at=41 * 3600.0)
    assert table.add_revocation(revoked, most=60)
    # A session alone is forgotten once no session of the page can be left of it.
    assert table.add_revocation(_logout(53, subject="", session="v"), most=60)


def test_a_file_of_revocations_that_is_gone_is_an_error(tmp_path: Path) -> None:
    tokens = Tokens(SqliteTokens(tmp_path))
    assert list(tokens.revocations()) == []
    tokens.revoke_identity("https://a", subject="ada")
    tokens.close()
    (tmp_path / "revocations.db").unlink()
    with pytest.raises(StateUnusable):
        Tokens(SqliteTokens(tmp_path)).revocations()


def _of(**more: Any) -> Identity:
    return Identity(**{"issuer": "https://a", "subject": "ada"} | more)


@pytest.mark.parametrize(
    ("revoked", "token", "session"),
    [
        ({"subject": "ada"}, True, True),
        ({"subject": "Ada"}, False, False),
        ({"issuer": "https://b", "subject": "ada"}, False, False),
        ({"token_id": "7"}, True, False),
        ({"token_id": ""}, False, False),
        ({"subject": "ada", "issued_by": 10.0}, True, True),
        ({"subject": "ada", "issued_by": 9.0}, False, False),
        ({"subject": "ada", "session": "s", "issued_by": 10.0}, True, True),
        ({"subject": "ada", "session": "other", "issued_by": 10.0}, True, False),
        ({"session": "s", "issued_by": 10.0}, False, True),
    ],
)
def test_a_revocation_covers_what_it_names(revoked: Any, token: bool, session: bool) -> None:
    held = RevokedIdentities([Revocation(**{"issuer": "https://a", "made_at": 1.0} | revoked)])
    assert (held.has_token(_of(token_id="7"), 10.0), held.has_session(_of(), "s", 10.0)) == (token, session)
    assert not held.has_token(_of(subject="bob"), 10.0)
