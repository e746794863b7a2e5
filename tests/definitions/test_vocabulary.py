"""The fixed words of a definition, how they are read, and what they stand for."""

import pytest

from toolkeep.definitions.vocabulary import (
    Category,
    Danger,
    Determinism,
    Isolation,
    Normalization,
    ParameterType,
    ResultType,
    SideEffect,
    TouchForm,
    Word,
    snake_case,
)

ALL_WORDS: list[type[Word]] = [
    Category,
    Danger,
    Determinism,
    Isolation,
    Normalization,
    ParameterType,
    ResultType,
    SideEffect,
]


@pytest.mark.spec("DEF-4")
def test_categories_have_the_numbers_of_the_store() -> None:
    assert {category.value: category.number for category in Category} == {
        "file_system": 0,
        "network": 1,
        "database": 2,
        "code_execution": 3,
        "external_api": 4,
        "knowledge": 5,
        "communication": 6,
        "system": 7,
        "general": 8,
        "code": 9,
        "version_control": 10,
        "custom": 100,
    }


@pytest.mark.spec("DEF-4")
def test_categories_carry_the_risk_of_the_seed() -> None:
    assert {category.value: category.risk for category in Category} == {
        "file_system": "medium",
        "network": "medium-high",
        "database": "medium",
        "code_execution": "high",
        "external_api": "medium",
        "knowledge": "low",
        "communication": "medium",
        "system": "low",
        "general": "low",
        "code": "low",
        "version_control": "medium",
        "custom": "medium",
    }


@pytest.mark.spec("DEF-4")
@pytest.mark.parametrize(
    ("word", "category"),
    [
        ("file_system", Category.FILE_SYSTEM),
        ("FileSystem", Category.FILE_SYSTEM),
        ("fileSystem", Category.FILE_SYSTEM),
        ("ExternalApi", Category.EXTERNAL_API),
        ("VersionControl", Category.VERSION_CONTROL),
        ("web", Category.NETWORK),
        ("Web", Category.NETWORK),
        ("data", Category.DATABASE),
        ("Data", Category.DATABASE),
        (0, Category.FILE_SYSTEM),
        (10, Category.VERSION_CONTROL),
        (100, Category.CUSTOM),
        (Category.CODE, Category.CODE),
    ],
)
def test_a_category_is_read_by_word_alias_or_number(word: object, category: Category) -> None:
    assert Category.read(word) is category


@pytest.mark.spec("DEF-4")
@pytest.mark.parametrize("word", ["webs", "", 11, 99, -1, True, False, None, 1.0, ["web"]])
def test_what_is_no_category_is_refused(word: object) -> None:
    with pytest.raises(ValueError, match=r"is not one of file_system, network, .*, custom$"):
        Category.read(word)


@pytest.mark.spec("DEF-1", "DEF-4", "DEF-7", "DEF-8")
@pytest.mark.parametrize("words", ALL_WORDS)
def test_every_word_is_read_as_it_is_written_and_in_snake_and_pascal_case(words: type[Word]) -> None:
    for word in words:
        pascal = "".join(part.capitalize() for part in snake_case(word.value).split("_"))
        assert words.read(word) is word
        assert words.read(word.value) is word
        assert words.read(snake_case(word.value)) is word
        assert words.read(pascal) is word


@pytest.mark.parametrize("words", ALL_WORDS)
@pytest.mark.parametrize("word", ["no such word", "", None, 7.5, True])
def test_an_unknown_word_is_refused_with_those_that_are_allowed(words: type[Word], word: object) -> None:
    with pytest.raises(ValueError, match="is not one of") as caught:
        words.read(word)
    assert str(caught.value) == f"{word!r} is not one of " + ", ".join(member.value for member in words)


@pytest.mark.spec("DEF-7")
def test_each_effect_says_whether_it_writes_and_which_capability_it_needs() -> None:
    assert {effect.value: (effect.is_write, effect.capability) for effect in SideEffect} == {
        "NetRead": (False, "net.read"),
        "NetWrite": (True, "net.write"),
        "FsRead": (False, "fs.read"),
        "FsWrite": (True, "fs.write"),
        "DbRead": (False, "db.read"),
        "DbWrite": (True, "db.write"),
        "ProcessSpawn": (True, "process.spawn"),
        "Reads": (False, None),
        "Writes": (True, None),
        "None": (False, None),
    }


@pytest.mark.spec("DEF-7")
def test_determinism_has_four_words() -> None:
    assert [word.value for word in Determinism] == ["Pure", "Deterministic", "Maybe", "NonDeterministic"]


@pytest.mark.spec("DEF-8")
def test_danger_ranks_from_safe_to_critical() -> None:
    assert [(danger.value, danger.rank) for danger in Danger] == [
        ("safe", 0),
        ("low", 1),
        ("medium", 2),
        ("high", 3),
        ("critical", 4),
    ]


@pytest.mark.spec("DEF-6")
def test_isolation_ranks_from_none_to_restricted() -> None:
    assert [(level.value, level.rank) for level in Isolation] == [
        ("none", 0),
        ("standard", 1),
        ("strict", 2),
        ("restricted", 3),
    ]


@pytest.mark.spec("DEF-1")
def test_result_types_and_forms_are_those_of_the_specification() -> None:
    assert [word.value for word in ResultType] == ["object", "array", "string", "binary", "stream"]
    assert [form.value for form in TouchForm] == ["path", "url", "host", "argv", "database"]


@pytest.mark.spec("DEF-5")
def test_parameter_types_are_those_of_the_specification() -> None:
    assert [word.value for word in ParameterType] == [
        "string",
        "integer",
        "number",
        "boolean",
        "array",
        "object",
        "one_of",
    ]
