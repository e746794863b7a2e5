"""Results that cannot have changed: what is kept, under which key, and how much of it."""

import asyncio
from typing import Any

import pytest

from toolkeep import Code, Keep, ToolDefinition, tool
from toolkeep.calls import RecordedCall, Refusal, refuse
from toolkeep.execution import result_cache as cache_module
from toolkeep.execution.result_cache import ResultCache, is_cacheable
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("EXE-5")


def recorded(name: str = "count", n: int = 1, **fields: Any) -> RecordedCall:
    """A call that passed every stage before execution."""

    @tool(name=name, description="Count.", **{"determinism": "Pure", "side_effects": ["None"], **fields})
    async def count(n: int) -> int:
        return n

    reached: list[RecordedCall] = []

    async def reach(call: RecordedCall, *_: Any) -> Refusal:
        reached.append(call)
        return refuse(call.request, Code.TOOL_FAILED, "Not run", "Do without it.")

    keep = Keep()
    keep.register(count)
    vars(keep._pipeline.executor)["execute"] = reach  # only to see what reaches it
    asyncio.run(keep.call(name, {"n": n}))
    return reached[0]


def test_a_body_is_found_again() -> None:
    cache = ResultCache()
    assert cache.get(recorded()) is None
    cache.put(recorded(), b'{"a":1}')
    assert cache.get(recorded()) == b'{"a":1}'


@pytest.mark.parametrize("fields", [{}, {"result_type": "binary"}], ids=["JSON", "bytes"])
def test_an_empty_body_is_a_body(fields: dict[str, Any]) -> None:
    cache, call = ResultCache(), recorded(**fields)
    cache.put(call, b"")
    assert cache.get(call) == b""


@pytest.mark.parametrize(
    "other",
    [recorded(n=2), recorded("another_tool"), recorded(version="1.0.1")],
    ids=["arguments", "tool", "definition"],
)
def test_another_definition_or_other_arguments_find_nothing(other: RecordedCall) -> None:
    cache = ResultCache()
    cache.put(recorded(), b"1")
    assert cache.get(other) is None


def calls(count: int) -> list[RecordedCall]:
    return [recorded(n=number) for number in range(count)]


def found(cache: ResultCache, made: list[RecordedCall]) -> list[bool]:
    return [cache.get(call) is not None for call in made]


def test_the_result_that_was_not_used_for_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CACHED_RESULTS", 3)
    cache, made = ResultCache(), calls(4)
    for call in made[:3]:
        cache.put(call, b"1")
    assert cache.get(made[0])
    cache.put(made[3], b"1")
    assert found(cache, made) == [True, False, True, True]


def test_the_size_of_all_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CACHED_BYTES", 100)
    cache, made = ResultCache(), calls(12)
    for call in made:
        cache.put(call, b"1234567890")
    assert found(cache, made) == [False] * 2 + [True] * 10


def test_putting_a_result_again_does_not_count_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CACHED_BYTES", 100)
    cache, made = ResultCache(), calls(10)
    for call in made * 5:
        cache.put(call, b"1234567890")
    assert found(cache, made) == [True] * 10


def test_a_result_larger_than_a_tenth_of_the_cache_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CACHED_BYTES", 100)
    cache, (call,) = ResultCache(), calls(1)
    cache.put(call, b"12345678901")
    assert cache.get(call) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"determinism": "Deterministic"}, True),
        ({"determinism": "Deterministic", "side_effects": ["DbRead"], "capabilities": ["db.read"]}, False),
        ({"determinism": "Maybe"}, False),
        ({"determinism": "NonDeterministic"}, False),
        ({"determinism": None}, False),
        ({"sensitive": True}, False),
        (
            {"parameters": {"type": "object", "properties": {"k": {"type": "string", "x-secret": True}}}},
            False,
        ),
        (
            {
                "parameters": {
                    "type": "object",
                    "properties": {"ks": {"type": "array", "items": {"type": "string", "x-secret": True}}},
                }
            },
            False,
        ),
    ],
)
def test_only_what_cannot_change_and_holds_no_secret_is_cacheable(
    fields: dict[str, Any], expected: bool
) -> None:
    data = {
        "name": "count",
        "description": "Count.",
        "determinism": "Pure",
        "side_effects": ["None"],
        **fields,
    }
    definition = ToolDefinition.from_dict({key: value for key, value in data.items() if value is not None})
    assert is_cacheable(admit(definition)) is expected
