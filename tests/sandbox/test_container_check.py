"""What a container must be started with: said the same everywhere, and enough."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.contained import WHOLE
from toolkeep.sandbox.container_check import FLAGS, PROC_FLAG
from toolkeep.sandbox.isolation_cure import IN_A_CONTAINER

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can cover parts of /proc")


@pytest.mark.parametrize("text", [DOCKERFILE, PAGE, IN_A_CONTAINER], ids=["Dockerfile", "page", "doctor"])
def test_the_flags_are_the_same_everywhere(text: str) -> None:
    assert FLAGS in text


@pytest.mark.parametrize("text", [DOCKERFILE, PAGE], ids=["Dockerfile", "page"])
def test_the_flag_for_attacks_is_the_same_everywhere(text: str) -> None:
    assert PROC_FLAG.removeprefix("--security-opt ") in text


def test_no_other_flag_is_asked_for() -> None:
    named = {word for line in DOCKERFILE.splitlines() if "docker run" in line for word in line.split()}
    assert {word for word in named if "=" in word} <= {*FLAGS.split(), *PROC_FLAG.split()}


def test_the_image_runs_as_an_ordinary_user() -> None:
    instructions = [line for line in DOCKERFILE.splitlines() if line and line[0].isalpha()]
    users = [line for line in instructions if line.startswith("USER")]
    assert users == ["USER 10001:10001"]
    assert instructions.index("USER 10001:10001") < instructions.index('ENTRYPOINT ["toolkeep"]')


def test_what_the_image_copies_exists_and_is_let_through() -> None:
    copied = {
        name
        for line in DOCKERFILE.splitlines()
        if line.startswith("COPY ")
        for name in line.split()[1:-1]
        if not name.startswith("--")
    }
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied == let_through == {name for name in copied if (ROOT / name).exists()}


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("has_whole_proc", [False, True])
@only_root
def test_with_the_flags_every_level_works(has_whole_proc: bool) -> None:
    """Under the profile itself: what it does not allow fails, as in a container."""
    said = json.loads(_contained("doctor", "--json", has_whole_proc=has_whole_proc))
    assert [level["available"] for level in said["levels"]] == [True] * 4
    assert (said["template_failure"] == "", said["cure"]) == (has_whole_proc, None)


@only_root
def test_without_the_flag_for_attacks_nothing_is_tried() -> None:
    said = _contained("doctor", "--attack").splitlines()[-1]
    assert said.startswith("  ✗ none could be run: no namespace could be made to throw away afterwards")
    assert "no /proc of its own: Operation not permitted" in said


def _contained(*arguments: str, has_whole_proc: bool = False) -> str:
    words = [*([WHOLE] if has_whole_proc else []), sys.executable, "-m", "toolkeep", *arguments]
    command = [sys.executable, "-m", "tests.sandbox.contained", *words]
    return subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT).stdout
