"""What the operations of a document give back: schemas that answers are checked against, or why not."""

from typing import Any

from toolkeep.errors import Code, Problem
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.sources.openapi.document import Document, Refused
from toolkeep.sources.openapi.operations import answer_schema
from toolkeep.sources.openapi.schemas import Allowance, Bundle
from toolkeep.validation.compiler import compile_output


class Answers:
    """The schemas of what successes give. Operations share them: each is read and compiled once."""

    def __init__(self, document: Document, allowance: Allowance) -> None:
        self._document = document
        self.allowance = allowance
        """What may still be read of the document."""
        self._known: dict[str | int, tuple[Any, tuple[Problem, ...]]] = {}

    def of(self, operation: dict[str, Any]) -> tuple[Any, tuple[Problem, ...]]:
        """The schema of one operation, or why its answers are not checked."""
        try:
            said = answer_schema(self._document, operation)
        except Refused as error:
            return None, (_unchecked(str(error)),)
        if not isinstance(said, dict):
            return None, ()
        reference = said.get("$ref")
        key = reference if isinstance(reference, str) and len(said) == 1 else id(said)
        if key not in self._known:
            self._known[key] = self._read(said)
        return self._known[key]

    def _read(self, said: dict[str, Any]) -> tuple[Any, tuple[Problem, ...]]:
        bundle = Bundle(self._document, "response", self.allowance)
        try:
            schema = bundle.add(said)
        except Refused as error:
            return None, (_unchecked(str(error)),)
        if bundle.definitions:
            schema = {**schema, "$defs": bundle.definitions}
        made = compile_output(schema, by_hand=False, limits=DEFAULT_LIMITS)
        if made.compiled is None:
            reason = made.problems[0].message if made.problems else "cannot be compiled"
            return None, (_unchecked(f"its schema {reason}"),)
        return schema, ()


def _unchecked(reason: str) -> Problem:
    return Problem(
        field="output_schema",
        code=Code.DEFINITION_INVALID,
        message=f"answers are not checked: {reason}",
        mend="ask whoever wrote the document",
    )
