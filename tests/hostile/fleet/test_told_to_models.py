"""What a model may not learn of the machines of a fleet."""

import asyncio
from pathlib import Path

import pytest

from tests.fleet.running import keep_of
from toolkeep import Code
from toolkeep.config.fleet_settings import FleetSettings, NatsSettings
from toolkeep.fleet.fleet_runner import FleetRunner
from toolkeep.fleet.identity import load_key

pytestmark = pytest.mark.spec("SCL-4")


@pytest.mark.parametrize("fault", ["others may read it", "it holds no key"])
def test_a_model_does_not_read_where_the_key_of_its_server_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """The operator does: in the log."""
    path = tmp_path / "fleet.key"
    load_key(path)
    if fault == "others may read it":
        path.chmod(0o644)
    else:
        path.write_bytes(b"short")
    settings = FleetSettings(nats=NatsSettings(servers=("nats://127.0.0.1:1",)), runs_on={"shout": ""})

    async def main() -> None:
        async with keep_of(
            fleet=lambda grant_of: FleetRunner(settings, lambda: load_key(path), str(tmp_path), grant_of)
        ) as keep:
            result = await keep.call("shout", {"text": "hi"})
            assert result.code is Code.STATE_UNUSABLE
            for text in (result.text, repr(result.to_dict())):
                assert str(tmp_path) not in text
                assert path.name not in text

    asyncio.run(main())
    (told,) = [one for one in caplog.records if one.message == "workers cannot be reached"]
    assert str(path) in told.reason  # type: ignore[attr-defined]
