"""A package registry on loopback: npm packages and a Python index, made by hand."""

import base64
import hashlib
import io
import json
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.mcp_client.servers import call_all
from toolkeep.cli.main import cli

OLD = "2020-01-01T00:00:00.000Z"
MARK = "node -e \"require('fs').writeFileSync('marker', '')\""
"""An install script that shows that it ran."""
NOW = datetime.now(UTC).isoformat()

SERVER_JS = """#!/usr/bin/env node
const { answer } = require("greeting");
const tool = { name: "greet", description: "Say hello.", inputSchema: { type: "object", properties: {} } };
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: () => ({
      protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "hello", version: "1" },
    }),
    "tools/list": () => ({ tools: [tool] }),
    "tools/call": () => ({ content: [{ type: "text", text: answer(process.argv[2]) }] }),
  };
  const reply = results[method] ? { result: results[method]() } : { error: { code: -32601, message: "unknown" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...reply }));
});
"""

SERVER_PY = """
import json, sys
TOOL = {"name": "greet", "description": "Say hello.", "inputSchema": {"type": "object", "properties": {}}}
def main():
    for line in sys.stdin:
        asked = json.loads(line)
        method, params = asked["method"], asked.get("params", {})
        if method == "initialize":
            who = {"name": "hello", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": who}
        elif method == "tools/list":
            result = {"tools": [TOOL]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "hello " + sys.argv[1]}]}
        else:
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def tarball(manifest: Mapping[str, Any], files: Mapping[str, str], links: Mapping[str, str] = {}) -> bytes:
    """An archive as `npm pack` makes it; names and links may be hostile."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(manifest), **files}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text.encode()), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in links.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return raw.getvalue()


def wheel(name: str, version: str, files: Mapping[str, str], program: str = "", needs: str = "") -> bytes:
    """A wheel with an entry point, made by hand."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{program}\n" if program else "",
    }
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))
    return raw.getvalue()


class Registry:
    """What the registry has; tests change it while it is served."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.credentials: set[str] = set()
        """What callers sent to be let in."""
        self.archives: dict[str, bytes] = {}
        self._npm: dict[str, dict[str, Any]] = {}
        self._wheels: dict[str, list[tuple[str, str]]] = {}

    def publish(
        self, name: str, version: str, files: Mapping[str, str], *, when: str = OLD, links: Mapping[str, str] = {}, **manifest: Any
    ) -> None:  # fmt: skip
        """Publish a version of an npm package; the newest is `latest`."""
        manifest = {"name": name, "version": version, **manifest}
        archive = tarball(manifest, files, links)
        path = f"/npm/{name}/-/{name}-{version}.tgz"
        self.archives[path] = archive
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        # Another host, as registries behind a mirror name it: archives are fetched from the mirror all the same.
        dist = {"tarball": f"http://elsewhere.invalid{path}", "integrity": integrity}
        has_script = "install" in manifest.get("scripts", {})
        entry = {**manifest, "dist": dist, **({"hasInstallScript": True} if has_script else {})}
        known = self._npm.setdefault(name, {"name": name, "versions": {}, "time": {}})
        known["versions"][version], known["time"][version] = entry, when
        known["dist-tags"] = {"latest": version}

    def upload_source(self, name: str, version: str, files: Mapping[str, str] = {}) -> None:
        """Upload a source archive, which only code of its own could build."""
        file = f"{name}-{version}.tar.gz"
        self.archives[f"/files/{file}"] = tarball({}, files or {"setup.py": "raise SystemExit('it ran')"})
        self._wheels.setdefault(name, []).append((file, OLD))

    def upload(
        self, name: str, version: str, files: Mapping[str, str], *, program: str = "", when: str = OLD, needs: str = ""
    ) -> None:  # fmt: skip
        """Upload a wheel."""
        file = f"{name}-{version}-py3-none-any.whl"
        self.archives[f"/files/{file}"] = wheel(name, version, files, program, needs)
        self._wheels.setdefault(name, []).append((file, when))

    def answer(self, path: str) -> tuple[int, str, bytes]:
        self.asked.append(path)
        if path in self.archives:
            return 200, "application/octet-stream", self.archives[path]
        if path.startswith("/npm/") and (known := self._npm.get(path.removeprefix("/npm/"))):
            return 200, "application/json", json.dumps(known).encode()
        if path.startswith("/simple/") and (files := self._wheels.get(path.split("/")[2].replace("-", "_"))):
            links = (
                f'<a href="/files/{file}#sha256={hashlib.sha256(self.archives[f"/files/{file}"]).hexdigest()}" '
                f'data-upload-time="{when}">{file}</a>'
                for file, when in files
            )
            return 200, "text/html", "\n".join(links).encode()
        return 404, "application/json", b"{}"


@contextmanager
def serving(registry: Registry) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.credentials.update(self.headers.get_all("Authorization") or ())
            status, kind, body = registry.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- of the standard library
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield
        server.shutdown()


def publish_hello(registry: Registry, version: str = "1.0.0", greeting: str = "1.0.0", **more: Any) -> None:
    """A server with a dependency that has an install script."""
    mark: dict[str, Any] = {"scripts": {"install": MARK}}
    text = "exports.answer = (name) => `hello ${name}`;"
    registry.publish("greeting", greeting, {"index.js": text}, main="index.js", **mark)
    registry.publish(
        "hello",
        version,
        {"cli.js": SERVER_JS},
        bin={"hello": "cli.js"},
        dependencies={"greeting": "^1.0.0"},
        **more,
    )


@contextmanager
def configured(patch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that npm and pip of this process are configured with, credentials and all."""
    found = Registry()
    with serving(found), tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "npmrc"
        address = f"{found.url}/npm/"
        own.write_text(f"registry={address}\n{address.removeprefix('http:')}:_authToken=password\n")
        patch.setenv("NPM_CONFIG_USERCONFIG", str(own))
        patch.setenv("PIP_INDEX_URL", f"{found.url.replace('//', '//user:password@')}/simple/")
        for name in ("PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
            patch.delenv(name, raising=False)
        yield found


def new_project(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A project with its state beside it, whose .npmrc names a registry of its own."""
    folder = folder.resolve() / "project"
    (folder / ".agent").mkdir(parents=True)
    (folder / ".npmrc").write_text("registry=http://127.0.0.1:9/\n")
    patch.chdir(folder)
    patch.setenv("TOOLKEEP_HOME", str(folder.parent / "state"))
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)
    return folder


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with configured(monkeypatch) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_project(tmp_path, monkeypatch)


def add(project: Path, *words: str) -> Result:
    """Add the server `hello`."""
    return CliRunner().invoke(cli, ["add", "mcp", "hello", "--yes", "--project", str(project), *words])


def invoke(project: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--project", str(project)])


def tree(project: Path) -> Path:
    (found,) = (path for path in (project.parent / "state" / "packages").iterdir() if path.is_dir())
    return found


def greeted(project: Path, *held: str) -> str:
    """What the server answers to an agent that holds this."""
    (result,) = call_all(project, [("greet", {})], *held)
    return result.text
