"""Two keeps with state folders of their own act as one where they share a PostgreSQL (SCL-2)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from toolkeep import Code, Keep, open_keep, tool

CONFIGURATION = """
database: {{url: "{url}", single: true, key: "{key}"}}
"""
KEY = "the same on both of these servers"


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.clean()


def open_server(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    key: str = KEY,
    more: str = "",
    **options: Any,
) -> Keep:
    """A keep as on a machine of its own."""
    home = folder / "home"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "config.yml").write_text(CONFIGURATION.format(url=url, key=key) + more)
    monkeypatch.setenv("HOME", str(home))
    (folder / "project").mkdir()
    return open_keep(project=folder / "project", built_in=False, **options)


class Till:
    """Money that was paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> int:
        """Pay an amount."""
        self.paid.append(amount)
        return len(self.paid)


def test_a_keyed_call_that_is_retried_through_another_server_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    till = Till()

    async def call(one: Keep, other: Keep) -> list[object]:
        for keep in (one, other):
            keep.register(tool(name="pay", effects="writes", danger="low")(till.pay))
        first = await one.call("pay", {"amount": 5}, idempotency_key="order 1")
        again = await other.call("pay", {"amount": 5}, idempotency_key="order 1")
        changed = await other.call("pay", {"amount": 6}, idempotency_key="order 1")
        return [first.value, again.value, again.is_repeated, changed.code]

    with (
        open_server(tmp_path / "one", monkeypatch, url) as one,
        open_server(tmp_path / "other", monkeypatch, url) as other,
    ):
        assert asyncio.run(call(one, other)) == [1, 1, True, Code.KEY_CONFLICT]
    assert till.paid == [5]
