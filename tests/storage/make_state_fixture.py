"""Makes `tests/fixtures/state-0.1`: the state folder of a keep, as this version of toolkeep leaves it.

Every later commit must open and verify it (`test_earlier_state.py`). Once 0.1.0 is released, never make it
anew: a later format gets a folder of its own beside it, and all of them are tested. Before, after a change of
a format, one command makes it:

    .venv/bin/python -m tests.storage.make_state_fixture

The keys and the token in it are made for it, and open nothing.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from toolkeep import Answer, Keep, Question, ToolDefinition, open_keep, tool
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.storage.upstream_tokens import FileSignIns
from toolkeep.stores.api_tokens import Scope, Tokens
from toolkeep.stores.registry_state import Pin
from toolkeep.stores.sign_ins import Client, StoredSignIn

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "state-0.1"

ACCEPTED = ("/srv/shop/.agent/config.yml", "5d" * 32)
"""Path and hash of a file that somebody accepted."""
KEY = "order-1"
"""The idempotency key of a call that ran."""
SIGN_IN = StoredSignIn(
    url="https://shop.example/mcp",
    issuer="https://shop.example",
    resource="https://shop.example/mcp",
    token_endpoint="https://shop.example/token",
    client=Client(id="toolkeep"),
    access_token="made-for-the-fixture",
)
STORED: dict[str, Any] = {
    "name": "weather",
    "description": "Say what the weather is like.",
    "version": "1.0.0",
    "client_executed": True,
    "aliases": ["forecast"],
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string", "maxLength": 80, "description": "Where."}},
        "required": ["town"],
    },
}


@tool(side_effects=["None"])
def price(title: str, copies: int = 1) -> int:
    """Tell what copies of a book cost, in cents.

    Args:
        title: The title.
        copies: How many.
    """
    return 1200 * copies


@tool(danger="medium")
def order(title: str, copies: int) -> str:
    """Order copies of a book.

    Args:
        title: The title.
        copies: How many.
    """
    return f"{copies} × {title}"


def open_shop(project: Path, answer: Answer | None = None) -> Keep:
    """A keep with both tools, in which everybody says `answer`; without one nobody is asked."""

    async def approver(_: Question) -> Answer | None:
        return answer

    keep = open_keep(project=project, approver=approver)
    keep.register(price)
    keep.register(order)
    return keep


def make(folder: Path, project: Path) -> dict[str, Any]:
    """Use a keep whose state is kept in `folder`; what the tests must find there."""
    yes = Answer(verdict="approve", approver="ada", way="fixture", reach="rule", days=365)
    with open_shop(project, yes) as keep:
        first = keep.call_sync("price", {"title": "Dune", "copies": 3})
        ordered = keep.call_sync("order", {"title": "Dune", "copies": 3}, idempotency_key=KEY)
        refused = keep.call_sync("price", {"titel": "Dune"})
        keep.create_definition(STORED, by="ada")
        keep.update_definition("weather", {"version": "2.0.0"}, by="ada")
        keep.disable("web_search", remember=True)
        receipt = asyncio.run(keep.receipt(ordered)).to_dict()
    with AuditLog(folder, segment_bytes=1) as log:  # so that the segment before is full, and sealed
        keys = [str(log.public_key()), str(log.rotate_key())]
    with open_shop(project) as keep:
        last = keep.call_sync("price", {"title": "Emma"})
    return {
        "calls": [
            {"id": one.call_id, "status": one.status, "leaf": one.leaf}
            for one in (first, ordered, refused, last)
        ],
        "definitions": {"order": order.definition.hash, "price": price.definition.hash},
        "erased": _erase_result(folder, first.hash),
        "pin": _pin(folder),
        "public_keys": keys,
        "receipt": receipt,
        "rules": _rules(folder),
        "token": _token(folder),
    }


def _erase_result(folder: Path, digest: str) -> str:
    with contextlib.closing(Bodies(folder)) as bodies:
        if not bodies.erase(digest):
            raise LookupError(digest)
    return digest


def _pin(folder: Path) -> dict[str, Any]:
    """The pin of an imported tool, an acceptance, and a sign-in."""
    state = KeepState(folder)
    state.accept(*ACCEPTED, content="agents: {}\n")
    imported = ToolDefinition.from_elsewhere(
        {"name": "list_books", "description": "List all books.", "parameters": {"type": "object"}},
        kind="openapi",
        origin="shop",
    )
    pin = Pin(
        origin="openapi:shop",
        name=imported.name,
        definition_hash=imported.hash,
        version="1.0.0",
        definition=imported.to_dict(),
    )
    state.pin([pin])
    FileSignIns(folder).put("shop", SIGN_IN)
    return msgspec.to_builtins(pin)  # type: ignore[no-any-return]


def _rules(folder: Path) -> Any:
    with contextlib.closing(SqliteApprovals(folder)) as approvals:
        return msgspec.to_builtins(approvals.rules())


def _token(folder: Path) -> str:
    with contextlib.closing(Tokens(SqliteTokens(folder))) as tokens:
        return tokens.make("ci", [Scope.CALL], agent="writer", days=None).text


def main() -> None:
    """Put a new fixture in the place of the one there is."""
    with tempfile.TemporaryDirectory() as scratch:
        state, project = Path(scratch) / "state", Path(scratch) / "project"
        project.mkdir()
        os.environ |= {"HOME": scratch, "TOOLKEEP_HOME": str(state)}
        expected = make(state, project)
        shutil.rmtree(FIXTURE, ignore_errors=True)
        shutil.copytree(state, FIXTURE / "state")
    text = json.dumps(expected, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    (FIXTURE / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
