"""What libraries and programs of the real world need at strict; `docs/sandbox.md` has the same table."""

import concurrent.futures
import getpass
import multiprocessing
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep, open_keep, tool

STRICT: dict[str, Any] = {"constraints": {"required_isolation": "strict"}, "danger": "low"}
SPAWNS: dict[str, Any] = {"side_effects": ["ProcessSpawn"], "capabilities": ["process.spawn"], **STRICT}


@tool(side_effects=["None"], **STRICT)
def surroundings() -> dict[str, Any]:
    """Look at what every process of a Linux system finds."""
    return {
        "user": getpass.getuser(),
        "self": Path("/proc/self").readlink().name,
        "others": [path.name for path in Path("/proc").iterdir() if path.name.isdigit()],
        "streams": [Path(f"/dev/{name}").write_text("x") for name in ("stdout", "stderr", "fd/2")],
        "this host": socket.gethostbyname(socket.gethostname()),
        "localhost": socket.gethostbyname("localhost"),
        "hosts": Path("/etc/hosts").read_text(),
    }


def square(number: int) -> int:
    return number * number


@tool(**SPAWNS)
def squares(method: str) -> list[int]:
    """Square numbers in a process pool."""
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(square, range(4)))


@tool(**SPAWNS)
def shared_bytes() -> int:
    """Share memory between processes, which the standard library tracks in a process of its own."""
    memory = shared_memory.SharedMemory(create=True, size=36)
    memory.close()
    memory.unlink()
    return memory.size


@tool(side_effects=["None"], **STRICT)
def solve(size: int) -> float:
    """Solve linear equations in the threads of a library."""
    import numpy as np

    matrix = np.eye(size) * size + 1
    return float(np.linalg.solve(matrix, matrix @ np.ones(size)).sum())


@tool(**SPAWNS)
def packages_of_an_interpreter() -> list[str]:
    """Start the interpreter that the tool runs in, which should find what the tool finds."""
    code = "import pytest; print(pytest.__file__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return [str(Path(path).resolve()) for path in (pytest.__file__, said.strip())]


@tool(resource_bounds={"max_memory": 1 << 30}, **SPAWNS)
def run_programs(lines: list[str]) -> str:
    """Run programs, and give the output of the last."""
    for line in lines:
        output = subprocess.run(line.split(), capture_output=True, text=True, check=True).stdout
    return output


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keep]:
    with open_keep(project=tmp_path_factory.mktemp("project")) as keep:
        keep.register(surroundings, squares, shared_bytes, solve, packages_of_an_interpreter, run_programs)
        programs = [f"process.spawn:{name}" for name in ("true", "git", "node") if shutil.which(name)]
        keep.declare_agent("ada", capabilities=programs)
        yield keep


@pytest.fixture
def value(keep: Keep) -> Callable[..., Any]:
    def called(name: str, **arguments: Any) -> Any:
        result = keep.call_sync(name, arguments, agent="ada", timeout_s=30)
        assert result.ok, result.text
        return result.value

    return called


@pytest.mark.spec("SBX-2")
def test_a_tool_finds_itself_a_user_and_a_host_and_nobody_elses(value: Callable[..., Any]) -> None:
    assert value("surroundings") == {
        "user": "toolkeep",
        "self": "1",
        "others": ["1"],
        "streams": [1, 1, 1],
        "this host": "127.0.0.1",
        "localhost": "127.0.0.1",
        "hosts": "127.0.0.1 localhost toolkeep\n::1 localhost toolkeep\n",
    }


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_pool_runs_functions_of_the_tools_own_file(method: str, value: Callable[..., Any]) -> None:
    assert value("squares", method=method) == [0, 1, 4, 9]


def test_shared_memory_is_tracked_by_a_process_that_is_spawned(value: Callable[..., Any]) -> None:
    assert value("shared_bytes") >= 36


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_node_runs_in_a_gibibyte(
    value: Callable[..., Any],
) -> None:
    assert value("run_programs", lines=["node -e console.log(6*7)"]) == "42\n"


def test_git_makes_a_repository_in_the_scratch_folder(value: Callable[..., Any]) -> None:
    commit = "git -C shelf -c user.name=ada -c user.email=ada@books.example commit --allow-empty -m Dune"
    assert value("run_programs", lines=["git init shelf", commit, "git -C shelf log --format=%s"]) == "Dune\n"


def test_a_library_solves_equations_in_threads_of_its_own(value: Callable[..., Any]) -> None:
    assert value("solve", size=300) == pytest.approx(300)


def test_an_interpreter_that_a_tool_starts_finds_the_packages_of_the_tool(value: Callable[..., Any]) -> None:
    ours, found = value("packages_of_an_interpreter")
    assert found == ours
