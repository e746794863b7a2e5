"""toolkeep keeps an LLM agent's tools: strict contracts, policy, approval, sandbox, audit.

The names below are the public face. Each is loaded when it is first used, so that importing toolkeep
costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkeep.assembly import open_keep
    from toolkeep.audit.receipt import verify_receipt
    from toolkeep.calls import CheckedCall, Refusal, ToolResult, Violation
    from toolkeep.definitions.context import ToolContext, ToolFailed
    from toolkeep.definitions.contract import InvokeResult
    from toolkeep.definitions.function import FunctionTool, tool
    from toolkeep.definitions.parameter import Content, Option, Secret, ToolParameter, Touches
    from toolkeep.definitions.tool import ToolDefinition
    from toolkeep.definitions.vocabulary import (
        Category,
        Danger,
        Determinism,
        Isolation,
        SideEffect,
        Tier,
        ToolState,
    )
    from toolkeep.definitions.wasm import WasmTool
    from toolkeep.errors import ArgumentsRefused, Code, DefinitionError, ToolkeepError
    from toolkeep.keep import Keep
    from toolkeep.limits import CallLimits, Limits
    from toolkeep.registry.protocol import Registry
    from toolkeep.registry.providers import ToolProvider
    from toolkeep.sources.http import HttpSource

_HOMES = {
    "ArgumentsRefused": "errors",
    "CallLimits": "limits",
    "Category": "definitions.vocabulary",
    "CheckedCall": "calls",
    "Code": "errors",
    "Content": "definitions.parameter",
    "Danger": "definitions.vocabulary",
    "DefinitionError": "errors",
    "Determinism": "definitions.vocabulary",
    "FunctionTool": "definitions.function",
    "HttpSource": "sources.http",
    "InvokeResult": "definitions.contract",
    "Isolation": "definitions.vocabulary",
    "Keep": "keep",
    "Limits": "limits",
    "Option": "definitions.parameter",
    "Refusal": "calls",
    "Registry": "registry.protocol",
    "Secret": "definitions.parameter",
    "SideEffect": "definitions.vocabulary",
    "Tier": "definitions.vocabulary",
    "ToolContext": "definitions.context",
    "ToolDefinition": "definitions.tool",
    "ToolFailed": "definitions.context",
    "ToolParameter": "definitions.parameter",
    "ToolProvider": "registry.providers",
    "ToolResult": "calls",
    "ToolState": "definitions.vocabulary",
    "ToolkeepError": "errors",
    "Touches": "definitions.parameter",
    "Violation": "calls",
    "WasmTool": "definitions.wasm",
    "open_keep": "assembly",
    "tool": "definitions.function",
    "verify_receipt": "audit.receipt",
}

__all__ = [
    "ArgumentsRefused",
    "CallLimits",
    "Category",
    "CheckedCall",
    "Code",
    "Content",
    "Danger",
    "DefinitionError",
    "Determinism",
    "FunctionTool",
    "HttpSource",
    "InvokeResult",
    "Isolation",
    "Keep",
    "Limits",
    "Option",
    "Refusal",
    "Registry",
    "Secret",
    "SideEffect",
    "Tier",
    "ToolContext",
    "ToolDefinition",
    "ToolFailed",
    "ToolParameter",
    "ToolProvider",
    "ToolResult",
    "ToolState",
    "ToolkeepError",
    "Touches",
    "Violation",
    "WasmTool",
    "open_keep",
    "tool",
    "verify_receipt",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"toolkeep.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'toolkeep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
