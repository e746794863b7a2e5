"""Python files and modules of tools that a command names: found, accepted, and added to a keep (REG-5).

On a terminal, naming a file accepts it for that run. Without one somebody else may have chosen the file, so
its content must have been accepted before.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkeep.cli.options import is_terminal
from toolkeep.config.project_code import is_path
from toolkeep.config.tools_file import ToolsFile, find_tools_file
from toolkeep.errors import NotAccepted
from toolkeep.keep.keep import Keep
from toolkeep.keep.open import open_state, project_folder, tools_file_provider, tools_reader
from toolkeep.registry.register import Skipped
from toolkeep.registry.tool_provider import FILES
from toolkeep.text.display import visible


def find_accepted(names: Sequence[str], project: Path | None) -> tuple[ToolsFile, ...]:
    """The files or modules of these names, each accepted; paths start from the working folder."""
    root = project_folder(project)
    files = tuple(find_named(name, root) for name in names)
    for file in files:
        if not is_terminal(sys.stdin):
            check_accepted(file, root)
    return files


def find_named(name: str, root: Path) -> ToolsFile:
    """The file or module of a name; its imports are searched in the project, or in its own folder."""
    if not is_path(name) and not Path(name).is_file():
        return find_tools_file(name, root)
    path = os.path.realpath(name)
    is_inside = Path(path).is_relative_to(os.path.realpath(root))
    return find_tools_file(path, root if is_inside else Path(path).parent, shown=name)


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
