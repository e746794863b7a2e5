"""The vendors' own SDK types judge what goes out and build what comes in, in an environment of their own."""

from pathlib import Path
from typing import Any

import pytest

from tests.providers import programs

REAL_TOOLS = 2245


@pytest.fixture(scope="module")
def report(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Needs the real tools: skipped or failed where they are absent."""
    return programs.report(tmp_path_factory)


@pytest.mark.spec("PRV-1", "PRV-3")
@pytest.mark.parametrize(
    ("provider", "refused", "strict"),
    [
        ("anthropic", 0, 0),
        ("anthropic strict", 0, 2158),
        ("openai", 0, 0),
        ("openai strict", 0, 2243),
        ("openai-responses", 0, 0),
        ("openai-responses strict", 0, 2243),
        ("gemini", 0, 0),
        ("bedrock", 0, 0),
        ("mistral", 0, 0),
        ("cohere", 0, 0),
        ("ollama", 0, 0),
        ("mcp", 0, 0),
        ("json-schema", 0, 0),
        ("llguidance", 2, 2243),
    ],
)
def test_the_vendors_types_take_every_export_of_the_real_tools(
    report: Any, provider: str, refused: int, strict: int
) -> None:
    found = report["exports"][provider]
    assert (found["first"], found["bad"]) == ([], 0)
    assert found["exported"] == REAL_TOOLS - refused
    assert found.get("refused", 0) == refused
    assert found.get("strict", 0) == strict


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize(
    "provider",
    [
        "anthropic", "openai", "openai-responses", "gemini", "gemini in parts", "bedrock", "mistral", "cohere",
        "ollama",
    ],
)  # fmt: skip
def test_no_proper_prefix_of_a_stream_holds_a_call_that_may_be_run(report: Any, provider: str) -> None:
    found = report["speech"][provider]
    assert found["prefixes"] > found["streams"]
    assert (found["streams"], found["executable"], found["wrong"]) == (200, 0, 0)


@pytest.mark.spec("PRV-2", "PRV-3")
def test_every_real_call_goes_through_the_strict_form_and_comes_back_the_same(report: Any) -> None:
    nothing = {"not expressible": 0, "invalid": 0, "rejected": 0, "wrong": 0}
    assert report["speech"]["strict"] == {"calls": 1230, "right": 1230, **nothing}


@pytest.mark.spec("PRV-2")
def test_the_vendors_types_take_every_answer(report: Any) -> None:
    assert set(report["speech"]["answers"]) >= {"anthropic", "openai", "gemini", "bedrock", "mcp"}
    assert not any(report["speech"]["answers"].values())
