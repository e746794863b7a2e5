"""Which providers there are; each is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Final

from toolkeep.errors import UnknownProvider

if TYPE_CHECKING:
    from toolkeep.providers.vendor import Vendor

_HOMES: Final = {
    "anthropic": ("anthropic", "VENDOR"),
    "openai": ("openai", "VENDOR"),
    "openai-responses": ("openai_responses", "VENDOR"),
    "gemini": ("gemini", "VENDOR"),
    "bedrock": ("bedrock", "VENDOR"),
    "mistral": ("mistral", "VENDOR"),
    "cohere": ("cohere", "VENDOR"),
    "ollama": ("ollama", "VENDOR"),
    "mcp": ("mcp", "MODERN"),
    "mcp-2025-11-25": ("mcp", "BEFORE"),
    "json-schema": ("schemas", "JSON_SCHEMA"),
    "vllm": ("vllm", "VENDOR"),
    "llguidance": ("schemas", "LLGUIDANCE"),
    "xgrammar": ("schemas", "XGRAMMAR"),
}

PROVIDERS: Final = tuple(_HOMES)


def vendor_of(name: str) -> "Vendor":
    """The provider of that name; raises `UnknownProvider`."""
    if name not in _HOMES:
        raise UnknownProvider(name, known=PROVIDERS)
    home, attribute = _HOMES[name]
    vendor: Vendor = getattr(importlib.import_module(f"toolkeep.providers.{home}"), attribute)
    return vendor
