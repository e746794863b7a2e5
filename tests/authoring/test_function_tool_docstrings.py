"""Docstrings in the three usual styles."""

from collections.abc import Callable

import pytest

from toolkeep.authoring.function_schema import Documentation, read_docstring

pytestmark = pytest.mark.spec("DEF-9")


def google(path: str, limit: int) -> str:
    """Read a file.

    Gives its lines.

    Args:
        path: The file
            to read.
        limit (int): How many lines.

    Returns:
        The lines.
    """
    return path * limit


def numpy(path: str, limit: int) -> str:
    """Read a file.

    Gives its lines.

    Parameters
    ----------
    path : str
        The file
        to read.
    limit : int
        How many lines.

    Returns
    -------
    str
        The lines.
    """
    return path * limit


def sphinx(path: str, limit: int) -> str:
    """Read a file.

    Gives its lines.

    :param path: The file
        to read.
    :param int limit: How many lines.
    :returns: The lines.
    """
    return path * limit


def bare(path: str) -> str:
    return path


def brief(path: str) -> str:
    """Read a file."""
    return path


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_each_style_gives_the_description_and_the_parameters(function: Callable[..., str]) -> None:
    assert read_docstring(function) == Documentation(
        description="Read a file.\n\nGives its lines.",
        parameters={"path": "The file to read.", "limit": "How many lines."},
    )


def test_a_function_without_docstring_is_documented_by_nothing() -> None:
    assert read_docstring(bare) == Documentation("", {})


def test_one_line_is_the_description() -> None:
    assert read_docstring(brief) == Documentation("Read a file.", {})
