"""Agent-tool classes: the contract, what breaks it, and how their services reach them."""

import itertools
import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from toolkeep import Category, Code, InvokeResult, ToolContext, ToolDefinition, open_keep
from toolkeep.authoring.agent_tool_class import (
    AgentTool,
    contract_problems,
    definition_of_class,
    is_agent_tool_class,
    make_agent_tool,
)
from toolkeep.errors import ContractBroken, DefinitionInvalid, DuplicateTool

pytestmark = pytest.mark.spec("DEF-10")

SCHEMA: dict[str, Any] = {
    "type": "function",
    "name": "greet",
    "description": "Greet a person.",
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Who."}},
        "required": ["name"],
    },
}


async def execute(self: object, arguments_json: str, context: ToolContext) -> InvokeResult:
    return InvokeResult.ok(arguments_json)


def tool_class(*without: str, **members: Any) -> type:
    """A class that keeps the contract but for the members that are changed or left out."""
    good: dict[str, Any] = {
        "TOOL_NAME": "greet",
        "TOOL_USAGE_METADATA": "Use it to greet.",
        "is_tool_fully_executed_on_server": True,
        "name": property(lambda self: self.TOOL_NAME),
        "get_schema": staticmethod(lambda: SCHEMA),
        "execute": execute,
    }
    kept = {key: value for key, value in {**good, **members}.items() if key not in without}
    return type("Greet", (), kept)


def schema_with(**changes: Any) -> "staticmethod[[], Any]":
    return staticmethod(lambda: {**SCHEMA, **changes})


def parameters_with(**changes: Any) -> "staticmethod[[], Any]":
    return schema_with(parameters={**SCHEMA["parameters"], **changes})


def breaches(cls: type) -> list[tuple[str, str]]:
    problems = list(contract_problems(cls))
    assert all(problem.code is Code.CONTRACT_BROKEN and problem.fix for problem in problems)
    return [(problem.field, problem.message) for problem in problems]


def test_a_class_that_keeps_the_contract_has_no_problems() -> None:
    assert breaches(tool_class()) == []


def test_a_class_declares_its_definition() -> None:
    assert definition_of_class(tool_class()) == ToolDefinition.from_dict(
        {
            "name": "greet",
            "description": "Greet a person.",
            "parameters": SCHEMA["parameters"],
            "usage_metadata": "Use it to greet.",
        }
    )


def test_a_class_that_is_not_executed_on_the_server_is_client_executed() -> None:
    assert definition_of_class(tool_class()).client_executed is False
    half = tool_class(is_tool_fully_executed_on_server=False)
    assert definition_of_class(half).client_executed is True


def test_a_class_adds_fields_and_the_caller_has_the_last_word() -> None:
    cls = tool_class(TOOL_FIELDS={"category": "communication", "version": "1.1.0"})
    definition = definition_of_class(cls, version="2.0.0")
    assert (definition.category, definition.version) == (Category.COMMUNICATION, "2.0.0")


def test_a_name_may_be_a_class_constant_too() -> None:
    assert breaches(tool_class(name="greet")) == []


def raise_error(*_: object) -> Any:
    raise RuntimeError("secret detail")


async def execute_otherwise(self: object, arguments: str) -> InvokeResult:
    return InvokeResult.ok(arguments)


def execute_at_once(self: object, arguments_json: str, context: ToolContext) -> InvokeResult:
    return InvokeResult.ok(arguments_json)


def changing_schema() -> "staticmethod[[], Any]":
    count = itertools.count()
    return staticmethod(lambda: {**SCHEMA, "description": f"Greet person {next(count)}."})


@pytest.mark.parametrize(
    ("cls", "problem"),
    [
        (
            tool_class(TOOL_NAME=property(lambda _: "greet"), name="greet"),
            ("TOOL_NAME", "is a property or method"),
        ),
        (tool_class(TOOL_USAGE_METADATA=" "), ("TOOL_USAGE_METADATA", "is missing or blank")),
        (tool_class("TOOL_USAGE_METADATA"), ("TOOL_USAGE_METADATA", "is missing or blank")),
        (tool_class(TOOL_USAGE_METADATA=5), ("TOOL_USAGE_METADATA", "is missing or blank")),
        (
            tool_class(TOOL_USAGE_METADATA=property(lambda _: "x")),
            ("TOOL_USAGE_METADATA", "is a property or method"),
        ),
        (
            tool_class(TOOL_USAGE_METADATA=staticmethod(lambda: "x")),
            ("TOOL_USAGE_METADATA", "is a property or method"),
        ),
        (tool_class("name"), ("name", "is missing")),
        (tool_class(name=property(lambda _: "other")), ("name", "does not return TOOL_NAME")),
        (tool_class(name=lambda _: "greet"), ("name", "does not return TOOL_NAME")),
        (tool_class(name=property(raise_error)), ("name", "cannot be read without the constructor")),
        (
            tool_class("is_tool_fully_executed_on_server"),
            ("is_tool_fully_executed_on_server", "is not True or False"),
        ),
        (
            tool_class(is_tool_fully_executed_on_server=property(lambda _: True)),
            ("is_tool_fully_executed_on_server", "is not True or False"),
        ),
        (
            tool_class(is_tool_fully_executed_on_server=1),
            ("is_tool_fully_executed_on_server", "is not True or False"),
        ),
        (tool_class("execute"), ("execute", "is missing or not async")),
        (tool_class(execute=execute_at_once), ("execute", "is missing or not async")),
        (tool_class(execute=execute_otherwise), ("execute", "takes other parameters")),
        (tool_class("get_schema"), ("get_schema", "is missing or not static")),
        (tool_class(get_schema=lambda _: SCHEMA), ("get_schema", "is missing or not static")),
        (tool_class(get_schema=classmethod(lambda _: SCHEMA)), ("get_schema", "is missing or not static")),
        (tool_class(get_schema=staticmethod(raise_error)), ("get_schema", "raised RuntimeError")),
        (tool_class(get_schema=changing_schema()), ("get_schema", "differs between two calls")),
        (
            tool_class(get_schema=schema_with(description="Made 2024-05-01T10:00:00Z.")),
            ("get_schema", "holds a timestamp or a random id"),
        ),
        (
            tool_class(get_schema=schema_with(description="123e4567-e89b-12d3-a456-426614174000")),
            ("get_schema", "holds a timestamp or a random id"),
        ),
        (tool_class(get_schema=schema_with(extra={1, 2})), ("get_schema/extra", "set is not JSON")),
        (tool_class(get_schema=staticmethod(list)), ("get_schema", "does not return an object")),
        (tool_class(get_schema=schema_with(type="tool")), ("get_schema/type", "is not 'function'")),
        (tool_class(get_schema=schema_with(name="welcome")), ("get_schema/name", "is not TOOL_NAME")),
        (
            tool_class(get_schema=schema_with(description="")),
            ("get_schema/description", "is missing or blank"),
        ),
        (
            tool_class(get_schema=schema_with(parameters=None)),
            ("get_schema/parameters", "is not an object schema"),
        ),
        (
            tool_class(get_schema=parameters_with(type="array")),
            ("get_schema/parameters", "is not an object schema"),
        ),
        (
            tool_class(get_schema=parameters_with(required=None)),
            ("get_schema/parameters/required", "is missing"),
        ),
        (
            tool_class(get_schema=parameters_with(required="name")),
            ("get_schema/parameters/required", "is missing"),
        ),
        (
            tool_class(get_schema=parameters_with(properties=None)),
            ("get_schema/parameters/properties", "is missing"),
        ),
        (
            tool_class(get_schema=parameters_with(properties={"name": {"description": "Who."}})),
            ("get_schema/parameters/properties/name", "has no plain type"),
        ),
        (
            tool_class(get_schema=parameters_with(properties={"name": {"type": ["string", "null"]}})),
            ("get_schema/parameters/properties/name", "has no plain type"),
        ),
        (
            tool_class(get_schema=parameters_with(properties={"name": "string"})),
            ("get_schema/parameters/properties/name", "has no plain type"),
        ),
        (
            tool_class(get_schema=parameters_with(properties={"name": {"type": "string"}})),
            ("get_schema/parameters/properties/name", "has no description"),
        ),
        (
            tool_class(
                get_schema=parameters_with(properties={"name": {"type": "string", "description": " "}})
            ),
            ("get_schema/parameters/properties/name", "has no description"),
        ),
    ],
)
def test_each_breach_of_the_contract_is_found(cls: type, problem: tuple[str, str]) -> None:
    assert problem in breaches(cls)
    with pytest.raises(ContractBroken) as caught:
        definition_of_class(cls)
    assert (caught.value.code, caught.value.name) == (Code.CONTRACT_BROKEN, "Greet")
    assert problem in [(found.field, found.message) for found in caught.value.problems]


@pytest.mark.parametrize("name", ["greet me", "greet-me", "Greet"])
def test_a_name_that_registration_refuses_breaks_the_contract(name: str) -> None:
    cls = tool_class(TOOL_NAME=name, get_schema=schema_with(name=name))
    assert [field for field, _ in breaches(cls)] == ["TOOL_NAME"]


@pytest.mark.spec("DEF-12")
def test_every_breach_is_raised_at_once() -> None:
    class Greet:
        TOOL_NAME = ""
        execute = execute_at_once

        @staticmethod
        def get_schema() -> dict[str, Any]:
            return {"parameters": {"type": "object", "properties": {"who": {}}}}

    with pytest.raises(ContractBroken) as caught:
        open_keep().register(Greet)
    assert [problem.field for problem in caught.value.problems] == [
        "TOOL_NAME",
        "TOOL_USAGE_METADATA",
        "name",
        "is_tool_fully_executed_on_server",
        "execute",
        "get_schema/type",
        "get_schema/name",
        "get_schema/description",
        "get_schema/parameters/required",
        "get_schema/parameters/properties/who",
    ]


def test_the_contract_is_checked_without_making_an_instance() -> None:
    cls = tool_class(__init__=raise_error)
    assert breaches(cls) == []


def test_a_field_that_cannot_be_read_is_told_as_for_any_definition() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        definition_of_class(tool_class(TOOL_FIELDS={"danger": "deadly"}))
    assert [problem.field for problem in caught.value.problems] == ["danger"]


@pytest.mark.parametrize(
    ("value", "looks_like_one"),
    [
        (tool_class(), True),
        (tool_class("get_schema"), True),
        (tool_class("TOOL_NAME"), True),
        (tool_class("TOOL_NAME", "get_schema"), False),
        (tool_class()(), False),
        (len, False),
    ],
)
def test_a_class_is_recognised_right_or_wrong(value: object, looks_like_one: bool) -> None:
    assert is_agent_tool_class(value) is looks_like_one


class Database:
    pass


class SpecialDatabase(Database):
    pass


class Clock(Protocol):
    def now(self) -> float: ...


def with_constructor(constructor: Callable[..., None]) -> type:
    return tool_class(__init__=constructor)


def needs_logger_and_database(self: Any, logger: logging.Logger, database: Database, limit: int = 3) -> None:
    self.given = (logger, database, limit)


def test_logger_and_services_are_injected_by_annotated_type() -> None:
    database = SpecialDatabase()
    made: Any = make_agent_tool(with_constructor(needs_logger_and_database), ["other", database])
    assert made.given == (logging.getLogger("toolkeep.tools.Greet"), database, 3)
    assert isinstance(made, AgentTool)


def test_a_logger_that_is_handed_in_is_used() -> None:
    logger = logging.getLogger("mine")
    made: Any = make_agent_tool(with_constructor(needs_logger_and_database), [Database(), logger])
    assert made.given[0] is logger


def test_services_reach_a_class_through_open_keep() -> None:
    database = Database()
    keep = open_keep(services=[database])
    keep.register(with_constructor(needs_logger_and_database))
    assert keep.get("greet").runner.given[1] is database


def test_a_class_without_a_constructor_needs_no_services() -> None:
    assert isinstance(make_agent_tool(tool_class()), AgentTool)


def takes_anything(self: Any, *args: object, **more: object) -> None:
    self.given = (args, more)


def test_variable_arguments_of_a_constructor_are_left_empty() -> None:
    made: Any = make_agent_tool(with_constructor(takes_anything), ["service"])
    assert made.given == ((), {})


def needs_two(self: Any, database: Database, clock: Clock, plain) -> None:  # type: ignore[no-untyped-def]
    pass


def needs_missing(self: Any, thing: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


def needs_missing_of_a_module(self: Any, thing: "logging.Missing") -> None:  # type: ignore[name-defined]
    pass


@pytest.mark.parametrize(
    ("constructor", "fields"),
    [
        (needs_two, ["__init__.database", "__init__.clock", "__init__.plain"]),
        (needs_missing, ["__init__"]),
        (needs_missing_of_a_module, ["__init__"]),
    ],
)
def test_every_service_that_is_missing_is_told(constructor: Callable[..., None], fields: list[str]) -> None:
    with pytest.raises(ContractBroken) as caught:
        make_agent_tool(with_constructor(constructor), ["no database"])
    assert [problem.field for problem in caught.value.problems] == fields


TYPED_ONLY = "async def execute(self, arguments_json: str, context: ForCheckers) -> AlsoForCheckers: ..."


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated late since Python 3.14")
def test_names_that_are_imported_for_type_checkers_alone_may_stand_in_execute() -> None:
    members: dict[str, Any] = {}
    exec(TYPED_ONLY, members)  # noqa: S102 -- what 3.14 can read, and those before cannot
    assert list(contract_problems(tool_class(execute=members["execute"]))) == []


def test_the_same_class_twice_is_no_error() -> None:
    keep = open_keep(built_in=False)
    cls = tool_class()
    keep.register(cls, cls)
    keep.register(cls)
    assert [registered.name for registered in keep.tools()] == ["greet"]


def test_the_name_of_a_class_on_another_class_is_an_error() -> None:
    keep = open_keep()
    keep.register(tool_class())
    first = keep.get("greet").runner
    with pytest.raises(DuplicateTool) as caught:
        keep.register(tool_class())
    assert (caught.value.code, caught.value.name) == (Code.DUPLICATE_TOOL, "greet")
    assert keep.get("greet").runner is first


def test_an_instance_is_registered_as_it_is() -> None:
    keep = open_keep()
    instance = tool_class()()
    keep.register(instance)
    assert keep.get("greet").runner is instance


def test_results_are_ok_with_json_or_failed_with_a_message() -> None:
    assert InvokeResult.ok("{}") == InvokeResult(successful=True, result_json="{}", error_message="")
    assert InvokeResult.failed("no") == InvokeResult(successful=False, result_json="", error_message="no")
