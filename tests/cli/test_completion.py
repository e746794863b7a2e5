"""Shell completion: commands, options and the names of tools."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def completed(line: str, folder: Path) -> set[str]:
    """What click offers for a line, as a shell asks for it."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_TOOLKEEP_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "from toolkeep.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return {line.partition(",")[2] for line in done.stdout.splitlines() if line}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("toolkeep en", {"enable"}),
        ("toolkeep list --st", {"--state"}),
        ("toolkeep list --state q", {"quarantined"}),
        ("toolkeep show agent_", {"agent_hello_world"}),
        ("toolkeep validate agent_", {"agent_hello_world"}),
        ("toolkeep disable xyz", set()),
    ],
)
def test_a_shell_is_offered(line: str, offered: set[str], tmp_path: Path) -> None:
    assert completed(line, tmp_path) == offered


def test_a_broken_configuration_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text("no_such_key: 1\n")
    assert completed("toolkeep show a", tmp_path) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_reads(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "toolkeep", "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    assert "_TOOLKEEP_COMPLETE" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, capture_output=True)
