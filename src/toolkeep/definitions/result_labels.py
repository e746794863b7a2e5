"""Labels of a tool's result (FLO-1): who made each value, and what it looks like.

In data, by JSON Pointer, where `*` stands for every item and every key, and "" for the whole result:

    {"/*/id": "system", "/*/sender": {"outside": "email"}, "/*/body": "text"}

`system` says that the service or the operator made the value, `outside` that anybody may have. Both take a
form, by default `id`. `text`, which is also what an unlabelled string is, means text from outside.
`readers: [user]` says that only the user may know the value. A label holds for everything below its pointer
that has no label of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolkeep.definitions.vocabulary import Form
from toolkeep.json_values.pointers import referred, steps_of

SYSTEM: Final = "system"
OUTSIDE: Final = "outside"
ANY_STEP: Final = "*"
LABELS: Final = 200
"""Labels of one tool."""

_OPEN: Final = ("allOf", "anyOf", "oneOf", "if", "patternProperties", "$dynamicRef", "prefixItems")
"""Keywords below which a field may be described that the check does not look for."""


class Label(NamedTuple):
    """Who made a value, what it looks like, and whether only the user may know it."""

    is_system: bool
    form: Form
    is_secret: bool = False


PLAIN_TEXT: Final = Label(is_system=False, form=Form.TEXT)
"""What a string is without a label, too."""


def read_label(data: Any) -> Label:
    """A label from its data form; ValueError says what is wrong."""
    if data == Form.TEXT.value:
        return PLAIN_TEXT
    if isinstance(data, str):
        data = {data: Form.ID.value}
    if not isinstance(data, Mapping):
        raise ValueError("must be system, outside, text, or an object such as {outside: email}")
    made_by = [key for key in (SYSTEM, OUTSIDE) if key in data]
    if len(made_by) != 1 or not data.keys() <= {SYSTEM, OUTSIDE, "readers"}:
        raise ValueError("must be system, outside or text, with a form and readers, and nothing else")
    if "readers" in data and data["readers"] not in (["user"], ("user",)):
        raise ValueError("readers must be [user], or left out where anybody may know the value")
    return Label(made_by[0] == SYSTEM, Form.read(data[made_by[0]]), "readers" in data)


def read_labels(flow: Mapping[str, Any]) -> dict[tuple[str, ...], Label]:
    """All labels of a definition by their steps; ValueError for one that cannot be read."""
    return {tuple(steps_of(at)): read_label(said) for at, said in flow.items()}


def label_problems(
    flow: Mapping[str, Any], output_schema: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """What is wrong with each label, by its pointer."""
    if len(flow) > LABELS:
        yield "", f"has {len(flow)} labels, at most {LABELS} are allowed"
        return
    for at, said in flow.items():
        if at and not at.startswith("/"):
            yield at, "is not a JSON Pointer such as /items/*/id"
            continue
        try:
            read_label(said)
        except ValueError as error:
            yield at, str(error)
            continue
        if output_schema is not None and not _is_described(output_schema, output_schema, steps_of(at)):
            yield at, "names no field of the output schema"


def _is_described(root: Mapping[str, Any], schema: Any, steps: list[str]) -> bool:
    """Whether a schema says anything about a field, or leaves open that it exists."""
    for number, step in enumerate(steps):
        followed = 0
        while isinstance(schema, Mapping) and "$ref" in schema and followed < len(root) + LABELS:
            followed += 1
            try:
                schema = referred(root, schema["$ref"])
            except KeyError:
                return True
        if not isinstance(schema, Mapping) or any(word in schema for word in _OPEN):
            return True
        properties, items = schema.get("properties"), schema.get("items")
        if step == ANY_STEP:
            inside = [items, schema.get("additionalProperties"), *(properties or {}).values()]
            return any(
                _is_described(root, one, steps[number + 1 :]) for one in inside if one is not None
            ) or (properties is None and items is None)
        if not isinstance(properties, Mapping):
            return "items" not in schema
        if step not in properties:
            return schema.get("additionalProperties", False) is not False
        schema = properties[step]
    return True
