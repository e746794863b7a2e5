"""The budgets are measured by a program; what it says is for people, and no test depends on a clock."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


def tools(folder: Path) -> Path:
    """A folder with a few tools as a bench reads them."""
    lines = [
        json.dumps(
            {
                "description": "Adds.",
                "schema": {"type": "object", "properties": {f"p{n}": {"type": "integer"}}},
            }
        )
        for n in range(5)
    ]
    (folder / "tools.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.spec("VAL-11")
def test_every_budget_of_the_specification_is_measured_and_judged(tmp_path: Path) -> None:
    written = tmp_path / "budgets.json"
    call = [sys.executable, "budgets.py", "--quick", "--data", str(tools(tmp_path)), "--json", str(written)]
    done = subprocess.run(call, cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows: list[dict[str, Any]] = json.loads(written.read_text())
    assert [(row["limit"], row["unit"]) for row in rows] == [
        (10, "ms"),
        (1, "ms"),
        (100, "µs"),
        (500, "ms"),
        (50, "KB"),
    ]
    assert all(row["holds"] is (row["measured"] < row["limit"]) for row in rows)
    assert done.returncode == (0 if all(row["holds"] for row in rows) else 1)
    assert all(row["what"] in done.stdout for row in rows)


def test_without_tools_nothing_is_judged(tmp_path: Path) -> None:
    call = [sys.executable, "budgets.py", "--quick", "--data", str(tmp_path / "none")]
    assert subprocess.run(call, cwd=BENCH, capture_output=True, check=False).returncode == 2
