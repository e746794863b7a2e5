"""The checks that authors run in their own tests find each kind of broken tool."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.execution import wat
from toolkeep import InvokeResult, Keep, Registry, ToolContext, ToolDefinition, WasmTool, open_keep, tool
from toolkeep.definitions.tool_context import Cancelled
from toolkeep.errors import ContractBroken, SchemaBroken
from toolkeep.testing import FakeClock, MemoryRegistry, RecordingContext, check_keep, check_tool

pytestmark = pytest.mark.spec("DEF-11")

Execute = Callable[[str, ToolContext], InvokeResult]


def greeting(arguments_json: str, context: ToolContext) -> InvokeResult:
    try:
        name = json.loads(arguments_json)["name"].strip()
    except (ValueError, KeyError):
        return InvokeResult.failed("Give a name.")
    return (
        InvokeResult.ok(json.dumps({"greeting": f"Hello, {name}!"}))
        if name
        else InvokeResult.failed("Blank.")
    )


def greeter(run: Execute = greeting, **fields: Any) -> type:
    """An agent-tool class that runs this."""

    class Greet:
        TOOL_NAME = "greet"
        TOOL_USAGE_METADATA = "Use it to greet."
        TOOL_FIELDS = fields
        is_tool_fully_executed_on_server = True

        @property
        def name(self) -> str:
            return self.TOOL_NAME

        @staticmethod
        def get_schema() -> dict[str, Any]:
            return {
                "type": "function",
                "name": "greet",
                "description": "Greet a person.",
                "parameters": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "description": "Who."}},
                    "required": ["name"],
                },
            }

        async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
            return run(arguments_json, context)

    return Greet


def complaints(broken: Any, arguments: dict[str, Any], **options: Any) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        check_tool(broken, arguments, **options)
    head, *lines = str(caught.value).split("\n  - ")
    assert head.endswith(" breaks its contract:")
    return lines


def test_a_good_class_passes() -> None:
    check_tool(greeter(determinism="Pure"), {"name": "Ada"}, bad_arguments=[{"name": " "}, {"name": 5}, {}])


def test_a_good_function_passes() -> None:
    @tool(determinism="Pure")
    def halve(number: int) -> int:
        """Halve an even number."""
        if number % 2:
            raise ValueError("is odd")
        return number // 2

    check_tool(halve, {"number": 4}, bad_arguments=[{"number": 3}, {"number": "4"}, {"half": 2}])


def test_a_wasm_module_is_run(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    definition = ToolDefinition.from_dict(
        {"name": "echo", "description": "Give back.", "parameters": parameters, "side_effects": ["None"]}
    )
    check_tool(WasmTool(definition, str(wat.write(tmp_path, wat.ECHO))), {"text": "hello"})
    broken = WasmTool(definition, str(wat.write(tmp_path, wat.command("(unreachable)"))))
    with pytest.raises(AssertionError, match="trapped"):
        check_tool(broken, {"text": "hello"})


def test_a_definition_without_a_runner_is_checked_by_its_schema() -> None:
    definition = ToolDefinition.builder("go").description("Go.").required_int("n", "N.").build()
    check_tool(definition, {"n": 1}, bad_arguments=[{"n": "1"}])
    assert complaints(definition, {"n": 1}, bad_arguments=[{"n": 2}]) == [
        'bad arguments are accepted: {"n": 2}'
    ]


def test_a_call_that_should_work_but_is_refused_is_found() -> None:
    (line,) = complaints(greeter(), {"name": 5})
    assert line.startswith("the call that should work is refused: ")


def test_a_call_that_should_work_but_raises_is_found() -> None:
    @tool
    def fail(name: str) -> None:
        """Fail."""
        raise LookupError("nothing here")

    assert complaints(fail, {"name": "Ada"}) == ["the call that should work raised LookupError: nothing here"]


def test_a_call_that_should_work_but_fails_is_found() -> None:
    (line,) = complaints(greeter(lambda *_: InvokeResult.failed("No luck.")), {"name": "Ada"})
    assert line == "the call that should work failed: No luck."


def test_a_result_that_is_not_json_is_found() -> None:
    @tool
    def give(name: str) -> Any:
        """Give an object."""
        return object()

    assert complaints(give, {"name": "Ada"}) == [
        "the call that should work raised TypeError: object is not JSON"
    ]


def test_a_class_whose_result_is_no_json_text_is_found() -> None:
    (line,) = complaints(greeter(lambda *_: InvokeResult.ok("Hello!")), {"name": "Ada"})
    assert line.startswith("the call that should work raised JSONDecodeError")


def test_a_result_against_the_output_schema_is_found() -> None:
    @tool(output_schema={"type": "integer"})
    def give(name: str) -> str:
        """Give text."""
        return name

    assert complaints(give, {"name": "Ada"}) == ["the result does not satisfy the output schema"]


def test_a_result_that_satisfies_the_output_schema_passes() -> None:
    @tool(output_schema={"type": "string"})
    def give(name: str) -> str:
        """Give text."""
        return name

    check_tool(give, {"name": "Ada"})


@pytest.mark.parametrize("determinism", ["Pure", "Deterministic"])
def test_a_broken_promise_of_determinism_is_found(determinism: str) -> None:
    count = itertools.count()

    @tool(determinism=determinism)
    def tick() -> int:
        """Count."""
        return next(count)

    assert complaints(tick, {}) == ["declared deterministic, but two equal calls gave different results"]


@pytest.mark.parametrize("determinism", ["Maybe", "NonDeterministic", None])
def test_a_tool_that_promises_nothing_may_change_its_mind(determinism: str | None) -> None:
    count = itertools.count()

    @tool(determinism=determinism)
    def tick() -> int:
        """Count."""
        return next(count)

    check_tool(tick, {})


def test_bad_arguments_that_work_are_found() -> None:
    assert complaints(greeter(), {"name": "Ada"}, bad_arguments=[{"name": "Bob"}]) == [
        'bad arguments work: {"name": "Bob"}'
    ]


def raises_on_bob(arguments_json: str, context: ToolContext) -> InvokeResult:
    if "Bob" in arguments_json:
        raise LookupError("no Bob")
    return greeting(arguments_json, context)


def test_a_class_that_raises_on_bad_arguments_is_found() -> None:
    assert complaints(greeter(raises_on_bob), {"name": "Ada"}, bad_arguments=[{"name": "Bob"}]) == [
        'bad arguments raise LookupError: {"name": "Bob"}'
    ]


def silent_on_bob(arguments_json: str, context: ToolContext) -> InvokeResult:
    return InvokeResult.failed(" ") if "Bob" in arguments_json else greeting(arguments_json, context)


def test_a_failure_without_a_message_is_found() -> None:
    assert complaints(greeter(silent_on_bob), {"name": "Ada"}, bad_arguments=[{"name": "Bob"}]) == [
        'bad arguments fail without a message: {"name": "Bob"}'
    ]


def raises_on_unreadable(arguments_json: str, context: ToolContext) -> InvokeResult:
    return InvokeResult.ok(json.dumps(json.loads(arguments_json)))


def test_a_class_that_raises_on_unreadable_arguments_is_found() -> None:
    assert complaints(greeter(raises_on_unreadable), {"name": "Ada"}) == [
        "execute raised JSONDecodeError instead of a failed result"
    ]


def raises_with_broken_context(arguments_json: str, context: ToolContext) -> InvokeResult:
    context.progress(1)
    return greeting(arguments_json, context)


def test_a_class_that_lets_an_unexpected_exception_out_is_found() -> None:
    assert complaints(greeter(raises_with_broken_context), {"name": "Ada"}) == [
        "execute raised RuntimeError instead of a failed result"
    ]


def tells_everything(arguments_json: str, context: ToolContext) -> InvokeResult:
    try:
        return raises_with_broken_context(arguments_json, context)
    except RuntimeError as error:
        return InvokeResult.failed(str(error))


def test_a_class_that_answers_with_the_text_of_an_exception_is_found() -> None:
    assert complaints(greeter(tells_everything), {"name": "Ada"}) == [
        "a failed result holds the text of an unexpected exception"
    ]


def shows_its_stack(arguments_json: str, context: ToolContext) -> InvokeResult:
    if arguments_json == "{":
        return InvokeResult.failed("Traceback (most recent call last): …")
    return greeting(arguments_json, context)


def test_a_class_that_answers_with_a_stack_trace_is_found() -> None:
    assert complaints(greeter(shows_its_stack), {"name": "Ada"}) == ["a failed result holds a stack trace"]


def answers_with_none(arguments_json: str, context: ToolContext) -> Any:
    return None if arguments_json == "{}" else greeting(arguments_json, context)


def test_a_class_that_returns_something_else_is_found() -> None:
    assert complaints(greeter(answers_with_none), {"name": "Ada"}) == [
        "execute did not return an InvokeResult"
    ]


def test_everything_that_is_wrong_comes_at_once() -> None:
    def broken(arguments_json: str, context: ToolContext) -> InvokeResult:
        raise LookupError("always")

    assert complaints(greeter(broken), {"name": "Ada"}, bad_arguments=[{"name": "Bob"}]) == [
        "the call that should work raised LookupError: always",
        'bad arguments raise LookupError: {"name": "Bob"}',
        *["execute raised LookupError instead of a failed result"] * 3,
    ]


def test_a_class_that_breaks_its_contract_does_not_even_register() -> None:
    cls = greeter()
    cls.get_schema = staticmethod(dict)  # type: ignore[attr-defined]
    with pytest.raises(ContractBroken):
        check_tool(cls, {"name": "Ada"})


def unstable(stable_calls: int) -> type:
    """A class whose schema changes after so many calls."""
    cls = greeter()
    schema = cls.get_schema()  # type: ignore[attr-defined]
    count = itertools.count()

    def get_schema() -> dict[str, Any]:
        return schema if next(count) < stable_calls else {**schema, "description": f"Greet {next(count)}."}

    cls.get_schema = staticmethod(get_schema)  # type: ignore[attr-defined]
    return cls


def test_a_schema_that_changes_later_is_found() -> None:
    assert complaints(unstable(stable_calls=3), {"name": "Ada"}) == [
        "get_schema: differs between two calls (return the same schema every time)"
    ]


def test_a_schema_against_the_rules_does_not_even_register() -> None:
    properties = {"value": {"type": "integer", "multipleOf": 0}}
    take = {
        "name": "take",
        "description": "Take.",
        "parameters": {"type": "object", "properties": properties},
    }
    with pytest.raises(SchemaBroken):
        check_tool(ToolDefinition.from_dict(take), {"value": 1})


def test_a_tool_that_accepts_strangers_is_found() -> None:
    definition = ToolDefinition.from_dict(
        {
            "name": "loose",
            "description": "Take what comes.",
            "parameters": {"type": "object", "patternProperties": {".": {"type": "integer"}}},
        }
    )
    assert complaints(definition, {}) == ['a wrong call is accepted: {"toolkeep_no_such_property": 1}']


def test_a_tool_that_is_declared_open_may_accept_strangers() -> None:
    check_tool(
        {
            "name": "open",
            "description": "Take what comes.",
            "parameters": {"type": "object", "additionalProperties": True},
        },
        {},
    )


def test_services_and_context_reach_the_tool() -> None:
    class Service:
        pass

    seen: list[object] = []

    def remember(arguments_json: str, context: ToolContext) -> InvokeResult:
        seen.append(context)
        return greeting(arguments_json, context)

    cls = greeter(remember)

    def take_service(self: object, service: Service) -> None:
        seen.append(service)

    cls.__init__ = take_service  # type: ignore[misc]
    service, context = Service(), ToolContext(agent="mine")
    check_tool(cls, {"name": "Ada"}, services=[service], context=context)
    assert seen[:2] == [service, context]


def test_a_good_keep_passes(keep: Keep) -> None:
    check_keep(keep)


def test_every_broken_tool_of_a_keep_is_found() -> None:
    keep = open_keep()
    loose = {"type": "object", "patternProperties": {".": {"type": "integer"}}}
    keep.register(unstable(stable_calls=3))
    keep.register({"name": "loose", "description": "Take what comes.", "parameters": loose})
    with pytest.raises(AssertionError) as caught:
        check_keep(keep)
    assert str(caught.value).split("\n  - ") == [
        "the keep breaks its contract:",
        "greet: get_schema: differs between two calls (return the same schema every time)",
        'loose: a wrong call is accepted: {"toolkeep_no_such_property": 1}',
    ]


def test_a_recording_context_remembers_what_the_tool_told_it() -> None:
    recording = RecordingContext(secrets={"token": "s3cret"}, data={"tenant": "acme"})
    context = recording.context()
    assert context.data == {"tenant": "acme"}
    context.progress(1, 2, "half")
    assert context.secret("token") == "s3cret"
    assert recording.progress == [(1, 2, "half")]
    context.check_cancelled()
    recording.cancelled = True
    with pytest.raises(Cancelled):
        context.check_cancelled()


def test_a_fake_clock_moves_only_when_it_is_moved() -> None:
    clock = FakeClock(now=10.0)
    assert (clock(), clock()) == (10.0, 10.0)
    clock.advance(2.5)
    assert clock() == 12.5


def registry_of_a_test() -> MemoryRegistry:
    return MemoryRegistry({"name": "find_book", "description": "Find a book by its title."})


def registry_of_a_keep() -> Keep:
    keep = open_keep(built_in=False)
    keep.register({"name": "find_book", "description": "Find a book by its title."})
    return keep


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("make", [registry_of_a_test, registry_of_a_keep])
def test_a_keep_and_its_twin_are_registries(make: Callable[[], Registry]) -> None:
    registry = make()
    assert (len(registry), "FIND_BOOK" in registry, "other" in registry) == (1, True, False)
    assert registry.get("find_book") is registry.try_get("find_book")
    assert registry.try_get("other") is None
    assert [tool.name for tool in registry.search("a book")] == ["find_book"]
    assert registry.validate_arguments("find_book", "{}") == {}
    registry.disable("find_book")
    assert registry.tools(enabled=True) == []
    assert not registry.try_validate_arguments("find_book", "{}").success
    registry.enable("find_book")
    assert registry.versions("find_book") == tuple(registry.tools(enabled=True, category="general"))
    registry.unregister("find_book")
    assert len(registry) == 0


@pytest.mark.spec("DOC-1")
def test_the_twin_records_what_it_was_asked_to_check() -> None:
    registry = registry_of_a_test()
    registry.try_validate_arguments("find_book", "{}")
    registry.try_validate_arguments("other", {"a": 1})
    assert registry.checked == [("find_book", "{}"), ("other", {"a": 1})]
