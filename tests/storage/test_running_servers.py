"""Servers of a state folder: listed while they run, and believed only in a private folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolkeep.errors import StateUnusable
from toolkeep.storage.running_servers import announced, running_servers

KILLED = """
import os, sys
from pathlib import Path
from toolkeep.storage.running_servers import announced
served = announced(Path(sys.argv[1]), "http://127.0.0.1:1")
served.__enter__()
os._exit(9)
"""


def test_a_server_is_listed_while_it_serves(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert running_servers(state) == []
    with announced(state, "http://127.0.0.1:9000"):
        assert running_servers(state) == ["http://127.0.0.1:9000"]
    assert running_servers(state) == []


def test_a_server_that_was_killed_is_not_listed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    subprocess.run([sys.executable, "-c", KILLED, state], check=False)
    assert list((state / "servers").iterdir())
    assert running_servers(state) == []


def test_no_address_is_taken_from_a_folder_that_others_may_write(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with announced(state, "http://127.0.0.1:9000"):
        state.chmod(0o777)
        with pytest.raises(StateUnusable, match="open to other users"):
            running_servers(state)
        state.chmod(0o700)
