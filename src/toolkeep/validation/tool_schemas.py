"""The compiled schemas of one tool: of its arguments and of its output."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolkeep.errors import Problem, SchemaBroken

if TYPE_CHECKING:
    from toolkeep.validation.compile import Compilation, CompiledSchema


class ToolSchemas:
    """Compiles the schemas of a tool on first use; with a problem in one of them, neither can be used."""

    def __init__(
        self,
        tool: str,
        parameters: dict[str, Any],
        compile_both: "Callable[[], tuple[Compilation, Compilation]]",
    ) -> None:
        self._tool = tool
        self._parameters = parameters
        self._compile_both = compile_both

    @cached_property
    def _both(self) -> "tuple[Compilation, Compilation]":
        return self._compile_both()

    @property
    def problems(self) -> list[Problem]:
        """What refuses the schemas."""
        return [problem for one in self._both for problem in one.problems]

    @property
    def warnings(self) -> list[Problem]:
        """Authoring rules that the schemas of an import violate."""
        return [warning for one in self._both for warning in one.warnings]

    @property
    def resolved(self) -> dict[str, Any]:
        """The schema of the parameters with its references resolved, for what reads all tools: compiles
        nothing."""
        from toolkeep.validation.guard import resolve_schema

        return resolve_schema(self._parameters)

    @cached_property
    def arguments(self) -> "CompiledSchema":
        """The compiled schema of the parameters."""
        compiled = self._both[0].compiled
        if compiled is None or self.problems:
            raise SchemaBroken(self._tool, self.problems)
        return compiled

    @cached_property
    def output(self) -> "CompiledSchema | None":
        """The compiled output schema, if any."""
        if self.problems:  # or a refused schema would pass for none at all
            raise SchemaBroken(self._tool, self.problems)
        return self._both[1].compiled
