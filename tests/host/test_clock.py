"""The time in the log is the time, in one form."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from toolkeep.host import clock


def test_the_time_is_now() -> None:
    said = datetime.fromisoformat(clock.now())
    assert abs(datetime.now(UTC) - said) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (1_763_212_395_396_999_999, "2025-11-15T13:13:15.396+00:00"),
        (1_763_212_395_004_000_000, "2025-11-15T13:13:15.004+00:00"),
        (1_763_212_396_000_000_000, "2025-11-15T13:13:16.000+00:00"),
        (1_763_212_395_999_999_999, "2025-11-15T13:13:15.999+00:00"),
    ],
)
def test_each_second_has_its_own_words(nanoseconds: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: nanoseconds)
    assert clock.now() == words


def test_every_time_has_the_same_form() -> None:
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
    assert all(form.fullmatch(clock.now()) for _ in range(1000))
