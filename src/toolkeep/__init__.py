"""toolkeep keeps an LLM agent's tools: strict contracts, policy, approval, sandbox, audit.

`__all__` is the public API, together with the modules that docs/versioning.md lists; everything else is
internal. A public name is imported when it is first used: `import toolkeep` loads no other module of it.
"""

import importlib

TYPE_CHECKING = False  # true for type checkers; typing would be most of the time that this import takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from toolkeep.approval.question import Answer, AnswerRefused, Question
    from toolkeep.approval.question_text import preview_answer, render_question
    from toolkeep.audit.receipt import verify_receipt
    from toolkeep.authoring.dependencies import Depends
    from toolkeep.authoring.function_tool import FunctionTool
    from toolkeep.authoring.lint_rules import lint_definition
    from toolkeep.authoring.tool_decorator import tool
    from toolkeep.authoring.wasm_tool import WasmTool
    from toolkeep.calls import CheckedCall, Diagnosis, Refusal, ToolResult, Violation
    from toolkeep.cli.approval_prompt import TerminalApprover
    from toolkeep.definitions.parameter import ToolParameter
    from toolkeep.definitions.parameter_marks import (
        Amount,
        Content,
        Credential,
        Destination,
        Destroys,
        Option,
        Record,
        Secret,
        Target,
        Time,
        Touches,
    )
    from toolkeep.definitions.tool import ToolDefinition
    from toolkeep.definitions.tool_context import InvokeResult, ToolContext, ToolFailed
    from toolkeep.definitions.vocabulary import (
        Category,
        Danger,
        Determinism,
        Isolation,
        SideEffect,
        Tier,
        ToolState,
    )
    from toolkeep.errors import ArgumentsRefused, Code, DefinitionError, ToolkeepError
    from toolkeep.flow.host_session import Session
    from toolkeep.json_values.canonical import canonical_hash
    from toolkeep.keep.hooks import HookCall
    from toolkeep.keep.keep import Keep
    from toolkeep.keep.open import open_keep
    from toolkeep.limits import CallLimits, Limits
    from toolkeep.mcp_client.elicitation import ElicitationAnswer, ElicitationRequest
    from toolkeep.registry.protocol import Registry
    from toolkeep.registry.tool_provider import ToolProvider
    from toolkeep.sources.definition_files import load_definitions
    from toolkeep.sources.http_source import HttpSource
    from toolkeep.sources.process_source import ProcessSource
    from toolkeep.telemetry.logs import JsonFormatter

_HOMES = {
    "Amount": "definitions.parameter_marks",
    "Answer": "approval.question",
    "AnswerRefused": "approval.question",
    "ArgumentsRefused": "errors",
    "CallLimits": "limits",
    "Category": "definitions.vocabulary",
    "CheckedCall": "calls",
    "Code": "errors",
    "Content": "definitions.parameter_marks",
    "Credential": "definitions.parameter_marks",
    "Danger": "definitions.vocabulary",
    "DefinitionError": "errors",
    "Depends": "authoring.dependencies",
    "Destination": "definitions.parameter_marks",
    "Destroys": "definitions.parameter_marks",
    "Determinism": "definitions.vocabulary",
    "Diagnosis": "calls",
    "ElicitationAnswer": "mcp_client.elicitation",
    "ElicitationRequest": "mcp_client.elicitation",
    "FunctionTool": "authoring.function_tool",
    "HookCall": "keep.hooks",
    "HttpSource": "sources.http_source",
    "InvokeResult": "definitions.tool_context",
    "Isolation": "definitions.vocabulary",
    "JsonFormatter": "telemetry.logs",
    "Keep": "keep.keep",
    "Limits": "limits",
    "Option": "definitions.parameter_marks",
    "ProcessSource": "sources.process_source",
    "Question": "approval.question",
    "Record": "definitions.parameter_marks",
    "Refusal": "calls",
    "Registry": "registry.protocol",
    "Secret": "definitions.parameter_marks",
    "Session": "flow.host_session",
    "SideEffect": "definitions.vocabulary",
    "Target": "definitions.parameter_marks",
    "TerminalApprover": "cli.approval_prompt",
    "Tier": "definitions.vocabulary",
    "Time": "definitions.parameter_marks",
    "ToolContext": "definitions.tool_context",
    "ToolDefinition": "definitions.tool",
    "ToolFailed": "definitions.tool_context",
    "ToolParameter": "definitions.parameter",
    "ToolProvider": "registry.tool_provider",
    "ToolResult": "calls",
    "ToolState": "definitions.vocabulary",
    "ToolkeepError": "errors",
    "Touches": "definitions.parameter_marks",
    "Violation": "calls",
    "WasmTool": "authoring.wasm_tool",
    "canonical_hash": "json_values.canonical",
    "lint_definition": "authoring.lint_rules",
    "load_definitions": "sources.definition_files",
    "open_keep": "keep.open",
    "preview_answer": "approval.question_text",
    "render_question": "approval.question_text",
    "tool": "authoring.tool_decorator",
    "verify_receipt": "audit.receipt",
}

_BY_SCRIPTS = frozenset(("Keep", "open_keep"))
"""A script names these beside its tools. They import most of the package, which no worker needs."""

__all__ = [
    "Amount",
    "Answer",
    "AnswerRefused",
    "ArgumentsRefused",
    "CallLimits",
    "Category",
    "CheckedCall",
    "Code",
    "Content",
    "Credential",
    "Danger",
    "DefinitionError",
    "Depends",
    "Destination",
    "Destroys",
    "Determinism",
    "Diagnosis",
    "ElicitationAnswer",
    "ElicitationRequest",
    "FunctionTool",
    "HookCall",
    "HttpSource",
    "InvokeResult",
    "Isolation",
    "JsonFormatter",
    "Keep",
    "Limits",
    "Option",
    "ProcessSource",
    "Question",
    "Record",
    "Refusal",
    "Registry",
    "Secret",
    "Session",
    "SideEffect",
    "Target",
    "TerminalApprover",
    "Tier",
    "Time",
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
    "canonical_hash",
    "lint_definition",
    "load_definitions",
    "open_keep",
    "preview_answer",
    "render_question",
    "tool",
    "verify_receipt",
]

__version__: str


def _lazy_exports(
    namespace: "dict[str, Any]", homes: dict[str, str]
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Make `__getattr__` and `__dir__` of a module (PEP 562) that imports its public names on first use.

    `homes` names the module below `toolkeep` that defines each. The helper stands here because every public
    module has loaded this one already.
    """

    def load(name: str) -> "Any":
        if name not in homes:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = _stand_in(name, homes[name]) if name in _BY_SCRIPTS else _import(name, homes[name])
        namespace[name] = value  # the next use does not come here
        return value

    return load, lambda: sorted(namespace["__all__"])


def _import(name: str, home: str) -> "Any":
    return getattr(importlib.import_module(f"toolkeep.{home}"), name)


def _stand_in(name: str, home: str) -> "Any":
    """A public name; in a worker that imports a tool, what imports it on first use."""
    from toolkeep.authoring.importing import StandIn, is_importing

    if not is_importing():
        return _import(name, home)
    return StandIn(name, (), {"import_real": staticmethod(lambda: _import(name, home))})


if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__, __dir__ = _lazy_exports(globals(), {**_HOMES, "__version__": "version"})
