"""The tools of one keep: found by name, in order, by many threads at once."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.definitions.examples import made
from toolkeep import Code, ToolDefinition, tool
from toolkeep.calls import RegisteredTool
from toolkeep.errors import DuplicateTool
from toolkeep.registry.admit import admit
from toolkeep.registry.registry import ToolRegistry


def named(name: str, **fields: object) -> RegisteredTool:
    return admit(made(name=name, **fields))


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
    registered = ToolRegistry().add(named("read_file", version="1.2.0"))
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.INFO, "tool registered")
    assert (
        record.__dict__.items()
        >= {
            "tool_name": "read_file",
            "version": "1.2.0",
            "definition_hash": registered.definition.hash,
        }.items()
    )


def test_registering_again_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry()
    registry.add(named("read_file"))
    caplog.set_level(logging.DEBUG, logger="toolkeep.registry")
    caplog.clear()
    registry.add(named("read_file"))
    assert caplog.records == []


def test_a_snapshot_does_not_change_under_its_reader() -> None:
    registry = ToolRegistry()
    registry.add(named("a"))
    snapshot, listed = registry.by_name, registry.all()
    registry.add(named("b"))
    assert list(snapshot) == ["a"]
    assert [registered.name for registered in listed] == ["a"]


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
