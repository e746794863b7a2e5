"""Installed trees of packages, in the state of a keep: made whole or not at all, checked before each start.

The state is private to the user, and no tool sees it; of a tree, its own server sees it read-only. A manifest
beside each tree has the size, time and SHA-256 of each file. Before each start names, sizes, times and modes
are compared; the hashes are compared by `toolkeep add mcp NAME --refresh`.

Not protected: a program of this user, outside the sandbox, that rewrites tree and manifest.
"""

import asyncio
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.errors import ImportRefused, StateUnusable
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.packages.runner_commands import read_command
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.state_folder import make_private

PYTHON: Final = "bin/python"
"""The interpreter of a tree of Python packages: the only link that may lead out of one."""
_FOLDER: Final = "packages"
_OBSERVED: Final = ".observed"
_OBSERVED_SECONDS: Final = 3600.0
"""How long the packages of an observed server wait for the command that adds it."""
_BLOCK: Final = 1 << 20
_FILES: Final = 200_000
_BYTES: Final = 2 << 30
"""Bounds of a tree, several times those of the largest servers."""


def with_program(target: Mapping[str, Any], pinned: PinnedPackages | None, state: Path) -> dict[str, Any]:
    """The connection settings of a server, with its installed program instead of the package runner."""
    if pinned is None:
        return dict(target)
    command = read_command(tuple(target["command"]))
    tree = PackageTrees(state).path(pinned.digest)
    argv = [*_argv(pinned, tree), *(command.arguments if command else ())]
    code = [*target.get("code", ()), str(tree)]
    return {**target, "command": argv, "code": code, "tree": str(tree), "documented": target["command"]}


def server_spec(target: Mapping[str, Any]) -> ProcessSpec:
    """The process of a server by its connection settings. Raises ValueError."""
    words = {key: target[key] for key in ("code", "between_calls") if target.get(key)}
    # Python orders sets by a seed that is new at each start, and servers describe tools by sets: their pins
    # would not match. Colliding keys can slow down the server's own process, within the limits of its calls.
    environment = {"PYTHONHASHSEED": "0", **(target.get("environment") or {})}
    spec = ProcessSpec.read({"argv": list(target["command"]), "environment": environment, **words})
    # Its packages are pinned and read-only. A program in them is its own code, as much as a library that it
    # could load into its process.
    return replace(spec, packages=(target["tree"],)) if "tree" in target else spec


def _argv(pinned: PinnedPackages, tree: Path) -> list[str]:
    program = tree / pinned.program
    if _is_binary(program):
        return [str(program)]
    return [str(tree / PYTHON) if pinned.ecosystem == "pypi" else "node", str(program)]


def _is_binary(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


Facts = list[int | str]
"""Mode, size, time and SHA-256 of a file; mode and target of a symlink."""


class PackageTrees:
    """The trees of one keep, by digest."""

    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER

    def path(self, digest: str) -> Path:
        """Where a tree is, or would be."""
        return Path(os.path.realpath(self._folder)) / digest

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new empty folder to install into; removed at the end."""
        make_private(self._folder)
        folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="new-", dir=self._folder)))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, digest: str, installed: Path) -> None:
        """Take over an installed tree: from now on it is there, and read-only to its server."""
        _seal(installed)
        facts = dict(_facts(installed, with_hashes=True))
        self.remove(digest)
        try:
            installed.rename(self.path(digest))
            # Last: without its manifest a tree does not count.
            write_whole(self._manifest(digest), json.dumps(facts, sort_keys=True).encode())
        except OSError as error:
            reason = f"cannot be written: {error.strerror}"
            raise StateUnusable(str(self._folder), reason, hint="set TOOLKEEP_HOME") from error

    def remove(self, digest: str) -> None:
        """Remove a tree."""
        self._manifest(digest).unlink(missing_ok=True)
        shutil.rmtree(self.path(digest), ignore_errors=True)

    def digests(self) -> set[str]:
        """The installed trees."""
        return {manifest.stem for manifest in self._folder.glob("*.json")}

    def remember(self, key: str, pinned: PinnedPackages) -> None:
        """Keep the packages of an observed server: it is added with what was observed."""
        write_whole(self._folder / f"{key}{_OBSERVED}", json.dumps(pinned.to_dict()).encode())

    def recall(self, key: str) -> PinnedPackages | None:
        """The packages that were observed a short while ago, if they are whole."""
        try:
            pinned = PinnedPackages.read(json.loads((self._folder / f"{key}{_OBSERVED}").read_bytes()))
            check_tree(self.path(pinned.digest), with_hashes=True)
        except (OSError, ValueError):
            return None
        return pinned

    def forget_expired(self) -> set[str]:
        """Forget what was observed and not added; the digests."""
        found: set[str] = set()
        for file in self._folder.glob(f"*{_OBSERVED}"):
            if time.time() - file.stat().st_mtime > _OBSERVED_SECONDS:
                with suppress(OSError, ValueError):
                    found.add(PinnedPackages.read(json.loads(file.read_bytes())).digest)
                file.unlink(missing_ok=True)
        return found

    def _manifest(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def _seal(tree: Path) -> None:
    """Make a tree readable by the user that its server runs as, and its files read-only."""
    for folder, _, files in os.walk(tree):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.chmod(0o555 if mode & stat.S_IXUSR else 0o444)


def require_installed(target: Mapping[str, Any]) -> None:
    """Raise ValueError if the packages of a server are not on this machine."""
    if "tree" in target and not Path(target["tree"]).is_dir():
        raise ValueError(f"its packages are not installed on this machine; {_remedy(target)}")


def _remedy(target: Mapping[str, Any]) -> str:
    return f"run `toolkeep add mcp {target.get('upstream', 'NAME')} --refresh` to install them"


async def check_packages(target: Mapping[str, Any]) -> None:
    """Raise ValueError if the packages of a server are not as they were installed."""
    if "tree" in target:
        try:
            await asyncio.to_thread(check_tree, Path(target["tree"]))
        except ValueError as error:
            raise ValueError(f"{error}; {_remedy(target)}") from None


def check_tree(tree: Path, *, with_hashes: bool = False) -> None:
    """Raise ValueError if a tree is missing, or not as it was installed."""
    try:
        before: dict[str, Facts] = json.loads(tree.with_name(f"{tree.name}.json").read_bytes())
        now = dict(_facts(tree, with_hashes=with_hashes))
    except (OSError, ValueError):
        raise ValueError("its packages are not installed on this machine") from None
    except ImportRefused:
        now = {}
    if not with_hashes:
        before = {place: facts[:3] for place, facts in before.items()}
    if now != before:
        raise ValueError("its packages on this machine were changed since they were installed")


def _facts(tree: Path, *, with_hashes: bool) -> Iterator[tuple[str, Facts]]:
    """Each file and symlink of a tree; `ImportRefused` for what a package must not bring."""
    count = size = 0
    folders = [str(tree)]
    while folders:
        # scandir: half the time of Path, and this runs before each start.
        with os.scandir(folders.pop()) as found:
            entries = list(found)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            count, size = count + 1, size + status.st_size
            if count > _FILES or size > _BYTES:
                raise ImportRefused("its packages", f"have more than {_FILES} files or {_BYTES} bytes")
            if stat.S_ISDIR(status.st_mode):
                folders.append(entry.path)
            else:
                place = entry.path[len(str(tree)) + 1 :]
                yield place, _of_file(entry.path, place, status, tree, with_hashes=with_hashes)


def _of_file(path: str, place: str, status: os.stat_result, tree: Path, *, with_hashes: bool) -> Facts:
    if stat.S_ISLNK(status.st_mode):
        # A link out of the tree would have the server run what lies there, whatever the lock says.
        if not os.path.realpath(path).startswith(f"{tree}/") and place != PYTHON:
            raise ImportRefused("its packages", f"hold a link that leads out of them: {place}")
        return [status.st_mode, str(Path(path).readlink())]
    if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise ImportRefused("its packages", f"hold a file of a kind that none needs: {place}")
    facts: Facts = [status.st_mode, status.st_size, status.st_mtime_ns]
    return [*facts, _sha256(Path(path))] if with_hashes else facts


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
