"""Every client library in a running keep: the cells of the table in `docs/clients.md`.

python -m tests.mcp_server.client_rounds [--http] [CLIENT…] prints the table and exits with 1 if a cell is not as
`EXPECTED` says, be it worse or better.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.mcp_server.environments import PINS, ROOT, node_with_packages, python_of

NODE_ROUNDS = Path(__file__).resolve().parent / "clients" / "node"
LIBRARY = ROOT / "tests" / "mcp_client" / "library.py"
BOTH = ["count_words", "send_note"]
CONFIGURATION = """\
tools: [tools.py]
agents:
  mcp-local:
    inherit: defaults
    capabilities: ["mcp.prompts:docs", "mcp.resources:docs"]
"""
TOOLS = '''\
from typing import Annotated

from pydantic import Field
from toolkeep import tool


@tool(side_effects=[])
def count_words(text: Annotated[str, Field(min_length=1)]) -> dict[str, int]:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return {"words": len(text.split())}


@tool(danger="medium", side_effects=[])
def send_note(text: str) -> str:
    """Send a note.

    Args:
        text: What it says.
    """
    return f"sent {text}"
'''


class Library(NamedTuple):
    """A client library and its program."""

    package: str
    environment: str
    """Of `requirements/clients`; empty for a package of npm."""
    program: str
    era: str = ""


CLIENTS: Final = {
    "mcp 2": Library("mcp", "mcp", "mcp2", "auto"),
    "mcp 2, handshake": Library("mcp", "mcp", "mcp2", "legacy"),
    "mcp 1": Library("mcp", "langchain", "mcp1"),
    "fastmcp": Library("fastmcp", "mcp", "fastmcp_round"),
    "langchain-mcp-adapters": Library("langchain-mcp-adapters", "langchain", "langchain_round"),
    "pydantic-ai": Library("pydantic-ai-slim", "pydantic-ai", "pydantic_ai_round"),
    "openai-agents": Library("openai-agents", "vendors", "openai_agents_round"),
    "google-adk": Library("google-adk", "agents", "google_adk_round"),
    "llama-index-tools-mcp": Library("llama-index-tools-mcp", "agents", "llama_index_round"),
    "smolagents": Library("smolagents", "smolagents", "smolagents_round"),
    "@modelcontextprotocol/client": Library("@modelcontextprotocol/client", "", "client2.mjs", "auto"),
    "@modelcontextprotocol/client, handshake": Library(
        "@modelcontextprotocol/client", "", "client2.mjs", "legacy"
    ),
    "@modelcontextprotocol/sdk": Library("@modelcontextprotocol/sdk", "", "sdk1.mjs"),
    "@ai-sdk/mcp": Library("@ai-sdk/mcp", "", "ai_sdk.mjs"),
}
CELLS: Final = ("list", "call", "refusal", "waiting", "answer", "prompt", "resource", "changed")
EXPECTED: Final[dict[str, dict[str, str]]] = {
    "fastmcp": {"changed": "next list"},
    "langchain-mcp-adapters": {"changed": "next list"},
    "pydantic-ai": {"changed": "stale"},
    "openai-agents": {
        "refusal": "in part", "waiting": "silent", "answer": "inbox", "changed": "next list",
    },
    "google-adk": {"waiting": "progress", "prompt": "no", "changed": "next list"},
    "llama-index-tools-mcp": {"waiting": "silent", "answer": "inbox", "changed": "next list"},
    "smolagents": {
        "refusal": "in part", "waiting": "silent", "answer": "inbox", "prompt": "no", "resource": "no",
        "changed": "stale",
    },
    "@ai-sdk/mcp": {"refusal": "as text", "waiting": "silent", "changed": "next list"},
}  # fmt: skip
"""What is not `yes`; `docs/clients.md` says why."""


def judged(found: dict[str, Any]) -> dict[str, str]:
    """A word or two for each cell."""
    return {cell: _lacking(found[cell]) or _JUDGES[cell](found[cell]) for cell in CELLS}


def _lacking(seen: Any) -> str:
    if isinstance(seen, dict) and "lacking" in seen:
        return "no"
    return f"raised: {seen['raised'][:80]}" if isinstance(seen, dict) and "raised" in seen else ""


def _refusal(seen: Any) -> str:
    said = seen["misnamed"].get("text", "").replace("\\", "")  # one passes a Python representation on
    if "Did you mean 'text'?" in said:
        return "yes" if seen["misnamed"]["is_error"] else "as text"
    return "in part" if "'count_words' refused" in seen["empty"].get("text", "") else "no"


def _waiting(seen: Any) -> str:
    if "sent hi" not in seen["text"]:
        return "no"
    command = f"toolkeep approve {seen['id']}"
    told = [kind for kind in ("log", "progress") if any(_says(one, kind, command) for one in seen["notices"])]
    return "yes" if len(told) == 2 else (*told, "silent")[0]


def _says(notice: str, kind: str, command: str) -> bool:
    return notice.startswith(f"{kind}: Waiting for approval") and command in notice


def _answer(seen: Any) -> str:
    if "sent hi" not in seen["text"]:
        return "no"
    is_asked = any(one.startswith("Approve this call of send_note?") for one in seen["questions"])
    return "yes" if is_asked and not seen["in_the_inbox"] else "inbox"


def _changed(seen: Any) -> str:
    if (seen["without"], seen["again"]) != (["send_note"], BOTH):
        return "stale"
    return "yes" if seen["told"] else "next list"


_JUDGES: Final[dict[str, Any]] = {
    "list": lambda seen: "yes" if seen == BOTH else "no",
    "call": lambda seen: "yes" if re.search(r"words\W+4", seen["text"]) else "no",
    "refusal": _refusal,
    "waiting": _waiting,
    "answer": _answer,
    "prompt": lambda seen: "yes" if seen == "Review this, kindly." else "no",
    "resource": lambda seen: "yes" if seen == "the text of docs://readme" else "no",
    "changed": _changed,
}


class Project:
    """A project with two tools and an upstream server, and a person who approves by a token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.token = folder / "token"
        home = folder / "home"
        home.mkdir(mode=0o700)
        # A client passes few variables on, so the command sets its own.
        self.words = [
            "/usr/bin/env",
            f"HOME={home}",
            f"TOOLKEEP_HOME={home}",
            sys.executable,
            "-m",
            "toolkeep",
        ]
        (self.folder / ".agent").mkdir(parents=True)
        (self.folder / "tools.py").write_text(TOOLS)
        (self.folder / ".agent" / "config.yml").write_text(CONFIGURATION)
        passed_on = ("--prompts", "*", "--resources", "docs://*", "--danger", "prompt:*=safe")
        server = (os.path.realpath(sys.executable), "-I", "-S", str(LIBRARY), "text")
        self.run("add", "mcp", "docs", "--yes", *passed_on, "--danger", "resource:*=safe", "--", *server)
        self.run("accept", "--hash", self.run("accept", "--json")["hash"])
        self.token.touch(mode=0o600)
        self.token.write_text(self.run("token", "make", "desk", "--scope", "approve", "--json")["token"])

    def run(self, *words: str) -> Any:
        done = subprocess.run(
            [*self.words, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        # `accept` without a hash shows it, and fails.
        assert done.returncode == 0 or words == ("accept", "--json"), done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    @contextmanager
    def served(self, *options: str, is_http: bool) -> Iterator[dict[str, Any]]:
        """How a client reaches `toolkeep mcp` with these options."""
        words = [*self.words, "mcp", "--project", str(self.folder), *options]
        if not is_http:
            yield {"command": words}
            return
        with subprocess.Popen([*words, "--http", "0"], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            url = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/mcp", line)))
            yield {"url": url}
            process.terminate()
            process.stderr.read()


def round_of(name: str, folder: Path, *, is_http: bool) -> dict[str, Any]:
    """What one library saw; `folder` is empty."""
    project = Project(folder)
    library = CLIENTS[name]
    with (
        project.served(is_http=is_http) as plain,
        project.served("--client-answers", is_http=is_http) as answering,
    ):
        given = {
            "toolkeep": project.words,
            "project": str(project.folder),
            "token": str(project.token),
            "plain": plain,
            "answering": answering,
        }
        (folder / "round.json").write_text(json.dumps(given))
        done = subprocess.run(
            [*_program(library, folder), str(folder / "round.json"), library.era],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _program(library: Library, folder: Path) -> list[str]:
    if library.environment:
        python = str(python_of(library.environment))
        return [python, "-W", "ignore", "-m", f"tests.mcp_server.clients.{library.program}"]
    node, packages = node_with_packages(NODE_ROUNDS, "node-clients")
    # A module is resolved from where it lies.
    for file in NODE_ROUNDS.glob("*.mjs"):
        shutil.copy(file, folder)
    (folder / "node_modules").symlink_to(packages)
    return [str(node), str(folder / library.program)]


def _version(library: Library) -> str:
    if not library.environment:
        pinned = json.loads((NODE_ROUNDS / "package.json").read_text())["dependencies"]
        return str(pinned[library.package])
    pins = (PINS / f"{library.environment}.txt").read_text()
    found = re.search(rf"^{re.escape(library.package)}==(\S+)", pins, re.MULTILINE)
    assert found is not None
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--http", action="store_true", help="over HTTP instead of stdio")
    parser.add_argument("--raw", action="store_true", help="print what the clients saw, too")
    options = parser.parse_args()
    wrong = []
    print("| client |", " | ".join(CELLS), "|")
    for name in options.clients or CLIENTS:
        with tempfile.TemporaryDirectory() as folder:
            found = round_of(name, Path(folder), is_http=options.http)
        if options.raw:
            print(json.dumps(found, indent=1))
        cells = judged(found)
        print(f"| {name} {_version(CLIENTS[name])} |", " | ".join(cells.values()), "|", flush=True)
        expected = {**dict.fromkeys(CELLS, "yes"), **EXPECTED.get(name, {})}
        wrong += [f"{name}: {cell}: {was}" for cell, was in cells.items() if was != expected[cell]]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
