"""Keeps on a database of the tests' choice, and what they tell."""

from collections.abc import Callable
from typing import Any

from toolkeep.events import Event
from toolkeep.keep.keep import Keep
from toolkeep.sources.stored_definitions import EarlierProvider, StoreProvider, offer_of
from toolkeep.storage.sql.database_location import DatabaseLocation
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.tools.catalog import CoreToolsProvider

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

    def __init__(self, place: DatabaseLocation, *, built_in: bool = True, **settings: Any) -> None:
        super().__init__(store=SqlDefinitionStore(place), offer_of=offer_of, **settings)
        self.told: list[Event] = []
        own: list[Any] = [CoreToolsProvider(self._tier)] if built_in else []
        if place.exists():
            newest = StoreProvider(self.editor.read)
            own += [newest, EarlierProvider(newest, self.editor.holds)]
        self.load(own=own)
        self.subscribe(self.told.append)

    def heard(self, *kinds: type[Event]) -> list[Event]:
        """What it told of some kinds."""
        return [event for event in self.told if isinstance(event, kinds)]


OpenKeep = Callable[..., KeepOnStore]
