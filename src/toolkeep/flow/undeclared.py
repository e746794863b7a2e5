"""What nobody declared about the flow of a tool, and which therefore counts as the worst (FLO-1, FLO-2).

In: a plan and its definition. Out: the arguments of a call that acts which have no role, and the places of a
result which hold text without a label. What cannot matter is left out: truth values name nothing, and values
that the definition lists are its own words.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolkeep.definitions.result_labels import ANY_STEP
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Role
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.result_reader import Node
from toolkeep.json_values.pointers import escaped, referred

PLACES: Final = 100
"""Places of one result that are named."""
_NAMELESS: Final = frozenset({"boolean", "null"})
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")


def arguments_without_role(plan: Plan, definition: ToolDefinition) -> list[str]:
    """The parameters of a call that acts whose values may be anything, for want of a role."""
    if not plan.acts:
        return []
    return [
        name
        for name, schema in definition.properties.items()
        if plan.role(name) is Role.RECORD and name not in definition.roles and _may_name(schema)
    ]


def places_without_label(plan: Plan, definition: ToolDefinition) -> list[str]:
    """The places of a result, as JSON Pointers with `*`, whose text opens a session for want of a label."""
    labels, schema = plan.reader.root, definition.output_schema
    if schema is None:
        return [] if labels.label is not None else [""]
    found: dict[str, None] = {}
    for place in _places(schema, schema, labels, "", frozenset()):
        found[place] = None
        if len(found) >= PLACES:
            break
    return list(found)


def _may_name(schema: Any) -> bool:
    """Whether a value can name anything that the definition does not."""
    return not isinstance(schema, Mapping) or not (_is_listed(schema) or _types(schema) <= _NAMELESS)


def _is_listed(schema: Mapping[str, Any]) -> bool:
    return "enum" in schema or "const" in schema


def _types(schema: Mapping[str, Any]) -> frozenset[Any]:
    """The types that a schema states; any, if it states none."""
    stated = schema.get("type")
    if stated is None:
        return frozenset({"any"})
    return frozenset(stated if isinstance(stated, list) else [stated])


def _places(
    root: Mapping[str, Any], schema: Any, node: Node, place: str, above: frozenset[str]
) -> Iterator[str]:
    """The places of text below one place that has no label, nor has any place above it."""
    if schema is False or node.label is not None:
        return
    if not isinstance(schema, Mapping):
        yield place
        return
    if _is_listed(schema) or schema.get("$ref") in above:
        return
    above = above | {schema["$ref"]} if isinstance(schema.get("$ref"), str) else above
    inside = list(_inside(root, schema))
    for step, below in inside:
        under = node if step is None else node.step_to(step)
        at = place if step is None else f"{place}/{escaped(step)}"
        yield from _places(root, below, under, at, above)
    has_keys = schema.get("additionalProperties") not in (None, False)
    if has_keys or "string" in _types(schema) or (not inside and "any" in _types(schema)):
        yield place


def _inside(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """The schemas of what is in a value, each with its step; without a step, another one of the value."""
    properties = schema.get("properties")
    yield from properties.items() if isinstance(properties, Mapping) else ()
    for word in ("items", "additionalProperties"):
        if schema.get(word) not in (None, False):
            yield ANY_STEP, schema[word]
    for word in ("prefixItems", *_BRANCHES):
        for one in schema.get(word) or ():
            yield None if word in _BRANCHES else ANY_STEP, one
    if "$ref" in schema:
        try:
            yield None, referred(root, schema["$ref"])
        except KeyError:
            yield None, True
