"""toolkeep: `echo` and `note` over HTTP, a policy, tokens in a file, the log on disk. Prints a token first.

python bench/servers/toolkeep_http.py PORT [metrics] [traces]
"""

import sys
from collections import deque
from pathlib import Path

from toolkeep import open_keep, tool
from toolkeep.keep.open import open_tokens
from toolkeep.limits import DEFAULT_SERVER_LIMITS
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.server.app_factory import make_app
from toolkeep.server.run_server import bind, serve

POLICY = """
@id("everyone") permit (principal, action == Action::"call", resource);
@id("nothing-dangerous") forbid (principal, action == Action::"call", resource) when { resource.danger > 2 };
@id("known-hosts-only") forbid (principal, action == Action::"call", resource)
unless { ["docs.example.org", "api.example.org"].containsAll(context.hosts) };
"""
NOTES: deque[str] = deque(maxlen=1000)


@tool(side_effects=[])
async def echo(text: str) -> str:
    """Give back a text.

    Args:
        text: What to give back.
    """
    return text


@tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
async def note(text: str) -> str:
    """Write a text down.

    Args:
        text: What to write.
    """
    NOTES.append(text)
    return text


def main(port: int, options: list[str]) -> None:
    keep = open_keep(built_in=False, approver=defer_to_inbox)
    keep.register(echo, note)
    keep.declare_agent("bench", capabilities=["db.write:notes"])
    keep.use_policies(POLICY)
    tokens = open_tokens(Path.cwd())
    print(tokens.make("bench", ["call"]).text, flush=True)
    app = make_app(keep, tokens, has_metrics="metrics" in options, has_traces="traces" in options)
    with bind("127.0.0.1", port) as sock:
        serve(app, sock, DEFAULT_SERVER_LIMITS, lambda: None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
