"""A server that wants input is told no, and nothing is made up."""

import asyncio
from typing import Any

import pytest

from toolkeep.mcp_client.client import input_responses
from toolkeep.mcp_client.transport import UpstreamFailed

ASK = {"method": "elicitation/create", "params": {"message": "Your password?"}}


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"content": []}, None),
        ({"resultType": "complete"}, None),
        ({"inputRequests": {"a": ASK}}, {"inputResponses": {"a": {"action": "decline"}}}),
        ({"inputRequests": {"a": ASK}, "requestState": " s "}, {"inputResponses": {"a": {"action": "decline"}}, "requestState": " s "}),
        ({"inputRequests": {"r": {"method": "roots/list"}}}, {"inputResponses": {"r": {"roots": []}}}),
        ({"requestState": "s"}, {"requestState": "s"}),
        ({"inputRequests": {}}, {"inputResponses": {}}),
    ],
)  # fmt: skip
def test_wishes_are_declined(said: dict[str, Any], answer: dict[str, Any] | None) -> None:
    wished = said if "content" in said or "resultType" in said else {**said, "resultType": "input_required"}
    assert asyncio.run(input_responses(wished)) == answer


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"inputRequests": [ASK]},
        {"inputRequests": {"a": {"method": "sampling/createMessage"}}},
        {"inputRequests": {"a": ASK, "b": "x"}},
        {"inputRequests": {str(n): ASK for n in range(21)}},
        {"inputRequests": {"a": ASK}, "requestState": {"a": 1}},
        {"requestState": "x" * 70_000},
    ],
)
def test_what_cannot_be_declined_ends_the_call(said: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        asyncio.run(input_responses({**said, "resultType": "input_required"}))
    assert not failed.value.is_over
