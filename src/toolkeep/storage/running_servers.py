"""Which servers run for a state folder: each writes its address there while it serves.

The entry of a server that was killed stays behind. It counts only while exactly its process runs.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.sqlite.process_identity import is_alive, this_process
from toolkeep.storage.state_folder import check_private, make_private

_FOLDER = "servers"


@contextlib.contextmanager
def announced(state: Path, address: str) -> Iterator[None]:
    """List this process as a server of a state folder, until the block ends."""
    folder = state / _FOLDER
    make_private(state)
    make_private(folder)
    entry = folder / this_process()
    write_whole(entry, address.encode(), is_soon_replaced=True)
    try:
        yield
    finally:
        entry.unlink(missing_ok=True)


def running_servers(state: Path) -> list[str]:
    """Addresses of the servers that run for a state folder, the newest first."""
    if not is_there(state):
        return []
    # Another user could otherwise plant an address of his own, to which the next link would bring its code.
    check_private(state)
    try:
        found = sorted((state / _FOLDER).iterdir(), key=os.path.getmtime, reverse=True)
    except OSError:
        return []
    return [address for entry in found if is_alive(entry.name) and (address := _address(entry))]


def _address(entry: Path) -> str:
    try:
        return entry.read_text(encoding="utf-8")
    except OSError:  # it ended in between
        return ""
