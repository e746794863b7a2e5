"""Providers at start-up: in order, each on its own; what is broken is skipped, named and counted."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from tests.definitions.examples import made, made_elsewhere, read, with_properties
from tests.hostile.unguarded import outcome
from toolkeep import Code, tool
from toolkeep.errors import (
    DefinitionInvalid,
    DuplicateTool,
    FileUnreadable,
    ProviderFailed,
    SchemaRefused,
)
from toolkeep.events import (
    CompilationSlow,
    ConstraintViolated,
    Event,
    ProviderSkipped,
    RegistrationFailed,
    SettingUnmatched,
    StartUpBegan,
    StartUpEnded,
    ToolDefinitionRejected,
    ToolDefinitionValidatedEvent,
    ToolRegistered,
)
from toolkeep.keep.keep import Keep
from toolkeep.limits import ALIASES
from toolkeep.registry import register
from toolkeep.registry.coerce import Offer
from toolkeep.registry.register import Skipped, StartUp
from toolkeep.tools.agent_hello_world import HelloWorldTool

SECRET = "sk-live-4242"
TLS_DEF = "[TLS-DEF] Tool definition"
BLANK = "say what the tool does, in one or two sentences"


class Provider:
    """Brings what it is given, or what a function gives."""

    def __init__(
        self, *offered: Any, name: str = "shop", priority: int = 10, lists: Callable[[], Any] | None = None
    ) -> None:
        self.name = name
        self.priority = priority
        self._lists = lists or (lambda: offered)

    def get_tool_definitions(self) -> Iterable[Any]:
        return self._lists()


def names(keep: Keep) -> list[str]:
    return [held.name for held in keep.tools()]


def skipped(start_up: StartUp) -> list[tuple[str, str, Code]]:
    return [(one.provider, one.tool, one.error.code) for one in start_up.skipped]


def listening() -> tuple[Keep, list[Event]]:
    keep, told = Keep(), list[Event]()
    keep.subscribe(told.append)
    return keep, told


def kinds_of(told: list[Event]) -> list[type[Event]]:
    """What was told; how slow a busy machine compiles does not count."""
    return [type(event) for event in told if not isinstance(event, CompilationSlow)]


# --- order ---------------------------------------------------------------------------------------


@pytest.mark.spec("REG-4")
def test_providers_are_asked_by_priority_and_the_first_to_bring_a_name_keeps_it() -> None:
    asked: list[str] = []

    def listing(name: str, description: str) -> Callable[[], list[Any]]:
        def lists() -> list[Any]:
            asked.append(name)
            return [made(description=description)]

        return lists

    keep = Keep()
    start_up = keep.load(
        Provider(name="late", priority=20, lists=listing("late", "Late.")),
        Provider(name="first", priority=-5, lists=listing("first", "First.")),
        Provider(name="also_late", priority=20, lists=listing("also_late", "Also.")),
    )
    assert asked == ["first", "late", "also_late"]
    held = keep.get("read_file")
    assert (held.definition.description, held.provider) == ("First.", "first")
    assert skipped(start_up) == [
        ("late", "read_file", Code.DUPLICATE_TOOL),
        ("also_late", "read_file", Code.DUPLICATE_TOOL),
    ]
    assert all(isinstance(one.error, DuplicateTool) for one in start_up.skipped)


@pytest.mark.spec("REG-4")
def test_the_same_definition_of_two_providers_belongs_to_the_first() -> None:
    keep = Keep()
    start_up = keep.load(Provider(made(), name="a"), Provider(made(), name="b"))
    assert skipped(start_up) == [("b", "read_file", Code.DUPLICATE_TOOL)]
    assert keep.get("read_file").provider == "a"


# --- who somebody is ---------------------------------------------------------------------------


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("name", ["core", "Core", "CODE", "config", "project", "Project"])
def test_a_provider_that_calls_itself_like_one_of_ours_is_skipped_unasked(name: str) -> None:
    def lists() -> Any:
        pytest.fail("it was asked")

    keep, told = listening()
    start_up = keep.load(Provider(name=name, lists=lists))
    assert skipped(start_up) == [(name, "", Code.PROVIDER_FAILED)]
    assert start_up.skipped[0].error.message == f"provider {name!r} has a name that is toolkeep's own"
    assert [event.provider for event in told if isinstance(event, ProviderSkipped)] == [name]
    assert keep.start_up.skipped == start_up.skipped


@pytest.mark.spec("REG-4")
def test_a_provider_under_the_name_of_one_that_is_loaded_is_skipped() -> None:
    keep = Keep()
    start_up = keep.load(Provider(made(), name="shop"), Provider(made(name="b"), name="shop"))
    assert (names(keep), skipped(start_up)) == (["read_file"], [("shop", "", Code.PROVIDER_FAILED)])
    later = keep.load(Provider(made(version="9.0.0"), made(name="c"), name="shop"))
    assert (names(keep), skipped(later)) == (["read_file"], [("shop", "", Code.PROVIDER_FAILED)])
    assert keep.get("read_file").version == "1.0.0"
    assert skipped(keep.start_up) == [("shop", "", Code.PROVIDER_FAILED)] * 2


@pytest.mark.spec("REG-2")
def test_only_a_provider_of_our_own_brings_built_in_tools() -> None:
    keep = Keep()
    keep.load(Provider(made(name="b"), name="shop"), own=[Provider(made(), name="core")])
    assert {held.name: (held.provider, held.is_built_in) for held in keep.tools()} == {
        "b": ("shop", False),
        "read_file": ("core", True),
    }


@pytest.mark.spec("REG-5")
def test_the_project_comes_last_whatever_its_priority_and_takes_no_name() -> None:
    keep, told = listening()
    project = Provider(made(description="The project's."), name="project", priority=-100)
    start_up = keep.load(Provider(made(), name="shop", priority=500), own=[project])
    assert told[0] == StartUpBegan(providers=("shop", "project"))
    assert keep.get("read_file").provider == "shop"
    assert skipped(start_up) == [("project", "read_file", Code.DUPLICATE_TOOL)]


@pytest.mark.spec("REG-5")
@pytest.mark.parametrize("held_back", ["", "config.yml is not accepted yet"])
@pytest.mark.parametrize(
    "fields", [{}, {"description": "Mine."}, {"version": "0.1.0"}], ids=["same", "another", "older"]
)
def test_what_the_host_registers_takes_the_place_of_a_projects_tool(
    fields: dict[str, Any], held_back: str
) -> None:
    keep, told = listening()
    offer = Offer(tool=made(), is_custom=True, held_back=held_back)
    keep.load(own=[Provider(offer, name="project")])
    assert keep.get("read_file").provider == "project"
    keep.register(made(**fields))
    (mine,) = keep.versions("read_file")
    assert (mine.provider, mine.is_enabled, mine.definition) == ("code", True, made(**fields))
    assert [event.provider for event in told if isinstance(event, ToolRegistered)] == ["project", "code"]


@pytest.mark.spec("REG-5")
def test_a_provider_that_is_loaded_later_takes_the_place_of_a_projects_tool() -> None:
    keep = Keep()
    keep.load(own=[Provider(made(), name="project")])
    assert keep.load(Provider(made(description="The shop's."), name="shop")).skipped == ()
    assert [held.provider for held in keep.versions("read_file")] == ["shop"]


@pytest.mark.spec("REG-5")
@pytest.mark.parametrize("name", ["config", "shop"])
@pytest.mark.parametrize(
    ("broken", "projects"),
    [
        pytest.param({"name": "deploy"}, {"name": "deploy"}, id="its name"),
        pytest.param({"name": "deploy"}, {"name": "other", "aliases": ["deploy"]}, id="its name as an alias"),
        pytest.param({"name": "other", "aliases": ["deploy"]}, {"name": "deploy"}, id="its alias"),
    ],
)
def test_the_project_cannot_take_the_name_of_a_tool_that_was_skipped(
    name: str, broken: dict[str, Any], projects: dict[str, Any]
) -> None:
    keep = Keep()
    provider, project = Provider(broken, name=name), Provider(made(**projects), name="project")
    others, own = ([provider], [project]) if name == "shop" else ([], [provider, project])
    start_up = keep.load(*others, own=own)
    assert "deploy" not in keep
    assert skipped(start_up) == [
        (name, broken["name"], Code.DEFINITION_INVALID),
        ("project", projects["name"], Code.DUPLICATE_TOOL),
    ]


@pytest.mark.spec("REG-4")
def test_a_provider_may_bring_everything_that_a_host_may_register() -> None:
    @tool
    def greet(name: str) -> str:
        """Greet."""
        return name

    def wave(name: str) -> str:
        """Wave.

        Args:
            name: At whom.
        """
        return name

    keep = Keep()
    start_up = keep.load(
        Provider(made(), {"name": "note", "description": "Note."}, greet, wave, HelloWorldTool)
    )
    assert start_up.skipped == ()
    assert names(keep) == ["agent_hello_world", "greet", "note", "read_file", "wave"]


# --- what is broken ------------------------------------------------------------------------------


def explode() -> Any:
    raise RuntimeError(f"cannot log in with {SECRET}")


def explode_half_way() -> Iterator[Any]:
    yield made(name="half")
    explode()


def refuse() -> Any:
    raise FileUnreadable("tools.json", "is not JSON")


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize(
    ("lists", "message"),
    [
        pytest.param(explode, "provider 'shop' could not list its tools: RuntimeError", id="raises"),
        pytest.param(
            explode_half_way, "provider 'shop' could not list its tools: RuntimeError", id="raises half-way"
        ),
        pytest.param(lambda: None, "provider 'shop' could not list its tools: TypeError", id="no list"),
        pytest.param(refuse, "tools.json: is not JSON", id="says what is wrong"),
    ],
)
def test_a_provider_that_fails_is_skipped_and_named_while_the_rest_load(
    lists: Callable[[], Any], message: str
) -> None:
    keep, told = listening()
    start_up = keep.load(Provider(lists=lists, priority=1), Provider(made(), name="good"))
    (one,) = start_up.skipped
    assert (one.provider, one.tool, one.error.message) == ("shop", "", message)
    assert (names(keep), start_up.tool_count) == (["read_file"], 1)
    assert [event for event in told if isinstance(event, ProviderSkipped)] == [
        ProviderSkipped(provider="shop", error_code=one.error.code.value, error_message=message)
    ]


@pytest.mark.spec("REG-4")
def test_a_provider_that_could_not_be_made_is_skipped_before_the_others_are_asked() -> None:
    keep, told = listening()
    failure = ProviderFailed("gone", "is not installed")
    start_up = keep.load(Provider(made()), failed=[failure])
    assert start_up.skipped == (Skipped("gone", "", failure),)
    kinds = [type(event) for event in told]
    assert kinds.index(ProviderSkipped) < kinds.index(ToolRegistered)


class Unnameable:
    """Breaks whoever asks what it is called."""

    @property
    def name(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize(
    ("given", "name", "code"),
    [
        pytest.param(5, "int", Code.PROVIDER_FAILED, id="a number"),
        pytest.param(None, "NoneType", Code.PROVIDER_FAILED, id="nothing"),
        pytest.param("read", "str", Code.PROVIDER_FAILED, id="text"),
        pytest.param(object(), "object", Code.PROVIDER_FAILED, id="some object"),
        pytest.param(Unnameable(), "Unnameable", Code.PROVIDER_FAILED, id="an object that breaks"),
        pytest.param({}, "?", Code.DEFINITION_INVALID, id="empty data"),
        pytest.param({"name": "x"}, "x", Code.DEFINITION_INVALID, id="data without a description"),
        pytest.param(
            {"name": "\u202ex", "description": "X."},
            "\\u202ex",
            Code.DEFINITION_INVALID,
            id="a deceptive name",
        ),
        pytest.param(
            made(name="x", parameters=with_properties({"a": {}})), "x", Code.SCHEMA_REFUSED, id="a schema"
        ),
        pytest.param(
            Offer(tool=FileUnreadable("x.yml", "is gone"), name="x"), "x", Code.FILE_UNREADABLE, id="an error"
        ),
        pytest.param(Offer(tool={"name": "y"}, name="x"), "x", Code.DEFINITION_INVALID, id="an offer"),
        pytest.param(Offer(tool=5), "int", Code.PROVIDER_FAILED, id="an offer of nothing"),  # type: ignore[arg-type]
    ],
)
def test_a_broken_tool_is_skipped_named_and_counted_while_the_rest_load(
    given: Any, name: str, code: Code
) -> None:
    keep, told = listening()
    start_up = keep.load(Provider(made(name="before"), given, made(name="after")))
    assert names(keep) == ["after", "before"]
    assert skipped(start_up) == [("shop", name, code)]
    (failed,) = (event for event in told if isinstance(event, RegistrationFailed))
    assert failed == RegistrationFailed(
        tool_name=name,
        provider="shop",
        error_code=code.value,
        error_message=start_up.skipped[0].error.message,
    )
    assert told[-1] == StartUpEnded(tool_count=2, skipped_count=1, elapsed_ms=start_up.elapsed_ms)


class Dated(Provider):
    """Breaks whoever asks for its priority."""

    @property
    def priority(self) -> int:
        raise RuntimeError(SECRET)

    @priority.setter
    def priority(self, value: int) -> None:
        """Forget it."""


@pytest.mark.spec("REG-4")
def test_a_provider_that_breaks_when_asked_for_its_priority_is_skipped_too() -> None:
    keep = Keep()
    start_up = keep.load(Dated(name="dated"), Provider(made(), name="good"))
    assert names(keep) == ["read_file"]
    assert skipped(start_up) == [("dated", "", Code.PROVIDER_FAILED)]


LEAVES = [SystemExit(3), asyncio.CancelledError()]


class Leaving:
    """Ends whoever looks at it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class LeavingData(dict[str, Any]):
    """Ends whoever reads it."""

    error: BaseException

    def get(self, key: Any, default: Any = None) -> Any:
        raise self.error


class LeavingWhenMade(HelloWorldTool):
    """Ends whoever makes it."""

    error: BaseException

    def __init__(self) -> None:
        raise self.error


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("error", LEAVES, ids=lambda error: type(error).__name__)
def test_a_provider_that_leaves_is_skipped_like_one_that_fails(error: BaseException) -> None:
    def leave() -> Any:
        raise error

    keep = Keep()
    named: Any = Leaving(error)
    start_up = keep.load(named, Provider(lists=leave, name="lists"), Provider(made(), name="good"))
    assert names(keep) == ["read_file"]
    assert skipped(start_up) == [
        ("Leaving", "", Code.PROVIDER_FAILED),
        ("lists", "", Code.PROVIDER_FAILED),
    ]


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("error", LEAVES, ids=lambda error: type(error).__name__)
def test_a_tool_that_leaves_is_skipped_like_one_that_fails(error: BaseException) -> None:
    LeavingWhenMade.error = LeavingData.error = error
    keep = Keep()
    broken = (LeavingWhenMade, Leaving(error), LeavingData(name="x", description=5))
    start_up = keep.load(Provider(made(), *broken, made(name="b")))
    assert names(keep) == ["b", "read_file"]
    assert skipped(start_up) == [
        ("shop", "agent_hello_world", Code.PROVIDER_FAILED),
        ("shop", "Leaving", Code.PROVIDER_FAILED),
        ("shop", "LeavingData", Code.DEFINITION_INVALID),
    ]


@pytest.mark.spec("REG-4")
def test_of_two_tools_of_one_provider_under_one_name_the_first_is_kept() -> None:
    keep = Keep()
    start_up = keep.load(Provider(made(), made(description="Another."), made(name="b")))
    assert names(keep) == ["b", "read_file"]
    assert keep.get("read_file").definition.description == "Read a file."
    assert skipped(start_up) == [("shop", "read_file", Code.DUPLICATE_TOOL)]


def test_a_problem_in_a_file_is_named_with_its_place() -> None:
    offer = Offer(tool={"name": "x"}, locate=lambda field: f"tools.yml:3:5 /{field}")
    (one,) = Keep().load(Provider(offer)).skipped
    assert isinstance(one.error, DefinitionInvalid)
    assert [problem.field for problem in one.error.problems] == ["tools.yml:3:5 /description description"]


@pytest.mark.spec("REG-4")
def test_the_words_of_a_provider_that_breaks_appear_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    class Broken:
        TOOL_NAME = "broken"

        def __init__(self) -> None:
            raise RuntimeError(SECRET)

    keep, told = listening()
    start_up = keep.load(Provider(lists=explode), Provider(Broken, Unnameable, name="other"))
    assert len(start_up.skipped) == 3
    said = [str(one.error) for one in start_up.skipped] + [str(record.__dict__) for record in caplog.records]
    assert SECRET not in "".join([*said, *map(str, told)])


# --- what the host registers itself --------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (5, TypeError),
        ({"name": "x"}, DefinitionInvalid),
        (made(name="x", parameters=with_properties({"a": {}})), SchemaRefused),
        (made(description="Another."), DuplicateTool),
    ],
)
def test_what_the_host_registers_is_all_or_none_and_raises(given: Any, error: type[Exception]) -> None:
    keep = Keep()
    with pytest.raises(error):
        keep.register(made(), given)
    assert names(keep) == []


@pytest.mark.parametrize("count", [ALIASES, ALIASES + 1, 50_000])
def test_a_tool_has_only_so_many_aliases(count: int) -> None:
    keep = Keep()
    start_up = keep.load(Provider(read(aliases=[f"alias_{number}" for number in range(count)])))
    if count == ALIASES:
        assert (start_up.skipped, f"alias_{ALIASES - 1}" in keep) == ((), True)
        return
    (one,) = start_up.skipped
    assert isinstance(one.error, DefinitionInvalid)
    assert [(problem.field, problem.message) for problem in one.error.problems] == [
        ("aliases", f"has {count} aliases, at most {ALIASES} are allowed")
    ]


def test_a_long_list_of_parameters_is_refused_soon() -> None:
    code = """
from toolkeep import ToolkeepError, open_keep
listed = [{"name": f"p{number}", "type": "string", "description": "One."} for number in range(60_000)]
try:
    open_keep().register({"name": "x", "description": "X.", "parameters": listed})
except ToolkeepError:
    pass
"""
    assert outcome(code, seconds=60) == "ended"


def test_what_the_host_cannot_register_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="toolkeep")
    keep, told = listening()
    keep.register(made())
    with pytest.raises(DuplicateTool) as caught:
        keep.register(made(name="b"), made(description="Another."))
    assert [event for event in told if isinstance(event, RegistrationFailed)] == [
        RegistrationFailed(
            tool_name="b, read_file",
            provider="code",
            error_code=Code.DUPLICATE_TOOL.value,
            error_message=caught.value.message,
        )
    ]
    assert lines(caplog) == [("ERROR", "tool skipped")]


# --- what the configuration names ----------------------------------------------------------------


def test_what_is_disabled_and_no_tool_is_called_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="toolkeep")
    keep, told = Keep(closed={"read_fil": "config.yml:1:2", "read_file": "config.yml:1:9"}), list[Event]()
    keep.subscribe(told.append)
    start_up = keep.load(Provider(made()))
    unmatched = [*start_up.unmatched, *keep.start_up.unmatched]
    assert unmatched == [("read_fil", "config.yml:1:2")] * 2
    assert told[-1] == SettingUnmatched(setting="disabled_tools", name="read_fil", place="config.yml:1:2")
    assert lines(caplog) == [("WARNING", "a setting names no tool")]
    assert keep.load(Provider(made(name="read_fil"), name="later")).unmatched == ()
    assert keep.start_up.unmatched == ()


# --- readiness -----------------------------------------------------------------------------------


@pytest.mark.spec("REG-4")
def test_a_keep_is_not_ready_while_a_provider_is_asked() -> None:
    keep = Keep()
    seen: list[bool] = []

    def look() -> list[Any]:
        seen.append(keep.is_ready)
        return []

    keep.load(Provider(lists=look))
    assert (seen, keep.is_ready, keep.wait_until_ready(0)) == ([False], True, True)


@pytest.mark.spec("REG-4")
def test_another_thread_can_wait_until_all_are_in() -> None:
    keep = Keep()
    is_asked, may_answer = threading.Event(), threading.Event()
    found: list[list[str]] = []

    def slow() -> list[Any]:
        is_asked.set()
        may_answer.wait(10)
        return [made()]

    def wait() -> None:
        assert keep.wait_until_ready(10)
        found.append(names(keep))

    loading = threading.Thread(target=keep.load, args=[Provider(lists=slow)])
    waiting = threading.Thread(target=wait)
    loading.start()
    assert is_asked.wait(10)
    assert keep.wait_until_ready(0) is False
    waiting.start()
    may_answer.set()
    loading.join(10)
    waiting.join(10)
    assert found == [["read_file"]]


def test_a_keep_is_ready_again_even_if_loading_is_interrupted() -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    keep = Keep()
    with pytest.raises(KeyboardInterrupt):
        keep.load(Provider(lists=interrupt))
    assert keep.is_ready


@pytest.mark.spec("REG-4")
def test_what_came_of_start_up_stays_with_the_keep() -> None:
    keep = Keep()
    assert keep.start_up == StartUp(0)
    first = keep.load(Provider(made(), 5))
    assert keep.start_up == first
    assert (first.tool_count, len(first.skipped), first.held_back) == (1, 1, ())
    second = keep.load(Provider(made(name="b"), name="second", lists=explode))
    assert (second.tool_count, len(second.skipped)) == (1, 1)
    assert keep.start_up.skipped == (*first.skipped, *second.skipped)


# --- events and logs -----------------------------------------------------------------------------


@pytest.mark.spec("REG-4")
def test_start_up_is_told_in_order() -> None:
    keep, told = listening()
    start_up = keep.load(
        Provider(made(), {"name": "x"}, name="b", priority=2), Provider(name="a", priority=1)
    )
    assert kinds_of(told) == [
        StartUpBegan,
        ToolDefinitionValidatedEvent,
        ToolDefinitionRejected,
        RegistrationFailed,
        ToolRegistered,
        StartUpEnded,
    ]
    assert told[0] == StartUpBegan(providers=("a", "b"))
    assert told[-1] == StartUpEnded(tool_count=1, skipped_count=1, elapsed_ms=start_up.elapsed_ms)


def test_a_definition_that_passes_is_told_with_what_it_is() -> None:
    keep, told = listening()
    keep.register(made(category="file_system", parameters=with_properties({"path": {"type": "string"}})))
    (validated,) = (event for event in told if isinstance(event, ToolDefinitionValidatedEvent))
    assert validated == ToolDefinitionValidatedEvent(
        tool_name="read_file",
        category="file_system",
        parameter_count=1,
        validation_duration_s=validated.validation_duration_s,
        timestamp=validated.timestamp,
    )
    assert validated.timestamp.tzinfo is not None


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ({"max_execution_time": 601}, [("max_execution_time", 601, 600)]),
        ({"max_output_size": 100 * 1024 * 1024 + 1}, [("max_output_size", 104857601, 104857600)]),
        (
            {"max_execution_time": 1e6, "max_output_size": 10**12},
            [("max_execution_time", 1e6, 600), ("max_output_size", 10**12, 104857600)],
        ),
        ({"max_execution_time": 600, "max_output_size": 100 * 1024 * 1024}, []),
    ],
)
def test_a_definition_that_asks_for_too_much_is_told_with_what_is_allowed(
    constraints: dict[str, Any], expected: list[tuple[str, float, float]]
) -> None:
    keep, told = listening()
    keep.load(Provider(read(constraints=constraints)))
    assert [event for event in told if isinstance(event, ConstraintViolated)] == [
        ConstraintViolated(tool_name="read_file", constraint=constraint, value=value, max_value=most)
        for constraint, value, most in expected
    ]
    assert len(keep) == (0 if expected else 1)


def test_a_definition_refused_for_something_else_is_not_told_to_ask_for_too_much() -> None:
    keep, told = listening()
    most = {"max_execution_time": 600, "max_output_size": 100 * 1024 * 1024}
    keep.load(Provider(read(description="", constraints=most)))
    assert len(keep.start_up.skipped) == 1
    assert not any(isinstance(event, ConstraintViolated) for event in told)


def test_a_registration_is_told_with_its_hash_provider_and_state() -> None:
    keep, told = listening()
    keep.load(Provider(made(enabled=False)))
    (registered,) = (event for event in told if isinstance(event, ToolRegistered))
    assert registered == ToolRegistered(
        tool_name="read_file",
        version="1.0.0",
        definition_hash=made(enabled=False).hash,
        schema_size_bytes=registered.schema_size_bytes,
        provider="shop",
        state="disabled",
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.spec("REG-3", "REG-4")
def test_start_up_is_logged_by_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolkeep")
    Keep().load(
        Provider(lists=explode, name="broken", priority=1),
        Provider(
            made(), {"name": "x"}, read(name="y", description="Y.", constraints={"max_execution_time": 601})
        ),
    )
    assert lines(caplog) == [
        ("INFO", "start-up began"),
        ("ERROR", "provider skipped"),
        ("INFO", f"{TLS_DEF} validated. Name: read_file, Category: general, Parameters: 0"),
        (
            "WARNING",
            f"{TLS_DEF} validation failed. Name: x, Errors: description: is blank ({BLANK})",
        ),
        ("ERROR", "tool skipped"),
        ("WARNING", caplog.records[5].getMessage()),
        (
            "WARNING",
            f"{TLS_DEF} constraint violation. Name: y, Constraint: max_execution_time, Value: 601, Max: 600.0",
        ),
        ("ERROR", "tool skipped"),
        ("INFO", "tool registered"),
        ("INFO", "start-up ended"),
    ]
    assert (
        caplog.records[5]
        .getMessage()
        .startswith(f"{TLS_DEF} validation failed. Name: y, Errors: constraints")
    )
    ended = caplog.records[-1].__dict__
    assert (ended["tool_count"], ended["skipped_count"]) == (1, 3)
    failed = caplog.records[4].__dict__
    assert (failed["tool_name"], failed["provider"], failed["error_code"]) == ("x", "shop", "ACODE-TSR-009")


def test_a_warning_about_an_import_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    Keep().load(Provider(made_elsewhere(description="")))
    (record,) = (record for record in caplog.records if record.getMessage() == "definition warning")
    fields = {name: record.__dict__[name] for name in ("levelname", "tool_name", "field", "warning")}
    assert fields == {
        "levelname": "DEBUG",
        "tool_name": "read_file",
        "field": "description",
        "warning": "is blank",
    }
    assert ("ERROR", "a listener failed") not in lines(caplog)


def test_slow_compilation_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "SLOW_COMPILATION_MS", 0.0)
    caplog.set_level(logging.WARNING, logger="toolkeep")
    keep, told = listening()
    keep.register(made())
    (slow,) = (event for event in told if isinstance(event, CompilationSlow))
    assert slow == CompilationSlow(tool_name="read_file", compilation_ms=keep.get("read_file").compile_ms)
    assert lines(caplog) == [("WARNING", "slow to compile")]
    assert caplog.records[0].__dict__.items() >= msgspec.structs.asdict(slow).items()


def test_ordinary_compilation_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "SLOW_COMPILATION_MS", float("inf"))
    keep, told = listening()
    keep.register(made())
    assert not any(isinstance(event, CompilationSlow) for event in told)


def test_a_listener_that_fails_never_disturbs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="toolkeep.events")

    def fail(event: Event) -> None:
        raise RuntimeError(SECRET)

    keep, told = Keep(), list[Event]()
    keep.subscribe(fail)
    keep.subscribe(told.append)
    start_up = keep.load(Provider(made()))
    assert (start_up.tool_count, start_up.skipped, names(keep)) == (1, (), ["read_file"])
    assert kinds_of(told) == [
        StartUpBegan,
        ToolDefinitionValidatedEvent,
        ToolRegistered,
        StartUpEnded,
    ]
    assert SECRET not in caplog.text
