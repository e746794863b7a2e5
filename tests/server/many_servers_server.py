"""One of the servers of `tests.server.many_servers`; all of them append to one file of effects.

python -m tests.server.many_servers_server PROJECT EFFECTS PORT
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.deploy.balancer import HOST
from toolkeep import open_keep, tool
from toolkeep.keep.open import open_tokens
from toolkeep.limits import ServerLimits
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.server.app_factory import make_app
from toolkeep.server.run_server import bind, serve


def main(project: Path, file: str, port: int) -> None:
    effects = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(line: str) -> str:
        os.write(effects, f"{line}\n".encode())
        return line

    @tool(danger="safe", side_effects=["FsWrite"], capabilities=["fs.write:./effects"])
    async def append(line: str) -> str:
        """Append a line to a file.

        Args:
            line: What to append.
        """
        return note(line)

    @tool(danger="safe", side_effects=["FsWrite"], capabilities=["fs.write:./effects"])
    async def append_late(line: str) -> str:
        """Append a line to a file, after two seconds.

        Args:
            line: What to append.
        """
        note(f"begun-{line}-at-{port}")
        await asyncio.sleep(2)
        return note(line)

    @tool(danger="high", side_effects=["FsWrite"], capabilities=["fs.write:./effects"])
    async def sign(line: str) -> str:
        """Append a line to a file, if a person agrees.

        Args:
            line: What to append.
        """
        return note(line)

    limits = ServerLimits(grace_s=10)
    with open_keep(project=project, built_in=False, approver=defer_to_inbox, approval_wait_s=60) as keep:
        keep.declare_agent("writer", capabilities=["fs.write:./effects"])
        keep.register(append, append_late, sign)
        app = make_app(keep, open_tokens(project), limits=limits, hosts={HOST})
        with bind("127.0.0.1", port) as sock:
            serve(app, sock, limits, lambda: print("serving", flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
