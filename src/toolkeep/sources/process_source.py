"""Tools implemented by a persistent process, declared in code; the counterpart of `run.process`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toolkeep.config.settings import Run
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.limits import DEFAULT_PROCESS_IDLE_SECONDS
from toolkeep.registry.coerce import Offer, name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSource:
    """A program that answers calls, one line of JSON each, and stays between them.

        dictionary = ProcessSource(argv=["/usr/bin/python3", "/srv/words.py"], code=["/srv/words.py"])
        keep.register(dictionary.tool(definition))

    `{secret:name}` in a variable of `environment` is filled with a secret of the tool. `code` are folders and
    files that it is made of; files that `argv` names by whole paths, or with `~/`, are shown to it too.
    With `between_calls="stopped"` no process of it runs while no call is under way.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    code: Sequence[str] = ()
    idle_s: float = DEFAULT_PROCESS_IDLE_SECONDS
    between_calls: Literal["running", "stopped"] = "running"

    def tool(self, definition: ToolDefinition | Mapping[str, Any]) -> Offer:
        """The tool for `keep.register`; raises `DefinitionInvalid` if the process cannot be started."""
        target = {
            "argv": list(self.argv),
            "environment": dict(self.environment),
            "code": list(self.code),
            "idle_s": self.idle_s,
            "between_calls": self.between_calls,
        }
        try:
            ProcessSpec.read(target)
        except ValueError as error:
            fix = "see docs/processes.md for what argv, environment, code, idle_s and between_calls may hold"
            problem = Problem(field="run/process", code=Code.DEFINITION_INVALID, message=str(error), fix=fix)
            raise DefinitionInvalid(name_of(definition), [problem]) from None
        return Offer(tool=definition, runner=Run(kind="process", target=target))
