"""The state of a keep, with the switches and policies of all servers; pins and acceptances stay its own.

Pins and acceptances are about files and servers that one machine has. What is disabled or withdrawn, and the
policies that a person put in force, count on all servers, within a second. A server that cannot know them
makes no calls.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from toolkeep.storage.postgres.shared_changes import CURRENT_SECONDS, SharedChanges
from toolkeep.storage.postgres.shared_register import REGISTERS, SharedRegister
from toolkeep.storage.sqlite.state_db import KeepState, StateFollower
from toolkeep.stores.registry_state import StoredPolicies, with_switch

_KIND = "switches"
POLICIES = "policies"


class SharedKeepState(KeepState):
    """What one keep remembers, with the switches of all servers."""

    def __init__(
        self,
        folder: Path,
        register: SharedRegister[bool],
        policies: SharedRegister[StoredPolicies],
        changes: SharedChanges,
    ) -> None:
        super().__init__(folder)
        self._register = register
        self._policies = policies
        self._known_policies: Mapping[str, StoredPolicies] = {}
        self._changes = changes
        self._known: Mapping[str, bool] = {}
        self._told: tuple[Mapping[str, bool], Mapping[str, StoredPolicies]] = ({}, {})
        self._problem = "the shared database was not asked yet"
        self._read_at = float("-inf")
        self._is_followed = False

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled by folded `name` or `name@version`; as last known if the database is away.

        So tools can be listed; `problem` keeps calls from being made.
        """
        asked_at = time.monotonic()
        try:
            # Those of before the database was shared count until another one takes their place.
            self._known = {**super().switches(), **self._register.read()}
            self._known_policies = self._policies.read()
        except Exception as error:  # noqa: BLE001 -- whatever the database answers, it is not known
            self._problem = f"{type(error).__name__}: {error}"
        else:
            self._problem, self._read_at = "", asked_at
        return self._known

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Store a switch; one for a `name` replaces those for its versions."""

        def edit(held: dict[str, bool]) -> None:
            changed = with_switch(held, switch, enabled=enabled)
            held.clear()
            held.update(changed)

        self._register.change(edit)

    def policies(self) -> Iterable[StoredPolicies]:
        """The policies that people put in force on any server, as last read by `switches`.

        Those that this server stored before the database was shared count too.
        """
        known = {**{one.name: one for one in super().policies()}, **self._known_policies}
        return [known[name] for name in sorted(known)]

    def put_policies(self, name: str, stored: StoredPolicies | None) -> None:
        """Store policies instead of earlier ones of that name; None removes them."""

        def edit(held: dict[str, StoredPolicies]) -> None:
            held.pop(name, None)
            if stored is not None:
                held[name] = stored

        self._policies.change(edit)
        if any(one.name == name for one in super().policies()):
            super().put_policies(name, None)
        self.switches()

    def problem(self) -> str:
        """Why it is not known what other servers disabled or withdrew; empty if it is."""
        has_answered = self._changes.is_current or time.monotonic() - self._read_at < CURRENT_SECONDS
        if self._is_followed and not has_answered:
            return "the shared database has not answered for a second"
        return self._problem

    def follow(self, follow: Callable[[], object]) -> "StateFollower":
        """Call `follow` after each change of this state by another process or server, until it is closed."""
        own = super().follow(follow)
        self._is_followed = True

        def heard(kind: str) -> None:
            now = (self.switches(), self._known_policies) if kind in ("", _KIND, POLICIES) else self._told
            if now != self._told:
                self._told = now
                follow()

        stop = self._changes.watch(REGISTERS, heard)
        return _Both(own, stop)


class _Both:
    def __init__(self, own: "StateFollower", stop: Callable[[], None]) -> None:
        self._own = own
        self._stop = stop

    def close(self) -> None:
        """Stop following."""
        self._stop()
        self._own.close()
