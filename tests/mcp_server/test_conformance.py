"""The official conformance suite against the product, its fixtures registered through the public API.

It runs on the HTTP layer of `toolkeep serve` with a token; LAYER=plain runs it on the MCP app alone, LAYER=2 on two
servers behind haproxy.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_server.balanced import served
from tests.mcp_server.environments import node_with_packages

EXPECTED: dict[str, Any] = json.loads((Path(__file__).parent / "conformance.json").read_text())
"""By revision, how each scenario ends: `unchecked` ones have no check that applies here. None fails."""
REVISIONS = ("2025-11-25", "2026-07-28")


def suite(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    node, packages = node_with_packages()
    program = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [str(node), str(program), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd)


def results(text: str) -> dict[str, list[str]]:
    """Scenarios by how they ended."""
    found = re.findall(r"^([✓✗]) ([a-z0-9-]+): (\d+) passed, (\d+) failed", text, flags=re.MULTILINE)
    ended: dict[str, list[str]] = {"passed": [], "unchecked": [], "failed": []}
    for mark, name, passed, failed in sorted(found, key=lambda one: one[1]):
        is_good = mark == "✓" and failed == "0"
        ended["failed" if not is_good else "passed" if int(passed) else "unchecked"].append(name)
    return ended


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_of_a_revision_ends_as_expected(revision: str, tmp_path: Path) -> None:
    with served(tmp_path, "shipped") as url:
        done = suite("server", "--url", url, "--requirements", revision, cwd=tmp_path)
    assert results(done.stdout + done.stderr) == EXPECTED[revision], done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_scenario_that_the_suite_has_is_expected(tmp_path: Path) -> None:
    """A scenario that a later suite brings is run, or named as not required."""
    listed = re.findall(
        r"^  - ([a-z0-9-]+)", suite("list", "--server", cwd=tmp_path).stdout, flags=re.MULTILINE
    )
    ends = [name for revision in REVISIONS for names in EXPECTED[revision].values() for name in names]
    assert sorted(listed) == sorted({*ends, *EXPECTED["not required"]})
