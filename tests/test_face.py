"""The public face: what `import toolkeep` gives, and what it does not load."""

import subprocess
import sys

import toolkeep

FACE = {
    "ArgumentsRefused", "CallLimits", "Category", "CheckedCall", "Code", "Danger", "DefinitionError", "Determinism",
    "FunctionTool", "HttpSource", "InvokeResult", "Isolation", "Keep", "Limits", "Refusal", "Registry", "Secret",
    "SideEffect", "Tier", "ToolContext", "ToolDefinition", "ToolFailed", "ToolParameter", "ToolProvider",
    "ToolResult", "ToolState", "ToolkeepError", "Touches", "Violation", "WasmTool", "open_keep", "tool",
    "verify_receipt",
}  # fmt: skip


def test_the_public_face_is_exactly_this() -> None:
    assert set(toolkeep.__all__) == FACE
    assert sorted(toolkeep.__all__) == list(dir(toolkeep))
    for name in FACE:
        assert getattr(toolkeep, name).__doc__


def test_importing_toolkeep_loads_nothing_of_it_yet() -> None:
    code = "import sys; before = set(sys.modules); import toolkeep; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert [name for name in loaded if name.startswith("toolkeep")] == ["toolkeep"]
    assert not {"msgspec", "jsonschema_rs", "jiter", "orjson", "logging", "asyncio"} & set(loaded)


def test_a_keep_that_is_opened_loads_neither_pydantic_nor_yaml() -> None:
    code = "import sys, toolkeep; toolkeep.open_keep(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not {"pydantic", "yaml", "docstring_parser", "rapidfuzz", "click", "rich", "sqlite3"} & set(loaded)
