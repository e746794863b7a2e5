"""Two keeps with state folders of their own on one PostgreSQL, as on two machines."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from toolkeep import Keep, open_keep
from toolkeep.storage.postgres.peers import Peers
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.sql.database_location import SCHEMA

CONFIGURATION = """
database: {{url: "{url}", single: true, key: "the same on both of these servers"}}
"""


@contextlib.contextmanager
def two_keeps(
    postgres: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Iterator[tuple[Keep, Keep]]:
    """Two keeps, open for as long as the block lasts."""
    url = postgres.clean()
    with contextlib.ExitStack() as stack:

        def opened(name: str) -> Keep:
            home = folder / name
            (home / ".agent").mkdir(parents=True)
            (home / ".agent" / "config.yml").write_text(CONFIGURATION.format(url=url))
            (home / "project").mkdir()
            monkeypatch.setenv("HOME", str(home))
            return stack.enter_context(open_keep(project=home / "project", built_in=False, **options))

        yield opened("one"), opened("other")


def peers_of(keep: Keep) -> Peers:
    """The server of a keep, among those on its database."""
    assert keep.shared is not None
    return keep.shared.peers()


class _Unseen:
    """The database of a server that marks another one as alive."""

    server = "unseen"

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def kill(postgres: Cluster, keep: Keep) -> None:
    """Have other servers take the server of a keep for dead; it goes on, as if it was only cut off."""
    assert keep.shared is not None
    changes: Any = keep.shared.changes
    changes._database = _Unseen(changes._database)
    server = peers_of(keep).server
    execute(postgres, f"DELETE FROM shared_servers WHERE id = '{server}'")  # noqa: S608 -- our own


def execute(postgres: Cluster, statement: str) -> None:
    """Run a statement on the shared tables."""
    postgres.execute("made", f"SET search_path = {SCHEMA}; {statement}")
