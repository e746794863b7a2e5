"""Copies a file or module of tools with its project code, for workers to import while the source changes.

A copy is found by the hash of its code. It holds the code, and the data files of its packages as they were
when it was made. The caller's folder must be private to this user.
"""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from toolkeep.config.settings import CodeCopy
from toolkeep.config.tools_file import ToolsFile, find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.limits import CODE_FILES, CODE_SOURCE_BYTES
from toolkeep.sandbox.plan import COPY_VARIABLE

_BYTECODE: Final = "__pycache__"
_READ_ONLY: Final = 0o444
"""For a worker too, which may run as another user; the folder above is private."""


def copy_tools_file(file: ToolsFile, folder: Path, *, sources: tuple[str, ...] = ()) -> ToolsFile:
    """The file as a copy in `folder`; raises `FileUnreadable` if it changes meanwhile.

    `sources` are places of earlier versions, which stay protected with those of this one.
    """
    root = folder / file.seal
    if not root.exists():
        made = Path(tempfile.mkdtemp(dir=folder))
        try:
            _copy(file, made)
            made.rename(root)
        except OSError as error:
            raise FileUnreadable(file.shown, f"cannot be copied: {error.strerror}") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
    found = find_tools_file(file.target, root, shown=file.shown)
    if found.seal != file.seal:
        shutil.rmtree(root, ignore_errors=True)
        raise FileUnreadable(file.shown, "changed while it was copied")
    protected = tuple(dict.fromkeys((*sources, *file.places)))
    variables = ((COPY_VARIABLE, json.dumps([found.root, file.root])),)
    return replace(found, copy=CodeCopy(protected, variables))


def _copy(file: ToolsFile, to: Path) -> None:
    for name, content in copied_files(file):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(_READ_ONLY)


def copied_files(file: ToolsFile) -> Iterator[tuple[str, bytes]]:
    """What a copy holds, by paths from the root; raises `FileUnreadable` if that is too much."""
    root = Path(file.root)
    paths = dict.fromkeys((*(root / name for name in file.code), *_data(file.places)))
    left = CODE_SOURCE_BYTES
    for count, path in enumerate(paths):
        content = path.read_bytes()
        left -= len(content)
        if left < 0 or count >= CODE_FILES:
            what = f"more than {CODE_FILES} files or {CODE_SOURCE_BYTES} bytes"
            raise FileUnreadable(file.shown, f"its packages have {what}, too many to be copied")
        yield path.relative_to(root).as_posix(), content


def _data(places: tuple[str, ...]) -> Iterator[Path]:
    """The files of packages; neither links, which may lead anywhere, nor hidden ones."""
    for place in filter(os.path.isdir, places):
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if not name.startswith((".", _BYTECODE))]
            for name in names:
                path = Path(folder) / name
                if not name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                    yield path
