"""Providers of other packages, found through entry points; only those that the configuration names run."""

import importlib.metadata

from toolkeep.errors import ProviderFailed
from toolkeep.registry.register import ToolProvider
from toolkeep.validation.nearest import nearest_name

GROUP = "toolkeep.providers"
OURS = frozenset({"code", "config", "core", "project"})
"""Names of our own: who has one of them could pass for us."""


def load_provider(name: str) -> ToolProvider:
    """The provider of that name, made; `ProviderFailed` where there is none or it cannot be made."""
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
    except (Exception, SystemExit) as error:
        raise ProviderFailed(name, f"cannot be loaded: {type(error).__name__}") from error
    if wrong:
        raise ProviderFailed(name, wrong, hint="see toolkeep's ToolProvider")
    return provider  # type: ignore[no-any-return]  # its shape was just checked


def _wrong_with(provider: object) -> str | None:
    if not callable(getattr(provider, "get_tool_definitions", None)):
        return "has no get_tool_definitions()"
    if type(getattr(provider, "priority", None)) is not int:
        return "has no whole number as its priority"
    name = getattr(provider, "name", None)
    if not isinstance(name, str) or not name:
        return "has no name"
    return f"calls itself {name!r}, a name of toolkeep's own" if name.casefold() in OURS else None
