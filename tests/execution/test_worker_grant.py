"""What a worker is granted."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolkeep.execution import worker_grant


def test_a_program_that_was_replaced_is_another(tmp_path: Path) -> None:
    """Rules hold the file: what waits with those of before could not start the new one."""
    for name in ("program", "newer"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    tool = worker_grant.Tool(programs=(os.path.realpath(tmp_path / "program"),))
    before = worker_grant.grant_for_scopes((), tool)
    assert worker_grant.grant_for_scopes((), tool) == before
    (tmp_path / "newer").replace(tmp_path / "program")
    assert worker_grant.grant_for_scopes((), tool).grant == before.grant
    assert worker_grant.grant_for_scopes((), tool) != before


def test_no_journal_is_made_where_a_link_leads(tmp_path: Path) -> None:
    """A tool may put a link in the place of a folder, after its call was checked."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.db").touch()
    (tmp_path / "data").symlink_to(tmp_path / "elsewhere")
    database = str(tmp_path / "data" / "a.db")
    with pytest.raises(NotADirectoryError):
        worker_grant._make_like(database, str(tmp_path / "data"), "a.db-wal")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["a.db"]


# --- what no tool may see ---------------------------------------------------------------------------


@pytest.mark.spec("POL-7")
@pytest.mark.parametrize(
    ("folder", "is_refused"),
    [("above", True), ("above/state", False), ("above/stat", False), ("other", False)],
)
def test_a_folder_that_holds_the_state_is_refused_where_it_cannot_be_hidden(
    folder: str, is_refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "above" / "state").mkdir(parents=True)
    one = SimpleNamespace(shown=str(tmp_path / folder), root_path=str(tmp_path))
    call: Any = SimpleNamespace(touched=(one,))
    expected = (
        pytest.raises(ValueError, match="contains the state") if is_refused else contextlib.nullcontext()
    )
    with expected:
        worker_grant.check_hidden(call, str(tmp_path / "above" / "state"))
