"""The key of servers that share a database."""

from pathlib import Path

import pytest

from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import StoreUnavailable
from toolkeep.storage.postgres.shared_state import row_key

URL = "postgresql://keep@127.0.0.1/keep"
KEY = "the same on all of these servers"


def test_the_servers_key_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    written = DatabaseSettings(url=URL, key=KEY)
    read = DatabaseSettings(url=URL, key_file=str(tmp_path / "key"))
    macs = [row_key(settings, lambda: b"own").mac("kind", "text") for settings in (written, read)]
    assert macs[0] == macs[1]


@pytest.mark.parametrize("content", [None, "", "short"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    with pytest.raises(StoreUnavailable):
        row_key(DatabaseSettings(url=URL, key_file=str(tmp_path / "key")), lambda: b"own")
