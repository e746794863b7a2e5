"""What the server's last verification of its log found; remembered until the server ends."""

from collections.abc import Awaitable
from typing import Any

import msgspec

from toolkeep.host import clock


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The last verification of the log."""

    at: str
    """When it began: what was recorded later is not part of it."""
    records: int
    is_intact: bool


class Verification:
    """Remembers the last verification."""

    def __init__(self) -> None:
        self.last: Verified | None = None

    async def run(self, verifying: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Await a verification, and remember what it found."""
        began = clock.now()
        report = await verifying
        logs = [report, *report.get("others", ())]
        self.last = Verified(
            at=began, records=report["records"], is_intact=all(one["is_intact"] for one in logs)
        )
        return report
