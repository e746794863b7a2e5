"""The reference for agent-tool classes."""

import asyncio
import json
import logging
from typing import Any

import pytest

from toolkeep import Danger, InvokeResult, SideEffect, ToolContext, open_keep
from toolkeep.authoring.agent_tool_class import contract_problems
from toolkeep.testing import check_tool
from toolkeep.tools.agent_hello_world import HelloWorldTool

pytestmark = pytest.mark.spec("DEF-10")

CONTEXT = ToolContext(conversation_id="c-1", session_id="s-1")


def run(arguments_json: str, context: ToolContext = CONTEXT) -> InvokeResult:
    return asyncio.run(HelloWorldTool(logging.getLogger("test")).execute(arguments_json, context))


def test_it_keeps_the_contract() -> None:
    assert list(contract_problems(HelloWorldTool)) == []
    check_tool(HelloWorldTool, {"name": "Ada"}, bad_arguments=[{"name": " "}, {"name": 5}])


def test_it_ships_with_every_keep() -> None:
    definition = open_keep().get("agent_hello_world").definition
    assert definition.danger is Danger.SAFE
    assert definition.side_effects == (SideEffect.NONE,)
    assert list(definition.properties) == ["name"]


def test_it_greets_with_the_ids_of_the_conversation() -> None:
    result = run('{"name": "  Ada Łovelace "}')
    assert result.successful
    assert json.loads(result.result_json) == {
        "Message": "Hello, Ada Łovelace! Nice to meet you.",
        "ConversationId": "c-1",
        "SessionId": "s-1",
    }


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_a_blank_name_is_a_failed_result(name: str) -> None:
    assert run(json.dumps({"name": name})) == InvokeResult.failed(
        "'name' is blank; give the name of the person to greet."
    )


@pytest.mark.parametrize(
    "arguments", ["", "{", "[]", "null", '"name"', "{}", '{"name": null}', '{"name": 5}', '{"name": ["Ada"]}']
)
def test_bad_input_is_a_failed_result_with_a_clear_message(arguments: str) -> None:
    assert run(arguments) == InvokeResult.failed("Arguments must be a JSON object with a text 'name'.")


class BrokenContext:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("internal detail")


def test_an_unexpected_exception_is_logged_in_full_and_answered_generically(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = run('{"name": "Ada"}', BrokenContext())  # type: ignore[arg-type]
    assert result == InvokeResult.failed("The greeting could not be made.")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "internal detail"
