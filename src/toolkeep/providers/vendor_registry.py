"""The vendors by provider name; each is imported on first use.

To add a vendor, write a module in `toolkeep.providers` that defines a `Vendor`, and name it here. The web
interface has its own list of the vendors with a tab: `_PROVIDERS` in `server/web/tools_page.py`.
"""

import importlib
from typing import TYPE_CHECKING, Final

from toolkeep.errors import UnknownProvider

if TYPE_CHECKING:
    from toolkeep.providers.vendor import Vendor

_MODULES: Final = {
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
    "json-schema": ("json_schema", "JSON_SCHEMA"),
    "vllm": ("vllm", "VENDOR"),
    "llguidance": ("json_schema", "LLGUIDANCE"),
    "xgrammar": ("json_schema", "XGRAMMAR"),
}
"""By provider name: the module in `toolkeep.providers`, and its attribute that holds the `Vendor`."""

PROVIDERS: Final = tuple(_MODULES)


def vendor_of(name: str) -> "Vendor":
    """The vendor of a provider name; raises `UnknownProvider`."""
    if name not in _MODULES:
        raise UnknownProvider(name, known=PROVIDERS)
    module, attribute = _MODULES[name]
    vendor: Vendor = getattr(importlib.import_module(f"toolkeep.providers.{module}"), attribute)
    return vendor
