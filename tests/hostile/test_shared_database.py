"""Whoever has the credential of the shared PostgreSQL, even as a superuser, but not the servers' key (SCL-2).

Real SQL against real servers. Rows that are forged, moved or put back are attacked beside each store, in
`tests/storage/postgres/`; here the database itself lies.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.approval.examples import Clock, question, yes
from tests.approval.stores import server
from tests.calls.test_shared_claims import open_server
from tests.calls.test_withdrawn import hello, soon
from tests.server.web.test_app import visiting
from tests.storage.cluster import Cluster
from tests.storage.postgres.cut_link import cut_link
from tests.storage.postgres.test_shared_register import register
from toolkeep import Code, Keep, tool
from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import StoreUnavailable
from toolkeep.flow.session_state import Snapshot
from toolkeep.storage.postgres.shared_state import SharedState, open_shared_tokens
from toolkeep.storage.sql.database_location import SCHEMA
from toolkeep.stores.api_tokens import Tokens

pytestmark = pytest.mark.spec("SCL-2")


class Attacker:
    """Runs statements in the database of the servers; what it makes there goes with the schema."""

    def __init__(self, postgres: Cluster) -> None:
        self.url = postgres.empty()
        self._postgres = postgres

    def run(self, *statements: str) -> None:
        self._postgres.execute("empty", f"SET search_path = {SCHEMA}; {';'.join(statements)}")

    def on_update(self, table: str, what: str) -> None:
        """Have the database alter what servers write."""
        self.run(
            f"CREATE FUNCTION attack() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; END $$",
            f"CREATE TRIGGER attack BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION attack()",
        )

    def finds_any_row(self, table: str, column: str) -> None:
        """Have the database find any row by a column: for it, every value is equal."""
        self.run(
            f"ALTER TABLE {table} ALTER {column} TYPE varchar",
            "CREATE FUNCTION same(varchar, varchar) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
            "CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same)",
        )

    @contextlib.contextmanager
    def clock_of(self, hours: int) -> Iterator[None]:
        """Change the time of the database."""
        moved = f"SELECT pg_catalog.true_clock() + interval ''{hours} hours''"
        self.run(
            "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock",
            "CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql "
            f"AS '{moved}'",
        )
        try:
            yield
        finally:
            self.run(
                "DROP FUNCTION pg_catalog.clock_timestamp()",
                "ALTER FUNCTION pg_catalog.true_clock() RENAME TO clock_timestamp",
            )


@pytest.fixture
def attacker(postgres: Cluster) -> Attacker:
    return Attacker(postgres)


def test_an_approval_is_for_its_own_call_whatever_row_the_database_finds(
    attacker: Attacker, tmp_path: Path
) -> None:
    small, large = question(), question(id="question-2", call_id="call-2", argument_hash="a million")
    with server(attacker.url, tmp_path, Clock()) as store:
        for one in (small, large):
            store.ask(one)
        attacker.run("UPDATE shared_questions SET answer = ''")  # for its MAC, the same as none
        assert len(store.waiting()) == 2
        store.answer(small.id, yes())
        attacker.run("CREATE TABLE approved AS SELECT * FROM shared_questions WHERE state = 'approved'")
        assert store.use(small)
        attacker.run("DELETE FROM shared_questions", "INSERT INTO shared_questions SELECT * FROM approved")
        attacker.finds_any_row("shared_questions", "id")
        assert not store.is_waiting(large.id)  # found the other one
        assert (store.standing(large.id), store.use(large)) == (None, False)


def test_a_session_approval_is_for_its_own_session_whatever_row_the_database_finds(
    attacker: Attacker, tmp_path: Path
) -> None:
    asked = question()
    with server(attacker.url, tmp_path, Clock()) as store:
        store.ask(asked)
        store.answer(asked.id, yes(reach="session"))
        attacker.finds_any_row("shared_session_answers", "session")
        assert store.session_answer(asked) is not None
        for other in ({"agent": "mallory"}, {"definition_hash": "delete"}, {"session": "session-2"}):
            assert store.session_answer(question(**other)) is None


@pytest.mark.parametrize("undone", ["all", "all but the token of the change"])
def test_a_revocation_that_the_database_undoes_stops_the_server_that_made_it(
    postgres: Cluster, tmp_path: Path, undone: str
) -> None:
    postgres.clean()
    keeps_token = "NEW.version := OLD.version; NEW.content := OLD.content; NEW.mac := OLD.mac; RETURN NEW"
    undo = "RETURN OLD" if undone == "all" else keeps_token
    postgres.execute(
        "made",
        f"CREATE FUNCTION {SCHEMA}.undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF OLD.version = 0 THEN RETURN NEW; END IF; {undo}; END $$;"
        f"CREATE TRIGGER undo BEFORE UPDATE ON {SCHEMA}.shared_registers FOR EACH ROW"
        f" EXECUTE FUNCTION {SCHEMA}.undo()",
    )
    try:
        with cut_link(postgres.port) as link, register(link.port, tmp_path) as numbers:
            numbers.change(lambda held: held.update(valid=1))
            # With its token stored, and its answer lost, a change that was not made would pass for made.
            link.cut_after = b"COMMIT" if undo == keeps_token else b""

            def revoke() -> object:
                numbers.change(lambda held: held.pop("valid"))
                return numbers.read()

            with pytest.raises(StoreUnavailable, match=r"servers' MAC|has seen version 2"):
                revoke()
    finally:
        postgres.execute("made", f"DROP FUNCTION {SCHEMA}.undo CASCADE")


@pytest.mark.parametrize("hours", [-1, 24])
def test_a_database_with_another_time_ends_and_revives_nothing(
    attacker: Attacker, tmp_path: Path, hours: int
) -> None:
    asked = question(asked_at=time.time(), expires_at=time.time() + 60)
    settings = DatabaseSettings(url=attacker.url, key="key", is_single=True)
    with contextlib.closing(SharedState(settings, bytes, tmp_path)) as shared:
        store, states = shared.approvals, shared.sessions
        store.ask(asked)
        states.put("session", Snapshot(), time.time())
        with attacker.clock_of(hours):
            for look in (store.rules, lambda: store.session_answer(asked), lambda: store.use(asked)):
                with pytest.raises(StoreUnavailable, match="its clock"):
                    look()
            with pytest.raises(StoreUnavailable, match="its clock"):
                states.get("session", time.time() - 3600)
        assert states.get("session", time.time() - 3600) == Snapshot()


ALTERED = {
    "deleted": "DELETE FROM shared_registers WHERE kind = 'switches'",
    "older": "DELETE FROM shared_registers; INSERT INTO shared_registers SELECT * FROM first",
    "of another form": "ALTER TABLE shared_registers ALTER content DROP NOT NULL;"
    "UPDATE shared_registers SET version = version + 1, content = NULL",
    "of other types": "ALTER TABLE shared_registers ALTER version DROP DEFAULT, ALTER version TYPE text",
}


@pytest.mark.parametrize("altered", ALTERED.values(), ids=ALTERED)
def test_what_was_withdrawn_is_altered_and_no_call_is_made_until_it_is_back(
    attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, altered: str
) -> None:
    with open_server(tmp_path, monkeypatch, attacker.url) as keep:
        keep.register(tool(name="hello", effects="none", danger="low")(hello))
        keep.disable("hello", remember=True)
        attacker.run("CREATE TABLE first AS SELECT * FROM shared_registers")
        keep.enable("hello", remember=True)
        soon(lambda: keep.call_sync("hello", {}).ok)
        attacker.run(
            "ALTER TABLE shared_registers RENAME TO saved",
            "CREATE TABLE shared_registers (LIKE saved INCLUDING ALL)",
            "INSERT INTO shared_registers SELECT * FROM saved",
            altered,
        )
        soon(lambda: not keep.call_sync("hello", {}).ok)
        refused = keep.call_sync("hello", {})
        assert refused.code is Code.STORE_UNAVAILABLE
        assert "127.0.0.1" not in str(refused.to_dict())  # where the database is, is not the model's to know
        assert keep.shared is not None
        assert not keep.shared.is_usable()  # so the load balancer sends it nothing
        attacker.run("DROP TABLE shared_registers", "ALTER TABLE saved RENAME TO shared_registers")
        soon(lambda: keep.call_sync("hello", {}).ok)
        assert keep.shared.is_usable()


def test_visitors_of_the_page_are_not_told_where_the_database_is(
    attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def visit(keep: Keep) -> tuple[int, bool]:
        async with visiting(keep) as visitor:
            await visitor.sign_in()
            attacker.run("ALTER TABLE shared_registers RENAME TO gone")
            answer = await visitor.get("/ui/")
            return answer.status, b"127.0.0.1" in answer.body

    with open_server(tmp_path, monkeypatch, attacker.url) as keep:
        assert asyncio.run(visit(keep)) == (503, False)


def test_tokens_can_be_listed_whatever_times_of_use_the_database_has(
    attacker: Attacker, tmp_path: Path
) -> None:
    settings = DatabaseSettings(url=attacker.url, key="", is_single=True)
    with contextlib.closing(open_shared_tokens(settings, lambda: b"key", tmp_path)) as table:
        made = Tokens(table).make("ann", scopes=["call"], agent="ann")
        for at in ("Infinity", "NaN", "-1e300", "1e300"):
            row = f"('{made.token.id}', '{at}')"
            attacker.run("DELETE FROM shared_token_uses", f"INSERT INTO shared_token_uses VALUES {row}")  # noqa: S608
            assert [token.last_used_at for token in Tokens(table).list()] == [None]


def test_a_session_whose_name_is_no_text_for_postgresql_fails_no_call(
    attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client can send one; calls of others are read and stored with it, in one transaction."""
    with open_server(tmp_path, monkeypatch, attacker.url, more="flow: {policy: standard}\n") as keep:
        keep.register(tool(name="hello", effects="none", danger="low")(hello))
        soon(lambda: keep.call_sync("hello", {}).ok)
        assert keep.call_sync("hello", {}, session="a\0b").ok
