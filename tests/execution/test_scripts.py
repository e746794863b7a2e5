"""Tools of a script, of a program that was started with -m, and of modules that a configuration names."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolkeep import Code, Keep
from toolkeep.config.settings import Run
from toolkeep.errors import CalledAtImport
from toolkeep.execution import isolation_check
from toolkeep.registry.coerce import Offer
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.kernel_probe import Findings, probe

TOOL = '''
import sys
from toolkeep import Keep, tool

@tool(side_effects=["None"], constraints={"required_isolation": "LEVEL"})
def whoami() -> list[str]:
    """Where it runs."""
    return [__name__, *sys.argv]
'''
CALL = """
import json
with Keep() as keep:
    keep.register(whoami)
    result = keep.call_sync("whoami", {}, timeout_s=20)
    print(json.dumps([result.value, result.text]))
"""
GUARDED = "\nif __name__ == '__main__':\n" + CALL.replace("\n", "\n    ")
GUARD = 'belongs below `if __name__ == "__main__":`'


@pytest.fixture(scope="module")
def findings() -> Findings:
    found = probe()
    lacking = [finding for level in Isolation for finding in chain(*found.missing(level).values())]
    if lacking:
        pytest.skip(f"this machine does not give {lacking[0].mechanism}: {lacking[0].reason}")
    return found


def run(folder: Path, *command: str) -> Any:
    """What a program prints last, as data."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-B", *command],
        cwd=folder, capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_script(folder: Path, text: str, level: str = "strict", name: str = "shelf.py") -> Any:
    (folder / name).write_text(text.replace("LEVEL", level))
    return run(folder, name)


@pytest.mark.parametrize("name", ["shelf.py", "shelf"])
def test_a_script_is_imported_under_a_name_of_its_own(name: str, findings: Findings, tmp_path: Path) -> None:
    value, _ = run_script(tmp_path, TOOL + GUARDED, name=name)
    assert value == ["__toolkeep_main__", str(tmp_path / name)]


def test_a_module_that_was_started_with_m_keeps_its_package(findings: Findings, tmp_path: Path) -> None:
    package = tmp_path / "library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'beside it'")
    text = (
        TOOL.replace("LEVEL", "strict").replace("*sys.argv", "NAME") + "\nfrom .names import NAME\n" + GUARDED
    )
    (package / "desk.py").write_text(text)
    value, _ = run(tmp_path, "-m", "library.desk")
    assert value == ["library.desk", "beside it"]


@pytest.mark.parametrize("level", ["standard", "strict"])
@pytest.mark.parametrize(
    "call",
    [
        CALL,
        "\nimport asyncio\nasync def main():\n" + CALL.replace("\n", "\n    ") + "\nasyncio.run(main())",
        CALL.replace("Keep()", "__import__('toolkeep').open_keep()"),
        "\ntry:\n" + CALL.replace("\n", "\n    ") + "\nexcept Exception:\n    sys.exit(1)",
    ],
    ids=["plain", "async", "open_keep", "swallowed"],
)
def test_a_script_without_a_guard_is_told_to_have_one(
    level: str, call: str, findings: Findings, tmp_path: Path
) -> None:
    value, text = run_script(tmp_path, TOOL + call, level)
    assert value is None
    assert "a worker imports its file for its definitions, and that makes a call" in text
    assert GUARD in text


def test_a_keep_that_is_only_opened_at_import_does_no_harm(findings: Findings, tmp_path: Path) -> None:
    opened = "\nkeep = Keep()\nkeep.register(whoami)\n"
    value, text = run_script(tmp_path, TOOL + opened + GUARDED)
    assert value is not None, text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('my own words')", "its file ends the process when a worker imports it"),
        ("raise KeyError('my own words')", "its file raises an exception when a worker imports it"),
        ("import my_own_words", "it needs a module that is neither installed nor in the package"),
        ("del whoami", "its module has no function or class of that name"),
    ],
)
def test_why_a_file_cannot_be_imported_is_told_in_words_of_ours(
    body: str, why: str, findings: Findings, tmp_path: Path
) -> None:
    only_there = f"\nif __name__ != '__main__':\n    {body}\n"
    _, text = run_script(tmp_path, TOOL + only_there + GUARDED)
    assert why in text
    assert "own words" not in text and "own_words" not in text  # noqa: PT018 -- one thing


def test_what_is_typed_in_is_refused_when_it_is_registered(tmp_path: Path) -> None:
    text = (TOOL + CALL).replace("LEVEL", "strict")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "it is typed into an interpreter or a notebook (put it into a file" in done.stderr


def test_what_a_script_puts_together_from_text_is_refused_when_it_is_registered(tmp_path: Path) -> None:
    text = f"exec(compile({TOOL.replace('LEVEL', 'strict')!r}, '<typed>', 'exec'), globals())\n{CALL}"
    (tmp_path / "shelf.py").write_text(text)
    done = subprocess.run(
        [sys.executable, tmp_path / "shelf.py"], capture_output=True, text=True, check=False
    )
    assert "it is typed into an interpreter or a notebook" in done.stderr


def test_a_call_while_a_worker_imports_is_refused_with_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running:
        is_running = True

    loading = ModuleType("_toolkeep_inside.load")
    monkeypatch.setattr(loading, "Import", Running, raising=False)
    monkeypatch.setitem(sys.modules, "_toolkeep_inside.load", loading)
    with pytest.raises(CalledAtImport) as caught:
        Keep().call_sync("any", {})
    assert (caught.value.code, caught.value.hint) == (
        Code.NOT_RUNNABLE,
        'put the calls below `if __name__ == "__main__":`',
    )


# --- by reference --------------------------------------------------------------------------------

MODULE = """
import json
from toolkeep import InvokeResult, ToolContext, tool

@tool
def decorated(count: int, context: ToolContext) -> list:
    return [count, context.agent, __import__("sys").modules.get("pydantic")]

@tool
def unresolved(count: "Missing") -> list:
    return [count]

def plain(count: int, context: ToolContext) -> list:
    context.progress(count, message="so far")
    return [count, context.agent, context.secret("key"), type(context).__name__]

def optional(count: int, context: "ToolContext | None" = None) -> list:
    return [count, context.agent]

class Desk:
    TOOL_NAME = "desk"
    async def execute(self, arguments_json, context):
        context.progress(1, 1)
        return InvokeResult.ok(json.dumps([json.loads(arguments_json), context.agent]))

at_the_door = Desk()
"""


@pytest.fixture
def keep(findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    monkeypatch.setattr(isolation_check, "probe", lambda **_: findings)
    (tmp_path / "named_by_reference.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    keep = Keep(tool_secrets={"named": {"key": "not-a-real-key"}})
    yield keep
    keep.close()


@pytest.mark.parametrize(
    ("target", "value", "told"),
    [
        ("plain", [3, "local", "not-a-real-key", "ToolContext"], [(3, None, "so far")]),
        ("optional", [3, "local"], []),
        ("decorated", [3, "local", None], []),
        ("Desk", [{"count": 3}, "local"], [(1, 1, "")]),
        ("at_the_door", [{"count": 3}, "local"], [(1, 1, "")]),
    ],
)
def test_functions_and_classes_by_reference_get_their_context(
    target: str, value: Any, told: list[Any], keep: Keep
) -> None:
    count = {"type": "integer", "description": "A number"}
    data = {
        "name": "named",
        "description": "Named by reference.",
        "side_effects": ["None"],
        "parameters": {"type": "object", "properties": {"count": count}, "required": ["count"]},
    }
    keep.register(Offer(tool=data, runner=Run(kind="python", target=f"named_by_reference:{target}")))
    heard: list[Any] = []
    result = keep.call_sync("named", {"count": 3}, on_progress=lambda *said: heard.append(said))
    assert (result.value, result.isolation, heard) == (value, "standard", told), result.text
    assert "named_by_reference" not in sys.modules


def test_a_decorated_function_by_reference_has_annotations_that_can_be_resolved(keep: Keep) -> None:
    data = {"name": "named", "description": "Never imported.", "side_effects": ["None"]}
    keep.register(Offer(tool=data, runner=Run(kind="python", target="named_by_reference:unresolved")))
    assert keep.call_sync("named", {}).code is Code.NOT_RUNNABLE


def test_a_call_that_is_given_up_during_the_import_says_so_in_the_log(
    keep: Keep, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "named_by_reference.py").write_text("import time\ntime.sleep(60)\n")
    data = {"name": "named", "description": "Never imported.", "side_effects": ["None"]}
    keep.register(Offer(tool=data, runner=Run(kind="python", target="named_by_reference:plain")))
    assert keep.call_sync("named", {}, timeout_s=4).code is Code.TIMED_OUT
    (said,) = [record for record in caplog.records if record.name == "toolkeep.sandbox"]
    assert said.getMessage() == "a call was given up while its worker was still importing the tool"
