"""The official conformance suite against the product, its fixtures registered through the public API."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.mcp_server.environments import node_with_packages
from tests.mcp_server.served import everything_served

EXPECTED_FAILURES = Path(__file__).resolve().parent / "expected-failures.yml"
TASKS = (
    "lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers",
    "dispatch-and-envelope", "required-task-error", "mrtr-composition",
)  # fmt: skip


def results(text: str) -> dict[str, str]:
    """Scenarios by how they ended."""
    found = re.findall(r"^([✓✗]) ([a-z0-9-]+): (\d+) passed, (\d+) failed", text, flags=re.MULTILINE)
    return {name: f"{mark} {passed} {failed}" for mark, name, passed, failed in found}


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize(("revision", "required"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_every_scenario_that_a_revision_requires_passes(revision: str, required: int, tmp_path: Path) -> None:
    node, packages = node_with_packages()
    suite = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with everything_served(tmp_path / "home") as url:
        done = subprocess.run(
            [
                str(node), str(suite), "server", "--url", url, "--requirements", revision,
                "--expected-failures", str(EXPECTED_FAILURES),
            ],
            capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        )  # fmt: skip
    found = results(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(found) >= required
    assert {name: how for name, how in found.items() if not how.endswith(" 0")} == {}
    if revision == "2026-07-28":
        assert {f"tasks-{name}" for name in TASKS} <= {
            name for name, how in found.items() if how.startswith("✓")
        }
