"""`toolkeep worker` and `toolkeep fleet`: what the options say over the configuration, and the keys."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.plainly import data, run
from toolkeep.cli import fleet, worker
from toolkeep.config.fleet_settings import NatsSettings, TrustedServer, TrustedWorker, WorkerSettings
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.worker_status import WorkerStatus, status_of
from toolkeep.keep.keep import Keep

pytestmark = pytest.mark.spec("SCL-3")

KEYS = [PrivateKey(bytes([number]) * 32).public.text for number in (1, 2)]
CONFIGURED = f"""
worker:
  nats: {{servers: "nats://configured:4222", replicas: 3}}
  labels: [cpu]
  slots: 7
  servers:
    - {{key: "{KEYS[0]}", name: main, tools: [shout]}}
"""
MAIN = TrustedServer(key=KEYS[0], name="main", tools=("shout",))
NATS = NatsSettings(servers=("nats://configured:4222",), replicas=3)


@pytest.fixture(autouse=True)
def _configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own configuration, which needs no acceptance."""
    monkeypatch.chdir(tmp_path)
    file = Path.home() / ".agent" / "config.yml"
    file.parent.mkdir()
    file.write_text(CONFIGURED)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[WorkerSettings, PrivateKey]]:
    """With what the worker would serve."""
    seen: list[tuple[WorkerSettings, PrivateKey]] = []

    async def serve(keep: Keep, settings: WorkerSettings, key: PrivateKey) -> None:
        seen.append((settings, key))

    monkeypatch.setattr(worker, "_serve", serve)
    return seen


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), WorkerSettings(nats=NATS, servers=(MAIN,), labels=("cpu",), slots=7)),
        (
            (
                *("--nats", "tls://one:4222", "--nats", "tls://two:4222", "--label", "gpu", "--label", "big"),
                *("--slots", "2", "--trust", KEYS[0], "--trust", KEYS[1]),
            ),
            WorkerSettings(
                nats=NatsSettings(servers=("tls://one:4222", "tls://two:4222"), replicas=3),
                # What the configuration says of a server still bounds it.
                servers=(MAIN, TrustedServer(key=KEYS[1])),
                labels=("gpu", "big"),
                slots=2,
            ),
        ),
    ],
)
def test_options_go_over_the_configuration(
    served: list[tuple[WorkerSettings, PrivateKey]], options: Sequence[str], settings: WorkerSettings
) -> None:
    told = run("worker", *options)
    ((found, key),) = served
    assert found == settings
    assert key.public.text in told.output


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--trust", KEYS[0]), "no address of NATS is known"),
        (("--nats", "nats://one:4222"), "no server is trusted"),
    ],
)
def test_a_worker_needs_an_address_and_a_server(options: Sequence[str], missing: str) -> None:
    (Path.home() / ".agent" / "config.yml").unlink()
    told = run("worker", *options, status=1).stderr
    assert "ACODE-TSR-0" in told
    assert missing in told


def test_a_worker_says_that_its_configuration_is_not_in_effect(tmp_path: Path) -> None:
    (Path.home() / ".agent" / "config.yml").unlink()
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text(CONFIGURED)
    told = run("worker", status=1).stderr
    assert "no address of NATS is known" in told
    assert "toolkeep accept" in told


@pytest.mark.parametrize("words", [("worker", "--show-key"), ("fleet", "key")])
def test_a_key_is_shown_with_its_subject_and_stays(words: Sequence[str]) -> None:
    shown = data(*words)
    assert shown == {"key": shown["key"], "subject": PublicKey.read(shown["key"]).token}
    assert run(*words).stdout == f"{shown['key']}\n"


def test_the_status_of_workers_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (TrustedWorker(name=name, key=key) for name, key in zip(("one", "two"), KEYS, strict=True))
    ready = WorkerStatus(
        name="one", key=one.key, state="ready", labels=("gpu",), levels=("strict",), tools=("shout",),
        slots=4, free=3, version="0.1.0", seen_s=0.6,
    )  # fmt: skip

    async def status(*_: object) -> tuple[WorkerStatus, ...]:
        return ready, status_of(two, None, "")

    monkeypatch.setattr(fleet, "_status", status)
    with (Path.home() / ".agent" / "config.yml").open("a") as file:
        file.write('fleet: {nats: {servers: "nats://configured:4222"}}\n')
    rows = [
        [cell.strip() for cell in row.split("  ") if cell]
        for row in run("fleet", "status").stdout.splitlines()
    ]
    assert rows == [
        ["NAME", "STATE", "FREE", "LABELS", "LEVELS", "VERSION", "SEEN", "TOOLS", "WHY"],
        ["one", "ready", "3 of 4", "gpu", "strict", "0.1.0", "1 s ago", "1"],
        ["two", "not seen", "never", "it has not announced itself: start toolkeep worker there"],
    ]
