"""A short soak: processes that call tools are killed, and every promise holds."""

import pytest

from tests.calls.kills import soak


@pytest.mark.spec("AUD-3")
@pytest.mark.parametrize("processes", [1, 3])
def test_killed_processes_break_no_promise(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TOOLKEEP_HOME"):
        monkeypatch.setenv(name, "/nonexistent")  # put back afterwards: the soak sets them
    assert soak(3, processes, seed=7).endswith("all promises kept")
