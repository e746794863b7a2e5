"""Files of the state folder that only save time: one that is missing, damaged or foreign is made anew.

No tool sees the state folder, so none can plant a file. The name of a file is a hash of everything that its
content depends on: what another program made has another name.
"""

import contextlib
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

import toolkeep
from toolkeep.errors import FileUnreadable, StateUnusable
from toolkeep.host.files import read_ordinary
from toolkeep.limits import CACHE_FILE_BYTES
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.state_folder import check_private, make_private

ROOMS: Final = ("config", "definitions", "json_values", "registry", "validation")
LIBRARIES: Final = ("jsonschema_rs", "yaml")


class CacheFolder:
    """One folder of such files, of which the newest are kept."""

    def __init__(self, folder: Path, *, kept: int) -> None:
        self._folder = folder
        self._kept = kept

    def read(self, facts: Any) -> bytes | None:
        """What was written for the same facts; None if there is nothing that can be trusted."""
        with contextlib.suppress(OSError, FileUnreadable, StateUnusable):
            check_private(self._folder)
            return read_ordinary(self._path(facts), CACHE_FILE_BYTES, _check_own)
        return None

    def write(self, facts: Any, data: bytes) -> None:
        """Write it; on failure it is made again next time."""
        if len(data) > CACHE_FILE_BYTES:
            return
        with contextlib.suppress(OSError, StateUnusable):
            make_private(self._folder)
            write_whole(self._path(facts), data, is_soon_replaced=True)
            by_age = sorted(self._folder.iterdir(), key=lambda one: one.lstat().st_mtime_ns)
            for old in by_age[: -self._kept]:
                old.unlink(missing_ok=True)

    def _path(self, facts: Any) -> Path:
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return self._folder / f"{name}.json"


def _check_own(status: os.stat_result) -> None:
    """Raise for a file that another user owns or can write."""
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise OSError


def checking_program() -> list[Any]:
    """What decides about definitions and files beside their content: this program and its libraries.

    The names of installed metadata hold the versions of all; importlib.metadata takes 20 to 100 ms to load.
    Modification times too: the code of a checkout changes without a new version. `OSError` if unknown.
    """
    from importlib.util import find_spec

    ours = Path(toolkeep.__file__).parent
    modules = [one for room in ROOMS for one in os.scandir(ours / room) if one.name.endswith(".py")]
    changed = max(one.stat().st_mtime_ns for one in modules)
    found = [spec.origin for spec in map(find_spec, LIBRARIES) if spec and spec.origin]
    folders = sorted({ours.parent, *(Path(origin).parent.parent for origin in found)})
    packages = [[str(one), sorted(path.name for path in one.glob("*-info"))] for one in folders]
    return [sys.version, changed, packages]
