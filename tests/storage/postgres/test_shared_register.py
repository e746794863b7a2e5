"""Sealed sets that servers share: made once, the same everywhere, and not to be forged or put back."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.cluster import Cluster
from tests.storage.postgres.cut_link import cut_link
from toolkeep.errors import StoreUnavailable
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_register import SeenVersion, SharedRegister, forget_versions
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation

pytestmark = pytest.mark.spec("SCL-2")
TABLE = f"{SCHEMA}.shared_registers"


@contextlib.contextmanager
def register(
    port: int, folder: Path, kind: str = "numbers", key: bytes = b"key"
) -> Iterator[SharedRegister[int]]:
    place = PostgresLocation(f"postgresql://keep@127.0.0.1:{port}/made")
    with contextlib.closing(SharedDatabase(place, is_single=True)) as database:
        yield SharedRegister(kind, int, database, RowKey(key), folder)


def test_a_change_is_the_same_on_all_servers(postgres: Cluster, tmp_path: Path) -> None:
    postgres.clean()
    with register(postgres.port, tmp_path / "1") as one, register(postgres.port, tmp_path / "2") as other:
        assert one.read() == {}
        one.change(lambda held: held.update(a=1))
        assert other.read() == {"a": 1}
        assert other.change(lambda held: held.pop("a")) == 1
        assert one.read() == {}

        def count(of: SharedRegister[int]) -> None:
            for _ in range(20):
                of.change(lambda held: held.update(n=held.get("n", 0) + 1))

        threads = [threading.Thread(target=count, args=(of,)) for of in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.read() == other.read() == {"n": 40}


@pytest.mark.parametrize("lost", [b"UPDATE", b"COMMIT"])
def test_a_change_whose_answer_was_lost_is_made_once(postgres: Cluster, tmp_path: Path, lost: bytes) -> None:
    postgres.clean()
    with cut_link(postgres.port) as link, register(link.port, tmp_path) as numbers:
        numbers.change(lambda held: held.update(n=1))
        link.cut_after = lost
        assert numbers.change(lambda held: held.setdefault("m", held["n"] + 1)) == 2
        assert link.cuts == 1
        assert numbers.read() == {"n": 1, "m": 2}
        assert SeenVersion(tmp_path, "numbers").remembered() == 2


FORGED = {
    "content": "UPDATE {0} SET content = '{{\"a\": 2}}'",
    "a higher version": "UPDATE {0} SET version = version + 1",
    "no MAC": "UPDATE {0} SET mac = NULL",
    "another kind": "UPDATE {0} SET (version, content, mac) = (SELECT version, content, mac FROM {0} WHERE kind = 'other')"
    " WHERE kind = 'numbers'",
    "deleted": "DELETE FROM {0}",
}


@pytest.mark.parametrize("case", FORGED)
def test_whoever_has_only_the_credential_of_the_database_changes_nothing(
    case: str, postgres: Cluster, tmp_path: Path
) -> None:
    postgres.clean()
    with register(postgres.port, tmp_path) as one, register(postgres.port, tmp_path, "other") as other:
        for held in (one, other, one, other):
            held.change(lambda items: items.update(a=items.get("a", 0) + 1))
        other.change(lambda items: items.update(b=1))
        assert one.read() == {"a": 2}
        postgres.execute("made", FORGED[case].format(TABLE))
        with pytest.raises(StoreUnavailable):
            one.change(lambda items: items.update(a=9))
    with register(postgres.port, tmp_path) as one, pytest.raises(StoreUnavailable):
        one.read()


def test_an_older_set_that_is_put_back_is_refused_until_an_operator_accepts_it(
    postgres: Cluster, tmp_path: Path
) -> None:
    postgres.clean()
    with register(postgres.port, tmp_path) as numbers:
        numbers.change(lambda held: held.update(revoked=0))
        postgres.execute("made", f"CREATE TABLE IF NOT EXISTS old AS SELECT * FROM {TABLE}")  # noqa: S608 -- ours
        numbers.change(lambda held: held.update(revoked=1))
        back = f"DELETE FROM {TABLE}; INSERT INTO {TABLE} SELECT * FROM old; DROP TABLE old"  # noqa: S608 -- ours
        postgres.execute("made", back)
        with pytest.raises(StoreUnavailable, match=r"has seen version 2"):
            numbers.read()
    with register(postgres.port, tmp_path) as numbers:
        with pytest.raises(StoreUnavailable, match=r"has seen version 2"):
            numbers.read()
        with pytest.raises(StoreUnavailable, match=r"has seen version 2"):
            numbers.change(lambda held: held.update(revoked=2))
    assert forget_versions(tmp_path) == ["numbers"]
    with register(postgres.port, tmp_path) as numbers:
        assert numbers.read() == {"revoked": 0}


def test_what_changes_nothing_is_not_written(postgres: Cluster, tmp_path: Path) -> None:
    postgres.clean()
    with register(postgres.port, tmp_path) as numbers:
        numbers.change(lambda held: held.update(a=1))
        numbers.change(lambda held: held.update(a=1))
        assert SeenVersion(tmp_path, "numbers").remembered() == 1


def test_an_older_set_does_not_come_back_by_way_of_a_server_that_saw_no_newer_one(
    postgres: Cluster, tmp_path: Path
) -> None:
    postgres.clean()
    with register(postgres.port, tmp_path / "1") as one, register(postgres.port, tmp_path / "2") as other:
        one.change(lambda held: held.update(token=1))
        other.change(lambda held: held.update(other=1))
        postgres.execute("made", f"CREATE TABLE IF NOT EXISTS old AS SELECT * FROM {TABLE}")  # noqa: S608 -- ours
        one.change(lambda held: held.pop("token"))  # revoked
        back = f"DELETE FROM {TABLE}; INSERT INTO {TABLE} SELECT * FROM old; DROP TABLE old"  # noqa: S608 -- ours
        postgres.execute("made", back)
        for number in (3, 4):
            other.change(lambda held, number=number: held.update(other=number))  # type: ignore[misc]
            with pytest.raises(StoreUnavailable, match=rf"version {number}, .* seen another version 3"):
                one.read()
    # After a restart, too.
    with (
        register(postgres.port, tmp_path / "1") as one,
        pytest.raises(StoreUnavailable, match="seen another version 3"),
    ):
        one.change(lambda held: held.update(token=2))
