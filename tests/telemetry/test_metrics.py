"""Prometheus metrics: the seeds' names, bounded labels, and files of others that know them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import transfer
from toolkeep import Keep
from toolkeep.events import CallEnded
from toolkeep.server.app_factory import start_metrics

ROOT = Path(__file__).resolve().parent.parent.parent
VALID = {"account": "a", "amount": 1}


def values(metrics: Any) -> dict[tuple[str, ...], float]:
    """Samples by name and labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_created", "_bucket", "_sum")):
                labels = sorted(sample.labels.items(), key=lambda label: label[0] != "tool_name")
                found[(sample.name, *(value for _, value in labels))] = sample.value
    return found


@pytest.fixture
def keep() -> Keep:
    keep = Keep()
    keep.register(transfer)
    return keep


@pytest.mark.spec("OBS-1")
def test_calls_and_checks_are_counted_by_tool_and_outcome(keep: Keep) -> None:
    metrics = start_metrics(keep)
    keep.call_sync("transfer", VALID)
    keep.try_validate_arguments("transfer", VALID)
    keep.call_sync("transfer", {"account": 1})
    found = values(metrics)
    assert found[("acode_tool_registrations_total", "transfer")] == 1
    assert found[("acode_tool_registry_size",)] == 1
    assert found[("acode_tool_validations_total", "transfer", "success")] == 2
    assert found[("acode_tool_validations_total", "transfer", "failure")] == 1
    assert found[("acode_tool_validation_seconds_count", "transfer")] == 2
    assert found[("acode_tool_validation_errors_total", "transfer", "ACODE-TSR-003")] == 1
    assert found[("acode_tool_validation_errors_total", "transfer", "ACODE-TSR-004")] == 1
    assert found[("toolkeep_calls_total", "transfer", "ok")] == 1
    assert found[("toolkeep_calls_total", "transfer", "error")] == 1
    assert found[("toolkeep_call_seconds_count", "transfer")] == 2
    assert found[("toolkeep_call_errors_total", "transfer", "ACODE-TSR-004")] == 1


@pytest.mark.spec("OBS-1")
def test_what_a_model_invents_is_no_label(keep: Keep) -> None:
    metrics = start_metrics(keep)
    for number in range(20):
        keep.call_sync(f"invented_{number}", {})
        keep.try_validate_arguments(f"invented_{number}", {})
    page = metrics.page().decode()
    assert "invented" not in page
    assert values(metrics)[("acode_tool_validations_total", "unknown", "failure")] == 40


def test_a_tool_that_is_gone_keeps_no_label(keep: Keep) -> None:
    metrics = start_metrics(keep)
    keep.call_sync("transfer", {"account": 1})
    keep.unregister("transfer")
    assert "transfer" not in metrics.page().decode()
    assert values(metrics)[("acode_tool_registry_size",)] == 0
    keep.register(transfer)
    keep.call_sync("transfer", VALID)
    assert values(metrics)[("toolkeep_calls_total", "transfer", "ok")] == 1


def test_nothing_is_timed_for_whoever_does_not_count(keep: Keep) -> None:
    assert not keep._bus.timed
    start_metrics(keep)
    assert keep._bus.timed


def exported(keep: Keep) -> set[str]:
    return {
        sample.name
        for family in text_string_to_metric_families(start_metrics(keep).page().decode())
        for sample in family.samples
    } | {
        "acode_tool_validation_errors_total",
        "toolkeep_call_errors_total",
        "toolkeep_worker_frames_refused_total",
        "toolkeep_worker_refusals_total",
    }


@pytest.mark.spec("OBS-1")
def test_the_dashboard_and_the_alerts_name_metrics_that_exist(keep: Keep) -> None:
    board = json.loads((ROOT / "observability" / "grafana.json").read_text())
    rules = yaml.safe_load((ROOT / "observability" / "alerts.yml").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    expressions += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    named = {name for text in expressions for name in re.findall(r"\b(?:acode|toolkeep)_[a-z_]+", text)}
    assert len(named) >= 8
    assert named <= exported(keep)


def test_the_alerts_watch_what_the_specification_wants() -> None:
    text = (ROOT / "observability" / "alerts.yml").read_text()
    assert "> 0.05" in text
    assert "> 0.5" in text


def test_an_event_of_a_tool_that_went_meanwhile_is_counted_as_unknown(keep: Keep) -> None:
    metrics = start_metrics(keep)
    ended = CallEnded(
        tool_name="ghost",
        agent="ada",
        status="error",
        error_code="ACODE-TSR-034",
        total_ms=1.0,
        correlation_id="c",
    )
    metrics(ended)
    assert "ghost" not in metrics.page().decode()
    assert values(metrics)[("toolkeep_call_errors_total", "unknown", "ACODE-TSR-034")] == 1
