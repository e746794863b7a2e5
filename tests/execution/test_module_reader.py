"""Definitions of a Python file are read in a confined worker, whose answer is bounded and never trusted."""

import os
from itertools import chain
from pathlib import Path

import pytest

from toolkeep.definitions.found_tool import FoundTool
from toolkeep.errors import FileUnreadable
from toolkeep.execution import isolation_check, module_reader
from toolkeep.execution.module_reader import ModuleReader
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Finding, Findings, probe


@pytest.fixture(scope="module")
def reader() -> ModuleReader:
    found = probe(levels=(Isolation.STRICT,))
    if lacking := list(chain(*found.missing(Isolation.STRICT).values())):
        pytest.skip(f"this machine does not give {lacking[0].mechanism}: {lacking[0].reason}")
    made = ModuleReader()
    made._machine._findings = {Isolation.STRICT: found}
    return made


def read(reader: ModuleReader, folder: Path, source: str) -> list[FoundTool]:
    path = folder / "tools.py"
    path.write_text(source)
    return reader.read("tools.py", str(path), (str(path),))


GOOD = """
from toolkeep import tool, open_keep

@tool(effects="none")
def count(text: str) -> int:
    "Count characters."
    return len(text)

@tool(effects="none")
def unannotated(x) -> int:
    "Has no annotation."
    return 1

again = count

class Agent:
    TOOL_NAME = "agent"
    TOOL_USAGE_METADATA = "Always."
    is_tool_fully_executed_on_server = True
    name = property(lambda self: self.TOOL_NAME)

    @staticmethod
    def get_schema():
        parameters = {"type": "object", "properties": {}, "required": []}
        return {"type": "function", "name": "agent", "description": "Does it.", "parameters": parameters}

    async def execute(self, arguments_json, context): ...

if __name__ == "__main__":
    open_keep()
"""


@pytest.mark.spec("SBX-1")
def test_functions_and_classes_are_described_once_each_with_their_problems(
    reader: ModuleReader, tmp_path: Path
) -> None:
    count, unannotated, agent = read(reader, tmp_path, GOOD)
    assert count.definition is not None
    assert (count.reference, count.definition["name"], count.definition["side_effects"]) == (
        "count", "count", ["None"],
    )  # fmt: skip
    assert unannotated.definition is None
    assert [problem.field for problem in unannotated.problems] == ["parameters/properties/x"]
    assert agent.definition is not None
    assert (agent.reference, agent.definition["name"]) == ("Agent", "agent")


def test_an_import_error_is_told_with_its_traceback(reader: ModuleReader, tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable) as told:
        read(reader, tmp_path, "value = 1\nvalue / 0\n")
    place = f'File "{tmp_path}/tools.py", line 2, in <module>'
    assert (
        told.value.message == f"tools.py: importing it failed\n  {place}\nZeroDivisionError: division by zero"
    )


FORGED = """
import sys
sys.modules["_toolkeep_inside.call_handler"].plain = lambda _: {value}
"""


@pytest.mark.parametrize(
    "value",
    [
        "'text'",
        "[{'reference': 'a.b', 'definition': {}}]",
        "[{'reference': 'x' * 300, 'definition': {}}]",
        "[{'reference': 'os', 'definition': []}]",
        "[{'reference': 'a', 'definition': {}, 'runner': 'x'}]",
        "[{'reference': 'a', 'definition': {}}] * 1001",
        "[{'reference': 'a', 'definition': {'x': 'y' * 5_000_000}}]",
    ],
)
@pytest.mark.spec("SBX-1")
def test_a_forged_reply_of_another_form_is_refused(value: str, reader: ModuleReader, tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"no definitions|more than"):
        read(reader, tmp_path, FORGED.format(value=value))


@pytest.mark.spec("SBX-1")
def test_a_file_that_never_ends_is_given_up(
    reader: ModuleReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_reader, "_SECONDS", 1.0)
    with pytest.raises(FileUnreadable, match="took longer"):
        read(reader, tmp_path, "import time\ntime.sleep(600)\n")


@pytest.mark.spec("SBX-1")
def test_importing_reaches_no_file_no_network_and_no_process(reader: ModuleReader, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    tries = [
        f"open({str(tmp_path / 'secret')!r})",
        f"open({str(tmp_path / 'written')!r}, 'w')",
        "open('/etc/hostname')",
        "__import__('socket').create_connection(('127.0.0.1', 22), 1)",
        "__import__('subprocess').run(['/bin/true'])",
        "__import__('os').fork()",
    ]
    source = "from toolkeep import tool\nran = []\n"
    for text in tries:
        source += f"try:\n    {text}\n    ran.append({text!r})\nexcept OSError:\n    pass\n"
    source += "assert not ran, ran\n"
    assert read(reader, tmp_path, source) == []
    assert not (tmp_path / "written").exists()


@pytest.fixture
def nothing_confines(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Findings(tuple(Finding(one, works=False, reason="none here") for one in Mechanism))
    monkeypatch.setattr(isolation_check, "probe", lambda **_: missing)
    monkeypatch.setattr(module_reader, "Pool", None)


@pytest.mark.spec("SBX-1")
@pytest.mark.usefixtures("nothing_confines")
def test_where_nothing_confines_the_file_is_not_run_and_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable) as told:
        read(ModuleReader(unconfined=[str(tmp_path / "other.py")]), tmp_path, GOOD)
    assert "`unconfined:`" in told.value.hint


@pytest.mark.spec("SBX-1")
@pytest.mark.usefixtures("nothing_confines")
def test_where_nothing_confines_a_file_that_the_operator_named_is_read_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An ordinary user, which root becomes there, need not reach the interpreter of this environment.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = read(ModuleReader(unconfined=[str(tmp_path / "tools.py")]), tmp_path, GOOD)
    assert [one.reference for one in found] == ["count", "unannotated", "Agent"]
