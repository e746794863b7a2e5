"""Keys: made once, private, rotated without a gap."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolkeep.audit.checkpoint import open_checkpoint
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.errors import StateUnusable
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.appender import Appender
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.verify_folder import verify

PRINT_KEYS = """
import pathlib, sys
from toolkeep.storage.keys import Keys
sys.stdin.read(1)
keys = Keys(pathlib.Path(sys.argv[1]))
print(keys.public_key(), keys.secret_key().hex())
"""


def test_keys_are_made_on_first_use_and_stay(tmp_path: Path) -> None:
    first, second = Keys(tmp_path / "keep"), Keys(tmp_path / "keep")
    assert first.public_key() == second.public_key()
    assert first.secret_key() == second.secret_key()
    assert len(first.secret_key()) == 32
    assert first.public_key().name.startswith("toolkeep/")
    assert len(first.public_key().name) == 25
    assert Keys(tmp_path / "other").public_key().name != first.public_key().name


def test_asking_whether_there_is_a_key_makes_none(tmp_path: Path) -> None:
    assert not Keys(tmp_path).has_key()
    assert list(tmp_path.iterdir()) == []


def test_keys_are_for_this_user_alone(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.public_key(), keys.secret_key()
    assert {path.stat().st_mode & 0o777 for path in keys.folder.iterdir()} == {0o600}
    assert keys.folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in keys.folder.iterdir()} == {"log.key", "secrets.key"}


@pytest.mark.parametrize("left", [{"keys/log.signed", "audit"}, {"keys/log.signed"}, {"audit"}])
def test_no_key_is_made_in_the_place_of_one_that_signed(tmp_path: Path, left: set[str]) -> None:
    """Else what is left of a log that somebody removed would be that of another, new one."""
    with AuditLog(tmp_path) as log:
        log.append({"n": 1}).result()
    (tmp_path / "keys" / "log.key").unlink()
    if "audit" not in left:
        shutil.rmtree(tmp_path / "audit")
    if "keys/log.signed" not in left:
        (tmp_path / "keys" / "log.signed").unlink()
    with pytest.raises(StateUnusable, match="the log was signed with it"):
        Keys(tmp_path).public_key()
    assert not Keys(tmp_path).has_key()


def test_keys_in_an_open_folder_are_not_used(tmp_path: Path) -> None:
    Keys(tmp_path).public_key()
    Keys(tmp_path).secret_key()
    (tmp_path / "keys").chmod(0o755)
    for use in (Keys(tmp_path).public_key, Keys(tmp_path).secret_key):
        with pytest.raises(StateUnusable):
            use()


def test_processes_that_come_first_together_make_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRINT_KEYS, str(tmp_path / "keep")]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    for process in started:
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
    assert len({process.communicate()[0] for process in started}) == 1
    assert {path.name for path in (tmp_path / "keep" / "keys").iterdir()} == {"log.key", "secrets.key"}


def test_the_public_key_survives_its_text_form(tmp_path: Path) -> None:
    key = Keys(tmp_path).public_key()
    assert VerifierKey.parse(str(key)) == key


def test_old_and_new_key_sign_the_checkpoint_of_the_hand_over(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "keep") as log:
        log.append({"n": 1}).result()
        old, new = log.public_key(), log.rotate_key()
        note = Note.parse(log.kept_checkpoints()[-1])
        assert note.signers([old, new]) == (old, new)
        assert log.read()[-1].record["next_key"] == str(new)
        assert old.name == new.name
        log.append({"n": 2}).result()
        assert open_checkpoint(log.checkpoint(), [new]).size == 3


def test_after_a_rotation_no_key_is_left_of_a_process_that_was_killed(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "keep") as log:
        log.append({"n": 1}).result()
        log.checkpoint()
        keys = tmp_path / "keep" / "keys"
        for name in ("log.key", "log.next"):
            (keys / f".{name}.0123456789abcdef").write_bytes((keys / "log.key").read_bytes())
        log.rotate_key()
    assert {path.name for path in keys.iterdir()} == {"log.key", "log.signed"}


def test_another_process_signs_with_the_new_key_at_once(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "keep") as one, AuditLog(tmp_path / "keep") as two:
        one.append({"n": 1}).result()
        two.append({"n": 2}).result()
        new = one.rotate_key()
        two.append({"n": 3}).result()
        assert open_checkpoint(two.checkpoint(), [new]).size == 4
    assert verify(tmp_path / "keep").is_intact


class Stopped(Exception):
    """The process ends here."""


def stop(*_: object, **__: object) -> None:
    raise Stopped


STEPS = {"announce": 0, "sign": 1, "promote": 2, "forget": 1}
"""What a rotation does one after the other; how often both keys sign if it is stopped before that."""


@pytest.fixture(params=STEPS)
def stopped_before(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The step before which the rotation of a key of the log in `keep` was stopped."""
    step = str(request.param)
    log = AuditLog(tmp_path / "keep")
    log.append({"n": 1}).result()
    log.checkpoint()
    with monkeypatch.context() as stopped:
        if step == "announce":
            append = Appender.append
            stopped.setattr(
                Appender, "append", lambda self, records: stop() if records else append(self, records)
            )
        elif step == "sign":
            stopped.setattr(Checkpoints, "sign", stop)
        else:
            stopped.setattr(Keys, "promote_next" if step == "promote" else "drop_next", stop)
        with pytest.raises(Stopped):
            log.rotate_key()
        log._writer._let_go()  # without the last checkpoint, as if it were killed
    return step


def first_key(folder: Path) -> VerifierKey:
    """The key that the log began with, as its first announcement says."""
    with AuditLog(folder) as log:
        announced = [entry.record for entry in log.read() if entry.record.get("event") == "KeyRotated"]
        return VerifierKey.parse(announced[0]["key"]) if announced else log.public_key()


def test_a_rotation_stopped_at_any_step_is_finished_or_forgotten(tmp_path: Path, stopped_before: str) -> None:
    folder = tmp_path / "keep"
    old = first_key(folder)
    assert verify(folder).is_intact
    with AuditLog(folder, checkpoint_seconds=0) as log:
        for number in range(3):  # the writer signs between two groups
            log.append({"n": number}).result()
        both = [note for note in log.kept_checkpoints() if note.count("—") == 2]
        assert len(both) == STEPS[stopped_before]
    assert (log.public_key() == old) == (stopped_before == "announce")
    assert not (folder / "keys" / "log.next").exists()
    assert verify(folder, public_key=old).is_intact
    assert verify(folder).is_intact


def test_a_rotation_after_one_that_was_stopped_loses_no_key(tmp_path: Path, stopped_before: str) -> None:
    folder = tmp_path / "keep"
    with AuditLog(folder, checkpoint_seconds=3600) as log:
        log.append({"n": 2}).result()
        new = log.rotate_key()
        rotated = [entry for entry in log.read() if entry.record.get("event") == "KeyRotated"]
    assert len(rotated) == 1 + (stopped_before != "announce")
    for key in (first_key(folder), new):
        assert verify(folder, public_key=key).is_intact


def test_a_key_does_not_show_in_what_is_printed(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    secret = keys.signer().to_text().split("+", 4)[4].strip()
    assert secret not in repr(keys.signer())
    assert secret not in repr(vars(keys))
    assert os.environ.get("TOOLKEEP_KEY") is None


def test_a_key_for_secrets_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.secret_key()
    (keys.folder / "secrets.key").write_bytes(b"")
    with pytest.raises(StateUnusable):
        keys.secret_key()


@pytest.mark.parametrize("name", ["log.key", "log.next"])
def test_a_key_file_that_holds_no_key_is_refused_by_name(tmp_path: Path, name: str) -> None:
    keys = Keys(tmp_path)
    keys.public_key()
    keys.prepare_next(1)
    (keys.folder / name).write_bytes(b"\xff nonsense")
    with pytest.raises(NoteInvalid):
        keys.signer() if name == "log.key" else keys.next_key()
