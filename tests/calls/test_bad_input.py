"""What a model reads where a built-in tool is given what it cannot use: one table for all of them.

Each row is a call on a real tree, through a keep, in the sandbox. `ok` rows say how the tool copes.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import make
from toolkeep import ToolResult, open_keep
from toolkeep.approval.question import Answer, Question

REFUSED, FAILED, OK = "ACODE-TSR-027", "ACODE-TSR-034", ""

FOLDERS: dict[str, tuple[str, str]] = {
    "missing": (REFUSED, "'missing' does not exist"),
    "pipe": (REFUSED, "'pipe' is a device, a socket or a pipe"),
    "socket": (REFUSED, "'socket' is a device, a socket or a pipe"),
    "circle": (REFUSED, "'circle' is a symlink loop"),
    "dangling": (REFUSED, "'dangling' is a dangling symlink"),
    "/dev/zero": (REFUSED, "The agent has no grant for fs."),
    "/proc/self/environ": (REFUSED, "The kernel's own files may not be touched"),
    "/etc/passwd": (REFUSED, "The agent has no grant for fs."),
}
"""What is no place for any tool that takes a path."""

TABLE: dict[str, tuple[dict[str, Any], dict[str, tuple[str, str]]]] = {
    "read_file": (
        {},
        {
            **FOLDERS,
            "folder": (FAILED, "'folder' is a folder, not a file; use list_directory"),
            "binary": (FAILED, "'binary' is binary, 2,560 bytes, not text"),
            "latin": (OK, "[1 place is not utf-8 and shown as �]"),
            "empty": (OK, "[the file is empty]"),
            "huge": (OK, "start_line="),
            "closed": (FAILED, "'closed' may not be opened"),
        },
    ),
    "write_file": (
        {"content": "x"},
        {
            **{key: value for key, value in FOLDERS.items() if key != "missing"},
            "folder": (FAILED, "'folder' was not written: it is a folder"),
            "closed": (FAILED, "'closed' was not written: it may not be opened"),
            "text/below": (REFUSED, "'text/below' has a parent that is not a folder"),
        },
    ),
    "edit_code": (
        {"old_content": "two", "new_content": "three"},
        {
            **{key: value for key, value in FOLDERS.items() if key != "missing"},
            "folder": (FAILED, "'folder' is a folder, not a file"),
            "binary": (FAILED, "'binary' is binary, or not utf-8"),
            "latin": (FAILED, "'latin' is not utf-8 at byte 3"),
            "empty": (FAILED, "old_content is not in 'empty'"),
            "closed": (FAILED, "'closed' may not be opened"),
            "text": (
                FAILED,
                "occurs 2 times in 'text', so nothing was changed:\n      2: two\n      3: two\n",
            ),
        },
    ),
    "list_directory": (
        {},
        {
            **FOLDERS,
            "text": (FAILED, "'text' is a file, not a folder; use read_file"),
            "round": (OK, "back -> .."),
        },
    ),
    "grep_search": (
        {"pattern": "two"},
        {
            **FOLDERS,
            "binary": (OK, "[files left out: 1 binary]"),
            "latin": (OK, "[no line in 1 file fits"),
            "empty": (OK, "[no line in 1 file fits"),
            "closed": (FAILED, "'closed' may not be opened"),
            "round": (OK, "[no line in 0 files fits"),
        },
    ),
    "git_status": ({}, {**FOLDERS, "folder": (FAILED, "'folder' is not the top folder of a git repository")}),
    "git_diff": ({}, {"folder": (FAILED, "'folder' is not the top folder of a git repository")}),
    "git_log": ({}, {"folder": (FAILED, "'folder' is not the top folder of a git repository")}),
    "git_commit": (
        {"message": "x"},
        {"folder": (FAILED, "'folder' is not the top folder of a git repository")},
    ),
    "git_push": (
        {"folder": "there"},
        {"folder": (FAILED, "'folder' is not the top folder of a git repository")},
    ),
}
"""For each tool that takes a path: the other arguments; and for each path the code and what is said."""

OTHERS: list[tuple[str, dict[str, Any], str, str]] = [
    ("grep_search", {"path": ".", "pattern": "("}, FAILED, "'(' is not a valid regular expression"),
    (
        "grep_search",
        {"path": ".", "pattern": "(?=a)"},
        FAILED,
        "look-around and back-references are not there",
    ),
    ("read_file", {"path": "text", "start_line": 9}, FAILED, "has 3 lines"),
    ("read_file", {"path": "text", "end_line": 1, "max_lines": 1}, FAILED, "max_lines"),
    ("read_file", {"path": "latin", "encoding": "ascii"}, OK, "[1 place is not ascii and shown as �]"),
    ("read_file", {"path": "a\0b"}, REFUSED, "holds a NUL character"),
    ("write_file", {"path": "new", "content": "é", "encoding": "ascii"}, FAILED, "is not in ascii"),
    ("run_command", {"command": "cat 'a"}, REFUSED, "a quote (') is not closed"),
    ("run_command", {"command": "cat a | b"}, REFUSED, "it uses pipes (|): there is no shell"),
    ("run_command", {"command": "no-such-program"}, REFUSED, "The program 'no-such-program' was not found"),
    ("run_command", {"command": "sleep 9", "timeout_seconds": 1}, OK, "stopped after 1 s"),
    ("run_command", {"command": "cat missing"}, OK, "[exit status 1]"),
    ("run_command", {"command": "cat binary"}, OK, "[2,560 bytes that are not text, so they are left out]"),
    ("run_command", {"command": "cat colors"}, OK, "\\u001b[31mred"),
    ("run_command", {"command": "cat huge"}, OK, "bytes left out]"),
    ("run_command", {"command": "cat text", "working_directory": "text"}, FAILED, "'text' is not a folder"),
    ("http_fetch", {"url": "ftp://books.example/"}, "ACODE-TSR-005", "pattern"),
    ("http_fetch", {"url": "http://books.example/"}, REFUSED, "has no grant for net.read of 'books.example'"),
    ("http_fetch", {"url": "http://10.0.0.1/"}, REFUSED, "has no grant for net.read of '10.0.0.1'"),
    ("web_search", {"query": "dune"}, FAILED, "No search engine is configured"),
    ("git_push", {}, FAILED, "is not the top folder of a git repository"),
]


def agree(_: Question) -> Answer:
    return Answer(verdict="approve", approver="eve", way="program")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("tree").resolve()
    for above in (root, *root.parents):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(0o711)
    (root / "text").write_text("one\ntwo\ntwo\n")
    (root / "binary").write_bytes(bytes(range(256)) * 10)
    (root / "latin").write_bytes(b"caf\xe9\n")
    (root / "empty").write_text("")
    (root / "colors").write_text("\x1b[31mred\x1b[0m\n")
    (root / "huge").write_text("".join(f"line {number} of a huge file\n" for number in range(200_000)))
    (root / "closed").write_text("x")
    (root / "closed").chmod(0)
    (root / "circle").symlink_to("circle")
    (root / "dangling").symlink_to("nowhere")
    (root / "round").mkdir()
    (root / "round" / "back").symlink_to("..")
    (root / "there").mkdir()
    for kind in ("folder", "pipe", "socket"):
        make(kind, root / kind)
    here = Path.cwd()
    os.chdir(root)
    yield root
    os.chdir(here)


ROWS = [
    *(
        (tool, {"path": path, **more}, code, said)
        for tool, (more, places) in TABLE.items()
        for path, (code, said) in places.items()
    ),
    *OTHERS,
]


@pytest.fixture(scope="module")
def answers(tree: Path) -> list[ToolResult]:
    """Every row, in one keep."""

    async def main() -> list[ToolResult]:
        async with open_keep(project=tree, approver=agree) as keep:
            programs = ("/usr/bin/git", "cat", "sleep")
            places = ("fs.read:.", "fs.write:.", "net.read:0.0.0.0/0")
            kinds = ("filesystem.read", "filesystem.write", "system.run", "vcs.read", "vcs.write")
            keep.declare_agent(
                "ada",
                capabilities=[*places, *(f"process.spawn:{program}" for program in programs)],
                permissions=[f"tool.{kind}" for kind in (*kinds, "network.fetch")],
            )
            return [await keep.call(tool, arguments, agent="ada") for tool, arguments, _, _ in ROWS]

    return asyncio.run(main())


@pytest.mark.spec("TLS-3")
@pytest.mark.parametrize(
    "number", range(len(ROWS)), ids=[f"{row[0]} {list(row[1].values())}" for row in ROWS]
)
def test_what_a_model_reads(number: int, answers: list[ToolResult]) -> None:
    _, _, code, said = ROWS[number]
    answer = answers[number]
    assert (answer.code or "") == code, answer.text
    assert said in answer.text
    assert len(answer.text) < 60_000  # it fits a model's context, with the way to the rest
