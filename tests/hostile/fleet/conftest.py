"""What the attacks share."""

import pytest

from toolkeep.fleet_worker import worker
from toolkeep.keep import refusal_counts


@pytest.fixture
def _told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers tell of what they refused, and servers record it, sooner than each second and minute."""
    monkeypatch.setattr(worker, "_HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(refusal_counts, "_TELL_SECONDS", 0.05)
