"""WASI preopened folders of a call.

WASI opens only folders. A folder that the call names is opened by the descriptor that was checked, so that it
cannot be swapped in between (TOCTOU). A single file to read is copied into a private folder, where nothing
else lies. A single file cannot be opened for writing: write access to its folder would include the files
beside it.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Self

from toolkeep.calls import RecordedCall, TouchedThing
from toolkeep.execution.read_only_paths import check_unprotected
from toolkeep.limits import COPIED_BYTES
from toolkeep.sandbox.trusted_paths import TrustedPaths
from toolkeep.wasm.run import OpenFolder

_NO_FOLDER: Final = (
    "it can be granted folders to write in, and no single file; let its parameter name a folder"
)


class _Held(NamedTuple):
    """One path, held open by our own descriptor."""

    descriptor: int
    path: PurePosixPath
    is_written: bool

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(os.fstat(self.descriptor).st_mode)

    @property
    def by_descriptor(self) -> str:
        return f"/proc/self/fd/{self.descriptor}"


class Preopens:
    """What one call may open; descriptors of its own, because a run may outlive its call.

    A descriptor of the call could be closed meanwhile, and its number be reused for another file.
    """

    def __init__(self, held: Sequence[_Held], trusted: TrustedPaths, agent: str) -> None:
        self._held = held
        self._trusted = trusted
        self._agent = agent

    @classmethod
    def of(cls, call: RecordedCall, trusted: TrustedPaths) -> Self:
        """Open the paths of a call; raises `ValueError` with the reason if it cannot."""
        held: list[_Held] = []
        try:
            held.extend(map(_hold, call.approved.permitted.touched))
        except BaseException:
            cls(held, trusted, call.request.agent).close()
            raise
        return cls(held, trusted, call.request.agent)

    def close(self) -> None:
        """Close the descriptors."""
        for one in self._held:
            os.close(one.descriptor)

    @contextmanager
    def opened(self) -> Iterator[list[OpenFolder]]:
        """The folders of a run; copies are removed afterwards. Raises `ValueError` with the reason."""
        folders = self._folders()
        with ExitStack() as stack:
            copies: dict[PurePosixPath, str] = {}
            for one in self._held:
                if one.is_folder or any(one.path.is_relative_to(folder) for folder in folders):
                    continue
                if one.path.parent not in copies:
                    made = tempfile.TemporaryDirectory(prefix="toolkeep-", ignore_cleanup_errors=True)
                    copies[one.path.parent] = stack.enter_context(made)
                _copy(one.descriptor, Path(copies[one.path.parent]) / one.path.name)
            copied = [OpenFolder(made, str(path), is_writable=False) for path, made in copies.items()]
            yield [*folders.values(), *copied]

    def _folders(self) -> dict[PurePosixPath, OpenFolder]:
        """The folders themselves; one that is read and written is opened for both."""
        folders: dict[PurePosixPath, OpenFolder] = {}
        for one in sorted(self._held, key=lambda held: held.is_written):
            if one.is_written:
                if not one.is_folder:
                    raise ValueError(_NO_FOLDER)
                # Nothing can be mounted read-only for a module in this process: a folder with protected paths
                # is refused.
                check_unprotected(os.path.realpath(one.by_descriptor), self._trusted, self._agent)
            if one.is_folder:
                folders[one.path] = OpenFolder(one.by_descriptor, str(one.path), one.is_written)
        return folders


def _hold(one: TouchedThing) -> _Held:
    if not one.kind.startswith("fs."):
        raise ValueError(f"a WASM module opens files and nothing else, and it needs {one.kind}")
    is_written = one.kind == "fs.write"
    # Our own open file of the checked inode; the path is never resolved again.
    descriptor = one.open()
    if descriptor is None:
        raise ValueError(_NO_FOLDER if is_written else "what it would read cannot be opened")
    return _Held(descriptor, PurePosixPath(one.shown), is_written)


def _copy(descriptor: int, to: Path) -> None:
    with open(os.dup(descriptor), "rb") as file:
        # Bounded read: the file may grow while it is copied.
        body = file.read(COPIED_BYTES + 1)
    if len(body) > COPIED_BYTES:
        raise ValueError(f"a file of more than {COPIED_BYTES} bytes is not copied for it; name its folder")
    to.write_bytes(body)
