"""Real MCP clients that sign in by themselves with a real provider: the table of sign-in in `docs/clients.md`.

python -m tests.mcp_server.sign_in_rounds [CLIENT…] prints the table and exits with 1 if a cell is not as `EXPECTED`
says, be it worse or better.
"""

import argparse
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.deploy.balancer import free_port
from tests.mcp_server.client_rounds import NODE_ROUNDS
from tests.mcp_server.environments import ROOT, node_with_packages, python_of
from tests.server.oidc.real_provider import Person, RealProvider, real_provider, until
from tests.server.running import Running, running
from toolkeep import Keep, open_keep, tool
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer, PageSignIn
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes

TOKEN_SECONDS: Final = 600
LATER_SECONDS: Final = 700
"""More than a token lives, with the difference that clocks may have."""
SCOPES: Final = ("mcp", "call", "tools:read")
_AUTHORIZATION: Final = re.compile(r"http://\S+/auth\?\S+")
CODEX: Final = """\
mcp_oauth_credentials_store = "file"
model = "stand-in"
model_provider = "stand-in"
[model_providers.stand-in]
name = "stand-in"
base_url = "http://127.0.0.1:{model}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
[mcp_servers.keep]
url = "{url}"
"""


@tool(side_effects=[])
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: Another.
    """
    return a + b


@tool(danger="medium", side_effects=["None"])
def order(title: str) -> str:
    """Order a book.

    Args:
        title: The title.
    """
    return f"ordered {title}"


class World:
    """A served keep, its provider, and a person who signs in."""

    def __init__(self, keep: Keep, server: Running, provider: RealProvider) -> None:
        self.keep, self.server, self.provider = keep, server, provider
        self.person = Person("ada")
        self.is_away = False
        self.visits: list[str] = []

    def open(self, url: str) -> str:
        """Where the person's browser gets to from the address that a client shows."""
        self.visits.append(url)
        if not self.is_away:
            return self.person.open(url)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        said = {"error": "access_denied", "state": asked.get("state", ""), "iss": self.provider.url}
        return f"{asked['redirect_uri']}?{urlencode(said)}"

    def later(self, seconds: int) -> None:
        """Let time pass here and at the provider."""
        self.provider.later(seconds)
        tokens = self.server.app.service.authenticator._foreign
        now = tokens._clock  # type: ignore[union-attr]
        tokens._clock = lambda: now() + seconds  # type: ignore[union-attr]

    def calls(self) -> list[dict[str, str]]:
        """Who made each call, by the log."""
        return [one["identity"] for one in self.records("ToolInvoked")]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind, the oldest first."""
        read = [entry.record for entry in self.keep.record.log.read_back()]
        return [one for one in read[::-1] if one["type"] == kind]

    def revoke(self, **what: str) -> Callable[[], None]:
        """Revoke a subject or a token here; gives what restores it."""
        made = self.ask("/v1/revocations", {"issuer": self.provider.url, **what})
        return lambda: self.ask(f"/v1/revocations/{made['id']}:restore", {})

    def ask(self, path: str, body: dict[str, Any], token: str = "") -> Any:
        """The answer of the server to its operator, or to the bearer of a token."""
        token = token or self.server.token()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode(), headers)  # noqa: S310 -- on this machine
        with urllib.request.urlopen(request) as answer:  # noqa: S310 -- as above
            return json.loads(answer.read() or b"null")

    def sign_in_to_the_page(self) -> None:
        """The person signs in to the page, so that the provider tells of their logout."""
        begun = {"begin": self.provider.url}
        origin = {"Origin": self.server.url}
        _, body = self.person.ask(f"{self.server.url}/ui/sign-in", begun, origin)
        key, url = body.split(" ")
        answer = "?" + self.person.open(url).partition("?")[2]
        self.person.ask(f"{self.server.url}/ui/sign-in", {"answer": answer, "key": key}, origin)


PEOPLE: Final = (
    ClaimGrant(claims={"groups": "admins"}, agent="staff", scopes=("admin",)),
    ClaimGrant(claims={"groups": "keepers"}, agent="staff", scopes=("approver",)),
    ClaimGrant(claims={"groups": "staff"}, agent="staff", scopes=("viewer",)),
)


@contextmanager
def open_world(folder: Path, *clients: dict[str, Any], **settings: Any) -> Iterator[World]:
    """A keep of its own; the provider knows these clients, and has these settings."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    page: dict[str, Any] = {
        "client_id": "page",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [f"{url}/ui/sign-in"],
        "backchannel_logout_uri": f"{url}/ui/back-channel-logout",
        "backchannel_logout_session_required": True,
    }
    usual: dict[str, Any] = {
        "scopes": SCOPES,
        "groups": {"ada": ["staff"], "bob": ["keepers"], "eve": ["admins"]},
    }
    usual |= {"clients": [page, *clients], "access_token_seconds": TOKEN_SECONDS}
    with pytest.MonkeyPatch.context() as patch, real_provider(f"{url}/mcp", **usual | settings) as provider:
        patch.setenv("TOOLKEEP_HOME", str(folder / "state"))
        (folder / "project").mkdir()
        keep = open_keep(
            project=folder / "project", built_in=False, approver=defer_to_inbox, approval_wait_s=60
        )
        keep.register(add, order)
        for agent in ("helper", "staff"):
            keep.declare_agent(agent)
        known = identity(provider.url, url)
        with keep, running(keep, port=port, codes=MemorySignInCodes(), identity=known) as server:
            yield World(keep, server, provider)


def identity(issuer: str, url: str) -> IdentitySettings:
    """How the keep knows the provider: at an address of this machine, since it is named."""
    staff = ClaimGrant(claims={"groups": "staff"}, agent="helper", scopes=SCOPES)
    one = Issuer(
        issuer=issuer,
        audience=f"{url}/mcp",
        algorithm="RS256",
        host=issuer.removeprefix("http://"),
        limits_scopes=True,
        grants=(staff, ClaimGrant(claims={"client_id": "nightly"}, agent="helper", scopes=SCOPES)),
        page=PageSignIn(client_id="page", scope="openid groups", grants=PEOPLE, label="Login"),
    )
    return IdentitySettings(issuers=(one,))


class Told(Protocol):
    """A client that does what it is told."""

    def ask(self, command: str) -> dict[str, str]:
        """What came of a command: `call`, `later SECONDS`, `forget` its tokens, `login` as its user; others do nothing."""

    def end(self) -> None:
        """Close it."""


class Client:
    """A client library as a process, which does what it is told."""

    def __init__(self, world: World, words: list[str]) -> None:
        self._world = world
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, command: str) -> dict[str, str]:
        """Give a command, and open what it shows to its user until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = command
        while True:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            if not (said := self._process.stdout.readline()):
                _, errors = self._process.communicate(timeout=30)
                raise AssertionError(errors[-3000:])
            told: dict[str, str] = json.loads(said)
            if "open" not in told:
                return told
            line = self._world.open(told["open"])

    def end(self) -> None:
        """Close what it reads from, on which it ends."""
        self._process.communicate(timeout=30)


class Inspector:
    """The inspector's command line: a process for each call, which stores what it knows."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        node, packages = node_with_packages()
        self._words = [str(node), str(packages / ".bin" / "mcp-inspector"), "--cli"]
        # Nothing is opened by itself: the address is read from what it says.
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "BROWSER": "true",
            "MCP_AUTO_OPEN_ENABLED": "true",
        }
        self._environment["MCP_INSPECTOR_SECRET_STORE"] = "file"
        self._more: list[str] = []
        self._place = f"http://127.0.0.1:{free_port()}/oauth/callback"

    def ask(self, command: str) -> dict[str, str]:
        if command != "call":
            self._more = ["--relogin"] if command == "forget" else self._more
            return {"done": ""}
        more, self._more = self._more, []
        target = (f"{self._world.server.url}/mcp", "--transport", "http", "--callback-url", self._place)
        call = ("--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
        with subprocess.Popen(
            [*self._words, *target, *call, *more],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            assert process.stdout is not None
            process.stdin.write("y\n")  # to a step-up, which it asks about
            process.stdin.flush()
            errors = ""
            for line in process.stderr:
                errors += line
                if found := _AUTHORIZATION.search(line):
                    self._world.person.ask(self._world.open(found[0]))
            said = process.stdout.read()
        if process.returncode:
            return {"raised": errors[-2000:]}
        return {"done": json.loads(said)["content"][0]["text"]}

    def end(self) -> None:
        """Nothing of it is left."""


class Codex:
    """A coding agent, with a model that makes one call; its user signs in with `codex mcp login`."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        node, packages = node_with_packages(NODE_ROUNDS, "node-clients")
        self._words = [str(node), str(packages / "@openai" / "codex" / "bin" / "codex.js")]
        self._environment = {**os.environ, "CODEX_HOME": str(folder), "HOME": str(folder), "MODEL_KEY": "x"}
        self._model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model)
        self._thread = threading.Thread(target=self._model.serve_forever)
        self._thread.start()
        (folder / "config.toml").write_text(
            CODEX.format(model=self._model.server_port, url=f"{world.server.url}/mcp")
        )
        self.ask("login")

    def ask(self, command: str) -> dict[str, str]:
        if command in ("forget", "login"):
            return self._log_in()
        return self._call() if command == "call" else {"done": ""}

    def _log_in(self) -> dict[str, str]:
        with subprocess.Popen(
            [*self._words, "mcp", "login", "keep", "--no-browser"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if found := _AUTHORIZATION.search(line):
                    process.stdin.write(f"{self._world.open(found[0])}\n")
                    process.stdin.flush()
        return {"raised": said[-2000:]} if process.returncode else {"done": ""}

    def _call(self) -> dict[str, str]:
        words = [
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--json",
            "Go.",
        ]
        done = subprocess.run(
            [*self._words, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        items = [one["item"] for one in events if one["type"] == "item.completed"]
        for item in items:
            if item["type"] == "mcp_tool_call" and item["result"]:
                return {"done": item["result"]["content"][0]["text"]}
        return {"raised": done.stderr[-2000:]}

    def end(self) -> None:
        self._model.shutdown()
        self._thread.join()
        self._model.server_close()


class _Model(http.server.BaseHTTPRequestHandler):
    """Makes one call of `add`, then ends its turn."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = {"type": "output_text", "text": "Done."}
        item: dict[str, Any] = {"type": "message", "id": "2", "role": "assistant", "content": [said]}
        if not any(one.get("type") == "function_call_output" for one in asked["input"]):
            call = {"call_id": "1", "namespace": "mcp__keep", "name": "add"}
            item = {"type": "function_call", "id": "1", "arguments": '{"a": 2, "b": 3}', **call}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "1", "usage": usage}},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def do_GET(self) -> None:
        self.send_error(404)  # no list of models

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def python(environment: str) -> Callable[[World, Path], Client]:
    def start(world: World, _: Path) -> Client:
        words = [str(python_of(environment)), "-W", "ignore", "-m", "tests.mcp_server.clients.sign_in"]
        return Client(world, [*words, f"{world.server.url}/mcp"])

    return start


def typescript(name: str) -> Callable[[World, Path], Client]:
    def start(world: World, _: Path) -> Client:
        node, packages = node_with_packages()
        return Client(
            world,
            [str(node), str(NODE_ROUNDS / "sign_in.mjs"), str(packages), name, f"{world.server.url}/mcp"],
        )

    return start


CLIENTS: Final[dict[str, Callable[[World, Path], Told]]] = {
    "mcp 2": python("mcp"),
    "mcp 1": python("langchain"),
    "@modelcontextprotocol/client": typescript("client"),
    "@modelcontextprotocol/sdk": typescript("sdk"),
    "@modelcontextprotocol/inspector": Inspector,
    "codex": Codex,
}
CELLS: Final = ("step up", "sign in", "refresh", "token revoked", "subject revoked", "logout")
EXPECTED: Final[dict[str, dict[str, str]]] = {
    "mcp 2": {"token revoked": "signs in"},
    "mcp 1": {"step up": "next request", "token revoked": "signs in"},
    "@modelcontextprotocol/client": {"logout": "refreshes"},
    "@modelcontextprotocol/sdk": {"step up": "no"},
    "@modelcontextprotocol/inspector": {"step up": "no", "logout": "refreshes"},
    "codex": {"step up": "no"},
}
"""What differs from `_USUAL`; `docs/clients.md` says why."""
_USUAL: Final = dict(zip(CELLS, ("yes", "yes", "refreshes", "refreshes", "refused", "refused"), strict=True))


def expected(name: str) -> dict[str, str]:
    """The cells of a client, as they are documented."""
    return {**_USUAL, **EXPECTED.get(name, {})}


def round_of(name: str, folder: Path) -> dict[str, str]:
    """The cells of one client; `folder` is empty."""
    with open_world(folder, is_stingy=True, has_no_offline_access=name == "codex") as world:
        client = CLIENTS[name](world, folder)
        try:
            return {cell: act(world, client) for cell, act in _ROUND.items()}
        finally:
            client.end()


def _step_up(world: World, client: Told) -> str:
    """The first token is good for nothing; some clients ask for another one only in their next request."""
    told = [client.ask("call")]
    if "done" not in told[0]:
        told.append(client.ask("call"))
    if told[-1].get("done") == "5":
        assert ["mcp" in one["scope"].split() for one in world.provider.said("authorization.success")] == [
            True
        ] * 2
        return "yes" if len(told) == 1 else "next request"
    client.ask("forget")
    return "no"


def _sign_in(world: World, client: Told) -> str:
    told = client.ask("call")
    asked = world.provider.said("authorization.success")[-1]
    assert (asked["resource"], asked["code_challenge_method"]) == (f"{world.server.url}/mcp", "S256")
    who = world.calls()[-1]
    assert (who["subject"], who["client"]) == ("ada", asked["client"])
    return "yes" if told.get("done") == "5" else f"no: {told}"


def _refresh(world: World, client: Told) -> str:
    client.ask(f"later {LATER_SECONDS}")
    world.later(LATER_SECONDS)
    return _got_another(world, client)


def _token_revoked(world: World, client: Told) -> str:
    world.revoke(token_id=world.calls()[-1]["token_id"])
    return _got_another(world, client)


def _got_another(world: World, client: Told) -> str:
    """How it got another token than that of its last call."""
    token, visits = world.calls()[-1]["token_id"], len(world.visits)
    told = client.ask("call")
    if told.get("done") != "5":
        client.ask("login")
        told = client.ask("call")
        return "by login" if told.get("done") == "5" else f"no: {told}"
    assert world.calls()[-1]["token_id"] != token
    if len(world.visits) > visits:
        return "signs in"
    assert world.provider.said("grant.success")[-1]["grant_type"] == "refresh_token"
    return "refreshes"


def _subject_revoked(world: World, client: Told) -> str:
    restore = world.revoke(subject="ada")
    try:
        return _is_refused(world, client)
    finally:
        restore()


def _logged_out(world: World, client: Told) -> str:
    assert client.ask("call").get("done") == "5"
    world.sign_in_to_the_page()
    world.person.log_out(world.provider.url)
    until(lambda: world.provider.said("backchannel.success"))
    world.later(2)  # what is issued from now on is not of the same second
    world.is_away = True
    return _is_refused(world, client)


def _is_refused(world: World, client: Told) -> str:
    calls, visits = len(world.calls()), len(world.visits)
    told = client.ask("call")
    if "raised" in told:
        assert len(world.calls()) == calls
        assert len(world.visits) - visits < 3, "it asks the person again and again"
        return "refused"
    return "signs in" if len(world.visits) > visits else "refreshes"


_ROUND: Final = {
    "step up": _step_up,
    "sign in": _sign_in,
    "refresh": _refresh,
    "token revoked": _token_revoked,
    "subject revoked": _subject_revoked,
    "logout": _logged_out,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    wrong = []
    print("| client |", " | ".join(CELLS), "|")
    for name in parser.parse_args().clients or CLIENTS:
        with tempfile.TemporaryDirectory() as folder:
            cells = round_of(name, Path(folder))
        print(f"| {name} |", " | ".join(cells.values()), "|", flush=True)
        wrong += [f"{name}: {cell}: {was}" for cell, was in cells.items() if was != expected(name)[cell]]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
