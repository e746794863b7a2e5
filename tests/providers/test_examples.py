"""The example programs, with the vendors' own clients, against a local server that speaks their wire formats."""

import pytest

from tests.providers.programs import EXAMPLES, report

PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found: dict[str, str] = report(tmp_path_factory)["examples"]
    return found


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_finds_the_book(said: dict[str, str], program: str) -> None:
    assert said[program].rstrip().endswith('Emma: {"place":2,"shelf":7}'), said[program]
