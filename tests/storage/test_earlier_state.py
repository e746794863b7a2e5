"""Every version opens, verifies and goes on with the state folders that earlier ones left.

And the other way round: each store refuses by name what a later version wrote, before it changes anything.
"""

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.cli.plainly import data, run
from tests.storage.make_state_fixture import ACCEPTED, KEY, SIGN_IN, STORED, open_shop, order, price
from toolkeep import ToolDefinition, verify_receipt
from toolkeep.audit.errors import AuditBroken, BodyUnavailable, ReceiptInvalid
from toolkeep.audit.receipt import RECEIPT_VERSION
from toolkeep.errors import BackupRefused, LockInvalid, StateUnusable, StoreLayoutUnfit, ToolkeepError
from toolkeep.registry.lockfile import LOCK_VERSION, Lock, read_lock, write_lock
from toolkeep.storage import backup
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.segments import LOG_FORMAT, format_file
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.sql.database_location import HEAD, LAYOUT_TABLE, SqliteLocation
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.storage.sqlite.database import SCHEMA_VERSION
from toolkeep.storage.sqlite.ledger_db import SqliteLedger
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.storage.upstream_tokens import FileSignIns
from toolkeep.stores.api_tokens import Scope, Tokens
from toolkeep.stores.sign_ins import SIGN_IN_VERSION

FIXTURES = sorted((Path(__file__).resolve().parent.parent / "fixtures").glob("state-*"))


class Earlier(NamedTuple):
    """A copy of a state folder, an empty project that uses it, and what must be found there."""

    folder: Path
    project: Path
    expected: Any


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name)
def earlier(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Earlier:
    folder, project = tmp_path / "state", tmp_path / "project"
    shutil.copytree(request.param / "state", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)  # git keeps neither
    project.mkdir()
    monkeypatch.setenv("TOOLKEEP_HOME", str(folder))
    monkeypatch.chdir(project)
    expected = json.loads((request.param / "expected.json").read_text(encoding="utf-8"))
    return Earlier(folder, project, expected)


def test_there_is_a_state_of_every_format() -> None:
    assert [path.name for path in FIXTURES] == ["state-0.1"]


# --- what an earlier version left --------------------------------------------------------------------


def test_its_log_verifies(earlier: Earlier) -> None:
    report = verify(earlier.folder, public_key=earlier.expected["public_keys"][-1])
    assert report.is_intact, report
    assert len(list((earlier.folder / "audit" / "segments").iterdir())) == 2
    run("audit", "verify")


def test_its_log_takes_records_and_verifies_with_them(earlier: Earlier) -> None:
    size = earlier.expected["calls"][-1]["leaf"] + 1
    with open_shop(earlier.project) as keep:
        result = keep.call_sync("price", {"title": "Emma", "copies": 2})
    assert (result.status, result.value) == ("ok", 2400)
    assert result.leaf is not None
    assert result.leaf >= size
    assert verify(earlier.folder).is_intact


def test_its_receipt_is_still_a_proof(earlier: Earlier) -> None:
    receipt = earlier.expected["receipt"]
    verified = verify_receipt(receipt, earlier.expected["public_keys"][0])
    assert verified.record == receipt["record"]


def test_every_call_in_it_is_listed_with_its_outcome(earlier: Earlier) -> None:
    outcomes = {one["call"]: one["status"] for one in data("audit", "list") if one.get("status")}
    assert outcomes == {call["id"]: call["status"] for call in earlier.expected["calls"]}


def test_a_receipt_can_be_made_of_every_call_in_it(earlier: Earlier) -> None:
    for call in earlier.expected["calls"]:
        receipt = data("audit", "receipt", call["id"])
        assert verify_receipt(receipt, earlier.expected["public_keys"][-1]).record["call"] == call["id"]


def test_what_was_erased_stays_erased_and_the_rest_is_there(earlier: Earlier) -> None:
    with contextlib.closing(Bodies(earlier.folder)) as bodies:
        assert bodies.get(earlier.expected["receipt"]["record"]["result_hash"])
        with pytest.raises(BodyUnavailable, match="erased"):
            bodies.get(earlier.expected["erased"])


def test_a_call_with_a_used_key_is_not_run_again(earlier: Earlier) -> None:
    with open_shop(earlier.project) as keep:  # in which everybody says no
        result = keep.call_sync("order", {"title": "Dune", "copies": 3}, idempotency_key=KEY)
    assert (result.status, result.value) == ("ok", "3 × Dune")
    assert result.call_id == earlier.expected["calls"][1]["id"]


def test_definitions_have_the_hashes_that_they_had(earlier: Earlier) -> None:
    found = {one.definition.name: one.definition.hash for one in (order, price)}
    assert found == earlier.expected["definitions"]


def test_rules_are_there_and_are_about_the_tool_of_today(earlier: Earlier) -> None:
    made_at = earlier.expected["rules"][0]["made_at"]
    with contextlib.closing(SqliteApprovals(earlier.folder, clock=lambda: made_at)) as approvals:
        rules = approvals.rules()
    found: list[dict[str, Any]] = json.loads(msgspec.json.encode(rules))
    assert [
        {key: one[key] for key in was} for one, was in zip(found, earlier.expected["rules"], strict=True)
    ] == earlier.expected["rules"]
    assert [rule.definition_hash for rule in rules] == [order.definition.hash]


def test_stored_definitions_are_listed_in_all_versions(earlier: Earlier) -> None:
    with open_shop(earlier.project) as keep:
        versions = [one.version for one in keep.versions("weather")]
        assert versions == ["2.0.0", "1.0.0"]
        assert keep.get("forecast").definition.description == STORED["description"]
    assert "weather" in [one["name"] for one in data("list")]


def test_a_tool_that_was_switched_off_stays_off(earlier: Earlier) -> None:
    states = {one["name"]: one["state"] for one in data("list")}
    assert (states["web_search"], states["read_file"]) == ("disabled", "enabled")


def test_acceptances_and_pins_are_remembered(earlier: Earlier) -> None:
    state = KeepState(earlier.folder)
    assert state.is_accepted(*ACCEPTED)
    assert not state.is_accepted(ACCEPTED[0], "00" * 32)
    (pin,) = state.pins()
    assert msgspec.to_builtins(pin) == earlier.expected["pin"]
    assert ToolDefinition.from_dict(pin.definition).hash == pin.definition_hash


def test_a_token_and_a_sign_in_still_count(earlier: Earlier) -> None:
    with contextlib.closing(Tokens(SqliteTokens(earlier.folder))) as tokens:
        token = tokens.recognize(earlier.expected["token"])
    assert token is not None
    assert (token.name, token.agent, token.scopes) == ("ci", "writer", (Scope.CALL,))
    assert FileSignIns(earlier.folder).get("shop") == SIGN_IN


def test_it_can_be_backed_up_and_restored(earlier: Earlier, tmp_path: Path) -> None:
    backup.make_backup(earlier.folder, tmp_path / "backup.tar")
    backup.restore_backup(tmp_path / "backup.tar", tmp_path / "restored")
    assert verify(tmp_path / "restored").is_intact
    assert format_file(tmp_path / "restored" / "audit").read_text() == f"{LOG_FORMAT}\n"


# --- what a later version left ------------------------------------------------------------------------


def names_both(refused: pytest.ExceptionInfo[ToolkeepError], found: object, known: object) -> bool:
    return f"{found!r}, but this toolkeep supports only up to {known!r}" in refused.value.message


def use_approvals(folder: Path) -> Any:
    return SqliteApprovals(folder).rules()


def use_bodies(folder: Path) -> Any:
    return Bodies(folder).put(b"new")


def use_ledger(folder: Path) -> Any:
    return asyncio.run(SqliteLedger(folder).claim("key", "call", "hash"))


def use_state(folder: Path) -> Any:
    return KeepState(folder).switches()


def change_state(folder: Path) -> Any:
    return KeepState(folder).put_switch("price", enabled=False)


def use_tokens(folder: Path) -> Any:
    return SqliteTokens(folder).all()


DATABASES: dict[str, tuple[str, int, Callable[[Path], Any]]] = {
    "approvals": ("approvals.db", SCHEMA_VERSION, use_approvals),
    "bodies": ("bodies.db", SCHEMA_VERSION, use_bodies),
    "ledger": ("ledger.db", SCHEMA_VERSION, use_ledger),
    "state, read": ("state.db", SCHEMA_VERSION, use_state),
    "state, written": ("state.db", SCHEMA_VERSION, change_state),
    "tokens": ("tokens.db", SCHEMA_VERSION, use_tokens),
}


@pytest.mark.parametrize("case", DATABASES)
def test_a_database_of_a_later_version_is_refused_and_left_as_it_is(earlier: Earlier, case: str) -> None:
    name, known, use = DATABASES[case]
    file = earlier.folder / name
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (known,)
        connection.executescript(f"CREATE TABLE sessions (later); PRAGMA user_version = {known + 1};")
    before = file.read_bytes()
    with pytest.raises(StateUnusable) as refused:
        use(earlier.folder)
    assert refused.value.path == str(file)
    assert names_both(refused, known + 1, known)
    assert file.read_bytes() == before


def test_tables_of_a_later_layout_are_refused(earlier: Earlier) -> None:
    later = f"{int(HEAD) + 1:04d}"
    place = SqliteLocation(earlier.folder)
    with contextlib.closing(sqlite3.connect(earlier.folder / "store.db")) as connection, connection:
        connection.execute(f"UPDATE {LAYOUT_TABLE} SET version_num = ?", (later,))  # noqa: S608 -- our own name
    with pytest.raises(StoreLayoutUnfit) as refused:
        SqlDefinitionStore(place).read()
    assert names_both(refused, later, HEAD)


@pytest.mark.parametrize("use", [verify, lambda folder: AuditLog(folder).read()], ids=["verify", "read"])
def test_a_log_of_a_later_format_is_not_read(earlier: Earlier, use: Callable[[Path], Any]) -> None:
    format_file(earlier.folder / "audit").write_text(f"{LOG_FORMAT + 1}\n")
    with pytest.raises(StateUnusable) as refused:
        use(earlier.folder)
    assert names_both(refused, LOG_FORMAT + 1, LOG_FORMAT)


def test_a_log_of_a_later_format_is_not_written(earlier: Earlier) -> None:
    audit = earlier.folder / "audit"
    format_file(audit).write_text(f"{LOG_FORMAT + 1}\n")
    before = {path: path.read_bytes() for path in audit.rglob("*") if path.is_file()}
    with AuditLog(earlier.folder) as log, pytest.raises(StateUnusable) as refused:
        log.append({"event": "later"}).result()
    assert names_both(refused, LOG_FORMAT + 1, LOG_FORMAT)
    assert {path: path.read_bytes() for path in audit.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("written", [b"", b"1", b"0\n", b"-1\n", b"one\n", b"1\n1\n"])
def test_a_format_that_is_no_number_is_refused(earlier: Earlier, written: bytes) -> None:
    format_file(earlier.folder / "audit").write_bytes(written)
    with pytest.raises(AuditBroken, match="it is no number"):
        verify(earlier.folder)


def test_a_log_without_a_format_has_the_first_one(earlier: Earlier) -> None:
    format_file(earlier.folder / "audit").unlink()
    assert verify(earlier.folder).is_intact


def test_a_receipt_of_a_later_version_is_refused(earlier: Earlier) -> None:
    later = {**earlier.expected["receipt"], "receipt": RECEIPT_VERSION + 1, "more": True}
    with pytest.raises(ReceiptInvalid) as refused:
        verify_receipt(later, earlier.expected["public_keys"][0])
    assert names_both(refused, RECEIPT_VERSION + 1, RECEIPT_VERSION)


def test_a_lock_of_a_later_version_is_refused() -> None:
    raw = write_lock(Lock(upstreams={}, tools={}))
    later = raw.replace(b'"toolkeep.lock":1', f'"toolkeep.lock":{LOCK_VERSION + 1}'.encode())
    with pytest.raises(LockInvalid) as refused:
        read_lock(later, "toolkeep.lock")
    assert names_both(refused, LOCK_VERSION + 1, LOCK_VERSION)


def test_a_sign_in_of_a_later_version_is_refused(earlier: Earlier) -> None:
    file = earlier.folder / "sign-ins" / "shop.json"
    file.write_text(json.dumps({"version": SIGN_IN_VERSION + 1, "client": "another shape"}))
    with pytest.raises(StateUnusable) as refused:
        FileSignIns(earlier.folder).get("shop")
    assert names_both(refused, SIGN_IN_VERSION + 1, SIGN_IN_VERSION)


def test_a_backup_of_a_later_version_is_refused(
    earlier: Earlier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, known = tmp_path / "backup.tar", backup.FORMAT
    monkeypatch.setattr(backup, "FORMAT", known + 1)
    backup.make_backup(earlier.folder, file)
    monkeypatch.undo()
    with pytest.raises(BackupRefused) as refused:
        backup.check_backup(file)
    assert names_both(refused, known + 1, known)
