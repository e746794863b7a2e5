"""Follows a Python file or module of tools: after a change its tools are exchanged where nothing is looser.

Workers import a private copy, so that a broken or looser change leaves the code that runs alone. What this
trusts: the terminal whose person named the file, and whoever may write its source, except tools of this keep.
"""

from pathlib import Path

from toolkeep.config.code_copy import copy_tools_file
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import ToolsFile, find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.keep.keep import Keep
from toolkeep.keep.open import tools_file_provider, tools_reader
from toolkeep.registry.reload_tools import Reloaded, Waiting, reload_tools
from toolkeep.registry.tool_provider import FILES
from toolkeep.sandbox.import_guard import is_writable
from toolkeep.sandbox.trusted_paths import is_within


class ToolsFileReload:
    """One file that is followed. Use it from one thread."""

    def __init__(self, keep: Keep, file: ToolsFile, copied: ToolsFile, folder: Path, root: Path) -> None:
        """`copied` is the copy of `file` in `folder` whose tools the keep has; `root` is the project."""
        self._keep = keep
        # Not methods of `Keep`: only the command follows files.
        self._registry, self._registrar = keep._registry, keep._registrar  # noqa: SLF001
        self._file = file
        self._folder = folder
        self._read = tools_reader(root)
        self._names = {tool.name for tool in keep.tools() if _is_of(tool.runner, copied)}
        self._agreed = file
        """The version whose files a person has agreed to, or no tool could write."""
        self._last = file.accepted_code()
        self._seen = file.seal
        self._candidate = file.seal
        self._found = file
        """The last version that could be read."""
        self._waiting: tuple[Waiting, ...] = ()
        """Of that version."""

    @property
    def shown(self) -> str:
        """The file as it was named."""
        return self._file.shown

    def look(self) -> Reloaded | None:
        """Take over a change that was there the last time already; None if there is none.

        Raises `ToolkeepError` once for a version that cannot be used: the tools stay as they are.
        """
        if self._last.is_untouched:
            return None
        found: ToolsFile | FileUnreadable
        try:
            found = find_tools_file(self._file.target, Path(self._file.root), shown=self._file.shown)
            version = found.seal
        except FileUnreadable as error:
            found, version = error, str(error)
        # Editors write a file in several steps: what is half written must not remove its tools.
        if version != self._candidate:
            self._candidate = version
            return None
        if version == self._seen:
            self._last.changed()  # something else in its folders was touched
            return None
        self._seen = version
        if isinstance(found, FileUnreadable):
            raise found
        self._last = found.accepted_code()
        self._waiting = ()
        return self._reloaded(found)

    def take(self) -> tuple[str, ...]:
        """Register the tools that wait, for which a person has agreed; returns their names."""
        waiting, self._waiting = self._waiting, ()
        tools = [one.tool for one in waiting]
        self._registry.exchange([tool.name for tool in tools], tools, provider=FILES)
        self._names.update(tool.name for tool in tools)
        self._agreed = self._found
        return tuple(tool.name for tool in tools)

    @property
    def has_waiting(self) -> bool:
        """Whether tools wait for a person."""
        return bool(self._waiting)

    def _reloaded(self, found: ToolsFile) -> Reloaded:
        copied = copy_tools_file(found, self._folder, sources=self._file.places)
        provider = tools_file_provider(copied, self._keep, self._read, name=FILES)
        offers = provider.get_tool_definitions()
        objection = self._objection(found)
        done = reload_tools(
            self._registry,
            self._registrar,
            offers,
            provider=FILES,
            names=self._names,
            objection=objection,
        )
        self._names.difference_update(done.removed)
        self._found, self._waiting = found, done.waiting
        if not objection:
            self._agreed = found
        return done

    def _objection(self, found: ToolsFile) -> str:
        """Why nothing of a version is taken unseen: a tool may have written a part of it.

        What the first version consists of was protected before any tool ran. A module that came later may lie
        in a folder that a running tool may write.
        """
        for name, digest in found.code.items():
            path = f"{found.root}/{name}"
            is_protected = any(is_within(path, place) for place in self._file.places)
            if self._agreed.code.get(name) != digest and not is_protected and is_writable(path):
                return f"{name} lies where a tool may write"
        return ""


def _is_of(runner: object, file: ToolsFile) -> bool:
    return isinstance(runner, Run) and str(runner.target).rpartition(":")[0] == file.place
