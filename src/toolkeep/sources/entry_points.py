"""Providers of other packages, found through entry points.

Only those that the configuration names are loaded: an installed package must not run code or bring tools
without being asked for.
"""

import importlib.metadata
from typing import Any

from toolkeep.errors import ProviderFailed
from toolkeep.registry.coerce import pass_through
from toolkeep.registry.tool_provider import ToolProvider
from toolkeep.text.nearest import nearest_name

GROUP = "toolkeep.providers"


def load_provider(name: str) -> ToolProvider:
    """Construct the provider of that name; `ProviderFailed` if there is none or it fails."""
    points = importlib.metadata.entry_points(group=GROUP)
    found = [point.name for point in points]
    if name not in found:
        near = nearest_name(name, found)
        hint = (
            f"did you mean {near!r}?" if near else f"install the package that has it (entry points {GROUP})"
        )
        raise ProviderFailed(name, "is not installed", hint=hint)
    if found.count(name) > 1:
        raise ProviderFailed(name, "is installed by several packages", hint="keep one of them")
    try:
        loaded = points[name].load()
        provider = loaded() if isinstance(loaded, type) else loaded
        wrong = _wrong_with(provider)
        named = None if wrong else _Named(name, provider)
    except BaseException as error:
        pass_through(error)
        raise ProviderFailed(name, f"cannot be loaded: {type(error).__name__}") from error
    if named is None:
        raise ProviderFailed(name, wrong or "", hint="see toolkeep's ToolProvider")
    return named


class _Named:
    """A provider under the name that the person accepted, whatever it calls itself."""

    def __init__(self, name: str, provider: Any) -> None:
        self.name = name
        self.priority: int = provider.priority
        self.get_tool_definitions = provider.get_tool_definitions


def _wrong_with(provider: object) -> str | None:
    if not callable(getattr(provider, "get_tool_definitions", None)):
        return "has no get_tool_definitions()"
    if type(getattr(provider, "priority", None)) is not int:
        return "has no whole number as its priority"
    return None if isinstance(getattr(provider, "name", None), str) else "has no name"
