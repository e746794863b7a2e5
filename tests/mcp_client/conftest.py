"""Servers of tests start at once, but on a busy machine a process may wait long for a processor."""

import pytest

from toolkeep.mcp_client import inspect_server, observe_server, session


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of servers that are too slow set their own time."""
    for module in (inspect_server, observe_server, session):
        monkeypatch.setattr(module, "BEGIN_SECONDS", 120.0)
