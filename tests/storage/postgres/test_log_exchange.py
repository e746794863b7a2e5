"""Servers on one PostgreSQL cosign each other's logs, and find one that was rewritten, cut or forked."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.talk import until
from tests.storage.cluster import Cluster
from tests.storage.log.test_witness_folder import forget, grow
from toolkeep.audit.signed_note import VerifierKey
from toolkeep.config.settings import DatabaseSettings
from toolkeep.events import AuditAlarm, Event
from toolkeep.storage.keys import Keys
from toolkeep.storage.log import witness_client, witness_folder
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.log.witness_folder import Witness
from toolkeep.storage.postgres import log_copier, log_exchange
from toolkeep.storage.postgres.log_copies import LogCopies
from toolkeep.storage.postgres.log_table import LogTable, PublishedLog
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_state import SharedState, row_key
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation

KEY = "the same on all of these servers"


class Server:
    """The state folder of a server, and what it told while it ran."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.settings = DatabaseSettings(url=url, key=KEY, is_single=True)
        self.told: list[Event] = []
        grow(folder, 0, 1, 2)
        self.origin = Keys(folder).origin
        self.witness = Witness(folder / "witness", name=f"{self.origin}/witness")

    @contextlib.contextmanager
    def runs(self) -> Iterator[FileRecord]:
        with (
            contextlib.closing(SharedState(self.settings, bytes, self.folder)) as shared,
            contextlib.closing(FileRecord(self.folder, shared=shared)) as record,
        ):
            record.report_to(self.told.append)
            yield record

    @property
    def alarms(self) -> list[tuple[str, str]]:
        return [(one.origin, one.alarm) for one in self.told if isinstance(one, AuditAlarm)]

    @property
    def witness_key(self) -> VerifierKey:
        return self.witness.public_key

    def is_cosigned_by(self, *others: "Server") -> bool:
        keys = [other.witness_key for other in others]
        size = AuditLog(self.folder).read()[-1].index + 1
        report = verify(self.folder, witnesses=keys)
        return report.is_intact and all(f", {size} records" in said for said in report.cosigned)

    def recorded(self) -> list[dict[str, Any]]:
        records = [entry.record for entry in AuditLog(self.folder).read()]
        return [one for one in records if one.get("type") == "AuditAlarm"]


def wait(happened: Callable[[], bool]) -> None:
    asyncio.run(until(happened))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_exchange, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(witness_client, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(witness_client, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(witness_client, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(witness_folder, "SETTLE_SECONDS", 0.3)


@pytest.fixture
def servers(tmp_path: Path, postgres: Cluster) -> list[Server]:
    url = postgres.clean()
    return [Server(tmp_path / name, url) for name in ("ann", "bob", "cid")]


def put_back(server: Server, *, how: str) -> None:
    """What somebody does to the files of a server that is stopped."""
    if how == "changed":
        segment = server.folder / "audit" / "segments" / "00000000.jsonl"
        segment.write_bytes(segment.read_bytes().replace(b'"n":1', b'"n":7'))
        return
    forget(server.folder)
    grow(server.folder, *{"cut": (0, 1), "rewritten": (0, 1, 2, 9), "longer": (0, 9, 2, 3, 4, 5)}[how])


@pytest.mark.spec("AUD-2")
@pytest.mark.parametrize("how", ["cut", "rewritten", "longer", "changed", "restored"])
def test_a_log_that_contradicts_what_it_signed_is_found_by_every_other_server(
    servers: list[Server], tmp_path: Path, how: str
) -> None:
    ann, bob, cid = servers
    with bob.runs(), cid.runs():
        with ann.runs() as record:
            wait(lambda: ann.is_cosigned_by(bob, cid) and bob.is_cosigned_by(ann, cid))
            wait(lambda: cid.is_cosigned_by(ann, bob))  # or the witness of the backup had forgotten that
            # What is being written takes its name once it is whole.
            begun = shutil.ignore_patterns(".*." + 16 * "?")
            shutil.copytree(ann.folder, tmp_path / "backup", ignore=begun)
            record.log.append({"n": 3}).result()
            wait(lambda: ann.is_cosigned_by(bob, cid))
        assert not [server.alarms for server in servers if server.alarms]
        if how == "restored":
            shutil.rmtree(ann.folder)
            shutil.copytree(tmp_path / "backup", ann.folder)
        else:
            put_back(ann, how=how)
        found = "a log contradicts what it signed before"
        if how == "changed":
            found = "a server found its own log broken"
        with ann.runs() as record:
            if how == "restored":
                record.log.append({"n": "another"}).result()
            for other in (bob, cid):
                wait(lambda other=other: (ann.origin, found) in other.alarms)  # type: ignore[misc]
            wait(lambda: bool(ann.alarms))
    for other in (bob, cid):
        assert {(one["origin"], one["alarm"]) for one in other.recorded()} == {(ann.origin, found)}
        assert verify(other.folder, witnesses=[ann.witness_key]).is_intact


@pytest.fixture
def database(servers: list[Server]) -> Iterator[SharedDatabase]:
    with contextlib.closing(
        SharedDatabase(PostgresLocation(servers[0].settings.url), is_single=True)
    ) as made:
        yield made


def test_a_server_counts_by_the_mac_of_its_row_and_by_the_keys_that_were_seen_first(
    servers: list[Server], database: SharedDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    ann, bob, cid = servers
    table = LogTable(database, row_key(ann.settings, bytes))

    def published(server: Server) -> PublishedLog | None:
        logs = [seen.log for seen in table.published()]
        return next((log for log in logs if log.origin == server.origin), None)

    with ann.runs() as record, bob.runs():
        wait(lambda: ann.is_cosigned_by(bob) and bob.is_cosigned_by(ann))
        record.log.rotate_key()
        wait(lambda: ann.is_cosigned_by(bob))  # the old key handed over
    with cid.runs():
        wait(lambda: published(cid) is not None)
    known, stranger = published(ann), published(cid)
    assert known is not None
    assert stranger is not None
    # A row without a MAC: nobody is trusted for it.
    forge = "UPDATE shared_logs SET origin = 'x' WHERE origin = %s"
    database.change(lambda made: made.execute(forge, (cid.origin,)))
    with bob.runs():
        wait(lambda: "the log of a server is left out" in caplog.text)
        # Another key of a log that is known, in a row with a MAC.
        other = VerifierKey.parse(stranger.key)
        other = VerifierKey(name=ann.origin, algorithm=other.algorithm, public=other.public)
        table.publish(known._replace(key=str(other)))
        wait(lambda: bool(bob.alarms))
    assert bob.alarms == [(ann.origin, "the log of a server is signed with another key")]
    assert not bob.witness.keys_of("x")
    assert other not in bob.witness.keys_of(ann.origin)


def _executed(statement: str, connection: Any) -> None:
    connection.execute(statement)


def test_copies_go_on_where_they_end_and_what_was_removed_is_copied_again(
    servers: list[Server], database: SharedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = servers[0]
    monkeypatch.setattr(log_copier, "_BATCH", 2)
    with AuditLog(ann.folder, segment_bytes=500) as log:  # the segments are small
        for number in range(9):
            log.append({"n": number, "correlation_id": "a\0b"}).result()
    copies = LogCopies(database, bytes(32), row_key(ann.settings, bytes))

    def is_whole() -> bool:
        size = len(AuditLog(ann.folder).read())
        return copies.held(ann.origin) == (size, size)

    assert len(list((ann.folder / "audit" / "segments").iterdir())) > 2
    with ann.runs():
        wait(is_whole)
    for remove in ("start = (SELECT min(stop) FROM shared_log_parts)", "start = 0"):
        statement = f"DELETE FROM shared_log_parts WHERE {remove}"  # noqa: S608 -- our own words
        database.change(partial(_executed, statement))
        with ann.runs() as record:
            record.log.append({"n": "more"}).result()
            wait(is_whole)


def test_a_log_that_is_no_longer_signed_is_told_until_it_is(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob, _ = servers
    monkeypatch.setattr(log_exchange, "SILENT_SECONDS", 1.0)  # checkpoints come every 0.1 s
    with ann.runs() as record, bob.runs():
        wait(lambda: ann.is_cosigned_by(bob))
        record.log._writer._checkpoint_seconds = 1e9
        record.log.append({"n": 3}).result()
        wait(lambda: (ann.origin, "a server found its own log broken") in bob.alarms)
        assert ann.alarms == [(ann.origin, "this log is no longer signed")]
        record.log.checkpoint()
        wait(lambda: ann.is_cosigned_by(bob))


def test_a_busy_log_is_signed_although_it_always_has_newer_records(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, now = servers[0], 1.0
    monkeypatch.setattr(log_exchange, "EVERY_SECONDS", 1e9)  # its thread waits: the rounds are made here
    monkeypatch.setattr(log_exchange, "time", SimpleNamespace(monotonic=lambda: now))
    with ann.runs() as record:
        exchange = record._exchange
        assert exchange is not None
        for _ in range(3):
            record.log.checkpoint()
            record.log.append({"n": "more"}).result()
            exchange._is_copied()
            now += 0.6 * log_exchange.SILENT_SECONDS
        assert not ann.alarms
        now += log_exchange.SILENT_SECONDS
        exchange._is_copied()
        assert [alarm for _, alarm in ann.alarms] == ["this log is no longer signed"]


def test_a_server_that_lives_and_no_longer_publishes_its_log_is_told(
    servers: list[Server], database: SharedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob, _ = servers
    monkeypatch.setattr(log_exchange, "SILENT_SECONDS", 1.0)  # checkpoints come every 0.1 s
    with bob.runs():
        with ann.runs():
            wait(lambda: ann.is_cosigned_by(bob))
        table = LogTable(database, row_key(ann.settings, bytes))
        (ended,) = [seen for seen in table.published() if seen.log.origin == ann.origin]
        assert not ended.is_seen  # it said so
        assert not bob.alarms
        table.publish(ended.log._replace(server="a"))
        database.change(lambda made: made.execute("INSERT INTO shared_servers VALUES ('a', 'ann', now())"))
        wait(lambda: bool(bob.alarms))
    assert bob.alarms == [(ann.origin, "a server no longer publishes its log")]


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON shared_logs FOR EACH ROW EXECUTE FUNCTION refuse()
"""


@pytest.mark.parametrize(
    ("attack", "alarm"),
    [
        ("DELETE FROM shared_logs", "the database no longer shows the log of a server"),
        ("UPDATE shared_logs SET trouble = 'x'", "the database no longer shows the log of a server"),
        (REFUSE, "the logs of servers are not exchanged"),
    ],
    ids=["gone", "forged", "refused"],
)
def test_a_database_that_hides_a_log_or_takes_none_is_told(
    servers: list[Server], postgres: Cluster, monkeypatch: pytest.MonkeyPatch, attack: str, alarm: str
) -> None:
    ann, bob, _ = servers
    with bob.runs():
        with ann.runs():
            wait(lambda: ann.is_cosigned_by(bob) and bob.is_cosigned_by(ann))
        assert not bob.alarms
        monkeypatch.setattr(log_exchange, "SILENT_SECONDS", 0.2)
        postgres.execute("made", f"SET search_path = {SCHEMA}; {attack}")
        try:
            wait(lambda: alarm in {said for _, said in bob.alarms})
        finally:
            postgres.execute("made", f"DROP FUNCTION IF EXISTS {SCHEMA}.refuse CASCADE")
