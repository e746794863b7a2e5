"""Broken streams and folders end the command with one line, never with a traceback."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.terminal import on_a_terminal
from toolkeep.__main__ import main

Prepare = Callable[[], None]

LOOKS = (["list"], ["list", "--json"], ["show", "agent_hello_world"], ["lint"], ["completion", "bash"])  # fmt: skip
NAMES = [" ".join(look) for look in LOOKS]


def run(
    arguments: list[str],
    folder: Path | str,
    *,
    before: Prepare | None = None,
    stdout: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """Exit status and what was said, of the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "toolkeep", *arguments],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        preexec_fn=before,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stdout or "", done.stderr


@pytest.mark.parametrize("look", [*LOOKS, ["--help"], ["--version"], ["list", "--help"]], ids=[*NAMES, "help", "version", "help of list"])  # fmt: skip
def test_a_full_disk_is_said_in_one_line(look: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        status, _, said = run(look, tmp_path, stdout=full.fileno())
    assert (status, said) == (1, "\u2717 OSError: No space left on device\n")


@pytest.mark.parametrize("look", LOOKS, ids=NAMES)
def test_a_closed_output_is_nobody_who_reads(look: list[str], tmp_path: Path) -> None:
    assert run(look, tmp_path, before=lambda: os.close(1)) == (0, "", "")


@pytest.mark.parametrize("look", LOOKS, ids=NAMES)
def test_an_output_that_has_not_every_character_gets_them_written_out(
    look: list[str], tmp_path: Path
) -> None:
    status, _, said = run(look, tmp_path, variables={"PYTHONIOENCODING": "latin-1"})
    assert (status, said) == (0, "")


def test_json_in_another_encoding_is_the_same_data(tmp_path: Path) -> None:
    words = ["validate", "agent_hello_world", '{"name": "\u20ac\U0001f600"}', "--json"]
    _, shown, _ = run(words, tmp_path, variables={"PYTHONIOENCODING": "latin-1"})
    assert json.loads(shown)["arguments"] == {"name": "\u20ac\U0001f600"}
    assert run(words[:3], tmp_path, variables={"PYTHONIOENCODING": "latin-1"})[1].startswith("\\u2713 ")


@pytest.mark.parametrize("look", LOOKS, ids=NAMES)
def test_a_closed_input_changes_nothing(look: list[str], tmp_path: Path) -> None:
    assert run(look, tmp_path, before=lambda: os.close(0)) == run(look, tmp_path)


def test_arguments_from_a_closed_input_are_wrong_usage(tmp_path: Path) -> None:
    status, _, said = run(["validate", "agent_hello_world"], tmp_path, before=lambda: os.close(0))
    assert (status, said.split("\n")[-2]) == (
        2,
        "Error: Give the arguments as key=value words or as JSON, or on standard input.",
    )


def test_accept_on_a_closed_input_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text("permissions: [mail]\n")
    status, _, said = run(["accept"], tmp_path, before=lambda: os.close(0))
    assert (status, said.split("\n")[0]) == (1, "\u2717 ACODE-TSR-024: accepting needs a terminal")


CHANGES = (["list"], ["accept"], ["disable", "agent_hello_world"], ["init"], ["new", "word_count"])


@pytest.mark.parametrize("arguments", CHANGES, ids=" ".join)
def test_a_working_folder_that_is_gone_is_said(arguments: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; exec {sys.executable} -m toolkeep {' '.join(arguments)}"
    done = subprocess.run(["sh", "-c", command], cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.strip().split("\n")) == 1
    assert done.stderr.startswith("\u2717 ")


@pytest.mark.parametrize("variable", ["HOME", "TOOLKEEP_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("name", ["loop", "a" * 300], ids=["circle", "too long"])
def test_a_home_that_cannot_be_is_said(name: str, variable: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    variables = {variable: str(tmp_path / name)}
    status, shown, said = run(["disable", "agent_hello_world"], project, variables=variables)
    code = "ACODE-TSR-016" if variable == "HOME" else "ACODE-TSR-023"
    assert (status, shown) == (1, "")
    assert said.startswith(f"\u2717 {code}: {tmp_path / name}")


def test_a_project_whose_path_is_not_utf_8_is_listed_and_accepted(tmp_path: Path) -> None:
    project = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    config = Path(project) / ".agent" / "config.yml"
    config.parent.mkdir(parents=True)
    config.write_text("permissions: [mail]\n")
    status, _, said = run(["list"], project)
    assert (status, "is in effect until you accept it" in said) == (0, True)
    status, shown, _ = run(["accept", "--json"], project)
    assert status == 1
    assert run(["accept", "--hash", json.loads(shown)["hash"]], project)[0] == 0
    assert run(["list"], project)[::2] == (0, "")


def test_ctrl_c_while_the_command_is_loaded_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolkeep.__main__._load", interrupted)
    with pytest.raises(SystemExit, match="Aborted!"):
        main()


@pytest.mark.parametrize(
    ("command", "left"), [(["new", "word_count"], []), (["init"], [".agent"])], ids=["new", "init"]
)
def test_a_file_that_could_not_be_written_whole_is_not_left_there(
    command: list[str], left: list[str], tmp_path: Path
) -> None:
    full = run(command, tmp_path, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8)))
    assert (full[0], "File too large" in full[2]) == (1, True)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == left
    assert run(command, tmp_path)[0] == 0


def test_no_color_is_heeded_on_a_terminal() -> None:
    assert on_a_terminal(["show", "nothing"], NO_COLOR="").startswith("\x1b[31m✗\x1b[0m ")
    assert on_a_terminal(["show", "nothing"], NO_COLOR="1").startswith("✗ ACODE-TSR-001: ")


def test_who_calls_is_told_where_to_find_why_the_outcome_could_not_be_recorded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("no folder")
    call = ["call", "agent_hello_world", '{"name": "Ada"}']
    variables = {"TOOLKEEP_HOME": str(home / "state")}
    status, shown, _ = run(call, tmp_path / "..", variables=variables)
    assert (status, "Run toolkeep audit verify" in shown) == (1, True)
    _, _, logged = run([*call, "--log-level", "error"], tmp_path / "..", variables=variables)
    assert "a call was not recorded" in logged
    assert "Not a directory" in logged
