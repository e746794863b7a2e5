"""Keeps on a database of the tests' choice, and what they tell."""

from collections.abc import Callable
from typing import Any

from toolkeep.events import Event
from toolkeep.keep import Keep
from toolkeep.sources.stored import StoreProvider, offer_of
from toolkeep.storage.definition_store import SqlStore
from toolkeep.storage.places import Place
from toolkeep.tools.provider import CoreToolsProvider

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Say what the weather is like.",
    "version": "1.0.0",
    "category": "external_api",
    "client_executed": True,
    "aliases": ["forecast"],
    "metadata": {"z": 1, "a": [2.5, None, {"é": "☂"}]},
    "parameters": {
        "type": "object",
        "properties": {
            "town": {"type": "string", "maxLength": 80, "description": "Where."},
            "days": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How far."},
        },
        "required": ["town"],
    },
}


class KeepOnStore(Keep):
    """A keep as `open_keep` makes it, on a database that the test says."""

    def __init__(self, place: Place, *, built_in: bool = True, **settings: Any) -> None:
        super().__init__(store=SqlStore(place), offer_of=offer_of, **settings)
        self.told: list[Event] = []
        own: list[Any] = [CoreToolsProvider(self._tier)] if built_in else []
        if place.exists():
            own.append(StoreProvider(self.editor.read))
        self.load(own=own)
        self.subscribe(self.told.append)

    def heard(self, *kinds: type[Event]) -> list[Event]:
        """What it told of some kinds."""
        return [event for event in self.told if isinstance(event, kinds)]


OpenKeep = Callable[..., KeepOnStore]
