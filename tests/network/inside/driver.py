"""Drives the product through a scenario of the conformance suite: import the server, then call its tools."""

import asyncio
import contextlib
import io
import json
import os
import re
import threading
import traceback
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from tests.config.projects import accept
from tests.mcp_client.servers import opened
from tests.network.inside.front import shown
from toolkeep import Keep
from toolkeep.cli.main import cli
from toolkeep.network.hosts import read_url


class Scenario(msgspec.Struct, frozen=True):
    name: str
    protocol: str
    context: dict[str, Any]
    url: str


def drive(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """How it went: the status that the client exits with, and what it says."""
    project, home = folder / "project", folder / "home"
    (project / ".agent").mkdir(parents=True)
    home.mkdir(mode=0o700)
    os.environ["TOOLKEEP_HOME"] = str(home)
    try:
        return {"status": 0, "text": _driven(scenario, project)}
    except BaseException:  # noqa: BLE001 -- whatever it is, the suite shows it
        return {"status": 1, "text": traceback.format_exc()}


def _driven(scenario: Scenario, project: Path) -> str:
    url = shown(scenario.url)
    words = ["add", "mcp", "up", url, "--yes", "--protocol", scenario.protocol]
    if scenario.name.startswith("auth/"):
        is_by_person = "credentials" not in scenario.name
        words += [*(["--sign-in"] if is_by_person else []), *_client(scenario)]
    status, text = command(project, *words)
    if status:
        return text if scenario.name in _NO_TOOLS else _failed(text)
    accept(project)
    text += asyncio.run(_called(scenario, project, f"net.write:{read_url(url)}"))
    if "toolkeep sign-in up" in text:  # what a person does when a call says so
        status, more = command(project, "sign-in", "up")
        text += more + asyncio.run(_called(scenario, project, f"net.write:{read_url(url)}"))
    return text


def _client(scenario: Scenario) -> list[str]:
    """What a person was told beforehand about who they are there."""
    context = scenario.context
    if scenario.name == "auth/basic-cimd":
        return ["--client-id", "https://conformance-test.local/client-metadata.json"]
    if "client_id" not in context or "client_secret" not in context:
        return []
    os.environ["SUITE_SECRET"] = context["client_secret"]
    issuer = shown(context["issuer"]) if "issuer" in context else _issuer(scenario)
    known = ["--client-id", context["client_id"], "--issuer", issuer]
    return [*known, "--client-secret", "SUITE_SECRET"]


_NO_TOOLS = ("initialize", "request-metadata", "json-schema-ref-no-deref")
"""Scenarios whose server offers nothing that could be imported."""


def _failed(text: str) -> str:
    raise RuntimeError(text)


def _issuer(scenario: Scenario) -> str:
    """Who signs in for the server, which a person with a secret for it knows."""
    base, _, path = shown(scenario.url).partition(".example")
    place = f"{base}.example/.well-known/oauth-protected-resource{path}"
    with urllib.request.urlopen(place, timeout=20) as document:  # noqa: S310 -- https
        found: list[str] = json.load(document)["authorization_servers"]
        return found[0]


class _Terminal(io.StringIO):
    """What is told to a person, who opens each address with a browser."""

    def write(self, text: str) -> int:
        for address in re.findall(r"^  (https://\S+)$", text, re.MULTILINE):
            threading.Thread(target=_browse, args=(address,), daemon=True).start()
        return super().write(text)


def _browse(address: str) -> None:
    """Follow where the address leads; a person who sees an error there goes back and gives up."""
    try:
        with urllib.request.urlopen(address, timeout=20) as page:  # noqa: S310 -- https
            page.read()
    except OSError:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query))
        given_up = urllib.parse.urlencode({"error": "access_denied", "state": asked["state"]})
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{asked['redirect_uri']}?{given_up}", timeout=20).close()  # noqa: S310 -- ours


def command(project: Path, *words: str) -> tuple[int, str]:
    """A command of the product: its status, and what it printed."""
    told = _Terminal()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            cli.main([*words, "--project", str(project)], standalone_mode=True)
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    return status, told.getvalue()


async def _called(scenario: Scenario, project: Path, held: str) -> str:
    said = []
    async with opened(project, answerer=lambda _: {}) as keep:  # a person who takes what is suggested
        keep.declare_agent("ada", capabilities=[held])
        for name, arguments in _calls(scenario, project, keep):
            result = await keep.call(name, arguments, agent="ada")
            said.append(f"{name}: {result.text}")
    return "\n".join(said)


def _calls(scenario: Scenario, project: Path, keep: Keep) -> list[tuple[str, dict[str, Any]]]:
    if "toolCalls" in scenario.context:
        return [(call["name"], _without_null(call["arguments"])) for call in scenario.context["toolCalls"]]
    if scenario.name == "json-schema-2020-12-preservation":
        focal = keep.get("json_schema_2020_12_tool").definition
        return [("json_schema_echo", {"schema": focal.to_dict()["parameters"]})]
    listed = json.loads((project / ".agent" / "up.mcp.json").read_text())["tools"]
    return [(tool["name"], _arguments(tool["inputSchema"])) for tool in listed]


def _without_null(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    examples = {"string": "eu", "number": 2, "integer": 3, "boolean": True}
    properties = schema.get("properties", {})
    return {name: examples.get(properties[name].get("type"), "x") for name in schema.get("required", ())}
