"""The tools of a Python file: what a worker says about them is checked like any definition, and held to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep, open_keep
from toolkeep.config.tools_file import find_tools_file
from toolkeep.definitions.found_tool import FoundTool
from toolkeep.errors import Code
from toolkeep.registry.tool_provider import FILES
from toolkeep.sources.tools_file_source import ToolsFileProvider

PLAIN = {"name": "count", "description": "Counts.", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    (tmp_path / "tools.py").touch()
    with open_keep(project=tmp_path) as keep:
        yield keep


def offered(root: Path, *definitions: dict[str, Any], change: str = "") -> ToolsFileProvider:
    def read(*_: object) -> list[FoundTool]:
        if change:
            (root / "tools.py").write_text(change)
        return [FoundTool(reference="f", definition=one) for one in definitions]

    return ToolsFileProvider(find_tools_file("tools.py", root), read, name=FILES, priority=1)


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("said", [{}, {"constraints": {"max_execution_time": 5}}])
def test_a_tool_that_states_no_level_runs_at_strict(said: dict[str, Any], keep: Keep, tmp_path: Path) -> None:
    keep.load(own=[offered(tmp_path, PLAIN | said)])
    assert str(keep.get("count").definition.constraints.required_isolation) == "strict"


@pytest.mark.spec("SBX-1")
def test_a_tool_that_asks_for_no_isolation_is_never_run(keep: Keep, tmp_path: Path) -> None:
    said = {"effects": "none", "constraints": {"required_isolation": "none"}}
    keep.load(own=[offered(tmp_path, PLAIN | said)])
    result = keep.call_sync("count", {}, agent="operator")
    assert result.code is Code.ISOLATION_UNAVAILABLE


def test_no_definition_takes_the_name_of_a_built_in_tool(keep: Keep, tmp_path: Path) -> None:
    before = keep.get("read_file")
    aliased = PLAIN | {"aliases": ["write_file"]}
    loaded = keep.load(own=[offered(tmp_path, PLAIN | {"name": "read_file", "version": "9.0.0"}, aliased)])
    assert {one.error.code for one in loaded.skipped} == {Code.DUPLICATE_TOOL}
    assert keep.get("read_file") is before


def test_a_definition_cannot_claim_another_source(keep: Keep, tmp_path: Path) -> None:
    keep.load(own=[offered(tmp_path, PLAIN | {"source": {"kind": "mcp", "origin": "mcp:files"}})])
    assert keep.get("count").definition.source.is_by_hand


def test_the_rules_for_authors_refuse_what_the_worker_says(keep: Keep, tmp_path: Path) -> None:
    bad = [PLAIN | {"name": "No Name"}, PLAIN | {"description": ""}, PLAIN | {"effects": "writes"}, {}]
    loaded = keep.load(own=[offered(tmp_path, *bad)])
    assert [one.error.code for one in loaded.skipped] == [Code.DEFINITION_INVALID] * 4


@pytest.mark.spec("REG-5")
def test_a_file_that_changes_while_it_is_read_gives_no_tools(keep: Keep, tmp_path: Path) -> None:
    loaded = keep.load(own=[offered(tmp_path, PLAIN, change="x = 1\n")])
    assert [one.error.code for one in loaded.skipped] == [Code.FILE_UNREADABLE]
    assert "count" not in keep


@pytest.mark.spec("REG-5")
def test_a_call_after_a_change_of_the_file_is_refused(keep: Keep, tmp_path: Path) -> None:
    keep.load(own=[offered(tmp_path, PLAIN | {"effects": "none"})])
    (tmp_path / "tools.py").write_text("def f(): ...\n")
    result = keep.call_sync("count", {}, agent="operator")
    assert result.code is Code.TOOL_QUARANTINED
