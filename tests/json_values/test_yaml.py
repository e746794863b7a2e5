"""Strict YAML: what it means, where each value stands, and what is refused with which place."""

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.errors import Code, FileUnreadable
from toolkeep.json_values import yaml as documents
from toolkeep.json_values.yaml import Document, Place, ScalarRefused, plain_scalar, read_yaml
from toolkeep.limits import DEFINITION_FILE_BYTES, DEFINITION_FILE_NODES


def read(content: str | bytes) -> Document:
    return read_yaml(content if isinstance(content, bytes) else content.encode(), "f.yml")


def refusal(content: str | bytes) -> str:
    with pytest.raises(FileUnreadable) as caught:
        read(content)
    error = caught.value
    assert error.code is Code.FILE_UNREADABLE
    assert error.__cause__ is None
    assert error.message.startswith(f"{error.path}:{error.line}:{error.column}: ")
    return error.message.removeprefix("f.yml:")


@pytest.fixture
def without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")


# --- scalars -------------------------------------------------------------------------------------

SCALARS: list[tuple[str, Any]] = [
    ("", None),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("False", False),
    ("FALSE", False),
    ("0", 0),
    ("-19", -19),
    ("+12", 12),
    ("010", 10),
    ("0o14", 12),
    ("0xfF", 255),
    ("9" * 4300, int("9" * 4300)),
    ("1.0", 1.0),
    ("1.", 1.0),
    (".5", 0.5),
    ("-.5", -0.5),
    ("1e3", 1000.0),
    ("+12.5E-1", 1.25),
    *[
        (text, text)
        for text in (
            "yes", "no", "on", "off", "y", "tRUE", "nULL", "1.0.0", "v1", "2024-02-29", "2024-02-29T10:00:00Z",
            "12:30:45", "1_000", "0b1", "0o8", "0xg", "-0x1", "-0o7", "1e", "e3", "--1", ".", "..", "1.5.", "inf",
            "nan", "-.nan", ".Nan", ".iNF", "1,000", "²", "१२",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_plain_scalar_means_what_the_core_schema_says(text: str, value: Any) -> None:
    for found in (plain_scalar(text), read(f"a: {text}\n").data["a"]):
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("text", ["-", "- 1", "a b"])
def test_text_stays_text(text: str) -> None:
    assert plain_scalar(text) == text


@pytest.mark.parametrize("style", ["'{}'", '"{}"', "|-\n  {}", ">-\n  {}", "!!str {}"])
def test_quoted_block_and_tagged_text_is_text(style: str) -> None:
    for text in [*(text for text, _ in SCALARS), ".nan", "-.inf", "1e999", "1" * 5000, "<<"]:
        assert read("a: " + style.format(text)).data == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!int 5", 5),
        ('!!int "0x10"', 16),
        ("!!float 1", 1.0),
        ("!!float 1.5", 1.5),
        ("!!bool true", True),
        ("!!null ''", None),
        ("!!map {a: 1}", {"a": 1}),
        ("!!seq [1]", [1]),
        ("!<tag:yaml.org,2002:str> 5", "5"),
    ],
)
def test_a_core_tag_that_fits_is_allowed(text: str, value: Any) -> None:
    found = read(text).data
    assert (type(found), found) == (type(value), value)


NOT_FINITE = [".inf", "-.inf", "+.Inf", ".INF", ".nan", ".NaN", ".NAN"]


@pytest.mark.parametrize("text", NOT_FINITE)
def test_a_number_that_is_not_finite_is_refused(text: str) -> None:
    reason = f"{text} is not a number that JSON has; write a finite one, or text in quotes"
    assert refusal(f"a:\n - {text}\n") == f"2:4: {reason}"
    with pytest.raises(ScalarRefused, match="write a finite one"):
        plain_scalar(text)


@pytest.mark.parametrize("text", ["1" * 4301, "-" + "1" * 4301, "0x1" + "0" * 3600, "0o1" + "0" * 4800])
@pytest.mark.parametrize("tag", ["", "!!int "])
def test_an_integer_that_python_could_not_show_is_refused(tag: str, text: str) -> None:
    reason = "an integer has more than 4300 digits; write a shorter one, or text in quotes"
    assert refusal(f"a: {tag}{text}") == f"1:4: {reason}"


@pytest.mark.parametrize("text", ["1e309", "-1e309", "!!float 1e309", "!!float 1" + "0" * 309])
def test_a_number_beyond_a_float_is_refused(text: str) -> None:
    assert refusal(f"a: {text}") == "1:4: a number is beyond 1.8e308; write a smaller one, or text in quotes"


# --- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "\n", "# nothing\n", "---\n", "---\n...\n", "\ufeff", "~"])
def test_a_file_without_data_is_null(content: str) -> None:
    document = read(content)
    assert document.data is None
    assert document.place("/a/b").path == "f.yml"


def test_an_empty_file_begins_at_its_beginning() -> None:
    assert str(read("").place("/a")) == "f.yml:1:1"


@pytest.mark.parametrize(
    "content", ["\ufeffa: 1\n", "--- # c\na: 1\n...\n# end\n", "a: 1", "? a\n: 1\n", "{a: 1,}"]
)
def test_one_document_is_read(content: str) -> None:
    assert read(content).data == {"a": 1}


def test_a_byte_order_mark_moves_no_place() -> None:
    assert read("\ufeffa: 1\n").place("/a") == Place("f.yml", 1, 4)


def test_a_merge_sign_in_quotes_is_a_key() -> None:
    assert read("'<<': 1").data == {"<<": 1}


def test_the_order_of_keys_is_kept() -> None:
    assert list(read("z: 1\na: 2\nm: 3\n").data) == ["z", "a", "m"]


def test_an_alias_is_a_copy() -> None:
    data = read("base: &b {x: [1]}\nall: [*b, *b, {y: *b}]\ntext: &t hi\nagain: *t\n").data
    assert data == {
        "base": {"x": [1]},
        "all": [{"x": [1]}, {"x": [1]}, {"y": {"x": [1]}}],
        "text": "hi",
        "again": "hi",
    }
    data["base"]["x"].append(2)
    data["all"][0]["x"].append(3)
    assert data["all"][1:] == [{"x": [1]}, {"y": {"x": [1]}}]


def test_the_anchor_of_a_key_can_be_repeated_as_a_value() -> None:
    assert read("&k name: 1\nkey: *k\n").data == {"name": 1, "key": "name"}


# Written raw, YAML folds these or does not take them; `json.dumps` escapes them only when it escapes all.
_UNWRITABLE = "".join(map(chr, (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)))


def _json(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    scalars = (
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=20,
    )


def _is_number_only_since_1_2(text: str) -> bool:
    """Text that PyYAML, which writes YAML 1.1, leaves without quotes, and that is a number to us."""
    return yaml.safe_dump(text)[0] not in "'\"" and _is_refused_or_number(text)


def _is_refused_or_number(text: str) -> bool:
    try:
        return not isinstance(plain_scalar(text), str)
    except ScalarRefused:
        return True


LOOKALIKES = st.sampled_from([text for text, _ in SCALARS if len(text) < 100]) | st.text(
    "-+.0189eExoaf_:", max_size=6
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | LOOKALIKES
WRITABLE = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_UNWRITABLE), max_size=40)
    | LOOKALIKES
)
BASIC_PLANE = (
    st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=40) | LOOKALIKES
)


@pytest.mark.parametrize("text", ["0o14", "1e3", "08"])
def test_a_number_of_yaml_1_2_alone_is_a_number(text: str) -> None:
    assert _is_number_only_since_1_2(text)
    assert read(yaml.safe_dump([text])).data != [text]


@given(
    _json(ANY_TEXT.filter(lambda text: not _is_number_only_since_1_2(text))),
    st.sampled_from([True, False, None]),
)
def test_what_safe_dump_writes_reads_back_equal(value: Any, flow: bool | None) -> None:
    written = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False)
    assert _exact(read(written).data) == _exact(value)


@given(_json(WRITABLE.filter(lambda text: not _is_number_only_since_1_2(text))))
def test_what_safe_dump_writes_in_unicode_reads_back_equal(value: Any) -> None:
    written = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    assert _exact(read(written).data) == _exact(value)


@given(_json(WRITABLE))
def test_what_json_writes_in_unicode_reads_back_equal(value: Any) -> None:
    assert _exact(read(json.dumps(value, ensure_ascii=False)).data) == _exact(value)


@given(_json(BASIC_PLANE), st.sampled_from([None, 2]))
def test_what_json_writes_in_ascii_reads_back_equal(value: Any, indent: int | None) -> None:
    assert _exact(read(json.dumps(value, indent=indent)).data) == _exact(value)


def _exact(value: Any) -> str:
    """Equal only where types and the order of keys are."""
    return repr(value)


@given(
    st.binary(max_size=200) | st.text("ab:-?[]{},&*!|>'\"%@#\\ \t\n\r.~1u0dU<", max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused_with_a_place(raw: bytes) -> None:
    try:
        document = read_yaml(raw, "f.yml")
    except FileUnreadable as error:
        assert error.line is not None
        assert error.column is not None
    else:
        json.dumps(document.data, allow_nan=False).encode()


# --- places --------------------------------------------------------------------------------------

NESTED = """\
# tools
tools:
  - name: a
    tags: [x, "y", {deep: 1}]
    text: |
      one
      two
    folded: "one
      two"
  -
    name: b
    a/b: 1
    m~n: 2
    none:
    "": empty
"""

PLACES = [
    ("", (2, 1), (2, 1), False),
    ("/tools", (3, 3), (2, 1), False),
    ("/tools/0", (3, 5), (3, 5), False),
    ("/tools/0/name", (3, 11), (3, 5), True),
    ("/tools/0/tags", (4, 11), (4, 5), False),
    ("/tools/0/tags/0", (4, 12), (4, 12), True),
    ("/tools/0/tags/1", (4, 15), (4, 15), False),
    ("/tools/0/tags/2", (4, 20), (4, 20), False),
    ("/tools/0/tags/2/deep", (4, 27), (4, 21), True),
    ("/tools/0/text", (5, 11), (5, 5), False),
    ("/tools/0/folded", (8, 13), (8, 5), False),
    ("/tools/1", (11, 5), (11, 5), False),
    ("/tools/1/name", (11, 11), (11, 5), True),
    ("/tools/1/a~1b", (12, 10), (12, 5), True),
    ("/tools/1/m~0n", (13, 10), (13, 5), True),
    ("/tools/1/none", (14, 10), (14, 5), True),
    ("/tools/1/", (15, 9), (15, 5), True),
]


@pytest.mark.parametrize(("pointer", "value", "key", "is_plain"), PLACES)
def test_each_value_and_key_has_its_place(
    pointer: str, value: tuple[int, int], key: tuple[int, int], is_plain: bool
) -> None:
    document = read(NESTED)
    assert document.place(pointer) == Place("f.yml", *value)
    assert document.key_place(pointer) == Place("f.yml", *key)
    assert document.is_plain(pointer) is is_plain


@pytest.mark.parametrize(
    ("pointer", "ancestor"),
    [
        ("/nothing", ""),
        ("/nothing/below", ""),
        ("/tools/2", "/tools"),
        ("/tools/-", "/tools"),
        ("/tools/00", "/tools"),
        ("/tools/-1", "/tools"),
        ("/tools/²", "/tools"),
        ("/tools/" + "9" * 5000, "/tools"),
        ("/tools/0/name/x", "/tools/0/name"),
        ("/tools/0/absent", "/tools/0"),
        ("no pointer", ""),
    ],
)
def test_what_does_not_exist_has_the_place_of_its_nearest_ancestor(pointer: str, ancestor: str) -> None:
    document = read(NESTED)
    assert document.place(pointer) == document.key_place(pointer) == document.place(ancestor)
    assert not document.is_plain(pointer) or pointer == "no pointer"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_places_are_the_same_for_every_end_of_line(end: str) -> None:
    document = read(NESTED.replace("\n", end))
    assert document.place("/tools/1/name") == Place("f.yml", 11, 11)


def test_columns_count_characters() -> None:
    document = read("é: {日本: 😀, next: 1}\n")
    assert document.place("/é/next") == Place("f.yml", 1, 18)
    assert document.key_place("/é/next") == Place("f.yml", 1, 12)


def test_an_alias_has_its_own_place_and_its_members_that_of_the_anchor() -> None:
    document = read("base: &b {x: 1}\nagain: *b\nq: &q 'x'\nr: *q\np: &p x\ns: *p\n")
    assert document.place("/base") == Place("f.yml", 1, 7)
    assert document.place("/again") == Place("f.yml", 2, 8)
    assert document.key_place("/again") == Place("f.yml", 2, 1)
    assert document.place("/again/x") == Place("f.yml", 1, 14)
    assert [document.is_plain(pointer) for pointer in ("/again", "/r", "/s")] == [False, False, True]


def test_a_tagged_scalar_is_not_plain() -> None:
    assert not read("a: !!str ${X}\n").is_plain("/a")


def test_a_place_reads_as_editors_expect_it() -> None:
    assert str(Place("a b.yml", 3, 14)) == "a b.yml:3:14"


# --- refusals ------------------------------------------------------------------------------------

TAG = "is unknown or does not match the value after it; remove it, or put text that starts with ! in quotes"
DEEP = "lists and objects are nested deeper than 100; write flatter data"
CONTAINER_KEY = (
    "a list or an object cannot be a key; write the key as text, in quotes where it starts with a bracket"
)
DIRECTIVE = "lines that start with % are not read; remove it, every file is YAML 1.2"
SECOND = "a second document starts here; keep one document in a file"
WIDE = "is in UTF-16 or UTF-32; save it as UTF-8"


def unprintable(code: str) -> str:
    return f"the character U+{code} may not stand in YAML; remove it, or write \\u{code} in double quotes"


REFUSED: list[tuple[str | bytes, str]] = [
    # keys
    ("a: 1\nb: 2\na: 3\n", "3:1: the key a is written twice, first at line 1, column 1; keep one of the two"),
    ("x: {a: 1, 'a': 2}", "1:11: the key a is written twice, first at line 1, column 5; keep one of the two"),
    ("a: &a {b: 1}\nc: *a\na: 1", "3:1: the key a is written twice, first at line 1, column 1; keep one of the two"),
    (
        '"\\u202e": 1\n"\\u202e": 2',
        "2:1: the key \\u202e is written twice, first at line 1, column 1; keep one of the two",
    ),
    ("a:\n  1: x", "2:3: the key 1 is not text; write it in quotes"),
    ("1.5: x", "1:1: the key 1.5 is not text; write it in quotes"),
    ("true: x", "1:1: the key true is not text; write it in quotes"),
    ("{null: x}", "1:2: the key null is not text; write it in quotes"),
    ("{~: x}", "1:2: the key ~ is not text; write it in quotes"),
    ("? \n: x", "1:2: the key is empty; write it in quotes"),
    (".nan: x", "1:1: .nan is not a number that JSON has; write a finite one, or text in quotes"),
    ("? [a]\n: x", f"1:3: {CONTAINER_KEY}"),
    ("a: {{ name }}", f"1:5: {CONTAINER_KEY}"),
    ("- &k x\n- {*k : 1}", "2:4: the alias *k cannot be a key; write the key out"),
    ("a: &a {x: 1}\nb:\n  <<: *a", "3:3: merge keys (<<) are not read; write the keys out"),
    # tags
    ("a: !!python/object/apply:os.system [ls]", f"1:4: the tag !!python/object/apply:os.system {TAG}"),
    ("a: !!python/name:os.system ''", f"1:4: the tag !!python/name:os.system {TAG}"),
    ("- !include x.yml", f"1:3: the tag !include {TAG}"),
    ("- !mine {a: 1}", f"1:3: the tag !mine {TAG}"),
    ("- ! 12", f"1:3: the tag ! {TAG}"),
    ("- !<tag:x.org,2000:y> 12", f"1:3: the tag tag:x.org,2000:y {TAG}"),
    ("- !%E2%80%AE x", f"1:3: the tag !\\u202e {TAG}"),
    ("- !!binary aGk=", f"1:3: the tag !!binary {TAG}"),
    ("- !!timestamp 2024-02-29", f"1:3: the tag !!timestamp {TAG}"),
    ("- !!set {a, b}", f"1:3: the tag !!set {TAG}"),
    ("- !!omap [a: 1]", f"1:3: the tag !!omap {TAG}"),
    ("- !!int x", f"1:3: the tag !!int {TAG}"),
    ("- !!int true", f"1:3: the tag !!int {TAG}"),
    ("- !!float x", f"1:3: the tag !!float {TAG}"),
    ("- !!bool yes", f"1:3: the tag !!bool {TAG}"),
    ("- !!null x", f"1:3: the tag !!null {TAG}"),
    ("- !!str [x]", f"1:3: the tag !!str {TAG}"),
    ("- !!map [x]", f"1:3: the tag !!map {TAG}"),
    ("- !!seq {x: 1}", f"1:3: the tag !!seq {TAG}"),
    ("- !!seq x", f"1:3: the tag !!seq {TAG}"),
    ("!!int a: 1", f"1:1: the tag !!int {TAG}"),
    ("- !e!x a", "1:3: found undefined tag handle; put text that starts with ! in quotes"),
    ("- !%ED%A0%80 a", "1:1: what follows here is not YAML"),
    # documents and directives
    ("a: 1\n---\nb: 2\n", f"2:1: {SECOND}"),
    ("--- a\n--- b\n", f"2:1: {SECOND}"),
    ("a: 1\n---\n", f"2:1: {SECOND}"),
    ("a: 1\n...\nb: 2\n", "3:1: did not find expected <document start>; keep one document in a file"),
    ("%YAML 1.1\n---\na: 1\n", f"1:1: {DIRECTIVE}"),
    ("# x\n\n%TAG ! tag:x.org,2000:\n---\na: 1\n", f"3:1: {DIRECTIVE}"),
    ("é: 1\r\n... # x\r\n...\r\n%YAML 1.2\r\n---\r\n", f"4:1: {DIRECTIVE}"),
    ("a: 1\n%YAML 1.2\n---\n", f"2:1: {DIRECTIVE}"),
    # aliases
    ("a: *nobody\n", "1:4: nothing before this has the anchor &nobody; put text that starts with * in quotes, or write the value out"),
    ("a: *b\nb: &b 1\n", "1:4: nothing before this has the anchor &b; put text that starts with * in quotes, or write the value out"),
    ("a: &a [*a]\n", "1:8: the alias *a is inside its own value; write the value out"),
    ("a: &a {b: {c: *a}}\n", "1:15: the alias *a is inside its own value; write the value out"),
    ("a: &a 1\nb: &a 2\n", "2:4: the anchor &a is written twice; give this one another name"),
    ("a: &a [&a 1]\n", "1:8: the anchor &a is written twice; give this one another name"),
    # nesting
    ("[" * 101 + "]" * 101, f"1:101: {DEEP}"),
    ("[" * 100_000, f"1:101: {DEEP}"),
    ("- " * 100_000, f"1:201: {DEEP}"),
    ("{a: " * 100_000, f"1:401: {DEEP}"),
    ("? " * 100_000, f"1:3: {CONTAINER_KEY}"),
    (f"- &a {'[' * 60}{']' * 60}\n- {'[' * 40}*a{']' * 40}\n", f"2:43: {DEEP}"),
    # encodings
    (b"a: 1\nb: \xff\n", "2:4: the byte 0xFF is not UTF-8; save the file as UTF-8"),
    (b"\xef\xbb\xbf\xc3\xa9: \xc3(\n", "1:4: the byte 0xC3 is not UTF-8; save the file as UTF-8"),
    (b"a: \xed\xa0\x80\n", "1:4: the byte 0xED is not UTF-8; save the file as UTF-8"),
    (b"\x89PNG\r\n\x1a\n\0\0", "1:1: the byte 0x89 is not UTF-8; save the file as UTF-8"),
    ("a: 1\n".encode("utf-16"), f"1:1: {WIDE}"),
    ("a: 1\n".encode("utf-16-le"), f"1:1: {WIDE}"),
    ("a: 1\n".encode("utf-16-be"), f"1:1: {WIDE}"),
    (b"\xfe\xff" + "a: 1\n".encode("utf-16-be"), f"1:1: {WIDE}"),
    ("a: 1\n".encode("utf-32"), f"1:1: {WIDE}"),
    (b"\0\0\xfe\xff" + "a: 1\n".encode("utf-32-be"), f"1:1: {WIDE}"),
    # characters
    ("a: 1\nb: x\0y\n", f"2:5: {unprintable('0000')}"),
    ("a: 1\rb: \0\n", f"2:4: {unprintable('0000')}"),
    (b"\0", f"1:1: {unprintable('0000')}"),
    (b"\x7fELF\x02\x01\x01", f"1:1: {unprintable('007F')}"),
    ("a: '\x1b[31m'\n", f"1:5: {unprintable('001B')}"),
    ("a: x\x85y\n", f"1:5: {unprintable('0085')}"),
    ("# \u2028\n", f"1:3: {unprintable('2028')}"),
    ("a: x\u2029y\n", f"1:5: {unprintable('2029')}"),
    ("a: \ufeff1\n", f"1:4: {unprintable('FEFF')}"),
    ("a: \uffff\n", f"1:4: {unprintable('FFFF')}"),
    (
        'a: "\\uD800"',
        "1:7: found invalid Unicode character escape code; write the character itself, or \\U and eight digits",
    ),
    (
        'a: "\\ud83d\\ude00"',
        "1:7: found invalid Unicode character escape code; write the character itself, or \\U and eight digits",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=lambda value: repr(value)[:40])
def test_what_is_not_plain_data_is_refused_with_its_place(content: str | bytes, message: str) -> None:
    assert refusal(content) == message


QUOTES = "put text that holds a colon in quotes, or fix the indentation"
INDENT = "fix the indentation, or the quotes before this"
TABS = "indent with spaces, not with tabs"

MALFORMED = [
    ("a:\n\tb: 1\n", f"2:1: found character that cannot start any token; {TABS}"),
    ("a: 1\n\tb: 2\n", f"2:1: found a tab character that violates indentation; {TABS}"),
    ("a: |\n\tx\n", f"2:1: found a tab character where an indentation space is expected; {TABS}"),
    ("a: @x\n", "1:4: found character that cannot start any token; put text that starts with @ in quotes"),
    ("a: [1\n", "2:1: did not find expected ',' or ']'; close the [ of line 1, column 4, or put a comma before this"),
    ("a: {b: 1\n", "2:1: did not find expected ',' or '}'; close the { of line 1, column 4, or put a comma before this"),
    ("a: 'x\n", "2:1: found unexpected end of stream; close the quote of line 1, column 4"),
    ('a: "x\n---\n', "2:1: found unexpected document indicator; close the quote of line 1, column 4"),
    ("a: b: c\n", f"1:5: mapping values are not allowed in this context; {QUOTES}"),
    ("a: 1\n  b: 2\n", f"2:4: mapping values are not allowed in this context; {QUOTES}"),
    ("a:\n    b: 1\n  c: 2\n", f"3:3: did not find expected key; {INDENT}"),
    ("a: 'it's'\n", f"1:8: did not find expected key; {INDENT}"),
    ("- a\nb: 1\n", "2:1: did not find expected '-' indicator; start each item of the list of line 1, column 1 with - in the same column"),
    ("a: 1\nb\nc: 2\n", "3:1: could not find expected ':'; write a colon and a space after the key of line 2, column 1, or fix the indentation"),
    ("a: *.py\n", "1:5: did not find expected alphabetic or numeric character; put text that starts with * or & in quotes"),
    ("a: ]\n", "1:4: did not find expected node content; write a value here, or put text that starts with a bracket or comma in quotes"),
    ("a: - b\n", "1:4: block sequence entries are not allowed in this context; start the list on a line of its own, or put the text in quotes"),
    ('a: "C:\\dir"\n', "1:7: found unknown escape character; write \\\\ for a backslash, or use single quotes"),
    ("a: |x\n", "1:5: did not find expected comment or line break; start the text on the next line"),
    ('a: "\\xZZ"\n', "1:7: did not find expected hexdecimal number"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), MALFORMED)
def test_what_is_not_yaml_is_refused_with_its_place_and_advice(content: str, message: str) -> None:
    assert refusal(content) == message


def test_a_long_key_is_cut_in_a_message() -> None:
    key = "k" * 500
    assert len(refusal(f"{key}: 1\n{key}: 2\n")) < 200


@pytest.mark.parametrize(
    "content", ["[" * 100 + "]" * 100, f"- &a {'[' * 60}{']' * 60}\n- {'[' * 39}*a{']' * 39}\n"]
)
def test_a_hundred_levels_are_read(content: str) -> None:
    assert json.dumps(read(content).data).count("[") >= 100


def test_a_file_that_is_too_big_is_refused() -> None:
    assert refusal(b" " * (DEFINITION_FILE_BYTES + 1)) == f"1:1: is over {DEFINITION_FILE_BYTES} bytes"
    assert read(b" " * DEFINITION_FILE_BYTES).data is None


def test_directives_never_reach_the_parser() -> None:
    # libyaml compares each with all before it: 80,000 take 18 s.
    many = b"".join(b"%%TAG !a%d! x\n" % number for number in range(500_000))
    assert refusal(many) == f"1:1: {DIRECTIVE}"
    assert refusal(b"a: 1\n...\n" + many) == f"3:1: {DIRECTIVE}"


# --- alias bombs ---------------------------------------------------------------------------------


def too_much(amount: str) -> str:
    return f"the file comes to more than {amount}, aliases written out; split it"


@pytest.fixture
def no_large_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied before its size is known."""
    copied = documents._copy
    left = DEFINITION_FILE_NODES

    def counting(value: Any) -> Any:
        nonlocal left
        left -= 1
        assert left > 0
        return copied(value)

    monkeypatch.setattr(documents, "_copy", counting)


@pytest.mark.usefixtures("no_large_copies")
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ("{a: [", "]}")])
def test_a_billion_laughs_are_refused(opened: str, closed: str) -> None:
    lines = [f"a0: &a0 {opened}{', '.join(['lol'] * 9)}{closed}"]
    lines += [f"a{n}: &a{n} {opened}{', '.join([f'*a{n - 1}'] * 9)}{closed}" for n in range(1, 10)]
    message = refusal("\n".join(lines))
    assert message.endswith(too_much(f"{DEFINITION_FILE_NODES} values"))
    assert message.startswith("7:")


def test_the_budget_counts_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "- &a [x, {k: 1}]\n- *a\n- *a\n"  # one list, and three times a list, x, an object and 1
    monkeypatch.setattr(documents, "DEFINITION_FILE_NODES", 13)
    assert read(content).data == [["x", {"k": 1}]] * 3
    monkeypatch.setattr(documents, "DEFINITION_FILE_NODES", 12)
    assert refusal(content) == f"3:3: {too_much('12 values')}"


def test_the_budget_counts_values_without_aliases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "DEFINITION_FILE_NODES", 3)
    assert read("[1, 2]").data == [1, 2]
    assert refusal("[1, 2, 3]") == f"1:8: {too_much('3 values')}"


def test_long_text_cannot_be_repeated_without_end() -> None:
    text = "x" * (DEFINITION_FILE_BYTES // 4)
    expected = too_much(f"{DEFINITION_FILE_BYTES} characters")
    assert refusal(f"- &a '{text}'\n" + "- *a\n" * 4) == f"5:3: {expected}"
    assert refusal(f"- &a [{text}]\n" + "- *a\n" * 4) == f"5:3: {expected}"
    assert refusal(f"- &a\n  ? {text}\n  : 1\n" + "- *a\n" * 4).endswith(expected)


# --- the parser ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_libyaml")
@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("a:\n\tb: 1\n", "2:1"),
        ("a: [1\n", "2:1"),
        ("a: b: c\n", "1:5"),
        ("a: 1\na: 2\n", "2:1"),
        ('a: "\\uD800"', "1:4"),
        ('"\\uD800": a', "1:1"),
        ("a: !!str \"\\uD800\"", "1:4"),
        ('a: "\\U99999999"', "1:2"),
        ("[" * 100_000, "1:101"),
        ("a: 1\n---\nb: 2\n", "2:1"),
    ],
)  # fmt: skip
def test_without_libyaml_the_same_is_refused(content: str, place: str) -> None:
    assert refusal(content).startswith(f"{place}: ")


@pytest.mark.usefixtures("without_libyaml")
@pytest.mark.parametrize(("pointer", "value", "key", "is_plain"), PLACES)
def test_without_libyaml_places_are_the_same(
    pointer: str, value: tuple[int, int], key: tuple[int, int], is_plain: bool
) -> None:
    test_each_value_and_key_has_its_place(pointer, value, key, is_plain)


def test_the_parser_is_loaded_when_a_file_is_read() -> None:
    code = "import sys, toolkeep.json_values.yaml; print('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


def test_numbers_as_keys_are_read_by_their_text_where_asked_for() -> None:
    assert read_yaml(b"200: a\n'201': b\n", "x.yml", takes_numbers_as_keys=True).data == {
        "200": "a",
        "201": "b",
    }
    for twice in (b"200: a\n'200': b\n", b"1.5: a\n", b"true: a\n"):
        with pytest.raises(FileUnreadable):
            read_yaml(twice, "x.yml", takes_numbers_as_keys=True)
