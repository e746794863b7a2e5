"""A worker imports a decorated function without what its definition needs; the host has checked that."""

import asyncio
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.execution import annotated, thin
from toolkeep import Keep, ToolFailed
from toolkeep.execution import isolation_check
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.kernel_probe import probe

LIGHT = [
    "toolkeep",
    "toolkeep.authoring",
    "toolkeep.authoring.dependencies",
    "toolkeep.authoring.function_signature",
    "toolkeep.authoring.function_tool",
    "toolkeep.authoring.importing",
    "toolkeep.authoring.tool_decorator",
    "toolkeep.definitions",
    "toolkeep.definitions.parameter_marks",
    "toolkeep.definitions.tool_context",
    "toolkeep.definitions.vocabulary",
]


@pytest.fixture(scope="module")
def keep() -> Iterator[Keep]:
    found = probe(levels=(Isolation.STRICT,))
    lacking = list(chain(*found.missing(Isolation.STRICT).values()))
    if lacking:
        pytest.skip(f"this machine does not give {lacking[0].mechanism}: {lacking[0].reason}")
    secrets = {name: {"key": "k3y"} for name in ("shop", "shop_later")}
    with pytest.MonkeyPatch.context() as patch, Keep(tool_secrets=secrets) as keep:
        patch.setattr(isolation_check, "probe", lambda **_: found)
        keep.register(thin.plain, thin.marked, thin.named_otherwise, thin.pieces_later, thin.Agent)
        keep.register(thin.shop, thin.shop_later)
        keep.register(thin.fail, thin.unkept, annotated.kinds, annotated.even, annotated.even_secret)
        yield keep


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("plain", {"words": ["x"]}), ("marked", {}), ("pieces", {}), ("pieces_later", {}), ("agent", {})],
)
def test_a_worker_loads_neither_pydantic_nor_the_rest_of_toolkeep(
    name: str, arguments: dict[str, Any], keep: Keep
) -> None:
    result = keep.call_sync(name, arguments)
    assert result.ok, result.text
    value = result.value
    assert (value[0] if name.startswith("pieces") else value) == LIGHT


def test_pydantic_is_imported_before_the_fork_for_tools_that_use_it(keep: Keep) -> None:
    assert keep.call_sync("even", {"point": {"x": 2}}).value == [2, True]


@pytest.mark.spec("DEF-14")
def test_dependencies_are_made_after_the_fork_for_one_call_with_its_secrets_and_data(keep: Keep) -> None:
    closed: list[str] = []
    for tenant in ("a", "b"):
        result = keep.call_sync(
            "shop",
            {"book": "Dune"},
            data={"tenant": tenant},
            on_progress=lambda done, total, message: closed.append(message),
        )
        assert result.ok, result.text
        made, here = result.value["made"], result.value["here"]
        assert (made, result.value["secret"], result.value["tenant"]) == ([here], "k3y", tenant)
        assert result.value["loaded"] == LIGHT
    assert closed == ["closed", "closed"]
    later = keep.call_sync("shop_later", {}, data={"tenant": "c"})
    assert [(one["later"], one["tenant"]) for one in later.value] == [(True, "c")]


def test_a_failure_is_told_with_its_text(keep: Keep) -> None:
    assert "told to" in keep.call_sync("fail", {}).text


def test_all_that_a_decorated_function_can_do_it_can_do_in_a_worker(keep: Keep) -> None:
    result = keep.call_sync("unkept", {})
    names = ["pieces", "plain"]
    expected = [True, "plain", "<tool pieces 1.0.0>", "async generator", True, names]
    assert result.value == expected, result.text


ARGUMENTS: dict[str, Any] = {
    "text": "x",
    "point": {"x": 4},
    "line": {"start": {"x": 2, "y": 3}},
    "row": {"name": "a"},
    "dated": {"day": "2026-01-02"},
    "color": "red",
    "level": 1,
    "at": "2026-01-02T03:04:05Z",
    "took": "PT90S",
    "path": "a/b",
    "price": "1.50",
    "key": "12345678-1234-5678-1234-567812345678",
    "pair": [1, "b"],
    "some": [1, 2],
    "colors": ["red"],
    "points": {"a": {"x": 6}},
    "mode": "b",
    "few": 2,
    "either": {"x": 8},
    "maybe": {"x": 10},
}


def test_arguments_of_every_kind_arrive_as_they_do_in_process(keep: Keep) -> None:
    result = keep.call_sync("kinds", ARGUMENTS)
    assert result.ok, result.text
    expected = asyncio.run(annotated.kinds.invoke(ARGUMENTS))
    assert result.value == expected
    assert f"path: {Path('a/b')!r}" in expected  # they are no JSON data


@pytest.mark.parametrize("name", ["even", "even_secret"])
def test_a_validator_objects_in_the_words_that_it_has_in_process(name: str, keep: Keep) -> None:
    with pytest.raises(ToolFailed) as objection:
        getattr(annotated, name).bind({"point": {"x": 3}})
    text = keep.call_sync(name, {"point": {"x": 3}}).text
    assert str(objection.value) in text
    assert ("3 is odd" in text) is (name == "even")
