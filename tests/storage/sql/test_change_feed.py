"""Keeps on one store see what the others change, told or not, and go on while it is away."""

import os
import threading
from collections.abc import Callable

import pytest

from tests.descriptors import moved_up
from tests.storage.cluster import Cluster
from tests.storage.keeps import WEATHER, KeepOnStore, OpenKeep
from toolkeep import ToolState
from toolkeep.errors import StoreUnavailable
from toolkeep.events import Event, RegistrationFailed, StoreFollowed, StoreLost
from toolkeep.storage.sql.database_location import DatabaseLocation, PostgresLocation, connected

pytestmark = pytest.mark.spec("STO-3")

PATIENCE_S = 30.0
STORM = {**WEATHER, "name": "storm", "aliases": []}


def wait_for(keep: KeepOnStore, *kinds: type[Event]) -> Callable[[], Event]:
    """Call it to wait for the next event of these kinds."""
    heard: list[Event] = []
    came = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, kinds):
            heard.append(event)
            came.set()

    stop = keep.subscribe(listen)

    def wait() -> Event:
        assert came.wait(PATIENCE_S), f"{kinds} did not come"
        stop()
        return heard[0]

    return wait


def following(keep: KeepOnStore) -> KeepOnStore:
    """The keep, after it has looked at the store for the first time."""
    looked = threading.Event()
    follow = keep.editor.follow

    def note() -> frozenset[str]:
        names = follow()
        looked.set()
        return names

    keep.editor.follow = note  # type: ignore[method-assign]
    keep.follow_store()
    assert looked.wait(PATIENCE_S)
    return keep


def test_another_keep_takes_over_what_is_created_updated_and_deleted(open_there: OpenKeep) -> None:
    one, other = open_there(), following(open_there())
    heard = wait_for(other, StoreFollowed)
    one.create_definition(WEATHER)
    event = heard()
    assert isinstance(event, StoreFollowed)
    assert event.tool_names == ("weather",)
    assert other.get("forecast").definition == one.get("weather").definition
    heard = wait_for(other, StoreFollowed)
    one.update_definition("weather", {"version": "2.0.0"})
    heard()
    assert [tool.version for tool in other.versions("weather")] == ["2.0.0", "1.0.0"]
    heard = wait_for(other, StoreFollowed)
    one.update_definition("weather", {"enabled": False})
    heard()
    assert other.get("weather").state is ToolState.DISABLED
    heard = wait_for(other, StoreFollowed)
    one.delete_definition("weather")
    heard()
    assert "weather" not in other


def test_what_one_changes_itself_is_not_taken_over_again(open_there: OpenKeep) -> None:
    keep = open_there()
    keep.editor.follow()
    keep.create_definition(WEATHER)
    assert keep.editor.follow() == frozenset()


def test_a_change_that_does_not_fit_here_is_told_and_the_others_follow(open_there: OpenKeep) -> None:
    one, other = open_there(), open_there()
    other.register({**WEATHER, "client_executed": False})
    one.create_definition(WEATHER)
    one.create_definition(STORM)
    assert other.editor.follow() == {"storm"}
    (failed,) = other.heard(RegistrationFailed)
    assert isinstance(failed, RegistrationFailed)
    assert (failed.tool_name, failed.provider, failed.error_code) == ("weather", "store", "ACODE-TSR-007")
    assert other.get("weather").provider == "code"


def test_changes_of_many_keeps_are_all_seen_in_whatever_order_they_come(open_there: OpenKeep) -> None:
    keeps = [open_there(built_in=False) for _ in range(3)]
    watcher = open_there(built_in=False)
    done = threading.Event()
    seen: set[str] = set()

    def watch() -> None:
        while not done.is_set():
            seen.update(watcher.editor.follow())
        seen.update(watcher.editor.follow())

    def create(number: int, keep: KeepOnStore) -> None:
        for n in range(8):
            keep.create_definition({**STORM, "name": f"tool_{number}_{n}"})

    watching = threading.Thread(target=watch)
    watching.start()
    creating = [threading.Thread(target=create, args=pair) for pair in enumerate(keeps)]
    for thread in creating:
        thread.start()
    for thread in creating:
        thread.join()
    done.set()
    watching.join()
    assert seen == {f"tool_{number}_{n}" for number in range(3) for n in range(8)}
    assert len(watcher.tools()) == 24


@pytest.fixture
def shared(postgres: Cluster) -> DatabaseLocation:
    return PostgresLocation(postgres.clean())


def test_a_store_that_goes_away_leaves_the_tools_and_comes_back(
    postgres: Cluster, shared: DatabaseLocation
) -> None:
    with KeepOnStore(shared) as one, KeepOnStore(shared) as other:
        one.create_definition(WEATHER)
        following(other)
        assert "weather" in other
        lost = wait_for(other, StoreLost)
        postgres.stop()
        lost()
        assert other.store_lost
        assert other.validate_arguments("weather", '{"town": "Ulm"}')["days"] == 3
        with pytest.raises(StoreUnavailable):
            one.create_definition(STORM)
        assert "storm" not in one
        postgres.start()
        followed = wait_for(other, StoreFollowed)
        one.create_definition(STORM)
        followed()
        assert "storm" in other
        assert not other.store_lost


def test_a_keep_that_opens_while_the_store_is_away_reads_it_when_it_is_back(
    postgres: Cluster, shared: DatabaseLocation
) -> None:
    with KeepOnStore(shared) as one:
        one.create_definition(WEATHER)
    postgres.stop()
    with KeepOnStore(shared) as late:
        assert [skipped.provider for skipped in late.start_up.skipped] == ["store"]
        assert "read_file" in late
        followed = wait_for(late, StoreFollowed)
        late.follow_store()
        postgres.start()
        followed()
        assert "weather" in late


def test_a_connection_that_is_cut_is_made_anew_and_nothing_is_missed(
    postgres: Cluster, shared: DatabaseLocation
) -> None:
    with KeepOnStore(shared) as one, KeepOnStore(shared) as other:
        one.create_definition(WEATHER)
        following(other)
        lost = wait_for(other, StoreLost)
        postgres.execute(
            "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        followed = wait_for(other, StoreFollowed)
        one.create_definition(STORM)
        lost()
        followed()
        assert "storm" in other


def test_a_store_that_was_put_back_to_an_earlier_state_is_read_anew(
    open_there: OpenKeep, place: DatabaseLocation
) -> None:
    one, other = open_there(), open_there()
    one.create_definition(WEATHER)
    one.create_definition(STORM)
    other.editor.follow()
    with connected(place) as connection:
        for table in ("tool_definitions", "tool_definition_names", "tool_definition_changes"):
            connection.execute(f"DELETE FROM {place.prefix}{table} WHERE name IN ('storm')")  # noqa: S608
        connection.execute(f"UPDATE {place.prefix}tool_store_state SET revision = 1")  # noqa: S608
    assert other.editor.follow() == {"storm"}
    assert "storm" not in other
    assert "weather" in other


def test_closing_does_not_wait_for_the_next_look(open_there: OpenKeep) -> None:
    keep = following(open_there())
    keep.close()
    assert [thread.name for thread in threading.enumerate() if thread.name == "toolkeep-follow"] == []


def test_a_process_with_many_open_files_follows_too(
    open_there: OpenKeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe2 = os.pipe2
    monkeypatch.setattr(os, "pipe2", lambda flags: tuple(map(moved_up, pipe2(flags))))
    keep, other = following(open_there()), open_there()
    followed = wait_for(keep, StoreFollowed)
    other.create_definition(WEATHER)
    followed()
    assert keep.store_lost == ""
