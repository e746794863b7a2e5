"""What a docstring says about a function and its parameters (Google, NumPy and Sphinx styles)."""

import inspect
from collections.abc import Mapping
from typing import NamedTuple


class Documentation(NamedTuple):
    """The description of a function, and of its parameters by name."""

    description: str
    parameters: Mapping[str, str]


def read_docstring(function: object) -> Documentation:
    """The documentation of a function; empty where it has none."""
    text = inspect.getdoc(function)
    if not text:
        return Documentation("", {})
    import docstring_parser

    parsed = docstring_parser.parse(text)
    paragraphs = (parsed.short_description, parsed.long_description)
    return Documentation(
        description="\n\n".join(paragraph for paragraph in paragraphs if paragraph),
        parameters={param.arg_name: " ".join((param.description or "").split()) for param in parsed.params},
    )
