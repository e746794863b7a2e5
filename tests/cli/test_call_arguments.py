"""Arguments on the command line: JSON, or words that the schema of the tool gives their types."""

import io
from collections.abc import Iterator
from typing import Any, Literal

import click
import pytest

from toolkeep import Keep, tool
from toolkeep.cli.call_arguments import read_arguments


@tool(effects="none")
def typed(
    text: str = "",
    count: int = 0,
    ratio: float = 0.0,
    on: bool = False,
    names: list[str] | None = None,
    either: str | int = "",
    level: Literal[1, 2] = 1,
) -> str:
    """Takes one of each."""
    return text


@tool(effects="none")
def bare() -> str:
    """Takes nothing."""
    return ""


@tool(effects="none")
def needs(text: str) -> str:
    """Needs a text."""
    return text


@pytest.fixture(scope="module")
def keep() -> Iterator[Keep]:
    with Keep() as keep:
        keep.register(typed, bare, needs)
        yield keep


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["text=5", "count=5"], b'{"text":"5","count":5}'),
        (["text=a=b", "ratio=1.50"], b'{"text":"a=b","ratio":1.50}'),
        (["on=true", "names=null"], b'{"on":true,"names":null}'),
        (['names=["a"]'], b'{"names":["a"]}'),
        (["either=5", "either2=5"], b'{"either":"5","either2":"5"}'),
        (["level=2", "count=x"], b'{"level":2,"count":"x"}'),
        (["text:=5", "text2:=[1]"], b'{"text":5,"text2":[1]}'),
        (["text="], b'{"text":""}'),
        (['{"text": "a=b"}'], b'{"text": "a=b"}'),
        (["nonsense"], b"nonsense"),
    ],
)
def test_words_become_json_by_the_schema(words: list[str], expected: bytes, keep: Keep) -> None:
    assert read_arguments(tuple(words), keep, "typed") == expected


@pytest.mark.parametrize(
    "words", [["text=1", "text=2"], ["a=1", "b"], ["=1", "a=1"], ["text:=x"], ['text:=1,"b":2']]
)
def test_bad_words_are_usage_errors(words: list[str], keep: Keep) -> None:
    with pytest.raises(click.UsageError):
        read_arguments(tuple(words), keep, "typed")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_tool_without_required_parameters_needs_no_arguments(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert read_arguments((), keep, "bare") == b"{}"  # standard input is not even looked at
    monkeypatch.setattr("sys.stdin", _Terminal())
    assert read_arguments((), keep, "typed") == b"{}"
    with pytest.raises(click.UsageError, match="key=value"):
        read_arguments((), keep, "needs")


def test_json_is_read_from_standard_input(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = io.TextIOWrapper(io.BytesIO(b'{"text":"a"}'))
    monkeypatch.setattr("sys.stdin", given)
    assert read_arguments(("-",), keep, "needs") == b'{"text":"a"}'
