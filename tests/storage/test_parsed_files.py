"""A configuration file is parsed once, and says the same afterwards, at the same positions."""

from pathlib import Path
from typing import Any

import pytest

from toolkeep.errors import FileUnreadable
from toolkeep.json_values.yaml import read_yaml
from toolkeep.storage import parsed_files
from toolkeep.storage.parsed_files import parse_once

RAW = b"""\
a: &anchor {whole: 1, ratio: 1.0, huge: 123456789012345678901234567890, none: ~, yes: true}
b: [*anchor, "${X}", 'text', "\\u00e9 \\U0001f600"]
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


def parsed(state: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes = RAW) -> tuple[Any, list[bytes]]:
    """The document in another process, and what it had to parse before its data was there."""
    parse_once.cache_clear()
    seen: list[bytes] = []

    def read(raw: bytes, path: str) -> Any:
        seen.append(raw)
        return read_yaml(raw, path)

    monkeypatch.setattr(parsed_files, "read_yaml", read)
    return parse_once(state, raw, "config.yml"), seen


def test_a_file_that_was_parsed_before_is_the_same(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold, read_cold = parsed(state, monkeypatch)
    warm, read_warm = parsed(state, monkeypatch)
    assert (read_cold, read_warm) == ([RAW], [])
    assert repr(warm.data) == repr(cold.data)
    for pointer in ("", "/a", "/a/huge", "/b/0/ratio", "/b/1", "/c"):
        assert warm.place(pointer) == cold.place(pointer)
        assert warm.key_place(pointer) == cold.key_place(pointer)
        assert warm.is_plain(pointer) is cold.is_plain(pointer)


@pytest.mark.parametrize("changed", ["content", "version", "garbage", "open", "no state"])
def test_it_is_parsed_again_after_a_change(
    changed: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed(state, monkeypatch)
    raw = RAW + b"c: 3\n" if changed == "content" else RAW
    (kept,) = (state / "parsed").iterdir()
    match changed:
        case "version":
            monkeypatch.setattr("toolkeep.__version__", "99.0.0")
        case "garbage":
            kept.write_bytes(kept.read_bytes()[:-1])
        case "open":
            kept.chmod(0o644)
        case "no state":
            state = state / "missing"
    document, read = parsed(state, monkeypatch, raw)
    assert (document.data, read) == (read_yaml(raw, "").data, [raw])
    assert (state / "parsed").exists() is (changed != "no state")


def test_a_file_that_cannot_be_read_is_refused_each_time(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with pytest.raises(FileUnreadable):
            parsed(state, monkeypatch, b"a: 1\na: 2\n")
    assert not (state / "parsed").exists()
