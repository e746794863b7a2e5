"""The document and the behaviour: schemathesis reads the one and tries the other."""

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.server.conftest import open_served_keep
from tests.server.running import Running, running
from toolkeep.server.api.routes import whole_document

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries that are only loaded here
    import schemathesis

# A body that is too long, too, is data that was rejected.
EXAMPLES = int(os.environ.get("EXAMPLES", "2"))
"""Tried for each route; `scripts/soak` tries many."""
REJECTED = {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}
CONFIG = schemathesis.Config.from_dict({"checks": REJECTED})
SCHEMA = schemathesis.openapi.from_dict(whole_document(), config=CONFIG)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with open_served_keep() as keep, running(keep) as server:
        yield server


@pytest.fixture(scope="module")
def token(server: Running) -> str:
    return server.token()


# What is valid by the document may still not fit how things are: a cursor that is none of ours, arguments.
EXCLUDED = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@pytest.mark.spec("WEB-1")
def test_every_answer_is_documented_and_none_is_a_server_error(
    case: Any, server: Running, token: str
) -> None:
    names = case.path_parameters or {}
    is_positive = case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE
    if is_positive and "name" in names and len(str(names["name"])) % 2:
        names["name"] = "add"  # else no tool would ever be met
    headers = {"Authorization": f"Bearer {token}"}
    case.call_and_validate(base_url=server.url, headers=headers, excluded_checks=EXCLUDED, timeout=20)
