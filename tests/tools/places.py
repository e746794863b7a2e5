"""Files and folders for the tests of tools, and what a tool answers about them."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolkeep.definitions.tool_context import ToolFailed

NOBODY = 65534


def pair(path: Path, named: str | None = None) -> tuple[str, str]:
    """A path as a tool gets it."""
    return (path.name if named is None else named, str(path))


def refusal(call: Callable[[], str]) -> str:
    """What a model reads of a call that does not work."""
    with pytest.raises(ToolFailed) as caught:
        call()
    return str(caught.value)


def make(kind: str, path: Path) -> Path:
    """Something that is no file."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.with_name("target").write_text("secret\n")
        path.symlink_to("target")
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
        os.chdir(here)
    return path


@contextmanager
def as_nobody(*owned: Path) -> Iterator[None]:
    """Without the powers of root, where the tests have them; the folders are handed over first."""
    if os.geteuid() != 0:
        yield
        return
    for path in owned:
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that anybody can reach."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(0o711)
    tmp_path.chmod(0o755)
    return tmp_path
