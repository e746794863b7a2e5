"""Serves a file of tools that a command named, with the content that a person accepted (REG-5).

A server runs for days: meanwhile the file is edited and accepted again. Its tools are then exchanged without
a restart. Until a version is accepted nothing of it is imported, and calls of the last one are refused.
"""

from collections.abc import Callable
from pathlib import Path

from toolkeep.config.accepted_code import stamp_of
from toolkeep.config.tools_file import ToolsFile
from toolkeep.errors import FileUnreadable
from toolkeep.keep.keep import Keep
from toolkeep.keep.open import tools_file_provider, tools_reader
from toolkeep.registry.reload_tools import Reloaded, reload_tools
from toolkeep.registry.tool_provider import FILES
from toolkeep.storage.sqlite.state_db import KeepState


class AcceptedToolsFile:
    """One file of a server that runs. Use it from one thread."""

    def __init__(
        self,
        keep: Keep,
        find: Callable[[], ToolsFile],
        state: KeepState,
        root: Path,
        *,
        served: ToolsFile | None,
        command: str,
    ) -> None:
        """`served` is the version whose tools the keep has; `command` accepts another one."""
        self._keep = keep
        # Not methods of `Keep`: only the commands follow files.
        self._registry, self._registrar = keep._registry, keep._registrar  # noqa: SLF001
        self._find = find
        self._state = state
        self._read = tools_reader(root)
        self._served = served.seal if served else ""
        ours = (tool for tool in keep.tools() if tool.provider == FILES)
        self._names = {tool.name for tool in ours if tool.code_hash == self._served}
        self._files: tuple[Path, ...] = ()
        self.command = command

    @property
    def is_served(self) -> bool:
        """Whether the keep has tools of the file."""
        return bool(self._served)

    def stamp(self) -> object:
        """A value that changes with the files that the last look found: one may be as accepted again."""
        return tuple(map(stamp_of, self._files))

    def look(self) -> Reloaded | None:
        """Take over the current version if a person accepted it; None if there is nothing to take.

        Raises `ToolkeepError` for an accepted version that cannot be read.
        """
        try:
            found = self._find()
        except FileUnreadable:
            return None  # nobody can have accepted it
        self._files = tuple(Path(found.root, name) for name in found.code)
        # The accepted hash is that of the code which is read below, and which is checked before each call.
        if found.seal == self._served or not self._state.is_accepted(found.key, found.seal):
            return None
        offers = tools_file_provider(found, self._keep, self._read, name=FILES).get_tool_definitions()
        done = reload_tools(
            self._registry, self._registrar, offers, provider=FILES, names=self._names, is_agreed=True
        )
        self._names = self._names.difference(done.removed).union(done.taken)
        self._served = found.seal
        return done
