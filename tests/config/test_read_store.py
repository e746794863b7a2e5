"""Where a file puts definitions and events: accepted by a person first, and its secrets shown to nobody."""

from pathlib import Path

import pytest

from tests.config.projects import accept, changes, configure, project_file, settings_of
from toolkeep import open_keep
from toolkeep.config.settings import DatabaseSettings, EventWebhook
from toolkeep.errors import ConfigurationInvalid, StoreUnavailable
from toolkeep.keep.open import open_tokens

STORE = "database: {url: 'postgresql://keep:hunter2@127.0.0.1:1/keep?sslmode=disable', single: true}\n"
WEBHOOK = """\
events:
  webhook: {url: 'https://hooks.example.org/in', secret: '${HOOK_SECRET:-a secret of enough letters}'}
"""
KEY = "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FLEET = f"""\
fleet:
  nats: {{servers: 'nats://127.0.0.1:1', user: keep, password: hunter2}}
  runs_on: {{deploy: gpu}}
  workers:
    - {{name: one, key: '{KEY}', labels: [gpu], levels: [strict]}}
    - {{name: two, key: '{KEY}', tools: [grep, read_file], agents: [ada]}}
worker:
  nats: {{servers: ['tls://127.0.0.1:2'], nkey_file: own.nk}}
  servers:
    - {{name: keep, key: '{KEY}', capabilities: ['fs.read:./', 'net.read:a.example']}}
    - {{key: '{KEY}', tools: [grep], agents: [ada]}}
"""


def test_neither_counts_before_a_person_accepted_it(tmp_path: Path) -> None:
    configure(tmp_path, STORE + WEBHOOK)
    assert changes(settings_of(tmp_path)) == {}
    what = [effect.what for effect in project_file(tmp_path).effects]
    assert what == [
        "events are posted to https://hooks.example.org/in",
        "custom tools, tokens and idempotency keys are those of postgresql://…@127.0.0.1:1/keep?sslmode=disable",
        "the file reads the environment variable HOOK_SECRET",
    ]


def test_both_count_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, STORE + WEBHOOK)
    accept(tmp_path)
    monkeypatch.setenv("HOOK_SECRET", "quite another secret it is")
    assert changes(settings_of(tmp_path)) == {
        "database": DatabaseSettings(
            url="postgresql://keep:hunter2@127.0.0.1:1/keep?sslmode=disable", is_single=True
        ),
        "event_webhook": EventWebhook(
            url="https://hooks.example.org/in", secret="quite another secret it is"
        ),
    }


def test_workers_and_servers_count_after_a_person_accepted_them(tmp_path: Path) -> None:
    configure(tmp_path, FLEET)
    assert changes(settings_of(tmp_path)) == {}
    assert [effect.what for effect in project_file(tmp_path).effects] == [
        "calls of 'deploy' go to workers with the label 'gpu' through NATS at nats://127.0.0.1:1",
        f"worker 'one' ({KEY}) may run all tools at levels strict for all agents, as gpu",
        f"worker 'two' ({KEY}) may run tools grep, read_file at all levels for agents ada",
        'a worker here takes calls through NATS at ["tls://127.0.0.1:2"], nkey_file own.nk',
        f"server 'keep' ({KEY}) may have all tools run here for all agents with fs.read:./, net.read:a.example",
        f"server '' ({KEY}) may have tools grep run here for agents ada with no capability",
    ]
    accept(tmp_path)
    settings = settings_of(tmp_path)
    assert settings.fleet is not None
    assert [worker.name for worker in settings.fleet.workers] == ["one", "two"]
    assert settings.worker is not None
    assert [server.name for server in settings.worker.servers] == ["keep", ""]


def test_a_store_that_nobody_answers_for_is_named_without_its_password(tmp_path: Path) -> None:
    configure(tmp_path, STORE)
    accept(tmp_path)
    with open_keep(project=tmp_path, follow_store=False) as keep:
        (skipped,) = keep.start_up.skipped
        with pytest.raises(StoreUnavailable) as refused:
            keep.create_definition({"name": "x", "description": "X.", "client_executed": True})
    with pytest.raises(StoreUnavailable) as no_tokens:
        open_tokens(tmp_path).list()
    for error in (skipped.error, refused.value, no_tokens.value):
        assert "postgresql://127.0.0.1:1/keep" in str(error)
        assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "database: {url: 'mysql://keep@127.0.0.1/keep'}",
        "database: {url: 'sqlite:////etc/passwd'}",
        "database: {file: 'x'}",
        "database: {url: 'postgresql://keep@127.0.0.1/keep', key: 'hunter2'}",
        "fleet: {nats: {servers: 'nats://keep:hunter2@127.0.0.1:1'}}",
        "fleet: {nats: {servers: 'nats://127.0.0.1:1'}, workers: [{name: one, key: 'ed25519:hunter2'}]}",
        "worker: {servers: [{name: one}]}",
        "events: {webhook: {url: 'http://hooks.example.org/', secret: 'a secret of enough letters'}}",
        "events: {webhook: {url: 'https://u:p@hooks.example.org/', secret: 'a secret of enough letters'}}",
        "events: {webhook: {url: 'https://hooks.example.org/', secret: 'hunter2'}}",
        "events: {webhook: {url: 'https://hooks.example.org/'}}",
        "events: {webhook: {url: 'https://h.example/', secret: 'a secret of enough letters', types: [CallEnded]}}",
    ],
)
def test_what_cannot_be_is_refused_with_its_place_and_without_its_secrets(tmp_path: Path, text: str) -> None:
    configure(tmp_path, text)
    with pytest.raises(ConfigurationInvalid) as refused:
        settings_of(tmp_path)
    assert ".agent/config.yml:1:" in str(refused.value)
    assert "hunter2" not in str(refused.value)
