"""Where a tool runs, as its definition and the configuration say."""

import asyncio

import pytest

from tests.fleet.jetstream import Server, nats_server, new_key, running, trusted
from toolkeep import Code, Keep, tool
from toolkeep.config.fleet_settings import TrustedServer

pytestmark = pytest.mark.spec("SCL-3")


@tool(constraints={"required_isolation": "strict", "runs_on": "gpu"}, side_effects=["None"])
def render(text: str) -> str:
    """Make a picture."""
    return text.upper()


def test_a_definition_sends_its_tool_to_workers_and_the_configuration_goes_over_it() -> None:
    async def main() -> None:
        key, plain, gpu = new_key(), trusted("plain"), trusted("gpu", labels=("gpu",))
        known = TrustedServer(key=key.public.text)
        with nats_server() as nats:
            async with running(nats, plain, known, [render]), running(nats, gpu, known, [render]):
                for runs_on, workers, ran in (
                    ({}, [plain, gpu], ["gpu"]),
                    ({"render": None}, [plain, gpu], []),
                    ({"render": ""}, [plain], ["plain"]),
                ):
                    server = Server(nats, key, workers, [render], dict(runs_on))
                    async with server.keep:
                        assert (await server.call("render", {"text": "a"})).value == "A"
                        assert [one["worker"] for one in server.ran] == ran

    asyncio.run(main())


def test_a_tool_of_workers_does_not_run_where_none_are_configured() -> None:
    with Keep() as keep:
        keep.register(render)
        assert keep.call_sync("render", {"text": "a"}).code is Code.WORKER_UNAVAILABLE


def test_a_definition_that_does_not_say_where_it_runs_has_the_same_data_as_before() -> None:
    assert render.definition.to_dict()["constraints"] == {"required_isolation": "strict", "runs_on": "gpu"}
    here = render.definition.replace(constraints=render.definition.constraints.__class__())
    assert "constraints" not in here.to_dict()
