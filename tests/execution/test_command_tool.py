"""Programs as tools: no argument becomes a word, an option or a shell's business; every bad end says what it was."""

import json
import os
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Code, Keep, ToolResult
from toolkeep.calls import Denied, Diagnosis
from toolkeep.config.settings import Run
from toolkeep.execution.command_tool import fill
from toolkeep.execution.program_lookup import find_program, installed_with
from toolkeep.registry.coerce import Offer

# --- words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "arguments", "argv", "rest"),
    [
        (["x", "{a}"], {"a": "b c; rm -rf /"}, ["x", "b c; rm -rf /"], {}),
        (["x", "--name={a}"], {"a": "-y"}, ["x", "--name=-y"], {}),
        (["x", "-e", "{a}", "--", "{b}"], {"a": "", "b": "-y"}, ["x", "-e", "", "--", "-y"], {}),
        (["x", "--not", "{a}", "{b}"], {"a": "", "b": "y"}, ["x", "--not", "", "y"], {}),
        (["x", "{a}"], {"a": None}, ["x"], {}),
        (["x", "{a}{b}"], {"a": 1, "b": True}, ["x", "1true"], {}),
        (["x", "--", "{a}"], {"a": "-rf"}, ["x", "--", "-rf"], {}),
        (["x", "{a}"], {"a": "{b}", "b": 2}, ["x", "{b}"], {"b": 2}),
        (["x", "{a}"], {}, ["x"], {}),
        (["x", ""], {}, ["x", ""], {}),
        (["x", "{A}", "{}", "{a-b}"], {"a": 1}, ["x", "{A}", "{}", "{a-b}"], {"a": 1}),
        (["x", "{a}"], {"a": ["y"], "b": {"c": None}}, ["x", '["y"]'], {"b": {"c": None}}),
    ],
)
def test_words_are_filled_and_the_rest_is_read(
    words: list[str], arguments: dict[str, Any], argv: list[str], rest: dict[str, Any]
) -> None:
    command = fill(words, arguments)
    assert (list(command.argv), json.loads(command.input)) == (argv, rest)


@pytest.mark.parametrize(
    ("word", "fits"), [("x" * 100_000, True), ("x" * 100_001, False), ("é" * 60_000, False)]
)
def test_a_word_is_no_longer_than_the_kernel_takes(word: str, fits: bool) -> None:
    if fits:
        assert list(fill(["x", "{a}"], {"a": word}).argv) == ["x", word]
    else:
        with pytest.raises(ValueError, match="too long for a word"):
            fill(["x", "{a}"], {"a": word})


@pytest.mark.parametrize(
    ("words", "arguments", "why"),
    [
        (["x", "{a}"], {"a": "-rf"}, "begins with a dash"),
        (["x", "{a}{b}"], {"a": "--o=", "b": "y"}, "begins with a dash"),
        (["x", "{a}{b}"], {"a": "", "b": "--help"}, "begins with a dash"),
        (["x", "{a}"], {"a": "b\0c"}, "'a' contains a null character"),
        (["x", "{a}"], {"a": "y" * 100_001}, "too long"),
        (["x", "{a}", "--"], {"a": "-rf"}, "begins with a dash"),
    ],
)
def test_an_argument_that_would_be_more_than_one_is_refused(
    words: list[str], arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        fill(words, arguments)


def test_a_program_is_found_by_name_by_path_and_from_the_project(tmp_path: Path) -> None:
    program = Path(os.path.realpath(tmp_path)) / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("sh", "/") == shutil.which("sh")
    assert find_program("./run", str(program.parent)) == str(program)
    for absent in ("./run", "no-such-program"):
        with pytest.raises(ValueError, match="is not there, or cannot be executed"):
            find_program(absent, "/")


def test_a_program_is_found_with_its_link_and_shown_with_what_it_was_installed_with(tmp_path: Path) -> None:
    """Python knows its packages by the link that leads to it."""
    venv.create(tmp_path / "of_mine", symlinks=True)
    found = find_program("of_mine/bin/python", str(tmp_path))
    assert found == str(tmp_path / "of_mine" / "bin" / "python")
    real = os.path.realpath(found)
    shown = list(installed_with(found))
    assert shown[:2] == [real, os.path.realpath(tmp_path / "of_mine")]
    assert os.path.realpath(sys.base_prefix) in shown or real.startswith("/usr/")


# --- runs -------------------------------------------------------------------------------------------


class Provider:
    """Brings tools that are shell scripts."""

    name = "mine"
    priority = 50

    def __init__(self, folder: Path, scripts: dict[str, str], **fields: Any) -> None:
        self._offers = [self._offer(folder, name, script, fields) for name, script in scripts.items()]

    def _offer(self, folder: Path, name: str, script: str, fields: dict[str, Any]) -> Offer:
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        parameters = {
            "type": "object",
            "properties": {"a": {"type": "string", "description": "Some text."}},
        }
        data = {"name": name, "description": "A script.", "side_effects": ["None"], "parameters": parameters}
        return Offer(
            tool={**data, **fields}, runner=Run(kind="command", target=[str(program), "{a}", "$HOME;ls"])
        )

    def get_tool_definitions(self) -> list[Offer]:
        return self._offers


SCRIPTS = {
    "argv": """printf '["%s","%s"]' "$1" "$2" """,
    "reads": "cat",
    "fails": "echo partly; echo 'no such book' >&2; exit 3",
    "silent": "exit 0",
    "babbles": "echo hello",
    "dies": "kill -9 $$",
    "floods": "while :; do echo 0123456789; done",
    "orphans": "(while :; do :; done) & echo 1",
    "peeks": """for f in /etc/passwd /etc/shadow; do if cat $f >/dev/null 2>&1; then echo '"seen"'; exit; fi; done; echo '"nothing"'""",
}


@pytest.fixture(params=["standard", "strict"])
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keep]:
    keep = Keep()
    keep.load(Provider(tmp_path, SCRIPTS, constraints={"required_isolation": request.param}))
    yield keep
    keep.close()


def call(keep: Keep, name: str, arguments: dict[str, Any] | None = None) -> ToolResult:
    return keep.call_sync(name, arguments or {})


def test_arguments_arrive_as_single_words_and_nothing_is_expanded(keep: Keep) -> None:
    assert call(keep, "argv", {"a": "b; echo $HOME `ls` *"}).value == ["b; echo $HOME `ls` *", "$HOME;ls"]


ENDINGS = [
    ("fails", Code.TOOL_FAILED, "fails: exit status 3: no such book"),
    ("silent", Code.TOOL_FAILED, "silent wrote nothing to its standard output"),
    ("babbles", Code.TOOL_FAILED, "babbles wrote what is not JSON to its standard output"),
    ("dies", Code.TOOL_FAILED, "dies: no output, ended by signal 9 (Killed)"),
]


@pytest.mark.parametrize(("name", "code", "why"), ENDINGS, ids=[name for name, _, _ in ENDINGS])
def test_every_bad_end_says_what_it_was(keep: Keep, name: str, code: Code, why: str) -> None:
    result = call(keep, name)
    assert (result.code, why in result.text) == (code, True), result.text


@pytest.mark.spec("SBX-1")
def test_a_program_is_confined_at_strict_unless_its_definition_says_otherwise(tmp_path: Path) -> None:
    with Keep() as keep:
        keep.load(Provider(tmp_path, SCRIPTS))
        assert call(keep, "peeks").isolation == "strict"


@pytest.mark.parametrize("level", ["standard", "strict"])
def test_a_program_that_hangs_is_ended(tmp_path: Path, level: str) -> None:
    constraints = {"required_isolation": level, "max_execution_time": 1}
    with Keep() as keep:
        keep.load(Provider(tmp_path, {"hangs": "while :; do :; done"}, constraints=constraints))
        result = call(keep, "hangs")
    assert (result.code, "took longer than 1 s" in result.text) == (Code.TIMED_OUT, True), result.text


@pytest.mark.parametrize("level", ["standard", "strict"])
def test_a_python_has_the_packages_of_its_environment(tmp_path: Path, level: str) -> None:
    venv.create(tmp_path / "of_mine", symlinks=True)
    program = tmp_path / "of_mine" / "bin" / "python"
    code = "import json, sys; print(json.dumps([sys.executable, sys.prefix]))"
    provider = Provider(tmp_path, {"which": ""}, constraints={"required_isolation": level})
    runner = Run(kind="command", target=[str(program), "-c", code])
    provider._offers[0] = Offer(tool=provider._offers[0].tool, runner=runner)
    with Keep() as keep:
        keep.load(provider)
        result = call(keep, "which")
    assert result.value == [str(program), str(tmp_path / "of_mine")], result.text


def test_a_process_that_a_program_leaves_behind_ends_with_it(keep: Keep) -> None:
    result = call(keep, "orphans")
    assert result.value == 1, result.text


def test_a_confined_program_sees_no_file_that_is_not_granted(tmp_path: Path) -> None:
    with Keep() as keep:
        keep.load(Provider(tmp_path, SCRIPTS, constraints={"required_isolation": "strict"}))
        result = call(keep, "peeks")
        assert (result.value, result.isolation) == ("nothing", "strict"), result.text


DENIALS = {
    "starts": ("cat /etc/hostname", Denied.PROGRAM, "cat", "add process.spawn:"),
    "starts_quietly": ("cat /etc/hostname; echo no JSON", Denied.PROGRAM, "cat", "add process.spawn:"),
    "reads": ("read x < {folder}/hidden || exit 1", Denied.FILE, "{folder}/hidden", "fs.read or fs.write"),
    "writes": ("echo x > {folder}/new", Denied.FILE, "{folder}/new", "fs.read or fs.write"),
    "resolves": (
        "echo 'curl: (6) Could not resolve host: api.example.org' >&2; exit 6",
        Denied.HOST, "api.example.org", "net.read or net.write",
    ),
    "spins": ("kill -XCPU $$", Denied.PROCESSOR_TIME, "", "max_cpu"),
    "lies": ("echo 'x: no-such-thing: Permission denied' >&2; exit 1", None, "", ""),
    "misses": ("read x < {folder}/absent || exit 1", None, "", ""),
}  # fmt: skip


@pytest.mark.spec("SBX-1")
def test_what_a_program_was_denied_is_named_to_the_operator(tmp_path: Path) -> None:
    (tmp_path / "hidden").write_text("x")
    scripts = {name: one[0].format(folder=tmp_path) for name, one in DENIALS.items()}
    with Keep() as keep:
        keep.load(Provider(tmp_path, scripts, constraints={"required_isolation": "strict"}))
        for name, (_, kind, subject, remedy) in DENIALS.items():
            result = call(keep, name)
            assert result.error is not None, name
            told = result.error.diagnosis or Diagnosis()
            assert (told.denied, told.subject) == (kind, subject.format(folder=tmp_path)), result.text
            assert remedy in told.remedy


def test_what_no_word_takes_is_read(tmp_path: Path) -> None:
    with Keep() as keep:
        provider = Provider(tmp_path, {"reads": "cat"}, constraints={"required_isolation": "standard"})
        offer = provider._offers[0]
        target = [offer.runner.target[0]]
        provider._offers[0] = Offer(tool=offer.tool, runner=Run(kind="command", target=target))
        keep.load(provider)
        assert call(keep, "reads", {"a": 'x"\n'}).value == {"a": 'x"\n'}


def test_text_is_text_where_the_definition_says_so(tmp_path: Path) -> None:
    with Keep() as keep:
        keep.load(Provider(tmp_path, SCRIPTS, result_type="string"))
        assert call(keep, "babbles").value == "hello\n"
