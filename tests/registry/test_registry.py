"""The tools of one keep: found by name and version, in order, switched, protected, by many threads at once."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.definitions.examples import made, made_elsewhere
from toolkeep import Code, ToolDefinition, tool
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import Category, Tier, ToolState
from toolkeep.errors import (
    BuiltInProtected,
    DuplicateTool,
    StateUnusable,
    StaysDisabled,
    UnknownTool,
)
from toolkeep.events import Bus, Event, ToolSwitched, ToolUnregistered
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import VERSIONS
from toolkeep.registry.admit import AdmissionContext, admit
from toolkeep.registry.registry import SAID_BY_DEFINITION, SWITCHED_OFF, ToolRegistry
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.registry_state import MemoryState
from toolkeep.telemetry.logs import LogListener


def named(name: str, **fields: object) -> RegisteredTool:
    return admit(made(name=name, **fields))


def brought_by(provider: str, **fields: object) -> RegisteredTool:
    """A tool as a provider brings it; those of `core` are built in."""
    circumstances = AdmissionContext(provider=provider, is_built_in=provider == "core")
    return admit(made(**fields), circumstances=circumstances)


def holding(*versions: str, registry: ToolRegistry | None = None) -> ToolRegistry:
    """A registry with these versions of `read_file`, which is also called `file_read`."""
    registry = ToolRegistry() if registry is None else registry
    registry.add_all([named("read_file", version=version, aliases=["file_read"]) for version in versions])
    return registry


def states(registry: ToolRegistry, name: str = "read_file") -> dict[str, tuple[ToolState, str]]:
    """State and reason of every version, newest first."""
    return {held.version: (held.state, held.why) for held in registry.versions(name)}


def answering(registry: ToolRegistry, name: str = "read_file") -> str | None:
    """The version that a plain call finds at once."""
    found = registry.snapshot.answering.get(name)
    return found.version if found else None


ON = (ToolState.ENABLED, "")
OFF = (ToolState.DISABLED, SWITCHED_OFF)


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("name", ["read_file", "READ_FILE", "Read_File", "file_read", "File_Read"])
def test_a_tool_is_found_by_name_and_alias_in_any_case(name: str) -> None:
    registry = ToolRegistry()
    added = registry.add(named("read_file", aliases=["file_read"]))
    assert registry.find(name) is added


def test_a_name_that_nobody_has_is_not_found() -> None:
    registry = ToolRegistry()
    registry.add(named("read_file"))
    assert registry.find("read") is None
    assert registry.find("") is None


@pytest.mark.parametrize(
    "name",
    ["\N{KELVIN SIGN}ill", "li\N{LATIN SMALL LETTER LONG S}t", "li\N{LATIN SMALL LETTER LONG S}t@1.0.0"],
)
def test_a_letter_that_only_folds_to_an_ascii_one_finds_nothing(name: str) -> None:
    registry = ToolRegistry()
    registry.add_all([named("kill"), named("list")])
    assert (registry.find(name), registry.versions(name), name in registry) == (None, (), False)
    with pytest.raises(UnknownTool):
        registry.disable(name)


@pytest.mark.parametrize("length", [80, 81, 100_000])
def test_an_unknown_name_is_shown_cut(length: int) -> None:
    with pytest.raises(UnknownTool) as caught:
        ToolRegistry().get("n" * length)
    shown = "n" * 80 + ("\u2026" if length > 80 else "")
    assert caught.value.message == f"no tool named {shown!r} is registered"


def test_tools_come_by_category_then_by_name() -> None:
    registry = ToolRegistry()
    for name, category in (("zip", "custom"), ("b", "general"), ("a", "general"), ("z", "file_system")):
        registry.add(named(name, category=category))
    assert [registered.name for registered in registry.all()] == ["z", "a", "b", "zip"]


def test_the_same_definition_again_is_no_change() -> None:
    registry = ToolRegistry()
    first = registry.add(named("read_file", aliases=["file_read"]))
    assert registry.add(named("read_file", aliases=["file_read"])) is first
    assert registry.all() == [first]


@pytest.mark.parametrize(
    ("held", "added", "name"),
    [
        ({"name": "a"}, {"name": "a", "description": "Another."}, "a"),
        ({"name": "a"}, {"name": "b", "aliases": ["a"]}, "a"),
        ({"name": "a", "aliases": ["b"]}, {"name": "b"}, "b"),
        ({"name": "a", "aliases": ["c"]}, {"name": "b", "aliases": ["c"]}, "c"),
    ],
)
def test_names_and_aliases_share_one_namespace(
    held: dict[str, object], added: dict[str, object], name: str
) -> None:
    registry = ToolRegistry()
    first = registry.add(admit(made(**held)))
    with pytest.raises(DuplicateTool) as caught:
        registry.add(admit(made(**added)))
    assert (caught.value.code, caught.value.name) == (Code.DUPLICATE_TOOL, name)
    assert registry.all() == [first]
    assert registry.find(name) is first


@pytest.mark.spec("DEF-2")
def test_names_from_elsewhere_that_differ_in_case_collide() -> None:
    registry = ToolRegistry()
    registry.add(admit(ToolDefinition.from_elsewhere({"name": "Read"})))
    with pytest.raises(DuplicateTool):
        registry.add(admit(ToolDefinition.from_elsewhere({"name": "read"})))


def test_the_same_function_again_keeps_the_first_runner() -> None:
    @tool
    def greet(name: str) -> str:
        """Greet."""
        return name

    registry = ToolRegistry()
    first = registry.add(admit(greet.definition, runner=greet))
    assert registry.add(admit(greet.definition, runner=tool(greet.function))) is first


def test_another_function_or_dependency_under_the_same_definition_is_refused() -> None:
    """Otherwise an edited cell of a notebook would silently keep calling the old function."""

    def versions(mark: str) -> FunctionTool[..., str]:
        @tool
        def greet(name: str) -> str:
            """Greet."""
            return name + mark

        return greet

    registry, first = ToolRegistry(), versions("!")
    registry.add(admit(first.definition, runner=first))
    for other in (versions("?"), first.override({len: len})):
        assert other.definition.hash == first.definition.hash
        with pytest.raises(DuplicateTool):
            registry.add(admit(other.definition, runner=other))


def test_the_bare_definition_of_a_function_is_the_same_tool() -> None:
    @tool
    def greet(name: str) -> str:
        """Greet."""
        return name

    registry = ToolRegistry()
    first = registry.add(admit(greet.definition, runner=greet))
    assert registry.add(admit(greet.definition)) is first


def test_a_registration_is_logged_with_name_version_and_hash(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolkeep.registry")
    bus = Bus()
    bus.subscribe(LogListener())
    registered = ToolRegistry(bus=bus).add(named("read_file", version="1.2.0"))
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.INFO, "tool registered")
    assert (
        record.__dict__.items()
        >= {
            "tool_name": "read_file",
            "version": "1.2.0",
            "definition_hash": registered.definition.hash,
            "schema_size_bytes": len(canonical_bytes(registered.definition.parameters)),
        }.items()
    )


def test_registering_again_tells_nothing() -> None:
    bus = Bus()
    registry = ToolRegistry(bus=bus)
    registry.add(named("read_file"))
    told: list[Event] = []
    bus.subscribe(told.append)
    registry.add(named("read_file"))
    assert told == []


def test_a_snapshot_does_not_change_under_its_reader() -> None:
    registry = ToolRegistry()
    registry.add(named("a"))
    snapshot, listed = registry.snapshot, registry.all()
    registry.add(named("b"))
    assert list(snapshot.answering) == ["a"]
    assert [registered.name for registered in listed] == ["a"]


def test_each_of_many_snapshots_holds_what_was_registered_by_then() -> None:
    registry, expected = ToolRegistry(), dict[str, RegisteredTool]()
    kept = []
    for number in range(60):
        tool = named(f"tool_{number}")
        expected[tool.name] = registry.add(tool)
        if number % 7 == 6:
            del expected[f"tool_{number - 4}"]
            registry.remove(f"tool_{number - 4}")
        if number % 5 == 4:
            registry.disable("tool_0")
            registry.enable("tool_0")
            expected["tool_0"] = registry.get("tool_0")
        kept.append((registry.snapshot, dict(expected)))
    for snapshot, tools in kept:
        assert dict(snapshot.answering.items()) == tools
        assert [len(index) for index in (snapshot.families, snapshot.names)] == [len(tools)] * 2
        assert [snapshot.find(f"tool_{number}") for number in range(60)] == [
            tools.get(f"tool_{number}") for number in range(60)
        ]


def together(work: Callable[[int], None], threads: int = 8) -> None:
    """Run the work in several threads that start at the same moment; the first error comes out."""
    gate = threading.Barrier(threads)

    def start(index: int) -> None:
        gate.wait()
        work(index)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(start, index) for index in range(threads)]:
            done.result()


def test_threads_that_register_different_tools_lose_none() -> None:
    registry = ToolRegistry()
    tools = [[named(f"tool_{thread}_{number}") for number in range(25)] for thread in range(8)]

    def register(thread: int) -> None:
        for registered in tools[thread]:
            registry.add(registered)
            assert registry.find(registered.name) is registered

    together(register)
    assert {registered.name for registered in registry.all()} == {t.name for row in tools for t in row}


def test_of_threads_that_register_one_name_exactly_one_wins() -> None:
    registry = ToolRegistry()
    tools = [named("contested", description=f"Number {thread}.") for thread in range(8)]
    refused: list[int] = []

    def register(thread: int) -> None:
        try:
            registry.add(tools[thread])
        except DuplicateTool:
            refused.append(thread)

    together(register)
    assert len(refused) == 7
    (winner,) = set(range(8)) - set(refused)
    assert registry.all() == [tools[winner]]


def test_readers_see_every_earlier_tool_while_others_register() -> None:
    registry = ToolRegistry()
    tools = [named(f"tool_{number:03}", aliases=[f"alias_{number:03}"]) for number in range(100)]
    is_done = threading.Event()

    def write() -> None:
        try:
            for registered in tools:
                registry.add(registered)
        finally:
            is_done.set()

    def read() -> None:
        seen = 0
        while not is_done.is_set():
            listed = registry.all()
            assert listed == tools[: len(listed)]
            assert len(listed) >= seen
            seen = len(listed)
            for last in listed[-1:]:
                assert registry.find(last.name.upper()) is last
                assert registry.find(last.definition.aliases[0]) is last

    together(lambda thread: read() if thread else write())
    assert registry.all() == tools


def test_tools_are_added_all_or_none() -> None:
    registry = ToolRegistry()
    held = registry.add(named("a"))
    with pytest.raises(DuplicateTool):
        registry.add_all([named("b"), named("a", description="Another.")])
    assert registry.all() == [held]
    assert registry.find("b") is None


def test_adding_several_gives_what_is_held_for_each() -> None:
    registry = ToolRegistry()
    first, second = named("a"), named("b")
    assert registry.add_all([first, named("a"), second]) == [first, first, second]


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize("order", [("1.2.0", "1.10.0", "1.10.0-rc.1"), ("1.10.0", "1.10.0-rc.1", "1.2.0")])
def test_versions_stand_beside_each_other_and_the_newest_answers(order: tuple[str, ...]) -> None:
    registry = holding(*order)
    assert [held.version for held in registry.versions("FILE_READ")] == ["1.10.0", "1.10.0-rc.1", "1.2.0"]
    assert (answering(registry), registry.get("read_file").version) == ("1.10.0", "1.10.0")
    assert (len(registry), len(registry.all())) == (1, 1)


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize("name", ["read_file@1.0.0", "READ_FILE@1.0.0", "file_read@1.0.0", "File_Read@1.0.0"])
def test_a_version_is_found_by_name_and_alias_in_any_case(name: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    assert registry.get(name).version == "1.0.0"
    assert name in registry


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize("name", ["read_file@3.0.0", "file_read@3.0.0", "read_file@1", "read_file@latest"])
def test_an_unknown_version_names_the_versions_there_are(name: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    with pytest.raises(UnknownTool) as caught:
        registry.get(name)
    assert (caught.value.name, caught.value.hint) == (
        name,
        "did you mean 'read_file@2.0.0' or 'read_file@1.0.0'?",
    )
    assert name not in registry


def test_an_unknown_name_with_a_version_names_the_nearest_name() -> None:
    with pytest.raises(UnknownTool) as caught:
        holding("1.0.0").get("reed_file@1.0.0")
    assert caught.value.hint == "did you mean 'read_file'?"


def test_no_versions_are_listed_of_a_name_that_nobody_has() -> None:
    assert holding("1.0.0").versions("write_file") == ()


@pytest.mark.spec("REG-2")
def test_each_version_registered_again_is_no_change() -> None:
    registry = holding("1.0.0", "2.0.0")
    before = registry.versions("read_file")
    holding("2.0.0", "1.0.0", registry=registry)
    assert registry.versions("read_file") == before


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
def test_another_definition_of_a_version_that_is_held_is_a_conflict(version: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    before = registry.snapshot
    with pytest.raises(DuplicateTool) as caught:
        registry.add(named("read_file", version=version, description="Another."))
    assert caught.value.message == f"tool 'read_file' is already registered by read_file {version}"
    assert registry.snapshot is before


@pytest.mark.spec("REG-2")
def test_versions_keep_the_aliases_of_each_other_until_the_tool_goes() -> None:
    registry = ToolRegistry()
    registry.add(named("read_file", version="1.0.0", aliases=["file_read"]))
    newest = registry.add(named("read_file", version="2.0.0", aliases=["cat"]))
    assert {name: registry.find(name) for name in ("file_read", "cat")} == {
        "file_read": newest,
        "cat": newest,
    }
    with pytest.raises(DuplicateTool):
        registry.add(named("type_file", aliases=["file_read"]))
    with pytest.raises(DuplicateTool):
        registry.add(named("cat"))


@pytest.mark.spec("REG-2")
def test_only_so_many_versions_stand_beside_each_other() -> None:
    registry = holding(*(f"1.{number}.0" for number in range(VERSIONS)))
    with pytest.raises(DuplicateTool) as caught:
        holding("2.0.0", registry=registry)
    assert (len(registry.versions("read_file")), caught.value.hint) == (
        VERSIONS,
        "unregister old versions first",
    )
    holding("1.0.0", registry=registry)
    registry.remove("read_file@1.0.0")
    holding("2.0.0", registry=registry)
    assert answering(registry) == "2.0.0"


def test_a_new_version_cannot_take_the_name_of_another_tool_as_its_alias() -> None:
    registry = holding("1.0.0")
    registry.add(named("write_file", aliases=["put"]))
    for alias in ("write_file", "put"):
        with pytest.raises(DuplicateTool) as caught:
            registry.add(named("read_file", version="2.0.0", aliases=[alias]))
        assert caught.value.name == alias
    assert list(states(registry)) == ["1.0.0"]


# --- whose a name is -----------------------------------------------------------------------------


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
def test_a_name_belongs_to_its_first_provider(version: str) -> None:
    registry = ToolRegistry()
    first = registry.add(brought_by("config"))
    with pytest.raises(DuplicateTool) as caught:
        registry.add(brought_by("other", version=version, description="Another."))
    assert "provider 'config'" in caught.value.message
    assert registry.all() == [first]


def test_the_same_definition_of_another_provider_is_a_conflict_too() -> None:
    registry = ToolRegistry()
    first = registry.add(brought_by("config"))
    with pytest.raises(DuplicateTool):
        registry.add(brought_by("other"))
    assert registry.versions("read_file") == (first,)


def test_an_import_cannot_stand_beside_a_definition_by_hand() -> None:
    registry = holding("1.0.0")
    with pytest.raises(DuplicateTool):
        registry.add(admit(made_elsewhere(version="2.0.0")))
    assert list(states(registry)) == ["1.0.0"]


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"description": "Another."}, id="overwritten"),
        pytest.param({"version": "9.0.0"}, id="another version"),
        pytest.param({"source": {"kind": "mcp", "origin": "files"}}, id="import"),
    ],
)
def test_a_built_in_tool_cannot_be_overwritten(fields: dict[str, object]) -> None:
    registry = ToolRegistry()
    first = registry.add(brought_by("core"))
    with pytest.raises(DuplicateTool) as caught:
        registry.add(brought_by("code", **fields))
    assert caught.value.hint == "built-in tools are protected; choose another name"
    assert registry.versions("read_file") == (first,)


@pytest.mark.spec("REG-2")
def test_a_built_in_tool_cannot_be_removed_but_can_be_disabled() -> None:
    registry = ToolRegistry()
    first = registry.add(brought_by("core"))
    for name in ("read_file", "read_file@1.0.0"):
        with pytest.raises(BuiltInProtected) as caught:
            registry.remove(name)
        assert (caught.value.code, caught.value.name) == (Code.BUILT_IN_PROTECTED, "read_file")
    assert registry.all() == [first]
    registry.disable("read_file")
    assert states(registry) == {"1.0.0": OFF}


def test_the_definition_of_a_built_in_tool_given_again_by_somebody_else_is_a_conflict() -> None:
    registry = ToolRegistry()
    first = registry.add(brought_by("core"))
    with pytest.raises(DuplicateTool):
        registry.add(brought_by("code"))
    assert registry.versions("read_file") == (first,)
    assert first.is_built_in


# --- removal -------------------------------------------------------------------------------------


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize("name", ["read_file", "FILE_READ"])
def test_removing_a_tool_removes_its_versions_and_aliases(name: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    other = registry.add(named("write_file"))
    registry.remove(name)
    assert (registry.versions("read_file"), registry.find("file_read"), answering(registry)) == (
        (),
        None,
        None,
    )
    assert (registry.all(), len(registry)) == ([other], 1)
    taken = registry.add(named("file_read"))
    assert registry.find("file_read") is taken


@pytest.mark.spec("REG-1")
def test_removing_an_unknown_tool_says_which_was_meant() -> None:
    with pytest.raises(UnknownTool) as caught:
        holding("1.0.0").remove("reed_file")
    assert caught.value.hint == "did you mean 'read_file'?"


@pytest.mark.parametrize(
    ("name", "version"), [("read_file", ""), ("FILE_READ", ""), ("FILE_READ@1.0.0", "1.0.0")]
)
def test_a_removal_is_told_with_the_name_of_the_tool(name: str, version: str) -> None:
    bus, told = Bus(), list[Event]()
    registry = holding("1.0.0", registry=ToolRegistry(bus=bus))
    bus.subscribe(told.append)
    registry.remove(name)
    assert told == [ToolUnregistered(tool_name="read_file", version=version)]


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize(("version", "left"), [("2.0.0", "1.0.0"), ("1.0.0", "2.0.0")])
def test_removing_one_version_leaves_the_others_and_their_names(version: str, left: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    registry.remove(f"FILE_READ@{version}")
    assert (states(registry), answering(registry)) == ({left: ON}, left)
    assert registry.get("file_read").version == left


def test_removing_the_only_version_removes_the_tool() -> None:
    registry = holding("1.0.0")
    registry.remove("read_file@1.0.0")
    assert (len(registry), registry.find("file_read"), dict(registry.snapshot.names)) == (0, None, {})


def test_removing_a_version_gives_up_the_aliases_that_it_alone_had() -> None:
    registry = ToolRegistry()
    registry.add(named("read_file", version="1.0.0", aliases=["old"]))
    newest = registry.add(named("read_file", version="2.0.0", aliases=["new"]))
    registry.remove("read_file@1.0.0")
    assert (registry.find("old"), registry.find("new")) == (None, newest)


def test_removing_an_unknown_version_removes_nothing() -> None:
    registry = holding("1.0.0")
    with pytest.raises(UnknownTool):
        registry.remove("read_file@2.0.0")
    assert states(registry) == {"1.0.0": ON}


# --- switches ------------------------------------------------------------------------------------


@pytest.mark.spec("REG-1", "REG-2")
@pytest.mark.parametrize("name", ["read_file", "FILE_READ"])
def test_disabling_a_name_disables_all_of_its_versions(name: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    registry.disable(name)
    assert states(registry) == {"2.0.0": OFF, "1.0.0": OFF}
    assert answering(registry) is None
    assert registry.get("read_file").version == "2.0.0"
    holding("3.0.0", registry=registry)
    assert states(registry)["3.0.0"] == OFF


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize(("version", "answers"), [("2.0.0", "1.0.0"), ("1.0.0", "2.0.0")])
def test_disabling_one_version_leaves_the_newest_of_the_others(version: str, answers: str) -> None:
    registry = holding("1.0.0", "2.0.0")
    registry.disable(f"FILE_READ@{version}")
    assert states(registry)[version] == OFF
    assert states(registry)[answers] == ON
    assert (answering(registry), registry.get("read_file").version) == (answers, answers)
    assert registry.get(f"read_file@{version}").state is ToolState.DISABLED


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ([("disable", "read_file"), ("enable", "read_file")], {"2.0.0": ON, "1.0.0": ON}),
        ([("disable", "read_file@2.0.0"), ("enable", "read_file")], {"2.0.0": ON, "1.0.0": ON}),
        ([("disable", "read_file@2.0.0"), ("enable", "file_read@2.0.0")], {"2.0.0": ON, "1.0.0": ON}),
        ([("disable", "read_file"), ("enable", "read_file@1.0.0")], {"2.0.0": OFF, "1.0.0": ON}),
        ([("enable", "read_file@1.0.0"), ("disable", "read_file")], {"2.0.0": OFF, "1.0.0": OFF}),
        ([("disable", "read_file"), ("disable", "read_file")], {"2.0.0": OFF, "1.0.0": OFF}),
        ([("enable", "read_file")], {"2.0.0": ON, "1.0.0": ON}),
    ],
)
def test_the_last_switch_counts(
    switches: list[tuple[str, str]], expected: dict[str, tuple[ToolState, str]]
) -> None:
    registry = holding("1.0.0", "2.0.0")
    for verb, name in switches:
        getattr(registry, verb)(name)
    assert states(registry) == expected


@pytest.mark.parametrize("verb", ["enable", "disable"])
@pytest.mark.parametrize("name", ["write_file", "read_file@9.9.9"])
def test_what_is_not_there_cannot_be_switched(verb: str, name: str) -> None:
    registry = holding("1.0.0")
    with pytest.raises(UnknownTool):
        getattr(registry, verb)(name)
    assert states(registry) == {"1.0.0": ON}


def test_a_switch_is_told_with_the_name_of_the_tool() -> None:
    bus, told = Bus(), list[Event]()
    registry = holding("1.0.0", registry=ToolRegistry(bus=bus))
    bus.subscribe(told.append)
    registry.disable("FILE_READ")
    registry.enable("file_read@1.0.0")
    assert told == [
        ToolSwitched(tool_name="read_file", version="", state="disabled"),
        ToolSwitched(tool_name="read_file", version="1.0.0", state="enabled"),
    ]


@pytest.mark.spec("REG-1")
def test_switches_that_are_remembered_outlive_the_registry() -> None:
    state = MemoryState()
    first = holding("1.0.0", "2.0.0", registry=ToolRegistry(state=state))
    first.disable("FILE_READ", remember=True)
    first.enable("read_file@1.0.0", remember=True)
    again = holding("1.0.0", "2.0.0", registry=ToolRegistry(state=state))
    assert states(again) == {"2.0.0": OFF, "1.0.0": ON}
    again.enable("read_file", remember=True)
    assert states(holding("1.0.0", "2.0.0", registry=ToolRegistry(state=state))) == {
        "2.0.0": ON,
        "1.0.0": ON,
    }


def test_a_switch_that_is_not_remembered_ends_with_the_registry() -> None:
    state = MemoryState()
    holding("1.0.0", registry=ToolRegistry(state=state)).disable("read_file")
    assert states(holding("1.0.0", registry=ToolRegistry(state=state))) == {"1.0.0": ON}


def test_remembering_one_switch_does_not_remember_another() -> None:
    state = MemoryState()
    first = holding("1.0.0", registry=ToolRegistry(state=state))
    first.add(named("write_file"))
    first.disable("read_file")
    first.disable("write_file", remember=True)
    assert dict(state.switches()) == {"write_file": False}


def test_two_registries_on_one_state_keep_the_switches_of_each_other() -> None:
    state = MemoryState()
    one, two = ToolRegistry(state=state), ToolRegistry(state=state)
    for registry in (one, two):
        registry.add_all([named("read_file"), named("write_file")])
    one.disable("read_file", remember=True)
    two.disable("write_file", remember=True)
    assert dict(state.switches()) == {"read_file": False, "write_file": False}


def test_a_switch_that_cannot_be_remembered_is_not_thrown(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    registry = holding("1.0.0", registry=ToolRegistry(state=KeepState(tmp_path / "state")))
    with pytest.raises(StateUnusable):
        registry.disable("read_file", remember=True)
    assert (states(registry), answering(registry)) == ({"1.0.0": ON}, "1.0.0")


# --- what configuration and definition say -------------------------------------------------------

CLOSED = (ToolState.DISABLED, "config.yml:3:5")


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        ("read_file", {"2.0.0": CLOSED, "1.0.0": CLOSED}),
        ("READ_FILE", {"2.0.0": CLOSED, "1.0.0": CLOSED}),
        ("read_file@2.0.0", {"2.0.0": CLOSED, "1.0.0": ON}),
        ("Read_File@1.0.0", {"2.0.0": ON, "1.0.0": CLOSED}),
        ("file_read", {"2.0.0": CLOSED, "1.0.0": CLOSED}),
        ("File_Read@1.0.0", {"2.0.0": ON, "1.0.0": CLOSED}),
    ],
)
def test_what_the_configuration_closes_does_not_answer(
    closed: str, expected: dict[str, tuple[ToolState, str]]
) -> None:
    registry = holding("1.0.0", "2.0.0", registry=ToolRegistry(closed={closed: "config.yml:3:5"}))
    assert states(registry) == expected


def test_the_configuration_closes_a_version_with_capital_letters() -> None:
    registry = holding("1.0.0-RC1", registry=ToolRegistry(closed={"Read_File@1.0.0-RC1": "config.yml:3:5"}))
    assert states(registry) == {"1.0.0-RC1": CLOSED}
    with pytest.raises(StaysDisabled):
        registry.enable("read_file@1.0.0-RC1")


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize(
    ("closed", "name"),
    [
        ("read_file", "read_file"),
        ("read_file", "FILE_READ"),
        ("read_file", "read_file@1.0.0"),
        ("READ_FILE@1.0.0", "read_file@1.0.0"),
        ("File_Read", "read_file"),
        ("File_Read@1.0.0", "read_file@1.0.0"),
    ],
)
def test_what_the_configuration_closes_cannot_be_enabled_and_says_why(closed: str, name: str) -> None:
    registry = holding("1.0.0", registry=ToolRegistry(closed={closed: "config.yml:3:5"}))
    with pytest.raises(StaysDisabled) as caught:
        registry.enable(name)
    assert (caught.value.code, caught.value.message) == (
        Code.TOOL_DISABLED,
        "tool 'read_file' stays disabled: config.yml:3:5",
    )
    assert states(registry) == {"1.0.0": CLOSED}


@pytest.mark.spec("REG-1")
def test_what_is_closed_and_no_tool_is_called_can_be_asked_for() -> None:
    fits = ("Read_File", "read_file@2.0.0", "File_Read", "FILE_READ@1.0.0")
    fits_not = ("reed_file", "read_file@3.0.0", "file_read@1")
    registry = ToolRegistry(closed={name: f"config.yml of {name}" for name in (*fits, *fits_not)})
    holding("1.0.0", "2.0.0", registry=registry)
    assert registry.unmatched() == {name: f"config.yml of {name}" for name in fits_not}


def test_enabling_a_name_does_not_open_the_version_that_the_configuration_closes() -> None:
    registry = holding("1.0.0", "2.0.0", registry=ToolRegistry(closed={"read_file@2.0.0": "config.yml:3:5"}))
    registry.enable("read_file")
    assert (states(registry), answering(registry)) == ({"2.0.0": CLOSED, "1.0.0": ON}, "1.0.0")


def test_a_remembered_switch_does_not_open_what_the_configuration_closes() -> None:
    state = MemoryState()
    holding("1.0.0", registry=ToolRegistry(state=state)).enable("read_file", remember=True)
    closed = ToolRegistry(state=state, closed={"read_file": "config.yml:3:5"})
    assert states(holding("1.0.0", registry=closed)) == {"1.0.0": CLOSED}


@pytest.mark.spec("REG-1")
def test_a_definition_that_says_so_starts_disabled_and_can_be_switched_on() -> None:
    registry = ToolRegistry()
    registry.add(named("read_file", enabled=False))
    assert states(registry) == {"1.0.0": (ToolState.DISABLED, SAID_BY_DEFINITION)}
    assert answering(registry) is None
    registry.enable("read_file")
    assert (states(registry), answering(registry)) == ({"1.0.0": ON}, "1.0.0")
    registry.disable("read_file")
    assert states(registry) == {"1.0.0": OFF}


def test_a_newer_version_that_starts_disabled_leaves_the_older_one_to_answer() -> None:
    registry = holding("1.0.0")
    registry.add(named("read_file", version="2.0.0", enabled=False))
    assert answering(registry) == "1.0.0"


def test_a_disabled_tool_registered_again_is_no_change_and_stays_disabled() -> None:
    registry = holding("1.0.0")
    registry.disable("read_file")
    held = registry.versions("read_file")
    holding("1.0.0", registry=registry)
    assert registry.versions("read_file") == held
    assert states(registry) == {"1.0.0": OFF}


# --- what is asked for ---------------------------------------------------------------------------


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["cat", "put", "fetch", "note"]),
        ({"enabled": True}, ["cat", "put", "note"]),
        ({"enabled": False}, ["fetch"]),
        ({"category": Category.FILE_SYSTEM}, ["cat", "put"]),
        ({"category": Category.DATABASE}, []),
        ({"capability": "fs.read"}, ["cat", "put"]),
        ({"capability": "fs.read:./docs"}, ["cat"]),
        ({"capability": "fs.read:./elsewhere"}, []),
        ({"capability": "fs"}, []),
        ({"enabled": True, "capability": "net.read"}, []),
        ({"enabled": False, "category": Category.NETWORK, "capability": "net.read"}, ["fetch"]),
    ],
)
def test_tools_are_listed_by_state_category_and_capability(
    asked: dict[str, object], names: list[str]
) -> None:
    registry = ToolRegistry()
    registry.add_all(
        [
            named("fetch", category="network", capabilities=["net.read:example.com"]),
            named("put", category="file_system", capabilities=["fs.read:./src", "fs.write:./src"]),
            named("note"),
            named("cat", category="file_system", capabilities=["fs.read:./docs"]),
        ]
    )
    registry.disable("fetch")
    assert [held.name for held in registry.all(**asked)] == names  # type: ignore[arg-type]  # a table


@pytest.mark.spec("REG-1")
def test_contains_and_count_know_names_aliases_and_versions() -> None:
    registry = holding("1.0.0", "2.0.0")
    registry.add(named("write_file"))
    registry.disable("write_file")
    assert len(registry) == 2
    asked = ["read_file", "FILE_READ", "read_file@1.0.0", "write_file", "read_file@3.0.0", "reed_file", "", 5]
    assert [name for name in asked if name in registry] == asked[:4]


PROJECTS = AdmissionContext(provider="project", is_custom=True)


@pytest.mark.spec("REG-5")
@pytest.mark.parametrize("provider", ["code", "config", "core", "shop"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"aliases": ["greeting"]}, id="the same definition"),
        pytest.param({"description": "Another."}, id="the name"),
        pytest.param({"version": "2.0.0"}, id="another version"),
        pytest.param({"name": "other", "aliases": ["greet"]}, id="the name as an alias"),
        pytest.param({"name": "greeting"}, id="the alias as a name"),
    ],
)
def test_a_projects_tool_gives_way_to_everybody(provider: str, fields: dict[str, object]) -> None:
    registry = ToolRegistry(tier=Tier.WRITER_PRO)
    registry.add(admit(made(name="greet", aliases=["greeting"]), circumstances=PROJECTS))
    mine = registry.add(brought_by(provider, **{"name": "greet", **fields}))
    assert (registry.all(), mine.provider, registry.snapshot.custom_count) == ([mine], provider, 0)
    assert {name: registry.find(name) for name in (mine.name, *mine.definition.aliases)} == dict.fromkeys(
        (mine.name, *mine.definition.aliases), mine
    )


@pytest.mark.spec("REG-5")
@pytest.mark.parametrize("provider", ["code", "config", "core", "shop"])
@pytest.mark.parametrize(
    "fields", [{"name": "greet"}, {"name": "greeting"}, {"name": "other", "aliases": ["greet"]}], ids=str
)
def test_a_projects_tool_takes_no_name(provider: str, fields: dict[str, object]) -> None:
    registry = ToolRegistry()
    mine = registry.add(brought_by(provider, name="greet", aliases=["greeting"]))
    with pytest.raises(DuplicateTool):
        registry.add(admit(made(version="9.0.0", **fields), circumstances=PROJECTS))
    assert registry.versions("greet") == (mine,)


@pytest.mark.spec("REG-5")
@pytest.mark.parametrize("alias", ["", "greeting"])
def test_what_nobody_accepted_keeps_no_name_from_the_hosts_own_tools(alias: str) -> None:
    registry = ToolRegistry()
    held_back = AdmissionContext(
        provider="project", is_custom=True, held_back="config.yml is not accepted yet"
    )
    registry.add(admit(made(name="greet", aliases=["greeting"]), circumstances=held_back))
    mine = registry.add(named(alias or "greet"))
    assert registry.all() == [mine]
    assert registry.find(alias or "greet") is mine
