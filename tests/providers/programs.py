"""Runs programs in the environment that holds the vendors' SDKs and the frameworks."""

import fcntl
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED_DATA
from tests.mcp_server.environments import ROOT, python_of
from tests.providers.library_server import served

EXAMPLES = ROOT / "examples" / "models"


def run_python(*words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Python there, with this checkout."""
    path = f"{ROOT / 'src'}:{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(
        [str(python_of("vendors")), "-W", "ignore", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment,
        cwd=ROOT,
    )


def report(folders: pytest.TempPathFactory) -> Any:
    """What came of everything that the vendors' packages take part in; run once for all tests and processes."""
    own = folders.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    kept = shared / "vendors.json"
    with (shared / "vendors.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(_run(), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def _run() -> str:
    program = ROOT / "tests" / "providers" / "vendors" / "report.py"
    with served() as url, tempfile.TemporaryDirectory() as home:
        done = run_python(program, EXAMPLES, SHARED_DATA, **_environment(url, home))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def _environment(url: str, home: str) -> dict[str, str]:
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY", "CO_API_KEY",
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")  # fmt: skip
    return {
        **dict.fromkeys(keys, "none"),
        "HOME": home,
        "ANTHROPIC_BASE_URL": f"{url}/anthropic",
        "OPENAI_BASE_URL": f"{url}/openai/v1",
        "GOOGLE_GEMINI_BASE_URL": f"{url}/gemini",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": f"{url}/bedrock",
        "AWS_DEFAULT_REGION": "eu-north-1",
        "MISTRAL_SERVER_URL": f"{url}/mistral",
        "CO_API_URL": f"{url}/cohere",
        "OLLAMA_HOST": f"{url}/ollama",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "NO_PROXY": "127.0.0.1",
    }
