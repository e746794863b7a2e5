"""Do the servers that people use work behind toolkeep? Prints a table.

.venvs/client-mcp/bin/python bench/reach.py [OPTIONS] [NAME…]

For each server of `servers/reach.json`: its documented command runs by itself, and makes its calls. Then
`toolkeep add mcp --observe` runs at a terminal with these calls as samples, and all that it proposes is
granted. The same client makes the same calls through `toolkeep mcp`. Remote services are answered here, on
127.0.0.1. See bench/README.md.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mcp import (  # type: ignore[import-not-found, unused-ignore]
    ClientSession,
    StdioServerParameters,
    stdio_client,
)

from tables import print_notes, print_table

LIST = Path(__file__).with_name("servers") / "reach.json"
START_SECONDS = 300.0
CALL_SECONDS = 90.0
WORDS = 240
GRANT = "Enter grants nothing: "
QUESTION = " [y/N]: "
PROPOSED = re.compile(r"^ +\d+ \[ \] .* ([a-z]+\.[a-z]+:\S+)\r?$", re.MULTILINE)


@dataclass(kw_only=True)
class Trial:
    """What became of one server."""

    name: str
    package: str
    kinds: list[str]
    outside: list[str] = field(default_factory=list)
    """Why each call failed; empty if it worked."""
    inside: list[str] = field(default_factory=list)
    is_imported: bool = False
    reason: str = ""
    observe_s: float = 0.0
    first_call_s: float = 0.0
    grant: list[str] = field(default_factory=list)

    def both(self) -> tuple[int, int]:
        """Calls that work inside, of those that work outside."""
        inside = [*self.inside, *["not made"] * (len(self.outside) - len(self.inside))]
        work = [why for before, why in zip(self.outside, inside, strict=True) if not before]
        return work.count(""), len(work)


# --- the remote service ---------------------------------------------------------------------------------


class _Service(BaseHTTPRequestHandler):
    answers: Mapping[str, Any] = {}

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {self.path.partition('?')[0]}"
        found = max((key for key in self.answers if request.startswith(key)), key=len, default="")
        told = self.answers.get(found, {"body": {"error": "not found"}})
        text = told["body"] if isinstance(told["body"], str) else json.dumps(told["body"])
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", told.get("type", "application/json"))
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = _answer  # noqa: N815 -- the names that the library looks for

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def service(answers: Mapping[str, Any]) -> Iterator[str]:
    """The address of a service with these answers."""
    handler = type("Handler", (_Service,), {"answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# --- a server by itself and behind toolkeep ---------------------------------------------------------------


def filled(value: Any, project: Path, address: str) -> Any:
    """A value of the list with the project's folder and the service's address."""
    if isinstance(value, str):
        return value.replace("{project}", str(project)).replace("{service}", address)
    if isinstance(value, list):
        return [filled(one, project, address) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, project, address) for key, one in value.items()}
    return value


def new_project(folder: Path, files: Mapping[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            base64.b64decode(content["base64"]) if isinstance(content, dict) else content.encode()
        )
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.asynccontextmanager
async def client(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> AsyncIterator[ClientSession]:
    """A session with a server; its last words go to `stderr.txt` beside the project."""
    parameters = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=dict(env), cwd=folder)
    with (folder.parent / "stderr.txt").open("w") as errors:
        async with stdio_client(parameters, errlog=errors) as streams, ClientSession(*streams) as session:
            await asyncio.wait_for(session.initialize(), START_SECONDS)
            yield session


async def made(session: ClientSession, call: Mapping[str, Any], name: str) -> str:
    """Make a call; why it failed, or nothing."""
    try:
        result: Any = await session.call_tool(name, call["arguments"], read_timeout_seconds=CALL_SECONDS)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:WORDS]
    text = "\n".join(getattr(part, "text", "") for part in result.content)
    text += json.dumps(result.structured_content or {}, ensure_ascii=False)
    if result.is_error:
        return text[:WORDS] or "an error without words"
    expected = call.get("expect", "")
    return "" if expected in text else f"without '{expected}': {text}"[:WORDS]


async def outside(entry: Mapping[str, Any], project: Path, env: Mapping[str, str]) -> list[str]:
    try:
        async with client(entry["command"], {**env, **entry.get("env", {})}, project) as session:
            return [await made(session, call, call["tool"]) for call in entry["calls"]]
    except BaseException as error:  # a group of tasks ends with a group of errors
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        said = (project.parent / "stderr.txt").read_text(errors="replace").strip()[-WORDS:]
        return [f"does not start: {said or repr(error)}"] * len(entry["calls"])


class Toolkeep:
    """The command, in one project."""

    def __init__(self, program: str, project: Path, env: Mapping[str, str]) -> None:
        self.program, self.project, self.env = program, project, env

    def run(self, *words: str, statuses: Sequence[int] = (0,)) -> dict[str, Any]:
        """What a command prints as JSON; raises ValueError with its last words."""
        done = subprocess.run(
            (self.program, *words),
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in statuses:
            raise ValueError(" ".join((done.stderr or done.stdout).split())[:WORDS])
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def add(self, words: Sequence[str], trial: Trial) -> None:
        """Add a server at a terminal, and grant all that is proposed; ValueError has its last words."""
        start = time.monotonic()
        master, slave = pty.openpty()
        process = subprocess.Popen(
            (self.program, "add", "mcp", *words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self.project,
            env={**self.env, "NO_COLOR": "1"},
            start_new_session=True,
        )
        os.close(slave)
        shown = ""
        with contextlib.suppress(OSError):  # EIO at the end
            while data := os.read(master, 1 << 16):
                shown += data.decode(errors="replace")
                if shown.endswith(GRANT):
                    trial.observe_s = time.monotonic() - start
                    offered = PROPOSED.findall(shown[shown.rfind("It asked for:") :])
                    trial.grant += offered
                    os.write(master, f"{' '.join(map(str, range(1, len(offered) + 1)))}\n".encode())
                elif shown.endswith(QUESTION):
                    os.write(master, b"y\n")
        os.close(master)
        if process.wait() != 0:
            raise ValueError(" ".join(shown[shown.rfind("\u2717") :].split())[:WORDS])

    def accept(self, *names: str) -> None:
        # Without the hash it only shows what would be accepted.
        told = self.run("accept", "--json", *names, statuses=(0, 1))
        if "hash" not in told:
            raise ValueError(json.dumps(told)[:WORDS])
        self.run("accept", "--json", *names, "--hash", told["hash"])


async def inside(entry: Mapping[str, Any], keep: Toolkeep, trial: Trial) -> None:
    words = [word for key, value in entry.get("env", {}).items() for word in ("--env", f"{key}={value}")]
    for call in entry["calls"]:
        words += ["--call", f"{call['tool']}={json.dumps(call['arguments'])}"]
    tools = list(dict.fromkeys(call["tool"] for call in entry["calls"]))
    words += [word for tool in tools for word in ("--danger", f"{tool}=low")]
    start = time.monotonic()
    try:
        await asyncio.to_thread(
            keep.add, [entry["name"], "--observe", *words, "--", *entry["command"]], trial
        )
        grant_agent(keep.project, trial.grant)
        keep.accept()
    except ValueError as error:
        trial.reason = str(error)
        return
    trial.is_imported = True
    try:
        async with client([keep.program, "mcp"], keep.env, keep.project) as session:
            names = [tool.name for tool in (await session.list_tools()).tools]
            for call in entry["calls"]:
                trial.inside.append(await made(session, call, found_name(call["tool"], names, entry["name"])))
                trial.first_call_s = trial.first_call_s or time.monotonic() - start
    except Exception as error:
        trial.reason = repr(error)[:WORDS]


def grant_agent(project: Path, capabilities: Sequence[str]) -> None:
    """Let the agent of `toolkeep mcp` use what the server was granted."""
    config = project / ".agent" / "config.yml"
    agent = {"mcp-local": {"inherit": "defaults", "capabilities": list(capabilities)}}
    config.write_text(f"{config.read_text()}agents: {json.dumps(agent)}\n")


def found_name(tool: str, names: Sequence[str], upstream: str) -> str:
    """The name under which a tool was imported."""
    plain = "".join(char if char.isalnum() or char in "_-" else "_" for char in tool)
    # A built-in tool may have the plain name.
    wanted = (f"{upstream}_{plain}", plain, tool)
    return next((name for name in wanted if name in names), tool)


def tried(entry: Mapping[str, Any], program: str, where: Path) -> Trial:
    trial = Trial(name=entry["name"], package=entry["package"], kinds=entry["kinds"])
    with (
        service(entry.get("answers", {})) as address,
        tempfile.TemporaryDirectory(prefix="reach-", dir=where) as top,
    ):
        Path(top).chmod(0o755)  # a confined server is another user
        for side in ("outside", "inside"):
            home, folder = Path(top) / side / "home", Path(top).resolve() / side / "project"
            home.mkdir(parents=True)
            env = {**os.environ, "HOME": str(home)}
            told = filled(entry, folder, address)
            new_project(folder, entry.get("files", {}))
            if side == "outside":
                trial.outside = asyncio.run(outside(told, folder, env))
            else:
                (folder / ".agent").mkdir()
                asyncio.run(inside(told, Toolkeep(program, folder, env), trial))
    return trial


# --- the table --------------------------------------------------------------------------------------------


def show(trials: Sequence[Trial]) -> None:
    rows = []
    for trial in trials:
        works, of = trial.both()
        rows.append(
            (
                trial.package,
                " ".join(trial.kinds) or "-",
                "yes" if trial.is_imported else "no",
                f"{works}/{of}",
                f"{trial.observe_s:.1f}",
                f"{trial.first_call_s:.1f}" if trial.first_call_s else "-",
            )
        )
    print_table("Servers", ("package", "kind", "imports", "calls", "observed s", "first call s"), rows)
    counts = [trial.both() for trial in trials]
    works, of = sum(one for one, _ in counts), sum(one for _, one in counts)
    notes = [
        f"{sum(trial.is_imported for trial in trials)} of {len(trials)} import; {works} of {of} calls work"
    ]
    for trial in trials:
        notes += [f"{trial.name}: {trial.reason}"] if trial.reason else []
        notes += [f"{trial.name}, outside, call {n}: {why}" for n, why in enumerate(trial.outside, 1) if why]
        notes += [f"{trial.name}, inside, call {n}: {why}" for n, why in enumerate(trial.inside, 1) if why]
    print_notes(notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--toolkeep", default=shutil.which("toolkeep"), metavar="PROGRAM")
    parser.add_argument("--runner", choices=("npx", "uvx"))
    parser.add_argument("--folder", type=Path, default=Path.home(), help="for projects; some refuse /tmp")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.toolkeep is None:
        sys.exit("there is no toolkeep on the PATH; give it with --toolkeep")
    trials = []
    for entry in json.loads(LIST.read_text())["servers"]:
        if options.names and entry["name"] not in options.names:
            continue
        if options.runner and entry["command"][0] != options.runner:
            continue
        print(shlex.join(entry["command"]), file=sys.stderr, flush=True)
        trials.append(tried(entry, str(Path(options.toolkeep).absolute()), options.folder))
        if options.json:
            options.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1))
    show(trials)


if __name__ == "__main__":
    main()
