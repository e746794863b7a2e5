"""Every command that looks at a project, in one process in which contacts are noted; run by test_cloned_upstreams.

python -m tests.hostile.looks MARKER COMMANDS-AS-JSON, in the clone. Prints what each command did, as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

CONTACTS: list[str] = []


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Names that are resolved and addresses that are connected to, but for sockets of this machine's files."""
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(arguments[1], tuple)):
        CONTACTS.append(f"{event} {arguments[:2]}")


def main(marker: Path, commands: list[list[str]]) -> None:
    sys.addaudithook(note)
    from toolkeep.cli.main import cli

    found = []
    for words in commands:
        CONTACTS.clear()
        marker.unlink(missing_ok=True)
        *arguments, given = words
        done = CliRunner().invoke(cli, arguments, input=given)
        broke = done.exception is not None and not isinstance(done.exception, SystemExit)
        found.append(
            {
                "status": done.exit_code,
                "said": done.output,
                "broke": repr(done.exception) if broke else "",
                "contacts": [contact for contact in CONTACTS if "127.0.0.1" not in contact],
                "ran": marker.exists(),
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
