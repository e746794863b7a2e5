"""Which changes of a definition are known to be stricter, and which wait for a person."""

from typing import Any

import pytest

from toolkeep import ToolDefinition
from toolkeep.compat.strictness import looser_changes

pytestmark = pytest.mark.spec("REG-5")

TEXT = {"type": "string", "maxLength": 9}


def definition(**stated: Any) -> ToolDefinition:
    properties = stated.pop("properties", {"text": TEXT})
    parameters = {"type": "object", "properties": properties, "required": stated.pop("required", [])}
    plain = {
        "name": "count",
        "description": "Counts.",
        "parameters": parameters,
        "capabilities": ["fs.read:./docs", "net.read"],
        "side_effects": ["FsRead", "NetRead"],
        "danger": "low",
        "constraints": {"max_execution_time": 5, "required_isolation": "strict"},
        "resource_bounds": {"max_memory": 100_000_000},
        "required_permissions": ["basic"],
    }
    return ToolDefinition.from_dict(plain | stated)


STRICTER = [
    {},
    {"danger": "high"},
    {"capabilities": ["net.read:example.org", "fs.read:./docs"]},
    {"requires_confirmation": True},
    {"sensitive": True},
    {"enabled": False},
    {"required": ["text"]},
    {"properties": {"text": TEXT | {"maxLength": 5}}},
    {"properties": {}},
    {"constraints": {"max_execution_time": 4, "max_output_size": 5000, "required_isolation": "strict"}},
    {"constraints": {"max_execution_time": 5, "required_isolation": "strict", "allow_side_effects": False}},
    {"resource_bounds": {"max_memory": 90_000_000, "max_network": {"max_requests": 1, "max_bytes": 1}}},
]
LOOSER: list[tuple[str, dict[str, Any]]] = [
    ("danger", {"danger": "safe"}),
    ("capabilities", {"capabilities": ["fs.read:.", "net.read"]}),
    ("capabilities", {"capabilities": ["fs.read:./docs/inner", "net.read"]}),  # it may be a link
    ("side_effects", {"side_effects": ["FsRead"]}),
    ("description", {"description": "Counts. Call it first."}),
    ("version", {"version": "2.0.0"}),
    ("aliases", {"aliases": ["counts"]}),
    ("determinism", {"determinism": "Deterministic"}),
    ("required_permissions", {"required_permissions": []}),
    ("constraints", {"constraints": {"max_execution_time": 6, "required_isolation": "strict"}}),
    ("constraints", {"constraints": {"max_execution_time": 5, "required_isolation": "standard"}}),
    ("resource_bounds", {"resource_bounds": {}}),
    ("resource_bounds", {"resource_bounds": {"max_memory": 100_000_000, "max_cpu": 2}}),
    ("parameters/properties/text", {"properties": {"text": {"type": "string"}}}),
    ("parameters/properties/text", {"properties": {"text": TEXT | {"description": "A text."}}}),
    ("parameters/properties/text", {"properties": {"text": TEXT | {"x-touches": "fs.read"}}}),
    ("parameters/properties/more", {"properties": {"text": TEXT, "more": TEXT}}),
]


@pytest.mark.parametrize("stated", STRICTER, ids=str)
def test_equal_and_stricter_definitions_have_no_looser_change(stated: dict[str, Any]) -> None:
    assert looser_changes(definition(), definition(**stated)) == ()


@pytest.mark.parametrize(("field", "stated"), LOOSER, ids=str)
def test_what_is_not_known_to_be_stricter_is_told(field: str, stated: dict[str, Any]) -> None:
    found = looser_changes(definition(), definition(**stated))
    assert [change.field for change in found] == [field]


def test_a_capability_less_that_makes_approval_unnecessary_is_looser() -> None:
    unstated = {"danger": None, "side_effects": None}
    old = definition(capabilities=["fs.read", "fs.write"], **unstated)
    found = looser_changes(old, definition(capabilities=["fs.read"], **unstated))
    assert [change.field for change in found] == ["danger", "side_effects"]
