"""toolkeep sends nothing anywhere by itself: README.md and docs/versioning.md say so."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "toolkeep"

NAMED = {
    "json-schema.org", "spec.openapis.org",  # the names of schemas and dialects
    "schemas.openid.net",  # the name of an event in logout tokens
    "docs.cedarpolicy.com",  # a link for readers
    "example.org", "api.example.org", "search.example.org", "a", "127.0.0.1", "HOST",  # examples
}  # fmt: skip
"""Every host that the package names in a URL. None of them is ever connected to."""

WATCHED = """
import sys

sent = []
sys.addaudithook(lambda event, _: sent.append(event) if event in {"socket.connect", "socket.getaddrinfo"} else None)

from click.testing import CliRunner
from toolkeep import open_keep
from toolkeep.cli.main import cli

with open_keep() as keep:
    assert keep.call_sync("agent_hello_world", {"name": "Ada"}).ok
    assert not keep.call_sync("agent_hello_world", {}).ok
for words in (["list"], ["show", "read_file"], ["audit", "verify"], ["store", "status"], ["nonsense"]):
    CliRunner().invoke(cli, words)
print(*sent)
"""


def test_the_package_names_no_host_that_anything_could_be_sent_to() -> None:
    files = [
        path
        for end in ("py", "js", "html", "css")
        for path in PACKAGE.rglob(f"*.{end}")
        if path.parent.name != "vendor"
    ]
    found = {
        host
        for path in files
        for host in re.findall(r"\bhttps?://([\w.-]+)", path.read_text(encoding="utf-8"))
    }
    assert found - NAMED == set()


def test_calls_and_commands_look_up_no_name_and_connect_to_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
