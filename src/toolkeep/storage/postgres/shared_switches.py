"""The state of a keep whose switches it shares with other servers; pins and acceptances stay its own.

Pins and acceptances are about files and servers that one machine has. What is disabled or withdrawn counts on
all servers, within a second. A server that cannot know it makes no calls.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from toolkeep.storage.postgres.shared_changes import CURRENT_SECONDS, SharedChanges
from toolkeep.storage.postgres.shared_register import REGISTERS, SharedRegister
from toolkeep.storage.sqlite.state_db import KeepState, StateFollower
from toolkeep.stores.registry_state import with_switch

_KIND = "switches"


class SharedKeepState(KeepState):
    """What one keep remembers, with the switches of all servers."""

    def __init__(self, folder: Path, register: SharedRegister[bool], changes: SharedChanges) -> None:
        super().__init__(folder)
        self._register = register
        self._changes = changes
        self._known: Mapping[str, bool] = {}
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
            known = self._known
            if kind in ("", _KIND) and self.switches() != known:
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
