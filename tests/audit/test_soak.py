"""A short soak: the long one is `python -m tests.audit.soak`."""

from pathlib import Path

import pytest

from tests.audit.soak import soak

pytestmark = pytest.mark.spec("AUD-3", "AUD-6")


@pytest.mark.parametrize("processes", [1, 4])
def test_killing_writers_loses_nothing_that_was_acknowledged(tmp_path: Path, processes: int) -> None:
    tally = soak(tmp_path, kills=6, processes=processes, seed=processes)
    assert tally.failures == []
    assert tally.kills >= 6
    assert tally.acknowledged > 0
