"""Backups of a keep that goes on meanwhile, and keeps that are made from them."""

import contextlib
import hashlib
import io
import json
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.keeps import WEATHER
from toolkeep import open_keep, tool
from toolkeep.errors import BackupRefused, StateUnusable
from toolkeep.storage.backup import check_backup, make_backup, restore_backup
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.postgres.shared_register import SeenVersion
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.storage.state_folder import make_private
from toolkeep.stores.api_tokens import Scope, Tokens


@tool(danger="safe", side_effects=["None"])
def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return 2 * number


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "home" / "state"))
    return tmp_path / "home" / "state"


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder in which everything that can be remembered was."""
    root = tmp_path_factory.mktemp("remembered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLKEEP_HOME", str(root / "state"))
        with open_keep(project=root / "project") as keep:
            keep.register(double)
            keep.create_definition(WEATHER)
            for number in range(5):
                assert keep.call_sync("double", {"number": number}, idempotency_key=f"k{number}").ok
            keep.disable("read_file", remember=True)
    with contextlib.closing(Tokens(SqliteTokens(root / "state"))) as tokens:
        tokens.make("ci", [Scope.CALL])
    return root / "state"


@pytest.fixture
def used(remembered: Path, home: Path) -> Path:
    """Such a folder for one test."""
    shutil.copytree(remembered, home)
    home.chmod(0o700)
    return home


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def rewritten(file: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """The backup with something changed and its manifest left as it was."""
    held = members(file)
    change(held)
    other = file.with_name("changed.tar")
    with tarfile.open(other, "w") as archive:
        for name, data in held.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return other


def test_a_restored_keep_knows_what_the_old_one_knew(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    made = make_backup(used, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert check_backup(file) == made
    shutil.rmtree(used)
    assert restore_backup(file, used) is None
    assert stat.S_IMODE(used.stat().st_mode) == 0o700
    report = verify(used)
    assert report.is_intact
    with open_keep(project=tmp_path / "home" / "project") as keep:
        keep.register(double)
        assert keep.get("forecast").provider == "store"
        assert not keep.get("read_file").is_enabled
        again = keep.call_sync("double", {"number": 3}, idempotency_key="k3")
        assert (again.ok, again.value) == (True, 6)
    with contextlib.closing(Tokens(SqliteTokens(used))) as tokens:
        assert [token.name for token in tokens.list()] == ["ci"]
    assert verify(used).is_intact


def test_a_backup_of_a_keep_that_goes_on_is_of_one_moment(used: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    counts: list[int] = []

    def work() -> None:
        with open_keep(project=tmp_path / "home" / "project") as keep:
            keep.register(double)
            number = 100
            while not stop.is_set():
                assert keep.call_sync("double", {"number": number}, idempotency_key=f"k{number}").ok
                number += 1
            counts.append(number)

    worker = threading.Thread(target=work)
    worker.start()
    for n in range(4):
        make_backup(used, tmp_path / f"backup{n}.tar")
    stop.set()
    worker.join()
    for n in range(4):
        target = tmp_path / f"restored{n}"
        restore_backup(tmp_path / f"backup{n}.tar", target)
        assert verify(target).is_intact
        assert set(keys_in_log(target)) <= keys_in_ledger(target), "what the log knows, the ledger knows"


def keys_in_log(folder: Path) -> list[str]:
    """The keys of calls that ended, by the log."""
    from toolkeep.storage.log.segments import read_entries

    ended = {
        entry.record["call"]
        for entry in read_entries(folder / "audit", 0, 1 << 30)
        if entry.record.get("type") == "ToolCompleted"
    }
    return sorted(ended)


def keys_in_ledger(folder: Path) -> set[str]:
    connection = sqlite3.connect(folder / "ledger.db")
    try:
        return {call_id for (call_id,) in connection.execute("SELECT call_id FROM claims")}
    finally:
        connection.close()


def test_a_state_that_is_there_is_replaced_only_if_that_is_said_and_is_moved_aside(
    used: Path, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    with pytest.raises(BackupRefused):
        restore_backup(file, used)
    (used / "mark").write_text("before")
    aside = restore_backup(file, used, replaces=True)
    assert aside is not None
    assert (aside / "mark").read_text() == "before"
    assert not (used / "mark").exists()


def test_a_folder_that_holds_nothing_yet_gives_way_and_leaves_nothing(used: Path, tmp_path: Path) -> None:
    file, place = tmp_path / "backup.tar", tmp_path / "place" / "state"
    make_backup(used, file)
    place.mkdir(parents=True)
    assert restore_backup(file, place) is None
    assert [path.name for path in place.parent.iterdir()] == ["state"]
    assert (place / "keys").is_dir()


def test_what_is_restored_is_durable_with_its_names_before_it_is_in_place(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_backup(used, tmp_path / "backup")
    steps: list[str] = []
    genuine = Path.rename

    def rename(path: Path, target: Path) -> Path:
        steps.append(f"{path.name} is {target.name}")
        return genuine(path, target)

    monkeypatch.setattr("toolkeep.storage.backup.sync_folder", lambda folder: steps.append(folder.name))
    monkeypatch.setattr(Path, "rename", rename)
    restore_backup(tmp_path / "backup", tmp_path / "new" / "home")
    assert sorted(steps[:-2]) == ["audit", "keys", "segments", "state"]
    assert steps[-2:] == ["state is home", "new"]


def test_a_state_in_use_is_not_replaced(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    hold = f"file = open({str(used / 'store.db')!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BackupRefused, match="is in use"):
            restore_backup(file, used, replaces=True)
        process.communicate(b"\n")


def _cut_segment(held: dict[str, bytes]) -> None:
    held["audit/segments/00000000.jsonl"] = held["audit/segments/00000000.jsonl"][:-200]


def _swap_line(held: dict[str, bytes]) -> None:
    name = "audit/segments/00000000.jsonl"
    held[name] = held[name].replace(b'"double"', b'"triple"', 1)


@pytest.mark.parametrize(
    "change",
    [
        _cut_segment,
        _swap_line,
        lambda held: held.pop("keys/log.key"),
        lambda held: held.pop("tokens.db"),
        lambda held: held.pop("manifest.json"),
        lambda held: held.update({"store.db": b"x" * 4096}),
        lambda held: held.update({"../evil": b"x"}),
        lambda held: held.update({"/etc/evil": b"x"}),
        lambda held: held.update({"keys/../../evil": b"x"}),
        lambda held: held.update({"audit/segments/1.jsonl": b"x"}),
        lambda held: held.update({"manifest.json": b"{}"}),
        lambda held: held.update({"manifest.json": b'{"format": 2, "made_at": "", "members": []}'}),
    ],
)
def test_a_backup_that_was_changed_is_refused_and_nothing_is_touched(
    used: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], Any]
) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    other = rewritten(file, change)
    target = tmp_path / "elsewhere" / "state"
    before = sorted(path.name for path in tmp_path.iterdir())
    for use in (lambda: check_backup(other), lambda: restore_backup(other, target)):
        with pytest.raises(BackupRefused):
            use()
    assert not target.exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "elsewhere") == before
    assert not (tmp_path / "evil").exists()


def forge(held: dict[str, bytes], change: Callable[[dict[str, bytes]], Any]) -> None:
    """Change something, and let the manifest say so."""
    change(held)
    manifest = json.loads(held.pop("manifest.json"))
    manifest["members"] = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in held.items()
    ]
    held["manifest.json"] = json.dumps(manifest).encode()


def test_a_whole_backup_of_a_form_that_is_not_known_is_refused(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)

    def renumber(held: dict[str, bytes]) -> None:
        held["manifest.json"] = json.dumps({**json.loads(held["manifest.json"]), "format": 2}).encode()

    with pytest.raises(BackupRefused, match="has format 2, but this toolkeep supports only up to 1"):
        check_backup(rewritten(file, renumber))


def test_a_backup_that_holds_a_file_twice_is_refused(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    with tarfile.open(file, "a") as archive:
        archive.addfile(tarfile.TarInfo("keys/log.key"), io.BytesIO(b""))
    with pytest.raises(BackupRefused, match="an unexpected file"):
        check_backup(file)


def test_a_state_that_is_open_to_others_is_not_backed_up(used: Path, tmp_path: Path) -> None:
    used.chmod(0o755)
    with pytest.raises(StateUnusable, match="open to other users"):
        make_backup(used, tmp_path / "backup.tar")
    assert not (tmp_path / "backup.tar").exists()


def test_a_log_that_was_rewritten_with_its_manifest_does_not_verify(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    with pytest.raises(BackupRefused, match="does not verify"):
        check_backup(rewritten(file, lambda held: forge(held, _swap_line)))


@pytest.mark.parametrize(
    "name", ["../evil", "../../evil", "keys/../../evil", "/evil", "evil", "keys/evil/evil", "audit/torn/x"]
)
def test_no_name_leads_out_of_the_state_whatever_the_manifest_says(
    used: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    hostile = rewritten(file, lambda held: forge(held, lambda inside: inside.update({name: b"x"})))
    with pytest.raises(BackupRefused, match="unexpected file"):
        check_backup(hostile)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_nothing_but_plain_files_is_taken_from_a_backup(used: Path, tmp_path: Path, kind: bytes) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    with tarfile.open(file, "a") as archive:
        info = tarfile.TarInfo("keys/link")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(BackupRefused):
        check_backup(file)


@pytest.mark.parametrize("size", [100, 1 << 50])
def test_a_file_that_only_claims_to_be_so_large_is_refused(used: Path, tmp_path: Path, size: int) -> None:
    file = tmp_path / "backup.tar"
    make_backup(used, file)
    with tarfile.open(file, "a", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("keys/huge")
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": str(size),
            "GNU.sparse.name": "keys/huge",
        }
        info.size = 512
        archive.addfile(info, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    with pytest.raises(BackupRefused, match="an unexpected file"):
        check_backup(file)


def test_a_file_that_is_there_is_not_overwritten(used: Path, tmp_path: Path) -> None:
    (tmp_path / "backup.tar").write_text("mine")
    with pytest.raises(BackupRefused):
        make_backup(used, tmp_path / "backup.tar")
    assert (tmp_path / "backup.tar").read_text() == "mine"


def test_a_backup_is_checked_where_nobody_may_write_beside_it(used: Path, tmp_path: Path) -> None:
    made = make_backup(used, tmp_path / "keep.tar")
    with (tmp_path / "keep.tar").open("rb") as file:  # nobody, not even root, makes a folder beside this name
        assert check_backup(Path(f"/proc/self/fd/{file.fileno()}")) == made


def test_what_is_no_backup_is_named(tmp_path: Path, home: Path) -> None:
    (tmp_path / "text").write_text("hello" * 1000)
    (tmp_path / "empty").write_bytes(b"")
    for name in ("text", "empty", "missing"):
        with pytest.raises(BackupRefused):
            restore_backup(tmp_path / name, home)
    assert not home.exists()
    with pytest.raises(BackupRefused):
        make_backup(home, tmp_path / "b.tar")


def test_a_restore_does_not_forget_how_far_a_shared_database_was(home: Path, tmp_path: Path) -> None:
    make_private(home)
    SeenVersion(home, "tokens").rise(3)
    make_backup(home, tmp_path / "backup")
    SeenVersion(home, "tokens").rise(5)
    SeenVersion(home, "history").rise(7)
    restore_backup(tmp_path / "backup", home, replaces=True)
    assert [SeenVersion(home, kind).remembered() for kind in ("tokens", "history")] == [5, 7]
    restore_backup(tmp_path / "backup", tmp_path / "elsewhere")
    assert SeenVersion(tmp_path / "elsewhere", "tokens").remembered() == 3
