"""`@tool`: a typed function becomes a tool."""

import asyncio
import dataclasses
import enum
import functools
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, Optional

import pytest
from pydantic import AfterValidator, BaseModel, Field, field_validator
from typing_extensions import TypedDict

from tests.definitions.examples import fields_of
from toolkeep import (
    Code,
    Danger,
    Depends,
    FunctionTool,
    Keep,
    Secret,
    SideEffect,
    ToolContext,
    ToolFailed,
    Touches,
    tool,
)
from toolkeep.authoring.tool_decorator import ToolFields
from toolkeep.definitions.parameter import ANY_TYPE
from toolkeep.definitions.tool import KEYS
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import DefinitionInvalid
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("DEF-9")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Line(BaseModel):
    start: Point
    end: Point

    @field_validator("end")
    @classmethod
    def is_not_at_the_origin(cls, end: Point) -> Point:
        if (end.x, end.y) == (0, 0):
            raise ValueError("ends at the origin")
        return end


@dataclasses.dataclass
class Size:
    width: int
    unit: str = "cm"


class Options(TypedDict):
    depth: int
    note: NotRequired[str]


def parameters_of(made: FunctionTool[..., Any]) -> dict[str, Any]:
    parameters: dict[str, Any] = made.definition.to_dict()["parameters"]
    return parameters


def schema_of(annotation: Any) -> dict[str, Any]:
    """The parameters of a function with one argument of that annotation."""

    def take(value: Any) -> None:
        """Take it."""

    take.__annotations__["value"] = annotation
    return parameters_of(tool(take))


def test_a_function_becomes_a_tool_with_its_name_and_docstring() -> None:
    @tool
    def read_file(path: str, lines: int = 10) -> str:
        """Read a file.

        Args:
            path: The file.
            lines: How many lines.
        """
        return path * lines

    assert read_file.definition.name == "read_file"
    assert read_file.definition.description == "Read a file."
    assert read_file.definition.version == "1.0.0"
    assert parameters_of(read_file) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "lines": {"type": "integer", "description": "How many lines.", "default": 10},
        },
        "required": ["path"],
    }


def test_calling_the_tool_calls_the_function() -> None:
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    assert double(4) == 8
    assert double.__doc__ == "Double a number."
    assert repr(double) == "<tool double 1.0.0>"


def test_a_tool_can_be_made_a_tool_of_another_name() -> None:
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    again = tool(double, name="twice")
    assert (again.definition.name, double.definition.name, again(4)) == ("twice", "double", 8)


def test_a_sync_function_is_invoked_with_validated_arguments() -> None:
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    assert asyncio.run(double.invoke({"number": 4})) == 8


def test_an_async_function_is_awaited() -> None:
    @tool
    async def double(number: int) -> int:
        """Double a number."""
        await asyncio.sleep(0)
        return number * 2

    assert asyncio.run(double.invoke({"number": 4})) == 8


def test_the_decorator_takes_fields_of_the_definition() -> None:
    @tool(
        name="write_note",
        description="Write a note.",
        danger="medium",
        capabilities=["fs.write:./notes"],
        side_effects=["FsWrite"],
    )
    def write(text: str) -> None:
        """Another text."""

    definition = write.definition
    assert (definition.name, definition.description) == ("write_note", "Write a note.")
    assert definition.danger is Danger.MEDIUM
    assert definition.side_effects == (SideEffect.FS_WRITE,)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045 -- the old spelling
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["fast", "safe"], {"type": "string", "enum": ["fast", "safe"]}),
        (date, {"type": "string", "format": "date"}),
        (
            Annotated[int, Field(ge=1, le=10, description="How many.")],
            {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many."},
        ),
        (
            Annotated[str, Field(pattern="^a$", max_length=5)],
            {"type": "string", "pattern": "^a$", "maxLength": 5},
        ),
    ],
)
def test_annotations_become_json_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
    }


@pytest.mark.parametrize(
    ("annotation", "name", "schema"),
    [
        (Color, "Color", {"type": "string", "enum": ["red", "blue"]}),
        (
            Point,
            "Point",
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        ),
        (
            Size,
            "Size",
            {
                "type": "object",
                "properties": {"width": {"type": "integer"}, "unit": {"type": "string", "default": "cm"}},
                "required": ["width"],
            },
        ),
        (
            Options,
            "Options",
            {
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "note": {"type": "string"}},
                "required": ["depth"],
            },
        ),
    ],
)
def test_types_with_a_name_become_shared_definitions(
    annotation: Any, name: str, schema: dict[str, Any]
) -> None:
    assert schema_of(annotation) == {
        "type": "object",
        "properties": {"value": {"$ref": f"#/$defs/{name}"}},
        "required": ["value"],
        "$defs": {name: schema},
    }


@pytest.mark.spec("DEF-1")
def test_marks_are_written_into_the_schema() -> None:
    assert schema_of(Annotated[str, Touches("fs.read")])["properties"]["value"] == {
        "type": "string",
        "x-touches": "fs.read",
    }
    assert schema_of(Annotated[str, Secret()])["properties"]["value"] == {"type": "string", "x-secret": True}


def test_a_field_description_wins_over_the_docstring() -> None:
    @tool
    def take(a: Annotated[str, Field(description="From the field.")], b: str) -> None:
        """Take.

        Args:
            a: From the docstring.
            b: Only here.
        """

    properties = parameters_of(take)["properties"]
    assert properties["a"]["description"] == "From the field."
    assert properties["b"]["description"] == "Only here."


@pytest.mark.spec("DEF-1")
def test_the_order_of_parameters_is_kept() -> None:
    @tool
    def take(zeta: str, alpha: str, mid: str = "", beta: str = "") -> None:
        """Take."""

    assert list(take.definition.properties) == ["zeta", "alpha", "mid", "beta"]


def test_titles_are_left_out_but_properties_of_that_name_stay() -> None:
    class Book(BaseModel):
        title: str
        enum: int
        properties: int

    def take(title: str, book: Book) -> None:
        """Take."""

    take.__annotations__["book"] = Book
    assert parameters_of(tool(take)) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "book": {"$ref": "#/$defs/Book"}},
        "required": ["title", "book"],
        "$defs": {
            "Book": {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "enum": {"type": "integer"},
                    "properties": {"type": "integer"},
                },
                "required": ["title", "enum", "properties"],
            }
        },
    }


@tool
def draw(
    line: Line,
    color: Color,
    size: Size,
    options: Options,
    points: list[Point],
    corners: tuple[int, int] = (1, 2),
    background: Color = Color.BLUE,
    on: date = date(2024, 2, 29),
) -> dict[str, Any]:
    """Draw a line."""
    return {
        "line": line,
        "color": color,
        "size": size,
        "options": options,
        "points": points,
        "corners": corners,
        "background": background,
        "on": on,
    }


ARGUMENTS: dict[str, Any] = {
    "line": {"start": {"x": 1}, "end": {"x": 2, "y": 3}},
    "color": "red",
    "size": {"width": 4},
    "options": {"depth": 5},
    "points": [{"x": 6}],
}


def test_models_enums_and_dataclasses_reach_the_function_as_instances() -> None:
    assert asyncio.run(draw.invoke({**ARGUMENTS, "background": "red"})) == {
        "line": Line(start=Point(x=1, y=0), end=Point(x=2, y=3)),
        "color": Color.RED,
        "size": Size(width=4, unit="cm"),
        "options": {"depth": 5},
        "points": [Point(x=6)],
        "corners": (1, 2),
        "background": Color.RED,
        "on": date(2024, 2, 29),
    }


@pytest.mark.spec("VAL-9")
def test_defaults_of_the_schema_are_json_and_come_back_as_instances() -> None:
    properties = draw.definition.properties
    assert [properties[name]["default"] for name in ("corners", "background", "on")] == [
        [1, 2],
        "blue",
        "2024-02-29",
    ]
    bound = draw.bind({"corners": [1, 2], "background": "blue", "on": "2024-02-29"})
    assert bound == {"corners": (1, 2), "background": Color.BLUE, "on": date(2024, 2, 29)}


@pytest.mark.spec("DEF-5")
def test_what_the_decorator_makes_can_be_registered() -> None:
    assert admit(draw.definition).definition is draw.definition


def test_a_validator_of_a_model_may_object_and_the_model_reads_where_and_why() -> None:
    with pytest.raises(ToolFailed) as raised:
        draw.bind({**ARGUMENTS, "line": {"start": {"x": 1}, "end": {"x": 0}}})
    assert str(raised.value) == "/line/end: ends at the origin"


@pytest.mark.parametrize("is_sensitive", [True, False])
def test_a_validator_of_a_tool_with_secrets_is_not_quoted(*, is_sensitive: bool) -> None:
    def check(pin: str) -> str:
        raise ValueError(f"{pin} is too short")

    secret = Annotated[str, AfterValidator(check), *([] if is_sensitive else [Secret()])]

    class Door(BaseModel):
        pin: secret

    @tool(sensitive=is_sensitive)
    def unlock(door: Door) -> None:
        """Unlock."""

    with pytest.raises(ToolFailed) as raised:
        unlock.bind({"door": {"pin": "1234"}})
    assert str(raised.value) == "/door: is not what the tool accepts"


def test_of_many_objections_the_first_are_told() -> None:
    @tool
    def shift(lines: list[Line]) -> None:
        """Shift."""

    with pytest.raises(ToolFailed) as raised:
        shift.bind({"lines": [{"start": {"x": 1}, "end": {"x": 0}}] * 100})
    assert str(raised.value).count("ends at the origin") == 10


def test_plain_json_is_handed_over_as_it_is() -> None:
    @tool
    def take(items: list[dict[str, int]], mode: Literal["a"] = "a") -> None:
        """Take."""

    items = [{"a": 1}]
    assert take.bind({"items": items})["items"] is items


@tool
def look(path: str, context: ToolContext) -> tuple[str, str]:
    """Look."""
    return path, context.agent


def test_the_context_is_hidden_from_the_schema_and_handed_in() -> None:
    assert parameters_of(look) == {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    context = ToolContext(agent="ada")
    assert look.bind({"path": "a"}, context) == {"path": "a", "context": context}
    assert asyncio.run(look.invoke({"path": "a"}, context)) == ("a", "ada")


def test_a_context_is_made_where_none_is_given() -> None:
    assert asyncio.run(look.invoke({"path": "a"})) == ("a", "local")


def test_a_context_may_be_optional_and_have_any_name() -> None:
    @tool
    def peek(path: str, ctx: ToolContext | None = None) -> None:
        """Peek."""

    assert list(peek.definition.properties) == ["path"]
    assert peek.bind({"path": "a"}) == {"path": "a", "ctx": ToolContext()}


def problems_of(function: Any, **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        tool(**fields)(function)
    assert {problem.code for problem in caught.value.problems} == {Code.DEFINITION_INVALID}
    return [(problem.field, problem.message) for problem in caught.value.problems]


@pytest.mark.spec("DEF-12")
def test_everything_that_is_wrong_comes_at_once() -> None:
    def Take(a, /, b, *rest: str, c: int = "three", **more: str) -> None:  # type: ignore[no-untyped-def,assignment]
        pass

    assert problems_of(Take, danger="deadly") == [
        ("danger", "'deadly' is not one of safe, low, medium, high, critical"),
        ("name", "'Take' must start with a lower-case letter and contain only a-z, 0-9 and _"),
        ("description", "is blank"),
        ("parameters/properties/a", "is positional-only"),
        ("parameters/properties/b", "has no annotation"),
        ("parameters/properties/rest", "*args has no schema"),
        ("parameters/properties/c", "its default does not match its annotation"),
    ]


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("Missing", "name 'Missing' is not defined"),
        ("pytest.Missing", "module 'pytest' has no attribute 'Missing'"),
        ("list[1 / 0]", "division by zero"),
    ],
)
def test_an_annotation_that_cannot_be_resolved_is_a_problem(annotation: str, reason: str) -> None:
    def take(value: str) -> None:
        """Take."""

    take.__annotations__["value"] = annotation
    assert problems_of(take) == [("parameters", f"an annotation cannot be resolved ({reason})")]


class Taker:
    """Can be called, and is no function."""

    size: int = 3

    def __call__(self, value: str) -> str:
        """Take."""
        return value


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (functools.partial(max, 3), "partial"),
        (max, "builtin_function_or_method"),
        (Taker(), "Taker"),
        (3, "int"),
        ("f", "str"),
    ],
    ids=["partial", "of C", "object", "number", "text"],
)
def test_what_is_no_function_is_told_to_become_one(given: Any, kind: str) -> None:
    """What a partial fills in, its signature still offers: a model could fill in something else."""
    assert problems_of(given, name="take") == [("parameters", f"is made from a {kind}, which is no function")]


def test_a_method_and_a_decorated_function_are_functions() -> None:
    @functools.lru_cache
    def look_up(value: str) -> str:
        """Take."""
        return value

    expected = tool(name="take")(look_up).definition.parameters
    assert tool(name="take")(Taker().__call__).definition.parameters == expected


class Opaque:
    """Nothing that JSON could hold."""


@pytest.mark.parametrize("annotation", [Opaque, type, Annotated[str, Field(pattern="(")]])
def test_an_annotation_without_json_schema_is_a_problem(annotation: Any) -> None:
    def take(value: Any) -> None:
        """Take."""

    take.__annotations__["value"] = annotation
    (problem,) = problems_of(take)
    assert problem[0] == "parameters/properties/value"
    assert problem[1].startswith("its annotation has no JSON Schema (")


@pytest.mark.spec("DEF-2", "DEF-3")
def test_the_rules_for_authors_hold_for_functions() -> None:
    def run(value: str) -> None:
        pass

    with pytest.raises(DefinitionInvalid) as caught:
        tool(run)
    assert fields_of(caught.value.problems) == ["name", "description"]


def test_two_models_of_one_name_get_different_definitions() -> None:
    class First(BaseModel):
        a: int

    class Second(BaseModel):
        b: str

    Second.__name__ = Second.__qualname__ = "First"

    def take(one: Any, two: Any) -> None:
        """Take."""

    take.__annotations__.update(one=First, two=Second)
    schema = parameters_of(tool(take))
    references = {name: schema["properties"][name]["$ref"].rpartition("/")[2] for name in ("one", "two")}
    assert list(schema["$defs"][references["one"]]["properties"]) == ["a"]
    assert list(schema["$defs"][references["two"]]["properties"]) == ["b"]


@pytest.mark.spec("DEF-9")
def test_a_default_inside_a_field_is_the_default() -> None:
    @tool
    def search(query: str = Field(min_length=1), limit: int = Field(default=10, ge=1)) -> list[str]:
        """Search."""
        return [query] * limit

    assert search.definition.parameters["properties"] == {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "default": 10},
    }
    assert search.definition.parameters["required"] == ["query"]
    assert search.bind({"query": "x"}) == {"query": "x", "limit": 10}


def test_a_callable_whose_annotations_cannot_be_read_is_refused() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with pytest.raises(DefinitionInvalid):
        tool(functools.partial(add, b=1))


async def waits() -> str:
    """Wait."""
    return ""


async def waits_and_yields() -> Any:
    """Wait and yield."""
    yield ""


def yields() -> Any:
    """Yield."""
    yield ""


def gives() -> str:
    """Give."""
    return ""


@pytest.mark.parametrize(
    ("function", "kind"),
    [(waits, "async"), (waits_and_yields, "async generator"), (yields, "generator"), (gives, "plain")],
)
def test_a_tool_knows_how_its_function_gives_its_value(function: Any, kind: str) -> None:
    assert tool(function).kind == kind


# --- what the types say ------------------------------------------------------------------------------


def test_the_fields_that_type_checkers_know_are_those_of_a_definition() -> None:
    assert set(ToolFields.__annotations__) == {*KEYS, "effects"} - {"name", "description", "source"}


async def bytes_later() -> bytes:
    """Give bytes."""
    return b""


def pieces_of_bytes() -> Iterator[bytes]:
    """Give bytes."""
    yield b""


async def pieces_of_bytes_later() -> AsyncIterator[bytes]:
    """Give bytes."""
    yield b""


@pytest.mark.parametrize("function", [bytes_later, pieces_of_bytes, pieces_of_bytes_later])
def test_a_function_that_says_it_returns_bytes_gives_bytes(function: Any) -> None:
    assert tool(function).definition.result_type is ResultType.BINARY


def test_what_is_said_of_the_result_counts_more_than_the_annotation() -> None:
    assert tool(bytes_later, result_type="stream").definition.result_type is ResultType.STREAM
    assert tool(bytes_later, normalization="custom").definition.result_type is None
    assert tool(bytes_later, output_schema={"type": "string"}).definition.result_type is None


def test_a_function_of_a_class_says_how_its_method_becomes_a_tool() -> None:
    class Shop:
        def count(self, what: str) -> int:
            """Count."""
            return len(what)

    with pytest.raises(DefinitionInvalid) as raised:
        tool(Shop.count)
    (problem,) = raised.value.problems
    assert (problem.field, problem.message) == (
        "parameters/properties/self",
        "belongs to a method, which has no object here",
    )
    assert tool(Shop().count)(what="two") == 3


@pytest.mark.spec("DEF-9")
def test_any_is_a_free_value() -> None:
    @tool(effects="none")
    def keep_it(value: Any, other: Annotated[Any, Field(description="Else.")] = None) -> str:
        """Keep it."""
        return repr(value)

    assert parameters_of(keep_it)["properties"] == {
        "value": {"type": list(ANY_TYPE)},
        "other": {"type": list(ANY_TYPE), "description": "Else.", "default": None},
    }
    with Keep() as keep:
        keep.register(keep_it)
        for value in (1, "a", None, [{"b": 2.5}]):
            assert keep.call_sync("keep_it", {"value": value}).value == repr(value)


def shop() -> str:
    return "the shop"


@tool(effects="none")
def label(
    book: str, context: ToolContext, place: Annotated[str, Depends(shop)], **points: Point
) -> list[Any]:
    """Label a book."""
    return [book, place, {name: [type(point).__name__, point.x] for name, point in points.items()}]


def test_keyword_arguments_are_an_open_map_of_their_type() -> None:
    schema = parameters_of(label)
    assert list(schema["properties"]) == ["book"]
    assert schema["additionalProperties"] == {"$ref": "#/$defs/Point"}
    with Keep() as keep:
        keep.register(label)
        result = keep.call_sync("label", {"book": "a", "points": {"x": 1}, "b": {"x": 2}})
        assert result.value == ["a", "the shop", {"points": ["Point", 1], "b": ["Point", 2]}], result.text
        assert keep.call_sync("label", {"book": "a", "b": 1}).code is Code.WRONG_TYPE


@pytest.mark.spec("DEF-14")
@pytest.mark.parametrize("name", ["place", "context"])
def test_keyword_arguments_take_nothing_that_only_the_host_gives(name: str) -> None:
    with Keep() as keep:
        keep.register(label)
        assert keep.call_sync("label", {"book": "a", name: {"x": 1}}).code is Code.CONSTRAINT


def test_any_keyword_arguments_are_data() -> None:
    @tool(effects="none")
    def gather(**values: Any) -> Any:
        """Gather."""
        return values

    assert parameters_of(gather)["additionalProperties"] is True
    with Keep() as keep:
        keep.register(gather)
        assert keep.call_sync("gather", {"a": 1, "self": [2]}).value == {"a": 1, "self": [2]}
