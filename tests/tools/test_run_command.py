"""`run_command`: one program without a shell; what it wrote, and how it ended."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import folder, refusal
from toolkeep.tools.run_command import run_command

__all__ = ["folder"]


def run(command: str, program: str, here: Path, **arguments: Any) -> str:
    return run_command((command, program, program), (".", str(here)), **arguments)


def python(code: str, here: Path, **arguments: Any) -> str:
    assert "'" not in code
    return run(f"python -c '{code}'", sys.executable, here, **arguments)


def shell(script: str, here: Path, **arguments: Any) -> str:
    assert "'" not in script
    return run(f"sh -c '{script}'", "/bin/sh", here, **arguments)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo a; echo b >&2", "a\nb\n[exit status 0]"),
        ("printf a", "a\n[exit status 0]"),
        ("exit 3", "[no output, exit status 3]"),
        ("kill -TERM $$", "[no output, ended by signal 15 (Terminated)]"),
        ("kill -40 $$", "[no output, ended by signal 40 (Real-time signal 6)]"),
        ("cat", "[no output, exit status 0]"),
        ("printf \"\\377\\0a\\n\"", "[4 bytes that are not text, so they are left out]\n[exit status 0]"),
        ('printf "\\377\\033a\\n"', "\ufffd\\u001ba\n[exit status 0]"),
        ("exec >&- 2>&-; exit 4", "[no output, exit status 4]"),
        ("sleep 1000 & echo done", "done\n[exit status 0]"),
        ("yes > /dev/null & echo done", "done\n[exit status 0]"),
    ],
)  # fmt: skip
def test_what_a_program_writes_and_how_it_ends(folder: Path, script: str, answer: str) -> None:
    assert shell(script, folder) == answer


def test_a_process_that_is_left_behind_writing_does_not_hold_up_the_answer(folder: Path) -> None:
    assert shell("yes & echo done", folder).endswith("[exit status 0]")


def test_the_words_reach_the_program_as_they_are(folder: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    said = run(f"python -c '{code}' a\\ b 'c $d' \"e\\\"f\" ''", sys.executable, folder)
    assert said == "['a b', 'c $d', 'e\"f', '']\n[exit status 0]"


def test_standard_error_can_be_left_out(folder: Path) -> None:
    assert shell("echo a; echo b >&2", folder, capture_stderr=False) == "a\n[exit status 0]"


def test_of_a_flood_the_beginning_and_the_end_are_given(folder: Path) -> None:
    said = python("for n in range(1000000): print(n)", folder)
    assert said.startswith("0\n1\n2\n")
    assert said.endswith("999999\n[exit status 0]")
    assert len(said) < 31_000
    assert "[6,858,890 bytes left out]" in said


def test_a_cut_leaves_no_halves_of_characters(folder: Path) -> None:
    assert "\ufffd" not in python('print("a" + "é" * 40000)', folder)


@pytest.mark.parametrize(
    "script",
    [
        "echo begun; sleep 1000",
        "echo begun; sleep 1000 & sleep 1000",
        "echo begun; exec >&- 2>&-; sleep 1000",
    ],
)
def test_when_its_time_is_up_it_is_stopped_with_what_it_started(folder: Path, script: str) -> None:
    with watched(folder / "alive"):
        said = shell(f"exec 3> alive; {script}", folder, timeout_seconds=1)
    assert said == "begun\n[stopped after 1 s: it did not end in time]"


def test_what_it_leaves_behind_is_stopped(folder: Path) -> None:
    with watched(folder / "alive"):
        shell("exec 3> alive; sleep 1000 & ", folder)


@contextmanager
def watched(pipe: Path) -> Iterator[None]:
    """A pipe that ends once nobody holds it any more: all processes that opened it, and their children, are gone."""
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
        assert select.select([descriptor], [], [], 30)[0], "somebody lives"
        assert os.read(descriptor, 1) == b""
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("command", "program", "answer"),
    [
        (
            "nothing",
            "/nowhere/nothing",
            "'nothing' cannot be run: there is no such program, or its interpreter is missing",
        ),
        ("text", "{folder}/text", "'text' cannot be run: it is not a program, or may not be executed"),
        ("folder", "{folder}/folder", "'folder' cannot be run: it is not a program, or may not be executed"),
        (
            "orphan",
            "{folder}/orphan",
            "'orphan' cannot be run: there is no such program, or its interpreter is missing",
        ),
        (
            "odd",
            "{folder}/odd",
            "'odd' cannot be run: it is not a program; a script begins with #! and its interpreter",
        ),
        ("echo " + "x" * 200_000, "/bin/echo", "'echo' cannot be run: its arguments are too long"),
        ("echo 'a\0b'", "/bin/echo", "The command cannot be run: it contains a NUL character"),
        ("", "/bin/echo", "The command cannot be run: it names no program"),
    ],
    ids=["missing", "not-executable", "folder", "no-interpreter", "no-format", "too-long", "nul", "empty"],
)
def test_what_cannot_be_run_is_told(folder: Path, command: str, program: str, answer: str) -> None:
    (folder / "text").write_text("")
    (folder / "folder").mkdir()
    for name, content in (("orphan", "#!/nowhere\n"), ("odd", "echo\n")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    assert refusal(lambda: run(command, program.format(folder=folder), folder)) == answer


@pytest.mark.parametrize("kind", ["nothing", "file"])
def test_a_folder_that_is_none_is_told(folder: Path, kind: str) -> None:
    if kind == "file":
        (folder / "x").write_text("")
    call = ("true", "/bin/true", "/bin/true"), ("x", str(folder / "x"))
    assert refusal(lambda: run_command(*call)) == "'x' is not a folder"


def test_it_runs_where_it_was_told_to_with_the_default_signals(folder: Path) -> None:
    assert shell("pwd", folder) == f"{os.path.realpath(folder)}\n[exit status 0]"
    ignored = signal.getsignal(signal.SIGPIPE)
    assert python(
        "import signal; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)", folder
    ).startswith("True")
    assert signal.getsignal(signal.SIGPIPE) == ignored
