"""Providers on this machine answer at once, but a process of a busy one may stand still for longer than they may take."""

import pytest

from toolkeep.network import dial
from toolkeep.server.oidc import issuer_documents


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these tests is about a provider that is too slow."""
    monkeypatch.setattr(dial, "DIAL_SECONDS", 90.0)
    monkeypatch.setattr(issuer_documents, "_SECONDS", 90.0)
