"""A log rewritten by somebody who cannot sign: chain recomputed, checkpoints removed or put back, folder removed.

`verify` finds it, and nobody signs it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from toolkeep.audit.entry import NO_PREVIOUS, chain, parse_entry
from toolkeep.audit.errors import AuditBroken
from toolkeep.audit.findings import Kind
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.backup import make_backup, restore_backup
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

pytestmark = pytest.mark.spec("AUD-2")

CHECKPOINTS = ("checkpoint", "checkpoints.jsonl", "resume.json")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state of a keep with a log of two sessions, ten records each."""
    folder = tmp_path / "keep"
    for start in (0, 10):
        with AuditLog(folder) as log:
            log.append_all({"event": "Test", "n": start + n} for n in range(10))
    assert verify(folder).is_intact
    return folder


def segment(state: Path) -> Path:
    return state / "audit" / "segments" / "00000000.jsonl"


def rewrite(state: Path, keep: int = 20) -> None:
    """Change a record and recompute the plain hash chain over what is kept."""
    lines = segment(state).read_bytes().splitlines()[:keep]
    entries = [entry for line in lines if (entry := parse_entry(line))]
    records = [
        canonical_bytes({**entry.record, "n": 99 if entry.index == 3 else entry.index}) for entry in entries
    ]
    new, _ = chain(records, 0, NO_PREVIOUS)
    segment(state).write_bytes(b"".join(line + b"\n" for line in new))


def remove_checkpoints(state: Path) -> None:
    for name in CHECKPOINTS:
        (state / "audit" / name).unlink(missing_ok=True)


def put_back(state: Path, number: int) -> None:
    """Make the log what it was at a checkpoint that is kept beside it, as anybody can."""
    lines = (state / "audit" / "checkpoints.jsonl").read_bytes().splitlines(keepends=True)[: number + 1]
    note = msgspec.json.decode(lines[-1], type=str)
    size = int(note.splitlines()[1])
    (state / "audit" / "checkpoint").write_text(note)
    (state / "audit" / "checkpoints.jsonl").write_bytes(b"".join(lines))
    (state / "audit" / "resume.json").unlink()
    segment(state).write_bytes(b"".join(segment(state).read_bytes().splitlines(keepends=True)[:size]))


def rewrite_all(state: Path) -> None:
    rewrite(state)
    remove_checkpoints(state)


def cut_and_rewrite(state: Path) -> None:
    rewrite(state, keep=5)
    remove_checkpoints(state)


def remove_log(state: Path) -> None:
    shutil.rmtree(state / "audit")


def remove_records(state: Path) -> None:
    shutil.rmtree(state / "audit" / "segments")
    remove_checkpoints(state)


ATTACKS: dict[str, Callable[[Path], None]] = {
    "records rewritten, checkpoints removed": rewrite_all,
    "records cut and rewritten, checkpoints removed": cut_and_rewrite,
    "checkpoints removed": remove_checkpoints,
    "log removed": remove_log,
    "records and checkpoints removed": remove_records,
    "put back to before the first record": lambda state: put_back(state, 0),
    "put back to the session before": lambda state: put_back(state, 1),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_log_is_found_and_nobody_signs_it(state: Path, attack: str) -> None:
    ATTACKS[attack](state)
    report = verify(state)
    assert not report.is_intact
    assert {each.kind for each in report.findings} & {Kind.CHECKPOINT, Kind.CUT, Kind.ROOT}
    log = AuditLog(state)
    with pytest.raises(AuditBroken):
        log.append({"event": "Test", "n": 20}).result()
    with pytest.raises(AuditBroken):
        log.checkpoint()
    log.close()
    assert not verify(state).is_intact


def test_a_log_apart_from_its_keys_is_not_intact_without_checkpoints(state: Path) -> None:
    """As whoever audits it has it: nothing outside the log remembers that it was signed."""
    key = str(AuditLog(state).public_key())
    shutil.rmtree(state / "keys")
    assert verify(state, public_key=key).is_intact
    rewrite_all(state)
    report = verify(state, public_key=key)
    assert [str(each.message) for each in report.findings] == ["there are 20 records and no checkpoint"]


def test_what_a_kill_left_behind_the_last_checkpoint_is_signed(state: Path) -> None:
    child = os.fork()
    if not child:
        log = AuditLog(state, checkpoint_seconds=3600)
        log.append({"event": "Test", "n": 20}).result()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (verify(state).is_intact, verify(state).uncovered) == (True, 1)
    with AuditLog(state) as log:
        log.append({"event": "Test", "n": 21}).result()
    report = verify(state)
    assert (report.is_intact, report.records, report.uncovered) == (True, 22, 0)


def test_a_process_killed_at_any_step_while_it_makes_the_log_leaves_one_that_works(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.storage.stopping", str(tmp_path)]
    steps = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
    assert steps > 10
    for step in range(steps):
        folder = tmp_path / f"{step}"
        if (folder / "audit").exists():
            assert verify(folder).is_intact, (step, str(verify(folder)))
        with AuditLog(folder) as log:
            log.append({"event": "Test", "n": 1}).result()
        report = verify(folder)
        assert (report.is_intact, report.uncovered) == (True, 0), (step, str(report))


def test_a_backup_remembers_what_was_signed(state: Path, tmp_path: Path) -> None:
    make_backup(state, tmp_path / "backup")
    with AuditLog(state) as log:
        log.append({"event": "Test", "n": 20}).result()
    restore_backup(tmp_path / "backup", state, replaces=True)
    assert verify(state).is_intact
    with AuditLog(state) as log:
        log.append({"event": "Test", "n": 21}).result()
    assert (verify(state).is_intact, verify(state).records) == (True, 21)


def test_what_was_signed_is_remembered_across_a_new_key(state: Path) -> None:
    with AuditLog(state) as log:
        log.rotate_key()
    assert verify(state).is_intact
    with AuditLog(state) as log:
        log.append({"event": "Test", "n": 21}).result()
    assert verify(state).is_intact
    rewrite_all(state)
    assert not verify(state).is_intact


def test_a_log_of_a_toolkeep_that_remembered_nothing_says_so(state: Path) -> None:
    (state / "keys" / "log.signed").unlink()
    with AuditLog(state) as log, pytest.raises(AuditBroken, match=r"log\.signed"):
        log.append({"event": "Test", "n": 20}).result()
    assert "log.signed" in str(verify(state))
