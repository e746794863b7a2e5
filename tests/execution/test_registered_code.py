"""Where the code of registered tools lies: what no tool may write (SBX-6)."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.execution import isolated
from toolkeep.definitions.capability import Capability
from toolkeep.execution.registered_code import RegisteredCode, programs_of_others
from toolkeep.keep.keep import Keep
from toolkeep.sandbox.trusted_paths import TrustedPath

pytestmark = pytest.mark.spec("SBX-6")


def named(kind: str, target: Any, provider: str = "project") -> Any:
    """A tool as a configuration names it."""
    runner = SimpleNamespace(kind=kind, target=target)
    return SimpleNamespace(name="named", runner=runner, provider=provider)


def places(project: Path, tool: Any) -> list[str]:
    found = RegisteredCode(lambda: {"named": [tool]}, str(project))()
    return [os.path.relpath(one.path, project) for one in found]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = Path(os.path.realpath(tmp_path))
    (top / "shop").mkdir()
    (top / "shop" / "__init__.py").touch()
    for name in ("alone.py", "module.wasm", "server.js", "run.sh"):
        (top / name).write_text("#!/bin/sh\n")
        (top / name).chmod(0o755)
    return top


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("python", "shop.tools:price", ["shop"]),
        ("python", "alone:say", ["alone.py", "__pycache__"]),
        ("command", ["./run.sh", "{path}"], ["run.sh"]),
        ("command", ["/bin/sh", "./server.js", "run.sh"], ["server.js", "run.sh"]),
        ("process", {"argv": ["/bin/sh", "./server.js"], "code": ["./shop"]}, ["server.js", "shop"]),
        ("wasm", "module.wasm", ["module.wasm"]),
        ("wasm", {"path": "module.wasm", "output": "text"}, ["module.wasm"]),
        ("http", {"url": "https://example.org"}, []),
        ("python", "absent:say", []),
        ("command", ["./absent"], []),
    ],
)
def test_what_a_configuration_names_is_found(
    project: Path, kind: str, target: Any, expected: list[str]
) -> None:
    assert places(project, named(kind, target)) == expected


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("command", ["./link/run.sh", "{path}"]),
        ("command", ["/bin/sh", "link/run.sh"]),
        ("process", ["./link/run.sh"]),
        ("process", {"argv": ["/bin/sh"], "code": ["./link/shop"]}),
        ("mcp", {"command": ["/bin/sh", "./link/run.sh"], "base": "PROJECT"}),
        ("wasm", {"path": "link/module.wasm"}),
        ("python", "link.tools:price"),
    ],
)
def test_links_on_the_way_to_what_a_configuration_names_are_found(
    project: Path, kind: str, target: Any
) -> None:
    """A tool that may write them would put code of its own in their place, and the secrets of others into it."""
    (project / "link").symlink_to(".")
    (project / "__init__.py").touch()
    if kind == "mcp":
        target = {**target, "base": str(project)}
    found = RegisteredCode(lambda: {"named": [named(kind, target)]}, str(project)).links()
    assert TrustedPath(str(project / "link"), "the code of the tool 'named'") in found


def test_the_program_of_an_upstream_server_is_found(project: Path) -> None:
    target = {"command": ["/bin/sh", "./server.js"], "base": str(project), "tool": "t", "upstream": "u"}
    assert places(project, named("mcp", target, "mcp:u")) == ["server.js"]


def test_a_confined_function_counts_with_its_package_and_one_in_process_with_its_file() -> None:
    with Keep() as keep:
        keep.register(isolated.write)
        (package, *_) = keep.code
    assert package.path == os.path.realpath(Path(isolated.__file__).parents[1])
    assert package.what == "the code of the tool 'write'"


def test_the_code_of_another_keep_is_trusted_too() -> None:
    """Its tools may have other secrets; once it is closed, nothing of it is run."""
    package = os.path.realpath(Path(isolated.__file__).parents[1])
    with Keep() as other, Keep() as keep:
        other.register(isolated.write)
        assert keep.trusted.covering(f"{package}/x.py") is not None
    assert package not in {one.path for one in keep.trusted._code()}


def test_it_is_worked_out_again_when_a_tool_comes(project: Path) -> None:
    families: dict[str, list[Any]] = {}
    code = RegisteredCode(lambda: families, str(project))
    assert code() == ()
    families = {"named": [named("wasm", "module.wasm")]}
    assert code() == (TrustedPath(str(project / "module.wasm"), "the code of the tool 'named'"),)


def test_programs_of_other_agents_count_and_ones_own_do_not(project: Path) -> None:
    grants = {
        "builder": [Capability.read("process.spawn:./run.sh"), Capability.read("process.spawn:git")],
        "reader": [Capability.read("fs.read:.")],
    }
    found = list(programs_of_others(grants, str(project), "reader"))
    assert found == [TrustedPath(str(project / "run.sh"), "a program that agent 'builder' may start")]
    assert list(programs_of_others(grants, str(project), "builder")) == []


def test_what_a_program_needs_is_worked_out_once(project: Path) -> None:
    """A tool that writes a `pyvenv.cfg` beside it later chooses nothing that the program is shown."""
    (project / "tools" / "bin").mkdir(parents=True)
    program = project / "tools" / "bin" / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    elsewhere = project / "elsewhere"
    for folder in ("bin", "lib"):
        (elsewhere / folder).mkdir(parents=True)
    (elsewhere / "bin" / "python").write_text("#!/bin/sh\n")
    (elsewhere / "bin" / "python").chmod(0o755)
    tool = named("command", ["./tools/bin/run"])
    assert places(project, tool) == ["tools/bin/run"]
    (project / "tools" / "pyvenv.cfg").touch()
    (project / "tools" / "bin" / "python").symlink_to(elsewhere / "bin" / "python")
    assert places(project, tool) == ["tools/bin/run"]


def test_an_environment_whose_interpreter_leads_nowhere_names_no_installation(project: Path) -> None:
    (project / "env" / "bin").mkdir(parents=True)
    program = project / "env" / "bin" / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (project / "env" / "pyvenv.cfg").touch()
    (project / "secret" / "lib").mkdir(parents=True)
    (project / "env" / "bin" / "python").symlink_to(project / "secret" / "bin" / "python")
    assert places(project, named("command", ["./env/bin/run"])) == ["env/bin/run", "env"]
