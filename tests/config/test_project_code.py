"""The code that a configuration names: found by reading imports, with nothing of it imported."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from toolkeep.config import project_code
from toolkeep.config.project_code import ABSENT, hash_code, named_files, project_modules, reference_files
from toolkeep.errors import FileUnreadable

pytestmark = pytest.mark.spec("REG-5")


def write(root: Path, **files: str) -> None:
    """Files by name, with `__` for a slash."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, reference: str) -> list[str]:
    return [str(path.relative_to(root)) for path in reference_files(reference, root)]


def test_a_module_and_what_it_imports_are_found_through_others(tmp_path: Path) -> None:
    write(tmp_path, tool="import helper\nimport json", helper="from deep import x", deep="x = 1", other="")
    assert found(tmp_path, "tool:run") == ["deep.py", "helper.py", "tool.py"]
    assert project_modules(tmp_path / "tool.py", tmp_path) == reference_files("tool:run", tmp_path)


IMPORTS = [
    ("import pkg.a", ["pkg/__init__.py", "pkg/a.py"]),
    ("from pkg import a", ["pkg/__init__.py", "pkg/a.py"]),
    ("from pkg.a import x", ["pkg/__init__.py", "pkg/a.py"]),
    ("from pkg import *", ["pkg/__init__.py", "pkg/a.py", "pkg/b.py"]),
    ("def f():\n    import pkg.a", ["pkg/__init__.py", "pkg/a.py"]),
    ("if 0:\n    import pkg.a", ["pkg/__init__.py", "pkg/a.py"]),
    ("import importlib\nimportlib.import_module('pkg.b')", ["pkg/__init__.py", "pkg/b.py"]),
    ("__import__('pkg.b')", ["pkg/__init__.py", "pkg/b.py"]),
    ("__import__(name='pkg.b')", ["pkg/__init__.py", "pkg/b.py"]),
    ("__import__('pkg', fromlist=['b'])", ["pkg/__init__.py", "pkg/b.py"]),
    ("__import__('pkg', None, None, ('b',), 0)", ["pkg/__init__.py", "pkg/b.py"]),
    ("__import__('b', globals(), None, (), 1)", ["b.py"]),
    ("__import__('b', globals(), level=1)", ["b.py"]),
    ("import_module(name='pkg.b')", ["pkg/__init__.py", "pkg/b.py"]),
    ("import_module('.b', 'pkg')", ["pkg/__init__.py", "pkg/b.py"]),
    ("import_module(package='pkg', name='.b')", ["pkg/__init__.py", "pkg/b.py"]),
    ("import_module('..b', 'pkg.a')", ["pkg/__init__.py", "pkg/b.py"]),
    ("import_module('...b', 'pkg')", []),
    ("import_module('.b', __package__)", ["b.py"]),
    ("import_module('.b')", ["b.py"]),
    ("import_module(), __import__(1), import_module(*names)", []),
    ("import pkg.a; import pkg.b", ["pkg/__init__.py", "pkg/a.py", "pkg/b.py"]),
    ("import json, os.path", []),
    ("import", []),
    ("(" * 5000, []),
    ("import pkg\0", []),
]


@pytest.mark.parametrize(("source", "wanted"), IMPORTS)
def test_every_form_of_import_is_found(source: str, wanted: list[str], tmp_path: Path) -> None:
    write(tmp_path, tool=source, pkg____init____="", pkg__a="x = 1", pkg__b="", b="")
    (tmp_path / "pkg" / "__init__.py").touch()
    assert [name for name in found(tmp_path, "tool:run") if name != "tool.py"] == wanted


@pytest.mark.parametrize("deep", ["-" * 200_000 + "1", "1" + "+1" * 200_000], ids=["parser", "tree"])
def test_a_source_that_is_too_deep_to_read_is_refused(deep: str, tmp_path: Path) -> None:
    """A worker has another stack, and may well run it: what it imports would be accepted by nobody."""
    write(tmp_path, tool="import helper", helper=f"import hidden\nx = {deep}\n", hidden="")
    with pytest.raises(FileUnreadable, match=r"helper.py: .*nested"):
        found(tmp_path, "tool:run")


def test_relative_imports_stay_inside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project, pkg__a="from . import b\nfrom ...outside import x\nfrom ....etc import passwd", pkg__b="")
    write(tmp_path, outside="")
    assert found(project, "pkg.a:run") == ["pkg/a.py", "pkg/b.py"]


def test_whatever_could_stand_for_a_name_counts(tmp_path: Path) -> None:
    """Else a file that Python prefers could be put beside the one that was accepted."""
    write(tmp_path, tool="")
    for name in ("tool.abi3.so", "tool.pyc"):
        (tmp_path / name).touch()
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").touch()
    assert found(tmp_path, "tool:run") == ["tool/__init__.py", "tool.abi3.so", "tool.py", "tool.pyc"]


def test_a_src_folder_is_looked_through(tmp_path: Path) -> None:
    write(tmp_path / "src", shop__tools="from shop import prices", shop__prices="")
    assert found(tmp_path, "shop.tools:run") == ["src/shop/prices.py", "src/shop/tools.py"]


def test_code_beyond_the_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, tool="import a, b", a="", b="")
    monkeypatch.setattr(project_code, "CODE_FILES", 2)
    with pytest.raises(FileUnreadable, match="more than 2 files"):
        found(tmp_path, "tool:run")
    monkeypatch.setattr(project_code, "CODE_FILES", 9)
    monkeypatch.setattr(project_code, "CODE_SOURCE_BYTES", 5)
    with pytest.raises(FileUnreadable, match="bytes of code"):
        found(tmp_path, "tool:run")


RUNS: list[tuple[Any, list[str]]] = [
    ({"python": "tool:run"}, ["tool.py"]),
    ({"wasm": "mod.wasm"}, ["mod.wasm"]),
    ({"wasm": {"path": "mod.wasm"}}, ["mod.wasm"]),
    ({"command": ["./bin/go", "{name}"]}, ["bin/go", "pyvenv.cfg", "bin/python"]),
    (
        {"command": ["python3", "scripts/count.py", "/etc/passwd", "../x"]},
        ["scripts/count.py", "pyvenv.cfg", "bin/python", "scripts/near.py"],
    ),
    ({"process": {"argv": ["node", "server.js"], "code": ["lib.js", "missing"]}}, ["server.js", "lib.js"]),
    ({"process": ["id"]}, []),
    ({"http": "http://x.org"}, []),
    ({"python": 5}, []),
    ("${RUN}", []),
    ({"python": "a:b", "wasm": "c"}, []),
]


@pytest.mark.parametrize(("run", "wanted"), RUNS)
def test_programs_scripts_and_modules_of_the_project_are_found(
    run: Any, wanted: list[str], tmp_path: Path
) -> None:
    write(tmp_path, tool="", scripts__count="import near", scripts__near="")
    for name in ("server.js", "lib.js"):
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in named_files(run, tmp_path)] == wanted


def test_files_are_hashed_links_out_of_the_project_are_named_and_absence_is_noted(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_bytes(b"")
    (project / "python").symlink_to("/usr/bin/env")
    (project / "loop").symlink_to("loop")
    paths = [project / name for name in ("a", "python", "gone", "loop")]
    real = str(Path("/usr/bin/env").resolve())
    assert hash_code(paths, project) == {
        "a": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "python": f"link to {real}",
        "gone": ABSENT,
        "loop": ABSENT,
    }


def test_a_pipe_in_the_place_of_a_program_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever opens it without saying so waits for a writer, and every call with it."""
    program = tmp_path / "bin" / "greet"
    program.parent.mkdir()
    os.mkfifo(program)
    hashes: list[dict[str, str]] = []
    reader = threading.Thread(target=lambda: hashes.append(hash_code([program], tmp_path)), daemon=True)
    reader.start()
    reader.join(30)
    try:
        assert hashes == [{"bin/greet": ABSENT}]
    finally:
        with contextlib.suppress(OSError):  # nobody waits
            os.close(os.open(program, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("run", [{"command": ["./a\0b", "c\0d"]}, {"wasm": "a\0b"}, {"process": ["./a\0b"]}])
def test_a_name_that_no_file_can_have_names_none(run: dict[str, Any], tmp_path: Path) -> None:
    assert hash_code(named_files(run, tmp_path), tmp_path) == {".": ABSENT}


@pytest.mark.parametrize("run", [{"command": ["./bin"]}, {"wasm": "bin"}, {"process": ["./bin", "x"]}])
def test_a_folder_in_the_place_of_a_program_is_no_program(run: dict[str, Any], tmp_path: Path) -> None:
    """A clone that names one would keep every command from reading its configuration."""
    (tmp_path / "bin").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert hash_code(named_files(run, tmp_path), tmp_path) == {"bin": ABSENT}
    assert len(list(Path("/proc/self/fd").iterdir())) == before
