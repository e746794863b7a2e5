"""The files of `deploy/` and the Dockerfile: each is linted by the tool of its field, and says what the others say.

Docker is not needed, so images and compose files are not run here.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.deploy.balancer import HOST, find_haproxy
from tests.mcp_server.environments import python_of
from toolkeep import Keep
from toolkeep.cli.main import cli
from toolkeep.cli.serve import command as serve
from toolkeep.config.paths import ConfigPaths
from toolkeep.config.read import read_settings
from toolkeep.limits import DRAIN_SECONDS, ServerLimits
from toolkeep.sandbox.container_check import FLAGS
from toolkeep.server.app_factory import make_app
from toolkeep.server.asgi_app import _SHUTDOWN_S
from toolkeep.server.run_server import Server
from toolkeep.stores.api_tokens import MemoryTokens, Tokens

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "toolkeep@.service").read_text()
MANIFESTS = (DEPLOY / "kubernetes" / "toolkeep.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
RESOURCES: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(MANIFESTS)}
POD: dict[str, Any] = RESOURCES["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def run(*words: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


# --- linters -------------------------------------------------------------------------------------


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    found = run(python_of("deploy").with_name("hadolint"), "--no-color", ROOT / "Dockerfile")
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize(("text", "is_valid"), [(MANIFESTS, True), (MANIFESTS + "  unknown: 1\n", False)])
def test_kubernetes_accepts_the_manifests(tmp_path: Path, text: str, *, is_valid: bool) -> None:
    (tmp_path / "toolkeep.yml").write_text(text)
    validate = python_of("deploy").with_name("kubernetes-validate")
    found = run(validate, "--strict", tmp_path / "toolkeep.yml")
    assert (found.returncode == 0) is is_valid, found.stdout + found.stderr


@pytest.mark.parametrize(("text", "is_valid"), [(UNIT, True), (UNIT + "Unknown=1\n", False)])
def test_systemd_accepts_the_unit(tmp_path: Path, text: str, *, is_valid: bool) -> None:
    program = shutil.which("systemd-analyze") or missing("systemd-analyze")
    there = text.replace("/opt/toolkeep/bin/toolkeep", "/bin/true")
    (tmp_path / "toolkeep@.service").write_text(there)
    found = run(program, "verify", tmp_path / "toolkeep@8765.service")
    # Its exit status is 0 for unknown keys, too.
    assert ((found.returncode, found.stderr) == (0, "")) is is_valid, found.stderr


def test_haproxy_accepts_its_configuration() -> None:
    servers = {"KEEP_SERVER_1": "127.0.0.1:8765", "KEEP_SERVER_2": "127.0.0.1:8766"}
    found = run(find_haproxy(), "-c", "-f", DEPLOY / "haproxy.cfg", env=os.environ | servers)
    assert (found.returncode, "[WARNING]" in found.stderr) == (0, False), found.stderr


def missing(program: str) -> str:
    if os.environ.get("CI"):
        pytest.fail(f"{program} is not installed")
    pytest.skip(f"{program} is not installed")


# --- compose, which has no linter without Docker --------------------------------------------------


def test_what_compose_refers_to_is_there() -> None:
    services = COMPOSE["services"]
    mounted = [volume.split(":") for service in services.values() for volume in service.get("volumes", [])]
    named = {source for source, *_ in mounted if not source.startswith(".")}
    assert named == COMPOSE["volumes"].keys()
    assert all((DEPLOY / source).is_file() for source, *_ in mounted if source.startswith("."))
    secrets = {name for service in services.values() for name in service.get("secrets", [])}
    assert secrets == COMPOSE["secrets"].keys()
    needed = {name for service in services.values() for name in service.get("depends_on", ())}
    assert needed <= services.keys()
    balancer = (DEPLOY / "haproxy.cfg").read_text()
    servers = [name for name in services if f" {name}:8765" in balancer]
    assert servers == ["keep-1", "keep-2"]


def test_containers_may_confine_their_tools_and_nothing_more() -> None:
    for name in ("keep-1", "keep-2"):
        service = COMPOSE["services"][name]
        given = {f"--security-opt {option}" for option in service["security_opt"]}
        wanted = set(re.findall(r"--security-opt \S+", FLAGS))
        assert given == {*wanted, "--security-opt no-new-privileges=true"}
        assert service["cap_drop"] == ["ALL"]
    assert POD["securityContext"]["seccompProfile"]["localhostProfile"] == "toolkeep-seccomp.json"
    assert CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}


# --- what all of them say ------------------------------------------------------------------------


def exec_start() -> list[str]:
    found = re.search(r"^ExecStart=\S+ serve (.*)$", UNIT, re.MULTILINE)
    assert found is not None
    return found[1].replace("%i", "8765").split()


@pytest.mark.parametrize(
    "words",
    [exec_start(), COMPOSE["services"]["keep-1"]["command"][1:], CONTAINER["args"][1:]],
    ids=["systemd", "compose", "kubernetes"],
)
def test_servers_are_started_with_options_that_exist(words: list[str]) -> None:
    parent = click.Context(cli, **cli.context_settings)
    context: click.Context = serve.make_context("serve", list(words), parent=parent)
    assert context.params["port"] == 8765
    assert len(context.params["allowed"]) == 1


def test_a_server_has_time_to_drain_and_to_end_its_calls() -> None:
    needed = DRAIN_SECONDS + ServerLimits().grace_s + _SHUTDOWN_S
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)s$", UNIT, re.MULTILINE)
    grace = COMPOSE["services"]["keep-1"]["stop_grace_period"].removesuffix("s")
    assert all(int(given) > needed for given in (stop, grace, POD["terminationGracePeriodSeconds"]))
    assert re.search(r"^KillMode=mixed$", UNIT, re.MULTILINE)


def test_haproxy_closes_idle_connections_before_the_servers_do(keep: Keep) -> None:
    (idle,) = re.findall(r"timeout http-keep-alive (\d+)s", (DEPLOY / "haproxy.cfg").read_text())
    limits = ServerLimits()
    server = Server(make_app(keep, Tokens(MemoryTokens())), limits)
    assert int(idle) < limits.idle_s == server.config.timeout_keep_alive


def test_probes_ask_by_a_name_that_the_server_accepts() -> None:
    probes = [CONTAINER[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [probe["path"] for probe in probes] == ["/healthz", "/readyz", "/healthz"]
    assert {probe["httpHeaders"][0]["value"] for probe in probes} == {HOST}
    assert HOST in CONTAINER["args"]


@pytest.mark.parametrize(
    "text",
    [(DEPLOY / "config.yml").read_text(), RESOURCES["ConfigMap"]["data"]["config.yml"]],
    ids=["file", "ConfigMap"],
)
def test_the_configuration_reads_its_secrets_from_outside(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yml").write_text(text)
    environment = {"DATABASE_URL": "postgresql://keep@db.example.org/keep", "DATABASE_KEY_FILE": "/run/key"}
    settings = read_settings(ConfigPaths((tmp_path / "config.yml",), None), environment, lambda *_: False)
    assert settings.database is not None
    assert (settings.database.url, settings.database.key_file) == tuple(environment.values())
    assert (settings.database.key, settings.database.is_single) == ("", False)
