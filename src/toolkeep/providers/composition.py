"""Flatten composed schemas: merge `allOf`, and make a composed root plain.

In: a schema whose references are local pointers. Raises `CannotMerge` where merging would change its meaning;
a root is always made plain, and what that weakens is noted.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from toolkeep.json_values.frozen import objects_in
from toolkeep.json_values.pointers import look_up
from toolkeep.providers.schema_losses import Losses

MOST_STEPS: Final = 64
"""References followed from one place; a longer chain is a cycle."""

MOST_MERGES: Final = 256
"""Subschemas of one `allOf` over all levels: nesting multiplies them."""

_ANNOTATIONS: Final = frozenset(("title", "description", "default", "examples", "example", "$comment"))
_ROOT_UNIONS: Final = ("anyOf", "oneOf")


class CannotMerge(ValueError):
    """The subschemas of an `allOf` cannot be merged into one."""


def resolved(schema: Any, root: dict[str, Any]) -> Any:
    """The target of a chain of references, with annotations beside them."""
    beside: dict[str, Any] = {}
    for _ in range(MOST_STEPS):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        others = {key: value for key, value in schema.items() if key not in ("$ref", "$defs", "definitions")}
        target = look_up(root, schema["$ref"][1:])
        if any(key not in _ANNOTATIONS for key in others):
            return {"allOf": [target], **others, **beside}
        beside = {**others, **beside}
        schema = target
    else:
        raise CannotMerge("its references go round in a circle")
    return {**schema, **beside} if beside and isinstance(schema, dict) else schema


def merged(
    schema: dict[str, Any], root: dict[str, Any], budget: "Iterator[int] | None" = None
) -> dict[str, Any]:
    """The schema without `allOf`; raises `CannotMerge`, also if that takes too many steps."""
    budget = iter(range(MOST_MERGES)) if budget is None else budget
    if next(budget, None) is None:
        raise CannotMerge("its parts refer to each other too often")
    made = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema.get("allOf", ()):
        inner = resolved(part, root)
        if inner is True:
            continue
        if not isinstance(inner, dict):
            raise CannotMerge("a part of it forbids everything")
        if "allOf" in inner:
            inner = merged(inner, root, budget)
        for keyword, value in inner.items():
            made[keyword] = _joined(keyword, made[keyword], value) if keyword in made else value
    if ("properties" in made or "required" in made) and "type" not in made:
        made["type"] = "object"
    return made


def _joined(keyword: str, first: Any, second: Any) -> Any:
    if first == second or keyword in _ANNOTATIONS:
        return first
    join = _JOINS.get(keyword)
    if join is None:
        raise CannotMerge(f"two of its parts say different things about {keyword}")
    return join(first, second)


def _join_properties(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = dict(first)
    for name, schema in second.items():
        both[name] = {"allOf": [both[name], schema]} if both.get(name, schema) != schema else schema
    return both


def _join_types(first: Any, second: Any) -> Any:
    one = first if isinstance(first, list) else [first]
    other = second if isinstance(second, list) else [second]
    common = [name for name in one if name in other]
    if not common and {"integer", "number"} <= {*one, *other}:
        common = ["integer"]
    if not common:
        raise CannotMerge("two of its parts want different types")
    return common[0] if len(common) == 1 else common


_JOINS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "properties": _join_properties,
    "$defs": lambda first, second: {**second, **first},
    "definitions": lambda first, second: {**second, **first},
    "required": lambda first, second: list(dict.fromkeys([*first, *second])),
    "type": _join_types,
    "enum": lambda first, second: [value for value in first if value in second],
    "minimum": max,
    "minLength": max,
    "minItems": max,
    "minProperties": max,
    "maximum": min,
    "maxLength": min,
    "maxItems": min,
    "maxProperties": min,
}


def plain_root(
    schema: dict[str, Any], forbidden: tuple[str, ...], root: dict[str, Any], losses: Losses
) -> dict[str, Any]:
    """The schema as one object at its root, without the forbidden keywords."""
    made = _without_reference(schema, root, losses)
    if "allOf" in forbidden and "allOf" in made:
        try:
            made = merged(made, root)
            losses.note("", "allOf", "kept", "merged into one object")
        except CannotMerge as error:
            parts = made.pop("allOf")
            made = _with_members(made, parts, root, is_union=False)
            losses.note("", "allOf", "weakened", f"only the properties of its parts are shown: {error}")
    for keyword in _ROOT_UNIONS:
        if keyword in forbidden and keyword in made:
            made = _with_members(made, made.pop(keyword), root, is_union=True)
            losses.note("", keyword, "weakened", "the properties of all alternatives are shown, as optional")
    for keyword in [key for key in ("enum", "const", "not") if key in made and key in forbidden]:
        del made[keyword]
        losses.note("", keyword, "weakened", "may not stand at the root")
    return {"type": "object", **{key: value for key, value in made.items() if key != "type"}}


def _without_reference(schema: dict[str, Any], root: dict[str, Any], losses: Losses) -> dict[str, Any]:
    if "$ref" not in schema:
        return dict(schema)
    target = resolved(schema, root)
    losses.note("", "$ref", "kept", "replaced by its target")
    kept: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**kept, **target} if isinstance(target, dict) else kept


def _with_members(
    schema: dict[str, Any], parts: list[Any], root: dict[str, Any], *, is_union: bool
) -> dict[str, Any]:
    """The schema with the properties of its subschemas; of alternatives, only what all require is
    required."""
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    needed: list[set[str]] = []
    for part in (_plain_part(one, root) for one in parts):
        needed.append(set(part.get("required", ())))
        for name, inside in part.get("properties", {}).items():
            properties[name] = _either(properties[name], inside) if name in properties else inside
    common = set.intersection(*needed) if is_union and needed else set().union(*needed)
    required = [name for name in properties if name in common or name in schema.get("required", ())]
    made = {**schema, "properties": properties, "required": required}
    if not required:
        del made["required"]
    return made


def _plain_part(part: Any, root: dict[str, Any]) -> dict[str, Any]:
    try:
        inner = resolved(part, root)
        return merged(inner, root) if isinstance(inner, dict) else {}
    except CannotMerge:
        return {}


def _either(first: Any, second: Any) -> Any:
    if first == second:
        return first
    alternatives = first["anyOf"] if isinstance(first, dict) and set(first) == {"anyOf"} else [first]
    return first if second in alternatives else {"anyOf": [*alternatives, second]}


def local_references(schema: Any) -> Iterator[str]:
    """Every reference in a schema."""
    return (here["$ref"] for here in objects_in(schema) if isinstance(here.get("$ref"), str))
