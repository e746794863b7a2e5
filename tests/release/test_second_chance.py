"""A test that fails only on a busy machine passes alone; one that always fails stays red."""

import json
from pathlib import Path

import pytest

from tests.second_chance import AT_MOST, failed_in, is_for_tests, run_again

FAILED = ("test_these.py::test_now_and_then[1]", "test_these.py::test_always")
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_now_and_then(number):
    assert number == 1  # 0 did not fail before

def test_always():
    assert {always}
"""


def failed_before(folder: Path, always: bool) -> Path:
    """A project whose last run failed, and the cache of that run."""
    kept = folder / "cache" / "v" / "cache" / "lastfailed"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(dict.fromkeys(FAILED, True)))
    (folder / "pytest.ini").touch()
    (folder / "test_these.py").write_text(TESTS.format(always=always))
    return folder / "cache"


def test_the_second_result_counts_if_each_has_one_in_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:schemathesis -p no:hypothesispytest")
    assert run_again(failed_before(tmp_path, always=True), 60, tmp_path)
    assert f"failed beside others, passed alone: {FAILED[1]}" in capfd.readouterr().out
    assert not run_again(failed_before(tmp_path, always=False), 60, tmp_path)
    said = capfd.readouterr().out
    assert f"failed beside others, passed alone: {FAILED[0]}" in said
    assert f"failed beside others, failed alone: {FAILED[1]}" in said
    assert not run_again(failed_before(tmp_path, always=True), 0.001, tmp_path)
    cache = failed_before(tmp_path, always=True)
    (tmp_path / "test_these.py").write_text("def test_always(): pass")
    assert not run_again(cache, 60, tmp_path)
    assert f"failed beside others, failed alone: {FAILED[0]}" in capfd.readouterr().out


def test_many_failures_and_failed_collection_have_no_second_chance(tmp_path: Path) -> None:
    assert is_for_tests(["test_a.py::test_b"] * AT_MOST)
    assert not is_for_tests(["test_a.py::test_b"] * (AT_MOST + 1))
    assert not is_for_tests(["test_a.py", "test_b.py::test_c"])
    assert not is_for_tests(failed_in(tmp_path))
