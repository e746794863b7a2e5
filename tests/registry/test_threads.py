"""Readers that hold a snapshot never see half an update, whatever writers do at the same time (REG-1).

The same checks run against a registry that changes its dictionaries in place, and catch it.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.definitions.examples import made
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.version_order import precedence
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import DuplicateTool
from toolkeep.registry import registry as registry_module
from toolkeep.registry.admit import admit
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.snapshot import Draft, Index, Snapshot

pytestmark = pytest.mark.spec("REG-1")

ROUNDS = 60


def versions_of(name: str, count: int, **fields: object) -> list[RegisteredTool]:
    return [admit(made(name=name, version=f"1.{number}.0", **fields)) for number in range(count)]


LEFT, RIGHT = versions_of("left", ROUNDS), versions_of("right", ROUNDS)
"""Always registered together: their newest versions agree."""
FLIPPED = versions_of("flipped", 3)
"""Always switched together: all of its versions answer, or none."""
COMING = versions_of("coming", 2, aliases=["comes", "came", "goes"])
"""Always comes and goes as a whole, with every version and alias."""


def faults(snapshot: Snapshot) -> list[str]:
    """Everything in one moment that contradicts something else in it."""
    return [*_index_faults(snapshot), *_listing_faults(snapshot), *_world_faults(snapshot)]


def _index_faults(snapshot: Snapshot) -> Iterator[str]:
    heads: dict[str, RegisteredTool] = {}
    names: dict[str, str] = {}
    for key, family in snapshot.families.items():
        if list(family) != sorted(family, key=lambda held: precedence(held.version), reverse=True):
            yield f"the versions of {key} are out of order"
        head = next((held for held in family if held.is_enabled), None)
        if head is not None:
            heads[head.name] = head
        names |= {name: key for held in family for name in (held.name, *held.definition.aliases)}
    if snapshot.answering != heads:
        yield "what answers is not what the versions say"
    if snapshot.names != names:
        yield "names and aliases do not lead to what is held"


def _listing_faults(snapshot: Snapshot) -> Iterator[str]:
    listed = snapshot.all()
    if sorted(held.name for held in listed) != sorted(snapshot.families):
        yield "not every tool is listed once"
    for held in listed:
        for name in (held.name, *held.definition.aliases):
            if snapshot.find(name) is not held:
                yield f"{name} does not find the tool that is listed"


def _world_faults(snapshot: Snapshot) -> Iterator[str]:
    left, right = (tuple(held.version for held in snapshot.versions(name)) for name in ("left", "right"))
    if left != right:
        yield "one of the pair is ahead"
    if len({held.state for held in snapshot.versions("flipped")}) > 1:
        yield "only some versions were switched"
    if len(snapshot.versions("coming")) not in (0, len(COMING)):
        yield "only some versions came"


def write_pair(registry: ToolRegistry) -> None:
    for pair in zip(LEFT, RIGHT, strict=True):
        registry.add_all(pair)


def flip(registry: ToolRegistry) -> None:
    for _ in range(ROUNDS):
        registry.disable("flipped")
        registry.enable("flipped")


def come_and_go(registry: ToolRegistry) -> None:
    for _ in range(ROUNDS):
        registry.add_all(COMING)
        registry.remove("goes")


def faults_seen(registry: ToolRegistry) -> set[str]:
    """What readers see while all of this happens at once; a reader that breaks has seen something too."""
    registry.add_all(FLIPPED)
    writers: list[Callable[[ToolRegistry], None]] = [write_pair, flip, come_and_go]
    readers = 3
    gate = threading.Barrier(len(writers) + readers)
    are_done = threading.Event()
    seen: set[str] = set()

    def write(work: Callable[[ToolRegistry], None]) -> None:
        gate.wait()
        work(registry)

    def read() -> None:
        gate.wait()
        while True:
            is_last = are_done.is_set()
            try:
                seen.update(faults(registry.snapshot))
            except (RuntimeError, KeyError) as error:  # a dictionary changed while it was read
                seen.add(repr(error))
            if is_last or seen:
                return

    with ThreadPoolExecutor(len(writers) + readers) as pool:
        reading = [pool.submit(read) for _ in range(readers)]
        writing = [pool.submit(write, work) for work in writers]
        try:
            for done in writing:
                done.result()
        finally:
            are_done.set()
        for done in reading:
            done.result()
    return seen


@pytest.fixture
def _hectic() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class InPlaceDraft(Draft):
    """The naive registry: changes the dictionaries that readers hold."""

    def __init__(self, snapshot: Snapshot, tier: Tier) -> None:
        super().__init__(snapshot, tier)
        self._live = snapshot
        held = (
            (self._families, snapshot.families),
            (self._names, snapshot.names),
            (self._answering, snapshot.answering),
        )
        for draft, index in held:
            draft._recent = index.recent  # type: ignore[assignment]

    def finish(self) -> Snapshot:
        self._live._ordered = None
        return self._live


def naive_registry(monkeypatch: pytest.MonkeyPatch) -> ToolRegistry:
    monkeypatch.setattr(registry_module, "Draft", InPlaceDraft)
    registry = ToolRegistry()
    registry.snapshot = Snapshot(Index({}, {}), Index({}, {}), Index({}, {}))
    return registry


@pytest.mark.usefixtures("_hectic")
def test_readers_never_see_half_an_update() -> None:
    registry = ToolRegistry()
    assert faults_seen(registry) == set()
    assert [(held.name, held.version, held.is_enabled) for held in registry.all()] == [
        ("flipped", "1.2.0", True),
        ("left", LEFT[-1].version, True),
        ("right", RIGHT[-1].version, True),
    ]


@pytest.mark.usefixtures("_hectic")
def test_the_same_readers_catch_a_registry_that_changes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = (faults_seen(naive_registry(monkeypatch)) for _ in range(20))
    assert any(attempts)


def look_between(
    monkeypatch: pytest.MonkeyPatch, registry: ToolRegistry, draft: type[Draft]
) -> list[list[str]]:
    """Look at what readers have each time that one tool of an update is in and the next is not."""
    seen: list[list[str]] = []

    class Watched(draft):  # type: ignore[misc, valid-type]  # whichever draft is in use
        def add(self, tool: RegisteredTool) -> RegisteredTool:
            held: RegisteredTool = super().add(tool)
            seen.append(faults(registry.snapshot))
            return held

    monkeypatch.setattr(registry_module, "Draft", Watched)
    registry.add_all([LEFT[0], RIGHT[0]])
    registry.add_all([LEFT[1], RIGHT[1]])
    return seen


def test_nothing_of_an_update_shows_before_all_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_between(monkeypatch, ToolRegistry(), Draft) == [[], [], [], []]


def test_a_change_in_place_shows_half_an_update_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look_between(monkeypatch, naive_registry(monkeypatch), InPlaceDraft)
    assert seen[0] == seen[2] == ["one of the pair is ahead"]


def test_an_update_that_fails_half_way_leaves_the_snapshot_as_it_was() -> None:
    registry = ToolRegistry()
    registry.add_all([LEFT[0], RIGHT[0]])
    before = registry.snapshot
    clash = admit(made(name="right", version=RIGHT[0].version, description="Another."))
    with pytest.raises(DuplicateTool):
        registry.add_all([LEFT[1], clash])
    assert registry.snapshot is before


@pytest.mark.usefixtures("_hectic")
def test_switches_of_many_threads_all_count() -> None:
    registry = ToolRegistry()
    tools = [admit(made(name=f"tool_{number}")) for number in range(8)]
    registry.add_all(tools)
    gate = threading.Barrier(len(tools))

    def switch(held: RegisteredTool) -> None:
        gate.wait()
        for _ in range(20):
            registry.enable(held.name)
            registry.disable(held.name)

    with ThreadPoolExecutor(len(tools)) as pool:
        for done in [pool.submit(switch, held) for held in tools]:
            done.result()
    assert registry.snapshot.answering == {}
    assert faults(registry.snapshot) == []
