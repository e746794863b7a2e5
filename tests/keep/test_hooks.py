"""Hooks of the host: change arguments before validation and results before the output check (EXE-1)."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from toolkeep import Code, HookCall, Keep, Secret, ToolContext, ToolFailed, ToolResult, tool
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import CallLimits
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("EXE-1")

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(effects="none", determinism="Pure", output_schema={"type": "string", "maxLength": 40})
def shout(text: str, times: int = 1) -> str:
    """Shout.

    Args:
        text: What.
        times: How often.
    """
    ran.append(text)
    return text.upper() * times


def made(*arguments: Any, tools: tuple[Any, ...] = (shout,), **options: Any) -> ToolResult:
    with Keep(**options) as keep:
        keep.register(*tools)
        return keep.call_sync(tools[0].definition.name, *arguments)


def strip(call: HookCall) -> dict[str, Any]:
    return {**call.arguments, "text": call.arguments["text"].strip()}


async def soften(call: HookCall, value: Any) -> Any:
    await asyncio.sleep(0)
    return f"{call.arguments['times']}: {value.lower()}"


def test_hooks_run_in_order_around_the_call() -> None:
    def add(call: HookCall) -> dict[str, Any]:
        return {**call.arguments, "text": call.arguments["text"] + "!"}

    result = made({"text": " hi "}, before_call=[strip, add], after_call=[soften])
    assert (ran, result.value) == (["hi!"], "1: hi!")


def test_hooks_read_json_text_and_see_the_names_of_the_call() -> None:
    seen: list[HookCall] = []

    def look(call: HookCall) -> dict[str, Any]:
        seen.append(call)
        return call.arguments

    with Keep(before_call=[look]) as keep:
        keep.register(shout)
        assert keep.call_sync("shout", '{"text": "a"}', session="s", data={"tenant": "b"}).ok
    (call,) = seen
    assert (call.tool, call.agent, call.session, call.arguments) == ("shout", "local", "s", {"text": "a"})
    assert call.data == {"tenant": "b"}
    assert "'a'" not in repr(call)


def test_what_a_hook_returns_is_validated_and_its_result_checked() -> None:
    unknown = made({"text": "a"}, before_call=[lambda call: {**call.arguments, "x": 1}])
    too_long = made({"text": "a"}, after_call=[lambda call, value: "x" * 41])
    assert (unknown.code, too_long.code) == (Code.CONSTRAINT, Code.OUTPUT_INVALID)


def _raise(*_: Any) -> Any:
    raise ValueError("hunter2")


def _exit(*_: Any) -> Any:
    raise SystemExit


async def _never(*_: Any) -> Any:
    await asyncio.sleep(5)
    return {"text": "too late"}


async def _refuse(*_: Any) -> Any:
    raise ToolFailed("not on Sundays")


def _forget(*_: Any) -> None:
    """Returns no arguments."""


@pytest.mark.parametrize("hook", [_raise, _exit, _never, _refuse, _forget])
def test_a_before_hook_that_fails_refuses_the_call(hook: Any) -> None:
    result = made({"text": "a"}, before_call=[hook], call_limits=CallLimits(hook_s=0.05))
    assert (result.code, ran, "hunter2" in result.text) == (Code.HOOK_REFUSED, [], False)
    assert ("not on Sundays" in result.text) is (hook is _refuse)


@pytest.mark.parametrize("hook", [_raise, _exit, _never, _refuse, _forget])
def test_an_after_hook_that_fails_withholds_the_result(hook: Any) -> None:
    result = made({"text": "a"}, after_call=[hook], call_limits=CallLimits(hook_s=0.05))
    assert (result.code, ran, result.value) == (Code.RESULT_WITHHELD, ["a"], None)
    assert (result.isolation, "hunter2" in result.text) == ("none", False)


def test_a_blocking_hook_passes_its_deadline_too() -> None:
    release = threading.Event()

    def block(call: HookCall) -> dict[str, Any]:
        release.wait(5)
        return call.arguments

    try:
        limits = CallLimits(hook_s=0.05)
        assert made({"text": "a"}, before_call=[block], call_limits=limits).code is Code.HOOK_REFUSED
    finally:
        release.set()
    assert ran == []


@pytest.mark.parametrize("arguments", ["{", "[]", '{"text": 1, "text": 2}', {"text": object()}, b"\xff"])
def test_what_is_no_json_object_reaches_no_hook_and_is_refused(arguments: Any) -> None:
    assert not made(arguments, before_call=[_raise]).ok
    assert made(arguments, before_call=[_raise]).code is not Code.HOOK_REFUSED


def test_the_record_holds_both_hashes_and_every_stage_sees_the_second() -> None:
    with Keep(before_call=[strip], after_call=[soften], record=MemoryRecord()) as keep:
        keep.register(shout)
        result = keep.call_sync("shout", {"text": " hi "})
        invoked, *_, completed = keep.record.records_of(result.call_id)
        with pytest.raises(Exception, match="a hook changed this call"):
            asyncio.run(keep.replay(result.call_id))
    assert invoked["argument_hash_before"] == canonical_hash({"text": " hi "})
    assert invoked["argument_hash"] == result.argument_hash == canonical_hash({"text": "hi", "times": 1})
    assert completed["result_hash_before"] == canonical_hash("HI")
    assert completed["result_hash"] == canonical_hash("1: hi")


def test_without_hooks_the_record_holds_none() -> None:
    with Keep(record=MemoryRecord()) as keep:
        keep.register(shout)
        records = keep.record.records_of(keep.call_sync("shout", {"text": "a"}).call_id)
    assert not any(name.endswith("_before") for one in records for name in one)


def test_a_secret_argument_is_in_no_plain_hash() -> None:
    @tool(effects="none")
    def pay(pin: Annotated[str, Secret()]) -> None:
        """Pay."""

    with Keep(before_call=[lambda call: call.arguments], record=MemoryRecord()) as keep:
        keep.register(pay)
        invoked, *_ = keep.record.records_of(keep.call_sync("pay", {"pin": "1234"}).call_id)
    assert invoked["argument_hash_before"] != canonical_hash({"pin": "1234"})
    assert len(invoked["argument_hash_before"]) == 64


def test_no_hook_sees_the_tools_own_secret() -> None:
    @tool(effects="none")
    def leak(context: ToolContext) -> dict[str, Any]:
        """Leak."""
        return {"key": f"Bearer {context.secret('key')}"}

    seen: list[Any] = []

    def look(call: HookCall, value: Any) -> Any:
        seen.extend((call, value))
        return value

    secrets = {"leak": {"key": "k3y"}}
    result = made({}, tools=(leak,), after_call=[look], tool_secrets=secrets)
    assert result.ok
    assert "k3y" not in str([getattr(one, "arguments", one) for one in seen])


def test_an_approver_is_asked_about_what_the_hooks_made() -> None:
    asked: list[str] = []

    def agree(question: Any) -> bool:
        asked.append(question.arguments)
        return True

    dangerous = tool(danger="medium", effects="none", name="shout")(shout.function)
    assert made({"text": " hi "}, tools=(dangerous,), before_call=[strip], approver=agree).ok
    assert asked == ['{"text": "hi", "times": 1}']


def test_a_hooked_result_answers_no_other_call_and_pieces_pass_no_hook() -> None:
    pieces: list[Any] = []

    @tool(effects="none")
    def each() -> Iterator[str]:
        """Each."""
        yield "a"

    with Keep(after_call=[lambda call, value: value + "!"]) as keep:
        keep.register(shout, each)
        twice = [keep.call_sync("shout", {"text": "a"}) for _ in range(2)]
        assert keep.call_sync("each", {}, on_output=pieces.append).value == "a!"
    assert [(one.value, one.is_cached) for one in twice] == [("A!", False)] * 2
    assert pieces == []


def test_a_clients_result_passes_the_hooks_too() -> None:
    data = {"name": "ask", "description": "Ask.", "client_executed": True, "side_effects": ["None"]}
    with Keep(after_call=[lambda call, value: value + "!"]) as keep:
        keep.register(data)
        pending = keep.call_sync("ask", {})
        result = asyncio.run(keep.submit(pending.call_id, "yes"))
    assert result.value == "yes!"


def test_a_call_that_is_cancelled_cancels_its_hook() -> None:
    ended: list[str] = []

    def hook(began: asyncio.Event) -> Callable[[HookCall], Any]:
        async def wait(call: HookCall) -> Any:
            began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("hook")

        return wait

    async def main() -> None:
        began = asyncio.Event()
        async with Keep(before_call=[hook(began)]) as keep:
            keep.register(shout)
            task = asyncio.ensure_future(keep.call("shout", {"text": "a"}))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert (ended, ran) == (["hook"], [])
