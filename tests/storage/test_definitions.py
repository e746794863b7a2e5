"""Custom definitions in the store: the same on SQLite and PostgreSQL."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.storage.keeps import WEATHER, KeepOnStore, OpenKeep
from toolkeep import Code, Tier, ToolkeepError, ToolState
from toolkeep.errors import (
    BuiltInProtected,
    DuplicateTool,
    FeatureClosed,
    LicenseRequired,
    NotAccepted,
    StoreConflict,
)
from toolkeep.events import (
    ToolDefinitionCreatedEvent,
    ToolDefinitionDeletedEvent,
    ToolDefinitionUpdatedEvent,
)
from toolkeep.keep.keep import Keep
from toolkeep.sources.stored_definitions import offer_of
from toolkeep.storage.sql.database_location import DatabaseLocation, connected
from toolkeep.storage.sql.definition_rows import COLUMNS, person_id
from toolkeep.stores.definitions import MemoryStore

pytestmark = pytest.mark.spec("STO-1", "STO-2")

FULL: dict[str, Any] = {
    **WEATHER,
    "name": "everything",
    "aliases": [],
    "client_executed": False,
    "output_schema": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}},
    "result_type": "object",
    "normalization": "json",
    "constraints": {
        "max_execution_time": 5,
        "max_output_size": 2048,
        "required_isolation": "strict",
        "allow_side_effects": True,
    },
    "resource_bounds": {
        "max_memory": 64_000_000,
        "max_cpu": 0.5,
        "max_network": {"max_requests": 3, "max_bytes": 9000},
    },
    "required_permissions": ["tool.network.fetch"],
    "capabilities": ["net.write:api.example.org"],
    "side_effects": ["NetWrite"],
    "determinism": "Maybe",
    "idempotent": True,
    "danger": "medium",
    "requires_confirmation": True,
    "sensitive": True,
    "usage_metadata": "When somebody asks about rain.",
    "run": {"http": {"url": "https://api.example.org/w", "method": "POST"}},
}


def rows(place: DatabaseLocation, query: str) -> list[tuple[Any, ...]]:
    with connected(place) as connection:
        return [tuple(row) for row in connection.execute(query.replace("@", place.prefix)).fetchall()]


def code_of(change: Callable[[], object]) -> str:
    with pytest.raises(ToolkeepError) as raised:
        change()
    return raised.value.code.value


def test_a_created_definition_answers_at_once_and_after_the_next_start(open_there: OpenKeep) -> None:
    keep = open_there()
    stored = keep.create_definition(WEATHER, by="ada")
    again = open_there()
    for one in (keep, again):
        assert one.get("forecast").definition == stored.definition
        assert one.validate_arguments("weather", '{"town": "Ulm"}') == {"town": "Ulm", "days": 3}
        assert (one.get("weather").provider, one.get("weather").is_custom) == ("store", True)
    assert again.definition_versions("weather") == (stored,)


def test_every_field_comes_back_as_it_was_and_in_its_order(open_there: OpenKeep) -> None:
    stored = open_there().create_definition(FULL, may_run=True)
    (back,) = open_there().definition_versions("everything")
    assert back == stored
    assert list(back.definition.properties) == ["town", "days"]
    assert repr(back.definition.to_dict()) == repr(stored.definition.to_dict())
    assert back.run == FULL["run"]


def test_the_table_has_the_columns_of_the_specification(
    place: DatabaseLocation, open_there: OpenKeep
) -> None:
    open_there().create_definition({**WEATHER, "version": "1.0.0"}, by="ada")
    (row,) = rows(place, f"SELECT {', '.join(COLUMNS)} FROM @tool_definitions WHERE name = 'weather'")  # noqa: S608
    held = dict(zip(COLUMNS, row, strict=True))
    assert (held["category"], held["license_tier"]) == (4, Tier.WRITER_PRO.number)
    assert not held["is_built_in"]
    assert str(held["created_by"]).replace("-", "") == str(person_id("ada")).replace("-", "")
    assert held["metadata_json"].startswith('{"z":1,"a":')
    assert held["output_schema_json"] is None


def test_built_in_tools_are_rows_and_cannot_be_changed(place: DatabaseLocation, open_there: OpenKeep) -> None:
    keep = open_there()
    keep.create_definition(WEATHER)
    built_in = rows(place, "SELECT name FROM @tool_definitions WHERE is_built_in ORDER BY name")
    assert [name for (name,) in built_in] == sorted(tool.name for tool in keep.tools() if tool.is_built_in)
    changes: tuple[Callable[[], object], ...] = (
        lambda: keep.create_definition({**WEATHER, "name": "read_file"}),
        lambda: keep.update_definition("read_file", {"enabled": False}),
        lambda: keep.delete_definition("Read_File"),
        lambda: keep.delete_definition("file_read"),
    )
    for change in changes:
        with pytest.raises(BuiltInProtected):
            change()
    assert len(open_there().tools()) == len(keep.tools())


def test_a_built_in_name_is_protected_in_a_tier_that_does_not_include_the_tool(open_there: OpenKeep) -> None:
    keep = open_there(tier=Tier.WRITER_PRO)
    assert "run_command" not in keep
    with pytest.raises(BuiltInProtected):
        keep.create_definition({**WEATHER, "name": "run_command"})


def test_an_update_is_a_higher_version_and_the_earlier_one_stands_beside_it(
    place: DatabaseLocation, open_there: OpenKeep
) -> None:
    keep = open_there()
    first = keep.create_definition(WEATHER, by="ada")
    second = keep.update_definition("weather", {"version": "1.10.0", "description": "Now."}, by="bob")
    third = keep.update_definition("weather", {"version": "2.0.0", "aliases": None}, by="bob")
    assert (second.created_by, second.updated_by, second.id) == ("ada", "bob", first.id)
    assert [one.definition.version for one in keep.definition_versions("weather")] == [
        "2.0.0",
        "1.10.0",
        "1.0.0",
    ]
    for one in (keep, open_there()):
        assert one.get("weather").version == "2.0.0"
        assert one.get("weather@1.0.0").definition == first.definition
        assert one.get("weather@1.10.0").definition.description == "Now."
    assert rows(place, "SELECT version FROM @tool_definitions WHERE name = 'weather'") == [("2.0.0",)]
    assert third.definition.aliases == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"description": "Other."},
        {"description": "Other.", "version": "0.9.0"},
        {"version": "1.0.0-rc.1"},
        {"danger": "low", "enabled": False},
        {"name": "storm", "version": "2.0.0"},
    ],
)
def test_anything_but_enabled_needs_a_higher_version_and_the_name_stays(
    open_there: OpenKeep, changes: dict[str, Any]
) -> None:
    keep = open_there()
    stored = keep.create_definition(WEATHER)
    with pytest.raises(StoreConflict):
        keep.update_definition("weather", changes)
    assert keep.definition_versions("weather") == (stored,)
    assert keep.get("weather").definition == stored.definition


def test_enabled_changes_without_a_version_and_for_all_versions(open_there: OpenKeep) -> None:
    keep = open_there()
    keep.create_definition(WEATHER)
    keep.update_definition("weather", {"version": "2.0.0"})
    keep.update_definition("weather", {"enabled": False})
    for one in (keep, open_there()):
        assert {tool.state for tool in one.versions("weather")} == {ToolState.DISABLED}
    keep.update_definition("weather", {"enabled": True})
    assert open_there().get("weather").is_enabled


def test_an_update_that_changes_nothing_is_none(open_there: OpenKeep) -> None:
    keep = open_there()
    stored = keep.create_definition(WEATHER)
    assert keep.update_definition("weather", WEATHER) == stored
    assert keep.heard(ToolDefinitionUpdatedEvent) == []


def test_a_deleted_definition_is_gone_with_its_versions_and_its_names(
    place: DatabaseLocation, open_there: OpenKeep
) -> None:
    keep = open_there()
    keep.create_definition(WEATHER)
    keep.update_definition("weather", {"version": "2.0.0"})
    gone = keep.delete_definition("weather", by="bob")
    assert gone.definition.version == "2.0.0"
    assert "weather" not in keep
    assert "weather" not in open_there()
    assert rows(place, "SELECT name FROM @tool_definition_names") == []
    assert rows(place, "SELECT name FROM @tool_definition_versions") == []
    keep.create_definition({**WEATHER, "name": "forecast", "aliases": []})


def test_a_tool_is_changed_by_any_of_its_names_and_never_one_version_of_it(open_there: OpenKeep) -> None:
    keep = open_there()
    keep.create_definition(WEATHER)
    keep.update_definition("Forecast", {"version": "2.0.0"})
    assert keep.definition_versions("forecast") == keep.definition_versions("weather")
    for name in ("weather@1.0.0", "weather@9"):
        with pytest.raises(StoreConflict):
            keep.delete_definition(name)
    keep.delete_definition("forecast")
    assert "weather" not in keep


def test_subscribers_hear_of_each_change(open_there: OpenKeep) -> None:
    keep = open_there()
    stored = keep.create_definition(WEATHER, by="ada")
    updated = keep.update_definition("weather", {"version": "1.1.0", "danger": "low"}, by="bob")
    keep.delete_definition("weather", by="cy")
    created, changed, deleted = keep.heard(
        ToolDefinitionCreatedEvent, ToolDefinitionUpdatedEvent, ToolDefinitionDeletedEvent
    )
    assert created == ToolDefinitionCreatedEvent(
        definition_id=stored.id,
        tool_name="weather",
        category="external_api",
        created_by="ada",
        timestamp=stored.created_at,
    )
    assert changed == ToolDefinitionUpdatedEvent(
        definition_id=stored.id,
        tool_name="weather",
        changed_fields=("version", "danger"),
        updated_by="bob",
        timestamp=updated.updated_at,
    )
    assert isinstance(deleted, ToolDefinitionDeletedEvent)
    assert (deleted.definition_id, deleted.deleted_by) == (stored.id, "cy")


def test_of_two_who_change_the_same_revision_one_wins_and_the_other_is_told(open_there: OpenKeep) -> None:
    one, other = open_there(), open_there()
    stored = one.create_definition(WEATHER)
    barrier = threading.Barrier(2)

    def change(keep: KeepOnStore, version: str) -> str:
        barrier.wait()
        try:
            keep.update_definition("weather", {"version": version}, revision=stored.revision)
        except StoreConflict as conflict:
            return conflict.code.value
        return "done"

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(change, (one, other), ("1.1.0", "1.2.0")))
    assert sorted(answers) == [Code.STORE_CONFLICT.value, "done"]
    assert len(one.definition_versions("weather")) == 2


def test_an_old_revision_is_refused_for_update_and_delete(open_there: OpenKeep) -> None:
    keep = open_there()
    old = keep.create_definition(WEATHER)
    keep.update_definition("weather", {"version": "2.0.0"})
    for change in (
        lambda: keep.update_definition("weather", {"enabled": False}, revision=old.revision),
        lambda: keep.delete_definition("weather", revision=old.revision),
    ):
        assert code_of(change) == "ACODE-TSR-056"
    assert keep.get("weather").is_enabled


def test_names_and_aliases_are_taken_also_by_a_keep_that_does_not_know_yet(
    place: DatabaseLocation, open_there: OpenKeep
) -> None:
    one, other = open_there(), open_there()
    one.create_definition(WEATHER)
    assert "weather" not in other
    for name, aliases in (("weather", []), ("forecast", []), ("storm", ["weather"])):
        with pytest.raises(DuplicateTool):
            other.create_definition({**WEATHER, "name": name, "aliases": aliases})
    assert rows(place, "SELECT revision FROM @tool_store_state") == [(1,)], "what is refused leaves no trace"
    assert rows(place, "SELECT count(*) FROM @tool_definition_changes") == [(1,)]
    other.create_definition({**WEATHER, "name": "storm", "aliases": []})
    with pytest.raises(DuplicateTool):
        other.update_definition("storm", {"version": "2.0.0", "aliases": ["forecast"]})


@pytest.mark.spec("POL-6")
def test_a_tier_takes_as_many_as_it_includes_whoever_stores_them(open_there: OpenKeep) -> None:
    with pytest.raises(LicenseRequired) as none_at_all:
        open_there(tier=Tier.CORE).create_definition(WEATHER)
    assert none_at_all.value.needed == "writer_pro"
    one, other = open_there(tier=Tier.WRITER_PRO), open_there(tier=Tier.WRITER_PRO)
    for n in range(10):
        one.create_definition({**WEATHER, "name": f"tool_{n}", "aliases": []})
    for keep in (one, other):
        with pytest.raises(LicenseRequired) as too_many:
            keep.create_definition(WEATHER)
        assert too_many.value.needed == "teams"
    one.delete_definition("tool_3")
    other.create_definition(WEATHER)


@pytest.mark.spec("POL-6")
def test_a_tier_that_fell_leaves_the_newest_out_and_says_so(open_there: OpenKeep) -> None:
    rich = open_there()
    for n in range(12):
        rich.create_definition({**WEATHER, "name": f"tool_{n:02}", "aliases": []})
    poor = open_there(tier=Tier.WRITER_PRO)
    assert [skipped.tool for skipped in poor.start_up.skipped] == ["tool_10", "tool_11"]


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(("isolation", "tier"), [("strict", Tier.TEAMS), ("restricted", Tier.ENTERPRISE)])
def test_a_level_that_the_tier_does_not_include_is_refused(
    open_there: OpenKeep, isolation: str, tier: Tier
) -> None:
    wanted = {**WEATHER, "constraints": {"required_isolation": isolation}}
    with pytest.raises(LicenseRequired):
        open_there(tier=Tier.WRITER_PRO).create_definition(wanted)
    assert open_there(tier=tier).create_definition(wanted).license_tier == tier.number


@pytest.mark.spec("POL-6")
def test_a_closed_feature_closes_creating_and_editing_and_leaves_what_is_there(open_there: OpenKeep) -> None:
    open_there().create_definition(WEATHER)
    keep = open_there(allows_definitions=False)
    changes: tuple[Callable[[], object], ...] = (
        lambda: keep.create_definition({**WEATHER, "name": "storm", "aliases": []}),
        lambda: keep.update_definition("weather", {"enabled": False}),
        lambda: keep.delete_definition("weather"),
    )
    for change in changes:
        with pytest.raises(FeatureClosed):
            change()
    assert keep.get("weather").is_enabled


def test_what_runs_a_tool_is_decided_only_by_who_may(open_there: OpenKeep) -> None:
    keep = open_there()
    assert code_of(lambda: keep.create_definition(FULL)) == "ACODE-TSR-024"
    keep.create_definition(FULL, may_run=True)
    refused: tuple[dict[str, Any], ...] = (
        {"danger": "safe"},
        {"run": {"command": ["id"]}},
        {"run": None},
        {"metadata": {}},
    )
    for changes in refused:
        with pytest.raises(NotAccepted):
            keep.update_definition("everything", {**changes, "version": "2.0.0"})
    keep.update_definition("everything", {"enabled": False})
    other = keep.update_definition("everything", {"metadata": {}, "version": "2.0.0"}, may_run=True)
    assert other.run == FULL["run"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"constraints": {"required_isolation": "none"}}, "ACODE-TSR-009"),
        ({"source": {"kind": "mcp", "origin": "x"}}, "ACODE-TSR-009"),
        ({"run": {"shell": "id"}}, "ACODE-TSR-009"),
        ({"run": "id"}, "ACODE-TSR-009"),
        ({"version": "one"}, "ACODE-TSR-009"),
        ({"description": "x" * 1025}, "ACODE-TSR-009"),
        ({"metadata": {"x": "y" * 300_000}}, "ACODE-TSR-009"),
        ({"parameters": {"type": "object", "properties": {"a": {"$ref": "https://x.example/s"}}}}, "ACODE-TSR-006"),
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_used_is_not_stored(
    open_there: OpenKeep, changes: dict[str, Any], code: str
) -> None:
    keep = open_there()
    assert code_of(lambda: keep.create_definition({**WEATHER, **changes}, may_run=True)) == code
    stored = keep.create_definition(WEATHER)
    higher = {"version": "2.0.0", **changes}
    assert code_of(lambda: keep.update_definition("weather", higher, may_run=True)) in (code, "ACODE-TSR-056")
    assert keep.definition_versions("weather") == (stored,)


def test_what_comes_from_elsewhere_is_changed_elsewhere(open_there: OpenKeep) -> None:
    keep = open_there()
    keep.register({**WEATHER, "name": "by_code", "aliases": []})
    assert code_of(lambda: keep.update_definition("by_code", {"enabled": False})) == "ACODE-TSR-056"
    assert code_of(lambda: keep.delete_definition("by_code")) == "ACODE-TSR-056"
    assert code_of(lambda: keep.create_definition({**WEATHER, "name": "by_code"})) == "ACODE-TSR-007"
    assert code_of(lambda: keep.delete_definition("nobodys")) == "ACODE-TSR-001"


def test_a_row_that_somebody_changed_by_hand_is_left_out_by_name(
    place: DatabaseLocation, open_there: OpenKeep
) -> None:
    keep = open_there()
    keep.create_definition(WEATHER)
    keep.create_definition({**WEATHER, "name": "storm", "aliases": []})
    for change in ("danger = 'high'", "parameters_json = '{'", "category = 77", "version = 'x'"):
        with connected(place) as connection:
            connection.execute(f"UPDATE {place.prefix}tool_definitions SET {change} WHERE name = 'storm'")  # noqa: S608
        after = open_there()
        assert [skipped.tool for skipped in after.start_up.skipped] == ["storm"]
        assert "weather" in after


def test_the_twin_in_memory_does_the_same() -> None:
    store = MemoryStore()
    keep = Keep(store=store, offer_of=offer_of)
    stored = keep.create_definition(WEATHER)
    keep.update_definition("weather", {"version": "2.0.0"}, revision=stored.revision)
    keep.update_definition("weather", {"enabled": False})
    assert [one.definition.enabled for one in keep.definition_versions("weather")] == [False, False]
    assert code_of(lambda: keep.delete_definition("weather", revision=1)) == "ACODE-TSR-056"
    assert (
        code_of(lambda: keep.create_definition({**WEATHER, "name": "forecast", "aliases": []}))
        == "ACODE-TSR-007"
    )
    keep.delete_definition("weather")
    assert store.read().held == ()
