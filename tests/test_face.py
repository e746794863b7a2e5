"""The public face: what `import toolkeep` gives, and what it does not load."""

import asyncio
import gc
import importlib
import inspect
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import toolkeep
from toolkeep.keep.keep import CallKeywords, Keep


@pytest.mark.parametrize("name", ["toolkeep", "toolkeep.mcp", "toolkeep.server"])
def test_every_name_of_a_lazy_module_can_be_loaded_and_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__) == sorted(module._HOMES)
    for exported in module.__all__:
        assert getattr(module, exported).__doc__
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("name", ["toolkeep.mcp", "toolkeep.server"])
def test_importing_a_public_package_loads_nothing_below_it(name: str) -> None:
    code = f"import sys, {name}; print(*sorted(one for one in sys.modules if one.startswith('toolkeep')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert loaded.split() == ["toolkeep", name]


def test_importing_toolkeep_loads_nothing_of_it_yet() -> None:
    code = "import sys; before = set(sys.modules); import toolkeep; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert [name for name in loaded if name.startswith("toolkeep")] == ["toolkeep"]
    assert not {"msgspec", "jsonschema_rs", "jiter", "orjson", "logging", "asyncio", "typing"} & set(loaded)


def test_a_keep_that_is_opened_loads_neither_pydantic_nor_yaml() -> None:
    code = "import sys, toolkeep; toolkeep.open_keep(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not {"pydantic", "yaml", "docstring_parser", "rapidfuzz", "click", "sqlite3"} & set(loaded)


def test_type_checkers_know_of_call_sync_what_call_takes() -> None:
    taken = inspect.signature(Keep.call).parameters
    assert list(CallKeywords.__annotations__) == list(taken)[3:]


@pytest.mark.parametrize("held", [{"capabilities": "fs.read:."}, {"permissions": "tool.system.run"}])
def test_what_an_agent_holds_is_never_read_letter_by_letter(held: dict[str, str]) -> None:
    keep = Keep()
    with pytest.raises(TypeError, match="lists of strings"):
        keep.declare_agent("writer", **held)
    assert not keep.has_agent("writer")


def open_and_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    keep = toolkeep.open_keep(project=tmp_path / "project")
    assert asyncio.run(keep.call("agent_hello_world", {"name": "Ada"})).ok
    return keep


def test_a_keep_that_is_dropped_open_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [open_and_call(tmp_path, monkeypatch)]
    kept[0].record.close()

    def drop() -> None:
        kept.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed keep"):
        drop()


def test_a_keep_that_was_closed_or_never_called_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        open_and_call(tmp_path, monkeypatch).close()
        toolkeep.open_keep(project=tmp_path / "project")
        Keep()
        gc.collect()
    assert [one for one in warned if one.category is ResourceWarning] == []
