"""Definitions as forms, both ways, with nothing lost."""

from typing import Any

import pytest

from toolkeep import ToolDefinition
from toolkeep.server.web.definition_form import Draft, draft_of, read_draft, slot_of
from toolkeep.server.web.web_request import Form

DEFINITION: dict[str, Any] = {
    "name": "send_parcel",
    "description": "Send a parcel.",
    "version": "1.2.0",
    "category": "communication",
    "danger": "medium",
    "parameters": {
        "type": "object",
        "properties": {
            "weight": {"type": "integer", "description": "In grams.", "minimum": 1},
            "mode": {"type": "string", "description": "How.", "enum": ["fast", "slow"], "default": "fast"},
            "words": {"type": "array", "description": "Some.", "items": {"type": "string"}},
            "commas": {"type": "string", "description": "Odd.", "enum": ["a, b", "c"]},
        },
        "required": ["weight"],
        "additionalProperties": False,
    },
    "output_schema": {"type": "string"},
    "constraints": {"max_execution_time": 30, "max_output_size": 2048, "required_isolation": "strict"},
    "requires_confirmation": True,
    "client_executed": True,
    "side_effects": ["NetRead"],
    "capabilities": ["net.read:example.org"],
    "aliases": ["parcel"],
    "metadata": {"owner": "ada"},
}


def form_of(draft: Draft) -> Form:
    """What a browser sends when somebody saves a draft as it is."""
    pairs = [(k, str(getattr(draft, k))) for k in ("name", "description", "version", "category", "danger")]
    pairs += [
        (k, str(getattr(draft, k)))
        for k in ("output_schema", "timeout_s", "output_kb", "isolation", "capabilities")
    ]
    pairs += [("more", draft.more), ("parameters_json", draft.parameters_json)]
    pairs += [("side_effects", one) for one in draft.side_effects]
    pairs += [
        (k, "on") for k in ("requires_confirmation", "client_executed", "is_closed") if getattr(draft, k)
    ]
    for one in draft.parameters:
        texts = ("name", "type", "description", "default", "enum", "more")
        pairs += [(f"p.{one.mark}.{key}", str(getattr(one, key))) for key in texts]
        pairs += [(f"p.{one.mark}.required", "on")] if one.required else []
    return Form(pairs)


@pytest.mark.parametrize("closed", [{"additionalProperties": False}, {}])
@pytest.mark.spec("WEB-2")
def test_a_definition_survives_the_form(closed: dict[str, bool]) -> None:
    properties = {key: DEFINITION["parameters"][key] for key in ("type", "properties", "required")}
    written = ToolDefinition.from_dict({**DEFINITION, "parameters": {**properties, **closed}})
    read = read_draft(form_of(draft_of(written.to_dict())))
    assert read.errors == {}
    assert ToolDefinition.from_dict(read.data) == written


def test_a_schema_that_is_more_than_a_list_is_kept_as_json() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1}
    written = ToolDefinition.from_dict({**DEFINITION, "parameters": schema})
    draft = draft_of(written.to_dict())
    assert draft.parameters == ()
    assert ToolDefinition.from_dict(read_draft(form_of(draft)).data) == written


def test_what_cannot_be_read_is_said_at_its_field() -> None:
    fields = [
        ("output_schema", "{"),
        ("timeout_s", "soon"),
        ("more", "[]"),
        ("p.k0.name", "a"),
        ("p.k0.more", "nonsense"),
    ]
    errors = read_draft(Form(fields)).errors
    assert {slot: len(said) for slot, said in errors.items()} == {
        "output_schema": 1, "timeout_s": 1, "more": 1, "p-k0": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "slot"),
    [
        ("name", "name"),
        ("parameters/0", "p-k0"),
        ("parameters/properties/mode/default", "p-k1"),
        ("parameters/properties/gone", "parameters"),
        ("parameters", "parameters"),
        ("constraints/max_execution_time", "timeout_s"),
        ("output_schema/type", "output_schema"),
        ("metadata", "more"),
    ],
)
def test_a_problem_is_shown_where_it_is_mended(field: str, slot: str) -> None:
    assert slot_of(field, draft_of(DEFINITION)) == slot
