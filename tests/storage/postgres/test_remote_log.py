"""Each server reads the logs of all others from copies in the database, and believes only what was signed."""

import asyncio
import contextlib
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.calls.test_shared_claims import KEY, open_server
from tests.storage.cluster import Cluster
from tests.storage.postgres.test_log_exchange import wait
from toolkeep import tool, verify_receipt
from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import chain
from toolkeep.audit.errors import BodyUnavailable
from toolkeep.audit.merkle_tree import Tree
from toolkeep.audit.signed_note import Algorithm, Signer
from toolkeep.cli.main import cli
from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import Code
from toolkeep.server.api.audit_routes import (
    call_records,
    list_calls,
    public_key,
    receipt,
    show_record,
)
from toolkeep.server.api.recorded_calls import CallFilters
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.postgres import log_copier, log_copies, log_exchange, shared_changes
from toolkeep.storage.postgres.remote_log import RemoteLog, RemoteLogs
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_state import SharedState
from toolkeep.storage.sql.database_location import PostgresLocation
from toolkeep.stores.api_tokens import Scope


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_exchange, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(log_copier, "_ERASED_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(log_copier, "_BATCH", 2)  # many parts
    monkeypatch.setattr(shared_changes, "CURRENT_SECONDS", 60.0)  # a slow machine refuses no call here


class Servers:
    """Two keeps as on machines of their own; the first is the one that reads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.keeps = [open_server(folder / name, monkeypatch, url) for name in ("ann", "bob")]
        for keep in self.keeps:
            keep.register(tool(name="greet", effects="none", danger="low")(greet))
        self.settings = DatabaseSettings(url=url, key=KEY, is_single=True)
        self.database = SharedDatabase(PostgresLocation(url), is_single=True)

    def close(self) -> None:
        self.database.close()
        for keep in self.keeps:
            keep.close()

    def call(self, number: int, name: str) -> str:
        result = self.keeps[number].call_sync("greet", {"name": name})
        assert result.ok, result.text
        return result.call_id

    def run(self, *arguments: str) -> Any:
        """What a command prints on the first machine."""
        self.monkeypatch.setenv("HOME", str(self.folder / "ann" / "home"))
        project = str(self.folder / "ann" / "project")
        return CliRunner().invoke(cli, ["audit", *arguments, "--project", project], catch_exceptions=False)

    def records(self, number: int) -> FileRecord:
        record = self.keeps[number].record
        assert isinstance(record, FileRecord)
        return record

    @property
    def remote(self) -> RemoteLogs:
        shared = self.keeps[0].shared
        assert shared is not None
        return shared.remote_logs

    def other(self) -> RemoteLog:
        """The log of the second server, as the first reads it."""
        (found,) = self.remote.all()
        return found

    def are_copied(self) -> bool:
        """Whether everything that the second server recorded can be read on the first."""
        size = len(self.records(1).log.read())
        return any(one.size == size for one in self.remote.all())

    def change(self, statement: str, *values: object) -> None:
        self.database.change(lambda made: made.execute(statement, values))


def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster) -> Iterator[Servers]:
    with contextlib.closing(Servers(tmp_path, monkeypatch, postgres.clean())) as made:
        yield made


def test_commands_and_the_page_show_the_records_of_every_server(servers: Servers) -> None:
    calls = [servers.call(number % 2, f"reader {number}") for number in range(5)]
    wait(servers.are_copied)
    rows = json.loads(servers.run("list", "--json").stdout)
    assert [row["call"] for row in rows if row["type"] == "ToolCompleted"] == calls
    origins = [servers.records(number).log.public_key().name for number in (0, 1)]
    assert {row["call"]: row["origin"] for row in rows} == {
        call: origins[number % 2] for number, call in enumerate(calls)
    }
    # One machine runs both, so its name alone would not tell them apart.
    names = {row["origin"]: row["server"] for row in rows}
    assert names == {one: f"{socket.gethostname()}/{one.split('/')[1][:4]}" for one in origins}
    assert "SERVER" in servers.run("list").stdout
    completed = json.loads(servers.run("show", calls[1][:8], "--json").stdout)[-1]
    assert (completed["origin"], completed["result"]) == (origins[1], "Hello, reader 1!")
    given = verify_receipt(servers.run("receipt", calls[1]).stdout, servers.other().published.key)
    assert given.record["call"] == calls[1]
    reports = json.loads(servers.run("verify", "--json").stdout)
    assert [(one["origin"], one["is_intact"]) for one in reports] == [(one, True) for one in origins]
    heads = [json.loads(line) for line in servers.run("export").stdout.splitlines()]
    assert [one["key"].split("+")[0] for one in heads if "key" in one] == origins
    assert len(heads) == 2 + len(rows)

    auditor = Caller(id="t", name="ann", agent="ann", scopes=(Scope.AUDIT_READ,), created_at=0.0)

    async def read() -> list[str]:
        keep, found, cursor = servers.keeps[0], [], None
        while True:
            page = await list_calls(keep, auditor, CallFilters(), limit=2, cursor=cursor)
            found += [one.newest.call for one in page.items]
            cursor = page.next
            if cursor is None:
                break
        shown = await call_records(keep, auditor, calls[3])
        assert (shown.arguments, shown.result) == ({"name": "reader 3"}, "Hello, reader 3!")
        assert shown.server == names[origins[1]]
        # By its log's name: an index alone is another record on each server.
        last = shown.records[-1]
        proven = await receipt(keep, auditor, last.index, shown.origin)
        verified = verify_receipt(proven.receipt, proven.key)
        assert (verified.origin, verified.record) == (origins[1], last.record)
        assert (await public_key(keep, origins[1])).key == proven.key
        assert (await show_record(keep, auditor, last.index, shown.origin)).record == last.record
        assert (await call_records(keep, auditor, calls[2])).origin == origins[0]
        return found

    assert asyncio.run(read()) == calls[::-1]
    servers.remote.copies._database.close()
    with pytest.raises(RequestRefused) as refused:  # it may be in a log that cannot be read
        asyncio.run(call_records(servers.keeps[0], auditor, "0" * 32))
    assert refused.value.code is Code.STORE_UNAVAILABLE


def test_a_body_that_one_server_erases_is_erased_on_all(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.call(0, "Ann")
    call, kept = servers.call(1, "Ada"), servers.call(1, "Grace")
    wait(servers.are_copied)
    copies, bodies = servers.remote.copies, servers.records(1).bodies
    digests = {
        one: next(r["result_hash"] for r in servers.records(1).records_of(one) if r.get("result_hash"))
        for one in (call, kept)
    }

    def has(read: Any, digest: str) -> bool:
        with contextlib.suppress(BodyUnavailable):
            return bool(read(digest))
        return False

    wait(lambda: all(has(copies.body, digest) for digest in digests.values()))
    # Whoever has only the credential cannot have a disk erased: the row has no MAC.
    servers.change("UPDATE shared_bodies SET erased_at = now() WHERE digest = %s", digests[kept])
    assert "erased 2 bodies" in servers.run("erase", call).stdout
    wait(lambda: not has(bodies.get, digests[call]))
    assert "is erased" in servers.run("show", call).stdout
    assert has(bodies.get, digests[kept])
    copies.put_bodies({digests[call]: b"late"})  # as of a server that had not heard of it
    assert not has(copies.body, digests[call])
    # Copies of refused calls' bodies have the quota of their agent; what a call that passed has, too, stays.
    monkeypatch.setattr(log_copies, "REFUSED_KEPT", 3)
    given = {hashlib.sha256(b"%d" % number).hexdigest(): b"%d" % number for number in range(6)}
    copies.put_bodies({digest: body for digest, body in given.items() if body == b"0"})
    for digest, body in given.items():
        copies.put_bodies({digest: body}, {digest: "agent"})
    assert b"".join(body for digest, body in given.items() if has(copies.body, digest)) == b"0345"


def test_an_agent_is_shown_the_records_of_its_own_calls_wherever_the_database_puts_them(
    servers: Servers,
) -> None:
    own, others = servers.call(1, "Ann"), servers.call(1, "somebody else")
    wait(servers.are_copied)
    (agent,) = {str(one["agent"]) for one in servers.records(1).records_of(own) if one.get("agent")}
    servers.change("UPDATE shared_log_calls SET call_id = %s WHERE call_id = %s", own, others)
    caller = Caller(id="t", name="ann", agent=agent, scopes=(Scope.CALL,), created_at=0.0)
    shown = asyncio.run(call_records(servers.keeps[0], caller, own))
    assert {one.record["call"] for one in shown.records} == {own}


SERVER_FORGES = ["server_rewrites", "server_signs", "server_keeps_the_hashes"]


def replace_copies(shared: SharedState, origin: str, size: int, *, how: str) -> None:
    """What another server can do: it has the key of the servers, but not that of the log."""
    table, copies = shared._log_tables()
    lines, leaves = chain([b'{"n":%d}' % number for number in range(size)], 0, "0" * 64)
    kept = copies.leaves(origin, 0, size)
    table._database.change(lambda made: made.execute("DELETE FROM shared_log_parts"))
    copies.put(origin, 0, lines, kept if how == "server_keeps_the_hashes" else leaves)
    if how == "server_signs":
        (log,) = [seen.log for seen in table.published() if seen.log.origin == origin]
        signer = Signer(name=origin, algorithm=Algorithm.ED25519, seed=bytes(32))
        note = Checkpoint(origin=origin, size=size, root=Tree(b"".join(leaves)).root()).sign(signer)
        table.publish(log._replace(copied=str(note), checkpoint=str(note)))


@pytest.mark.parametrize(
    "how", ["changed", "emptied", "moved", "removed", "cut", "hidden", "row", *SERVER_FORGES]
)
def test_a_copy_that_was_not_signed_is_not_shown_and_one_that_is_missing_is_named(
    servers: Servers, how: str
) -> None:
    servers.call(0, "Ann")
    servers.call(1, "Bob")
    wait(servers.are_copied)
    origin, size = servers.other().origin, servers.other().size
    own = servers.records(0).log.public_key().name
    folder = servers.records(0).folder
    for keep in servers.keeps:
        keep.close()
    if how.startswith("server_"):
        with contextlib.closing(SharedState(servers.settings, bytes, folder)) as shared:
            replace_copies(shared, origin, size, how=how)
    if how == "changed":
        servers.change("UPDATE shared_log_parts SET lines = lines || 'x'::bytea WHERE start > 0")
    elif how == "emptied":
        servers.change("UPDATE shared_log_parts SET lines = '' WHERE start > 0")
    elif how == "moved":
        servers.change(
            "UPDATE shared_log_parts AS one SET lines = other.lines FROM shared_log_parts AS other "
            "WHERE one.origin = other.origin AND one.start = 0 AND other.start = one.stop"
        )
    elif how == "removed":
        servers.change(
            "DELETE FROM shared_log_parts AS one USING shared_log_parts AS other "
            "WHERE one.origin = other.origin AND one.start = other.stop AND other.start = 0"
        )
    elif how == "cut":
        servers.change("DELETE FROM shared_log_parts WHERE stop >= %s", size)
    elif how == "hidden":
        servers.change("DELETE FROM shared_logs WHERE origin = %s", origin)
    elif how == "row":
        servers.change("UPDATE shared_logs SET name = 'x' WHERE origin = %s", origin)
    result = servers.run("verify")
    assert result.exit_code == 1, result.output
    if how in ("hidden", "row"):
        assert "the database holds no row of it that a server wrote" in result.output
    shown = json.loads(servers.run("list", "--json").stdout)
    assert {row["origin"] for row in shown} == {own}
