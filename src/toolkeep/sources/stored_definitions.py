"""Stored definitions as offers: treated like configuration, never like code (SBX-1).

The runner of a stored tool is named and not resolved yet; nothing is imported here, and no store can make a
tool run in this process.
"""

from collections.abc import Callable, Iterable

from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code, DefinitionInvalid, Problem, StoreConflict, ToolkeepError
from toolkeep.registry.coerce import Offer
from toolkeep.registry.tool_provider import STORE
from toolkeep.sources.config_source import read_run, run_warnings
from toolkeep.stores.definitions import BrokenDefinition, Contents, StoredDefinition


def offer_of(held: StoredDefinition | BrokenDefinition) -> Offer:
    """The offer of one stored version, with the reason if it cannot be used."""
    if isinstance(held, BrokenDefinition):
        hint = "fix the row, or delete it, in the database itself"
        return Offer(tool=StoreConflict(held.name, held.reason, hint=hint), name=held.name)
    problems: list[Problem] = []
    run = read_run(held.run, problems)
    definition = held.definition
    data = definition.to_dict()
    if run is not None and definition.client_executed:
        problems.append(_problem("run", "conflicts with client_executed", "keep one of the two"))
    if definition.constraints.required_isolation is Isolation.NONE:
        problems.append(
            _problem(
                "constraints/required_isolation", "is none, which only live code can have", "leave it out"
            )
        )
    if not definition.source.is_by_hand:
        problems.append(_problem("source", "says that it comes from elsewhere", "leave it out"))
    refused: ToolkeepError | None = DefinitionInvalid(held.name, problems) if problems else None
    return Offer(
        tool=refused or definition,
        name=held.name,
        runner=run,
        is_custom=True,
        aliases=definition.aliases,
        warnings=run_warnings(run, data),
    )


class StoreProvider:
    """Offers the newest version of each stored tool when a keep is opened."""

    name = STORE
    priority = 105

    def __init__(self, read: Callable[[], Contents]) -> None:
        self._read = read
        self.newest: dict[str, StoredDefinition | BrokenDefinition] = {}
        self.earlier: list[StoredDefinition | BrokenDefinition] = []

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each tool; raises if the store cannot be reached."""
        for held in self._read().held:
            if self.newest.setdefault(held.name, held) is not held:
                self.earlier.append(held)
        return [offer_of(held) for held in self.newest.values()]


class EarlierProvider:
    """Offers the earlier versions of tools whose newest version is registered.

    If the newest cannot be used, an earlier one must not take its place: it was replaced for a reason.
    """

    name = STORE
    priority = 106

    def __init__(self, newest: StoreProvider, holds: Callable[[StoredDefinition], bool]) -> None:
        self._newest = newest
        self._holds = holds

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each version, with the reason if the newest one is missing."""
        return [self._offer(held) for held in self._newest.earlier]

    def _offer(self, held: StoredDefinition | BrokenDefinition) -> Offer:
        newest = self._newest.newest[held.name]
        if isinstance(newest, StoredDefinition) and self._holds(newest):
            return offer_of(held)
        hint = "fix or delete the newest version"
        reason = "is left out: its newest version cannot be used here"
        return Offer(tool=StoreConflict(held.name, reason, hint=hint), name=held.name)


def _problem(field: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)
