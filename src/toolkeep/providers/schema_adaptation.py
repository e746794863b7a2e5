"""Adapt a schema to one provider: unchanged except for what the provider does not support.

Unsupported keywords go into the description if that is short, and are recorded in any case. The keep
validates by the schema as written, whatever the provider was sent: nothing here weakens a check.
"""

from typing import Any, Final

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.json_values.pointers import look_up, pointer, steps_of
from toolkeep.limits import INLINED_SCHEMAS
from toolkeep.providers.composition import CannotMerge, merged, plain_root, resolved
from toolkeep.providers.keyword_descriptions import described, said
from toolkeep.providers.profiles import Profile
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.validation.dialect import Dialect, dialect_of, upgrade
from toolkeep.validation.references import BadReference, resolve_references
from toolkeep.validation.schema_keywords import LISTS, MAPS, SINGLE, all_schemas, types_of
from toolkeep.validation.stated_closing import is_composed, state_closed_root, state_closing

_REFERRING: Final = frozenset(
    (
        "$ref", "$id", "$anchor", "$defs", "definitions", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
        "$recursiveAnchor", "$vocabulary",
    )
)  # fmt: skip
"""Without any of these there is nothing to resolve."""

CLOSED_ROOT: Final = "said in the description of the tool"


def fitted(definition: ToolDefinition, profile: Profile, losses: Losses) -> dict[str, Any]:
    """The parameters of a definition for a provider; raises `NotExpressible`."""
    schema = public_schema(definition.parameters, is_sensitive=definition.sensitive)
    # One that declares no dialect is 2020-12 already, which providers expect.
    is_as_expected = profile.keywords is None and "$schema" not in schema
    return fit(schema if is_as_expected else plain(schema), profile, losses)


def fit(schema: dict[str, Any], profile: Profile, losses: Losses) -> dict[str, Any]:
    """A public schema for a provider, which is changed; raises `NotExpressible`."""
    return _Fitter(schema, profile, losses).root()


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in 2020-12 with local references into `$defs`, whatever dialect it was written in."""
    dialect = dialect_of(schema)
    if dialect is not None:
        upgraded = upgrade(schema, dialect)
        schema = upgraded if isinstance(upgraded, dict) else {}
        if dialect is not Dialect.DRAFT_2020_12:
            schema = _with_prefix_items(schema)
    if not any(_REFERRING & part.keys() for part in all_schemas(schema)):
        return {key: value for key, value in schema.items() if key != "$schema"}
    try:
        made = resolve_references(schema)
    except BadReference as error:
        raise NotExpressible(error.reason, error.fix, pointer=error.path) from error
    if "definitions" not in made:
        return made
    return _renamed(made)


def _with_prefix_items(schema: Any) -> Any:
    """A schema of draft-07 or 2019-09 with its tuples as 2020-12 writes them."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            made[keyword] = {name: _with_prefix_items(one) for name, one in value.items()}
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            made[keyword] = [_with_prefix_items(one) for one in value]
        else:
            made[keyword] = _with_prefix_items(value) if keyword in SINGLE else value
    more = made.pop("additionalItems", None)
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        made |= {} if more is None else {"items": more}
    return made


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    """`definitions` as `$defs`, their name since 2019-09."""
    old = schema["definitions"]
    names: dict[str, str] = {}
    taken = set(schema.get("$defs", {}))
    for name in old:
        free = name
        while free in taken:
            free += ".definitions"
        taken.add(free)
        names[name] = free

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        made = {key: rename(item) for key, item in value.items()}
        reference = made.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/definitions/"):
            _, first, *rest = steps_of(reference)
            made["$ref"] = "#" + pointer(("$defs", names.get(first, first), *rest))
        return made

    rest = rename({key: value for key, value in schema.items() if key != "definitions"})
    moved = {names[name]: rename(inside) for name, inside in old.items()}
    return {**rest, "$defs": {**rest.get("$defs", {}), **moved}}


def _simply_closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties` where that says all that `unevaluatedProperties` does."""
    is_closed = schema.get("unevaluatedProperties") is False and "additionalProperties" not in schema
    if not is_closed or is_composed(schema):
        return schema
    made = {key: value for key, value in schema.items() if key != "unevaluatedProperties"}
    return {**made, "additionalProperties": False}


class _Fitter:
    """Rewrites one schema."""

    def __init__(self, schema: dict[str, Any], profile: Profile, losses: Losses) -> None:
        self._root = schema
        self._profile = profile
        self._losses = losses
        self._count = 0
        self._is_closed = state_closing(schema)

    def root(self) -> dict[str, Any]:
        """The whole schema."""
        try:
            made = plain_root(self._root, self._profile.root_forbids, self._root, self._losses)
            made = self._with_allowed_keys(made)
            return self._schema(self._with_closed_root(made), (), ())
        except (CannotMerge, KeyError, RecursionError) as error:
            reason = f"its schema cannot be taken apart: {error}"
            raise NotExpressible(reason, "write it without references between its parts") from error

    def _with_closed_root(self, schema: dict[str, Any]) -> dict[str, Any]:
        made = state_closed_root(schema) if self._is_closed else schema
        if self._profile.closes_root or made.get("additionalProperties") is not False:
            return made
        self._losses.note("", "additionalProperties", "moved", CLOSED_ROOT)
        return {key: value for key, value in made.items() if key != "additionalProperties"}

    def _with_allowed_keys(self, schema: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        odd = [name for name in properties if not self._profile.takes_key(name)]
        for name in odd:
            path = pointer(("properties", name))
            if name in schema.get("required", ()):
                reason = f"its required parameter {name!r} has a name that {self._profile.name} does not take"
                raise NotExpressible(reason, "rename the parameter", pointer=path)
            note = "its name is not allowed there, so that the model cannot give it"
            self._losses.note(path, "properties", "weakened", note)
        if not odd:
            return schema
        return {**schema, "properties": {key: properties[key] for key in properties if key not in odd}}

    def _schema(self, schema: Any, path: tuple[str, ...], trail: tuple[str, ...]) -> dict[str, Any]:
        self._count += 1
        if self._count > INLINED_SCHEMAS:
            reason = f"its schema has more than {INLINED_SCHEMAS} parts once references are written out"
            raise NotExpressible(reason, "make it smaller")
        if not isinstance(schema, dict):
            return {} if schema is True else {"not": {}}
        if self._profile.inlines_references and isinstance(schema.get("$ref"), str):
            return self._inlined(schema, path, trail)
        if self._profile.keywords is not None and "allOf" in schema and not self._knows("allOf"):
            schema = self._merged(schema, path)
        schema = self._possible(_simply_closed(schema), path)
        made, words = self._keywords(schema, path, trail)
        made = described(made, words)
        if self._profile.references_stand_alone and "$ref" in made:
            return self._alone(made)
        if self._profile.needs_items and "array" in (types_of(made) or ()) and "items" not in made:
            made["items"] = {}
        return made

    def _knows(self, keyword: str) -> bool:
        return self._profile.keywords is None or keyword in self._profile.keywords

    def _possible(self, schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        """The schema without what would forbid valid calls once an unsupported keyword is gone."""
        if "patternProperties" in schema and not self._knows("patternProperties"):
            patterns = schema["patternProperties"]
            if schema.get("additionalProperties") is False and isinstance(patterns, dict) and patterns:
                shown = next(iter(patterns.values())) if len(patterns) == 1 else True
                schema = {**schema, "additionalProperties": shown}
                note = "as additionalProperties, without the names that the pattern allows"
                self._losses.note(pointer(path), "patternProperties", "weakened", note)
        first = schema.get("prefixItems")
        if not isinstance(first, list) or (self._knows("prefixItems") and self._profile.takes_booleans):
            return schema
        made = dict(schema)
        if made.get("items") is False:
            made["maxItems"] = min(len(first), schema.get("maxItems", len(first)))
            del made["items"]
        if not self._knows("prefixItems"):
            more = [made["items"]] if isinstance(made.get("items"), dict) else []
            made["items"] = {"anyOf": [*first, *more]} if "items" in made or "maxItems" in made else {}
            self._losses.note(pointer(path), "prefixItems", "weakened", "as items, in any order")
        return made

    def _merged(self, schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        try:
            made = merged(schema, self._root)
        except CannotMerge as error:
            self._losses.note(pointer(path), "allOf", "weakened", str(error))
            return {key: value for key, value in schema.items() if key != "allOf"}
        self._losses.note(pointer(path), "allOf", "kept", "merged into one schema")
        return made

    def _keywords(
        self, schema: dict[str, Any], path: tuple[str, ...], trail: tuple[str, ...]
    ) -> tuple[dict[str, Any], list[str]]:
        """The keywords that are kept, and those described in words instead."""
        made: dict[str, Any] = {}
        words: list[str] = []
        for keyword, value in schema.items():
            if self._knows(keyword):
                kept = self._inside(keyword, value, path, trail)
                made[keyword] = [*made["anyOf"], *kept] if keyword == "anyOf" and "anyOf" in made else kept
            elif keyword == "const" and self._knows("enum") and "enum" not in schema:
                made["enum"] = [value]
                self._losses.note(pointer(path), "const", "kept", "as enum")
            elif keyword == "oneOf" and self._knows("anyOf") and isinstance(value, list):
                inside = self._inside("anyOf", value, path, trail)
                made["anyOf"] = [*made.get("anyOf", []), *inside]
                self._losses.note(pointer(path), "oneOf", "weakened", "as anyOf")
            elif keyword not in ("$defs", "definitions"):
                words += said(keyword, value, pointer(path), self._losses)
        return made, words

    def _inside(self, keyword: str, value: Any, path: tuple[str, ...], trail: tuple[str, ...]) -> Any:
        here = (*path, keyword)
        if keyword in MAPS and isinstance(value, dict):
            return {
                name: self._schema(inside, (*here, name), trail)
                for name, inside in value.items()
                if inside is not False or not self._forbids(keyword, (*here, name))
            }
        if (keyword in LISTS or keyword == "items") and isinstance(value, list):
            return [self._schema(inside, (*here, str(i)), trail) for i, inside in enumerate(value)]
        if keyword in SINGLE and isinstance(value, dict):
            return self._schema(value, here, trail)
        if keyword == "items" and isinstance(value, bool) and not self._profile.takes_booleans:
            return self._schema(value, here, trail)
        return value

    def _forbids(self, keyword: str, path: tuple[str, ...]) -> bool:
        """Whether a property that is never allowed is left out; records it."""
        if keyword != "properties" or self._profile.takes_booleans:
            return False
        self._losses.note(pointer(path), "properties", "kept", "can never be given, and is left out")
        return True

    def _alone(self, schema: dict[str, Any]) -> dict[str, Any]:
        beside = {key: value for key, value in schema.items() if key != "$ref" and key != "$defs"}
        if not beside:
            return schema
        made = {**beside, "anyOf": [{"$ref": schema["$ref"]}]}
        return {**made, "$defs": schema["$defs"]} if "$defs" in schema else made

    def _inlined(
        self, schema: dict[str, Any], path: tuple[str, ...], trail: tuple[str, ...]
    ) -> dict[str, Any]:
        reference = schema["$ref"]
        if reference in trail:
            target = look_up(self._root, reference[1:])
            declared = target.get("type") if isinstance(target, dict) else None
            self._losses.note(pointer(path), "$ref", "weakened", "is inside itself, and is shown once")
            return {"type": declared} if declared else {}
        inner = resolved(schema, self._root)
        return self._schema(inner, path, (*trail, reference))
