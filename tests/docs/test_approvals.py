"""The page about approvals names every field of a question and an answer, and every command."""

import re

import pytest

from tests.docs.markdown import ROOT
from toolkeep.approval.question import Answer, Question
from toolkeep.cli.approvals import command

PAGE = (ROOT / "docs" / "approvals.md").read_text(encoding="utf-8")


def first_column(title: str) -> set[str]:
    """The names in the first columns of the tables under a heading."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.spec("DOC-1")
def test_every_field_of_a_question_is_on_the_page() -> None:
    said = {name for name, value in vars(Question).items() if isinstance(value, property)}
    assert first_column("What is shown") == {*Question.__struct_fields__, *said}


@pytest.mark.spec("DOC-1")
def test_every_field_of_an_answer_that_an_approver_gives_is_on_the_page() -> None:
    by_the_store = {"given_at"}
    assert first_column("Approvers in your program") == {*Answer.__struct_fields__} - by_the_store


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_approve_command_is_on_the_page_and_on_that_of_the_command_line(name: str) -> None:
    assert f"$ toolkeep approvals {name}" in PAGE
    assert f"`{name}`" in (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
