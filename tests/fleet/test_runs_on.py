"""Where a tool runs, as its definition and the configuration say."""

import asyncio

import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import Server, keep_of, made_worker, new_key, running, trusted
from toolkeep import Code, Keep, tool

pytestmark = pytest.mark.spec("SCL-3")


@tool(constraints={"required_isolation": "strict", "runs_on": "gpu"}, side_effects=["None"])
def render(text: str) -> str:
    """Make a picture."""
    return text.upper()


def test_a_definition_sends_its_tool_to_workers_and_the_configuration_goes_over_it(nats: NatsServer) -> None:
    async def main() -> None:
        key, plain, gpu = new_key(), new_key(), new_key()
        known = [trusted(plain, "plain"), trusted(gpu, "gpu", labels=("gpu",))]
        workers = [
            made_worker(nats, plain, [key], keep=keep_of(tools=[render])),
            made_worker(nats, gpu, [key], keep=keep_of(tools=[render]), labels=("gpu",)),
        ]
        async with running(*workers):
            async with Server(nats, key, known, runs_on={}, tools=[render]) as server:
                assert (await server.call("render", {"text": "a"})).value == "A"
                assert [one["worker"] for one in server.said("RanElsewhere")] == ["gpu"]
            async with Server(nats, key, known, runs_on={"render": None}, tools=[render]) as server:
                assert (await server.call("render", {"text": "a"})).value == "A"
                assert server.said("RanElsewhere") == []
            async with Server(nats, key, known[:1], runs_on={"render": ""}, tools=[render]) as server:
                assert (await server.call("render", {"text": "a"})).value == "A"
                assert [one["worker"] for one in server.said("RanElsewhere")] == ["plain"]

    asyncio.run(main())


def test_a_tool_of_workers_does_not_run_where_none_are_configured() -> None:
    with Keep() as keep:
        keep.register(render)
        assert keep.call_sync("render", {"text": "a"}).code is Code.WORKER_UNAVAILABLE


def test_a_definition_that_does_not_say_where_it_runs_has_the_same_data_as_before() -> None:
    assert render.definition.to_dict()["constraints"] == {"required_isolation": "strict", "runs_on": "gpu"}
    here = render.definition.replace(constraints=render.definition.constraints.__class__())
    assert "constraints" not in here.to_dict()
