"""Connections to a real NATS: nkeys with the permissions that the docs name, and addresses that demand TLS."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import nkeys  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from tests.conftest import ROOT
from tests.fleet.fleet_tools import shout
from tests.fleet.nats_server import NatsServer
from tests.fleet.running import Server, made_worker, new_key, running, trusted, until
from toolkeep.config.fleet_settings import NatsSettings
from toolkeep.errors import FleetUnavailable
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.nats_link import NatsLink

pytestmark = pytest.mark.spec("SCL-3", "SCL-4")

LARGE = "é" * 500_000


class NatsWithFiles(NatsServer):
    """A NATS whose users have credentials in files."""

    def __init__(self, config: Path, users: dict[str, NatsSettings], store: Path | None = None) -> None:
        super().__init__("-c", str(config), store=store)
        self.users = users

    def settings(self, user: str = "") -> NatsSettings:
        """How a user reaches it."""
        return replace(self.users[user], servers=(self.url,))


def new_nkey(file: Path) -> str:
    """A new nkey, whose seed is in the file; its public part."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    file.write_bytes(seed)
    return str(nkeys.from_seed(bytearray(seed)).public_key.decode())


def documented(server: PrivateKey, worker: PrivateKey, *users: str) -> str:
    """The permissions in docs/fleet.md, for these keys and the nkeys of these users."""
    page = (ROOT / "docs" / "fleet.md").read_text()
    found = re.search(r"^(authorization: \{.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert found is not None
    block = found[1].replace("SERVER", server.public.token).replace("WORKER", worker.public.token)
    for user in users:
        block = block.replace("U…", user, 1)
    assert "…" not in block
    return block


async def violations(
    settings: NatsSettings, publish: tuple[str, ...], subscribe: tuple[str, ...]
) -> set[str]:
    """What NATS says to a user who tries these subjects."""
    said: set[str] = set()

    async def hear(error: Exception) -> None:
        said.update(re.findall(r'permissions violation for (.* to ".*")', str(error)))

    client = Client()
    await client.connect(list(settings.servers), nkeys_seed=settings.nkey_file, error_cb=hear)
    try:
        for subject in publish:
            await client.publish(subject, b"x")
        for subject in subscribe:
            await client.subscribe(subject)
        await until(lambda: len(said) == len(publish) + len(subscribe))
    finally:
        await client.close()
    return said


async def shouted(nats: NatsServer, key: PrivateKey, worker: PrivateKey, *texts: str) -> None:
    """Calls through one worker."""
    server = Server(nats, key, [trusted(worker)], user="server", tools=(shout,), runs_on={"shout": ""})
    async with server, running(made_worker(nats, worker, [key], user="worker", tools=(shout,))):
        for text in texts:
            assert (await server.call("shout", {"text": text})).value == text.upper()
        assert len(server.said("RanElsewhere")) == len(texts)


@contextlib.contextmanager
def started(nats: NatsWithFiles) -> Iterator[NatsWithFiles]:
    """For as long as the block lasts."""
    nats.start_first()
    try:
        yield nats
    finally:
        nats.kill()


def test_nkeys_with_the_documented_permissions_are_enough_for_calls_and_nothing_else(tmp_path: Path) -> None:
    key, worker, other = new_key(), new_key(), new_key().public.token
    files = {name: tmp_path / f"{name}.nk" for name in ("server", "worker", "stranger")}
    public = {name: new_nkey(file) for name, file in files.items()}
    config = tmp_path / "nats.conf"
    config.write_text(documented(key, worker, public["server"], public["worker"]))
    users = {name: NatsSettings(nkey_file=str(file)) for name, file in files.items()}
    here, there = key.public.token, worker.public.token
    denied = {
        "server": {
            "publish": (f"tk.v1.hb.{there}", f"tk.v1.ans.{here}.x.{there}"),
            "subscription": (f"tk.v1.ans.{other}.>", "tk.v1.job.*", ">"),
        },
        "worker": {
            "publish": (f"tk.v1.job.{there}", f"tk.v1.hb.{other}", f"tk.v1.ans.{here}.x.{other}"),
            "subscription": (f"tk.v1.job.{other}", "tk.v1.ans.>", "tk.v1.hb.*", ">"),
        },
    }

    async def main(nats: NatsServer) -> None:
        await shouted(nats, key, worker, "hi", LARGE)
        for user, tried in denied.items():
            wanted = {f'{what} to "{subject}"' for what, subjects in tried.items() for subject in subjects}
            assert await violations(nats.settings(user), tried["publish"], tried["subscription"]) == wanted
        with pytest.raises(FleetUnavailable):
            await NatsLink(nats.settings("stranger"), "stranger").connect()

    with started(NatsWithFiles(config, users, tmp_path / "jetstream")) as nats:
        asyncio.run(main(nats))


def test_an_address_of_tls_gives_nothing_to_a_nats_without(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sits between could say that no TLS is needed, and would have the password."""
    monkeypatch.setattr("toolkeep.fleet.nats_link._CONNECT_SECONDS", 1)
    plain = nats.settings("server")
    demanded = replace(plain, servers=(nats.url.replace("nats:", "tls:"),))

    async def main() -> None:
        link = NatsLink(plain, "plain")
        await link.connect()
        assert link.is_connected
        await link.close()
        with pytest.raises(FleetUnavailable):
            await NatsLink(demanded, "demanded").connect()

    asyncio.run(main())
