"""A worker as a process of its own, as `toolkeep worker` runs it, with the tools of the tests."""

import asyncio
import sys

from tests.fleet.running import keep_of
from toolkeep.cli.worker import _serve
from toolkeep.config.fleet_settings import NatsSettings, TrustedServer, WorkerSettings
from toolkeep.definitions.capability import Capability
from toolkeep.fleet.identity import PrivateKey


def main(url: str, seed: str, server: str, folder: str, *labels: str) -> None:
    """Serve one server, which may write into one folder."""
    trusted = TrustedServer(key=server, capabilities=(Capability("fs.write", folder),))
    settings = WorkerSettings(nats=NatsSettings(servers=(url,)), servers=(trusted,), labels=labels, slots=4)
    with keep_of() as keep:
        asyncio.run(_serve(keep, settings, PrivateKey(bytes.fromhex(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])
