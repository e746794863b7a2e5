"""Python packages of servers, from an index on loopback: wheels alone, pinned by hash."""

import os
from pathlib import Path

import pytest

from tests.config.projects import accept
from tests.mcp_client.packages.registries import (
    NOW,
    OLD,
    SERVER_PY,
    Registry,
    add,
    greeted,
    project,
    registry,
    tree,
)
from tests.mcp_client.servers import listing

__all__ = ["project", "registry"]

pytestmark = pytest.mark.spec("MCP-3")


def upload(registry: Registry, version: str, when: str, **files: str) -> None:
    files = {"hello.py": SERVER_PY, **files}
    registry.upload("hello_mcp", version, files, program="hello-mcp = hello:main", when=when)


def test_uvx_is_resolved_once_and_its_program_runs_from_the_state(registry: Registry, project: Path) -> None:
    upload(registry, "1.0.0", OLD)
    upload(registry, "2.0.0", NOW)
    upload(registry, "2.1.0", NOW)
    registry.upload_source("hello_mcp", "1.5.0")
    done = add(project, "--", "uvx", "hello-mcp", "ada")
    assert done.exit_code == 0, done.output
    # All young versions in one step.
    assert "! hello-mcp==2.1.0 is younger than 7 days and is passed over" in done.stderr
    assert "1 package, hello-mcp 1.0.0" in done.stdout
    accept(project)
    asked = len(registry.asked)
    assert greeted(project) == "hello ada"
    assert len(registry.asked) == asked  # the server reaches no index, and needs none
    assert registry.credentials == set()  # the configured address holds a password
    assert list(listing(project, "hello")["packages"]["tree"]) == ["hello-mcp"]
    # Another wheel under the same version: it is not installed.
    registry.archives["/files/hello_mcp-1.0.0-py3-none-any.whl"] += b" "
    (tree(project) / "pyvenv.cfg").unlink()
    refused = add(project, "--refresh")
    assert (refused.exit_code, "DO NOT MATCH THE HASHES" in refused.stderr) == (1, True), refused.output


def test_what_was_observed_is_added_for_an_hour(registry: Registry, project: Path) -> None:
    upload(registry, "1.0.0", OLD)
    upload(registry, "2.0.0a1", OLD)
    uvx = ("--", "uvx", "--prerelease=allow", "hello-mcp")
    seen = add(project, "--observe", "--call", "greet={}", *uvx, "ada")
    assert (seen.exit_code, "hello-mcp 2.0.0a1" in seen.stdout) == (0, True), seen.output
    upload(registry, "3.0.0", OLD)
    asked = len(registry.asked)
    done = add(project, *uvx, "bob")
    assert (done.exit_code, "hello-mcp 2.0.0a1" in done.stdout) == (0, True), done.output
    assert len(registry.asked) == asked
    (observed,) = (project.parent / "state" / "packages").glob("*.observed")
    os.utime(observed, (0, 0))
    assert "hello-mcp 3.0.0" in add(project, *uvx, "bob").stdout
    refused = add(project, "--", "uvx", "--python", "3.99", "hello-mcp")
    assert "need Python 3.99, which is not there" in refused.stderr


def test_a_wheel_that_would_write_outside_is_refused(registry: Registry, project: Path) -> None:
    upload(registry, "1.0.0", OLD, **{"../../../../../escaped.py": ""})
    refused = add(project, "--allow-new", "--", "uvx", "hello-mcp")
    assert (refused.exit_code, "outside" in refused.stderr) == (1, True), refused.output
    assert "escaped.py" not in {path.name for path in project.parent.rglob("*")}
