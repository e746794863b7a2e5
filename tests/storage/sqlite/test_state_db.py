"""What a keep remembers between processes: read without a trace, written by many at once, nothing lost."""

import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep import Code
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.errors import StateUnusable
from toolkeep.keep.keep import Keep
from toolkeep.registry.admit import admit
from toolkeep.registry.registry import CHANGED, ToolRegistry
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.registry_state import MemoryState, Pin, RegistryState


def pin(name: str = "read_file", **fields: Any) -> Pin:
    definition = made_elsewhere(name=name)
    known = {
        "origin": "mcp:files",
        "name": name,
        "definition_hash": definition.hash,
        "version": "1.0.0",
        "definition": definition.to_dict(),
    }
    return Pin(**{**known, **fields})


def switch(state: RegistryState, name: str, *, enabled: bool) -> None:
    """Switch a tool in a registry on the state, and remember it."""
    registry = ToolRegistry(state=state)
    base, _, version = name.partition("@")
    registry.add(admit(made(name=base, version=version or "1.0.0")))
    (registry.enable if enabled else registry.disable)(name, remember=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(params=["memory", "file"])
def again(request: pytest.FixtureRequest, folder: Path) -> Callable[[], RegistryState]:
    """Opens the same state again: the file, or its twin in memory."""
    memory = MemoryState()
    return (lambda: KeepState(folder)) if request.param == "file" else (lambda: memory)


# --- the same from the file and from memory ------------------------------------------------------


def test_nothing_is_remembered_at_first(again: Callable[[], RegistryState]) -> None:
    assert (dict(again().switches()), list(again().pins())) == ({}, [])


@pytest.mark.spec("REG-1")
def test_switches_come_back_as_they_were_put(again: Callable[[], RegistryState]) -> None:
    switch(again(), "read_file", enabled=False)
    switch(again(), "read_file@1.0.0-RC1", enabled=True)
    switch(again(), "read_files@1.0.0", enabled=False)
    switch(again(), "other", enabled=False)
    assert dict(again().switches()) == {
        "read_file": False,
        "read_file@1.0.0-RC1": True,
        "read_files@1.0.0": False,
        "other": False,
    }


@pytest.mark.spec("REG-1")
def test_a_switch_of_a_name_goes_over_those_of_its_versions(again: Callable[[], RegistryState]) -> None:
    for name in ("read_file@1.0.0", "read_files@1.0.0", "read_file@2.0.0"):
        switch(again(), name, enabled=False)
    switch(again(), "read_file", enabled=True)
    assert dict(again().switches()) == {"read_files@1.0.0": False, "read_file": True}


@pytest.mark.spec("REG-3")
def test_pins_come_back_as_they_were_put(again: Callable[[], RegistryState]) -> None:
    pending = made_elsewhere(description="Größer.")
    waiting = pin(pending_hash=pending.hash, pending=pending.to_dict())
    other = pin(name="other", origin="openapi:shop")
    assert again().pin([waiting, other]) == [waiting, other]
    assert sorted(again().pins(), key=lambda held: held.name) == [other, waiting]


@pytest.mark.spec("REG-3")
def test_the_first_pin_of_a_name_stays_and_is_given_back(again: Callable[[], RegistryState]) -> None:
    again().pin([pin()])
    other = pin(name="other")
    assert again().pin([pin(definition_hash="x", version="9.0.0"), other]) == [pin(), other]
    assert sorted(again().pins(), key=lambda held: held.name) == [other, pin()]


PENDING = made_elsewhere(description="Another.")


def waiting(**fields: Any) -> Pin:
    """The pin with a change that waits."""
    return pin(**{"pending_hash": PENDING.hash, "pending": PENDING.to_dict(), **fields})


@pytest.mark.spec("REG-3")
def test_what_arrives_waits_only_beside_the_definition_that_it_was_compared_with(
    again: Callable[[], RegistryState],
) -> None:
    again().pin([pin()])
    again().wait_for(waiting(definition_hash="of another definition"))
    assert list(again().pins()) == [pin()]
    again().wait_for(waiting())
    assert list(again().pins()) == [waiting()]
    again().wait_for(pin())
    assert list(again().pins()) == [pin()]


@pytest.mark.spec("REG-3")
def test_exactly_what_waits_is_taken(again: Callable[[], RegistryState]) -> None:
    again().pin([pin(), pin(name="other")])
    again().wait_for(waiting())
    assert again().take(waiting(pending_hash="of another definition")) is False
    assert sorted(again().pins(), key=lambda held: held.name) == [pin(name="other"), waiting()]
    assert again().take(waiting()) is True
    taken = pin(definition_hash=PENDING.hash, definition=PENDING.to_dict(), version="1.0.1")
    assert sorted(again().pins(), key=lambda held: held.name) == [pin(name="other"), taken]
    assert again().take(waiting()) is False
    assert sorted(again().pins(), key=lambda held: held.name) == [pin(name="other"), taken]


@pytest.mark.spec("REG-3")
def test_a_change_is_taken_only_in_the_place_of_the_definition_it_was_compared_with(
    again: Callable[[], RegistryState],
) -> None:
    """Its version would be counted from one that is no longer ours."""
    moved = waiting(definition_hash="of a definition accepted meanwhile", version="7.0.0")
    again().pin([moved])
    assert again().take(waiting()) is False
    assert list(again().pins()) == [moved]


@pytest.mark.spec("REG-3")
def test_pins_of_one_name_from_two_origins_stand_beside_each_other(
    again: Callable[[], RegistryState],
) -> None:
    again().pin([pin(), pin(origin="mcp:elsewhere")])
    assert {held.key for held in again().pins()} == {
        ("mcp:files", "read_file"),
        ("mcp:elsewhere", "read_file"),
    }


@pytest.mark.spec("REG-3")
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "integer", "maximum": 2**70}, id="a large integer"),
        pytest.param({"type": "number", "default": 1.5, "minimum": -0.0}, id="floats"),
        pytest.param({"type": "string", "const": "größe \u2028 \U0001f600"}, id="any text"),
    ],
)
def test_an_import_is_pinned_whatever_its_schema_holds(
    again: Callable[[], RegistryState], schema: dict[str, Any]
) -> None:
    definition = made_elsewhere(parameters=with_properties({"n": schema}))
    ToolRegistry(state=again()).add(admit(definition))
    registry = ToolRegistry(state=again())
    registry.add(admit(definition))
    assert registry.get("read_file").state is ToolState.ENABLED
    another = definition.replace(description="Another.")
    registry.add(admit(another))
    assert registry.accept("read_file", another.hash).version == "1.0.1"


# --- a registry on the file ----------------------------------------------------------------------


@pytest.mark.spec("REG-1", "REG-3")
def test_a_keep_finds_its_switches_and_pins_in_the_next_process(folder: Path) -> None:
    first = Keep(state=KeepState(folder))
    first.register(made(name="note"), made_elsewhere())
    first.disable("note", remember=True)
    second = Keep(state=KeepState(folder))
    another = made_elsewhere(description="Another.")
    second.register(made(name="note"), another)
    assert [(held.name, held.state) for held in second.tools()] == [
        ("note", ToolState.DISABLED),
        ("read_file", ToolState.QUARANTINED),
    ]
    second.accept("read_file", definition_hash=another.hash)
    third = Keep(state=KeepState(folder))
    third.register(another)
    assert (third.get("read_file").version, third.get("read_file").state) == ("1.0.1", ToolState.ENABLED)
    third.register(made_elsewhere())
    assert third.get("read_file").why == CHANGED


def test_switches_of_two_keeps_on_one_folder_are_both_remembered(folder: Path) -> None:
    one, two = Keep(state=KeepState(folder)), Keep(state=KeepState(folder))
    for keep in (one, two):
        keep.register(made(name="a"), made(name="b"))
    one.disable("a", remember=True)
    two.disable("b", remember=True)
    assert dict(KeepState(folder).switches()) == {"a": False, "b": False}


# --- reading leaves no trace ---------------------------------------------------------------------


def test_reading_makes_neither_folder_nor_file(folder: Path) -> None:
    state = KeepState(folder)
    assert (dict(state.switches()), list(state.pins()), state.is_accepted("a", "b")) == ({}, [], False)
    keep = Keep(state=state)
    keep.register(made())
    keep.disable("read_file")
    assert not folder.exists()
    folder.mkdir(mode=0o700)
    assert dict(state.switches()) == {}
    assert list(folder.iterdir()) == []


def test_the_first_thing_remembered_makes_a_private_folder(folder: Path) -> None:
    KeepState(folder).accept("a", "b")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "state.db").is_file()


def test_nothing_stays_open_and_the_folder_can_be_moved(folder: Path) -> None:
    KeepState(folder).accept("a", "b")
    moved = folder.rename(folder.parent / "moved")
    assert KeepState(moved).is_accepted("a", "b")
    assert not KeepState(folder).is_accepted("a", "b")


# --- acceptances ---------------------------------------------------------------------------------


def test_an_acceptance_is_of_one_path_with_one_content(folder: Path) -> None:
    KeepState(folder).accept("/p/config.yml", "hash-1")
    asked = [("/p/config.yml", "hash-1"), ("/p/config.yml", "hash-2"), ("/q/config.yml", "hash-1"), ("", "")]
    assert [KeepState(folder).is_accepted(*one) for one in asked] == [True, False, False, False]


def test_an_older_content_no_longer_counts(folder: Path) -> None:
    state = KeepState(folder)
    for file_hash in ("hash-1", "hash-2"):
        state.accept("/p/config.yml", file_hash)
    state.accept("/q/config.yml", "hash-1")
    assert [state.is_accepted("/p/config.yml", file_hash) for file_hash in ("hash-1", "hash-2")] == [
        False,
        True,
    ]
    assert state.is_accepted("/q/config.yml", "hash-1")


def test_a_path_that_is_not_utf_8_is_accepted_like_any_other(folder: Path) -> None:
    state = KeepState(folder)
    state.accept("/p\udcff/config.yml", "hash-1")
    asked = ("/p\udcff/config.yml", "/p\udcfe/config.yml", "/p/config.yml")
    assert [state.is_accepted(path, "hash-1") for path in asked] == [True, False, False]


def test_accepting_the_same_content_again_changes_nothing(folder: Path) -> None:
    state = KeepState(folder)
    state.accept("/p/config.yml", "hash-1")
    state.accept("/p/config.yml", "hash-1")
    assert state.is_accepted("/p/config.yml", "hash-1")


# --- what cannot be trusted ----------------------------------------------------------------------

READS: list[Callable[[KeepState], object]] = [
    KeepState.switches,
    KeepState.pins,
    lambda state: state.is_accepted("a", "b"),
]
WRITES: list[Callable[[KeepState], object]] = [
    lambda state: switch(state, "a", enabled=False),
    lambda state: state.pin([pin()]),
    lambda state: state.accept("a", "b"),
]


@pytest.mark.parametrize("use", [*READS, *WRITES])
def test_a_file_that_is_no_database_is_named_with_a_hint_and_not_overwritten(
    folder: Path, use: Callable[[KeepState], object]
) -> None:
    folder.mkdir(mode=0o700)
    (folder / "state.db").write_bytes(b"this is no database, but it may be precious\n" * 100)
    before = (folder / "state.db").read_bytes()
    with pytest.raises(StateUnusable) as caught:
        use(KeepState(folder))
    assert (caught.value.code, caught.value.path) == (Code.STATE_UNUSABLE, str(folder / "state.db"))
    assert "move the file away" in caught.value.hint
    assert (folder / "state.db").read_bytes() == before


@pytest.mark.parametrize("use", [*READS, *WRITES])
def test_a_folder_that_became_open_to_others_is_no_longer_used(
    folder: Path, use: Callable[[KeepState], object]
) -> None:
    KeepState(folder).pin([pin(name="b")])
    folder.chmod(0o755)
    with pytest.raises(StateUnusable):
        use(KeepState(folder))
    folder.chmod(0o700)
    assert list(KeepState(folder).pins()) == [pin(name="b")]


@pytest.mark.parametrize("use", [*READS, *WRITES])
@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000], ids=["name", "path"])
def test_a_folder_with_too_long_a_name_is_unusable(
    tmp_path: Path, name: str, use: Callable[[KeepState], object]
) -> None:
    with pytest.raises(StateUnusable) as caught:
        use(KeepState(tmp_path / name))
    assert "File name too long" in caught.value.message


def tampered(folder: Path, statement: str) -> KeepState:
    KeepState(folder).pin([pin()])
    with sqlite3.connect(folder / "state.db") as connection:
        connection.execute(statement)
    connection.close()
    return KeepState(folder)


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        pytest.param("UPDATE pins SET definition = '{'", KeepState.pins, id="no JSON"),
        pytest.param("ALTER TABLE pins RENAME COLUMN pending TO later", KeepState.pins, id="another column"),
        pytest.param("ALTER TABLE switches RENAME COLUMN tool TO t", KeepState.switches, id="another shape"),
    ],
)
def test_a_file_with_other_contents_is_unusable_too(
    folder: Path, statement: str, use: Callable[[KeepState], object]
) -> None:
    state = tampered(folder, statement)
    with pytest.raises(StateUnusable):
        use(state)


def test_what_fails_half_way_is_not_written(folder: Path) -> None:
    KeepState(folder).pin([pin()])
    with pytest.raises(StateUnusable):
        KeepState(folder).pin([pin(name="first"), pin(name="other", version=None)])
    assert list(KeepState(folder).pins()) == [pin()]


# --- many at once --------------------------------------------------------------------------------

WRITERS, EACH = 4, 10


def write_many(folder: Path, writer: int) -> None:
    state = KeepState(folder)
    for number in range(EACH):
        state.pin([pin(name=f"tool_{writer}_{number}")])
        state.accept(f"/{writer}/{number}", "hash")


def assert_nothing_is_lost(folder: Path) -> None:
    state = KeepState(folder)
    wanted = {(writer, number) for writer in range(WRITERS) for number in range(EACH)}
    assert {held.name for held in state.pins()} == {f"tool_{w}_{n}" for w, n in wanted}
    assert all(state.is_accepted(f"/{w}/{n}", "hash") for w, n in wanted)


def test_threads_that_write_at_once_lose_nothing(folder: Path) -> None:
    gate = threading.Barrier(WRITERS)

    def write(writer: int) -> None:
        gate.wait()
        write_many(folder, writer)

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, writer) for writer in range(WRITERS)]:
            done.result()
    assert_nothing_is_lost(folder)


def test_of_many_that_pin_one_name_at_once_the_first_wins_and_all_are_told(folder: Path) -> None:
    gate = threading.Barrier(WRITERS)

    def write(writer: int) -> list[Pin]:
        gate.wait()
        return KeepState(folder).pin([pin(definition_hash=f"of writer {writer}")])

    with ThreadPoolExecutor(WRITERS) as pool:
        told = list(pool.map(write, range(WRITERS)))
    assert told == [list(KeepState(folder).pins())] * WRITERS


PROGRAM = """
import sys
from pathlib import Path
from toolkeep.stores.registry_state import Pin
from toolkeep.storage.sqlite.state_db import KeepState

folder, writer, each = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("here", flush=True)
sys.stdin.readline()
state = KeepState(folder)
for number in range(each):
    name = f"tool_{writer}_{number}"
    state.pin([Pin(origin="mcp:files", name=name, definition_hash="", version="1.0.0", definition={})])
    state.accept(f"/{writer}/{number}", "hash")
"""


def test_processes_that_write_at_once_lose_nothing(folder: Path) -> None:
    """Each says that it is there and waits for the word, so that all begin together, with no file yet."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(writer), str(EACH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(WRITERS)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    outcomes = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=30)
        outcomes.append((process.returncode, errors))
    assert outcomes == [(0, "")] * WRITERS
    assert_nothing_is_lost(folder)


def test_reading_goes_on_while_somebody_else_is_in_the_middle_of_the_first_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, seen = Path.hardlink_to, []

    def look_first(path: Path, target: Path) -> None:
        state = KeepState(folder)
        seen.append((dict(state.switches()), list(state.pins()), state.is_accepted("a", "b")))
        genuine(path, target)

    monkeypatch.setattr(Path, "hardlink_to", look_first)
    KeepState(folder).put_switch("tool", enabled=False)
    assert seen == [({}, [], False)]
    assert KeepState(folder).switches() == {"tool": False}


def test_of_many_that_are_the_first_to_write_none_fails(tmp_path: Path) -> None:
    threads = 8
    for attempt in range(25):
        folder = tmp_path / f"state_{attempt}"
        gate = threading.Barrier(threads)

        def use(number: int, folder: Path = folder, gate: threading.Barrier = gate) -> None:
            state = KeepState(folder)
            gate.wait()
            if number % 2:
                state.accept(f"/{number}", "hash")
            else:
                state.switches()

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(use, number) for number in range(threads)]:
                done.result()
        assert all(KeepState(folder).is_accepted(f"/{number}", "hash") for number in range(1, threads, 2))


def test_readers_see_whole_writes_while_others_write(folder: Path) -> None:
    pairs = [[pin(name=f"{name}_{number:02}") for name in ("a", "b")] for number in range(20)]
    is_done = threading.Event()

    def write() -> None:
        try:
            for pair in pairs:
                KeepState(folder).pin(pair)
        finally:
            is_done.set()

    def read() -> None:
        while not is_done.is_set():
            names = {held.name for held in KeepState(folder).pins()}
            count = len(names) // 2
            assert names == {held.name for pair in pairs[:count] for held in pair}

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write), pool.submit(read)]:
            done.result()


def test_the_content_that_was_accepted_last_comes_back(tmp_path: Path) -> None:
    state = KeepState(tmp_path)
    state.put_switch("read_file", enabled=False)
    assert state.accepted_content("/project/.agent/config.yml") is None
    state.accept("/project/.agent/config.yml", "a" * 64, '{"file": {}}')
    assert state.accepted_content("/project/.agent/config.yml") == '{"file": {}}'
