"""`${VAR}` and `${VAR:-default}` in the values of a configuration file.

A value that is one unquoted variable is parsed as YAML (`${PORT:-80}` is a number); anything else stays text.
`$${` stands for a literal `${`. Schemas and metadata of tools are data and left alone. The value of a
variable is never expanded again: it would let whoever sets one read the others.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from toolkeep.json_values.pointers import escaped
from toolkeep.json_values.yaml import Document, ScalarRefused, plain_scalar
from toolkeep.limits import ERRORS

TOOL_LISTS: Final = ("/tool_registry/custom_tools", "/tools/custom", "/tools/custom_tools")

# The default ends before another variable begins, so that endless openings are scanned once each.
_VARIABLE = r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:[^}$]++|\$(?!\{))*+))?\}"
_TOKEN = re.compile(rf"(?P<literal>\$\$\{{)|{_VARIABLE}|(?P<stray>\$\{{)")
_WHOLE = re.compile(_VARIABLE)
_TOOL = re.compile(rf"(?:{'|'.join(TOOL_LISTS)})/\d+")
_LEFT_ALONE = frozenset({"parameters", "output_schema", "metadata"})


class Substitution:
    """One pass over a document; records each variable that is used and each that is missing."""

    def __init__(self, document: Document, environment: Mapping[str, str] | None) -> None:
        """Without an environment nothing is looked up: defaults apply, other variables stay as written."""
        self._document = document
        self._environment = environment
        self.faults: list[str] = []
        self.variables: list[tuple[str, str]] = []
        """The name of each variable, with the pointer of the value that uses it."""
        self.unresolved: set[str] = set()
        """Pointers of values that still hold a variable."""
        self.data = self._replace(document.data, "")

    @property
    def resolved(self) -> Any:
        """The data without settings whose value is unknown; tools keep theirs as text."""
        return _without(self.data, "", self.unresolved)

    def _replace(self, value: Any, pointer: str) -> Any:
        if isinstance(value, dict):
            left_alone = _LEFT_ALONE if _TOOL.fullmatch(pointer) else ()
            return {
                key: inside if key in left_alone else self._replace(inside, f"{pointer}/{escaped(key)}")
                for key, inside in value.items()
            }
        if isinstance(value, list):
            return [self._replace(inside, f"{pointer}/{index}") for index, inside in enumerate(value)]
        return self._text(value, pointer) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, pointer: str) -> Any:
        done = _TOKEN.sub(lambda match: self._value(match, pointer), text)
        if not _WHOLE.fullmatch(text) or not self._document.is_plain(pointer):
            return done
        try:
            return plain_scalar(done)
        except ScalarRefused as refused:
            self._note(pointer, str(refused))
            return done

    def _value(self, match: re.Match[str], pointer: str) -> str:
        if match["literal"]:
            return "${"
        if match["stray"]:
            fix = "write ${NAME} or ${NAME:-default}, or $${ for the text itself"
            self._note(pointer, f"'${{' does not start a variable; {fix}")
            return match[0]
        name, default = match["name"], match["default"]
        self.variables.append((name, pointer))
        if self._environment is not None and self._environment.get(name):
            return self._environment[name]
        if default is not None:
            return default
        if self._environment is None:
            self.unresolved.add(pointer)
        else:
            self._note(pointer, f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
        return match[0]

    def _note(self, pointer: str, fault: str) -> None:
        """Record at most one fault for a value, and at most as many as an error lists."""
        if pointer not in self.unresolved and len(self.faults) < ERRORS:
            self.faults.append(f"{self._document.place(pointer)}: {fault}")
        self.unresolved.add(pointer)


def _without(value: Any, pointer: str, unresolved: set[str]) -> Any:
    """A copy without the members at these pointers; array items stay, so that the others keep their index."""
    if isinstance(value, list):
        return [_without(item, f"{pointer}/{index}", unresolved) for index, item in enumerate(value)]
    if not isinstance(value, dict) or _TOOL.fullmatch(pointer):
        return value
    inside = {key: f"{pointer}/{escaped(key)}" for key in value}
    return {
        key: _without(value[key], place, unresolved)
        for key, place in inside.items()
        if place not in unresolved
    }
