"""Runs what a page shows, and says what its blocks of output should hold.

    python    is run; the blocks of one page share their names, in order
    text      introduced by a line that ends in "prints:" (as json may be): what the block before it printed
    yaml      or json with a file name in the info string or in a first-line comment: that file is made;
              python and cedar too, with a file name in the info string
    console   or sh: each line `$ toolkeep …` is run, its input from `< FILE`, its output to `> FILE`, variables
              from `$ NAME=value toolkeep …`; `$ echo $?` is its exit status; `$ NAME=$(toolkeep …)` is
              remembered for `$NAME` further down, `$ NAME=$(toolkeep … --json | jq -r .key)` one value of it, with
              `.[0].key` of its first item

The folder in which a page runs is shown as /home/ada/books, and the home folder as /home/ada.

After a wording has changed, `.venv/bin/python -m tests.docs.snippets` writes the new output into the pages
(all, or those that are named after it).
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from click.testing import CliRunner

from tests.docs.markdown import PAGES, ROOT, Block, blocks_of
from toolkeep import Keep
from toolkeep.cli.main import cli

_FILE_COMMENT = re.compile(r"# (?P<name>[\w./~-]+\.(ya?ml|json))$", re.MULTILINE)
_COMMAND = re.compile(r"^\$ (?P<variables>(\w+=\S* )*)toolkeep\b(?P<words>.*)$", re.MULTILINE)
_ASSIGNMENT = re.compile(
    r"^\$ (?P<name>\w+)=\$\(toolkeep (?P<words>.*?)(?: \| jq -r \.(?P<first>\[0\]\.)?(?P<key>\w+))?\)$",
    re.MULTILINE,
)
_VARYING = {
    re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{16}|[0-9a-f]{32})(?![0-9a-f])"): "ID",
    re.compile(r"(?<![0-9a-f+])[0-9a-f]{8}(?![0-9a-f-])"): "PREFIX",
    re.compile(r"(?<=PREFIX  )\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))? +"): "SPAN ",
    re.compile(r"(?<![-\dT] )(?<![\dT:-])\d\d:\d\d:\d\d(?![\d.])(?! UTC)"): "TIME",
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00"): "TIME",
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"): "TIME",
    re.compile(r" *\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))? (?=ago|left)"): " SPAN ",
    re.compile(r"(?<=TIME, in )\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))?"): "SPAN",
    re.compile(r"\+[0-9a-f]{8}(?![0-9a-f])(\+[A-Za-z0-9+/]{44})?"): "+KEY",
    re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{40,}={1,2}"): "BASE64",
    re.compile(r'(?<="hash": ")[0-9a-f]{64}'): "HASH",
    re.compile(r'(?<="execute_us": )\d+'): "N",
    re.compile(r'(?<="stage_us": \[)[\d,\s]+'): "N",
}
"""What is another at each run: ids, times, keys, hashes over them, how long something took."""


class Shown(NamedTuple):
    """A block of output on a page, and what it should hold."""

    block: Block
    actual: str

    @property
    def is_true(self) -> bool:
        """Whether the page shows what happened, ids, times and keys aside."""
        return _comparable(self.block.text) == _comparable(self.actual)


def _comparable(text: str) -> str:
    for varying, word in _VARYING.items():
        text = varying.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def run_page(page: str, name: str = "page.md") -> Iterator[Shown]:
    """Run a page in the current folder; what its python raises comes out."""
    names: dict[str, Any] = {"__name__": "page"}
    keeps: list[Keep] = []
    try:
        yield from _run_blocks(page, name, names, keeps)
    finally:
        for keep in keeps:  # a page need not show each time how one is closed
            keep.close()


def _run_blocks(page: str, name: str, names: dict[str, Any], keeps: list[Keep]) -> Iterator[Shown]:
    remembered: dict[str, str] = {}
    printed = ""
    for block in blocks_of(page):
        if block.language == "python" and not block.name:
            printed = _run_python(block, names, name)
            keeps += [value for value in names.values() if isinstance(value, Keep)]
        elif block.language in ("text", "json") and block.lead.endswith("prints:"):
            yield Shown(block, printed)
        elif block.language in ("yaml", "json", "python", "cedar") and (file := _file_name(block)):
            _write(Path(file).expanduser(), block.text)
        elif block.language in ("console", "sh") and (
            _COMMAND.search(block.text) or _ASSIGNMENT.search(block.text)
        ):
            yield Shown(block, _run_console(block.text, remembered))


def _file_name(block: Block) -> str:
    comment = _FILE_COMMENT.match(block.text)
    return block.name or (comment["name"] if comment else "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _placed(text: str) -> str:
    """The text with the folders of a reader instead of those of this run."""
    return text.replace(str(Path.cwd()), "/home/ada/books").replace(str(Path.home()), "/home/ada")


def _run_python(block: Block, names: dict[str, Any], page: str) -> str:
    source = "\n" * block.line + block.text  # so that a traceback names the line of the page
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, page, "exec"), names)  # noqa: S102 -- our own pages
    return _placed(output.getvalue())


def _run_console(text: str, remembered: dict[str, str]) -> str:
    """The block with the true output under each command."""
    lines: list[str] = []
    status = 0
    is_run = False
    for line in text.splitlines():
        if command := _COMMAND.fullmatch(line):
            done = _run_command(_expanded(command["words"], remembered), command["variables"])
            status = done.exit_code
            lines += [line, *_placed(done.output).splitlines()]
            is_run = True
        elif assignment := _ASSIGNMENT.fullmatch(line):
            done = _run_command(_expanded(assignment["words"], remembered))
            remembered[assignment["name"]] = _taken(done.stdout, assignment["key"], assignment["first"])
            lines.append(line)
            is_run = True
        elif line == "$ echo $?":
            lines += [line, str(status)]
            is_run = True
        elif line.startswith("$ "):
            lines.append(line)
            is_run = False
        elif not is_run:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _taken(printed: str, key: str | None, first: str | None) -> str:
    """What a command printed, or one value of it; of a list, of its first item."""
    if not key:
        return printed.strip()
    data = json.loads(printed)
    return str((data[0] if first else data)[key])


def _expanded(words: str, remembered: dict[str, str]) -> str:
    """The words of a command with `$NAME` replaced, for the names that are remembered."""
    return re.sub(r"\$(\w+)", lambda name: remembered.get(name[1], name[0]), words)


class _Done(NamedTuple):
    output: str
    """What a reader sees: both streams, without what went to a file."""
    stdout: str
    exit_code: int


def _run_command(line: str, variables: str = "") -> _Done:
    words = shlex.split(line)
    environment = dict(word.split("=", 1) for word in variables.split())
    given = _file_after("<", words)
    taken = _file_after(">", words)
    runner = CliRunner(env={"COLUMNS": "80", **environment})
    result = runner.invoke(cli, words, input=given.read_bytes() if given else None, prog_name="toolkeep")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if taken:
        taken.write_text(result.stdout, encoding="utf-8")
    return _Done(result.stderr if taken else result.output, result.stdout, result.exit_code)


def _file_after(sign: str, words: list[str]) -> Path | None:
    """The file that a stream is redirected to, taken out of the words."""
    if sign not in words:
        return None
    at = words.index(sign)
    path = Path(words[at + 1])
    del words[at : at + 2]
    return path


def _updated(page: str, name: str) -> str:
    """The page with the output that is true today."""
    lines = page.splitlines(keepends=True)
    for shown in reversed(list(run_page(page, name))):
        if not shown.is_true:
            start = shown.block.line
            lines[start : start + shown.block.text.count("\n")] = [shown.actual.rstrip("\n") + "\n"]
    return "".join(lines)


@contextlib.contextmanager
def _in_folders_of_its_own() -> Iterator[None]:
    """A working folder and a home that are thrown away: pages write configuration and state."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as home,
        contextlib.chdir(folder),
        patch.dict(os.environ, HOME=home),
    ):
        for name in ("TOOLKEEP_HOME", "XDG_STATE_HOME"):
            os.environ.pop(name, None)
        yield


def main() -> None:
    """Write the output that is true today into every page, or into those that are named."""
    for path in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        before = path.read_text(encoding="utf-8")
        with _in_folders_of_its_own():
            after = _updated(before, str(path.relative_to(ROOT)))
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)} updated{os.linesep}")


if __name__ == "__main__":
    main()
