"""Where a tool runs, as its definition and the configuration say."""

import asyncio

import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import Server, made_worker, new_key, running, trusted
from toolkeep import Code, Keep, tool
from toolkeep.config.fleet_settings import TrustedWorker

pytestmark = pytest.mark.spec("SCL-3")


@tool(constraints={"required_isolation": "strict", "runs_on": "gpu"}, side_effects=["None"])
def render(text: str) -> str:
    """Make a picture."""
    return text.upper()


def test_a_definition_sends_its_tool_to_workers_and_the_configuration_goes_over_it(nats: NatsServer) -> None:
    async def main() -> None:
        key, one, other = new_key(), new_key(), new_key()
        plain, gpu = trusted(one, "plain"), trusted(other, "gpu", labels=("gpu",))
        workers = (
            made_worker(nats, one, [key], tools=[render]),
            made_worker(nats, other, [key], tools=[render], labels=("gpu",)),
        )
        cases: list[tuple[dict[str, str | None], list[TrustedWorker], list[str]]] = [
            ({}, [plain, gpu], ["gpu"]),
            ({"render": None}, [plain, gpu], []),
            ({"render": ""}, [plain], ["plain"]),
        ]
        async with running(*workers):
            for runs_on, known, ran in cases:
                async with Server(nats, key, known, tools=[render], runs_on=runs_on) as server:
                    assert (await server.call("render", {"text": "a"})).value == "A"
                    assert [one["worker"] for one in server.said("RanElsewhere")] == ran

    asyncio.run(main())


def test_a_tool_of_workers_does_not_run_where_none_are_configured() -> None:
    with Keep() as keep:
        keep.register(render)
        assert keep.call_sync("render", {"text": "a"}).code is Code.WORKER_UNAVAILABLE


def test_a_definition_that_does_not_say_where_it_runs_has_the_same_data_as_before() -> None:
    assert render.definition.to_dict()["constraints"] == {"required_isolation": "strict", "runs_on": "gpu"}
    here = render.definition.replace(constraints=render.definition.constraints.__class__())
    assert "constraints" not in here.to_dict()
