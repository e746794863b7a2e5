"""Answers made to hold up every other call: checked in portions, read by a thread, refused where neither helps."""

import asyncio
import threading
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from toolkeep import ToolDefinition, open_keep, tool
from toolkeep.errors import Code
from toolkeep.limits import LARGE_ANSWER_BYTES, LARGE_OUTPUT
from toolkeep.registry.admit import admit
from toolkeep.results.normalize import _cut, normalize
from toolkeep.results.output_check import check_output, is_large
from toolkeep.validation.compile import CompiledSchema

pytestmark = [pytest.mark.spec("VAL-7"), pytest.mark.spec("VAL-9")]

ROW = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}


def output_schema(schema: dict[str, Any]) -> CompiledSchema:
    definition = {"name": "t", "parameters": {"type": "object"}, "output_schema": schema}
    compiled = admit(ToolDefinition.from_elsewhere(definition)).output
    assert compiled is not None
    return compiled


def rows(count: int, last: Any = 10**9) -> list[dict[str, Any]]:
    return [*({"n": i} for i in range(count - 1)), {"n": last}]


@pytest.mark.parametrize("holds_rows", [False, True])
def test_a_large_table_is_checked_some_rows_at_a_time(
    *, holds_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine cannot be interrupted: everything that it is asked at once has a bound."""
    schema: dict[str, Any] = {"type": "array", "items": ROW, "minItems": 1}
    if holds_rows:
        schema = {"type": "object", "properties": {"rows": schema, "total": {"type": "integer"}}}
    compiled = output_schema(schema)
    asked: list[int] = []
    make = CompiledSchema.compile_part

    def counted(self: CompiledSchema, part: dict[str, Any]) -> Any:
        validator = make(self, part)

        class Counting:
            @staticmethod
            def is_valid(value: Any) -> bool:
                asked.append(len(value))
                return validator.is_valid(value)

        return Counting()

    monkeypatch.setattr(CompiledSchema, "compile_part", counted)
    monkeypatch.setattr(compiled, "is_valid", None)

    def verdict(value: Any) -> bool | None:
        return compiled.is_valid_output({"rows": value, "total": 1} if holds_rows else value, 10**7)

    assert verdict(rows(200_000)) is True
    assert len(asked) > 2
    assert max(asked[1:]) <= 100_000
    assert verdict(rows(200_000, last="x")) is False
    if holds_rows:
        assert compiled.is_valid_output({"rows": rows(200_000), "total": "x"}, 10**7) is False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": ROW, "uniqueItems": True},
        {"anyOf": [{"type": "array", "items": ROW}, {"type": "null"}]},
        {"type": "array", "contains": ROW},
    ],
)
def test_a_large_answer_that_cannot_be_taken_apart_is_not_checked(schema: dict[str, Any]) -> None:
    compiled = output_schema(schema)
    assert compiled.is_valid_output(rows(2_000), 10**5) is True
    assert compiled.is_valid_output(rows(200_000), 10**7) is None


def test_an_object_that_says_more_of_its_table_is_not_taken_apart() -> None:
    """What is left of its schema would look at every row at once."""
    table = {"properties": {"rows": {"type": "array", "items": ROW}}}
    compiled = output_schema({"type": "object", **table, "allOf": [table]})
    assert compiled.is_valid_output({"rows": rows(2_000)}, 10**5) is True
    assert compiled.is_valid_output({"rows": rows(200_000)}, 10**7) is None


def test_an_answer_that_is_too_much_work_in_all_its_portions_is_not_checked() -> None:
    items = {"anyOf": [{"type": "integer", "minimum": number} for number in range(50)]}
    compiled = output_schema({"type": "array", "items": items})
    assert compiled.is_valid_output([1] * 100_000, 10**6) is True
    assert compiled.is_valid_output([1] * 900_000, 10**7) is None


def test_one_item_that_is_too_much_work_is_not_checked() -> None:
    compiled = output_schema({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})
    assert compiled.is_valid_output([[1] * 1_000] * 500, 10**7) is True
    assert compiled.is_valid_output([[1] * 500_000], 10**7) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0.5] * LARGE_OUTPUT, True),
        ([0.5] * (LARGE_OUTPUT - 2), False),
        ({"a": [[1] * 100 for _ in range(200)]}, True),
        ("x" * (100 * LARGE_OUTPUT), True),
        (b"x" * (100 * LARGE_OUTPUT), True),
        ("x" * 100_000, False),
        (None, False),
    ],
)
def test_what_takes_long_to_read_is_known_before_it_is_read(value: Any, *, expected: bool) -> None:
    assert is_large(value) is expected


@pytest.mark.parametrize(("count", "is_aside"), [(100, False), (50_000, True)])
def test_a_large_answer_is_read_and_hashed_beside_the_event_loop(
    count: int, monkeypatch: pytest.MonkeyPatch, *, is_aside: bool
) -> None:
    """Seven megabytes of small fractions stopped every other call for seconds."""
    threads: list[bool] = []

    def noted(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return check_output(*given, **named)

    monkeypatch.setattr("toolkeep.keep.pipeline.check_output", noted)

    @tool(description="Give back fractions")
    def fractions(count: int) -> list[float]:
        return [1.5e-9] * count

    with open_keep() as keep:
        keep.register(fractions)
        result = asyncio.run(keep.call("fractions", {"count": count}))
    assert result.value == [1.5e-9] * count
    assert threads == [is_aside]


@pytest.mark.parametrize(("chars", "is_aside"), [(100, False), (LARGE_ANSWER_BYTES, True)])
def test_a_large_answer_is_cut_and_kept_beside_the_event_loop(
    chars: int, monkeypatch: pytest.MonkeyPatch, *, is_aside: bool
) -> None:
    threads: list[bool] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return normalize(*given)

    monkeypatch.setattr("toolkeep.keep.pipeline.normalize", noted)

    @tool(description="Give back a text")
    def words(chars: int) -> str:
        return "x" * chars

    with open_keep() as keep:
        keep.register(words)
        result = asyncio.run(keep.call("words", {"chars": chars}))
    assert (result.value, threads) == ("x" * chars, [is_aside])


def test_an_answer_that_is_cut_is_kept_once_and_by_whoever_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it waits to be kept as well, a hundred megabytes are held until the disk has them."""

    @tool(description="Give back a text", constraints={"max_output_size": 1024})
    def words(chars: int) -> str:
        return "x" * chars

    with open_keep() as keep:
        keep.register(words)
        waiting: list[int] = []
        monkeypatch.setattr(
            keep.record.bodies, "put_later", lambda _, body, **_options: waiting.append(len(body))
        )
        cut, whole = (asyncio.run(keep.call("words", {"chars": chars})) for chars in (2_000, 500))
        assert (cut.truncation is not None, whole.truncation) == (True, None)
        assert [size for size in waiting if size > 100] == [502]
        assert keep.record.bodies.get(cut.hash) == b'"' + b"x" * 2_000 + b'"'


def test_cutting_a_text_takes_no_copy_of_it() -> None:
    text = "é" * 5_000_000
    call = SimpleNamespace(output_bytes=1_000)
    output: Any = SimpleNamespace(raw=SimpleNamespace(call=call), value=text, body=text.encode())
    bodies: Any = SimpleNamespace(put=lambda _: "0" * 64)
    tracemalloc.start()
    try:
        shown, truncation = _cut(output, bodies)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000
    assert truncation.full_bytes == 10_000_000
    assert shown.startswith("é" * 100)
    assert "of 10000000 bytes shown" in shown


def test_an_answer_that_is_one_long_text_is_not_copied() -> None:
    """A hundred megabytes were held six times over."""
    text = "x" * 2_000_000

    @tool(description="Give back a text")
    def words() -> str:
        return text

    with open_keep() as keep:
        keep.register(words)
        result = asyncio.run(keep.call("words", {}))
    assert result.code is None
    assert result.value is text


def test_a_large_answer_that_does_not_fit_is_refused_with_its_code() -> None:
    @tool(description="Give back rows", output_schema={"type": "array", "items": ROW})
    def table(last: str) -> list[Any]:
        return rows(150_000, last=last or 0)

    with open_keep() as keep:
        keep.register(table)
        codes = [asyncio.run(keep.call("table", {"last": last})).code for last in ("", "x")]
    assert codes == [None, Code.OUTPUT_INVALID]
