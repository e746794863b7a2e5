"""What a call would touch, worked out from its arguments; what cannot be worked out counts as touched in whole."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep.definitions.capability import Capability
from toolkeep.policy.resolved_path import ResolvedPath
from toolkeep.policy.touched_resources import Touched, TouchPlan, TouchRefused, whole_scope

pytestmark = pytest.mark.spec("POL-1")

READS = {"type": "string", "x-touches": "fs.read"}
"""A parameter that names a file."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    (root / "a").write_text("first")
    (root / "b").write_text("second")
    (root / "program").write_text("#!/nowhere\n")
    (root / "program").chmod(0o755)
    return root


def plan(schema: dict[str, Any], *capabilities: str) -> TouchPlan:
    """The plan of a tool with these parameters; a plain mapping is its properties."""
    parameters = schema if "type" in schema else with_properties(schema)
    return TouchPlan(made(parameters=parameters, capabilities=list(capabilities)))


def found(planned: TouchPlan, folder: Path, **arguments: Any) -> list[tuple[str, str, str]]:
    """Kind, pointer and canonical form of what a call touches, ROOT for the folder."""
    touched = planned.touched(arguments, str(folder), str(folder))
    for one in touched:
        one.close()
    return [(one.kind, one.pointer, one.shown.replace(str(folder), "ROOT")) for one in touched]


def refused(planned: TouchPlan, folder: Path, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(TouchRefused) as caught:
        planned.touched(arguments, str(folder), str(folder))
    return caught.value.pointer, caught.value.reason


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- where marks are found -----------------------------------------------------------------------

SHAPES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "a parameter": (READS, "a", "/it"),
    "an array that is marked": (
        {"type": "array", "items": {"type": "string"}, "x-touches": "fs.read"},
        ["a"],
        "/it/0",
    ),
    "items that are marked": ({"type": "array", "items": READS}, ["a"], "/it/0"),
    "items of items": ({"type": "array", "items": {"type": "array", "items": READS}}, [["a"]], "/it/0/0"),
    "a property of an object": ({"type": "object", "properties": {"x": READS}}, {"x": "a"}, "/it/x"),
    "a property with an odd name": (
        {"type": "object", "properties": {"x/~y": READS}},
        {"x/~y": "a"},
        "/it/x~1~0y",
    ),
    "objects in an array": (
        {"type": "array", "items": {"type": "object", "properties": {"x": READS}}},
        [{"x": "a"}],
        "/it/0/x",
    ),
    "text or null": ({"anyOf": [READS, {"type": "null"}]}, "a", "/it"),
    "one of two": ({"oneOf": [READS, {"type": "integer"}]}, "a", "/it"),
    "all of two": ({"allOf": [{"type": "string"}, READS]}, "a", "/it"),
    "a definition elsewhere": ({"$ref": "#/$defs/file"}, "a", "/it"),
    "a definition of a definition": ({"$ref": "#/$defs/alias"}, "a", "/it"),
    "a definition inside an alternative": (
        {"anyOf": [{"$ref": "#/$defs/file"}, {"type": "null"}]},
        "a",
        "/it",
    ),
}


@pytest.mark.parametrize(("schema", "value", "pointer"), SHAPES.values(), ids=SHAPES)
def test_a_mark_is_followed_into_the_arguments(
    schema: dict[str, Any], value: Any, pointer: str, folder: Path
) -> None:
    definitions = {"file": READS, "alias": {"$ref": "#/$defs/file"}}
    planned = plan(with_properties({"it": schema}, **{"$defs": definitions}), "fs.read:*")
    assert found(planned, folder, it=value) == [("fs.read", pointer, "ROOT/a")]


def twice(leaf: dict[str, Any]) -> dict[str, Any]:
    """Forty definitions, of which each refers to the next one twice."""
    steps = [{"$ref": f"#/$defs/d{i}"} for i in range(1, 40)]
    definitions = {f"d{i}": {"properties": {"x": one, "y": one}} for i, one in enumerate([*steps, leaf])}
    return {"properties": {"it": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


HIDDEN: dict[str, dict[str, Any]] = {
    "definitions that are referred to without end": twice(READS),
    "additional properties": {"additionalProperties": READS},
    "properties by pattern": {"patternProperties": {"^x": READS}},
    "a condition": {"if": {"properties": {"x": READS}}, "then": True},
    "what is forbidden": {"not": {"properties": {"x": READS}}},
    "items by place": {"properties": {"it": {"type": "array", "prefixItems": [READS]}}},
    "items by place, as of old": {"properties": {"it": {"type": "array", "items": [READS]}}},
    "a schema that holds itself": {
        "properties": {"it": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"properties": {"x": READS, "more": {"$ref": "#/$defs/tree"}}}},
    },
    "the root": {"x-touches": "fs.read"},
    "a reference that is no pointer": {
        "properties": {"it": {"$ref": "#file"}},
        "$defs": {"file": {"$anchor": "file", **READS}},
    },
}


@pytest.mark.parametrize("schema", HIDDEN.values(), ids=HIDDEN)
def test_a_mark_that_no_call_can_be_read_by_counts_as_the_whole_scope(
    schema: dict[str, Any], folder: Path
) -> None:
    planned = plan({"type": "object", **schema}, "fs.read:./docs", "net.read:example.org")
    assert not planned.touches_nothing
    assert Capability("fs.read", "./docs") in list(planned.wholes([]))
    unscoped = plan({"type": "object", **schema})
    assert list(unscoped.wholes([])) == [Capability("fs.read")]
    assert not unscoped.touches_nothing


def test_something_touched_in_plain_sight_hides_no_mark_that_cannot_be_read(folder: Path) -> None:
    schema = {"type": "object", "properties": {"it": READS}, "additionalProperties": READS}
    planned = plan(schema, "fs.read:./docs")
    touched = planned.touched({"it": "a"}, str(folder), "")
    assert list(planned.wholes(touched)) == [Capability("fs.read", "./docs")]


ELSEWHERE: dict[str, dict[str, Any]] = {
    "additional properties": {"additionalProperties": {"$ref": "#/$defs/file"}},
    "properties by pattern": {"patternProperties": {"^x": {"$ref": "#/$defs/file"}}},
    "items by place": {
        "properties": {
            "it": {"$ref": "#/$defs/file"},
            "x": {"type": "array", "prefixItems": [{"$ref": "#/$defs/file"}]},
        }
    },
    "a condition": {"if": True, "then": {"properties": {"x": {"$ref": "#/$defs/file"}}}},
    "a reference by anchor": {
        "properties": {"it": {"$ref": "#/$defs/file"}, "x": {"$ref": "#file"}},
        "$defs": {"file": {"$anchor": "file", **READS}},
    },
    "a dynamic reference": {
        "properties": {"it": {"$ref": "#/$defs/file"}, "x": {"$dynamicRef": "#/$defs/file"}}
    },
}


@pytest.mark.parametrize("schema", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_mark_that_is_read_in_one_place_hides_not_in_another(schema: dict[str, Any], folder: Path) -> None:
    """The same definition is referred to from where calls are read, and from where they are not."""
    whole = {
        "type": "object",
        "properties": {"it": {"$ref": "#/$defs/file"}},
        "$defs": {"file": READS},
        **schema,
    }
    planned = plan(whole, "fs.read:./docs")
    touched = planned.touched({"it": "a"}, str(folder), "")
    assert list(planned.wholes(touched)) == [Capability("fs.read", "./docs")]
    for one in touched:
        one.close()


def test_a_property_that_bears_the_name_of_the_mark_counts_as_everything() -> None:
    planned = plan({"x-touches": {"type": "string"}})
    kinds = {capability.kind for capability in planned.wholes([])}
    assert kinds == {
        "fs.read", "fs.write", "net.read", "net.write", "db.read", "db.write", "process.spawn",
    }  # fmt: skip


def test_a_definition_that_is_itself_and_nothing_else_is_looked_at_once() -> None:
    circle = {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, READS]}}
    planned = plan(with_properties({"it": {"$ref": "#/$defs/a"}}, **{"$defs": circle}))
    assert list(planned.wholes([])) == [Capability("fs.read")]


def test_a_schema_without_marks_is_not_looked_through_without_end() -> None:
    assert plan({"type": "object", **twice({"type": "string"})}).touches_nothing


def test_a_tool_without_marks_and_capabilities_touches_nothing() -> None:
    assert plan({"it": {"type": "string"}}).touches_nothing
    assert not plan({"it": {"type": "string"}}, "fs.read:*").touches_nothing
    assert not plan({"it": READS}).touches_nothing


# --- what stays whole ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [{}, {"it": None}, {"many": []}], ids=["absent", "null", "an empty array"]
)
def test_a_call_that_names_nothing_takes_the_whole_of_the_requirement(
    arguments: dict[str, Any], folder: Path
) -> None:
    planned = plan({"it": READS, "many": {"type": "array", "items": READS}}, "fs.read:./docs", "db.read:x")
    touched = planned.touched(arguments, str(folder), "")
    assert touched == []
    assert list(planned.wholes(touched)) == [Capability("fs.read", "./docs"), Capability("db.read", "x")]


def test_a_call_that_names_something_leaves_the_other_kinds_whole(folder: Path) -> None:
    planned = plan({"it": READS}, "fs.read:./docs", "fs.write:./out")
    touched = planned.touched({"it": "a"}, str(folder), "")
    assert list(planned.wholes(touched)) == [Capability("fs.write", "./out")]


def test_the_whole_scope_of_each_kind(folder: Path) -> None:
    wholes = {
        "fs.read:a": f"{folder}/a",
        "fs.write:./new": f"{folder}/new",
        "process.spawn:program": f"{folder}/program",
        "net.read:*.example.org": "*.example.org",
        "db.write:sales": "sales",
    }
    for text, shown in wholes.items():
        whole = whole_scope(Capability.read(text), str(folder), str(folder))
        assert (whole.shown, whole.pointer, str(Capability.read(text).kind)) == (shown, "", whole.kind)
        whole.close()


@pytest.mark.parametrize("text", ["net.read:http://x/", "net.write:a b", "process.spawn:nothing"])
def test_a_whole_scope_that_nobody_can_grant_is_refused(text: str, folder: Path) -> None:
    with pytest.raises(TouchRefused):
        whole_scope(Capability.read(text), str(folder), str(folder))


# --- each form -----------------------------------------------------------------------------------


def marked(kind: str, form: str = "") -> dict[str, Any]:
    mark = {"kind": kind, "form": form} if form else kind
    return {"it": {"type": ["string", "array"], "items": {"type": "string"}, "x-touches": mark}}


FORMS: list[tuple[str, str, Any, str]] = [
    ("fs.read", "", "../ROOT/a", "ROOT/a"),
    ("fs.write", "", "new/./file", "ROOT/new/file"),
    ("net.read", "", "HTTPS://Example.ORG:443/path", "example.org"),
    ("net.write", "", "http://example.org:8080/", "example.org:8080"),
    ("net.read", "host", "EXAMPLE.org", "example.org"),
    ("net.read", "host", "[::1]:80", "[::1]:80"),
    ("process.spawn", "", ["program", "and", "more"], "ROOT/program"),
    ("process.spawn", "", "program", "ROOT/program"),
    ("db.read", "", "Sales", "Sales"),
]


@pytest.mark.parametrize(("kind", "form", "value", "shown"), FORMS)
def test_each_form_in_its_canonical_shape(kind: str, form: str, value: Any, shown: str, folder: Path) -> None:
    if isinstance(value, str):
        value = value.replace("ROOT", folder.name)
    planned = plan(marked(kind, form))
    pointer = "/it/0" if isinstance(value, list) else "/it"
    assert found(planned, folder, it=value) == [(kind, pointer, shown)]


def test_every_text_of_a_marked_array_is_touched(folder: Path) -> None:
    assert found(plan(marked("fs.read")), folder, it=["a", "b"]) == [
        ("fs.read", "/it/0", "ROOT/a"),
        ("fs.read", "/it/1", "ROOT/b"),
    ]


def test_of_a_command_only_the_program_is_touched(folder: Path) -> None:
    planned = plan(marked("process.spawn"))
    assert found(planned, folder, it=["program", "nothing"]) == [("process.spawn", "/it/0", "ROOT/program")]
    assert refused(planned, folder, it=[]) == ("/it", "a command without a program")


@pytest.mark.parametrize("value", [7, True, {"a": "a"}, [7]])
def test_only_text_names_something(value: Any, folder: Path) -> None:
    assert refused(plan(marked("fs.read")), folder, it=value) == (
        "/it",
        "only text can name what fs.read touches",
    )


def test_an_argument_of_another_shape_than_its_mark_touches_nothing(folder: Path) -> None:
    nested = {"it": {"type": ["array", "object"], "items": READS, "properties": {"x": READS}}}
    planned = plan(nested, "fs.read:./docs")
    assert found(planned, folder, it={"y": "a"}) == []
    assert found(planned, folder, it="a") == []
    assert list(planned.wholes([])) == [Capability("fs.read", "./docs")]


# --- what is wrong with a place is told by who may know ------------------------------------------


def test_a_missing_place_is_held_and_its_objection_kept_apart(folder: Path) -> None:
    (missing,) = plan({"it": READS}).touched({"it": "nothing"}, str(folder), "")
    assert (missing.shown, missing.objection) == (f"{folder}/nothing", "'nothing' does not exist")
    (written,) = plan(marked("fs.write")).touched({"it": "nothing"}, str(folder), "")
    assert written.objection == ""
    missing.close()
    written.close()


WAYS = {
    "b/../a": "'b/../a' has a parent that is not a folder",
    "circle/x": "'circle/x' is a symlink loop, or passes a kernel link such as /proc/self/root",
    "nowhere": "'nowhere' is a dangling symlink",
    "new/../x": "a path that does not exist yet cannot contain '..'",
}


@pytest.mark.parametrize("kind", ["fs.read", "fs.write"])
@pytest.mark.parametrize(("text", "objection"), WAYS.items())
def test_a_path_that_leads_nowhere_is_objected_to_at_the_deepest_place_there_is(
    text: str, objection: str, kind: str, folder: Path
) -> None:
    (folder / "circle").symlink_to("circle")
    (folder / "nowhere").symlink_to("nothing")
    (one,) = plan(marked(kind)).touched({"it": text}, str(folder), "")
    assert (one.shown, one.objection) == (f"{folder}/{text}", objection)
    one.close()


def test_a_pipe_is_objected_to(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for kind in ("fs.read", "fs.write"):
        (pipe,) = plan(marked(kind)).touched({"it": "pipe"}, str(folder), "")
        assert pipe.objection == "'pipe' is a device, a socket or a pipe"
        pipe.close()


# --- held open -----------------------------------------------------------------------------------


def test_what_was_found_is_let_go_when_something_else_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ResolvedPath, "__del__")
    planned = plan({"many": {"type": "array", "items": READS}})
    before = open_descriptors()
    with pytest.raises(TouchRefused):
        planned.touched({"many": ["a", "b", ""]}, str(folder), "")
    assert open_descriptors() == before


def test_a_replaced_file_is_found_out(folder: Path) -> None:
    (one,) = plan({"it": READS}).touched({"it": "a"}, str(folder), "")
    one.check_unchanged()
    (folder / "b").replace(folder / "a")
    with pytest.raises(TouchRefused) as caught:
        one.check_unchanged()
    assert (caught.value.pointer, caught.value.is_changed) == ("/it", True)
    one.close()


def test_what_is_no_place_never_changes(folder: Path) -> None:
    (one,) = plan(marked("db.read")).touched({"it": "sales"}, str(folder), "")
    one.check_unchanged()
    one.close()
    one.check_unchanged()


def test_content_is_read_from_the_very_file_that_was_checked(folder: Path) -> None:
    (one,) = plan({"it": READS}).touched({"it": "a"}, str(folder), "")
    (folder / "b").replace(folder / "a")
    assert one.content(5) == b"first"
    assert one.content(4) is None
    one.close()
    assert one.content(5) is None


@pytest.mark.parametrize(("text", "content"), [("new", b""), (".", None), ("pipe", None)])
def test_content_of_what_is_no_file(text: str, content: bytes | None, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (one,) = plan(marked("fs.write")).touched({"it": text}, str(folder), "")
    assert one.content(5) == content
    one.close()
    assert Touched("db.read", "", "sales").content(5) is None


def test_a_place_is_shown_by_its_real_path(folder: Path) -> None:
    (folder / "link").symlink_to("a")
    (one,) = plan({"it": READS}).touched({"it": "link"}, str(folder), "")
    assert isinstance(one.thing, ResolvedPath)
    assert repr(one) == f"<fs.read of '{folder}/a'>"
    one.close()


def test_a_parameter_that_alone_names_a_kind_leaves_nothing_to_touch_where_it_is_absent(folder: Path) -> None:
    alone = {"type": "string", "x-touches": {"kind": "fs.read", "only": True}}
    planned = plan({"it": alone}, "fs.read", "fs.write")
    assert list(planned.wholes([])) == [Capability("fs.write")]
    assert found(planned, folder, it="a") == [("fs.read", "/it", "ROOT/a")]


def test_what_cannot_be_read_from_a_call_counts_as_touched_whatever_another_parameter_says() -> None:
    alone = {"type": "string", "x-touches": {"kind": "fs.read", "only": True}}
    hidden = {"type": "object", "additionalProperties": READS}
    assert list(plan({"it": alone, "more": hidden}, "fs.read").wholes([])) == [Capability("fs.read")]


# --- what a tool does without --------------------------------------------------------------------

ANY_PROGRAM: dict[str, Any] = {
    "capabilities": ["fs.read", "fs.write", "process.spawn"],
    "constraints": {"required_isolation": "strict"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"constraints": {"required_isolation": "standard"}},
        {"constraints": {}},
        {"client_executed": True},
        {"source": {"kind": "mcp", "origin": "files"}},
        {"capabilities": ["fs.read", "fs.write", "process.spawn:/bin/ls"]},
        {"capabilities": ["fs.read", "fs.write"]},
    ],
)
def test_only_a_confined_tool_that_starts_any_program_does_without_writing(change: dict[str, Any]) -> None:
    assert TouchPlan(made(**ANY_PROGRAM)).dispensable == {"fs.write"}
    assert TouchPlan(made(**{**ANY_PROGRAM, **change})).dispensable == frozenset()
