"""The JSON parser suite: every n_ is refused, every y_ parses but the two with duplicate keys."""

from pathlib import Path

import pytest

from toolkeep.validation.parse import NotStrictJson, parse_json

pytestmark = pytest.mark.spec("VAL-2")


def verdicts(shared_data: Path, prefix: str) -> dict[str, bool]:
    files = sorted((shared_data / "json-test-suite" / "test_parsing").glob(f"{prefix}_*.json"))
    assert files
    return {path.name: parses(path.read_bytes()) for path in files}


def parses(raw: bytes) -> bool:
    try:
        parse_json(raw)
    except NotStrictJson as reason:
        assert reason.reason
        assert reason.fix
        return False
    return True


def test_every_text_that_must_not_parse_is_refused(shared_data: Path) -> None:
    assert [name for name, parsed in verdicts(shared_data, "n").items() if parsed] == []


def test_every_text_that_must_parse_does_but_for_duplicate_keys(shared_data: Path) -> None:
    refused = [name for name, parsed in verdicts(shared_data, "y").items() if not parsed]
    assert refused == ["y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"]


def test_texts_that_may_go_either_way_never_crash(shared_data: Path) -> None:
    assert len(verdicts(shared_data, "i")) > 30
