"""Looking for what is wrong with a call has one allowance, which all parts of the call share."""

from typing import Any

import pytest

from toolkeep import Keep, ToolDefinition
from toolkeep.limits import FIRST_ERROR_WORK, REPORT_WORK
from toolkeep.registry.admit import admit
from toolkeep.validation.faults import _Search, weigh
from toolkeep.validation.report import _Report

pytestmark = pytest.mark.spec("VAL-7")


@pytest.mark.parametrize(
    ("place", "most"),
    [
        ({"type": "integer"}, FIRST_ERROR_WORK),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, REPORT_WORK),
    ],
    ids=["values", "errors of alternatives"],
)
def test_first_errors_of_many_parts_are_asked_for_until_the_allowance_is_used_up(
    place: dict[str, Any], most: int
) -> None:
    """The engine copies the value into each: a thousand parts that are each affordable took seconds."""
    parameters = {"type": "object", "properties": {"a": {"type": "array", "items": place}}}
    schema = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters})).arguments
    value = ["x"] * 100
    search = _Search(schema, 50)
    afforded = sum(search._affords_first(value) for _ in range(2_000))
    assert afforded == most // (schema.cost.errors * weigh(value, most))
    assert not _Search(schema, 50)._affords_first(["x"] * most)


def test_of_very_many_unknown_names_no_more_are_looked_at_than_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added: list[object] = []
    add = _Report._add

    def counted(report: _Report, place: Any, *given: Any) -> None:
        added.append(place)
        add(report, place, *given)

    monkeypatch.setattr(_Report, "_add", counted)
    keep = Keep()
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    check = keep.try_validate_arguments("t", {f"n{number}": 1 for number in range(1_000)})
    assert (len(check.errors), len(added)) == (50, 50)
