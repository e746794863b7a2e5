"""What may be shown of a call (VAL-6): nothing at, above or below a place that is marked secret.

A value above a secret is hidden too, because a model that gets the shape wrong puts the secret there.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from toolkeep.definitions.parameter import is_secret
from toolkeep.validation.keywords import Schema, all_schemas
from toolkeep.validation.locate import Locator, Path
from toolkeep.validation.references import look_up

REDACTED = "***"


class Display(NamedTuple):
    """What the tool and the keep say about showing values at all."""

    is_sensitive: bool = False
    """The tool is marked sensitive."""
    shows_values: bool = True
    """The keep's `include_actual_values`."""


SHOW_ALL = Display()


class Secrecy:
    """Decides place by place whether a value, pattern, enum or default may be shown."""

    def __init__(self, locator: Locator, display: Display) -> None:
        schema = locator.root
        self._schema = schema
        self._parts_at = locator.parts_at
        self._has_secrets = any(map(is_secret, all_schemas(schema)))
        self.hides_all = display.is_sensitive
        self.has_secrets = self.hides_all or self._has_secrets
        """Whether anything of a call must stay out of the log."""
        self._shows_values = display.shows_values

    def hides_schema(self, place: Path) -> bool:
        """Whether the pattern, enum or limits of a place are hidden."""
        if self.hides_all:
            return True
        if not self._has_secrets:
            return False
        return any(
            any(is_secret(part) for part in self._parts_at(place[:length]))
            for length in range(len(place) + 1)
        )

    def hides_value(self, place: Path) -> bool:
        """Whether the value at a place is hidden."""
        if not self._shows_values or self.hides_schema(place):
            return True
        return self._has_secrets and self._has_secret_below(self._parts_at(place))

    def _has_secret_below(self, parts: Iterable[dict[str, Any]]) -> bool:
        waiting: list[Schema] = list(parts)
        seen: set[int] = set()
        while waiting:
            for part in all_schemas(waiting.pop()):
                if is_secret(part):
                    return True
                if isinstance(part.get("$ref"), str) and id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(look_up(self._schema, part["$ref"][1:]))
        return False

    def replace(self, value: Any, stand_in: Callable[[Any], Any], place: Path = ()) -> Any:
        """A copy of a valid value in which each secret, and what the schema does not know, has a stand-in."""
        if self.hides_all:
            return stand_in(value)
        if not self._has_secrets:
            return value
        parts = self._parts_at(place)
        if not parts or any(is_secret(part) for part in parts):
            return stand_in(value)
        if isinstance(value, dict):
            return {name: self.replace(inside, stand_in, (*place, name)) for name, inside in value.items()}
        if isinstance(value, list):
            return [self.replace(inside, stand_in, (*place, i)) for i, inside in enumerate(value)]
        return stand_in(value) if self._has_secret_below(parts) else value

    def redact(self, value: Any, place: tuple["str | int", ...] = ()) -> Any:
        """A copy for a debug log: secrets, and whatever the schema does not know beside them, replaced."""
        if self.hides_all or not self._shows_values:
            return REDACTED
        if not self._has_secrets:
            return value
        parts = self._parts_at(place)
        if not parts or any(is_secret(part) for part in parts):
            return REDACTED
        if isinstance(value, dict):
            return {name: self.redact(inside, (*place, name)) for name, inside in value.items()}
        if isinstance(value, list):
            return [self.redact(inside, (*place, index)) for index, inside in enumerate(value[:100])]
        return REDACTED if self._has_secret_below(parts) else value
