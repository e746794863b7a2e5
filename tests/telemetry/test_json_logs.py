"""Logs as lines of JSON."""

import json
import logging
from datetime import UTC, datetime

import pytest

from tests.conftest import transfer
from toolkeep import Keep
from toolkeep.telemetry.logs import JsonFormatter


@pytest.mark.spec("OBS-1")
def test_a_record_is_one_line_of_json_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    keep = Keep()
    with caplog.at_level(logging.INFO, "toolkeep"):
        keep.register(transfer)
        keep.call_sync("transfer", {"account": "a", "amount": 1}, correlation_id="c7")
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert not any("\n" in line for line in lines)
    data = [json.loads(line) for line in lines]
    (registered,) = [one for one in data if one["message"] == "tool registered"]
    assert (registered["tool_name"], registered["level"], registered["logger"]) == (
        "transfer",
        "info",
        "toolkeep.registry",
    )
    (ended,) = [one for one in data if one["message"] == "call ended"]
    assert (ended["status"], ended["correlation_id"]) == ("ok", "c7")
    assert ended["timestamp"].endswith("+00:00")


def test_times_have_one_form() -> None:
    at = datetime(2026, 11, 16, 2, 45, 54, 78125, UTC)
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, "said", (), None, extra={"at": at})
    assert json.loads(JsonFormatter().format(record))["at"] == "2026-11-16T02:45:54.078+00:00"


def test_an_exception_stays_on_its_line() -> None:
    error = ValueError("two\nlines")
    record = logging.getLogger("x").makeRecord(
        "x", logging.ERROR, "f", 1, "broken %s", ("it",), (ValueError, error, None)
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "broken it"
    assert "ValueError" in json.loads(line)["exception"]


def test_a_field_cannot_pass_for_one_of_ours() -> None:
    record = logging.getLogger("x").makeRecord(
        "x", logging.INFO, "f", 1, "said", (), None, extra={"level": "critical", "timestamp": "never"}
    )
    data = json.loads(JsonFormatter().format(record))
    assert (data["level"], data["timestamp"] == "never") == ("info", False)
