"""Short rounds of the soaks with more than one server (SCL-2)."""

import pytest

from tests.server import many_servers, withdrawals
from tests.server.many_servers import Plan

pytestmark = pytest.mark.spec("SCL-2")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TOOLKEEP_HOME"):
        monkeypatch.setenv(name, "/nonexistent")  # put back afterwards: the soaks set them


def test_servers_keep_every_promise_while_one_is_killed_and_the_database_fails_over() -> None:
    many_servers.soak(Plan(seconds=12, killed_every_s=5, failovers=1, posts=1))


def test_withdrawals_count_on_the_other_server() -> None:
    withdrawals.soak(2)
