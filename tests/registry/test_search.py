"""Tools are found by words: of real tools by their own sentences, and never by what is secret."""

import json
import random
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep import ToolDefinition
from toolkeep.calls import RegisteredTool
from toolkeep.errors import DefinitionError
from toolkeep.registry.admit import admit
from toolkeep.registry.search import ToolSearch

Tools = dict[str, RegisteredTool]


def snapshot(*definitions: ToolDefinition) -> Tools:
    return {definition.name: admit(definition) for definition in definitions}


def found(text: str, tools: Tools, *, limit: int = 5) -> list[str]:
    return [tool.name for tool in ToolSearch().find(text, tools, limit=limit)]


def text_parameter(description: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **keywords}


OFFICE = snapshot(
    made(name="read_file", description="Read a file from disk.", aliases=["cat"], category="file_system"),
    made(name="write_file", description="Write text to a file.", usage_metadata="Best for drafts."),
    made_elsewhere(name="sendMail", description="Deliver a message.", category="communication"),
    made_elsewhere(
        name="http-get",
        description="Fetch a page.",
        parameters=with_properties(
            {
                "pageAddress": text_parameter("Where the page lives."),
                "options": {
                    "type": "object",
                    "properties": {
                        "retries": {"type": "integer", "description": "Attempts before giving up."}
                    },
                },
            }
        ),
    ),
    made(name="translate", description="文書を翻訳する Übersetzt Text."),
)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("from the disk", "read_file", id="description"),
        pytest.param("drafts", "write_file", id="usage"),
        pytest.param("mail", "sendMail", id="hump of a name"),
        pytest.param("please sendmail", "sendMail", id="whole name"),
        pytest.param("readfile now", "read_file", id="whole name without its underscore"),
        pytest.param("http", "http-get", id="name at a dash"),
        pytest.param("a cat", "read_file", id="alias"),
        pytest.param("communication", "sendMail", id="category"),
        pytest.param("address", "http-get", id="hump of a parameter"),
        pytest.param("lives", "http-get", id="description of a parameter"),
        pytest.param("retries", "http-get", id="parameter inside another"),
        pytest.param("attempts", "http-get", id="description of a parameter inside another"),
        pytest.param("DELIVERING MESSAGES", "sendMail", id="other case and other endings"),
        pytest.param("翻訳", "translate", id="Japanese"),
        pytest.param("ÜBERSETZT", "translate", id="other case beyond ASCII"),
    ],
)
def test_a_tool_is_found_by_its(text: str, first: str) -> None:
    assert found(text, OFFICE)[0] == first


@pytest.mark.parametrize(
    "words",
    [
        "calculate calculates calculated calculating",
        "query queries queried querying",
        "search searches searched searching",
        "get gets getting",
        "address addresses addressed",
        "file files filed filing",
    ],
)
def test_english_endings_make_no_difference(words: str) -> None:
    forms = words.split()
    for form in forms:
        tools = snapshot(made(name="tool", description=f"About {form}."))
        assert [other for other in forms if not found(other, tools)] == []


@pytest.mark.parametrize("text", ["b_tool", "B_TOOL", "  b_Tool\n", "Bee"])
def test_a_query_that_is_a_name_or_alias_gives_that_tool_first(text: str) -> None:
    tools = snapshot(
        made(name="a_tool", description="Better than b_tool: b tool, tool b, bee, bee, bee."),
        made(name="b_tool", description="Something else.", aliases=["bee"]),
    )
    assert found(text, tools)[0] == "b_tool"


def test_a_name_in_its_very_spelling_comes_before_one_in_other_case() -> None:
    tools = {
        name: admit(ToolDefinition.from_elsewhere({"name": name, "description": "Read."}))
        for name in ("Read", "read", "READ")
    }
    assert [found(name, tools)[0] for name in tools] == ["Read", "read", "READ"]


def test_rare_words_count_more_than_common_ones() -> None:
    tools = snapshot(*(made(name=f"t{i}", description="Read the file.") for i in range(20)))
    tools |= snapshot(made(name="z", description="A walrus."))
    assert found("read the walrus file", tools)[0] == "z"


def test_equals_come_by_name_and_no_more_than_the_limit() -> None:
    names = ["d", "b", "a", "c", "g", "f", "e"]
    tools = snapshot(*(made(name=f"{name}_tool", description="Read a file.") for name in names))
    assert found("file", tools) == ["a_tool", "b_tool", "c_tool", "d_tool", "e_tool"]
    assert found("file", tools, limit=2) == ["a_tool", "b_tool"]
    assert found("c_tool", tools, limit=1) == ["c_tool"]
    assert found("c_tool", tools, limit=0) == []
    assert len(found("file", tools, limit=100)) == 7


def test_nothing_is_found_where_no_word_fits_or_no_tool_is() -> None:
    assert found("walrus", OFFICE) == []
    assert found("read a file", {}) == []


HOSTILE = {
    "empty": "",
    "blank": " \t\n ",
    "punctuation": "!?.,;:-_()[]{}'\"*^$#@/\\|<>~`+=&%",
    "NULs": "\0\0\0",
    "lone surrogates": "\ud800\udfff",
    "emoji": "🗂️👩‍👩‍👧",
    "combining marks": "\u0301" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_query_without_words_finds_nothing(text: str) -> None:
    assert found(text, OFFICE) == []


@pytest.mark.parametrize(
    "text",
    [
        "NEAR(disk, 5)",
        'disk"',
        '"disk" OR "',
        "disk*",
        "name:disk",
        "{name description} : disk",
        "NOT disk",
        "^disk - + ( )",
        "disk'; DROP TABLE tools; --",
        "di\0sk disk",
        "\ud800disk\udfff",
        "💾disk💾",
        "disk " * 200_000,
        "disk " + "x" * 1_000_000,
        "disk " + "aB" * 500_000,
        "disk " + " ".join(map(str, range(100_000))),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_query_is_words_and_nothing_else(text: str) -> None:
    assert found(text, OFFICE)[0] == "read_file"


@given(st.text())
def test_no_query_raises(text: str) -> None:
    assert set(found(text, OFFICE)) <= OFFICE.keys()


def test_the_rarest_words_of_a_long_query_are_the_ones_that_count() -> None:
    common = [f"common{i}" for i in range(200)]
    tools = snapshot(*(made(name=f"t{i}", description=" ".join(common[:100])) for i in range(3)))
    tools |= snapshot(made(name="rare", description="walrus"))
    assert "rare" in found(" ".join([*common, "walrus"]), tools)


SECRET_MARKS: dict[str, dict[str, Any]] = {
    "x-secret": {"x-secret": True},
    "writeOnly": {"writeOnly": True},
    "password": {"format": "password"},
    "part": {"allOf": [{"x-secret": True, "description": "walrus"}]},
    "definition": {"$ref": "#/$defs/key"},
}


@pytest.mark.parametrize("mark", SECRET_MARKS.values(), ids=SECRET_MARKS)
def test_of_a_secret_parameter_only_the_name_is_searched(mark: dict[str, Any]) -> None:
    schema = with_properties(
        {
            "token": {"type": "string", "description": "walrus", **mark},
            "box": {"type": "object", "properties": {"token": text_parameter("walrus")}},
        },
        **{"$defs": {"key": {"type": "string", "x-secret": True, "description": "walrus"}}},
    )
    tools = snapshot(made(name="tool", parameters=schema))
    assert found("token", tools) == ["tool"]
    assert found("walrus", tools) == []


def test_of_secret_items_nothing_is_searched() -> None:
    keys = {"type": "array", "description": "The keys.", "items": text_parameter("walrus", writeOnly=True)}
    tools = snapshot(made(name="tool", parameters=with_properties({"keys": keys})))
    assert found("keys", tools) == ["tool"]
    assert found("walrus", tools) == []


@pytest.mark.parametrize("is_sensitive", [True, False])
def test_values_in_a_schema_are_never_searched(is_sensitive: bool) -> None:
    schema = with_properties(
        {
            "a": text_parameter("The letter.", enum=["walrus"], default="walrus", examples=["walrus"]),
            "b": text_parameter("The other.", pattern="^walrus$", title="walrus"),
        }
    )
    tools = snapshot(made(name="tool", sensitive=is_sensitive, parameters=schema))
    assert found("walrus", tools) == []
    assert found("letter", tools) == ["tool"]


def test_a_definition_is_searched_where_it_is_referred_to_even_by_itself() -> None:
    node = {
        "type": "object",
        "description": "A walrus.",
        "properties": {"child": {"$ref": "#/$defs/node"}},
    }
    schema = with_properties({"root": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}})
    tools = snapshot(made(name="tool", parameters=schema))
    assert found("walrus", tools) == found("child", tools) == ["tool"]


def test_another_snapshot_is_answered_as_by_a_fresh_index() -> None:
    chance = random.Random(6)  # noqa: S311 -- reproducible, not secret
    words = ["read", "write", "file", "mail", "page", "disk", "list", "open", "close", "move"]
    search = ToolSearch()
    for _ in range(30):
        names = chance.sample("abcdefghij", chance.randint(0, 10))
        tools = snapshot(
            *(made(name=name, description=" ".join(chance.choices(words, k=4))) for name in names)
        )
        for text in [*words, "read the mail", "a", " ".join(words)]:
            answer = search.find(text, tools)
            assert answer == ToolSearch().find(text, tools)
            assert all(tools[tool.name] is tool for tool in answer)


def test_an_unchanged_definition_is_answered_with_the_object_of_the_new_snapshot() -> None:
    search = ToolSearch()
    before, after = (snapshot(made()) for _ in range(2))
    search.find("file", before)
    assert search.find("file", after) == [after["read_file"]]


def test_an_update_that_fails_leaves_no_half_index() -> None:
    search = ToolSearch()
    search.find("file", OFFICE)
    broken: Any = {**snapshot(made(name="aaa_file", description="A file.")), "broken": None}
    with pytest.raises(AttributeError):
        search.find("file", broken)
    assert [tool.name for tool in search.find("file", OFFICE)] == found("file", OFFICE)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_search_different_snapshots_each_get_their_own_tools() -> None:
    search = ToolSearch()
    snapshots = [
        snapshot(*(made(name=f"tool_{i}", description=f"Read {word}.") for i in range(n, n + 8)))
        for n, word in enumerate(("one", "two", "three", "four"))
    ]

    def is_answered_from(number: int) -> bool:
        tools = snapshots[number % 4]
        answer = search.find("read tool", tools, limit=20)
        return len(answer) == 8 and all(tools[tool.name] is tool for tool in answer)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_answered_from, range(400)))


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()] or [""]


def without_name(text: str, name: str) -> str:
    """The text without the name, as it is written and as words."""
    for spelling in (name, name.replace("_", " ")):
        text = re.sub(re.escape(spelling), " ", text, flags=re.IGNORECASE)
    return text


def real_tools(folder: Path) -> dict[str, tuple[RegisteredTool, str]]:
    """Every real tool that registers, by a name of its own, with the name that it had."""
    real: dict[str, tuple[RegisteredTool, str]] = {}
    taken: set[str] = set()
    for number, line in enumerate((folder / "tools.jsonl").read_text().splitlines()):
        data = json.loads(line)
        data["parameters"] = data.get("schema_normalised") or data["schema"]
        definition = ToolDefinition.from_elsewhere(data)
        if definition.name.casefold() in taken:
            definition = definition.replace(name=f"{definition.name[:58]}_{number}")
        taken.add(definition.name.casefold())
        try:
            real[definition.name] = admit(definition), data["name"]
        except DefinitionError:
            continue  # a dangling reference, as tests/validation/test_corpus.py shows
    return real


@pytest.mark.spec("REG-6")
def test_nine_of_ten_real_tools_are_among_the_first_five_for_a_sentence_of_their_description(
    shared_data: Path,
) -> None:
    real = real_tools(shared_data)
    tools = {name: tool for name, (tool, _) in real.items()}
    assert len(tools) == 2245
    search = ToolSearch()
    chance = random.Random(6)  # noqa: S311 -- reproducible, not secret
    by_first = by_any = 0
    for tool, original in real.values():
        parts = sentences(tool.definition.description)
        by_first += tool in search.find(without_name(parts[0], original), tools)
    some = chance.sample(sorted(real), 750)
    for name in some:
        tool, original = real[name]
        sentence = chance.choice(sentences(tool.definition.description))
        by_any += tool in search.find(without_name(sentence, original), tools)
        assert search.find(name.swapcase(), tools, limit=1) == [tool]
    assert by_first / len(real) >= 0.98
    assert by_any / len(some) >= 0.96
