"""Runs the HTTP exchanges that a page shows: a block `http` is sent, the block `json` after it must be the answer.

`$TOKEN` in a request is a token with every scope, `$READER` one with `tools:read` alone; both are of the agent
`operator`, of a keep with the built-in tools and one stored definition, `greet`. `http stopping` is sent to a server
that was told to end.

After a wording has changed, `.venv/bin/python -m tests.docs.exchanges` writes the new answers into the pages.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.markdown import ROOT
from tests.server.talk import Client, served
from toolkeep import open_keep
from toolkeep.server.api.call_routes import defer_to_inbox

PAGES = [
    ROOT / "docs" / "server.md",
    *(ROOT / "docs" / "errors" / f"ACODE-TSR-0{number}.md" for number in range(60, 70)),
]
_PAIR = re.compile(
    r"```http(?P<how>[^\n]*)\n(?P<request>.*?)```(?P<between>[^`]*?)```json\n(?P<answer>.*?)```", re.DOTALL
)
_VARYING = (
    (re.compile(r'"[0-9a-f]{32}"|"[0-9a-f]{16}"'), '"ID"'),
    (re.compile(r'"[0-9a-f]{64}"'), '"HASH"'),
    (re.compile(r'"(execute_ms|total_ms|wall_ms|cpu_ms|leaf)": [0-9.]+'), r'"\1": 0'),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00"), "TIME"),
)
GREET = {
    "name": "greet",
    "description": "Greet somebody.",
    "version": "1.0.0",
    "client_executed": True,
    "parameters": {
        "type": "object",
        "properties": {"who": {"type": "string", "maxLength": 40, "description": "Whom."}},
        "required": ["who"],
    },
}


class Exchange(NamedTuple):
    """A request on a page with the answer it shows, and the answer that came."""

    request: str
    shown: str
    actual: str

    @property
    def is_true(self) -> bool:
        return comparable(self.shown) == comparable(self.actual)


def comparable(text: str) -> str:
    for varying, word in _VARYING:
        text = varying.sub(word, text)
    return text


def exchanges(page: str) -> list[Exchange]:
    """Every exchange of a page, in order, with one server."""
    return asyncio.run(_exchanged(page))


async def _exchanged(page: str) -> list[Exchange]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        before = dict(os.environ)
        os.environ.update(HOME=folder, TOOLKEEP_HOME=f"{folder}/state")
        try:
            with open_keep(project=folder, approver=defer_to_inbox, approval_wait_s=60) as keep:
                keep.create_definition(GREET)
                async with served(keep, has_metrics=True) as client:
                    for pair in _PAIR.finditer(page):
                        if "stopping" in pair["how"]:
                            client.app.service.health.stop()
                        actual = await _sent(client, pair["request"])
                        found.append(Exchange(pair["request"], pair["answer"], actual))
        finally:
            os.environ.clear()
            os.environ.update(before)
    return found


async def _sent(client: Client, text: str) -> str:
    head, _, body = text.strip("\n").partition("\n\n")
    line, *rest = head.split("\n")
    method, path, _ = line.split(" ")
    headers = dict(one.split(": ", 1) for one in rest)
    reader = client.as_agent("operator", "tools:read").token
    said = headers.get("Authorization", "").replace("$TOKEN", client.token).replace("$READER", reader)
    headers = {**{name.lower(): value for name, value in headers.items()}, "authorization": said}
    raw = body.strip().encode() if body.strip() else None
    response = await client.send(method, path, raw=raw, headers=headers)
    return json.dumps(response.data, indent=2, ensure_ascii=False) + "\n"


def rewritten(page: str) -> str:
    """The page with the answers that came."""
    actual: Iterator[str] = iter([one.actual for one in exchanges(page)])

    def replaced(pair: "re.Match[str]") -> str:
        whole: str = pair[0]
        return whole[: len(whole) - len(pair["answer"]) - 3] + next(actual) + "```"

    return _PAIR.sub(replaced, page)


def main() -> None:
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else PAGES:
        text = path.read_text(encoding="utf-8")
        path.write_text(rewritten(text), encoding="utf-8")


if __name__ == "__main__":
    main()
