"""The example programs, with the vendors' own clients, against a local server that speaks their wire formats."""

import pytest

from tests.providers.programs import EXAMPLES, report

PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_finds_the_book(program: str) -> None:
    said = report()["examples"][program]
    assert said.rstrip().endswith('Emma: {"place":2,"shelf":7}'), said
