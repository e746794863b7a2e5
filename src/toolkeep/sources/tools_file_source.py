"""Provider of the tools in a Python file or module: definitions are read in a confined worker, calls run in
workers too. The host imports nothing of it (SBX-1).

What the worker says is untrusted: names, sizes and rules are checked as for any definition written by hand, a
name that is taken stays with its holder, and no definition can claim another source or run unconfined.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkeep.config.accepted_code import AcceptedCode
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import ToolsFile
from toolkeep.definitions.found_tool import FoundTool
from toolkeep.errors import DefinitionInvalid, FeatureClosed, FileUnreadable, ToolkeepError
from toolkeep.registry.coerce import Offer
from toolkeep.text.display import visible

Read = Callable[[ToolsFile], Sequence[FoundTool]]
"""Reads the tools of a file or module."""


class ToolsFileProvider:
    """Offers the tools of one file or module."""

    def __init__(
        self, file: ToolsFile, read: Read, *, name: str, priority: int, allows_definitions: bool = True
    ) -> None:
        self.name = name
        self.priority = priority
        self._file = file
        self._read = read
        self._allows_definitions = allows_definitions

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each tool, with its problems if it has any; raises if the file cannot be read."""
        file = self._file
        code = file.accepted_code()
        self._check_unchanged(code, "since it was accepted")
        found = self._read(file)
        # After reading: calls check the same hashes, so that definitions and code belong together.
        self._check_unchanged(code, "while it was read")
        return [self._offer(one, code) for one in found]

    def _check_unchanged(self, code: AcceptedCode, when: str) -> None:
        if changed := code.changed():
            raise FileUnreadable(self._file.shown, f"{visible(changed)} changed {when}")

    def _offer(self, found: FoundTool, code: AcceptedCode) -> Offer:
        shown, place = self._file.shown, self._file.place
        definition = found.definition
        refused: ToolkeepError | None = None
        if not self._allows_definitions:
            what = f"tool {found.reference!r} of {shown} is left out"
            refused = FeatureClosed(what, key="features.tools.definition")
        elif definition is None:
            refused = DefinitionInvalid(found.reference, found.problems)
        return Offer(
            tool=refused or _confined(definition or {}),
            name=found.reference if refused else "",
            runner=Run(
                kind="python",
                target=f"{place}:{found.reference}",
                code=code,
                places=self._file.places,
                copy=self._file.copy,
            ),
            is_custom=True,
            code_hash=self._file.seal,
            locate=lambda _: shown,
        )


def _confined(definition: dict[str, Any]) -> dict[str, Any]:
    """The data as that of a definition written by hand; without a stated level it runs at strict.

    At standard a tool sees the machine as its user does, whatever its capabilities say.
    """
    data = {key: value for key, value in definition.items() if key != "source"}
    constraints = data.get("constraints")
    if constraints is None or (isinstance(constraints, dict) and not constraints.get("required_isolation")):
        data["constraints"] = {**(constraints or {}), "required_isolation": "strict"}
    return data
