"""Events reach a webhook, and nothing else does (STO-2). The scenarios run in an internet of their own."""

import pytest

from tests.network.inside import webhooks
from tests.network.world import run_inside, scenarios
from toolkeep.config.schema import WEBHOOK_EVENTS
from toolkeep.telemetry.webhook import TYPES, Webhook, signing_key

pytestmark = pytest.mark.spec("STO-2")


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(webhooks)


@pytest.mark.parametrize("name", scenarios(webhooks))
def test_scenario(name: str, results: dict[str, str]) -> None:
    assert results[name] == ""


def test_the_configuration_knows_the_events_that_can_be_posted() -> None:
    assert set(WEBHOOK_EVENTS) == TYPES.keys()


@pytest.mark.parametrize("url", ["http://hook.example/", "ftp://hook.example/"])
def test_a_webhook_goes_over_tls(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        Webhook(url, "x" * 30, source="/")


def test_a_secret_is_read_as_standard_webhooks_writes_it() -> None:
    assert signing_key("whsec_MTIzNA==") == b"1234"
    assert signing_key("whsec_not base64") == b"whsec_not base64"
    assert signing_key("plain") == b"plain"
