"""What changed between two definitions of one tool, and how far its version moves (REG-3).

Careful rather than clever: what is not known to be harmless to callers is a major change.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.registry.versions import precedence

_TEXTS = frozenset({"description", "usage_metadata", "metadata", "source"})
_BY_NAME = frozenset(
    {
        "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired",
        "dependencies",
    }
)  # fmt: skip
"""Keywords that hold things by name; a name may be that of an annotation."""
_ANNOTATIONS = frozenset({"title", "description", "examples", "$comment", "deprecated"})


class Weight(IntEnum):
    """What a change means to those who call the tool."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2


class Change(msgspec.Struct, frozen=True):
    """One difference, in plain words, with what was there and what is there now."""

    field: str
    what: str
    weight: Weight
    before: Any = None
    after: Any = None


def changes_between(old: ToolDefinition, new: ToolDefinition) -> tuple[Change, ...]:
    """Every difference, the version aside."""
    before, after = old.to_dict(), new.to_dict()
    fields = [field for field in {**before, **after} if field != "version"]
    found: list[Change] = []
    for field in fields:
        if canonical_bytes(before.get(field)) == canonical_bytes(after.get(field)):
            continue
        if field == "parameters":
            found += _parameters(before[field], after[field])
        else:
            weight = Weight.PATCH if field in _TEXTS else Weight.MAJOR
            found.append(Change(field, "changed", weight, before.get(field), after.get(field)))
    return tuple(found)


def moved_version(pinned: str, old: ToolDefinition, new: ToolDefinition) -> str:
    """The version after an accepted change: upstream's own if it moved up, else ours by the verdict."""
    if precedence(new.version) > max(precedence(old.version), precedence(pinned)):
        return new.version
    major, minor, patch = precedence(pinned)[:3]
    weight = max((change.weight for change in changes_between(old, new)), default=Weight.PATCH)
    if weight is Weight.MAJOR:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if weight is Weight.MINOR else f"{major}.{minor}.{patch + 1}"


def _parameters(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    if _is_same(before, after):
        yield Change("parameters", "only texts changed", Weight.PATCH, before, after)
        return
    around = [{k: v for k, v in s.items() if k not in ("properties", "required")} for s in (before, after)]
    if not _is_same(*around):
        what = "the schema around the properties changed"
        yield Change("parameters", what, Weight.MAJOR, before, after)
    yield from _properties(before.get("properties", {}), after.get("properties", {}), after)
    yield from _required(before, after)


def _properties(before: dict[str, Any], after: dict[str, Any], schema: dict[str, Any]) -> Iterator[Change]:
    for name in [name for name in before if name not in after]:
        yield Change(f"parameters/properties/{name}", "removed", Weight.MAJOR, before[name])
    for name in [name for name in after if name not in before]:
        is_required = name in schema.get("required", ())
        what = "new and required" if is_required else "new and optional"
        weight = Weight.MAJOR if is_required else Weight.MINOR
        yield Change(f"parameters/properties/{name}", what, weight, None, after[name])
    for name in [name for name in before if name in after and not _is_same(before[name], after[name])]:
        is_wider = _is_wider(_bare(before[name]), _bare(after[name]))
        what = "takes more values" if is_wider else "changed"
        weight = Weight.MINOR if is_wider else Weight.MAJOR
        yield Change(f"parameters/properties/{name}", what, weight, before[name], after[name])


def _required(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    old, new = set(before.get("required", ())), set(after.get("required", ()))
    both = before.get("properties", {}).keys() & after.get("properties", {}).keys()
    for name in sorted((new - old) & both):
        yield Change(f"parameters/properties/{name}", "became required", Weight.MAJOR)
    for name in sorted((old - new) & both):
        yield Change(f"parameters/properties/{name}", "became optional", Weight.MINOR)


def _is_same(before: Any, after: Any) -> bool:
    """Whether both mean the same; compared as JSON, because to Python 1, 1.0 and True are one."""
    return canonical_bytes(_bare(before)) == canonical_bytes(_bare(after))


def _is_wider(old: Any, new: Any) -> bool:
    """Whether only the list of allowed values grew."""
    if not isinstance(old, dict) or not isinstance(new, dict) or "enum" not in old or "enum" not in new:
        return False
    around = [{k: v for k, v in s.items() if k != "enum"} for s in (old, new)]
    allowed = set(map(canonical_bytes, new["enum"]))
    return _is_same(*around) and all(canonical_bytes(value) in allowed for value in old["enum"])


def _bare(schema: Any) -> Any:
    """A schema without the texts that only explain; a property may be called like one of them."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            bare[key] = {name: _bare(inside) for name, inside in value.items()}
        elif key in ("enum", "const", "default"):
            bare[key] = value
        elif key not in _ANNOTATIONS:
            bare[key] = _bare(value)
    return bare
