"""The page about calling names every field of a result, every option and every limit of calls."""

import dataclasses
import inspect
import re

import pytest

from tests.docs.markdown import ROOT
from toolkeep import Keep
from toolkeep.calls import ToolResult
from toolkeep.limits import CallLimits

PAGE = (ROOT / "docs" / "calling.md").read_text(encoding="utf-8")


def documented(title: str) -> list[str]:
    """The names in the first column of the table under a heading."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.mark.spec("DOC-1")
def test_every_field_of_a_result_is_on_the_page_once() -> None:
    result = ToolResult(status="ok", tool="find_book", call_id="1", agent="local")
    assert documented("Results") == list(result.to_dict())


@pytest.mark.spec("DOC-1")
def test_every_option_of_a_call_is_on_the_page_once() -> None:
    parameters = inspect.signature(Keep.call).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert documented("Options") == options


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("field", dataclasses.fields(CallLimits), ids=lambda field: field.name)
def test_a_call_limit_has_the_default_that_the_page_says(field: "dataclasses.Field[float]") -> None:
    assert f"| `{field.name}` | {field.default:,.0f} |" in PAGE


def test_the_page_names_no_other_limit() -> None:
    assert documented("Limits") == [field.name for field in dataclasses.fields(CallLimits)]
