"""JSON data inside a definition: copied, checked, and unable to change."""

import copy
import enum
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from tests.definitions.examples import JSON
from toolkeep.errors import Code
from toolkeep.json_values.frozen import (
    MAX_DEPTH,
    FrozenDict,
    FrozenList,
    NotJson,
    freeze,
    freeze_object,
    thaw,
)

pytestmark = pytest.mark.spec("DEF-1")


def set_item(value: Any) -> None:
    value["a"] = 1


def delete_item(value: Any) -> None:
    del value["a"]


def merge(value: Any) -> None:
    value |= {"b": 2}


def set_first(value: Any) -> None:
    value[0] = 1


def delete_first(value: Any) -> None:
    del value[0]


def extend_in_place(value: Any) -> None:
    value += [1]


def repeat_in_place(value: Any) -> None:
    value *= 2


@pytest.mark.parametrize(
    "change",
    [
        set_item,
        delete_item,
        merge,
        lambda value: value.clear(),
        lambda value: value.pop("a"),
        lambda value: value.popitem(),
        lambda value: value.setdefault("b", 1),
        lambda value: value.update(b=1),
    ],
)
def test_a_frozen_object_refuses_every_change(change: Callable[[Any], None]) -> None:
    frozen = freeze_object({"a": [1]})
    with pytest.raises(TypeError):
        change(frozen)
    assert frozen == {"a": [1]}


@pytest.mark.parametrize(
    "change",
    [
        set_first,
        delete_first,
        extend_in_place,
        repeat_in_place,
        lambda value: value.append(1),
        lambda value: value.clear(),
        lambda value: value.extend([1]),
        lambda value: value.insert(0, 1),
        lambda value: value.pop(),
        lambda value: value.remove(3),
        lambda value: value.reverse(),
        lambda value: value.sort(),
    ],
)
def test_a_frozen_array_refuses_every_change(change: Callable[[Any], None]) -> None:
    frozen = freeze([3, 1])
    with pytest.raises(TypeError):
        change(frozen)
    assert frozen == [3, 1]


def test_a_later_change_of_the_original_does_not_show() -> None:
    original: dict[str, Any] = {"a": {"b": [1]}}
    frozen = freeze_object(original)
    original["a"]["b"].append(2)
    assert frozen == {"a": {"b": [1]}}


@given(JSON)
def test_thawing_gives_the_same_data_in_ordinary_containers(value: Any) -> None:
    thawed = thaw(freeze(value))
    assert repr(thawed) == repr(value)


@given(JSON)
def test_frozen_data_survives_pickling_and_stays_frozen(value: Any) -> None:
    copied = pickle.loads(pickle.dumps(freeze(value)))  # noqa: S301 -- our own bytes
    assert copied == value
    assert type(copied) is type(freeze(value))


@given(JSON)
def test_equal_frozen_data_has_equal_hash(value: Any) -> None:
    assert hash(freeze({"value": value})) == hash(freeze({"value": value}))


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2]])
def test_a_deep_copy_is_the_same_object(value: Any) -> None:
    frozen = freeze(value)
    assert copy.deepcopy(frozen) is frozen


class Plain(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


def test_enum_members_and_tuples_become_the_plain_data_they_stand_for() -> None:
    frozen = freeze_object({Plain.A: (Plain.A, Number.ONE)})
    assert frozen == {"a": ["a", 1]}
    assert [type(item) for item in frozen["a"]] == [str, int]  # type: ignore[union-attr]
    assert type(next(iter(frozen))) is str


def test_order_of_keys_is_kept() -> None:
    assert list(freeze_object({"z": 1, "a": 2, "m": 3})) == ["z", "a", "m"]


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": [0, {1, 2}]}, "/a/1", "set is not JSON"),
        ({"a": float("nan")}, "/a", "NaN and Infinity are not JSON"),
        ({"a": float("-inf")}, "/a", "NaN and Infinity are not JSON"),
        ({"a": {1: 2}}, "/a", "object keys are strings, not int"),
        ({"a": "\ud800"}, "/a", "text contains a lone surrogate"),
        ({"a": b"bytes"}, "/a", "bytes is not JSON"),
        (object, "", "type is not JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: object, path: str, reason: str) -> None:
    with pytest.raises(NotJson) as caught:
        freeze(value)
    assert (caught.value.path, caught.value.reason) == (path, reason)
    assert caught.value.code is Code.DEFINITION_INVALID


def test_only_an_object_can_be_frozen_as_an_object() -> None:
    with pytest.raises(NotJson) as caught:
        freeze_object([1], "metadata")
    assert (caught.value.path, caught.value.reason) == ("metadata", "expected an object, got list")


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_data_as_deep_as_the_limit_is_taken() -> None:
    assert freeze(nested(MAX_DEPTH)) == nested(MAX_DEPTH)


def test_data_deeper_than_the_limit_is_refused() -> None:
    with pytest.raises(NotJson, match=f"deeper than {MAX_DEPTH}"):
        freeze(nested(MAX_DEPTH + 1))


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotJson, match=f"deeper than {MAX_DEPTH}"):
        freeze(loop)


def test_frozen_containers_are_the_ordinary_kinds_that_libraries_read() -> None:
    frozen = freeze({"a": []})
    assert isinstance(frozen, dict)
    assert type(frozen) is FrozenDict
    assert isinstance(frozen["a"], list)
    assert type(frozen["a"]) is FrozenList
