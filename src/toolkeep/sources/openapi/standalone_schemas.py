"""Convert schemas of a document to standalone JSON Schema 2020-12, with referenced schemas in `$defs`.

Cycles stay references. OpenAPI 3.0 dialect is translated. Properties that only the other side may send are
left out. The work is bounded: references let a small document expand to gigabytes.
"""

import re
from typing import Any, Final, Literal

from toolkeep.definitions.tool_names import portable_name
from toolkeep.sources.openapi.document import Document, Refused
from toolkeep.validation.schema_keywords import LISTS, MAPS, SINGLE

_FOLDERS_AND_SUFFIX: Final = re.compile(r".*~1|\.(json|ya?ml)$")
"""Of a file in a bundle, which names a schema by its own name."""
Direction = Literal["request", "response"]

_NODES: Final = 8_000
"""Objects of one schema with everything that it references; the guard accepts 50 KB at most, which hold
fewer."""
DOCUMENT_PARTS: Final = 1_000_000
"""The same for all operations of a document together: some seconds of work."""
_DEPTH: Final = 100
"""Deeper than the guard accepts; below Python's recursion limit."""
_NOT_OURS: Final = frozenset(
    {
        "discriminator",
        "xml",
        "externalDocs",
        "$schema",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
    }
)


class ExpansionBudget:
    """How many subschemas may still be read for one document; operations share referenced schemas."""

    def __init__(self, parts: int = DOCUMENT_PARTS) -> None:
        self._left = parts

    def take(self) -> None:
        """Count one more, or raise `Refused`."""
        self._left -= 1
        if self._left < 0:
            raise Refused("comes after more schemas than are read of one document")


class Bundle:
    """The schemas of one operation, which share their definitions."""

    def __init__(self, document: Document, direction: Direction, allowance: ExpansionBudget) -> None:
        self._document = document
        self._allowance = allowance
        self._direction = direction
        self._names: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._waiting: list[str] = []
        self._nodes = 0
        self._inside = ""
        """Reference to the component that is being converted."""
        self.definitions: dict[str, Any] = {}

    def add(self, schema: Any) -> Any:
        """The converted schema, with references to `$defs`."""
        converted = self._schema(schema, _DEPTH)
        while self._waiting:
            self._inside = reference = self._waiting.pop()
            target = self._document.look_up(reference)
            self.definitions[self._names[reference]] = self._schema(target, _DEPTH)
        self._inside = ""
        return converted

    def _schema(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Refused("has a schema that is not an object")
        self._allowance.take()
        self._nodes += 1
        if self._nodes > _NODES:
            raise Refused(f"has a schema of more than {_NODES} parts")
        if not depth:
            raise Refused(f"has a schema that is nested deeper than {_DEPTH}")
        if "$ref" in schema and self._document.is_3_0:
            return {"$ref": self._reference(schema["$ref"])}  # 3.0 ignores the siblings of a reference
        made = {
            keyword: self._member(keyword, value, depth - 1)
            for keyword, value in schema.items()
            if keyword not in _NOT_OURS
        }
        if "$recursiveRef" in schema:
            made["$ref"] = self._recursion(made.pop("$recursiveRef"))
        self._leave_out(made)
        made = _with_exclusive_bounds(made)
        return _with_null(made) if self._document.is_3_0 else made

    def _member(self, keyword: Any, value: Any, depth: int) -> Any:
        if not isinstance(keyword, str):
            raise Refused("has a schema with a key that is not a string")
        if keyword == "$dynamicRef":
            raise Refused("has a schema with $dynamicRef, which is not followed here")
        if keyword == "$ref":
            return self._reference(value)
        if keyword in MAPS and isinstance(value, dict):
            if isinstance(value.get("$ref"), str) and len(value) == 1:
                value = self._document.followed(value)  # not OpenAPI, and documents have it
            if not isinstance(value, dict):
                raise Refused(f"has {keyword} that refer to something else than named schemas")
            return {name: self._schema(inside, depth) for name, inside in value.items()}
        if keyword in LISTS and isinstance(value, list):
            return [self._schema(inside, depth) for inside in value]
        if keyword in SINGLE and isinstance(value, (dict, bool)):
            return self._schema(value, depth)
        return value

    def _recursion(self, reference: Any) -> str:
        """A reference of 2019-09 to the schema that it stands in: here, the component."""
        if reference != "#" or not self._inside:
            raise Refused("has a schema with $recursiveRef outside of a component")
        return self._reference(self._inside)

    def _reference(self, reference: Any) -> str:
        self._document.look_up(reference)  # refuses what is not in the document
        if reference not in self._names:
            last = _FOLDERS_AND_SUFFIX.sub("", str(reference).rpartition("/")[2])
            name = self._free_name(portable_name(last or "schema"))
            self._names[reference] = name
            self.definitions[name] = True
            self._waiting.append(reference)
        return f"#/$defs/{self._names[reference]}"

    def _free_name(self, wanted: str) -> str:
        """A free definition name; the next number is remembered, because thousands may have the same name."""
        name, number = wanted, self._numbers.get(wanted, 2)
        while name in self.definitions:
            name, number = f"{wanted}_{number}", number + 1
        self._numbers[wanted] = number
        return name

    def _leave_out(self, schema: dict[str, Any]) -> None:
        """Remove the properties that only the other side may send."""
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return
        flag = "readOnly" if self._direction == "request" else "writeOnly"
        theirs = {n for n, s in properties.items() if isinstance(s, dict) and s.get(flag) is True}
        if theirs:
            schema["properties"] = {n: s for n, s in properties.items() if n not in theirs}
            required = schema.get("required")
            if isinstance(required, list):
                schema["required"] = [name for name in required if name not in theirs]


def _with_exclusive_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Translate bounds that a flag makes exclusive, as 3.0 has them; some documents of 3.1 have them too."""
    made = schema
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        is_exclusive = made.get(exclusive)
        if isinstance(is_exclusive, bool):
            del made[exclusive]
        if is_exclusive is True and bound in made:
            made[exclusive] = made.pop(bound)
    return made


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Translate `nullable` of 3.0."""
    made = {key: value for key, value in schema.items() if key != "nullable"}
    if schema.get("nullable") is not True:
        return made
    declared = made.get("type")
    if isinstance(declared, str):
        made["type"] = [declared, "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return made
    if any(keyword in made for keyword in ("allOf", "anyOf", "oneOf", "enum")):
        words: dict[str, Any] = {
            key: made.pop(key) for key in ("title", "description", "default") if key in made
        }
        return {**words, "anyOf": [made, {"type": "null"}]}
    return made
