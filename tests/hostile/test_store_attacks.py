"""Attacks on what is stored: by names and texts, by size, through the database, and through its logs."""

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.storage.cluster import Cluster
from tests.storage.keeps import KeepOnStore
from toolkeep import Isolation, Keep, Tier, ToolkeepError
from toolkeep.config.settings import DatabaseSettings
from toolkeep.sources.stored_definitions import offer_of
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import DatabaseLocation, PostgresLocation, connected, shown_url
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.stores.api_tokens import Scope, Tokens, TokenTable
from toolkeep.stores.definitions import BrokenDefinition, StoredDefinition

pytestmark = pytest.mark.spec("STO-1", "STO-2")

HOSTILE = [
    "'; DROP TABLE tool_definitions; --",
    '"; DROP SCHEMA agent_tools CASCADE; --',
    "%s %(name)s {0} :name $1 ? \\ \\' ''",
    "Robert'); UPDATE tokens SET scopes = '[\"admin\"]'; --",
    "\u202e\u2066 bidi \u200b zero",
    "a\tb\nc\rd",
    "𝕌𝕟𝕚𝕔𝕠𝕕𝕖 \U0010ffff é e\u0301",
]


@pytest.fixture
def keep(place: DatabaseLocation) -> Iterator[KeepOnStore]:
    with KeepOnStore(place, built_in=False) as opened:
        yield opened


def client_tool(**fields: Any) -> dict[str, Any]:
    return {"name": "tool", "description": "A tool.", "version": "1.0.0", "client_executed": True, **fields}


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_data_to_every_statement(keep: KeepOnStore, place: DatabaseLocation, text: str) -> None:
    stored = keep.create_definition(
        client_tool(description=text, usage_metadata=text, metadata={text: [text]})
    )
    keep.update_definition("tool", {"version": "2.0.0", "metadata": {"again": text}})
    with KeepOnStore(place, built_in=False) as again:
        assert again.definition_versions("tool")[1] == stored
        assert again.get("tool@1.0.0").definition.metadata == {text: [text]}
        with pytest.raises(ToolkeepError):
            again.definition_versions(text)
        for change in (again.update_definition, lambda name, _: again.delete_definition(name)):
            with pytest.raises(ToolkeepError):
                change(text, {})


@pytest.mark.parametrize("text", [*HOSTILE, "a\0b", "\ud800", "x" * 65, "", "Tool", "run", "a" * 10_000_000])
def test_a_name_that_is_none_is_refused_before_it_is_stored(keep: KeepOnStore, text: str) -> None:
    for fields in ({"name": text}, {"aliases": [text]}):
        with pytest.raises(ToolkeepError):
            keep.create_definition(client_tool(**fields))
    assert keep.editor.store.read().held == ()


@pytest.mark.parametrize("by", ["", "a\nb", "\x1b[31m", "a\0", "x" * 129])
def test_who_changes_something_has_a_name(keep: KeepOnStore, by: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        keep.create_definition(client_tool(), by=by)


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "a\0b"},
        {"usage_metadata": "a\0b"},
        {"description": "\ud800"},
        {"metadata": {"a": "\ud800\0"}},
        {"metadata": {"\0": 1}},
    ],
)
def test_characters_that_a_database_cannot_hold_are_refused_or_come_back(
    keep: KeepOnStore, place: DatabaseLocation, fields: dict[str, Any]
) -> None:
    try:
        stored = keep.create_definition(client_tool(**fields))
    except ToolkeepError:
        assert keep.editor.store.read().held == ()
        assert "tool" not in keep
    else:
        with KeepOnStore(place, built_in=False) as again:
            assert again.definition_versions("tool") == (stored,)


def test_data_that_is_too_deep_or_endless_is_refused(keep: KeepOnStore) -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = {"a": deep}
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for metadata in ({"deep": deep}, endless):
        with pytest.raises(ToolkeepError):
            keep.create_definition(client_tool(metadata=metadata))
    assert keep.editor.store.read().held == ()


@pytest.mark.parametrize(
    "run", [{"command": ["\ud800"]}, {"command": [object()]}, {"http": float("nan")}, "x" * 10]
)
def test_what_runs_a_tool_is_json(keep: KeepOnStore, run: Any) -> None:
    with pytest.raises(ToolkeepError):
        keep.create_definition({**client_tool(), "client_executed": False, "run": run}, may_run=True)
    keep.create_definition(client_tool())
    with pytest.raises(ToolkeepError):
        keep.update_definition("tool", {"version": "2.0.0", "run": run}, may_run=True)


def change_row(place: DatabaseLocation, changes: str) -> None:
    with connected(place) as connection:
        connection.execute(f"UPDATE {place.prefix}tool_definitions SET {changes} WHERE name = 'tool'")  # noqa: S608


@pytest.mark.parametrize(
    "changes",
    [
        'run_json = \'{"command":["id"]}\'',
        "run_json = '{\"python\":\"os:system\"}', run_hash = ''",
        "client_executed = NOT client_executed",
        "danger = NULL",
        "requires_confirmation = NOT requires_confirmation",
        "capabilities_json = '[\"fs.write:/\"]'",
        'metadata_json = \'{"a":{"a":\'',
        "aliases_json = '[\"read_file\"]', definition_hash = ''",
        "name = 'file_read', definition_hash = ''",
        "parameters_json = '[[[[[', definition_hash = ''",
        "constraints_json = '{\"required_isolation\":\"none\"}', definition_hash = ''",
        "source_json = '{\"kind\":\"mcp\"}', definition_hash = ''",
        "created_at = '0001-01-01', definition_hash = '', version = 'x'",
    ],
)
def test_a_row_that_was_tampered_with_does_not_answer_as_something_else(
    place: DatabaseLocation, changes: str
) -> None:
    with KeepOnStore(place) as keep:
        keep.create_definition(client_tool(danger="medium"))
    change_row(place, changes)
    with KeepOnStore(place) as after:
        assert "tool" not in after
        assert [skipped.provider for skipped in after.start_up.skipped] == ["store"]
        assert after.get("read_file").is_built_in


def test_no_earlier_version_answers_where_the_newest_cannot_be_used(place: DatabaseLocation) -> None:
    with KeepOnStore(place) as keep, KeepOnStore(place) as other:
        keep.create_definition(client_tool())
        keep.update_definition("tool", {"version": "2.0.0", "danger": "high"})
        other.editor.follow()
        assert other.get("tool").version == "2.0.0"
        change_row(place, "danger = NULL")
        with KeepOnStore(place) as after:
            assert "tool" not in after
            assert [skipped.tool for skipped in after.start_up.skipped] == ["tool", "tool"]
        keep.create_definition(client_tool(name="unlike"))
        noted = f"UPDATE {place.prefix}tool_definition_changes SET name = 'tool' WHERE revision = 3"  # noqa: S608
        with connected(place) as connection:
            connection.execute(noted)
        other.editor.follow()
        assert "tool" not in other


@pytest.mark.spec("POL-6")
def test_a_keep_of_a_lower_tier_lets_go_of_a_tool_that_became_too_much_for_it(
    place: DatabaseLocation,
) -> None:
    with KeepOnStore(place) as rich, KeepOnStore(place, tier=Tier.WRITER_PRO) as poor:
        rich.create_definition(client_tool())
        poor.editor.follow()
        assert "tool" in poor
        rich.update_definition("tool", {"version": "2.0.0", "constraints": {"required_isolation": "strict"}})
        poor.editor.follow()
        assert "tool" not in poor
        with KeepOnStore(place, tier=Tier.WRITER_PRO) as later:
            assert "tool" not in later


def test_no_row_makes_a_tool_run_in_this_process(place: DatabaseLocation) -> None:
    run = {"python": "os:system"}
    with KeepOnStore(place) as keep:
        keep.create_definition({**client_tool(), "client_executed": False, "run": run}, may_run=True)
        assert keep.get("tool").definition.constraints.isolation is not Isolation.NONE
        result = keep.call_sync("tool", {})
    assert not result.ok
    assert "none" not in str(result.to_dict().get("isolation", ""))


def test_no_token_and_no_hash_of_one_is_logged(
    place: DatabaseLocation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
    table: TokenTable = SqliteTokens(tmp_path / "tokens")
    if isinstance(place, PostgresLocation):
        settings = DatabaseSettings(url=place._url, is_single=True)
        table = open_shared_tokens(settings, lambda: b"key", None)
    tokens = Tokens(table)
    try:
        made = tokens.make("ci", [Scope.CALL])
        kept = table.find(made.token.id)
        rotated = tokens.rotate(made.token.id)
        tokens.recognize(made.text)
        tokens.recognize(rotated.text[:-1] + "A")
    finally:
        tokens.close()
        logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert kept is not None
    for secret in (made.text[20:], rotated.text[20:], kept.secret_hash.hex(), repr(bytes(kept.secret_hash))):
        assert secret not in logged


def test_scopes_that_were_tampered_with_grant_nothing(tmp_path: Path) -> None:
    tokens = Tokens(SqliteTokens(tmp_path))
    tmp_path.chmod(0o700)
    made = tokens.make("ci", [Scope.CALL])
    for scopes in ("x", "{}", "null", '["root"]', '[["admin"]]', '"admin"', ""):
        with sqlite3.connect(tmp_path / "tokens.db") as connection:
            connection.execute("UPDATE tokens SET scopes = ?", (scopes,))
        connection.close()
        token = tokens.recognize(made.text)
        assert token is not None
        assert token.scopes == ()
    tokens.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@db.example:5432/keep?password=hunter2",
        "postgres://u:hunter2@[::1]/keep",
        "postgresql://u:hunter2@db:notaport/keep",
        "postgresql://u:hunter2@[broken/keep",
        "postgresql:///keep?user=u&password=hunter2",
    ],
)
def test_a_password_is_never_part_of_what_is_shown(url: str) -> None:
    assert "hunter2" not in shown_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://keep:hunter2@127.0.0.1/keep",
        "postgresql://keep:hunter%32@127.0.0.1/keep",
        "postgresql://127.0.0.1/keep?password=hunter2",
    ],
)
def test_a_driver_that_quotes_the_url_gives_no_password_away(url: str) -> None:
    error = psycopg.OperationalError(f"{url} is wrong: hunter2 is no password")
    refused = str(PostgresLocation(url).refuse(error))
    assert "is no password" in refused
    assert "hunter" not in refused


FORGED = {
    "less danger": "UPDATE {0} SET danger = 'low', definition_hash = '', run_hash = ''",
    "another run": 'UPDATE {0} SET run_json = \'{{"http": {{"url": "https://evil.example"}}}}\', run_hash = \'\'',
    "enabled": "UPDATE {0} SET enabled = true, definition_hash = ''",
    "another tier": "UPDATE {0} SET license_tier = license_tier + 1",
    "no MAC": "UPDATE {0} SET mac = NULL",
}


@pytest.mark.parametrize("case", FORGED)
@pytest.mark.spec("SCL-2")
def test_a_definition_that_no_server_wrote_is_not_used(case: str, postgres: Cluster) -> None:
    place = PostgresLocation(postgres.clean())
    sealed = partial(SqlDefinitionStore, place, RowKey(b"the servers' key"))
    with Keep(store=sealed(), offer_of=offer_of) as keep:
        data = {**client_tool(), "danger": "high", "enabled": False}
        keep.create_definition(data, may_run=True)
    (held,) = sealed().read().held
    assert isinstance(held, StoredDefinition)
    postgres.execute("made", FORGED[case].format("agent_tools.tool_definitions"))
    (held,) = sealed().read().held
    assert isinstance(held, BrokenDefinition)
    assert "database.key" in held.reason
    with contextlib.closing(sealed()) as store:
        assert store.seal() == (["tool"] if case == "no MAC" else [])
        (held,) = store.read().held
        assert isinstance(held, StoredDefinition if case == "no MAC" else BrokenDefinition)
