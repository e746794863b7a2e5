"""One call through a real zygote and a real worker, at each level."""

import asyncio
import importlib.util
import marshal
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sandbox.workers import LEVELS, caller, recipe
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.worker_exchange import Ending, Reply


def called(level: Isolation, tool: str, **arguments: Any) -> Reply:
    async def main() -> Reply:
        async with caller() as here:
            return await here.call(recipe(level, tool), **arguments)

    return asyncio.run(main())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.spec("SBX-2")
def test_a_function_answers_with_its_value(level: Isolation) -> None:
    assert called(level, "add", first=2, second=3) == Reply(Ending.OK, value=5)


@pytest.mark.parametrize("level", LEVELS)
def test_an_async_function_answers_with_its_value(level: Isolation) -> None:
    assert called(level, "add_later", first=2, second=3) == Reply(Ending.OK, value=5)


@pytest.mark.parametrize(
    ("tool", "arguments", "reply"),
    [
        (
            "echo",
            {"value": {"a": [1, None, "é\u2028", 1.5]}},
            Reply(Ending.OK, value={"a": [1, None, "é\u2028", 1.5]}),
        ),
        ("give_bytes", {}, Reply(Ending.OK, value=b"\x00\xff")),
        ("fail", {"text": "no such city"}, Reply(Ending.FAILED, text="no such city")),
        ("vanish", {}, Reply(Ending.DIED)),
        ("crash", {}, Reply(Ending.DIED)),
        ("shout", {}, Reply(Ending.OK, value=0)),
    ],
)
def test_what_a_tool_does_is_told(tool: str, arguments: dict[str, Any], reply: Reply) -> None:
    assert called(Isolation.STRICT, tool, **arguments) == reply


@pytest.mark.parametrize(
    ("tool", "arguments", "start"),
    [
        ("divide", {"by": 0}, "ZeroDivisionError at subjects.py:"),
        ("add", {"first": 1}, "TypeError at load.py:"),
        ("leave", {}, "SystemExit at subjects.py:"),
        ("give_set", {}, "TypeError at plain.py:"),
    ],
)
def test_an_exception_is_told_by_type_and_place_without_its_text(
    tool: str, arguments: dict[str, Any], start: str
) -> None:
    reply = called(Isolation.STRICT, tool, **arguments)
    assert (reply.ending, reply.text[: len(start)]) == (Ending.RAISED, start)
    assert "zero" not in reply.text


@pytest.mark.parametrize("tool", ["no_such_module:f", "subjects:no_such_function", "/usr/no.py:f"])
def test_a_tool_that_cannot_be_imported_says_why(tool: str) -> None:
    reply = called(Isolation.STRICT, tool)
    assert reply.ending is Ending.UNLOADED
    assert "no" in reply.text


def test_a_tool_is_found_by_file_and_name() -> None:
    from tests.sandbox.workers import HERE

    assert called(Isolation.STRICT, f"{HERE}/subjects.py:add", first=1, second=1) == Reply(Ending.OK, value=2)


@pytest.mark.parametrize("level", LEVELS)
def test_a_module_that_the_zygote_has_not_loaded_can_be_imported(level: Isolation) -> None:
    assert called(level, "colorsys:rgb_to_yiq", r=0, g=0, b=0) == Reply(Ending.OK, value=[0.0, 0.0, 0.0])


def test_a_request_and_a_reply_larger_than_a_pipe_pass() -> None:
    text = "ab" * 200_000
    assert called(Isolation.STRICT, "echo", value=text) == Reply(Ending.OK, value=text)


def poison(source: Path, code: str, flags: int = 0) -> None:
    """Bytecode that Python would take for that of a source."""
    status = source.stat()
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", flags, int(status.st_mtime), status.st_size)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(head + marshal.dumps(compile(code, str(source), "exec")))


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize("is_script", [False, True])
def test_bytecode_beside_a_lone_file_is_not_run(tmp_path: Path, *, is_script: bool) -> None:
    """Whoever may write the folder of the file could put it there, for a tool with other secrets."""
    source = Path(os.path.realpath(tmp_path)) / "alone.py"
    source.write_text("def say() -> str:\n    return 'source'\n")
    poison(source, "def say() -> str:\n    return 'bytecode'\n")
    made = recipe(Isolation.STRICT, f"{source if is_script else 'alone'}:say")
    made = replace(
        made,
        zygote=replace(made.zygote, code=(str(source), str(source.parent / "__pycache__"))),
        worker=replace(made.worker, packages=(str(source),), import_paths=()),
    )

    async def main() -> Reply:
        async with caller() as here:
            return await here.call(made)

    assert asyncio.run(main()) == Reply(Ending.OK, value="source")


CHECKED_NEVER = 0b01
"""The flag of bytecode that is run whatever its source says (PEP 552)."""


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize("poisoned", ["__init__.py", "words.py", "deeper/__init__.py", "deeper/words.py"])
@pytest.mark.parametrize("flags", [0, CHECKED_NEVER])
def test_bytecode_inside_a_package_is_not_run(tmp_path: Path, poisoned: str, flags: int) -> None:
    package = make_package(tmp_path)
    poison(package / poisoned, "WORD = 'bytecode'\n", flags)
    assert words_of(package) == Reply(Ending.OK, value=["source"] * 4)


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize("folder", ["", "deeper"])
def test_bytecode_without_a_source_is_not_run(tmp_path: Path, folder: str) -> None:
    """A package may look for a module that is not installed; whoever puts its bytecode there runs."""
    package = make_package(tmp_path)
    source = package / folder / "optional.py"
    source.write_text("WORD = 'bytecode'\n")
    poison(source, source.read_text())
    Path(importlib.util.cache_from_source(str(source))).rename(source.with_suffix(".pyc"))
    source.unlink()
    assert words_of(package) == Reply(Ending.OK, value=["source"] * 4)


def make_package(tmp_path: Path) -> Path:
    package = Path(os.path.realpath(tmp_path)) / "parted"
    (package / "deeper").mkdir(parents=True)
    for name in ("__init__.py", "words.py", "deeper/__init__.py", "deeper/words.py"):
        (package / name).write_text("WORD = 'source'\n")
    (package / "tool.py").write_text(
        "import parted, parted.deeper\n"
        "from parted import words\n"
        "from parted.deeper import words as deeper\n"
        "found = [parted.WORD, words.WORD, parted.deeper.WORD, deeper.WORD]\n"
        "for name in ('parted.optional', 'parted.deeper.optional'):\n"
        "    try:\n"
        "        found.append(__import__(name, fromlist=['WORD']).WORD)\n"
        "    except ModuleNotFoundError:\n"
        "        pass\n"
        "def word() -> list[str]:\n"
        "    return found\n"
    )
    return package


def words_of(package: Path) -> Reply:
    made = recipe(Isolation.STRICT, f"{package.name}.tool:word")
    made = replace(
        made,
        zygote=replace(made.zygote, code=(str(package),)),
        worker=replace(made.worker, packages=(str(package),), import_paths=()),
    )

    async def main() -> Reply:
        async with caller() as here:
            return await here.call(made)

    return asyncio.run(main())
