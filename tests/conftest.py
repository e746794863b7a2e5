"""What every test may use: the shared data, and a keep with the tool of the strictness table."""

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import settings

from toolkeep import Keep, open_keep, tool

if TYPE_CHECKING:
    from tests.fleet.nats_server import NatsServer
    from tests.storage.cluster import Cluster
    from toolkeep.storage.sql.database_location import DatabaseLocation

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"

SLOWEST = (
    "hostile/sandbox/test_attempts.py",
    "providers/test_vendor_registry.py",
    "mcp_client/packages/test_pypi.py",
    "mcp_server/test_clients.py",
    "docs/test_site.py",
    "mcp_client/test_real_servers.py",
    "mcp_client/packages/test_npm.py",
    "mcp_client/test_item_import.py",
    "sandbox/test_seccomp_filters.py",
    "cli/test_new.py",
    "validation/test_corpus.py",
    "hostile/test_work.py",
    "sandbox/test_worker_pool.py",
    "mcp_client/test_conformance.py",
)
"""The files that take a minute or so, the slowest first."""

# How long an example takes says more about who else uses the machine; `bench/` measures.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files run first, so that no process is left alone with one at the end."""
    rank = {ROOT / "tests" / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path, len(SLOWEST)))


@pytest.fixture(scope="session", autouse=True)
def _no_home_of_whoever_runs_this(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the configuration and state of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("TOOLKEEP_HOME", "XDG_STATE_HOME"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_news_of_a_busy_machine() -> Iterator[None]:
    """A schema that compiles slowly adds a line to the log; tests of that line set the limit themselves."""
    from toolkeep.registry import register

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register, "SLOW_COMPILATION_MS", float("inf"))
        yield


@pytest.fixture(autouse=True)
def _own_import_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test lets tools write is not refused to the imports of the next."""
    from toolkeep.sandbox import import_guard

    monkeypatch.setattr(import_guard._GUARD, "_recorded", import_guard._Recorded())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Homes of tests, numbered here: `mktemp` would look through all folders of the run for the next number."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a home of its own."""
    home = next(_homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real tools, calls and official suites; absent outside the project's own workplace."""
    if SHARED_DATA.is_dir():
        return SHARED_DATA
    if os.environ.get("CI"):
        pytest.fail(f"the shared test data is missing: {SHARED_DATA.name}")
    pytest.skip("the shared test data is not here")


@pytest.fixture(scope="module")  # no longer: other tests count the processes that they started
def postgres() -> "Iterator[Cluster]":
    """A PostgreSQL that runs for all tests of a file."""
    from tests.storage.cluster import cluster

    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def nats() -> "Iterator[NatsServer]":
    """A NATS that runs for all tests of a file."""
    from tests.fleet.nats_server import nats_server

    with nats_server() as running:
        yield running


@pytest.fixture
def _told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers tell of what they refused, and servers record it, sooner than each second and minute."""
    from toolkeep.fleet_worker import worker
    from toolkeep.keep import refusal_counts

    monkeypatch.setattr(worker, "_HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(refusal_counts, "_TELL_SECONDS", 0.05)


@pytest.fixture(scope="session")
def made_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite store in which all tables are made: making them takes longer than most tests."""
    from tests.storage.cluster import make_tables
    from toolkeep.storage.sql.database_location import SqliteLocation

    folder = tmp_path_factory.mktemp("made")
    make_tables(SqliteLocation(folder))
    return folder / "store.db"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> "DatabaseLocation":
    """A database whose tables are made, of either kind."""
    from toolkeep.storage.sql.database_location import PostgresLocation, SqliteLocation

    if request.param == "sqlite":
        made: Path = request.getfixturevalue("made_file")
        folder = tmp_path / "state"
        folder.mkdir(mode=0o700)
        shutil.copy(made, folder)
        return SqliteLocation(folder)
    running: Cluster = request.getfixturevalue("postgres")
    return PostgresLocation(running.clean())


@tool
def transfer(
    account: str,
    amount: int,
    urgent: bool = False,
    tags: list[str] | None = None,
    mode: Literal["fast", "safe"] = "fast",
) -> dict[str, object]:
    """Move money to an account.

    Args:
        account: The account that gets the money.
        amount: How much, in cents.
        urgent: Whether it must arrive today.
        tags: Words to find it again.
        mode: How it travels.
    """
    return {"account": account, "amount": amount, "urgent": urgent, "tags": tags, "mode": mode}


@pytest.fixture
def keep() -> Keep:
    """A fresh keep that holds `transfer`."""
    keep = open_keep()
    keep.register(transfer)
    return keep
