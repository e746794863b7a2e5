"""Liveness and readiness; ready only if a call could be recorded.

Checks do real work (write a file, query the store), at most once a second and in a thread: probes come often,
and anybody may send them.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from toolkeep.keep.keep import Keep

_FRESH_S: Final = 1.0
_FREE_BYTES: Final = 16 * 1024 * 1024
"""Less free space than this on the log's disk counts as full."""

Check = Callable[[], bool | None]
"""None if there is nothing to check."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests should be sent here, and what says so."""

    status: str
    checks: dict[str, bool]

    @property
    def is_ready(self) -> bool:
        """Whether every check passed."""
        return all(self.checks.values())


class Health:
    """Liveness and readiness of one server."""

    def __init__(
        self, keep: Keep, checks: dict[str, Check], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keep = keep
        self._checks = checks
        self._clock = clock
        self._looked: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self._looking = asyncio.Lock()
        self.is_draining = False
        """Whether load balancers should send nothing more; what comes is still served."""
        self.is_stopping = False

    def drain(self) -> None:
        """Report not ready from now on."""
        self.is_draining = True

    def stop(self) -> None:
        """Report not ready, and refuse new calls: the server is shutting down."""
        self.is_draining = self.is_stopping = True

    async def readiness(self) -> Readiness:
        """Run the checks, or return cached results."""
        # A check may hang with the disk or the database: the answer of a draining server waits for none.
        found = self._looked[1] if self.is_draining else await self._checked()
        checks = {"serving": not self.is_draining, "providers": self._keep.is_ready, **found}
        return Readiness(status="ready" if all(checks.values()) else "not ready", checks=checks)

    async def _checked(self) -> dict[str, bool]:
        async with self._looking:
            at, found = self._looked
            if self._clock() - at > _FRESH_S:
                found = await asyncio.to_thread(self._look)
                self._looked = (self._clock(), found)
        return found

    def _look(self) -> dict[str, bool]:
        found = {name: _passes(check) for name, check in self._checks.items()}
        return {name: passed for name, passed in found.items() if passed is not None}


def _passes(check: Check) -> bool | None:
    try:
        return check()
    except Exception:  # noqa: BLE001 -- whatever keeps a check from passing, it has not passed
        return False


def is_writable(folder: Path) -> bool:
    """Whether a file can be written and synced there, with space left."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < _FREE_BYTES:
        return False
    descriptor, name = tempfile.mkstemp(prefix=".ready-", dir=folder)
    try:
        os.write(descriptor, b"1")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108 -- text is at hand
    return True
