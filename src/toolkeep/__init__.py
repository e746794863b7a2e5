"""toolkeep keeps an LLM agent's tools: strict contracts, policy, approval, sandbox, audit.

`__all__` is the public API, together with the modules that docs/versioning.md lists; everything else is
internal. A name is loaded when it is first used, so that importing toolkeep costs next to nothing.
"""

import importlib

TYPE_CHECKING = False  # true for type checkers; typing would be most of the time that this import takes
if TYPE_CHECKING:
    from toolkeep.approval.question import Answer, AnswerRefused, Question
    from toolkeep.approval.view import preview_answer, render_question
    from toolkeep.assembly import open_keep
    from toolkeep.audit.receipt import verify_receipt
    from toolkeep.calls import CheckedCall, Refusal, ToolResult, Violation
    from toolkeep.canonical import canonical_hash
    from toolkeep.cli.asking import TerminalApprover
    from toolkeep.definitions.context import ToolContext, ToolFailed
    from toolkeep.definitions.contract import InvokeResult
    from toolkeep.definitions.function import FunctionTool, tool
    from toolkeep.definitions.lint import lint_definition
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
    from toolkeep.sources.files import load_definitions
    from toolkeep.sources.http import HttpSource
    from toolkeep.sources.mcp.questions import UpstreamAnswer, UpstreamQuestion
    from toolkeep.sources.process import ProcessSource
    from toolkeep.telemetry.json_logs import JsonFormatter

_HOMES = {
    "Answer": "approval.question",
    "AnswerRefused": "approval.question",
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
    "JsonFormatter": "telemetry.json_logs",
    "Keep": "keep",
    "Limits": "limits",
    "Option": "definitions.parameter",
    "ProcessSource": "sources.process",
    "Question": "approval.question",
    "Refusal": "calls",
    "Registry": "registry.protocol",
    "Secret": "definitions.parameter",
    "SideEffect": "definitions.vocabulary",
    "TerminalApprover": "cli.asking",
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
    "UpstreamAnswer": "sources.mcp.questions",
    "UpstreamQuestion": "sources.mcp.questions",
    "Violation": "calls",
    "WasmTool": "definitions.wasm",
    "canonical_hash": "canonical",
    "lint_definition": "definitions.lint",
    "load_definitions": "sources.files",
    "open_keep": "assembly",
    "preview_answer": "approval.view",
    "render_question": "approval.view",
    "tool": "definitions.function",
    "verify_receipt": "audit.receipt",
}

__all__ = [
    "Answer",
    "AnswerRefused",
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
    "JsonFormatter",
    "Keep",
    "Limits",
    "Option",
    "ProcessSource",
    "Question",
    "Refusal",
    "Registry",
    "Secret",
    "SideEffect",
    "TerminalApprover",
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
    "UpstreamAnswer",
    "UpstreamQuestion",
    "Violation",
    "WasmTool",
    "canonical_hash",
    "lint_definition",
    "load_definitions",
    "open_keep",
    "preview_answer",
    "render_question",
    "tool",
    "verify_receipt",
]

__version__ = "0.1.0"


if not TYPE_CHECKING:  # a type checker that saw it would believe every name to be there

    def __getattr__(name):
        if name in _HOMES:
            value = getattr(importlib.import_module(f"toolkeep.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'toolkeep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
