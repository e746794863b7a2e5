"""One server of the soak: appends lines to a file for whoever has a token. Prints its port.

python -m tests.server.soaked PROJECT
"""

import os
import sys
from pathlib import Path

from toolkeep import open_keep, tool
from toolkeep.keep.open import open_tokens
from toolkeep.limits import ServerLimits
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.server.app_factory import make_app
from toolkeep.server.run_server import bind, serve


def main(project: Path) -> None:
    effects = os.open(project / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @tool(danger="safe", side_effects=["FsWrite"], capabilities=["fs.write:./effects"])
    async def append(line: str) -> str:
        """Append a line to a file.

        Args:
            line: What to append.
        """
        os.write(effects, f"{line}\n".encode())
        return line

    @tool(side_effects=[])
    async def echo(line: str) -> str:
        """Give a line back.

        Args:
            line: Which.
        """
        return line

    limits = ServerLimits(grace_s=10)
    with open_keep(project=project, built_in=False, approver=defer_to_inbox) as keep:
        keep.declare_agent("soak", capabilities=["fs.write:./effects"])
        keep.register(append, echo)
        app = make_app(keep, open_tokens(project), limits=limits, has_metrics=True)
        with bind("127.0.0.1", 0) as sock:
            serve(app, sock, limits, lambda: print(sock.getsockname()[1], flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
