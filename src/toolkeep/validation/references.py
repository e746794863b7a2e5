"""Turn every reference inside a schema into a plain pointer; refuse references that leave it.

Ids, anchors and embedded resources are resolved here, once. All later code sees only `{"$ref": "#/pointer"}`.
Nothing is ever fetched: a reference that a stranger wrote must not make the host open a file or a connection.
"""

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from toolkeep.json_values.pointers import look_up, pointer
from toolkeep.validation.schema_keywords import LISTS, MAPS, SINGLE, Schema, all_schemas, children, is_leaf

_ROOT = "toolkeep:/schema"
_DROPPED = frozenset(("$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", "$vocabulary"))
_COMPOSING = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"))
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TOUCHED = _DROPPED.union(_REFERENCES)


class BadReference(ValueError):
    """A reference that is not local, leads nowhere, or is ambiguous."""

    def __init__(self, path: str, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.path, self.reason, self.fix = path, reason, fix


def resolve_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every reference a pointer from its root; subschemas without references are shared."""
    if all(map(_TOUCHED.isdisjoint, all_schemas(schema))):
        return schema
    resolved = _rewrite(schema, _ROOT, "", _Index(schema))
    return resolved if isinstance(resolved, dict) else {}


def is_alone(schema: dict[str, Any]) -> bool:
    """Whether no other schema is applied to the same value."""
    return _COMPOSING.isdisjoint(schema)


def applied_in_place(schema: dict[str, Any], root: dict[str, Any]) -> list[Schema]:
    """The subschemas directly inside that apply to the same value, references followed."""
    applied: list[Schema] = []
    if is_alone(schema):
        return applied
    if isinstance(schema.get("$ref"), str):
        applied.append(look_up(root, schema["$ref"][1:]))
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword in schema:
            applied += schema[keyword]
    for keyword in ("not", "if", "then", "else"):
        if keyword in schema:
            applied.append(schema[keyword])
    if "dependentSchemas" in schema:
        applied += schema["dependentSchemas"].values()
    return applied


class _Index:
    """The embedded resources of a schema and their anchors, with pointers from the root."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.resources = {_ROOT: ""}
        self.places: set[str] = set()
        """The pointers to every subschema."""
        self.anchors: dict[tuple[str, str], str] = {}
        self.dynamic: dict[str, int] = {}
        self._add(schema, _ROOT, "")

    def _add(self, schema: Schema, base: str, here: str) -> None:
        if not isinstance(schema, dict):
            return
        self.places.add(here)
        if is_leaf(schema) and _DROPPED.isdisjoint(schema):
            return
        base = _base(schema, base)
        self.resources.setdefault(base, here)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self.anchors[base, schema[keyword]] = here
        if isinstance(schema.get("$dynamicAnchor"), str):
            name = schema["$dynamicAnchor"]
            self.dynamic[name] = self.dynamic.get(name, 0) + 1
        for keys, child in children(schema):
            self._add(child, base, here + pointer(keys))

    def pointer_of(self, reference: str, base: str, path: str) -> str:
        """The pointer from the root that a reference stands for."""
        if base == _ROOT and reference.startswith("#/") and "%" not in reference:
            return reference[1:]  # the common case
        address, fragment = urldefrag(
            urljoin(base, reference) if not reference.startswith("#") else reference
        )
        resource = address.rstrip("#") or base
        if resource not in self.resources:
            raise BadReference(
                path,
                "refers to something outside the schema",
                "copy what it needs into $defs and refer to #/$defs/…",
            )
        if not fragment:
            return self.resources[resource]
        if not fragment.startswith("/"):
            found = self.anchors.get((resource, unquote(fragment)))
            if found is None:
                raise BadReference(path, "refers to an anchor that does not exist", "refer to #/$defs/…")
            return found
        return self.resources[resource] + unquote(fragment)


def _base(schema: dict[str, Any], base: str) -> str:
    identifier = schema.get("$id")
    return urldefrag(urljoin(base, identifier))[0] if isinstance(identifier, str) else base


def _rewrite(schema: Schema, base: str, path: str, index: _Index) -> Schema:
    if not isinstance(schema, dict) or (is_leaf(schema) and _TOUCHED.isdisjoint(schema)):
        return schema
    base = _base(schema, base)
    rewritten: dict[str, Any] = {}
    references = []
    for keyword, value in schema.items():
        here = f"{path}/{keyword}"
        if keyword in _REFERENCES and isinstance(value, str):
            references.append({"$ref": "#" + _target(keyword, value, base, here, index)})
        elif keyword in _DROPPED:
            continue
        elif keyword in SINGLE and isinstance(value, (dict, bool)):
            rewritten[keyword] = _rewrite(value, base, here, index)
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            rewritten[keyword] = [_rewrite(v, base, f"{here}/{i}", index) for i, v in enumerate(value)]
        elif keyword in MAPS and isinstance(value, dict):
            rewritten[keyword] = {k: _rewrite(v, base, here + pointer((k,)), index) for k, v in value.items()}
        else:
            rewritten[keyword] = value
    if references:
        rewritten.update(references[0])
    if len(references) > 1:
        rewritten["allOf"] = [*rewritten.get("allOf", []), *references[1:]]
    return rewritten


def _target(keyword: str, reference: str, base: str, path: str, index: _Index) -> str:
    if keyword == "$recursiveRef" and len(set(index.resources.values())) > 1:
        raise BadReference(path, "is a recursive reference among embedded schemas", "use $ref")
    if keyword == "$dynamicRef" and index.dynamic.get(unquote(urldefrag(reference)[1]), 0) > 1:
        raise BadReference(path, "could mean several places, depending on the call", "use $ref")
    target = index.pointer_of(reference, base, path)
    try:
        found = look_up(index.schema, target)
    except KeyError:
        raise BadReference(path, "leads nowhere", "define it under $defs") from None
    # A pointer into `default` or `enum` would turn data that was never checked into a schema.
    if not isinstance(found, bool) and target not in index.places:
        raise BadReference(path, "does not lead to a schema", "put what it refers to under $defs")
    return target
