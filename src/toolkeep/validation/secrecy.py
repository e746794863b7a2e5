"""What may be shown of a call (VAL-6): nothing at, above or below a place that is marked secret.

A value above a secret is hidden too, because a model that gets the shape wrong puts the secret there.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from toolkeep.definitions.parameter import is_secret
from toolkeep.pointers import look_up
from toolkeep.validation.keywords import Schema, all_schemas
from toolkeep.validation.locate import Locator, Path, Spot

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
        self._locator = locator
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
        return any(spot.is_secret for spot in self._locator.way(place))

    def hides_value(self, place: Path) -> bool:
        """Whether the value at a place is hidden."""
        if not self._shows_values or self.hides_schema(place):
            return True
        if not self._has_secrets:
            return False
        *_, spot = self._locator.way(place)
        return self._holds_secret(spot)

    def _holds_secret(self, spot: Spot) -> bool:
        if spot.holds_secret is None:
            spot.holds_secret = self._has_secret_below(spot.parts)
        return spot.holds_secret

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

    def replace(self, value: Any, stand_in: Callable[[Any], Any]) -> Any:
        """A copy of a valid value in which each secret, and what the schema does not know, has a stand-in."""
        if self.hides_all:
            return stand_in(value)
        return self._replace(value, stand_in, self._locator.top()) if self._has_secrets else value

    def redact(self, value: Any) -> Any:
        """A copy for a debug log: secrets, and whatever the schema does not know beside them, replaced."""
        if self.hides_all or not self._shows_values:
            return REDACTED
        if not self._has_secrets:
            return value
        return self._replace(value, lambda _: REDACTED, self._locator.top(), items=_LOGGED_ITEMS)

    def _replace(
        self, value: Any, stand_in: Callable[[Any], Any], spot: Spot, *, items: int | None = None
    ) -> Any:
        """The copy, with so many items of each array at the most."""
        if not spot.parts or spot.is_secret:
            return stand_in(value)
        inside = self._locator.inside
        if isinstance(value, dict):
            return {n: self._replace(v, stand_in, inside(spot, n), items=items) for n, v in value.items()}
        if isinstance(value, list):
            shown = enumerate(value[:items])
            return [self._replace(v, stand_in, inside(spot, i), items=items) for i, v in shown]
        return stand_in(value) if self._holds_secret(spot) else value


_LOGGED_ITEMS = 100
