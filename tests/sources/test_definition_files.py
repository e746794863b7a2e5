"""Definitions from JSON and YAML files, and what is said about files that are wrong."""

import json
from pathlib import Path

import pytest

from toolkeep import Code, ToolDefinition
from toolkeep.errors import DefinitionInvalid, FileUnreadable
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.sources.definition_files import load_definitions, read_data, usable

ONE = '{"name": "a", "description": "A."}'
A = ToolDefinition(name="a", description="A.")
B = ToolDefinition(name="b", description="B.")


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def unreadable(path: Path) -> FileUnreadable:
    with pytest.raises(FileUnreadable) as caught:
        load_definitions(path)
    assert caught.value.code is Code.FILE_UNREADABLE
    assert caught.value.path == str(path)
    return caught.value


@pytest.mark.spec("DEF-9")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("one.json", f'[{ONE}, {{"name": "b", "description": "B."}}]'),
        ("tools.json", f'{{"tools": [{ONE}, {{"name": "b", "description": "B."}}]}}'),
        ("list.yaml", "- {name: a, description: A.}\n- name: b\n  description: B.\n"),
        ("tools.yml", "tools:\n  - {name: a, description: A.}\n  - {name: b, description: B.}\n"),
        ("UPPER.YAML", "- {name: a, description: A.}\n- {name: b, description: B.}\n"),
    ],
)
def test_a_file_holds_a_list_or_an_object_with_tools(tmp_path: Path, name: str, content: str) -> None:
    loaded = load_definitions(write(tmp_path, name, content))
    assert [entry.name for entry in loaded] == ["a", "b"]
    assert list(usable(loaded)) == [A, B]


@pytest.mark.spec("DEF-9")
@pytest.mark.parametrize(("name", "content"), [("a.json", ONE), ("a.yaml", "name: a\ndescription: A.\n")])
def test_a_file_holds_one_definition(tmp_path: Path, name: str, content: str) -> None:
    assert list(usable(load_definitions(write(tmp_path, name, content)))) == [A]


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"metadata": {"z": 1, "a": 2, "m": 3}}'),
        ("a.yaml", "metadata:\n  z: 1\n  a: 2\n  m: 3\n"),
    ],
)
def test_the_order_of_keys_is_kept(tmp_path: Path, name: str, content: str) -> None:
    assert list(read_data(write(tmp_path, name, content))["metadata"]) == ["z", "a", "m"]


def test_aliases_of_yaml_are_written_out(tmp_path: Path) -> None:
    data = read_data(write(tmp_path, "a.yaml", "base: &base {x: 1}\nall: [*base, *base]\n"))
    assert data == {"base": {"x": 1}, "all": [{"x": 1}, {"x": 1}]}
    assert data["all"][0] is not data["all"][1]


@pytest.mark.parametrize("word", ["yes", "no", "on", "off"])
def test_words_that_old_yaml_took_for_booleans_are_text(tmp_path: Path, word: str) -> None:
    assert read_data(write(tmp_path, "a.yaml", f"value: {word}\n")) == {"value": word}


@pytest.mark.spec("VAL-4")
def test_a_definition_that_cannot_be_used_does_not_keep_the_others_from_loading(tmp_path: Path) -> None:
    content = f'[{ONE}, 5, {{"name": "bad", "danger": "deadly"}}, {{"name": 7}}]'
    loaded = load_definitions(write(tmp_path, "a.json", content))
    assert [entry.name for entry in loaded] == ["a", "#2", "bad", "#4"]
    assert list(usable(loaded)) == [A]
    assert [type(entry.error) for entry in loaded] == [type(None), *[DefinitionInvalid] * 3]


@pytest.mark.spec("DEF-2")
def test_a_file_cannot_claim_that_its_tools_come_from_elsewhere(tmp_path: Path) -> None:
    content = '{"name": "Odd-Name", "description": "A.", "source": {"kind": "mcp"}}'
    (entry,) = load_definitions(write(tmp_path, "a.json", content))
    assert entry.definition is None
    assert isinstance(entry.error, DefinitionInvalid)
    assert [problem.field for problem in entry.error.problems] == ["source"]


@pytest.mark.parametrize(
    ("name", "content", "line", "column"),
    [
        ("a.json", '{"name": "a",\n  "description": }', 2, 18),
        ("a.json", '{"name": "a"', 1, 13),
        ("a.json", ONE + "\n// done", 2, 1),
        ("a.json", "", 1, 1),
        ("a.json", "\ufeff{}", 1, 1),
        ("a.yaml", "name: a\n  bad: [\n", 2, 6),
        ("a.yaml", "name: [a\n", 2, 1),
        ("a.yaml", "name: a\ntools: *nobody\n", 2, 8),
        ("a.yaml", "name: a\nname: b\n", 2, 1),
        ("a.yaml", "name: !!python/object/apply:os.system [ls]\n", 1, 7),
        ("a.yaml", "name: a\n---\nname: b\n", 2, 1),
    ],
)
def test_a_bad_file_says_line_and_column(
    tmp_path: Path, name: str, content: str, line: int, column: int
) -> None:
    path = write(tmp_path, name, content)
    error = unreadable(path)
    assert (error.line, error.column) == (line, column)
    assert error.message.startswith(f"{path}:{line}:{column}: ")


@pytest.mark.spec("VAL-2")
@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (
            '{"name": "a",\n "name": "b"}',
            "2:2",
            "the key name is written twice, first at line 1, column 2; keep one of the two",
        ),
        (
            '{"y": [{"x": 0}, {"x": 1, "\\u0078": 2}]}',
            "1:27",
            "the key x is written twice, first at line 1, column 19; keep one of the two",
        ),
        ('{"x": NaN}', "1:7", "NaN is not JSON; write a finite number or null"),
        ('{"x":\r\n  -Infinity}', "2:3", "-Infinity is not JSON; write a finite number or null"),
        ('{"a": {"x": 1}, "x": NaN}', "1:22", "NaN is not JSON; write a finite number or null"),
        ('{"x": 1e400}', "1:7", "a number is beyond 1.8e308; write a smaller one"),
        ('{"x": "[", "y": -1.5E+400}', "1:17", "a number is beyond 1.8e308; write a smaller one"),
        ("[" + "1" * 4301 + "]", "1:2", "an integer has more than 4300 digits; write a shorter one"),
        (
            '{"x": "\\ud800"}',
            "1:7",
            "a \\u escape is half of a surrogate pair; escape both halves",
        ),
        (b'{"\xc3\xa9": "\xff"}', "1:8", "the byte 0xFF is not UTF-8; save the file as UTF-8"),
        ("[" * 101 + "]" * 101, "1:101", "is nested deeper than 100; write flatter data"),
        ("[" * 50_000 + "]" * 50_000, "1:101", "is nested deeper than 100; write flatter data"),
        ("[1,\n]", "1:3", "is not JSON; remove the trailing comma"),
        ('{"x": 1 , \n}', "1:9", "is not JSON; remove the trailing comma"),
        ("[,]", "1:2", "is not JSON; check quotes, commas and brackets here"),
        ("[1, // one\n2]", "1:5", "is not JSON; remove the comment, JSON has none"),
        ("['a']", "1:2", "is not JSON; use double quotes"),
        ("[1 2]", "1:4", "is not JSON; check quotes, commas and brackets here"),
        ('["a"', "1:5", "is not JSON; the file ends too early: close every bracket and string"),
        (" \n", "2:1", "is not JSON; the file is empty"),
        ("\ufeff[]", "1:1", "is not JSON; save the file without a byte order mark"),
    ],
)
def test_json_is_read_strictly_and_its_faults_have_a_place(
    tmp_path: Path, content: str | bytes, place: str, reason: str
) -> None:
    path = write(tmp_path, "a.json", content)
    assert unreadable(path).message == f"{path}:{place}: {reason}"


def test_a_key_is_shown_without_what_could_deceive(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{"a\\u202e": 1, "a\\u202e": 2}')
    assert "the key a\\u202e is written twice" in unreadable(path).message


@pytest.mark.parametrize("value", ['{"x": [{}, {"x": 1}], "y": "\\ud83d\\ude00"}', "[" * 100 + "]" * 100])
def test_json_that_looks_alike_is_read(tmp_path: Path, value: str) -> None:
    assert read_data(write(tmp_path, "a.json", value)) == json.loads(value)


@pytest.mark.parametrize(
    ("value", "column"),
    [
        (".nan", 10),
        ("-.inf", 10),
        ("!!binary aGVsbG8=", 10),
        ("!!timestamp 2024-02-29", 10),
        ("!!set {a, b}", 10),
        ("{1: a}", 11),
        ("{null: a}", 11),
        ("{<<: {}}", 11),
    ],
)
def test_yaml_that_is_not_json_is_refused_with_its_place(tmp_path: Path, value: str, column: int) -> None:
    file = write(tmp_path, "a.yaml", f"name: a\nmetadata:\n  value: {value}\n")
    assert unreadable(file).message.startswith(f"{file}:3:{column}: ")


@pytest.mark.parametrize("date", ["2024-02-29", "2024-02-29T10:00:00Z"])
def test_a_date_is_text(tmp_path: Path, date: str) -> None:
    assert read_data(write(tmp_path, "a.yaml", f"value: {date}\n")) == {"value": date}


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    unreadable(write(tmp_path, "bomb.yaml", "\n".join(lines)))


@pytest.mark.parametrize("content", ["a: &a [*a]\n", "a: &a {again: *a}\n", "[" * 5000 + "]" * 5000])
def test_yaml_without_end_or_nested_too_deep_is_refused(tmp_path: Path, content: str) -> None:
    unreadable(write(tmp_path, "deep.yaml", content))


@pytest.mark.parametrize("content", [b"name: \xff\n", "name: \x00\n"])
def test_yaml_that_is_no_text_is_refused(tmp_path: Path, content: str | bytes) -> None:
    unreadable(write(tmp_path, "a.yaml", content))


@pytest.mark.parametrize(
    "content",
    ["tool_registry: {custom_tools: []}", "tools: {custom: []}", "agents: {}", "policies: [a.cedar]"],
)
def test_a_configuration_is_no_file_of_definitions(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, "config.yml", content)
    assert unreadable(path).message == (
        f"{path}: is a configuration, not a file of definitions; its tools are known in its project without it"
    )


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", '"a"'), ("a.json", "5"), ("a.yaml", ""), ("a.yaml", "a")]
)
def test_a_file_without_definitions_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path, name, content)
    assert unreadable(path).message == (
        f"{path}: holds no definition; expected an object, a list, or an object with 'tools'"
    )


@pytest.mark.parametrize("name", ["missing.json", "missing.yaml"])
def test_a_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    error = unreadable(tmp_path / name)
    assert error.message == f"{tmp_path / name}: No such file or directory"
    assert (error.line, error.column) == (None, None)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert unreadable(tmp_path).message == f"{tmp_path}: Is a directory"


def test_a_file_that_is_too_big_is_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, "big.json", b" " * (DEFINITION_FILE_BYTES + 1))
    assert unreadable(path).message == f"{path}: is over {DEFINITION_FILE_BYTES} bytes"
