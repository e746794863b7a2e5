"""A tool that gives back what it is given."""

from typing import Any


def echo(value: Any) -> Any:
    """The value."""
    return value
