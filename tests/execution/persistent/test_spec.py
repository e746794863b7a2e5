"""Which files that a command names are its code, and which are data that it may write where granted."""

import sys
from pathlib import Path

import pytest

from toolkeep.definitions.capability import Capability
from toolkeep.execution.persistent.confinement import Confinement, confinement_for_grants
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.sandbox.trusted_paths import TrustedPaths

DATABASE = b"SQLite format 3\0" + bytes(100)

pytestmark = pytest.mark.spec("SBX-6")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "is_data"),
    [
        ("shop.db", DATABASE, True),
        ("shop.db", b"", True),
        ("shop", bytes(8) + b"DUCK", True),
        ("memory.jsonl", b"{}\n", True),
        ("plugin.py", b"", False),
        ("plugin.py", DATABASE, False),
        ("plugin", b"print(1)\n", False),
        ("plugin", b"", False),
        ("settings.json", b"{}\n", False),
        ("rows.csv", b"#!/bin/sh\n", False),
        ("model.pkl", b"\x80\4\0", False),
        ("prompt.md", b"Be nice.", False),
    ],
)
def test_what_could_be_run_is_code(
    name: str, content: bytes, is_data: bool, program: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    spec = ProcessSpec(argv=(program, "--file", str(path)))
    assert (str(path) in spec.shown("/"), str(path) in spec.data("/")) == (not is_data, is_data)
    path.chmod(0o755)
    assert str(path) in spec.shown("/")


def test_what_stands_right_behind_the_program_is_code_unless_it_is_a_database(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("print(1)")
    assert ProcessSpec(argv=(sys.executable, str(rows))).data("/") == ()
    assert ProcessSpec(argv=(sys.executable, "-m", "x", str(rows))).data("/") == (str(rows),)
    rows.write_bytes(DATABASE)
    assert ProcessSpec(argv=(sys.executable, str(rows))).data("/") == (str(rows),)


def confined(spec: ProcessSpec, *granted: Path) -> Confinement:
    held = [Capability.read(f"fs.write:{path}") for path in granted]
    return confinement_for_grants(held, spec.argv[0], spec, TrustedPaths(), "/")


def test_granted_data_is_writable_and_code_never_is(program: str, tmp_path: Path) -> None:
    """A server that rewrites its own script would run as another one, for every agent."""
    work = tmp_path / "work"
    (work / "inner").mkdir(parents=True)
    data, script = work / "shop.db", work / "inner" / "plugin.py"
    data.write_bytes(DATABASE)
    script.write_text("")
    spec = ProcessSpec(argv=(program, str(script), "--db", str(data)))
    assert {str(data), str(script)} <= set(confined(spec).code)
    place = confined(spec, work)
    assert str(data) not in place.code
    assert str(script) in place.code
    # Also against a rename of the folder that it lies in.
    assert {str(script), f"{script.parent}/"} <= set(place.reach.grant.frozen)
    with pytest.raises(ValueError, match="the code of the program"):
        confined(spec, script)
