"""Python files and modules of tools that a command names: found, accepted, and added to a keep (REG-5).

On a terminal, naming a file accepts it for that run. Without one somebody else may have chosen the file, so
its content must have been accepted before. A server takes over what is accepted while it runs.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from toolkeep.cli.options import is_terminal, say_done, warn
from toolkeep.config.project_code import is_path
from toolkeep.config.tools_file import ToolsFile, find_tools_file
from toolkeep.errors import NotAccepted, ProviderFailed, ToolkeepError
from toolkeep.keep.accepted_tools_file import AcceptedToolsFile
from toolkeep.keep.keep import Keep
from toolkeep.keep.open import open_state, project_folder, tools_file_provider, tools_reader
from toolkeep.registry.register import Skipped
from toolkeep.registry.tool_provider import FILES
from toolkeep.text.display import visible

_HARMLESS: Final = re.compile(r"[A-Za-z0-9_./+-]{1,200}")
"""Names that models may read: a clone chooses the names of its files."""


def find_accepted(names: Sequence[str], project: Path | None) -> tuple[ToolsFile, ...]:
    """The files or modules of these names, each accepted; paths start from the working folder."""
    root = project_folder(project)
    files = tuple(find_named(name, root) for name in names)
    for file in files:
        if not is_terminal(sys.stdin):
            check_accepted(file, root)
    return files


def find_named(name: str, root: Path, *, shown: str = "") -> ToolsFile:
    """The file or module of a name; its imports are searched in the project, or in its own folder."""
    if not is_path(name) and not Path(name).is_file():
        return replace(find_tools_file(name, root), command=_accept_command(name, root))
    path = os.path.realpath(name)
    is_inside = Path(path).is_relative_to(os.path.realpath(root))
    found = find_tools_file(path, root if is_inside else Path(path).parent, shown=shown or name)
    return replace(found, command=_accept_command(path, root))


def _accept_command(name: str, root: Path) -> str:
    """What a person types in the project; a name that could address a model is left out."""
    real_root = os.path.realpath(root)
    if Path(name).is_relative_to(real_root):
        name = os.path.relpath(name, real_root)
    return f"toolkeep accept {name if _HARMLESS.fullmatch(name) else 'FILE'}"


def check_accepted(file: ToolsFile, root: Path) -> None:
    """Raise `NotAccepted` if no person has accepted the file with its current content."""
    state = open_state(root)
    if state is None or not state.is_accepted(file.key, file.seal):
        command = f"toolkeep accept {visible(file.place)} --project {visible(str(root))}"
        raise NotAccepted(
            f"{visible(file.shown)} is not accepted with its current content",
            hint=f"review and accept it once: {command}",
        )


def add_tools(keep: Keep, files: Sequence[ToolsFile], project: Path | None) -> Iterator[Skipped]:
    """Register the tools of files; gives those that are skipped, raises if a file cannot be read."""
    read = tools_reader(project_folder(project))
    for file in files:
        provider = tools_file_provider(file, keep, read, name=FILES)
        for skipped in keep.load(own=[provider]).skipped:
            if not skipped.tool:
                raise skipped.error
            yield skipped


class ServedFiles:
    """The files of tools that a server was named."""

    def __init__(self, names: Sequence[str], root: Path, *, holds_back: bool) -> None:
        """With `holds_back`, a file that is not accepted or cannot be read is left out, and not an error.

        A client that starts the server shows no more than that it failed; its user would lose every tool.
        """
        self._root = root
        self._holds_back = holds_back and not is_terminal(sys.stdin)
        # Now: names are relative to the folder of the caller.
        self._names = {name: _absolute(name) for name in names}
        self.files = () if self._holds_back else find_accepted(names, root)
        self._served = {file.shown: file for file in self.files}

    def load_accepted(self, keep: Keep) -> None:
        """Load the files that are accepted, and say which are not."""
        for name in self._names if self._holds_back else ():
            try:
                file = self._find(name)
                check_accepted(file, self._root)
                for skipped in add_tools(keep, [file], self._root):
                    warn(f"skipped '{skipped.tool}': {skipped.error}")
                self._served[name] = file
            except ToolkeepError as error:
                first, *more = error.message.split("\n")
                keep.load(failed=[ProviderFailed(visible(name), f"is left out: {first}")])
                warn(f"{visible(name)} is left out: {first}", *more)
                warn(f"review and accept it, in {visible(str(self._root))}: {self._command(name)}")
        _note_left_out(keep, [self._command(name) for name in self._names if name not in self._served])

    @contextlib.contextmanager
    def followed(self, keep: Keep) -> Iterator[None]:
        """Take over what a person accepts meanwhile."""
        from toolkeep.storage.sql.change_feed import StateChangeFeed

        state = open_state(self._root)
        if state is None or not self._names:
            yield
            return
        files = [
            AcceptedToolsFile(
                keep,
                partial(self._find, name),
                state,
                self._root,
                served=self._served.get(name),
                command=self._command(name),
            )
            for name in self._names
        ]

        def look() -> None:
            for file in files:
                _look(file)
            _note_left_out(keep, [file.command for file in files if not file.is_served])

        feed = StateChangeFeed(lambda: (state.stamp(), *(file.stamp() for file in files)), look)
        try:
            yield
        finally:
            feed.close()

    def _find(self, name: str) -> ToolsFile:
        return find_named(self._names[name], self._root, shown=name)

    def _command(self, name: str) -> str:
        place = self._names[name]
        return _accept_command(os.path.realpath(place) if "/" in place else place, self._root)


def _note_left_out(keep: Keep, commands: Sequence[str]) -> None:
    """Have agents told which commands accept the files that are left out."""
    keep.start_up = replace(keep.start_up, commands=tuple(dict.fromkeys(commands)))


def _look(file: AcceptedToolsFile) -> None:
    try:
        done = file.look()
    except ToolkeepError as error:
        warn(f"an accepted file of tools cannot be served: {visible(error.message)}")
        return
    if done is not None:
        names = ", ".join((*done.taken, *(f"without {name}" for name in done.removed)))
        say_done(f"took over what was accepted: {names}", err=True)
        for skipped in done.skipped:
            warn(f"skipped '{skipped.tool}': {visible(skipped.error.message)}")


def _absolute(name: str) -> str:
    return os.path.abspath(name) if is_path(name) or Path(name).is_file() else name  # noqa: PTH100 -- links stay
