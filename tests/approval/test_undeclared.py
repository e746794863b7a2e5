"""A tool that declares neither danger nor side effects: who is asked about its calls, and what is said."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.mcp_server.talk import Lines
from toolkeep import Keep, ToolDefinition, tool
from toolkeep.frameworks._toolset import Offered
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.server.api.call_routes import RawCall, call_tool

LINE = '@tool(effects="none")'


def _empty(approver: Any = None) -> Keep:
    return Keep(approver=approver)


def _keep() -> tuple[Keep, list[str]]:
    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write a note."""
        ran.append(text)
        return text

    keep = _empty()
    keep.register(note)
    return keep, ran


async def _answered(keep: Keep) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "note", "arguments": '{"text": "a"}'}}
    response = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    (message,) = await keep.answer("openai", response)
    return str(message["content"])


async def _in_a_batch(keep: Keep) -> str:
    (result,) = await keep.call_all([{"name": "note", "arguments": {"text": "a"}, "forwarded": False}])
    return result.text


async def _by_a_framework(keep: Keep) -> str:
    return (await Offered(keep).call("note", {"text": "a"})).text


async def _by_the_operator(keep: Keep) -> str:
    return (await keep.call("note", {"text": "a"}, agent="operator")).text


async def _forwarded(keep: Keep) -> str:
    return (await keep.call("note", {"text": "a"}, forwarded=True)).text


async def _over_http(keep: Keep) -> str:
    """Of a token that acts as `local`: whoever holds it is another program."""
    caller: Any = SimpleNamespace(agent="local")
    return (await call_tool(keep, caller, "note", RawCall(arguments=msgspec.Raw(b'{"text": "a"}')))).text


async def _over_mcp(keep: Keep) -> str:
    """As `toolkeep mcp --agent local` serves it."""
    server = McpServer(keep, agent="local")
    said = await Lines(server).modern("tools/call", {"name": "note", "arguments": {"text": "a"}})
    server.close()
    return str(said["result"]["content"][0]["text"])


WAYS = [_answered, _in_a_batch, _by_a_framework, _by_the_operator, _forwarded, _over_http, _over_mcp]


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize("way", WAYS)
def test_an_undeclared_tool_is_medium_in_every_way_but_a_direct_call_and_the_refusal_has_the_line(
    way: Callable[[Keep], Coroutine[Any, Any, str]],
) -> None:
    keep, ran = _keep()
    said = asyncio.run(way(keep))
    assert not ran
    assert LINE in said


@pytest.mark.spec("DEF-8")
def test_a_direct_call_as_local_runs_it_and_warns_once_for_each_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keep, ran = _keep()
    for text in ("a", "b"):
        assert asyncio.run(keep.call("note", {"text": text})).ok
    assert ran == ["a", "b"]
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert record.name == "toolkeep.approval"
    assert "note" in record.getMessage()
    assert LINE in record.getMessage()


def test_the_warning_reaches_a_script_that_set_up_no_logging(capsys: pytest.CaptureFixture[str]) -> None:
    keep, _ = _keep()
    root = logging.getLogger()
    before, root.handlers[:] = list(root.handlers), []
    try:
        assert keep.call_sync("note", {"text": "a"}).ok
    finally:
        root.handlers[:] = before
        keep.close()
    assert capsys.readouterr().err.count(LINE) == 1


@pytest.mark.spec("DEF-8")
def test_a_question_about_it_says_the_line() -> None:
    asked: list[tuple[str, ...]] = []
    keep = _empty(lambda question: asked.append(question.why))
    keep.register(tool(lambda: 1, name="one", description="One."))
    keep.call_sync("one", {}, forwarded=True)
    ((why,),) = asked
    assert LINE in why


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize("effects", ["none", "reads", ["FsRead"]])
def test_stated_effects_without_a_write_effect_make_a_tool_safe(effects: Any) -> None:
    keep = _empty()
    capabilities = ["fs.read:."] if isinstance(effects, list) else []
    keep.register(tool(lambda: 1, name="one", description="One.", effects=effects, capabilities=capabilities))
    assert keep.call_sync("one", {}, forwarded=True).ok


@pytest.mark.spec("DEF-8")
def test_capabilities_of_read_kinds_alone_imply_read_effects() -> None:
    reading = ToolDefinition(name="a", description="A.", capabilities=_held("fs.read:.", "net.read"))
    writing = reading.replace(capabilities=_held("fs.read:.", "fs.write:."))
    assert [effect.value for effect in reading.effects or ()] == ["NetRead", "FsRead"]
    assert reading.danger_level.value == "safe"
    assert writing.effects is None
    assert writing.danger_level.value == "medium"


def test_a_parameter_that_touches_by_writing_keeps_read_capabilities_from_implying_anything() -> None:
    path = {"type": "string", "x-touches": {"kind": "fs.write", "form": "path"}}
    data = {"name": "a", "description": "A.", "capabilities": ["fs.read:."]}
    parameters = {"type": "object", "properties": {"path": path}}
    assert ToolDefinition.from_dict({**data, "parameters": parameters}).is_undeclared


def test_an_import_with_read_capabilities_is_not_taken_for_one_that_only_reads() -> None:
    theirs = ToolDefinition.from_elsewhere({"name": "a", "annotations": {"readOnlyHint": True}})
    held = theirs.replace(capabilities=_held("fs.read:."))
    assert held.effects is None
    assert held.danger_level.value == "medium"


def _held(*texts: str) -> Any:
    return ToolDefinition.from_dict({"name": "a", "description": "A.", "capabilities": texts}).capabilities


def test_effects_that_are_stated_survive_json() -> None:
    stated = ToolDefinition.from_dict({"name": "a", "description": "A.", "effects": "reads"})
    assert stated.to_dict()["side_effects"] == ["Reads"]
    assert ToolDefinition.from_dict(json.loads(json.dumps(stated.to_dict()))) == stated
