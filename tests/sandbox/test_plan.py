"""Plans are checked when they are made."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.workers import ALLOW_ALL
from toolkeep.sandbox.isolation_levels import NEEDS, PROMISES, Guarantee, Isolation, Mechanism, missing
from toolkeep.sandbox.plan import Grant, Recipe, WorkerPlan, ZygotePlan, interpreter_paths


@pytest.mark.parametrize(
    "changed",
    [
        {"level": Isolation.NONE},
        {"level": Isolation.RESTRICTED, "read": ("/usr",)},
        {"read": ("relative",)},
        {"read": ("/",)},
        {"read": ("/usr/../etc",)},
        {"write": ("/no/such/folder",)},
        {"ordinary_id": 0},
    ],
)
def test_a_zygote_plan_that_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"level": Isolation.STRICT} | changed
    with pytest.raises(ValueError, match=r"none|restricted|canonical|exist|root"):
        ZygotePlan(**fields)


@pytest.mark.parametrize(
    "changed",
    [
        {"level": Isolation.NONE},
        {"filter": None},
        {"tool": "module"},
        {"tool": ":f"},
        {"import_paths": ("x",)},
    ],
)
def test_a_worker_plan_that_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"tool": "m:f", "level": Isolation.STRICT, "filter": ALLOW_ALL} | changed
    with pytest.raises(ValueError, match=r"none|filter|function|canonical"):
        WorkerPlan(**fields)


def test_a_link_is_no_canonical_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    with pytest.raises(ValueError, match="canonical"):
        ZygotePlan(level=Isolation.STRICT, read=(str(tmp_path / "link"),))


def test_a_worker_is_granted_no_more_than_its_zygote_shows(tmp_path: Path) -> None:
    worker = WorkerPlan(tool="m:f", level=Isolation.STRICT, filter=ALLOW_ALL)
    zygote = ZygotePlan(level=Isolation.STRICT, read=(str(tmp_path),))
    with pytest.raises(ValueError, match="does not show"):
        Recipe(zygote=zygote, worker=worker, grant=Grant(write=(str(tmp_path),)))


def test_a_worker_that_may_start_nothing_is_granted_no_program() -> None:
    worker = WorkerPlan(tool="m:f", level=Isolation.STRICT, filter=ALLOW_ALL)
    with pytest.raises(ValueError, match="granted no program"):
        Recipe(zygote=ZygotePlan(level=Isolation.STRICT), worker=worker, grant=Grant(run=("/usr",)))


def test_the_interpreter_is_shown_and_nothing_as_wide_as_the_root() -> None:
    assert "/" not in interpreter_paths()


def test_every_promise_needs_something_and_every_level_keeps_those_below_it() -> None:
    assert set(NEEDS) == set(Guarantee)
    levels = list(Isolation)
    assert all(PROMISES[lower] <= PROMISES[higher] for lower, higher in itertools.pairwise(levels))
    assert missing(Isolation.NONE, set()) == {}
    assert set(missing(Isolation.STRICT, set())) == set(Guarantee)
    assert missing(Isolation.RESTRICTED, set(Mechanism)) == {}
