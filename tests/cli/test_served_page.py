"""Links to the page: opened without a secret in any argument list, and commands that work as printed."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from toolkeep.cli.served_page import open_in_browser, program_name

LINK = "http://127.0.0.1:8765/ui/sign-in#" + "c0de" * 10
BROWSER = """#!{python} -IS
import json, os, sys, urllib.parse
path = urllib.parse.urlsplit(sys.argv[1]).path
said = {{"argv": sys.argv[1:], "mode": os.stat(path).st_mode, "text": open(path).read()}}
with open({out!r} + ".part", "w") as file:
    json.dump(said, file)
os.rename({out!r} + ".part", {out!r})
"""


@pytest.mark.spec("WEB-2", "CLI-1")
def test_the_browser_is_given_a_private_file_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import webbrowser

    out, browser = tmp_path / "said.json", tmp_path / "browser"
    browser.write_text(BROWSER.format(python=sys.executable, out=str(out)))
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    assert open_in_browser(LINK, tmp_path / "state", os.environ)
    said = json.loads(out.read_text())
    assert "c0de" not in "".join(said["argv"])
    assert stat.S_IMODE(said["mode"]) == 0o600
    assert f"url={LINK}" in said["text"]


def test_without_a_display_no_text_browser_takes_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    assert not open_in_browser(LINK, tmp_path / "state", {})
    assert "open the link yourself" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("called", "on_path", "typed"),
    [
        ("/opt/bin/toolkeep", "/opt/bin/toolkeep", "toolkeep"),
        (".venv/bin/toolkeep", None, ".venv/bin/toolkeep"),
        ("/opt/my tools/toolkeep", None, "'/opt/my tools/toolkeep'"),
        # What `uvx` has put on the PATH of this process is on no other.
        (
            "/c/uv/archive-v0/x/bin/toolkeep",
            "/c/uv/archive-v0/x/bin/toolkeep",
            "/c/uv/archive-v0/x/bin/toolkeep",
        ),
        ("/src/toolkeep/__main__.py", None, f"{sys.executable} -m toolkeep"),
    ],
)
def test_the_command_is_named_as_it_can_be_typed(
    called: str, on_path: str | None, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr("shutil.which", lambda _: on_path)
    assert program_name() == typed
