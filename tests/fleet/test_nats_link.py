"""Connections to a real NATS: nkeys with the permissions that the docs name, and addresses that demand TLS."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import nkeys  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from tests.conftest import ROOT
from tests.fleet.fleet_tools import shout
from tests.fleet.nats_server import NatsServer
from tests.fleet.running import PATIENCE, Server, made_worker, new_key, running, trusted, until
from tests.network.authority import Authority
from toolkeep.config.fleet_settings import NatsSettings
from toolkeep.errors import FleetUnavailable
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.nats_link import NatsLink, within

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


class Certificates:
    """An authority, whose certificates a NATS shows and demands."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._authority = Authority(folder)

    def nats(self, name: str = "127.0.0.1") -> NatsWithFiles:
        """One that shows a certificate for this name."""
        shown = self._authority.certificate([name])
        config = self._folder / f"{name}.conf"
        files = f'cert_file: "{shown}", key_file: "{shown}", ca_file: "{self._authority.file}"'
        config.write_text(f"tls {{ {files}, verify: true }}")
        return NatsWithFiles(config, {})

    def settings(self, *servers: NatsServer) -> NatsSettings:
        """How a client with a certificate reaches them."""
        addresses = tuple(one.url.replace("nats:", "tls:") for one in servers)
        own = str(self._authority.certificate(["client"]))
        return NatsSettings(
            servers=addresses, ca_file=str(self._authority.file), certificate_file=own, key_file=own
        )


def test_tls_connects_only_certificates_that_both_sides_trust(tmp_path: Path) -> None:
    ours, others = Certificates(tmp_path / "ours"), Certificates(tmp_path / "others")
    theirs = others.settings().certificate_file

    async def why_refused(settings: NatsSettings) -> str:
        link = NatsLink(settings, "refused")
        with pytest.raises(FleetUnavailable) as refused:
            await link.connect()
        assert not link.is_connected
        return refused.value.message

    async def main(here: NatsServer, elsewhere: NatsServer) -> None:
        mine = ours.settings(here)
        link = NatsLink(mine, "trusted")
        await link.connect()
        assert link.is_connected
        await link.close()
        wrong_host, wrong_authority, *_ = await asyncio.gather(
            why_refused(ours.settings(elsewhere)),
            why_refused(replace(mine, ca_file=others.settings().ca_file)),
            why_refused(replace(mine, certificate_file="", key_file="")),
            why_refused(replace(mine, certificate_file=theirs, key_file=theirs)),
        )
        assert "certificate is not valid for '127.0.0.1'" in wrong_host
        assert "unable to get local issuer certificate" in wrong_authority

    with started(ours.nats()) as here, started(ours.nats("elsewhere.example")) as elsewhere:
        asyncio.run(main(here, elsewhere))


def test_a_nats_with_a_wrong_certificate_keeps_nobody_from_the_next(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")

    async def main(*servers: NatsServer) -> None:
        for _ in range(4):  # nats-py begins with any of them
            link = NatsLink(certificates.settings(*servers), "any")
            await link.connect()
            await link.close()

    with started(certificates.nats()) as here, started(certificates.nats("elsewhere.example")) as elsewhere:
        asyncio.run(main(here, elsewhere))


def test_a_nats_that_falls_silent_under_tls_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say goodbye, for which asyncio would wait half a minute."""
    monkeypatch.setattr("toolkeep.fleet.nats_link._PING_SECONDS", 0.2)
    certificates = Certificates(tmp_path / "certificates")

    async def main(*servers: NatsWithFiles) -> None:
        link = NatsLink(certificates.settings(*servers), "patient")
        await link.connect()
        address = link._client.connected_url if link._client else None
        assert address is not None
        (silent,) = (one for one in servers if one.port == address.port)
        silent.send(signal.SIGSTOP)
        await until(lambda: not link.is_connected)
        await until(lambda: link.is_connected)
        silent.send(signal.SIGCONT)
        await link.close()

    with started(certificates.nats()) as one, started(certificates.nats()) as other:
        asyncio.run(main(one, other))


def test_a_connection_that_is_closed_is_not_said_to_be_lost(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        link = NatsLink(nats.settings(), "closed")
        await link.connect()
        await link.close()

    asyncio.run(main())
    assert "the connection to NATS is lost" not in caplog.messages


def test_work_that_loses_cancellations_ends_within_its_time_and_with_its_caller() -> None:
    async def deaf() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def main() -> None:
        late = asyncio.create_task(within(0.01, deaf()))
        await asyncio.wait({late}, timeout=PATIENCE)
        assert isinstance(late.exception(), TimeoutError)
        cancelled = asyncio.create_task(within(PATIENCE, deaf()))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait({cancelled}, timeout=PATIENCE)
        assert cancelled.cancelled()
        assert await within(PATIENCE, asyncio.sleep(0, "done")) == "done"

    asyncio.run(main())
