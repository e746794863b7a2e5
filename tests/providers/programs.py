"""Runs programs in the environment that holds the vendors' SDKs and the frameworks."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.mcp.environments import ROOT, python_of


def run_python(*words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Python there, with this checkout."""
    path = f"{ROOT / 'src'}:{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        [str(python_of("vendors")), "-W", "ignore", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=environment,
        cwd=ROOT,
    )


def report_of(program: str, *words: str | Path, **variables: str) -> Any:
    """The JSON in the last line that a program of the tests prints."""
    done = run_python(ROOT / "tests" / program, *words, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
