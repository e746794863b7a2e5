"""Verifying a log: whatever is done to bytes under a checkpoint is found, and the place is named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkeep.audit.findings import Kind, Report
from toolkeep.errors import StateUnusable
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

pytestmark = pytest.mark.spec("AUD-2")

RECORDS = 60
Lines = list[bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three segments, 20 records each, all under a checkpoint."""
    folder = tmp_path_factory.mktemp("original") / "keep"
    for start in range(0, RECORDS, 20):
        with AuditLog(folder, segment_bytes=1500, checkpoint_seconds=3600) as log:
            for future in log.append_all({"event": "Test", "n": start + n} for n in range(20)):
                future.result()
    assert verify(folder).is_intact
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "keep"))


@pytest.fixture(scope="module")
def scratch(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that each example mutates and restores."""
    return Path(shutil.copytree(original, tmp_path_factory.mktemp("scratch") / "keep"))


def segment(folder: Path, number: int) -> Path:
    return folder / "audit" / "segments" / f"{number:08d}.jsonl"


def edit(path: Path, change: Callable[[Lines], Lines]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def found(report: Report) -> list[tuple[Kind, int | None, str, int]]:
    """What was found in the lines: kind, record, segment, line."""
    return [
        (each.kind, each.index, each.spot.segment, each.spot.line) for each in report.findings if each.spot
    ]


def test_an_untouched_log_is_intact_and_the_report_says_what_it_rests_on(original: Path) -> None:
    report = verify(original)
    assert (report.records, report.covered, report.uncovered, report.torn_bytes) == (RECORDS, RECORDS, 0, 0)
    assert report.outside == ()
    assert "none, so a rollback" in str(report)
    assert report.key.endswith(", the keep's own")
    assert report.origin in report.key
    assert report.to_dict()["is_intact"] is True


def test_a_changed_record_is_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: [line.replace(b'"n":25', b'"n":99') for line in lines])
    report = verify(copy)
    assert found(report) == [(Kind.CHANGED, 25, "00000001", 6)]
    assert Kind.ROOT in {each.kind for each in report.findings}
    assert report.covered == 20  # the checkpoint kept after the first segment still fits


def test_a_record_that_is_no_longer_json_is_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: [line.replace(b'"n":25', b'"n"25') for line in lines])
    assert found(verify(copy)) == [(Kind.CHANGED, 25, "00000001", 6)]


def test_a_record_with_another_index_is_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: [line.replace(b'"index":25', b'"index":52') for line in lines])
    assert found(verify(copy)) == [(Kind.CHANGED, 25, "00000001", 6)]


def test_a_record_with_another_predecessor_is_named(copy: Path) -> None:
    def change(lines: Lines) -> Lines:
        at = lines[5].index(b'"previous":"') + 12
        lines[5] = lines[5][:at] + b"0" * 64 + lines[5][at + 64 :]
        return lines

    edit(segment(copy, 1), change)
    assert found(verify(copy)) == [(Kind.CHANGED, 25, "00000001", 6)]


def test_the_last_record_changed_is_named(copy: Path) -> None:
    edit(segment(copy, 2), lambda lines: [line.replace(b'"n":59', b'"n":58') for line in lines])
    report = verify(copy)
    assert [each.kind for each in report.findings] == [Kind.ROOT] * 3
    assert "not before record 40" in str(report)


def test_of_the_last_two_records_either_was_changed(copy: Path) -> None:
    edit(segment(copy, 2), lambda lines: [line.replace(b'"n":58', b'"n":57') for line in lines])
    report = verify(copy)
    assert found(report) == [(Kind.CHANGED, 59, "00000002", 20)]
    assert "it or the record before it was changed" in str(report)


def test_a_deleted_record_is_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: lines[:5] + lines[6:])
    assert found(verify(copy)) == [(Kind.MISSING, 25, "00000001", 6)]


def test_a_duplicated_record_is_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: lines[:6] + lines[5:])
    assert found(verify(copy)) == [(Kind.DUPLICATED, 25, "00000001", 7)]


def test_swapped_records_are_named(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]])
    assert found(verify(copy)) == [
        (Kind.MISSING, 25, "00000001", 6),
        (Kind.OUT_OF_ORDER, 25, "00000001", 7),
    ]


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"\r\n", b"not json\n"])
def test_a_line_that_is_no_entry_is_named(copy: Path, line: bytes) -> None:
    edit(segment(copy, 1), lambda lines: [*lines[:5], line, *lines[5:]])
    assert found(verify(copy)) == [(Kind.FOREIGN, None, "00000001", 6)]


@pytest.mark.parametrize("line", [b"\n", b"{}\n"])
def test_a_line_after_the_last_that_is_no_entry_is_named(copy: Path, line: bytes) -> None:
    edit(segment(copy, 2), lambda lines: [*lines, line])
    assert found(verify(copy)) == [(Kind.FOREIGN, RECORDS, "00000002", 21)]


def test_line_ends_of_another_system_are_found(copy: Path) -> None:
    edit(segment(copy, 1), lambda lines: [line.replace(b"\n", b"\r\n") for line in lines])
    assert len([each for each in found(verify(copy)) if each[0] is Kind.CHANGED]) == 20


def test_a_segment_without_its_last_newline_is_named(copy: Path) -> None:
    segment(copy, 1).write_bytes(segment(copy, 1).read_bytes()[:-1])
    assert (Kind.FOREIGN, None, "00000001", 20) in found(verify(copy))


def test_a_cut_tail_is_found_by_the_signed_size(copy: Path) -> None:
    edit(segment(copy, 2), lambda lines: lines[:-3])
    report = verify(copy)
    assert {each.kind for each in report.findings} == {Kind.CUT}
    assert report.findings[0].index == 57
    assert "60 records were signed, and 57 are here" in report.findings[0].message


def test_a_missing_segment_is_named(copy: Path) -> None:
    segment(copy, 1).unlink()
    report = verify(copy)
    assert "segment: segment 00000001 is missing" in map(str, report.findings)
    assert (Kind.MISSING, 20, "00000002", 1) in found(report)


def test_a_segment_far_behind_the_last_is_named_once(copy: Path) -> None:
    segment(copy, 99_999_999).write_bytes(b"")
    missing = [each.message for each in verify(copy).findings if "missing" in each.message]
    assert missing == ["segments 00000003 to 99999998 are missing"]


def test_a_log_whose_segments_are_gone_is_cut_off(copy: Path) -> None:
    shutil.rmtree(copy / "audit" / "segments")
    assert {each.kind for each in verify(copy).findings} == {Kind.CUT}


def test_a_log_that_was_killed_in_its_first_moment_is_intact(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    report = verify(tmp_path)
    assert (report.is_intact, report.records) == (True, 0)


def test_a_segment_put_in_place_of_another_is_found(copy: Path) -> None:
    shutil.copy(segment(copy, 0), segment(copy, 1))
    kinds = {each.kind for each in verify(copy).findings}
    assert {Kind.DUPLICATED, Kind.MISSING} <= kinds


def test_a_stray_file_and_an_empty_segment_are_named(copy: Path) -> None:
    (segment(copy, 0).parent / "notes.txt").write_text("hello")
    segment(copy, 4).write_bytes(b"")
    segment(copy, 3).write_bytes(b"")
    messages = [each.message for each in verify(copy).findings]
    assert messages == ["the segment is empty", "notes.txt is not a segment"]


def test_a_whole_history_forged_without_the_key_is_found(copy: Path, tmp_path: Path) -> None:
    with AuditLog(tmp_path / "forged") as forged:
        for future in forged.append_all({"event": "Forged", "n": n} for n in range(RECORDS)):
            future.result()
    shutil.rmtree(copy / "audit")
    shutil.copytree(tmp_path / "forged" / "audit", copy / "audit")
    report = verify(copy)
    assert not report.is_intact
    assert report.covered == 0


def test_a_checkpoint_put_back_is_found_beside_the_kept_ones(copy: Path) -> None:
    path = copy / "audit" / "checkpoint"
    path.write_text(AuditLog(copy).kept_checkpoints()[0])
    assert "older than one signed at size 60" in str(verify(copy))
    path.unlink()
    assert "the newest is gone" in str(verify(copy))


def test_line_ends_of_another_system_in_the_checkpoint_are_found(copy: Path) -> None:
    path = copy / "audit" / "checkpoint"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert Kind.CHECKPOINT in {each.kind for each in verify(copy).findings}


@pytest.mark.parametrize(
    "change", [lambda kept: kept[:-1] + b"\r", lambda kept: kept.replace(b"\\n", b"\\u000a")]
)
def test_kept_checkpoints_have_one_spelling(copy: Path, change: Callable[[bytes], bytes]) -> None:
    path = copy / "audit" / "checkpoints.jsonl"
    path.write_bytes(change(path.read_bytes()))
    assert [each.kind for each in verify(copy).findings] == [Kind.CHECKPOINT]


def test_log_and_checkpoint_rolled_back_together_are_seen_only_from_outside(
    copy: Path, original: Path
) -> None:
    outside = (original / "audit" / "checkpoint").read_text()
    segment(copy, 2).unlink()
    kept = copy / "audit" / "checkpoints.jsonl"
    edit(kept, lambda lines: lines[:2])
    (copy / "audit" / "checkpoint").write_text(AuditLog(copy).kept_checkpoints()[-1])
    assert Kind.CUT in {each.kind for each in verify(copy).findings}
    (copy / "keys" / "log.signed").write_text(AuditLog(copy).kept_checkpoints()[-1])
    assert verify(copy).is_intact
    report = verify(copy, outside_checkpoints={"a friend": outside})
    assert report.outside == ("a friend",)
    assert [each.kind for each in report.findings] == [Kind.CUT]


def test_outside_checkpoints_of_other_logs_are_passed_over(original: Path, tmp_path: Path) -> None:
    with AuditLog(tmp_path / "other") as other:
        other.append({"n": 1}).result()
        note = other.checkpoint()
    report = verify(original, outside_checkpoints={"other": note})
    assert report.is_intact
    assert report.outside == ()


def test_several_logs_are_verified_each_with_its_own_key(original: Path, tmp_path: Path) -> None:
    with AuditLog(tmp_path / "other") as other:
        other.append({"n": 1}).result()
        own = other.checkpoint()
        reports = [verify(log, outside_checkpoints={"friend": own}) for log in (original, other)]
    assert [(report.is_intact, report.outside) for report in reports] == [(True, ()), (True, ("friend",))]
    assert reports[0].origin != reports[1].origin


def test_the_wrong_public_key_shows(original: Path, tmp_path: Path) -> None:
    key = AuditLog(tmp_path / "other").public_key()
    report = verify(original, public_key=str(key))
    assert {each.kind for each in report.findings} == {Kind.CHECKPOINT}
    assert report.covered == 0


def test_without_a_key_nothing_is_vouched_for(copy: Path) -> None:
    shutil.rmtree(copy / "keys")
    report = verify(copy)
    assert Kind.KEY in {each.kind for each in report.findings}
    assert report.covered == 0
    assert not (copy / "keys").exists()


def test_records_after_the_last_checkpoint_are_counted_as_not_covered(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "before")
    with AuditLog(copy) as log:
        log.append_all({"n": n} for n in range(5))[-1].result()
    for name in ("audit/checkpoint", "audit/checkpoints.jsonl", "keys/log.signed"):
        shutil.copy(tmp_path / "before" / name, copy / name)
    report = verify(copy)
    assert (report.is_intact, report.covered, report.uncovered) == (True, RECORDS, 5)


def test_a_folder_without_a_log_is_no_intact_log(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable):
        verify(tmp_path)


def test_a_log_is_verified_while_it_is_written(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "keep", segment_bytes=2000, checkpoint_seconds=0) as log:
        log.append({"n": 0}).result()
        for number in range(30):
            futures = log.append_all({"n": number, "m": m} for m in range(10))
            assert verify(log).is_intact
            futures[-1].result()


def test_a_rotated_key_is_followed_in_both_directions(copy: Path, original: Path) -> None:
    first = AuditLog(original).public_key()
    with AuditLog(copy) as log:
        second = log.rotate_key()
        log.append({"n": 1}).result()
        third = log.rotate_key()
        log.append({"n": 2}).result()
    assert len({first, second, third}) == 3
    assert log.public_key() == third
    for key in (first, second, third, None):
        report = verify(copy, public_key=key)
        assert (report.findings, report.covered) == ((), RECORDS + 4)


def test_a_key_that_is_rotated_while_a_log_is_verified_is_no_finding(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkeep.storage.log import verify_folder as verifying

    genuine = verifying._scan

    def rotate_first(*given: Any) -> Any:
        with AuditLog(copy) as log:
            log.rotate_key()
        return genuine(*given)

    monkeypatch.setattr(verifying, "_scan", rotate_first)
    report = verify(copy)
    assert (report.findings, report.records, report.covered) == ((), RECORDS, RECORDS)


def test_a_rotation_without_a_checkpoint_of_both_keys_is_found(copy: Path) -> None:
    with AuditLog(copy) as log:
        log.rotate_key()
        log.append({"n": 1}).result()
    edit(
        copy / "audit" / "checkpoints.jsonl",
        lambda lines: [line for line in lines if line.count("—".encode()) < 2],
    )
    assert Kind.KEY in {each.kind for each in verify(copy).findings}


def test_the_old_key_signs_nothing_after_it_was_handed_over(copy: Path, original: Path) -> None:
    from toolkeep.audit.checkpoint import Checkpoint
    from toolkeep.audit.signed_note import Note
    from toolkeep.storage.keys import Keys

    with AuditLog(copy) as log:
        log.rotate_key()
        log.append({"n": 1}).result()
    path = copy / "audit" / "checkpoint"
    newest = Checkpoint.parse(Note.parse(path.read_text()).text)
    path.write_text(str(newest.sign(Keys(original).signer())))
    assert "no known key signed" in str(verify(copy))


def test_the_key_of_a_log_signs_in_the_name_of_no_other(copy: Path) -> None:
    from toolkeep.audit.checkpoint import Checkpoint
    from toolkeep.audit.signed_note import Note
    from toolkeep.storage.keys import Keys

    path = copy / "audit" / "checkpoint"
    newest = Checkpoint.parse(Note.parse(path.read_text()).text)
    other = Checkpoint(origin="toolkeep/another", size=newest.size, root=newest.root)
    path.write_text(str(other.sign(Keys(copy).signer())))
    assert "no known key signed" in str(verify(copy))


LINE_EDITS: dict[str, Callable[[Lines, int, int], Lines]] = {
    "delete": lambda lines, a, _: lines[:a] + lines[a + 1 :],
    "duplicate": lambda lines, a, b: [*lines[:b], lines[a], *lines[b:]],
    "swap": lambda lines, a, b: [
        lines[b] if n == a else lines[a] if n == b else line for n, line in enumerate(lines)
    ],
    "insert": lambda lines, a, _: [*lines[:a], b'{"index":3}\n', *lines[a:]],
    "blank": lambda lines, a, _: [*lines[:a], b"\n", *lines[a:]],
    "overwrite": lambda lines, a, b: [lines[b] if n == a else line for n, line in enumerate(lines)],
    "truncate": lambda lines, a, _: [*lines[:a], lines[a][: len(lines[a]) // 2]],
    "reverse": lambda lines, a, b: lines[:a] + lines[a : b + 1][::-1] + lines[b + 1 :],
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mutation_under_a_checkpoint_is_found(scratch: Path, data: st.DataObject) -> None:
    paths = [*(segment(scratch, number) for number in range(3)), scratch / "audit" / "checkpoint"]
    path = data.draw(st.sampled_from(paths))
    before = path.read_bytes()
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "replace", *LINE_EDITS]))
    lines = before.splitlines(keepends=True)
    a, b = sorted((data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(lines) - 1))))
    place = data.draw(st.integers(0, len(before) - 1))
    if kind == "flip":
        after = bytearray(before)
        after[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        after = bytearray(before[:place])
    elif kind == "grow":
        after = bytearray(before[:place] + data.draw(st.binary(min_size=1, max_size=40)) + before[place:])
    elif kind == "replace":
        after = bytearray(data.draw(st.sampled_from(paths)).read_bytes())
    else:
        after = bytearray(b"".join(LINE_EDITS[kind](lines, a, b)) if kind in LINE_EDITS else b"")
    if after == before:
        return
    try:
        if kind == "remove":
            path.unlink()
        else:
            path.write_bytes(after)
        report = verify(scratch)
        assert report.findings, (kind, path.name)
    finally:
        path.write_bytes(before)
